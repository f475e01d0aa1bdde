"""Pages that are made from the package and its data."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from inspect import isclass, isfunction, ismodule
from pathlib import Path
from typing import Any

import pcpmodel as pm
from pcpmodel.datasets.packages import PLATFORM_FIELDS
from pcpmodel.datasets.store import cited
from pcpmodel.reports.plan import Run, plan
from pcpmodel.reports.publish import published
from pcpmodel.trace.assumptions import ASSUMPTIONS
from pcpmodel.trace.exactness import Exactness
from pcpmodel.trace.unseen import ACTS

#: Columns of the table of published tables.
COUNTED = ("table", "predictions", "within")


@cache
def pages(root: Path) -> dict[str, str]:
    """Text of every page that is made, by its path; once for all builders of a process."""
    made = notebooks(root)
    return {
        **data(root),
        "assumptions.md": assumptions(),
        "facts.md": facts(root),
        "figures.md": figures(root),
        "notebooks.md": made.pop(".."),
        **{f"notebooks/{name}": text for name, text in made.items()},
        "reference.md": reference(),
        "told-apart.md": told_apart(root),
        "verification.md": verification(root),
    }


def reference() -> str:
    """One entry for every public name, for those of public modules, and for what calls return."""
    parts = ["# Reference\n\nEvery name of `import pcpmodel as pm`.\n"]
    documented = {}  # a name may be public of itself and in its module
    for name, where in pm._PUBLIC.items():
        thing = getattr(pm, name)
        if not ismodule(thing):
            documented[f"{where}.{name}"] = f"## pm.{name}\n\n{_entry(f'{where}.{name}', thing)}"
    for name, where in pm._PUBLIC.items():
        thing = getattr(pm, name)
        if ismodule(thing):
            inside = [f"## pm.{name}\n\n```{{eval-rst}}\n.. automodule:: {where}\n```\n"]
            inside += [
                f"### pm.{name}.{n}\n\n{_entry(f'{where}.{n}', getattr(thing, n))}"
                for n in thing.__all__
                if f"{where}.{n}" not in documented
            ]
            documented[where] = "\n".join(inside)
    order = (
        where if ismodule(getattr(pm, name)) else f"{where}.{name}"
        for name, where in pm._PUBLIC.items()
    )
    parts += [documented[path] for path in order]
    parts.append("## What they return\n")
    text = "\n".join(parts)
    return text + "\n".join(
        f"### {path.rpartition('.')[2]}\n\n{_entry(path, thing)}"
        for path, thing in sorted(_returned().items(), key=lambda item: item[1].__name__)
        if f":: {path}\n" not in text
    )


def _returned() -> dict[str, type]:
    """Classes of the package that its public functions return, by their dotted name."""
    found = {}
    for name in pm._PUBLIC:
        thing = getattr(pm, name)
        for call in (getattr(thing, n) for n in thing.__all__) if ismodule(thing) else [thing]:
            if not isfunction(call):
                continue
            for word in re.findall(r"\w+", str(call.__annotations__.get("return", ""))):
                kind = call.__globals__.get(word)
                if isclass(kind) and kind.__module__.startswith("pcpmodel."):
                    found[f"{kind.__module__}.{word}"] = kind
    return found


def _entry(path: str, thing: object) -> str:
    kind = "autoclass" if isinstance(thing, type) else "autofunction"
    if not callable(thing):
        kind = "autodata"
    members = "   :members:\n" if kind == "autoclass" else ""
    return f"```{{eval-rst}}\n.. {kind}:: {path}\n{members}```\n"


def worked_examples(tests: Path) -> int:
    """How many worked examples the tests hold, by their numbers."""
    texts = (path.read_text(encoding="utf-8") for path in tests.rglob("*.py"))
    return len({number for text in texts for number in re.findall(r'"([TX]\d+)"', text)})


@cache
def replays(root: Path) -> tuple[dict[str, Exactness], int]:
    """What came of every recording that has a dump to start from, and how many have none."""
    paths = sorted(path.parent for path in (root / "data" / "traces").glob("*/meta.json"))
    recordings = {path.name: pm.recording(path) for path in paths}
    found = {name: pm.replay(r) for name, r in recordings.items() if "before" in r.tags}
    return found, len(paths) - len(found)


def mainline() -> list[Any]:
    """Releases of mainline, oldest first."""
    return [r for r in pm.releases() if re.fullmatch(r"v\d+\.\d+", r.name)]


def facts(root: Path) -> str:
    """What is true of the lists, release by release: patches, consequences, recordings."""
    found, _ = replays(root)
    parts = []
    before: tuple[str, ...] = ()
    known = {patch.key: patch for patch in pm.patches()}
    for release in mainline():
        new = [known[key] for key in release.patches if key not in before]
        before = release.patches
        parts.append(f"## {release.name}\n")
        if not release.patches:
            parts.append(_BASE)
        elif not new:
            parts.append("Decides as the release before it.\n")
        parts += [f"- {_plain(p.title)} ({_plain(p.origin)}); here `{p.key}`" for p in new]
        parts.append("")
        parts.append(f"{_largest(release)} {_evidence(release.name[1:], found)}\n")
    return f"""# What is true of the per-CPU lists, release by release

