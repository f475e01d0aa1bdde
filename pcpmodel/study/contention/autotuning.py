"""What the auto-tuning series' own texts claim of builds and streams, put to the model.

Nothing here is fitted.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from pcpmodel.datasets.packages import load_published
from pcpmodel.files import digest_of
from pcpmodel.simulation.spec import make_spec
from pcpmodel.study.answer import Answer
from pcpmodel.study.contention.runs import half_width
from pcpmodel.study.published.cases import find, published_rows
from pcpmodel.study.published.rows import allowed, tolerances
from pcpmodel.study.published.shared import Runs, Taken
from pcpmodel.trace.recording import recording as open_recording
from pcpmodel.trace.what_if import what_if
from pcpmodel.workload.common import again

__all__ = [
    "build_memory",
    "build_surprise",
    "page_table_isolation",
    "recorded_exits",
    "stream_surprise",
    "version_surprise",
]

_BUILD = "pcp-auto-tuning-v2/kbuild"
#: Tables of streams -> what they are of.
_STREAMS = {"unix": "AF_UNIX", "sctp_stream_many": "SCTP"}
#: Steps at which the measured scores turn.
_TURNS = ("patch7", "patch10")
#: What `sign_of` says.
_WAYS = {
    "same": "the same way",
    "opposite": "the other way",
    "none": "within its scatter",
}


def _build(step: str, seed: int, **work: object) -> Taken:
    """One run of the builds of version 2, which `compare` makes too."""
    case = find(_BUILD)
    workload = again(case.workload(), **work)
    return Runs()(make_spec(release=case.releases[step], workload=workload, seed=seed, **case.run))


def page_table_isolation(
    *, steps: Sequence[str] = ("base", "patch1"), seeds: Sequence[int] = (1, 2, 3)
) -> Answer:
    """What a page table root of order 1 does to the lists when a process exits.

    The root of a page table is a block of order 1 where page-table isolation is in use, and up to
    v6.15 wherever it is configured.  An exit frees the process's pages and then its root, and v6.6
    drains the list at the first block of order 1..3 that is freed after others (``free_high``);
    patch 1 wants two such blocks in a row.

    Parameters
    ----------
    steps : sequence of str
        Rows of that table.
    seeds : sequence of int
        Repetitions.

    Returns
    -------
    Answer
        ``kernels``: by ``quantity`` (``free_high`` drains per million pages; contention [%]),
        ``kernel`` and ``release`` (whether isolation is on) the mean ``value`` and ``error``, half
        of its 95 % interval; ``seeds``: by seed.
    """
    runs = pd.DataFrame(
        {
            "kernel": find(_BUILD).releases[step].name,
            "release": f"isolation {'on' if isolated else 'off'}",
            "seed": seed,
            "drains by a block of order 1 to 3, per million pages": 1e6
            * result.free_high
            / result.score,
            "lock contention [%]": 100 * result.lock_contention,
        }
        for step in steps
        for isolated in (True, False)
        for seed in seeds
        for result in [_build(step, seed, page_table_isolation=isolated)]
    )
    long = runs.melt(["kernel", "release", "seed"], var_name="quantity")
    half = half_width(seeds)
    table = (
        long.groupby(["quantity", "kernel", "release"], sort=False)["value"]
        .agg(value="mean", error=lambda v: half * v.std())
        .reset_index()
    )
    value = table.set_index(["quantity", "kernel", "release"])["value"]
    drains, contention = (value.loc[q] for q in dict.fromkeys(table["quantity"]))
    wide = runs.pivot(
        index="seed", columns=["kernel", "release"], values="lock contention [%]"
    ).sort_index(axis="columns")
    change = {
        kernel: wide[kernel, "isolation off"] - wide[kernel, "isolation on"]
        for kernel in dict.fromkeys(table["kernel"])
    }
    said = {
        kernel: f"- {kernel}: switching page-table isolation off takes free_high drains from "
        f"{drains[kernel, 'isolation on']:.2f} to {drains[kernel, 'isolation off']:.2f} per "
        "million pages "
        f"({100 * (drains[kernel, 'isolation off'] / drains[kernel, 'isolation on'] - 1):+.0f} %) "
        f"and contention from {contention[kernel, 'isolation on']:.1f} to "
        f"{contention[kernel, 'isolation off']:.1f} %, by {change[kernel].mean():+.1f} ± "
        f"{half * change[kernel].std():.1f} points."
        for kernel in dict.fromkeys(table["kernel"])
    }
    made_of = digest_of(runs.to_dict("list"))
    return Answer({"kernels": table, "seeds": runs}, said, digest=made_of, shown=("kernels",))


def recorded_exits(
    names: Sequence[str] = ("6.12-build-4cpu", "7.2-exitstorm-4cpu", "7.2-exitstorm-pti-4cpu"),
) -> Answer:
    """The same in real kernels: processes that exit, recorded with and without isolation.

    A kernel of before v6.16, where the root is a block of order 1 in either case, comes first.

    Parameters
    ----------
    names : sequence of str
        Recordings, under data/traces or as paths.

    Returns
    -------
    Answer
        ``recordings``: ``recording``, whether ``isolation`` was asked for, ``exits``, frees of
        ``order_1`` blocks, how many of them ``after_order_0`` on their CPU, and the drains by a
        block of order 1..3 that the recorded frees cause under the rules of v6.6 (``v6.6``) and
        with patch 1 (``v6.6+p1``).
    """
    rows = []
    for name in names:
        cap = open_recording(name)
        events, _ = cap.trace
        frees = events.rows[events.is_event("mm_page_free")]
        singles, after = 0, 0
        for cpu in np.unique(frees["cpu"]):
            order = frees["b"][frees["cpu"] == cpu]
            singles += int((order == 1).sum())
            after += int(((order[1:] == 1) & (order[:-1] == 0)).sum())
        found = what_if(cap, ["v6.6", "v6.6+p1"])
        rows.append(
            {
                "recording": cap.name,
                "isolation": "pti=on" in str(cap.meta["cmdline"]),
                "exits": int(events.is_event("sched_process_exit").sum()),
                "order_1": singles,
                "after_order_0": after,
                **{o.release: o.high_order_drains for o in found.outcomes},
            }
        )
    table = pd.DataFrame(rows)
    said = {
        r[
            "recording"
        ]: f"- {r['recording']} (isolation {'on' if r['isolation'] else 'off'}): {r['exits']} "
        "exits, "
        f"{r['order_1']} frees of order 1, {r['after_order_0']} of them right after a page; by "
        f"v6.6's rules these frees drain {r['v6.6']} times because of a block of order 1 to 3, "
        f"with patch 1 {r['v6.6+p1']} times."
        for r in rows
    }
    return Answer({"recordings": table}, said, digest=digest_of(table.to_dict("list")))


def build_memory(*, seeds: Sequence[int] = (1, 2, 3)) -> Answer:
    """Memory that the builds keep on per-CPU lists, patch by patch.

    Parameters
    ----------
    seeds : sequence of int
        Repetitions, at least two.

    Returns
    -------
    Answer
        ``steps``: ``step``, memory on the lists in the mean, with half of its 95 % interval, and
        at most [GiB], what the processes hold [GiB], and the memory used against the base row [%];
        ``claims``: the published ones.
    """
    half = half_width(seeds)
    rows = []
    for step, seed in product(load_published("pcp-auto-tuning-v2").tables["kbuild"]["step"], seeds):
        run = _build(step, seed)
        rows.append(
            {
                "step": step,
                "lists_mean_gib": run.pcp_pages / 2**18,
                "lists_max_gib": run.most_pcp_pages / 2**18,
                "processes_gib": run.held_pages / 2**18,
                "used_gib": (run.pcp_pages + run.held_pages) / 2**18,
            }
        )
    grouped = pd.DataFrame(rows).groupby("step", sort=False)
    table = grouped.mean().reset_index()
    table.insert(2, "lists_error_gib", half * grouped["lists_mean_gib"].std().to_numpy())
    table["used_change_percent"] = 100 * (table["used_gib"] / table["used_gib"].iloc[0] - 1)
    claims = pd.concat(
        load_published(f"pcp-auto-tuning-{version}").tables["per_patch"] for version in ("v2", "v3")
    )
    claims = claims[claims["quantity"].str.contains("used memory")]
    claimed, later = (float(value) for value in claims["change_pct"])
    at = table.set_index("step")
    grown = [s for s in ("patch7", "patch9", "patch10") if s in at.index]
    most = at.loc[grown, "lists_mean_gib"].idxmax()  # the claims are "up to"
    text = (
        f"- Memory on the lists while the builds run: {at.loc['base', 'lists_mean_gib']:.2f} GiB "
        "in the base row, "
        + ", ".join(
            f"{at.loc[s, 'lists_mean_gib']:.1f} ± {at.loc[s, 'lists_error_gib']:.1f} GiB with {s}"
            for s in grown
        )
        + f". The series says that the average used memory grows by up to {claimed:+.1f} % "
        f"({later:+.1f} % in version 3); processes, page cache and kernel of that server are not "
        "in the model, which holds "
        f"{at.loc['base', 'processes_gib']:.1f} GiB of process memory, so that its own share "
        f"({at.loc[most, 'used_change_percent']:+.0f} % with {most}) is no prediction of "
        f"theirs: the {at.loc[most, 'lists_mean_gib']:.1f} GiB would be {claimed:.1f} % of "
        f"{at.loc[most, 'lists_mean_gib'] / claimed * 100:.0f} GiB. That it is back at the "
        "base level at the end is tested in notebook 12."
    )
    made_of = digest_of(table.to_dict("list"))
    return Answer({"steps": table, "claims": claims}, {"memory": text}, digest=made_of)


def build_surprise(key: Answer) -> Answer:
    """Answer whether the build time fell by as much as the lock's cycles.

    Parameters
    ----------
    key : Answer
        As `pcpmodel.compare` answers: of its tables those that have a build's time and contention.

    Returns
    -------
    Answer
        No table; the answers by name.
    """
    lock, time = "lock_contention", "build_time"
    said = []
    for (source, table), rows in key["rows"].groupby(["source", "table"], sort=False):
        cell = rows.set_index(["step", "quantity"])
        both = [s for s in dict.fromkeys(rows["step"]) if {(s, lock), (s, time)} <= {*cell.index}]
        if not both or ("base", lock) not in cell.index:
            continue
        last, falls, as_much = both[-1], [], []
        for name, column in (("measured", "measured"), ("in the model", "predicted")):
            less = cell.loc[("base", lock), column] - cell.loc[(last, lock), column]
            faster = 100 - cell.loc[(last, time), column]
            as_much.append(bool(faster > 0.8 * less > 0))
            falls.append(
                f"{name} contention falls by {less:.1f} points and build time by {faster:.1f} %"
            )
        measured, modelled = as_much
        said.append(
            f"It does{'' if measured else ' not'}, from base to {last} of {source}/{table}: "
            f"{'; '.join(falls)}{'' if measured == modelled else ', which says otherwise'}."
        )
    question = "- Would it surprise us, if the build time fell by as much as the lock's cycles? "
    if not said:
        return Answer({}, {"surprise": f"{question}No table here has both, of the base row too."})
    reasons = (
        " A thread that waits leaves its core to the other one (smt_share of the cost sheet), and "
        "while few of its commands run, as at its end, a build waits for no lock "
        "(data/workload/build-phases)."
    )
    return Answer({}, {"surprise": question + " ".join(said) + reasons})


def stream_surprise(key: Answer) -> Answer:
    """Answer whether the two predictions without a parameter fail, and what else does.

    Parameters
    ----------
    key : Answer
        As `pcpmodel.compare` answers:
        of its tables those named unix and sctp_stream_many.

    Returns
    -------
    Answer
        No table; the answers by name.
    """
    said: dict[str, str] = {}
    sources = list(dict.fromkeys(key["rows"].loc[key["rows"]["table"].isin(_STREAMS), "source"]))
    for source in sources:
        of = f" ({source})" if len(sources) > 1 else ""
        tables = {
            name: key[name][key[name]["source"] == source]
            for name in ("rows", "cache_misses", "rank")
        }
        said |= {f"{name}{of}": text for name, text in _of_streams(tables, of)}
    question = "- Would it surprise us, if the predictions without a parameter failed?"
    none = {"surprise": f"{question} No table here has them (unix, sctp_stream_many)."}
    return Answer({}, said or none)


def _of_caches(cache: pd.DataFrame) -> str:
    """Whether what is in no cache moves in the model as the measured misses do, at the turns."""
    if not len(cache):
        return ""
    turns = cache[cache.index.get_level_values("step").isin(_TURNS)]
    same = int((turns["sign"] == "same").sum())
    return (
        " Whether pages whose data have left the caches are the reason it shows by direction only: "
        "what was measured is the rate of all cache misses, what the model has the share of pages "
        f"allocated that no cache of the node held. It moves as that rate, beyond its scatter, in "
        f"{same} of the {len(turns)} turns:"
    )


def _of_streams(tables: Mapping[str, pd.DataFrame], of: str) -> Iterator[tuple[str, str]]:
    """What one source's tables of streams answer, as far as it has them."""
    cells = tables["rows"].set_index(["table", "step", "quantity"])
    cache = tables["cache_misses"].set_index(["table", "step"])
    rank = tables["rank"].set_index(["table", "quantity"])["spearman"]
    yield from _foreseen(cells, of)
    yield from _scores(cells, cache, of)
    yield from _caches(cache)
    if ("unix", "alloc_zone") in rank.index:
        yield "rank", _rank(cells, rank["unix", "alloc_zone"])


