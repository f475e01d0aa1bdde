"""Splitting zones into instances: what it gains, beside auto-tuning, and on which machines.

The RFC of May 2023 (see `pcpmodel.kernel.zone_split`), its motivation, its choice to split by
memory, and whether the series that went another way to the same end leaves it anything to gain.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from pcpmodel.datasets.packages import load_published
from pcpmodel.errors import InputError
from pcpmodel.files import digest_of
from pcpmodel.hardware import machines
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.kernel.zone_split import MAX_NR_ZONES_PER_TYPE, nr_instances
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import simulate
from pcpmodel.study.answer import Answer
from pcpmodel.study.contention.explain import explain
from pcpmodel.study.contention.runs import answered, half_width, known, over_seeds, run_figures
from pcpmodel.workload import kbuild, page_fault1

__all__ = ["contention_by_cpus", "zone_splitting"]

_FAULTS, _BUILD = "page_fault1, 16 processes", "kbuild -j224"
#: CPUs of a node that share an instance where zones are split by CPUs: four on 112.
_CPUS_PER_INSTANCE = 28


def _repeated(seeds: Sequence[int], **spec: Any) -> list[Result]:
    """One run per seed; the warm-up that the first one finds for itself serves all."""
    first = simulate(seed=seeds[0], **spec)
    rest = [simulate(seed=seed, warmup_s=first.warmup_s, **spec) for seed in seeds[1:]]
    return [first, *rest]


def zone_splitting(
    machine: str | Machine = "sapphire-rapids",
    *,
    instances: Sequence[int] = (1, 2, 3, 4),
    releases: Sequence[str | Release] = ("v6.6", "v6.7"),
    memory_gib: float = 2048.0,
    seeds: Sequence[int] = (1, 2, 3, 4, 5),
    seconds: float = 5.0,
) -> Answer:
    """One to four instances of each node's zone, with and without auto-tuning of the lists.

    Parameters
    ----------
    machine : str or Machine
        Whose hold times are used.
    instances : sequence of int
        Zone instances per node, 1 among them; the RFC makes four only above 1016 GiB per node.
    releases : sequence of str or Release
        The first, with one instance, is what the others are compared with.
    memory_gib : float
        Memory of the machine of 224 CPUs on two nodes [GiB].
    seeds : sequence of int
        Repetitions, at least two.
    seconds : float
        Simulated time of each run after its warm-up [s].

    Returns
    -------
    Answer
        ``instances``: figures by workload, release and instances, means over the seeds;
        ``score_percent`` of the first run of the same seed, with half of its 95 % interval, and
        whether its rates ``stand`` (first seed); ``waterfall``: the causes of `explain` for
        page_fault1, one zone to the most, means over the seeds with half of their 95 % intervals.

    Notes
    -----
    A thread that waits leaves its core to the other one; sixteen processes have cores of their own.

    Raises
    ------
    InputError
        With fewer than two seeds, or without one instance.
    """
    half = half_width(seeds)
    known(releases)
    if 1 not in instances:
        raise InputError(f"instances={list(instances)} lacks 1, with which the others are compared")
    instances = sorted(set(instances))
    hardware = machines.machine(machine)
    works = {
        _FAULTS: page_fault1(16),
        _BUILD: kbuild(224),
    }
    rows, ends, stand = [], [], []
    for name, work in works.items():
        base: dict[int, float] = {}
        for kernel in releases:
            for n in instances:
                results = _repeated(
                    seeds,
                    release=kernel,
                    machine=hardware,
                    workload=work,
                    cpus=224,
                    nodes=2,
                    memory_gib=memory_gib,
                    zones_per_node=n,
                    seconds=seconds,
                )
                stand.append(bool(results[0].stands))
                if name == _FAULTS and kernel == releases[0]:
                    ends.append(results)
                for seed, result in zip(seeds, results, strict=True):
                    rate = result.score_per_s
                    rows.append(
                        run_figures(
                            result,
                            workload=name,
                            release=kernel,
                            instances=n,
                            seed=seed,
                            score_percent=100 * rate / base.setdefault(seed, rate),
                            contention_percent=100 * result.lock_contention,
                        )
                    )
    runs = pd.DataFrame(rows)
    grouped = runs.groupby(["workload", "release", "instances"], sort=False)
    table = grouped.mean(numeric_only=True).drop(columns="seed")
    table["stand"] = stand
    for quantity in ("score", "contention"):
        table[f"{quantity}_error_percent"] = half * grouped[f"{quantity}_percent"].std()
    said = dict(_splitting(table, runs, half, releases, instances))
    explained = pd.concat(explain(*pair).table for pair in zip(ends[0], ends[-1], strict=True))
    by_cause = explained.groupby("cause", sort=False)["ns_per_unit"]
    causes = by_cause.mean().to_frame().assign(half_width=half * by_cause.std())
    return Answer(
        {"instances": table.reset_index(), "waterfall": causes.reset_index()},
        said,
        digest=digest_of(runs.to_dict("list"), hardware.digest),
    )


def _from_to(one: pd.Series, split: pd.Series, quantity: str, digits: str) -> str:
    """A quantity unsplit and split, with half of their intervals; once where nothing is split."""
    told = [
        f"{row[f'{quantity}_percent']:{digits}} ± {row[f'{quantity}_error_percent']:{digits}}"
        for row in (one, split)
    ]
    return told[0] if one.name == split.name else f"from {told[0]} to {told[1]}"


def _splitting(
    table: pd.DataFrame,
    runs: pd.DataFrame,
    half: float,
    releases: Sequence[str],
    instances: Sequence[int],
) -> Iterator[tuple[str, str]]:
    first, most = instances[0], instances[-1]
    counts = f"from {first} to {most} instances" if most > first else "unsplit"
    tuned = {kernel: find_release(kernel).rules.auto_high for kernel in releases}
    # What the RFC measured: up to four instances, before auto-tuning.
    as_published = most == MAX_NR_ZONES_PER_TYPE and not tuned[releases[0]]
    published = load_published("zone-split-rfc").tables["figures"].set_index("workload")
    score = runs.set_index(["workload", "release", "instances", "seed"]).sort_index()[
        "score_percent"
    ]
    stated = {_FAULTS: _FAULTS, _BUILD: "kernel build, make -j224"}
    for name, workload in stated.items():
        known = published.loc[[workload]].dropna(subset="before").iloc[0]
        less = "less than " if "less than" in known["quantity"] else ""
        for kernel in releases:
            one, split = (table.loc[(name, kernel, n)] for n in (first, most))
            yield (
                f"{name}, {kernel}",
                f"- {name}, {kernel}, {counts}: contention "
                f"{_from_to(one, split, 'contention', '.2f')} %, score "
                f"{_from_to(one, split, 'score', '.1f')} (base 100)."
                + (
                    f" Published: {known['before']:g} % to {less}{known['after']:g} %."
                    if as_published and kernel == releases[0]
                    else ""
                ),
            )
    if as_published:
        said = float(published.loc[_FAULTS, "change_pct"].dropna().iloc[0])
        gain = table.loc[(_FAULTS, releases[0], most), "score_percent"] - 100
        yield (
            "published gain",
            f'- Published for {_FAULTS}: "up to" {said:g} % more; the model has {gain:+.1f} %.',
        )
    bound = float(published.loc[stated[_BUILD], "after"])
    shared = table.loc[(_BUILD, releases[0])]
    if 2 in shared.index and as_published:
        yield (
            "published bound",
            f'- "4 zone instances" of the build are read as four per node. The published bound '
            f"is less than {bound:g} %: four per node have {shared.contention_percent[4]:.2f} %, "
            f"two per node, which are four in all, {shared.contention_percent[2]:.2f} %"
            + (", above the bound." if shared.contention_percent[2] >= bound else "."),
        )
    if most > first:
        mib = table["pages_in_pcp_mean"] / 256
        held = "; ".join(
            f"{name}, {kernel} {mib[name, kernel, first]:,.0f} to "
            f"{mib[name, kernel, most]:,.0f} MiB"
            for name in (_FAULTS, _BUILD)
            for kernel in releases
        )
        yield (
            "memory",
            f"- What splitting costs in memory on the lists, {counts}: {held}. "
            "Memory that is free in another instance, and the fallback to it, is not short here.",
        )
    yield (
        "rates",
        f"- Runs are counted once their rates are steady: {table['stand'].sum()} of {len(table)} "
        "are.",
    )
    yield (
        "score",
        "- The build's score is of the time in which all its jobs run (whole builds: notebook 08), "
        "and counts that a thread which spins leaves its core to the other one; the waiting that "
        "goes away was not all lost work.",
    )
    if not tuned[releases[0]] and tuned[releases[-1]] and first != most:
        yield "surprise", _added(score, half, releases, instances)


def _added(score: pd.Series, half: float, releases: Sequence[str], instances: Sequence[int]) -> str:
    """What splitting gains on top of auto-tuning, beside each alone."""
    first, most = instances[0], instances[-1]
    said, adds = [], False
    for name in (_FAULTS, _BUILD):
        change = score[name, releases[-1], most] / score[name, releases[-1], first]
        mean, error = 100 * (change.mean() - 1), 100 * half * change.std()
        alone = score[name, releases[0], most].mean() - 100
        other = score[name, releases[-1], first].mean() - 100
        adds |= mean - error > 0.5 * alone
        said.append(
            f"{name} gains {alone:+.1f} % by splitting alone, {other:+.1f} % by {releases[-1]} "
            f"alone, and {mean:+.2f} ± {error:.2f} % by splitting on top of {releases[-1]}"
        )
    return (
        f"- Do splitting and auto-tuning add up? {'Yes' if adds else 'No'}: "
        f"{'; '.join(said)}. Would it surprise us, if both gained much over auto-tuning alone? "
        f"{'It does.' if adds else 'It does not happen.'}"
    )


def _growth(percent: pd.Series) -> str:
    """How contention goes with the CPUs, which are its index."""
    rates = (percent.diff() / percent.index.to_series().diff()).dropna()
    if not len(rates):
        return "is "
    if rates.min() <= 0:
        return "does not grow with the CPUs throughout: "
    worse = len(rates) > 1 and rates.is_monotonic_increasing
    return f"grows with the CPUs{', worse and worse' * worse}: "


def contention_by_cpus(
    machine: str | Machine = "sapphire-rapids",
    *,
    cpus: Sequence[int] = (56, 112, 224, 448),
    memory_gib: Sequence[float] = (512.0, 1024.0, 2048.0),
    release: str | Release = "v6.6",
    tuned: str | Release = "v6.7",
    seeds: Sequence[int] = (1, 2, 3),
    seconds: float = 2.0,
) -> Answer:
    """Contention of a kernel build on all CPUs against their number, and three ways to split.

    Parameters
    ----------
    machine : str or Machine
        Whose hold times are used.
    cpus : sequence of int
        CPUs of machines with two nodes.
    memory_gib : sequence of float
        Memory of the machines [GiB]: the RFC splits by it.
    release : str
        Kernel state whose zones are split, or not.
    tuned : str
        Kernel state with auto-tuned lists, unsplit, for comparison.
    seeds : sequence of int
        Repetitions, at least two.
    seconds : float
        Simulated time of each run after its warm-up [s].

    Returns
    -------
    Answer
        ``cpus``: by ``memory_gib``, ``release`` (how it is split) and ``cpus`` the instances
        per node and ``contention_percent`` with half of its 95 % interval; ``seeds``: by seed.

    Raises
    ------
    InputError
        With fewer than two seeds.
    """
    half = half_width(seeds)
    known([release, tuned])
    cpus = sorted(set(cpus))
    hardware = machines.machine(machine)
    runs = []
    for memory in memory_gib:
        by_memory = nr_instances(int(memory / 2 * 2**18))
        for n in cpus:
            by_cpus = min(max(n // 2 // _CPUS_PER_INSTANCE, 1), MAX_NR_ZONES_PER_TYPE)
            ways: Mapping[str, tuple[str, int]] = {
                f"{release}, one zone": (release, 1),
                f"{release}, split by memory": (release, by_memory),
                f"{release}, split by CPUs": (release, by_cpus),
                f"{tuned}, one zone": (tuned, 1),
            }
            found = {
                (kernel, zones): _repeated(
                    seeds,
                    release=kernel,
                    machine=hardware,
                    workload=kbuild(n),
                    cpus=n,
                    nodes=2,
                    memory_gib=memory,
                    zones_per_node=zones,
                    seconds=seconds,
                )
                for kernel, zones in dict.fromkeys(ways.values())
            }
            runs += [
                {
                    "memory_gib": memory,
                    "release": way,
                    "cpus": n,
                    "instances": zones,
                    "seed": seed,
                    "contention_percent": 100 * result.lock_contention,
                }
                for way, (kernel, zones) in ways.items()
                for seed, result in zip(seeds, found[kernel, zones], strict=True)
            ]
    frame = pd.DataFrame(runs)
    keys = ("memory_gib", "release", "cpus", "instances")
    table = over_seeds(frame, keys, half, contention_error_percent="contention_percent")
    said = _said_of_cpus(table, str(release), str(tuned))
    return answered("cpus", table, frame, said, hardware)


def _said_of_cpus(table: pd.DataFrame, release: str, tuned: str) -> dict[str, str]:
    """How contention grows with the CPUs, and what either way to split leaves of it."""
    cpus, memory_gib = table["cpus"].unique(), table["memory_gib"].unique()
    least, fullest = min(memory_gib), max(memory_gib)
    at = table.set_index(["memory_gib", "release", "cpus"])["contention_percent"]
    one = f"{release}, one zone"
    unsplit = pd.Series({n: at[fullest, one, n] for n in cpus})
    grows = ", ".join(f"{percent:.1f} % on {n}" for n, percent in unsplit.items())
    big = table[(table["cpus"] == max(cpus)) & (table["release"] != f"{tuned}, one zone")]
    by = {
        way: ", ".join(
            f"{r.contention_percent:.1f} % with {r.memory_gib:,.0f} GiB ({r.instances} per node)"
            for r in part.itertuples()
        )
        for way, part in big.groupby("release", sort=False)
    }
    return {
        "growth": (
            f"- With one zone per node contention {_growth(unsplit)}{grows} CPUs "
            f"({release}, {fullest:,.0f} GiB)"
            + (
                f"; with {tuned} it is at most "
                f"{max(at[m, f'{tuned}, one zone', n] for m in memory_gib for n in cpus):.2f} %."
                if tuned != release
                else "."
            )
        ),
        "ways": (
            f"- By memory or by CPUs? On {max(cpus)} CPUs splitting by memory leaves "
            f"{by[f'{release}, split by memory']}; by CPUs (one instance for "
            f"{_CPUS_PER_INSTANCE} of a node, at most {MAX_NR_ZONES_PER_TYPE}) "
            f"{by[f'{release}, split by CPUs']}. The RFC counts on large machines having much "
            "memory"
            + (
                f"; where they have not ({least:,.0f} GiB) its rule makes 1 instance per node and "
                "gains nothing."
                if nr_instances(int(least / 2 * 2**18)) == 1
                else "."
            )
        ),
    }