For those who search: what `mm/page_alloc.c` does with `struct per_cpu_pages` in each release
since v4.17, the commit or posting of every change, what follows from it, and what recordings of
that kernel show. Made from the model's own rules while this page was built, so it is what is
simulated; {{doc}}`verification` says how they are held to the kernel's.

{chr(10).join(parts)}"""


#: What the releases are told against.
_BASE = """The lists have one size, `high`, of six batches. A refill takes `batch` pages, and so
does a drain. Blocks of order 0 alone have lists.
"""


def assumptions() -> str:
    """The table of what a replay may assume."""
    parts = [
        "# What a replay may assume\n",
        "A trace tells some things late and some not at all. A difference between replay and "
        "recording is *explained* by one of these alone, each time by another line, which the "
        "report names. `pcpmodel/trace/assumptions.pyx` is this table; both replays go by it, with "
        "dumps of the lists and without.\n",
        "| in the report | possible when | what it does | line that proves it |",
        "|---|---|---|---|",
    ]
    parts += [f"| {a.name} | {a.when} | {a.does} | {a.proof} |" for a in ASSUMPTIONS.values()]
    parts += [
        "\n## Free lists\n",
        "What happens to the buddy lists without a line is an act; `pcpmodel/trace/unseen.py` has "
        "the table of them and the search for their moments.\n",
        "| what happens | when | line that proves it | at most |",
        "|---|---|---|---|",
    ]
    parts += [f"| {a.does} | {a.when} | {a.proof} | {a.bound} |" for a in ACTS.values()]
    return "\n".join(parts) + "\n"


def told_apart(root: Path) -> str:
    """What a replay notices: rules that are not the recorded kernel's, and falsified recordings."""
    parts = [
        "# What a replay tells apart\n",
        "That a recording replays with nothing unexplained proves little if another kernel's "
        "rules, or another recording, would pass as well.\n",
        *_other_rules(
            json.loads((root / "docs" / "told-apart.json").read_text(encoding="utf-8")),
            root / "data" / "traces",
        ),
        *_falsified(json.loads((root / "docs" / "falsified.json").read_text(encoding="utf-8"))),
    ]
    return "\n".join(parts) + "\n"


def _missed(told: Mapping[str, Any]) -> str:
    """What-ifs that differ where nothing tells the rules apart."""
    names = [n for n, row in told["recordings"].items() if any(row["what_if"].values())]
    if not names:
        return ""
    own = {
        f"{mine} {count} for {recorded}"
        for name in names
        for count, (mine, recorded) in told["recordings"][name]["own"].items()
    }
    return (
        f"The others are of {', '.join(names)}, whose own rules do not come to what was recorded "
        f"either ({', '.join(sorted(own))}): a what-if knows no reclaim, and so comes to states in "
        "which the recorded kernel never was. "
    )