def _foreseen(cells: pd.DataFrame, of: str) -> Iterator[tuple[str, str]]:
    """Whether what was predicted without a parameter holds."""
    left, hold = [], True
    for what, table, step, foreseen in (
        ("drains per page that patch 1 leaves of AF_UNIX", "unix", "patch1", 2 / 3),
        ("of SCTP, per unit of work", "sctp_stream_many", "patch1", 1.0),
        ("what keeping a batch leaves of SCTP", "sctp_stream_many", "patch3", 1 / 8),
    ):
        per_page = table == "unix"
        needed = ["free_high", "alloc_zone"] if per_page else ["free_high"]
        if any((table, step, quantity) not in cells.index for quantity in needed):
            continue
        row = cells.loc[(table, step, "free_high")]
        scale = cells.loc[(table, step, "alloc_zone"), "measured"] if per_page else 100.0
        measured, modelled = row["measured"] / scale, row["predicted"] / 100
        hold &= abs(measured / foreseen - 1) < 0.05 and abs(modelled / foreseen - 1) < 0.05
        left.append(
            f"{what} {measured:.3f} measured, {modelled:.3f} modelled ({foreseen:.3f} foreseen)"
        )
    if left:
        yield (
            "surprise",
            f"- Would it surprise us, if the predictions without a parameter failed{of}? "
            f"{'They hold' if hold else 'They fail'}, to 5 %: {'; '.join(left)}.",
        )


