"""One simulated run: from names and numbers to a `Result`."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pcpmodel.errors import InputError, unknown_name
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel.releases import Release
from pcpmodel.simulation.engine import MAX_SECONDS
from pcpmodel.simulation.engines import check_end, runner_of
from pcpmodel.simulation.once import Once
from pcpmodel.simulation.pilot import prepare
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.spec import RunSpec, make_spec
from pcpmodel.simulation.steady import truncation
from pcpmodel.workload.tasks import Workload

__all__ = ["ENGINES", "execute", "hold_range", "settle", "simulate"]

ENGINES = ("event", "per-page")
_PS = 10**12
_EVENTS_BETWEEN_SIGNALS = 200_000
#: The shortest and the longest stretch in which the end of the warm-up is looked for [s].  The
#: lists' sizes fall by an eighth at every vmstat tick, as a rule once a second.
_SETTLE_S = (4.0, 64.0)
_SETTLE_BATCHES = 128
_WARM_UPS: Once[tuple[float, bool]] = Once()
#: Pages of a hold by which the interval of all holds is told.
_TYPICAL_PAGES = 504


def execute(
    spec: RunSpec,
    *,
    engine: str = "event",
    progress: Callable[[float], None] | None = None,
) -> Result:
    """Run a spec.

    Parameters
    ----------
    spec : RunSpec
    engine : str
        "event", or "per-page" for the slow oracle; the result is the same.  With page identity,
        where page blocks may change their migratetype under pages in use, both are the oracle.
    progress : callable, optional
        Called now and then with the simulated time done [s].

    Raises
    ------
    InputError
        If a zone runs out of memory.
    """
    if not isinstance(engine, str) or engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    if progress is not None and not callable(progress):
        raise InputError(f"progress={progress!r} is not a function")
    began = time.perf_counter()
    warmup_s, stands = spec.warmup_s or 0.0, None
    if spec.settles:
        warmup_s, stands = settle(spec, progress=progress)
        warmup_s = min(warmup_s, MAX_SECONDS - spec.seconds)
    result = _run(replace(spec, warmup_s=warmup_s), engine, progress)
    took = time.perf_counter() - began
    return replace(result, spec=spec, warmup_s=warmup_s, stands=stands, run_s=took)


def hold_range(spec: RunSpec) -> dict[float, Result]:
    """Run with holds as short and as long as the 95 % interval of their mean allows.

    For a machine whose holds were not measured (`Machine.derived`): what its holds are not known by
    says more of it than what random numbers do.

    Returns
    -------
    dict of float to Result
        By the factor on every hold, the smaller first.
    """
    at = spec.machine.hold_time.refill(_TYPICAL_PAGES), spec.machine.hold_time.drain(_TYPICAL_PAGES)
    factors = [
        math.sqrt(math.prod(cost.interval["mean_ns"][end] / cost.mean_ns for cost in at))
        for end in (0, 1)
    ]
    return {
        factor: execute(replace(spec, machine=spec.machine.slower(factor))) for factor in factors
    }


def first_look(spec: RunSpec) -> dict[str, Any]:
    """What is other in the first run in which `settle` looks for the warm-up of a spec."""
    return {
        "seconds": min(max(_SETTLE_S[0], 2 * spec.seconds), MAX_SECONDS / 2),
        "warmup_s": 0.0,
        "seed": 1,
        "samples": _SETTLE_BATCHES,
        "identity": False,
        "caches": False,
    }


def settle(spec: RunSpec, *, progress: Callable[[float], None] | None = None) -> tuple[float, bool]:
    """Time after which the rates of a run are steady [s], and whether they come to be.

    The run is done for 4 s, or twice the time to be counted if that is longer, and cut in 128
    batches.  What `pcpmodel.simulation.steady.truncation` leaves out of units of work, waiting
    for locks, pages from the zone and pages on the lists, at most, is doubled to be the warm-up:
    the rule weighs what is left of the beginning against the noise of the whole stretch, and
    less than that is counted.  Where one of the four is not steady the run is done for twice as
    long, up to 64 s or eight times as long as at first; then half of it is the warm-up.

    It is found once, with the seed 1, for all seeds: a length that differs from seed to seed would
    make their scatter larger than it is.

    Parameters
    ----------
    spec : RunSpec
        ``identity`` and ``caches`` make no difference to the rates and are left out.
    progress : callable, optional
        Called now and then with 0.

    Returns
    -------
    tuple of float and bool
    """
    first = first_look(spec)
    return _WARM_UPS(spec, lambda: _settled(replace(spec, **first), progress), **first)


def _settled(first: RunSpec, progress: Callable[[float], None] | None) -> tuple[float, bool]:
    """The warm-up of `settle`, from the run that it is looked for in at first."""
    stretch = first.seconds
    longest = min(max(_SETTLE_S[1], 8 * stretch), MAX_SECONDS / 2)
    while True:
        try:
            run = _run(
                replace(first, seconds=stretch), "event", progress and (lambda _: progress(0.0))
            )
        except InputError:  # memory does not last for so long
            return 0.0, False
        cuts: list[int | None] = [
            truncation(series)
            for series in (
                run.batch_sums["score"],
                run.batch_sums["wait_ps"] + run.batch_sums["lru_wait_ps"],
                run.batch_sums["refill_pages"],
                run.pages_in_pcp,
            )
        ]
        found = [cut for cut in cuts if cut is not None]
        if len(found) == len(cuts):
            return 2 * stretch / _SETTLE_BATCHES * max(found), True
        if stretch >= longest:
            return stretch / 2, False
        stretch = min(2 * stretch, longest)


def _run(spec: RunSpec, engine: str, progress: Callable[[float], None] | None) -> Result:
    state = prepare(spec)
    runner = runner_of(spec, state, engine)
    began = time.perf_counter()
    # Back in Python now and then: for Ctrl-C and for the progress bar.
    while not runner.run(_EVENTS_BETWEEN_SIGNALS):
        if progress is not None:
            progress(runner.now_ps / _PS)
    took = time.perf_counter() - began
    check_end(spec, state)
    if progress is not None:
        progress(spec.seconds + (spec.warmup_s or 0.0))
    return Result.from_state(spec, state, took)


def simulate(
    release: str | Release,
    machine: str | Machine,
    workload: Workload,
    *,
    seconds: float = 1.0,
    warmup_s: float | None = None,
    seed: int = 1,
    cpus: int | None = None,
    nodes: int | None = None,
    memory_gib: float | None = None,
    batch_scale_max: int | None = None,
    engine: str = "event",
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Result:
    """Run a workload on many CPUs under one kernel.

    Parameters
    ----------
    release : str or Release
        Kernel state, `pcpmodel.release`.
    machine : str or Machine
        Whose hold times are used, `pcpmodel.machine`.
    workload : Workload
        See `pcpmodel.workload`.
    seconds : float
        Simulated time that is counted [s].
    warmup_s : float, optional
        Simulated time before that [s]; by default until the rates are steady, see `RunSpec` and
        `settle`.
    seed : int
        Same arguments and seed: same result, bit for bit.
    cpus, nodes, memory_gib : int, int, float, optional
        Size of the machine; by default what its platform file says, else two nodes with
        112 CPUs each and 512 GiB.  So is ``page_size_kib`` among the options, else 4.
    batch_scale_max : int, optional
        CONFIG_PCP_BATCH_SCALE_MAX, 0..6.
    engine : str
        See `execute`.
    progress : callable, optional
        See `execute`.
    **options
        Further fields of `RunSpec`, or of `pcpmodel.simulation.host.Host`
        (``zones_per_node``, ...).

    Returns
    -------
    Result

    Raises
    ------
    InputError
        For anything impossible, before the run starts.

    Notes
    -----
    A CPU looks at the watermarks when a list of its own is empty, by the order-0 test, and sees
    zones as the last hold of their lock left them; the zone flags it sees when it comes to the
    zone's lock.  It takes the first zone of its zonelist above the low watermark; if there is none
    it wakes kswapd and takes the first above the min watermark.  A task that hands pages to
    another stays with its zone.  Direct reclaim is not modelled: who finds every zone at the min
    watermark sleeps until kswapd has freed a cluster, and without page cache the run ends there.

    References
    ----------
    mm/page_alloc.c: get_page_from_freelist(), __alloc_pages_slowpath(); mm/vmscan.c:
    balance_pgdat(); v4.17 ... v7.3.
    """
    spec = make_spec(
        release=release,
        machine=machine,
        workload=workload,
        seconds=seconds,
        warmup_s=warmup_s,
        seed=seed,
        cpus=cpus,
        nodes=nodes,
        memory_gib=memory_gib,
        batch_scale_max=batch_scale_max,
        **options,
    )
    return execute(spec, engine=engine, progress=progress)
