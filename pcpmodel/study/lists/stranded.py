"""Pages left on the lists of CPUs that sleep."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from pcpmodel.files import digest_of
from pcpmodel.hardware import machines
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.simulation.run import execute
from pcpmodel.simulation.spec import MAX_CPUS, host_of, make_spec, varied
from pcpmodel.study.answer import Answer
from pcpmodel.study.lists.tradeoff import runs_on
from pcpmodel.workload import idle_after_burst

__all__ = ["stranded"]

#: Less than this is "within seconds" [s].
SECONDS = 10.0


def stranded(
    machine: str | Machine = "sapphire-rapids",
    *,
    releases: Sequence[str | Release] = ("v6.6", "v6.6+p8", "v6.7", "v7.2"),
    pages: int = 20_000,
    idle_s: float = 5.0,
    seconds: float = 40.0,
    seed: int = 1,
) -> Answer:
    """Pages left on per-CPU lists after a burst, while the machine is all but idle.

    Parameters
    ----------
    machine : str or Machine
        Whose hold times, CPUs and memory are used, as with `tradeoff`.
    releases : sequence of str or Release
        Kernel states to compare.
    pages : int
        Pages that each CPU allocates and frees at the start [pages].
    idle_s : float
        From one wake-up of a CPU to the next [s].
    seconds : float
        Simulated time [s].
    seed : int
        Of the simulations.

    Returns
    -------
    Answer
        ``memory``: ``time_s``, ``release``, ``nohz_idle``, ``mib`` on the lists; ``ends``: MiB at
        the end and the time from the peak until half of it is given back (inf: not by the end).
    """
    hardware = machines.machine(machine)
    cpus = min(host_of(hardware, {}).cpus, MAX_CPUS)
    base = make_spec(
        release=releases[0],
        machine=hardware,
        workload=idle_after_burst(cpus, pages=pages, bursts=1, idle_s=seconds, wake_s=idle_s),
        seconds=seconds,
        seed=seed,
        samples=400,
    )
    parts, ends = [], []
    specs = {
        (kernel, nohz): varied(base, release=kernel, nohz_idle=nohz)
        for kernel in releases
        for nohz in (False, True)
    }
    for (kernel, nohz), spec in specs.items():
        result = execute(spec)
        mib = base.host.mib(result.pages_in_pcp)
        parts.append(
            pd.DataFrame(
                {"release": kernel, "nohz_idle": nohz, "time_s": result.time_s, "mib": mib}
            )
        )
        half = _time_until(result.time_s, mib, mib.max() / 2)
        ends.append((kernel, nohz, mib.max(), mib[-1], half))
    table = pd.concat(parts, ignore_index=True)
    ended = pd.DataFrame(ends, columns=["release", "nohz_idle", "peak_mib", "end_mib", "half_s"])
    said = {
        f"{r.release}, {'asleep' if r.nohz_idle else 'awake'}": f"- {r.release}, "
        f"{'idle CPUs asleep' if r.nohz_idle else 'vmstat worker always on'}: "
        f"{r.peak_mib:.0f} MiB after the burst, {r.end_mib:.0f} MiB after {seconds:g} s, "
        + (
            f"half given back after {r.half_s:.1f} s."
            if np.isfinite(r.half_s)
            else "half not given back by then."
        )
        for r in ended.itertuples()
    }
    back = dict(_back_at_the_end(ended, table, seconds))
    made_of = digest_of(table.to_dict("list"), hardware.digest)
    return Answer(
        {"memory": table, "ends": ended},
        said | back | {"runs": f"- Runs: {runs_on(base)}."},
        digest=made_of,
        shown=("ends",),
    )


def _time_until(time_s: np.ndarray, mib: np.ndarray, level: float) -> float:
    """From the peak until no more than this is on the lists [s]; inf: not by the end."""
    at = mib.argmax()
    after = np.flatnonzero(mib[at:] <= level)
    return float(time_s[at + after[0]] - time_s[at]) if len(after) else float("inf")


def _back_at_the_end(
    ends: pd.DataFrame, table: pd.DataFrame, seconds: float
) -> Iterator[tuple[str, str]]:
    """Whether an idle machine gives back what auto-tuning let the lists keep."""
    tunes = np.array([find_release(name).rules.auto_high for name in ends["release"]], bool)
    fixed, tuned = ends[~tunes], ends[tunes]
    if tuned.empty:
        return
    half = ", ".join(
        (f"after {r.half_s:.1f} s" if np.isfinite(r.half_s) else f"not in {seconds:g} s")
        + f" ({r.release}, {'asleep' if r.nohz_idle else 'awake'})"
        for r in tuned.itertuples()
    )
    if fixed.empty:
        yield (
            "surprise",
            "- No release with a fixed high is here to say what a machine has that gave everything "
            f"back. Half of the peak is back {half}.",
        )
        return
    base = float(fixed["end_mib"].max())
    level = 1.25 * base
    runs = dict(iter(table.groupby(["release", "nohz_idle"])))
    until = [
        _time_until(*(runs[r.release, r.nohz_idle][c].to_numpy() for c in ("time_s", "mib")), level)
        for r in tuned.itertuples()
    ]
    back, asleep = tuned["end_mib"] <= level, tuned["nohz_idle"].astype(bool)
    yield (
        "surprise",
        "- Would it surprise us, if an idle machine gave everything back within seconds? "
        f"{'It does' if max(until) < SECONDS else 'It does not'}: half of the peak is back {half}.",
    )
    yield (
        "claim",
        "- The series claims that used memory is back at the base level at the end of its "
        f"builds. Here, after {seconds:g} s without work and against {base:.0f} MiB of "
        f"{fixed['release'].iloc[0]}: "
        + ", ".join(
            f"{r.end_mib:.0f} MiB ({r.release}, {'asleep' if r.nohz_idle else 'awake'})"
            for r in tuned.itertuples()
        )
        + f". Within a quarter of the base level are {(back & ~asleep).sum()} of "
        f"{(~asleep).sum()} runs whose CPUs wake up and {(back & asleep).sum()} of "
        f"{asleep.sum()} whose CPUs sleep on.",
    )