def _scores(cells: pd.DataFrame, cache: pd.DataFrame, of: str) -> Iterator[tuple[str, str]]:
    """How the scores move from row to row, and whether the model turns where they do."""

    def scores(table: str, steps: Sequence[str]) -> Iterator[tuple[str, pd.Series]]:
        for step in steps:
            if (table, step, "score") in cells.index:
                yield step, cells.loc[(table, step, "score")]

    for table, name in _STREAMS.items():
        changes = ", ".join(
            f"{step} {row['measured_change']:+.1f} measured and {row['predicted_change']:+.1f} "
            f"modelled (scatter {row['change_error']:.1f})"
            for step, row in scores(table, ("patch7", "patch9", "patch10"))
        )
        if changes:
            yield (
                f"{name} score",
                f"- {name}{of}, change of the score from the row before: {changes}.",
            )
    turns = [row for table in _STREAMS for _, row in scores(table, _TURNS)]
    follows = sum(
        abs(r["predicted_change"]) > r["change_error"]
        and r["predicted_change"] * r["measured_change"] > 0
        for r in turns
    )
    if turns:
        yield (
            "lacking",
            "- Patches 7 and 10 are where the measured scores turn, down and up again in part; the "
            f"model moves as measured, beyond its scatter, in {follows} of the {len(turns)} turns"
            f"{': within tolerance hides that' if follows < len(turns) else ''}."
            + _of_caches(cache),
        )