def _other_rules(told: Mapping[str, Any], traces: Path) -> Iterator[str]:
    """Every recording under every other release."""
    here = sum((traces / name).is_dir() for name in told["recordings"])
    found = told["recordings"].values()
    own = sorted({row["release"] for row in found}, key=[r.name for r in pm.releases()].index)
    apart = sum(len(row["apart"]) for row in found)
    alike = [counts for row in found for counts in row["what_if"].values()]
    agree = sum(not counts for counts in alike)
    yield "## Other kernels' rules\n"
    yield (
        f"Each of {len(found)} recordings, of which {here} are in `data/traces` and the others are "
        "not in the checkout, is replayed under the rules of every other release, "
        f"those that follow the same rules being one: of {apart + len(alike):,} pairs **{apart:,} "
        "are told apart**, that is, leave something unexplained, while under its own rules none "
        "does (a replay that allows everything would tell none apart). Of the "
        f"{len(alike)} that are not, a what-if comes to the same counts under both on **{agree}**. "
        f"{_missed(told)}"
        "A cell says in how many recordings of a kernel other rules are told apart from its own. "
        "Made by `python tools/told_apart.py --write`.\n"
    )
    yield f"| rules | {' | '.join(f'`{name}`' for name in own)} |"
    yield f"|---|{'---|' * len(own)}"
    for same in told["rules"]:
        cells = []
        for name in own:
            rows = [row["apart"] for row in found if row["release"] == name]
            n = sum(same[0] in row for row in rows)
            cells.append("its own" if name in same else f"{n} of {len(rows)}")
        yield f"| {', '.join(f'`{name}`' for name in same)} | {' | '.join(cells)} |"
    yield "\nWhere they are not told apart, and in which rules they differ:\n"
    yield "| rules | kernel | recordings | what-ifs that agree | rules that differ |"
    yield "|---|---|---|---|---|"
    for same in told["rules"]:
        for name in own:
            counts = [
                row["what_if"][same[0]]
                for row in found
                if row["release"] == name and same[0] in row["what_if"]
            ]
            if counts:
                mine, other = (pm.release(n).as_dict() for n in (name, same[0]))
                unlike = ", ".join(f"`{rule}`" for rule in mine if mine[rule] != other[rule])
                yield (
                    f"| `{same[0]}` | `{name}` | {len(counts)} | {sum(not c for c in counts)} "
                    f"| {unlike} |"
                )
    yield ""


def _falsified(told: Mapping[str, Any]) -> Iterator[str]:
    """Copies of recordings that were changed, kind by kind."""
    kinds = told["kinds"]
    total = {how: sum(row[how] for row in kinds) for how in ("refused", "found", "passed")}
    yield "## Falsified recordings\n"
    yield (
        f"{sum(total.values()):,} copies of {len(told['recordings'])} recordings, each changed in "
        f"one of {len(kinds)} ways: {total['refused']:,} are refused, {total['found']:,} leave "
        f"something unexplained, **{total['passed']} pass** (all would if everything were "
        "allowed). Of those that pass the last column says how a kernel could have written them. "
        f"Made by `{told['command']}`.\n"
    )
    yield "| what is changed | copies | refused | found | pass | how a kernel could write it |"
    yield "|---|---|---|---|---|---|"
    for row in kinds:
        numbers = [row[how] for how in ("refused", "found", "passed")]
        cells = [_plain(row["kind"]), sum(numbers), *numbers, _plain(row["possible"])]
        yield f"| {' | '.join(map(str, cells))} |"


def _largest(release: Any) -> str:
    """Largest refill and drain of one CPU that allocates, and frees, 12,000 pages."""
    said = []
    for kind in ("refill", "drain"):
        ladder = pm.study.ladder(
            kind, names=[release.name], batch=63, high_min=500, high_max=8192
        ).table
        top = ladder[ladder["kind"] == kind].nlargest(1, "pages").iloc[0]
        holds = "1 hold" if top["holds"] == 1 else f"{top['holds']} holds"
        said.append(f"its largest {kind} moves {top['pages']:,} pages in {holds}")
    lists = "With batch 63, `high_min` 500 and `high_max` 8,192, where one CPU allocates, or frees"
    return f"{lists}, 12,000 pages in a row, {' and '.join(said)}."


def _evidence(series: str, found: Mapping[str, Exactness]) -> str:
    """What the recordings of a kernel series show."""
    own = [e for name, e in found.items() if name.startswith(f"{series}-")]
    if not own:
        return "No recording of this kernel is replayed here."
    exact = sum(not e.nr_unexplained for e in own)
    rules = ", ".join(sorted({f"`{e.release}`" for e in own}))
    return (
        f"**{exact} of {len(own)}** recordings of a {series} kernel replay with no difference "
        f"unexplained under {rules}: {sum(e.allocations for e in own):,} allocations."
    )


