"""Long drains cut into batches: what a kernel build gains, and on which machine."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from pcpmodel.datasets.packages import load_published
from pcpmodel.errors import InputError
from pcpmodel.hardware import machines
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel.releases import Release
from pcpmodel.simulation.run import simulate
from pcpmodel.study.answer import Answer
from pcpmodel.study.contention.runs import (
    HOLDS,
    RELEASES,
    answered,
    before_and_after,
    half_width,
    over_seeds,
    run_figures,
)
from pcpmodel.study.published.cases import hahn_machines
from pcpmodel.workload import kbuild

__all__ = ["bulk_free"]


def bulk_free(
    machine: str | Machine = "sapphire-rapids",
    *,
    hosts: dict[str, Sequence[float]] | None = None,
    releases: Sequence[str | Release] = RELEASES,
    seeds: Sequence[int] = (1, 2, 3, 4, 5),
    seconds: float = 15.0,
) -> Answer:
    """Cut long drains into batches: what does a kernel build gain, and on which machine?

    Parameters
    ----------
    machine : str or Machine
        Whose hold times are used.
    hosts : dict
        Name -> CPUs, nodes, memory [GiB]; by default the three machines of Hahn's v4, and the
        largest with the memory, then the CPUs, of the medium one.
    releases : sequence of str or Release
        The first is what the others are compared with.
    seeds : sequence of int
        Repetitions, at least two; their scatter is the uncertainty.
    seconds : float
        Simulated time of a run [s].

    Returns
    -------
    Answer
        ``hosts``: figures by ``holds`` (of warm pages, as measured, and as they come), host and
        release, means over the seeds; ``gain_error_percent`` and ``drain_p99_error_us`` are half of
        a 95 % interval; ``seeds``: the same per seed.

    Raises
    ------
    InputError
        With fewer than two seeds or releases, or without a host.
    """
    half = half_width(seeds)
    before_and_after(releases)
    if hosts is not None and not hosts:
        raise InputError("hosts={}: at least one")
    if hosts is None:
        hosts = hahn_machines()
        (large, nodes, much), (medium, _, little) = hosts["large"], hosts["medium"]
        hosts = {
            **hosts,
            "large, medium's memory": (large, nodes, little),
            "medium, large's memory": (medium, nodes, much),
        }
    hardware = machines.machine(machine)
    rows = []
    for holds, warm in HOLDS.items():
        for name, (cpus, nodes, memory) in hosts.items():
            work = kbuild(int(cpus), nodes=int(nodes))
            for seed in seeds:
                base = None
                for kernel in releases:
                    result = simulate(
                        release=kernel,
                        machine=hardware,
                        workload=work,
                        cpus=int(cpus),
                        nodes=int(nodes),
                        memory_gib=memory,
                        seconds=seconds,
                        warmup_s=5.0,
                        seed=seed,
                        warm=warm,
                    )
                    base = base or result
                    rows.append(
                        run_figures(
                            result,
                            holds=holds,
                            host=name,
                            gib_per_cpu=memory / cpus,
                            release=kernel,
                            seed=seed,
                            gain_percent=100 * (result.score / base.score - 1),
                            contention_percent=100 * result.lock_contention,
                            drain_over_100us_percent=100 * result.over_probability("drain")[100],
                        )
                    )
    runs = pd.DataFrame(rows)
    table = over_seeds(
        runs,
        ("holds", "host", "release"),
        half,
        gain_error_percent="gain_percent",
        drain_p99_error_us="drain_p99_us",
    )
    said = dict(_said(table, list(hosts), releases))
    return answered("hosts", table, runs, said, hardware)


def _said(
    table: pd.DataFrame, hosts: Sequence[str], releases: Sequence[str | Release]
) -> Iterator[tuple[str, str]]:
    """What every machine gains, and whether that surprises, beside what was published."""
    first, *others = releases
    for holds in HOLDS:
        of = table[table["holds"] == holds]
        lines = [f"- {holds.capitalize()}:"]
        for name in hosts:
            part = of[of["host"] == name].set_index("release")
            changes = "; ".join(
                f"{r}: throughput {part.loc[r, 'gain_percent']:+.2f} ± "
                f"{part.loc[r, 'gain_error_percent']:.2f} %, {_drain_p99(part.loc[r])} "
                f"(before: {_drain_p99(part.loc[first])}), drains over 100 us "
                f"{part.loc[r, 'drain_over_100us_percent']:.2f} % "
                f"({part.loc[first, 'drain_over_100us_percent']:.2f})"
                for r in others
            )
            lines.append(f"  - {name} ({part['gib_per_cpu'].iloc[0]:.2f} GiB per CPU): {changes}.")
        lines.append(f"  - {_gain_order(of, others[0])}")
        yield holds, "\n".join(lines)
    worst = table[table["release"] == first].groupby("holds", sort=False)["contention_percent"]
    yield "surprise", _surprise(worst.max())
    yield "published", "\n".join(_published_dip())


def _drain_p99(row: pd.Series) -> str:
    if np.isnan(row["drain_p99_us"]):
        return "no drain"
    return f"drain p99 {row['drain_p99_us']:.0f} ± {row['drain_p99_error_us']:.0f} us"


def _surprise(waiting: pd.Series) -> str:
    """Whether builds waited for the lock, before the change, as much as they gained by it [%]."""
    real = load_published("hahn-v4").tables["kbuild"].query("metric == 'real'")
    gain = -float(real["delta_pct"].min())
    explains = waiting.max() >= gain
    return (
        f"- Would it surprise us? {'It does' if explains else 'No'}: before the change builds "
        "spend at most "
        + ", ".join(f"{most:.3f} % ({holds})" for holds, most in waiting.items())
        + " of their cycles waiting for the zone lock, against measured gains of build time of up "
        f"to {gain:.1f} %: the lock {'may explain' if explains else 'does not explain'} them."
    )


def _gain_order(table: pd.DataFrame, kernel: str) -> str:
    """Whether memory per CPU orders the gains, if any two of them differ beyond their noise."""
    part = table[table["release"] == kernel].sort_values("gib_per_cpu")
    low = part["gain_percent"] - part["gain_error_percent"]
    high = part["gain_percent"] + part["gain_error_percent"]
    if low.max() <= high.min():
        return (
            f"The intervals of all {len(part)} gains of {kernel} have "
            f"{(low.max() + high.min()) / 2:+.2f} % in common: there is no order to explain."
        )
    rank = part["gib_per_cpu"].corr(part["gain_percent"], method="spearman")
    return (
        f"The gains of {kernel} differ beyond their intervals; rank correlation with memory per "
        f"CPU {rank:+.2f} over {len(part)} machines."
    )


def _published_dip() -> Iterator[str]:
    """What the measured figures themselves say (Hahn's v4): their noise, and their order."""
    published = load_published("hahn-v4").tables
    frame = published["kbuild"].set_index(["machine", "metric"])
    real = frame.xs("real", level="metric")
    delta, sd = real["delta_pct"], np.sqrt(2) * real["variation_pct_cv"]
    for one, other in (("medium", "large"), ("medium", "small")):
        gap = abs(delta[one] - delta[other])
        error = float(np.hypot(sd[one], sd[other]))
        runs = math.ceil((1.96 * error / gap) ** 2)
        yield (
            f"- Measured: {one} and {other} differ by {gap:.2f} points of build time, "
            f"{gap / error:.1f} standard errors if each kernel ran once (how often is not stated), "
            f"beyond chance from {runs} run{'s' * (runs > 1)} on."
        )
    per_cpu = published["memory_per_cpu"].set_index("machine")["gib_per_cpu"]
    ranks = {
        metric: per_cpu.corr(-part.droplevel("metric")["delta_pct"], method="spearman")
        for metric, part in frame.groupby(level="metric")
    }
    fits = [f"{metric} time" for metric, rank in ranks.items() if rank > 0.99]
    memory = ", ".join(f"{m} {gib:g}" for m, gib in per_cpu.sort_values(ascending=False).items())
    yield (
        f"- Measured: memory per CPU ({memory} GiB) orders the gains "
        f"with a rank correlation of {ranks['real']:+.1f} in real, {ranks['sys']:+.1f} in sys and "
        f"{ranks['user']:+.1f} in user time. The order fits {' and '.join(fits) or 'none'} alone, "
        f"and {len(per_cpu)} machines have {math.factorial(len(per_cpu))} orders: chance gives "
        f"the fitting one once in {math.factorial(len(per_cpu))} times, and {len(ranks)} kinds of "
        "time had that chance."
    )
    row = frame.loc[("large", "sys")]
    yield (
        f"- The largest change of the table is system time on the large machine, "
        f"{row['delta_pct']:+.1f} %, with a variation of {row['variation_pct_cv']:.1f} %: "
        f"{abs(row['delta_pct']) / (np.sqrt(2) * row['variation_pct_cv']):.1f} standard errors "
        "if each kernel ran once."
    )
    user, sys = (frame.loc[("small", m), "delta_pct"] for m in ("user", "sys"))
    yield (
        f"- On the small machine user time fell by {-user:.1f} % where system time fell by "
        f"{-sys:.1f} %; the change touches the kernel alone, so this machine's gain of build time "
        "is no measure of the lock."
    )