def _caches(cache: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Cache misses as measured, beside pages that are in no cache."""
    for table, name in _STREAMS.items():
        steps = [s for s in ("patch5", "patch7", "patch10") if (table, s) in cache.index]
        measured, model = (
            ", ".join(f"{cache.loc[(table, s), column]:.1f}" for s in steps)
            for column in ("measured_rate", "not_in_cache")
        )
        moves = "; ".join(
            f"{s} {row['measured_change']:+.1f} and {row['predicted_change']:+.1f} (scatter "
            f"{row['change_error']:.1f}), {_WAYS.get(row['sign'], 'nothing to compare')}"
            for s in steps
            if s in _TURNS
            for row in [cache.loc[(table, s)]]
        )
        if steps:
            yield (
                f"{name} caches",
                f"  - {name} at {', '.join(steps)}: cache-miss rate {measured} % measured; pages "
                f"allocated that no cache of the node held {model} % in the model"
                + f". From the row before: {moves}" * bool(moves)
                + ".",
            )


def _rank(cells: pd.DataFrame, spearman: float) -> str:
    """What the rank correlation of AF_UNIX's figure is one of."""
    zones = cells.xs(("unix", "alloc_zone"), level=("table", "quantity"))
    most = zones["measured"].max() - 100
    return (
        f"- The rank correlation of AF_UNIX's alloc_zone, {spearman:.2f}, is "
        f"that of a model between {zones['predicted'].min():.1f} and "
        f"{zones['predicted'].max():.1f} where the measured figure lies between "
        f"{zones['measured'].min():.1f} and {zones['measured'].max():.1f}"
        + (
            f": what makes the real streams take up to {most:.0f} % more from the zone than "
            "the base row is not in it."
            if most > 5 > zones["predicted"].max() - 100
            else "."
        )
    )


_ASKED_OF_VERSIONS = (
    "- Would it surprise us, if a version of the series did much worse than the first named here, "
    "by more than 20 points?"
)


def version_surprise(key: Answer) -> Answer:
    """Answer whether versions 1 and 3 came out much worse than version 2.

    Parameters
    ----------
    key : Answer
        As `pcpmodel.compare` answers:
        with tables of several versions of the series.

    Returns
    -------
    Answer
        No table; the answers by name.
    """
    said = key["rows"]
    shares, right = [], []
    for version in ("v2", "v3", "v1"):
        part = said[said["source"] == f"pcp-auto-tuning-{version}"]
        if len(part):
            share = 100 * part["within"].mean()
            right.append(share)
            shares.append(
                f"version {version[1:]} {part['within'].sum()} of {len(part)} ({share:.0f} %)"
            )
    if len(right) < 2:
        none = "Of the three no two are among these tables."
        return Answer({}, {"surprise": f"{_ASKED_OF_VERSIONS} {none}"})
    same, cells = 0, 0
    rules = tolerances()
    for table in ("kbuild", "unix", "sctp_stream_many"):
        second, third = (
            published_rows(find(f"pcp-auto-tuning-{version}/{table}")) for version in ("v2", "v3")
        )
        for step, figures in third.items():
            # The last row of both is the whole series.
            before = second["patch10" if step == list(third)[-1] else step]
            for quantity, value in figures.items():
                if step == "base" and quantity != "lock_contention":
                    continue
                _, low, high = allowed(quantity, value, rules)
                cells += 1
                same += low <= before[quantity] <= high
    worse = min(right) < right[0] - 20
    answer = (
        f"{_ASKED_OF_VERSIONS} {'One does' if worse else 'None does'}: {', '.join(shares)} within "
        "tolerance. "
        f"Version 2's measurements, copied, are within in {same} of version 3's {cells} cells"
        + (
            ": it is hardly a test, the two are one experiment repeated, and only version 1 and "
            "the single figures are new."
            if same > 0.9 * cells
            else "."
        )
    )
    return Answer({}, {"surprise": answer})
