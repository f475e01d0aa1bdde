"""What cutting drains into batches does by the rules alone, and what it costs.

The arguments about "Batch callers of free_pcppages_bulk" (October 2025), each put
to the rules, to recordings, or to a workload that pays for the change.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pcpmodel.datasets.packages import load_published
from pcpmodel.errors import InputError
from pcpmodel.files import digest_of
from pcpmodel.hardware import machines
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel.releases import Release, release
from pcpmodel.kernel.sizing import drain_limit
from pcpmodel.simulation.host import Host
from pcpmodel.simulation.run import simulate
from pcpmodel.study.answer import Answer
from pcpmodel.study.contention.runs import (
    HOLDS,
    RELEASES,
    answered,
    before_and_after,
    half_width,
)
from pcpmodel.study.lists.trajectory import trajectory
from pcpmodel.study.published.cases import hahn_machines
from pcpmodel.trace.recording import Recording
from pcpmodel.trace.recording import recording as open_recording
from pcpmodel.trace.what_if import what_if
from pcpmodel.workload import unix_stream

__all__ = ["boot_drains", "early_stop", "largest_drains", "stream_price"]


def largest_drains(releases: Sequence[str] = RELEASES) -> Answer:
    """How many pages a drain moves at most on each of Hahn's machines.

    Each machine's list, of the size that its memory and CPUs give, is filled by frees until its
    ``high`` has nowhere to grow, and drained on the way.

    Parameters
    ----------
    releases : sequence of str or Release

    Returns
    -------
    Answer
        ``hosts``: ``host``, ``gib_per_cpu``, ``high_max`` [pages], ``release``,
        ``largest_drain`` and ``largest_hold`` [pages].
    """
    rows = []
    for name, (cpus, nodes, memory) in hahn_machines().items():
        for kernel in releases:
            size = Host(cpus, nodes, memory).sizes(release(kernel))[0]
            run = trajectory(
                kernel,
                [("free", 3 * size.high_max)],
                batch=size.batch,
                high_min=size.high_min,
                high_max=size.high_max,
            )
            rows.append(
                {
                    "host": name,
                    "gib_per_cpu": memory / cpus,
                    "high_max": size.high_max,
                    "release": kernel,
                    "largest_drain": int(run.events["pages"].max()),
                    "largest_hold": math.ceil((run.events["pages"] / run.events["holds"]).max()),
                }
            )
    table = pd.DataFrame(rows)
    first = table[table["release"] == releases[0]]
    most = ", ".join(
        f"{r.host} {r.largest_drain:,} (high_max {r.high_max:,})" for r in first.itertuples()
    )
    capped = drain_limit(63, release(releases[0]).rules) is not None
    text = (
        f"- Largest drain by the rules of {releases[0]} [pages]: {most}. "
        + "A drain is capped at the batch, scaled by CONFIG_PCP_BATCH_SCALE_MAX. " * capped
        + (
            "So memory per CPU, which raises high_max, lets a list keep more pages but cannot "
            "lengthen a hold: this mechanism for the order of the gains is refuted."
            if first["largest_drain"].nunique() == 1
            else "The machines differ in it, so this mechanism for the order of the gains stands."
        )
    )
    return Answer({"hosts": table}, {"largest": text}, digest=digest_of(table.to_dict("list")))


def early_stop(
    recording: str | Path | Recording = "6.18-unixpair-4cpu",
    *,
    releases: Sequence[str | Release] = RELEASES,
    pages: int = 12_000,
) -> Answer:
    """Version 4 stops below ``high``: in a race only, or at every drain?

    Parameters
    ----------
    recording : str
        Under data/traces, or a path: a stream whose frees are done again under each release.
    releases : sequence of str or Release
        The first is the kernel before the change.
    pages : int
        Frees in a row by one CPU, with nobody else there to race with [pages].

    Returns
    -------
    Answer
        ``works``: by ``work`` and ``release`` the visits to the buddy lists (of the frees in a
        row alone), zone-lock ``holds`` to drain, and ``pages`` drained.
    """
    rows = []
    for kernel in releases:
        run = trajectory(kernel, [("free", pages)]).events
        rows.append(
            {
                "work": f"{pages:,} frees in a row, one CPU",
                "release": kernel,
                "visits": len(run),
                "holds": int(run["holds"].sum()),
                "pages": int(run["pages"].sum()),
            }
        )
    found = what_if(recording, releases)
    rows += [
        {
            "work": found.recording,
            "release": o.release,
            "visits": None,
            "holds": o.drains,
            "pages": o.drained_pages,
        }
        for o in found.outcomes
    ]
    table = pd.DataFrame(rows).astype({"visits": "Int64"})
    said = {}
    for work, part in table.groupby("work", sort=False):
        runs = "; ".join(
            f"{r.release} "
            + ("" if r.visits is pd.NA else f"{r.visits} drains in ")
            + f"{r.holds:,} holds ({r.pages:,} pages)"
            for r in part.itertuples()
        )
        said[str(work)] = f"- {work}: {runs}."
    alone = table[table["visits"].notna()].set_index("release")["visits"]
    early = [r for r in releases[1:] if alone[r] > alone[releases[0]]]
    said["early stop"] = (
        "- With one CPU nobody can race. "
        + (
            f"{', '.join(early)} stops all the same, after the first batch of every ordinary "
            "drain, because the list is then below high: the early stop is the normal case, not "
            "the race that it was taken for. It costs no hold of the lock (a batch later the next "
            "free drains again); what multiplies the holds is the cut into batches. So no drastic "
            "change of performance was to be expected from dropping it, for another reason than "
            "the one given."
            if early
            else "No release stops early then."
        )
        + " The check for nothing to free that came with version 4 is never reached: only a list "
        "whose high equals its batch answers zero."
    )
    return Answer({"works": table}, said, digest=digest_of(table.to_dict("list")))


def stream_price(
    machine: str | Machine = "ice-lake",
    *,
    releases: Sequence[str | Release] = ("v6.18", "v6.19"),
    pairs: int = 16,
    seeds: Sequence[int] = (1, 2, 3, 4, 5),
    seconds: float = 0.5,
) -> Answer:
    """What the change costs a workload that drains all the time: AF_UNIX streams.

    Parameters
    ----------
    machine : str or Machine
        Whose hold times are used, 128 CPUs on two nodes.
    releases : sequence of str or Release
        Before and after.
    pairs : int
        Pairs of processes.
    seeds : sequence of int
        Repetitions, at least two.
    seconds : float
        Simulated time of a run after a warm-up of half as long [s].

    Returns
    -------
    Answer
        ``holds``: by ``holds`` (of warm pages, as measured, and as they come) ``score_percent``
        and contention before and after, holds to drain per second, each change with half of its
        95 % interval; ``seeds``: by seed.

    Raises
    ------
    InputError
        With fewer than two seeds or releases.
    """
    half = half_width(seeds)
    before_and_after(releases)
    hardware = machines.machine(machine)
    runs = []
    for holds, warm in HOLDS.items():
        for seed in seeds:
            for kernel in releases:
                result = simulate(
                    release=kernel,
                    machine=hardware,
                    workload=unix_stream(pairs),
                    cpus=128,
                    nodes=2,
                    memory_gib=256.0,
                    seconds=seconds,
                    warmup_s=seconds / 2,
                    seed=seed,
                    warm=warm,
                )
                runs.append(
                    {
                        "holds": holds,
                        "seed": seed,
                        "release": kernel,
                        "score_per_s": result.score_per_s,
                        "contention_percent": 100 * result.lock_contention,
                        "drains_per_s": result.drains / seconds,
                    }
                )
    frame = pd.DataFrame(runs)
    first, last = releases[0], releases[-1]
    rows, said = [], {}
    for holds, part in frame.groupby("holds", sort=False):
        wide = part.pivot(index="seed", columns="release")
        score = wide["score_per_s"]
        change = 100 * (score[last] / score[first] - 1)
        waits, drains = wide["contention_percent"], wide["drains_per_s"]
        row = {
            "holds": holds,
            "score_change_percent": change.mean(),
            "score_error_percent": half * change.std(),
            "contention_before_percent": waits[first].mean(),
            "contention_after_percent": waits[last].mean(),
            "contention_error_percent": half * (waits[last] - waits[first]).std(),
            "drains_per_s_before": drains[first].mean(),
            "drains_per_s_after": drains[last].mean(),
        }
        rows.append(row)
        said[str(holds)] = (
            f"- {str(holds).capitalize()}: from {first} to {last} the score of {pairs} pairs "
            f"changes by {row['score_change_percent']:+.2f} ± {row['score_error_percent']:.2f} %, "
            f"contention goes from {row['contention_before_percent']:.1f} to "
            f"{row['contention_after_percent']:.1f} % (change ± "
            f"{row['contention_error_percent']:.1f}), holds to drain from "
            f"{row['drains_per_s_before']:,.0f} to {row['drains_per_s_after']:,.0f} per second."
        )
    table = pd.DataFrame(rows)
    dearer = table[table["score_change_percent"] + table["score_error_percent"] < 0]["holds"]
    verdict = {0: "Not beyond the noise", len(HOLDS): "Yes"}.get(
        len(dearer), f"Of {', '.join(dearer)} alone"
    )
    more = table["drains_per_s_after"] / table["drains_per_s_before"]
    said["price"] = (
        f"- Does a change that helps tails cost throughput where lists drain all the time? "
        f"{verdict}: {more.min():.1f} to "
        f"{more.max():.1f} times the holds. How much of the score they cost hangs on what a hold "
        "costs beyond its measured time."
    )
    return answered("holds", table, frame, said, hardware)


def boot_drains(
    names: Sequence[str] = ("6.1-boot-2cpu", "7.2-boot-4cpu"), pages: int = 2000
) -> Answer:
    """Drains of very many pages while a kernel boots, from recordings of booting kernels.

    Parameters
    ----------
    names : sequence of str
        Recordings, under data/traces or as paths.
    pages : int
        Drains of so many pages are counted [pages].

    Returns
    -------
    Answer
        ``recordings``: ``recording``, ``release``, ``memory_mib``, ``cpus``, ``drained_pages``,
        ``longest_run``: most pages that a CPU gave back with no other event of its own between,
        an upper bound of one drain [pages]; ``large``: runs of ``pages`` or more.

    Raises
    ------
    InputError
        For ``pages`` below 1, or no recording.
    """
    if pages < 1:
        raise InputError(f"pages={pages}: at least 1")
    rows = []
    for name in names:
        cap = open_recording(name)
        events, _ = cap.trace
        drains = events.is_event("mm_page_pcpu_drain")
        sizes = [0]
        for cpu in np.unique(events.rows["cpu"]):
            on = events.rows["cpu"] == cpu
            drained = drains[on]
            blocks = np.where(drained, 1 << np.where(drained, events.rows["b"][on], 0), 0)
            starts = np.flatnonzero(np.diff(np.r_[0, drained.astype(int)]) == 1)
            if len(starts):
                sizes += np.add.reduceat(blocks, starts).tolist()
        rows.append(
            {
                "recording": cap.name,
                "release": cap.release.name,
                "memory_mib": int(cap.meta["memory_mib"]),
                "cpus": int(cap.meta["cpus"]),
                "drained_pages": int(sum(sizes)),
                "longest_run": int(max(sizes)),
                "large": int(sum(size >= pages for size in sizes)),
            }
        )
    table = pd.DataFrame(rows)
    setup = load_published("hahn-v4").tables["setup"]
    fleet = setup[setup["workload"].str.startswith("Meta fleet")].set_index("unit")["value"]
    calls, size, cpus = (float(fleet[unit]) for unit in ("calls", "TB", "CPUs"))
    counted = "; ".join(
        f"{r.recording} {r.large} (at most {r.longest_run:,} pages at once, {r.drained_pages:,} in "
        "all)"
        for r in table.itertuples()
    )
    text = (
        f"- Drains of {pages:,} pages or more in recorded boots: {counted}. The source saw over "
        f"{calls:g} during the boot of a machine with {size:g} TB and {cpus:g} CPUs; small guests "
        "with "
        f"{table['memory_mib'].max() / 1024:.0f} GiB cannot say whether their rules would too."
    )
    return Answer({"recordings": table}, {"large": text}, digest=digest_of(table.to_dict("list")))