def verification(root: Path) -> str:
    """What stands behind the model: counted now, but for the published tables."""
    lines = [
        "| recording | events | allocations | refills | drains | blocks | free lists | left |",
        "|---|---|---|---|---|---|---|---|",
    ]
    exact = events = allocations = 0
    replayed, read_only = replays(root)
    for name, found in replayed.items():
        exact += not found.nr_unexplained
        events += found.events
        allocations += found.allocations
        cells = [
            " + ".join(f"{n:,}" for n in found.count(k)[1:])
            for k in ("allocations", "refills", "drains", "blocks", "free_lists")
        ]
        cells = [name, f"{found.events:,}", *cells, str(found.nr_unexplained)]
        lines.append(f"| {' | '.join(cells)} |")
    written = (path.read_text(encoding="utf-8") for path in (root / "tests").rglob("test_*.py"))
    tests = sum(len(re.findall(r"^ *def test_", text, re.M)) for text in written)
    counted = json.loads((root / "docs" / "verification.json").read_text(encoding="utf-8"))
    tables = counted["tables"]
    said, within = (sum(t[k] for t in tables) for k in ("predictions", "within"))
    rows = (f"| {' | '.join(str(t[k]) for k in COUNTED)} |" for t in tables)
    found = counted["null_models"]
    model = found["model"]
    others = ", ".join(
        f"\u201c{name}\u201d {n['within']} of {n['cells']}"
        for name, n in found.items()
        if name != "model"
    )
    nulls = (
        f"A tolerance that anybody passes proves nothing: of the {model['cells']} cells that have "
        f"a row before them the model has {model['within']}, and null models have {others}. Where "
        "neither \u201cnothing changes\u201d nor the row before is within, the model has "
        f"**{model['telling_within']} of {model['telling']}**; of the changes by more than 2 % it "
        f"has the sign of **{model['large_signs']} of {model['large_changes']}**."
    )
    return f"""# How the model is verified

1. A slow twin in pure Python, `pcpmodel.kernel.reference`, agrees with the compiled core on random
   sequences of operations, for every one of the {len(pm.releases())} releases.
2. Both agree with {worked_examples(root / "tests")} worked examples, made by running the kernel's
   own functions (`tests/helpers/examples_pcp.py`, `tests/kernel/test_sizing.py`).
3. Recordings of real kernels are replayed: each allocation, refill and drain is compared with what
   the kernel did, and so is each block that a refill took from the buddy lists. Of {len(replayed)}
   recordings with {events:,} events and {allocations:,} allocations **{exact} leave no difference
   unexplained**; {read_only} more, of booting kernels, have no dump of the lists to
   start from and are read only. Other kernels' rules and falsified recordings do not pass unseen:
   {{doc}}`told-apart`.
4. The event engine gives the same bits as the per-page engine, and the closed forms of queueing
   theory where they hold (`tests/simulation/test_engine.py`, `tests/simulation/test_analytic.py`).
5. Published tables are set against the simulator, misses included: of {said} predicted cells in
   {len(tables)} tables **{within} are within tolerance**. {nulls}
   Of the other published tables {counted["elsewhere"]} are answered elsewhere and
   {counted["not_modelled"]} are not modelled, each with its reason in `pcpmodel compare`. Predicted
   means that no number was fitted to that cell; the workloads were given their form with the
   tables in view (see {{doc}}`limits`).

{tests} test functions hold this, most of them for many releases, recordings or tables: `make test`.

## Recordings

Counted while this page was built: foreseen + explained + unexplained (see {{doc}}`glossary`).

{chr(10).join(lines)}

## Published tables

Counted with seed {counted["seed"]} by `python tools/count_verification.py`, which takes a few
minutes; a test tells when it has to be run again. The rows themselves: `pcpmodel compare`, and the
notebook {{doc}}`notebooks/13-published-tables`.

| table | predicted cells | within tolerance |
|---|---|---|
{chr(10).join(rows)}
"""


