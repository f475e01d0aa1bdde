"""The questions of the simulation notebooks, each one call: tables, conclusion, digest.

Nothing is decided here that the simulator does not say: runs, their figures
side by side, and sentences made of these figures.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pcpmodel import machine as machines
from pcpmodel.data_package import load_published
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import execute, make_spec, simulate, varied
from pcpmodel.study.compare import HAHN, compare
from pcpmodel.study.explain import explain_runs
from pcpmodel.study.sweep import figures, sweep
from pcpmodel.workload import exit_storm, idle_after_burst, kbuild, page_fault1

__all__ = [
    "AnswerKey",
    "Question",
    "answer_key",
    "bulk_free",
    "lock_starvation",
    "stranded",
    "tradeoff",
    "zone_splitting",
]

#: As fitted to the base row of pcp-auto-tuning-v2/kbuild; see `compare`.
COLD_BLOCK_NS = 82.0


def _digest(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, default=str).encode()
    return hashlib.sha256(text).hexdigest()


@dataclass(frozen=True)
class Question:
    """An answered question.

    Attributes
    ----------
    table : pandas.DataFrame
        One row per run (or per point in time).
    more : pandas.DataFrame
        A second view, described by the function that made it.
    text : str
        The conclusion, made from the figures (Markdown).
    digest : str
        Of everything that the answer depends on.
    """

    table: pd.DataFrame
    more: pd.DataFrame
    text: str
    digest: str

    def summary(self) -> str:
        """The conclusion as Markdown."""
        return self.text


@dataclass(frozen=True)
class AnswerKey:
    """Published tables beside the simulator.

    Attributes
    ----------
    rows : pandas.DataFrame
        One row per cell: source, table, step, quantity, measured, predicted, ratio,
        tolerance, within, fitted.
    fitted : pandas.DataFrame
        Parameter and value per table.
    rank : pandas.DataFrame
        Spearman correlation of the rows per column.
    sensitivity : pandas.DataFrame
        What a tenth more of a parameter does to the base row.
    misses : pandas.DataFrame
        Predictions outside their tolerance, with a fifth less and a quarter more of every
        parameter (``with_less``, ``with_more``).
    notes : dict
        What the model lacks, by table.
    digest : str
    """

    rows: pd.DataFrame
    fitted: pd.DataFrame
    rank: pd.DataFrame
    sensitivity: pd.DataFrame
    misses: pd.DataFrame
    notes: dict[str, str]
    digest: str

    def summary(self) -> str:
        """How many predictions are right, which are not, as Markdown."""
        said = self.rows[self.rows["fitted"].isna()]
        lines = [f"- {said['within'].sum()} of {len(said)} predictions are within tolerance."]
        for (source, table), part in said.groupby(["source", "table"], sort=False):
            wrong = part[~part["within"]]
            missed = "; ".join(
                f"{quantity} of {', '.join(rows['step'])}"
                for quantity, rows in wrong.groupby("quantity", sort=False)
            )
            right = f"{part['within'].sum()} of {len(part)}"
            lines.append(
                f"- {source}/{table}: {right}" + (f"; outside: {missed}." if missed else ".")
            )
        lacking: dict[str, list[str]] = {}
        for name, note in self.notes.items():
            lacking.setdefault(note, []).append(name)
        lines += [
            f"- Known to be lacking in {', '.join(names)}: {note}"
            for note, names in lacking.items()
        ]
        return "\n".join(lines)


def answer_key(source: str | Sequence[str] | None = None, *, seed: int = 1) -> AnswerKey:
    """Set published tables against the simulator, as frames.

    Parameters
    ----------
    source : str or list of str, optional
        As for `compare`.
    seed : int

    Returns
    -------
    AnswerKey
    """
    sources = [source] if source is None or isinstance(source, str) else list(source)
    answers = [compare(s, seed=seed) for s in sources]
    notes: dict[str, str] = {}
    for answer in answers:
        notes |= answer["notes"]
    return AnswerKey(
        rows=pd.DataFrame([r for a in answers for r in a["rows"]]),
        fitted=pd.DataFrame(
            [
                {"table": name, "parameter": parameter, "value": value}
                for a in answers
                for name, values in a["fitted"].items()
                for parameter, value in values.items()
            ]
        ),
        rank=pd.DataFrame([r for a in answers for r in a["rank"]]),
        sensitivity=pd.DataFrame([r for a in answers for r in a["sensitivity"]]),
        misses=pd.DataFrame([r for a in answers for r in a["misses"]]),
        notes=notes,
        digest=_digest(answers),
    )


def _figures(result: Result, **labels: Any) -> dict[str, Any]:
    drain, refill = result.latency_hist["drain"], result.latency_hist["refill"]
    return {
        **labels,
        **figures(result),
        "refill_p99_us": refill.quantile_ns(0.99) / 1e3 if refill.total else 0.0,
        "drain_p99_us": drain.quantile_ns(0.99) / 1e3 if drain.total else 0.0,
        "drain_over_100us": result.over_probability("drain")[100],
        "drain_over_1ms": result.over_probability("drain")[1000],
    }


def bulk_free(
    machine: str = "sapphire-rapids",
    *,
    hosts: dict[str, Sequence[float]] | None = None,
    releases: Sequence[str] = ("v6.18", "v6.18+hahn-v4", "v6.19"),
    seeds: Sequence[int] = (1, 2, 3),
    seconds: float = 5.0,
) -> Question:
    """Cut long drains into batches: what does a kernel build gain, and on which machine?

    Parameters
    ----------
    machine : str
        Whose hold times are used.
    hosts : dict
        Name -> CPUs, nodes, memory [GiB]; by default the three machines of Hahn's v4, and the
        largest with the memory, then the CPUs, of the medium one.
    releases : sequence of str
        The first is what the others are compared with.
    seeds : sequence of int
        Repetitions; their scatter is the uncertainty.
    seconds : float
        Simulated time [s].

    Returns
    -------
    Question
        ``table``: figures by host and release, means over the seeds; ``gain_sd_percent`` and
        ``drain_p99_sd_us`` are standard deviations over them; ``more``: the same per seed.
    """
    if hosts is None:
        (large, nodes, much), (medium, _, little) = HAHN["large"], HAHN["medium"]
        hosts = {
            **HAHN,
            "large, medium's memory": (large, nodes, little),
            "medium, large's memory": (medium, nodes, much),
        }
    hardware = machines.load(machine)
    rows = []
    for name, (cpus, nodes, memory) in hosts.items():
        work = kbuild(int(cpus), nodes=int(nodes), migrated_share=0.3)
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
                    jitter=0.5,
                    cold_block_ns=COLD_BLOCK_NS,
                )
                base = base or result
                rows.append(
                    _figures(
                        result,
                        host=name,
                        gib_per_cpu=memory / cpus,
                        release=kernel,
                        seed=seed,
                        gain_percent=100 * (result.score / base.score - 1),
                    )
                )
    runs = pd.DataFrame(rows)
    grouped = runs.groupby(["host", "release"], sort=False)
    table = grouped.mean(numeric_only=True).drop(columns="seed")
    for name, unit in (("gain", "percent"), ("drain_p99", "us")):
        table[f"{name}_sd_{unit}"] = grouped[f"{name}_{unit}"].std()
    table = table.reset_index()
    lines = []
    first, *others = releases
    for name in hosts:
        part = table[table["host"] == name].set_index("release")
        said = "; ".join(
            f"{r}: throughput {part.loc[r, 'gain_percent']:+.2f} % (sd "
            f"{part.loc[r, 'gain_sd_percent']:.2f}), drain p99 "
            f"{part.loc[r, 'drain_p99_us']:.0f} us (before: "
            f"{part.loc[first, 'drain_p99_us']:.0f}), drains over 100 us "
            f"{100 * part.loc[r, 'drain_over_100us']:.2f} % "
            f"({100 * part.loc[first, 'drain_over_100us']:.1f})"
            for r in others
        )
        lines.append(f"- {name} ({part['gib_per_cpu'].iloc[0]:.2f} GiB per CPU): {said}.")
    chunked = table[table["release"] != first]
    largest = float(chunked["gain_percent"].abs().max())
    order = chunked[chunked["release"] == others[0]].sort_values("gib_per_cpu")
    rank = order["gib_per_cpu"].corr(order["gain_percent"], method="spearman")
    lines.append(
        f"- The largest change of throughput is {largest:.2f} %; rank correlation of memory per "
        f"CPU with the gain of {others[0]}: {rank:+.2f} over {len(order)} machines."
    )
    lines += [*_published_dip()]
    return Question(table, runs, "\n".join(lines), _digest(runs.to_dict("list"), hardware.digest))


def _published_dip() -> Iterator[str]:
    """What the stated variations say of the measured gains (Hahn's v4, build time)."""
    frame = load_published("hahn-v4").tables["kbuild"].set_index(["machine", "metric"])
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
    user, sys = (frame.loc[("small", m), "delta_pct"] for m in ("user", "sys"))
    yield (
        f"- On the small machine user time fell by {-user:.1f} % where system time fell by "
        f"{-sys:.1f} %; the change touches the kernel alone, so this machine's gain of build time "
        "is no measure of the lock."
    )


def lock_starvation(
    machine: str = "sapphire-rapids",
    *,
    hosts: dict[str, Sequence[float]] | None = None,
    releases: Sequence[str] = ("v6.18", "v6.18+hahn-v4", "v6.19"),
    pages: int = 40_000,
    seed: int = 1,
    seconds: float = 4.0,
) -> Question:
    """All CPUs of a node take and give back memory at once: who waits how long for the lock?

    Parameters
    ----------
    machine : str
        Whose hold times are used.
    hosts : dict
        Name -> CPUs, nodes, memory [GiB]; by default the three machines of Hahn's v4.
    releases : sequence of str
    pages : int
        Pages that every CPU of the node takes, then frees [pages].
    seed : int
    seconds : float
        Simulated time of a run [s].

    Returns
    -------
    Question
        ``table``: by host and release the waits for the zone lock [ms], the share of holds that
        ended over 10 ms after they were asked for, and the time in which a CPU gives back a
        million pages while all others do [s]; ``more``: the same.

    Notes
    -----
    The lock is first come, first served (kernel/locking/qspinlock.c): nobody is overtaken.
    """
    hardware = machines.load(machine)
    rows = []
    for name, (cpus, nodes, memory) in (hosts or HAHN).items():
        on_node = int(cpus) // int(nodes)
        for kernel in releases:
            result = simulate(
                release=kernel,
                machine=hardware,
                workload=exit_storm(on_node, pages=on_node * pages, spread=True, lru=False),
                cpus=int(cpus),
                nodes=int(nodes),
                memory_gib=memory,
                seconds=seconds,
                seed=seed,
                jitter=0.5,
                cold_block_ns=COLD_BLOCK_NS,
            )
            count = {name: int(values.sum()) for name, values in result.per_cpu.items()}
            moved = count["refill_pages"] + count["drain_pages"]
            rows.append(
                {
                    "host": name,
                    "release": kernel,
                    "wait_p99_ms": result.wait_ns["p99"] / 1e6,
                    "wait_max_ms": result.longest_starvation_ns / 1e6,
                    "refill_over_10ms": result.over_probability("refill")[10_000],
                    "drain_over_10ms": result.over_probability("drain")[10_000],
                    # The lock lets one CPU in at a time: a page's share of a hold, in turn.
                    "s_per_million_pages": count["hold_ps"] / moved * on_node / 1e6,
                }
            )
    table = pd.DataFrame(rows)
    stall = load_published("hahn-v4").tables["rcu_stall"].set_index("quantity")["value"]
    worst = table.loc[table["wait_max_ms"].idxmax()]
    slow = table.loc[table["s_per_million_pages"].idxmax()]
    million = float(slow["s_per_million_pages"])
    lines = [
        f"- Longest wait: {worst['wait_max_ms']:.0f} ms ({worst['host']}, {worst['release']}), "
        "a queue of all CPUs of the node with a full refill or drain each; the soft-lockup "
        "watchdog asks for 20 s. A fair lock alone starves nobody for so long.",
        *(
            f"- {name}: longest wait "
            + ", ".join(f"{r.wait_max_ms:.1f} ms ({r.release})" for r in part.itertuples())
            + "; drains over 10 ms "
            + ", ".join(f"{100 * r.drain_over_10ms:.2f} %" for r in part.itertuples())
            + "."
            for name, part in table.groupby("host", sort=False)
        ),
        "- The change cuts drains only: a refill still holds the lock for as many pages as the "
        "list asks for, and sets the longest wait.",
        f"- What lasts is the work: while the lock is never free, a CPU of the {slow['host']} "
        f"machine gives back a million pages (4 GiB) in {million:.0f} s. A stall report, after "
        "21 s, needs several GiB freed without a rest (the one reported: "
        f"{stall['length of the stall']:.0f} jiffies).",
    ]
    return Question(table, table, "\n".join(lines), _digest(table.to_dict("list"), hardware.digest))


def zone_splitting(
    machine: str = "sapphire-rapids",
    *,
    instances: Sequence[int] = (1, 2, 3, 4),
    releases: Sequence[str] = ("v6.6", "v6.7"),
    cold_block_ns: float = 24.2,
    memory_gib: float = 2048.0,
    seed: int = 1,
    seconds: float = 1.0,
) -> Question:
    """One to four instances of each node's zone, with and without auto-tuning of the lists.

    Parameters
    ----------
    machine : str
        Whose hold times are used.
    instances : sequence of int
        Zone instances per node; the RFC makes four only above 1016 GiB per node.
    releases : sequence of str
        The first, with one instance, is what the others are compared with.
    cold_block_ns : float
        Of page_fault1, as `answer_key` fits it to 13.01 % contention with one zone [ns].
    memory_gib : float
        Memory of the machine of 224 CPUs on two nodes [GiB].
    seed : int
        Of the simulations.
    seconds : float
        Simulated time of each run [s].

    Returns
    -------
    Question
        ``table``: figures by workload, release and instances, ``score_percent`` of the first;
        ``more``: the waterfall of `explain_runs` for page_fault1, one zone to the most.
    """
    hardware = machines.load(machine)
    works = {"page_fault1, 16 processes": page_fault1(16), "kbuild -j224": kbuild(224)}
    rows, ends = [], []
    for name, work in works.items():
        base = None
        for kernel in releases:
            for n in instances:
                result = simulate(
                    release=kernel,
                    machine=hardware,
                    workload=work,
                    cpus=224,
                    nodes=2,
                    memory_gib=memory_gib,
                    zones_per_node=n,
                    seconds=seconds,
                    warmup_s=seconds,
                    cold_block_ns=cold_block_ns if work.name == "page_fault1" else 74.2,
                    seed=seed,
                )
                base = base or result
                if work.name == "page_fault1" and kernel == releases[0]:
                    ends.append(result)
                rows.append(
                    _figures(
                        result,
                        workload=name,
                        release=kernel,
                        instances=n,
                        score_percent=100 * result.score / base.score,
                        contention_percent=100 * result.lock_contention,
                    )
                )
    table = pd.DataFrame(rows)
    lines = []
    for name in works:
        part = table[table["workload"] == name].set_index(["release", "instances"])
        for kernel in releases:
            one, most = part.loc[(kernel, instances[0])], part.loc[(kernel, instances[-1])]
            lines.append(
                f"- {name}, {kernel}, from {instances[0]} to {instances[-1]} instances: "
                f"contention from {one['contention_percent']:.2f} to "
                f"{most['contention_percent']:.2f} %, score from {one['score_percent']:.1f} to "
                f"{most['score_percent']:.1f} (base 100)."
            )
    return Question(
        table,
        explain_runs(ends[0], ends[-1]),
        "\n".join(lines),
        _digest(table.to_dict("list"), hardware.digest),
    )


def tradeoff(
    machine: str = "sapphire-rapids",
    *,
    release: str = "v6.7",
    processes: int = 224,
    batch_scale_max: Sequence[int] = (0, 1, 2, 3, 4, 5, 6),
    high_pages: Sequence[int] = (252, 500, 1000, 2000, 5000, 10000),
    p99_us: float = 100.0,
    seed: int = 1,
    seconds: float = 0.5,
) -> Question:
    """Throughput, latency and memory against batch scale and ``high``; what to recommend.

    Parameters
    ----------
    machine : str
        Whose hold times are used.
    release : str
        Kernel state.
    processes : int
        Processes of page_fault1 on 224 CPUs, two nodes.
    batch_scale_max, high_pages : sequence of int
        The grid; ``high`` is fixed in every run [pages].
    p99_us : float
        Limit of the 99th percentile of one hold [us].
    seed : int
        Of the simulations.
    seconds : float
        Simulated time of each run [s].

    Returns
    -------
    Question
        ``table``: figures per point, ``front`` marks points that no other beats in
        throughput, p99 of a hold and memory at once; ``more``: the recommended point, the
        one with the highest throughput whose p99 stays under the limit.
    """
    hardware = machines.load(machine)
    spec = make_spec(
        release=release,
        machine=hardware,
        workload=page_fault1(processes),
        cpus=224,
        nodes=2,
        memory_gib=512.0,
        seconds=seconds,
        warmup_s=seconds / 2,
        seed=seed,
    )
    data = sweep(
        spec, batch_scale_max=list(batch_scale_max), high_pages=list(high_pages), progress=False
    )
    table = data.to_dataframe().reset_index()
    table["hold_p99_us"] = table["hold_p99_ns"] / 1e3
    table["pages_in_pcp_mib"] = table["pages_in_pcp_mean"] / 256
    goods = np.stack(
        [table["score_per_s"], -table["hold_p99_us"], -table["pages_in_pcp_mib"]], axis=1
    )
    beaten = [bool(((goods >= g).all(axis=1) & (goods > g).any(axis=1)).any()) for g in goods]
    table["front"] = ~np.array(beaten)
    allowed = table[table["hold_p99_us"] <= p99_us]
    best = table.loc[table["score_per_s"].idxmax()]
    if len(allowed):
        pick = allowed.loc[allowed["score_per_s"].idxmax()]
        text = (
            f"- Under {p99_us:g} us (p99 of a hold) the best is batch_scale_max "
            f"{pick['batch_scale_max']:.0f} with high {pick['high_pages']:.0f}: "
            f"{100 * pick['score_per_s'] / best['score_per_s']:.1f} % of the best throughput of "
            f"the grid, p99 {pick['hold_p99_us']:.1f} us, {pick['pages_in_pcp_mib']:.0f} MiB on "
            f"per-CPU lists, contention {100 * pick['lock_contention']:.1f} %.\n"
        )
        more = pick.to_frame().T
    else:
        text = f"- No point of the grid stays under {p99_us:g} us.\n"
        more = table.iloc[:0]
    text += (
        f"- Without the limit: batch_scale_max {best['batch_scale_max']:.0f}, high "
        f"{best['high_pages']:.0f}, p99 {best['hold_p99_us']:.1f} us, "
        f"{best['pages_in_pcp_mib']:.0f} MiB, contention {100 * best['lock_contention']:.1f} %.\n"
        f"- {int(table['front'].sum())} of {len(table)} points are on the front."
    )
    return Question(table, more, text, _digest(data.attrs, table.to_dict("list"), hardware.digest))


def stranded(
    machine: str = "sapphire-rapids",
    *,
    releases: Sequence[str] = ("v6.6", "v6.6+p8", "v6.7", "v7.2"),
    pages: int = 20_000,
    idle_s: float = 5.0,
    seconds: float = 40.0,
    seed: int = 1,
) -> Question:
    """Pages left on per-CPU lists after a burst, while the machine is all but idle.

    Parameters
    ----------
    machine : str
        Whose hold times are used.
    releases : sequence of str
        Kernel states to compare.
    pages : int
        Pages that each of 224 CPUs allocates and frees at the start [pages].
    idle_s : float
        From one wake-up of a CPU to the next [s].
    seconds : float
        Simulated time [s].
    seed : int
        Of the simulations.

    Returns
    -------
    Question
        ``table``: ``time_s``, ``release``, ``nohz_idle``, ``mib`` on the lists; ``more``: MiB at
        the end and the time until half of the peak is given back.
    """
    hardware = machines.load(machine)
    base = make_spec(
        release=releases[0],
        machine=hardware,
        workload=idle_after_burst(224, pages=pages, bursts=1, idle_s=seconds, wake_s=idle_s),
        cpus=224,
        nodes=2,
        memory_gib=512.0,
        seconds=seconds,
        seed=seed,
        samples=400,
    )
    parts, ends = [], []
    for kernel in releases:
        for nohz in (False, True):
            result = execute(varied(base, release=kernel, nohz_idle=nohz))
            mib = result.pages_in_pcp / 256
            parts.append(
                pd.DataFrame(
                    {"release": kernel, "nohz_idle": nohz, "time_s": result.time_s, "mib": mib}
                )
            )
            after = np.flatnonzero(mib[mib.argmax() :] <= mib.max() / 2)
            half = float(result.time_s[after[0]]) if len(after) else float("inf")
            ends.append((kernel, nohz, mib.max(), mib[-1], half))
    table = pd.concat(parts, ignore_index=True)
    more = pd.DataFrame(ends, columns=["release", "nohz_idle", "peak_mib", "end_mib", "half_s"])
    lines = [
        f"- {r.release}, {'idle CPUs asleep' if r.nohz_idle else 'vmstat worker always on'}: "
        f"{r.peak_mib:.0f} MiB after the burst, {r.end_mib:.0f} MiB after {seconds:g} s, "
        + (
            f"half given back by {r.half_s:.1f} s."
            if np.isfinite(r.half_s)
            else "half never given back."
        )
        for r in more.itertuples()
    ]
    return Question(table, more, "\n".join(lines), _digest(table.to_dict("list"), hardware.digest))
