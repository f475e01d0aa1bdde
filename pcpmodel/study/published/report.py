"""A kernel robot's report that was brought in (`pcpmodel data add report`), as a question.

Its two commits are releases that the reader names: a report has their hashes.  What is predicted is
the change of the score and, where the profile has it, the share of cycles that wait for a
spinlock.  Nothing is fitted to it.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from pcpmodel.datasets.packages import Dataset, load_published, published_names
from pcpmodel.errors import InputError
from pcpmodel.hardware.machines import Machine, machine, machines
from pcpmodel.kernel.releases import Release
from pcpmodel.simulation.run import simulate
from pcpmodel.study.builds import busy_cycles, time_change
from pcpmodel.study.published.model import REPEATS
from pcpmodel.study.published.rows import Row, after, make_row
from pcpmodel.workload import Workload, kbuild, make, sctp_stream

__all__ = ["is_report", "report_rows"]

#: Words of a metric -> whether more of it is more work.
_SCORES = {
    r"buildtime": False,
    r"per_process_ops|ops_per_sec": True,
    r"Throughput": True,
}
_SPINS = "native_queued_spin_lock_slowpath"


def is_report(source: str) -> bool:
    """Whether a source is a report that was brought in."""
    if source not in published_names():
        return False
    figures = load_published(source).read.get("figures")
    return figures is not None and "model" in figures.columns


def _asked(text: str, name: str, cpus: int) -> int | None:
    """A parameter of a test that counts tasks, as such or in % of the CPUs."""
    found = re.search(rf"\b{name}=(\d+)(%?)(?:\s|$)", text)
    if found is None:
        return None
    return max(int(found[1]) * cpus // 100, 1) if found[2] else int(found[1])


def _workload(model: str, text: str, cpus: int) -> Workload:
    tasks = next(
        (n for name in ("nr_task", "nr_threads", "nr_tasks") if (n := _asked(text, name, cpus))),
        cpus,
    )
    if model == "kbuild":
        return kbuild(min(tasks, cpus))
    if model == "sctp_stream":
        return sctp_stream(max(min(tasks, cpus // 2), 1))
    return make(model, processes=min(tasks, cpus))


def _machine_of(text: str, given: str | Machine | None, source: str) -> Machine:
    """The measured machine of a report's, by the name of its generation."""
    if given is not None:
        return machine(given)
    said = re.sub(r"[^a-z0-9]+", "-", text.lower())
    for name in machines():
        if name in said:
            return machine(name)
    raise InputError(
        f"{source}: no measured machine is a {text or '(not stated)'}; name one (machine=, "
        f"--machine): {', '.join(machines())}"
    )


def report_rows(
    source: str,
    releases: Sequence[Release],
    rules: Mapping[str, Mapping[str, float]],
    seed: int,
    on: str | Machine | None = None,
) -> tuple[list[Row], str]:
    """Rows of a report, and what was assumed.

    Parameters
    ----------
    source : str
    releases : sequence of Release
        What its two commits stand for: before, after.
    rules : mapping
        Tolerances.
    seed : int
        The first of three.
    on : str or Machine, optional
        Whose holds are used; by default the measured machine that the report names.

    Raises
    ------
    InputError
        If no test of the report has a workload, its machine is not stated, or there is none.
    """
    data = load_published(source)
    figures = data.tables["figures"]
    tests = figures[figures["model"].notna() & (figures["model"] != "")]
    if tests.empty:
        told = ", ".join(sorted(set(figures["workload"].dropna())))
        raise InputError(f"{source}: no workload stands for {told}")
    rows: list[Row] = []
    used = []
    for number, test in tests.groupby("comparison", sort=False):
        line = test.iloc[0]
        if pd.isna(line["cpus"]) or pd.isna(line["sockets"]):
            raise InputError(f"{source}: CPUs and sockets of comparison {number} are not stated")
        hardware = _machine_of(str(line["machine"]), on, source)
        cpus, nodes = int(line["cpus"]), int(line["sockets"])
        workload = _workload(str(line["model"]), str(line["workload"]), cpus)
        runs = [
            [
                simulate(
                    release,
                    hardware,
                    workload,
                    cpus=cpus,
                    nodes=nodes,
                    memory_gib=256.0 if pd.isna(line["memory_gb"]) else float(line["memory_gb"]),
                    seconds=1.0,
                    seed=seed + i,
                )
                for i in range(REPEATS)
            ]
            for release in releases
        ]
        used.append(f"{len(workload.tasks)} tasks of {workload.name} on {hardware.name}")
        rows += _changes(source, int(number), test, runs, rules)
        rows += _spinning(source, int(number), data, runs, rules)
    if not rows:
        raise InputError(f"{source}: has neither a score nor {_SPINS} of a test with a workload")
    return rows, (
        f"{releases[0].name} and {releases[1].name} stand for its commits; {'; '.join(used)}. "
        "Tasks beyond the CPUs are left out."
    )


def _changes(
    source: str,
    number: int,
    test: pd.DataFrame,
    runs: Sequence[Sequence[Any]],
    rules: Mapping[str, Mapping[str, float]],
) -> Iterable[Row]:
    """Changes of what is a score [%]."""
    gains = [100 * (b.score / a.score - 1) for a, b in zip(*runs, strict=True)]
    losses = [time_change(a, b) for a, b in zip(*runs, strict=True)]
    for line in test.itertuples():
        more = next((m for words, m in _SCORES.items() if re.search(words, line.metric)), None)
        if more is None or pd.isna(line.change_pct):
            continue
        said = gains if more else losses
        quantity = "score change" if more else "time change"
        row = make_row(
            source, "figures", f"{number}: {line.metric}", quantity, float(line.change_pct),
            said[0], rules, kind="change",
        )  # fmt: skip
        yield after(row, said, before=0.0, runs_before=[0.0] * REPEATS, first=0.0)


def _spinning(
    source: str,
    number: int,
    data: Dataset,
    runs: Sequence[Sequence[Any]],
    rules: Mapping[str, Mapping[str, float]],
) -> Iterable[Row]:
    """Share of the cycles that wait for a spinlock [%], before and after."""
    if "profile" not in data.tables:
        return
    profile = data.tables["profile"]
    own = profile["metric"].str.endswith(f"self.cycles-pp.{_SPINS}")
    said = [[100 * busy_cycles(run) * run.lock_contention for run in some] for some in runs]
    for line in profile[own & (profile["comparison"] == number)].itertuples():
        cells = [
            make_row(
                source, "profile", f"{number}: {name}", "lock_contention", measured, by_seed[0],
                rules,
            )
            for name, measured, by_seed in zip(
                ("before", "after"), (float(line.before), float(line.after)), said, strict=True
            )
        ]  # fmt: skip
        yield replace(cells[0], runs=tuple(said[0]))
        yield after(
            cells[1], said[1], before=cells[0].measured, runs_before=said[0],
            first=cells[0].measured,
        )  # fmt: skip