def data(root: Path) -> dict[str, str]:
    """What lies in ``data/``, and the columns of a machine's table."""
    packages = {
        kind: {
            path.parent.name: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted((root / "data" / kind).glob("*/datapackage.json"))
        }
        for kind in ("hardware", "published", "workload")
    }
    parts = ["# Data\n\nWhat the numbers come from, in the form that {doc}`data-format` tells.\n"]
    for kind, title in (
        ("hardware", "Measured machines"),
        ("published", "Published tables"),
        ("workload", "Workloads"),
    ):
        parts += [f"## {title}\n", "| name | what | tables | source |", "|---|---|---|---|"]
        for name, package in packages[kind].items():
            tables = [r["name"] for r in package["resources"] if r["type"] == "table"]
            cells = [f"`{name}`", _plain(package["title"]), ", ".join(f"`{t}`" for t in tables)]
            cells.append(_plain("; ".join(cited(package["sources"]))))
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
    machine = next(iter(packages["hardware"].values()))["resources"][0]["schema"]["fields"]
    return {
        "data.md": "\n".join(parts),
        "batch_latency.inc": _columns(machine),
        "platform.inc": _columns(PLATFORM_FIELDS.values()),
    }


def _columns(fields: Iterable[Mapping[str, Any]]) -> str:
    lines = ["| name | type | unit | what |", "|---|---|---|---|"]
    for field in fields:
        cells = [f"`{field['name']}`", field["type"], field.get("unit") or ""]
        lines.append(f"| {' | '.join([*cells, _plain(field['description'])])} |")
    return "\n".join(lines) + "\n"


def figures(root: Path) -> str:
    """Every published figure: picture, caption and digest where its report is up to date."""
    parts: list[str] = []
    drawn, last, seen = 0, "", set()
    for figure in published(project=root):
        run = figure.run
        key = (run.notebook.name, figure.name)
        if key in seen or not _shown(run):  # one machine stands for all
            continue
        seen.add(key)
        if run.notebook.name != last:
            last = run.notebook.name
            parts.append(f"## {run.notebook.title}\n\n{{doc}}`{last} <notebooks/{last}>`\n")
        parts.append(f"### {figure.name}\n")
        about = figure.as_dict(root / "reports") if run.status == "up-to-date" else {}
        if about:
            drawn += 1
            picture = f"../reports/{figure.path}.svg"
            parts.append(f"![{_plain(about['alt'])}]({picture})\n\n{_plain(about['caption'])}\n")
        function = f"`{figure.function}`"
        if hasattr(pm.figures, figure.function):
            function = f"{{py:func}}`~pcpmodel.figures.{figure.function}`"
        reads = ", ".join(f"`data/{pattern}`" for pattern in run.notebook.inputs)
        digest = f" Digest `{about['digest'][:12]}`." if about else ""
        parts.append(f"Drawn by {function} from {reads or 'the rules alone'}.{digest}\n")
    return f"""# Figures

{len(seen)} figures, each drawn by the notebook that it belongs to. {_state(drawn, len(seen))}

One by its name, for one column of a paper, two columns or a slide, as SVG, PDF and PNG with
embedded fonts:

```sh
pcpmodel figures refill-ladder --size one-column --out figures
```

Beside the files lies `refill-ladder.json` with a caption, an alt text, the digest of the data and
the parameters; all numbers in the caption come from the data. `--param NAME=VALUE` changes a
parameter of the notebook. The same call writes the same bytes.

{chr(10).join(parts)}"""


def notebooks(root: Path) -> dict[str, str]:
    """The notebooks as pages: as last run where the report is up to date, else as stored."""
    pages, names, ran = {}, [], 0
    for run in plan(project=root):
        name = run.notebook.path.name
        if name in pages or not _shown(run):
            continue
        fresh = run.status == "up-to-date"
        ran += fresh
        path = run.report / name if fresh else run.notebook.path
        pages[name] = path.read_text(encoding="utf-8")
        names.append(f"notebooks/{run.notebook.name}")
    pages[".."] = f"""# Notebooks

One question each, stored without outputs. {_state(ran, len(pages))}

```{{toctree}}
:maxdepth: 1

{chr(10).join(names)}
```
"""
    return pages


def _shown(run: Run) -> bool:
    """Whether it is the run with the data set that the notebook itself names."""
    notebook = run.notebook
    return notebook.for_each is None or run.data == notebook.parameters[notebook.for_each].default


def _state(fresh: int, of: int) -> str:
    if fresh == of:
        return "All are shown as `make report` last ran them."
    return (
        f"{fresh} of them are shown as `make report` last ran them, the other {of - fresh} without "
        "results: their report is missing or outdated. `make report docs` shows all."
    )


def _plain(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return re.sub(r"([\\`*_<>\[\]{}#|~$])", r"\\\1", text)
