"""Command line: ``pcpmodel VERB``.

Results go to stdout, progress and errors to stderr.  Exit codes: 0 done, 1 a
check failed, 2 wrong usage or bad input, 128 more than a signal that ended it
(SIGPIPE's where nobody reads the results).
Heavy imports stay inside the verbs.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import inspect
import io
import json
import os
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from pcpmodel import __version__
from pcpmodel.errors import CheckError, InputError, note, printable
from pcpmodel.files import parse_json
from pcpmodel.signals import Ended, unwinding

as_json = click.option("--json", "json_", is_flag=True, help="Print the result as JSON.")
with_data = click.option("--data", metavar="DIR", help="Data directory (default: the package's).")
with_params = click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE", help="Set a notebook's parameter."
)
with_project = click.option(
    "--project", default=".", type=click.Path(path_type=Path), help="Where notebooks/ is.  [.]"
)
with_used_cpus = click.option("--cpus", metavar="LIST", help="CPUs to use, as 0-3,8; default: all.")


class _Main(click.Group):
    """Turns the package's errors into exit codes, in one place."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any("\0" in arg for arg in args):  # no shell can give one, a script can
            raise click.UsageError("an argument holds a NUL character", ctx)
        with _exit_codes():  # --help prints
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with _exit_codes():
            return super().invoke(ctx)


@contextmanager
def _exit_codes() -> Iterator[None]:
    _open_streams()
    try:
        with unwinding():
            yield
    except click.ClickException as error:  # wrong usage, which click quotes as it was given
        said = io.StringIO()
        error.show(said)
        _end(said.getvalue().rstrip("\n"), error.exit_code)
    except CheckError as failure:
        _end(f"pcpmodel: {failure}", 1)
    except BrokenPipeError:  # who read the results has gone, as head does
        _discard()
        sys.exit(128 + signal.SIGPIPE)
    except (InputError, OSError) as error:
        if isinstance(error, OSError):  # of --help, too, which click prints
            _discard()
        _end(f"pcpmodel: {error}", 2)
    except (MemoryError, ImportError) as error:
        if isinstance(error, ImportError) and "failed to map segment" not in str(error):
            raise
        _end("pcpmodel: there is not enough memory for what was asked", 2)
    except KeyboardInterrupt:
        _end("pcpmodel: interrupted", 128 + signal.SIGINT)
    except Ended as end:
        note(f"pcpmodel: ended by {end.name}")
        raise


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pcpmodel")
def main() -> None:
    """A laboratory for the Linux page allocator's per-CPU page lists."""


def _end(text: str, code: int) -> NoReturn:
    """Say why it ends, if anybody listens, and end."""
    with suppress(BrokenPipeError):
        note(text)
    sys.exit(code)


def _discard() -> None:
    """Leave what stdout did not take: Python would try it again at the end."""
    with suppress(OSError):  # of a stream that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    """Print; what came from a file cannot steer the terminal."""
    try:
        click.echo(printable(text))
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard()
        raise InputError(f"the result cannot be written to stdout: {error.strerror}") from None


def _open_streams() -> None:
    """Give standard streams that are closed to nobody: no file takes their place.

    What goes to stderr may be lost.  Results may not: stdout cannot be written.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            os.set_inheritable(handle, True)
            setattr(sys, name, os.fdopen(handle, "r" if name == "stdin" else "w"))


def _emit(result: Mapping[str, Any], json_: bool, text: str) -> None:
    """Print a verb's result: JSON where asked, else the text."""
    _say(json.dumps(result, indent=1, allow_nan=False) if json_ else text)


@main.command("releases")
@as_json
def releases_(json_: bool) -> None:
    """List the known kernel states and patches."""
    from pcpmodel.kernel.releases import patches, releases

    result = {
        "releases": [{"name": r.name, "rules": r.as_dict()} for r in releases()],
        "patches": [
            {"name": p.key, "title": p.title, "origin": p.origin, "sets": dict(p.sets)}
            for p in patches()
        ],
    }
    lines = ["Releases, each by the patches that it has more (+) or less (-) than another:"]
    known = [r for r in releases() if not r.patches]
    for r in releases():
        # A mainline release by mainline ones.
        changes = [
            (before.name, _changes(before.patches, r.patches))
            for before in known
            if before.name[0] == "v" or r.name[0] != "v"
        ]
        near, words = min(changes, key=lambda change: len(change[1]))
        lines += textwrap.wrap(
            " ".join([near, *words]) if r.patches else "no patches",
            98,
            initial_indent=f"  {r.name:17} ",
            subsequent_indent=" " * 20,
            break_on_hyphens=False,
        )
        known += [r] if r.patches else []
    lines += ["", "Patches:", *(f"  {p.key:23} {p.title} ({p.origin})" for p in patches())]
    _emit(result, json_, "\n".join(lines))


def _changes(before: Sequence[str], after: Sequence[str]) -> list[str]:
    return [f"+{p}" for p in after if p not in before] + [f"-{p}" for p in before if p not in after]


def _page_size(of: str) -> Callable[[Any], Any]:
    return click.option("--page-size", type=int, metavar="BYTES", help=f"Page size of {of}")


def _kib(page_size: int | None) -> int | None:
    """A --page-size in KiB."""
    if page_size is None:
        return None
    if page_size not in (4096, 16384, 65536):
        raise InputError(f"--page-size {page_size}; allowed: 4096, 16384, 65536")
    return page_size >> 10


def _is_path(name: Any) -> bool:
    return isinstance(name, str) and (name[:1] in (".", "~") or "/" in name)


def _all_rules(names: Sequence[Any], config: str | None) -> list[Any]:
    """Releases as they are named on the command line: by name, or by the path of a kernel tree.

    Only what is typed here is opened: no name in a file runs anything.
    """
    if not any(map(_is_path, names)):
        if config is not None:
            raise InputError(f"--config {config} is of a kernel tree, and none is given")
        return list(names)
    from pcpmodel.study.tree import tree

    return [tree(n, config=config) if _is_path(n) else n for n in names]


def _rules(name: Any, config: str | None) -> Any:
    """The one release of a verb that takes one."""
    return _all_rules([name], config)[0]


with_config = click.option(
    "--config", metavar="FILE", help="The .config that a kernel tree is compiled with."
)


with_policy = click.option(
    "--policy", "policy_file", metavar="FILE.pyx", help="A rule of your own; its code is run."
)


with_cpus = click.option(
    "--cpus-per-node",
    metavar="N[,N...]",
    help="Online CPUs of each node: one number for all, or one per node.",
)


def _cpus(given: str | None) -> int | list[int] | None:
    """A --cpus-per-node in numbers."""
    if given is None:
        return None
    try:
        numbers = [int(n) for n in given.split(",")]
    except ValueError:
        raise InputError(f"--cpus-per-node {given!r} is not N or N,N,...") from None
    return numbers if len(numbers) > 1 else numbers[0]


def _policy(file: str | None) -> Any:
    """The rule in a file, compiled; None without one."""
    if file is None:
        return None
    from pcpmodel.kernel.policies import policy

    return policy(file)


@main.command("explain")
@click.argument("reports", metavar="[SOSREPORT]...", nargs=-1)
@click.option(
    "--zoneinfo", "file", metavar="FILE", help="A saved /proc/zoneinfo, or zoneinfo.series."
)
@with_cpus
@click.option("--release", metavar="R", help="Rules to apply; default: those of the kernel.")
@with_config
@click.option(
    "--high-fraction",
    type=int,
    metavar="F",
    help="vm.percpu_pagelist_high_fraction at that time; default: this machine's, or for a file "
    "what its high_min and high_max follow from.",
)
@_page_size("the machine that FILE is from; default: the one that its batches follow from.")
@as_json
def explain_(
    reports: tuple[str, ...],
    file: str | None,
    cpus_per_node: str | None,
    release: str | None,
    config: str | None,
    high_fraction: int | None,
    page_size: int | None,
    json_: bool,
) -> None:
    """Recompute every batch and high of /proc/zoneinfo.

    Each is shown with its formula.  Without --zoneinfo or SOSREPORT it is this machine's file.
    SOSREPORT is a tarball that sosreport made, or a folder of one; several give one table.  Exit
    code 1 if a reported number does not follow.
    """
    from pcpmodel.hardware import fleet, platform, sizes_explained
    from pcpmodel.proc import zoneinfo

    cpus = _cpus(cpus_per_node)
    if reports:
        if file is not None or page_size is not None:
            raise InputError("--zoneinfo and --page-size go without a sosreport")
        rules = _rules(release, config)
        machines = fleet.explain_machines(reports, rules, cpus, high_fraction)
        one = next(iter(machines.machines.values())) if len(reports) == 1 else machines
        _emit(one.as_dict(), json_, repr(one))
        zones = [(p, z) for p, m in machines.machines.items() for z in m.zones]
        if wrong := [f"{Path(p).name} {z.title}" for p, z in zones if not z.match]:
            raise CheckError(f"{len(wrong)} of {len(zones)} zones do not match: {', '.join(wrong)}")
        return
    if file is None:
        if page_size is not None:
            raise InputError("--page-size is for --zoneinfo FILE; this machine's is known")
        found = platform.this_machine(
            release=_rules(release, config), cpus_per_node=cpus, high_fraction=high_fraction
        )
        _emit(found.as_dict(), json_, repr(found))
        explanation = found.explanation
    else:
        explanation = sizes_explained.explain(
            zoneinfo.read(file), _rules(release, config), cpus, high_fraction, page_size
        )
        _emit(explanation.as_dict(), json_, str(explanation))
    wrong = [z.title for z in explanation.zones if not z.match]
    if wrong:
        raise CheckError(
            f"{len(wrong)} of {len(explanation.zones)} zones do not match: {', '.join(wrong)}"
        )


@main.command("tree")
@click.argument("path")
@click.option("--against", metavar="R", help="Release to compare with; default: all.")
@click.option("--patch", metavar="FILE", help="Patch that is applied to PATH first, in a copy.")
@with_config
@click.option(
    "--figures", "figures_dir", metavar="DIR", help="Draw both kernels' ladders to DIR/ladders.svg."
)
@click.option(
    "--operations", type=int, default=10_000_000, show_default=True, help="Random operations."
)
@as_json
def tree_(
    path: str,
    against: str | None,
    patch: str | None,
    config: str | None,
    figures_dir: str | None,
    operations: int,
    json_: bool,
) -> None:
    """Compare a kernel tree's decisions with the releases'.

    Says as which release the tree decides, or where it differs. PATH is a kernel tree, TREE@REF (a
    commit of it), a folder with files of mm/, or one page_alloc.c.  Its page-list functions are
    compiled and run: give only trees that you would build.
    """
    from pcpmodel.study.tree import tree

    if figures_dir is not None and os.path.exists(figures_dir) and not os.path.isdir(figures_dir):
        raise InputError("is not a directory", file=figures_dir)
    mine = tree(path, patch=patch, config=config)
    base = _rules(against, config if _is_path(against) else None)
    found = mine.compare(base, operations=operations)
    if figures_dir is not None:
        if not found.ladders:
            raise InputError(f"{path}: there is no figure: {found.facts['cannot_run']}")
        from pcpmodel import figures

        drawn = figures.panels(figures.ladder, found["rungs"], by="kind", share="", height=2.6)
        figures.save(drawn, "ladders", figures_dir, digest=found.digest)
    _emit(found.as_dict(), json_, str(found))


@main.group("data")
def data_() -> None:
    """List, check, add, update or remove measured tables."""


@data_.command("check")
@click.argument("directory", metavar="[DIR]", required=False)
@as_json
def data_check(directory: str | None, json_: bool) -> None:
    """Name file, row and column of every fault in the data.

    DIR is the data directory; default: the package's.
    """
    from pcpmodel.datasets.packages import check

    faults = check(directory)
    errors = [
        {"file": e.file, "row": e.row, "column": e.column, "message": e.message} for e in faults
    ]
    text = "\n".join(map(str, faults)) or "no faults"
    _emit({"ok": not faults, "errors": errors}, json_, text)
    if faults:
        raise CheckError(f"{len(faults)} fault{'s' * (len(faults) > 1)}")


@data_.command("list")
@with_data
@as_json
def data_list(data: str | None, json_: bool) -> None:
    """Say what there is: name, title, tables, rows and where from."""
    from pcpmodel.datasets.packages import data_root
    from pcpmodel.datasets.store import entries

    root = data_root(data)
    found = entries(root)
    lines = [f"Packages below {root}; + marks those that data add brought in."]
    for kind in dict.fromkeys(entry.kind for entry in found):
        lines += ["", f"{kind}:"]
        for entry in (entry for entry in found if entry.kind == kind):
            tables = ", ".join(f"{name} {rows}" for name, rows in entry.tables.items())
            rest = len(entry.sources) - 1
            source = "".join(entry.sources[:1]) + f" and {rest} more" * (rest > 0)
            faults = f"; {len(entry.faults)} FAULTS: pcpmodel data check" * bool(entry.faults)
            lines += [f"{'+' if entry.added else ' '} {entry.name}: {entry.title}"]
            lines += [f"    {tables or 'no table'} rows; from {source or 'nowhere'}{faults}"]
    _emit({"data": str(root), "packages": [e.as_dict() for e in found]}, json_, "\n".join(lines))


def _can_answer() -> bool:
    """Whether somebody is there who can be asked."""
    return sys.stdin.isatty()


@data_.command("remove")
@click.argument("name", metavar="[KIND/]NAME")
@click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can answer.")
@click.option("--force", is_flag=True, help="Remove even what data add did not bring in.")
@with_data
@as_json
def data_remove(name: str, yes: bool, force: bool, data: str | None, json_: bool) -> None:
    """Remove a machine or a workload, with all its files.

    Its reports leave at the next pcpmodel rerun.  What comes with the data stays, unless --force
    says otherwise.
    """
    from pcpmodel.datasets.store import find, remove

    entry = find(name, data)
    entry.refuse_unless(force)
    if not yes:
        question = f"Remove {entry.kind}/{entry.name}, {entry.rows} rows, {entry.path}?"
        if not _can_answer():
            raise InputError(f"{question} Nobody is there to ask; --yes does it")
        click.confirm(question, abort=True, err=True)
    entry = remove(name, data=data, force=force)
    result = {"kind": entry.kind, "name": entry.name, "path": str(entry.path), "rows": entry.rows}
    text = f"removed {entry.path}, {entry.rows} rows; its reports leave at the next pcpmodel rerun"
    _emit(result, json_, text)


@data_.group("update")
def data_update() -> None:
    """Correct what is known of a machine."""


@data_update.command("platform")
@click.argument("machine", metavar="NAME")
@click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, required=True)
@with_data
@as_json
def data_update_platform(
    machine: str, pairs: tuple[str, ...], data: str | None, json_: bool
) -> None:
    """Set fields of a machine's platform.json; null: not known.

    All of them or, if one is wrong, none; everything else stays as it is.
    """
    from pcpmodel.datasets.packages import data_root
    from pcpmodel.datasets.store import update_platform

    changed = update_platform(machine, _pairs(pairs), data=data)
    result = {
        "machine": machine,
        "path": str(data_root(data) / "hardware" / machine / "platform.json"),
        "changed": {key: {"before": old, "now": new} for key, (old, new) in changed.items()},
    }
    lines = [f"{machine}: {key} {old!r} -> {new!r}" for key, (old, new) in changed.items()]
    _emit(result, json_, "\n".join(lines).replace("None", "null"))


@main.command("fit")
@click.argument("machine")
@as_json
def fit_(machine: str, json_: bool) -> None:
    """Fit what a zone-lock hold costs to MACHINE's measured table."""
    from pcpmodel.study.hold.fit import fit

    found = fit(machine)
    _emit(found.as_dict(), json_, str(found))


with_like = click.option(
    "--like",
    multiple=True,
    metavar="NAME",
    help="Measured machine that MACHINE, without a latency table, is like; may be repeated.",
)


@main.command("limit")
@click.argument("machine")
@with_like
@click.option("--p99-us", type=float, required=True, help="Limit of the p99 of one hold [us].")
@click.option("--slowdown", type=float, default=1.0, help="Assume a CPU this many times slower.")
@click.option(
    "--release",
    metavar="R",
    help="Kernel state; default: v6.18. Up to that refills and drains scale, since v6.19 refills "
    "alone.",
)
@with_config
@_page_size("the kernel asked about; default: that of MACHINE, 4096 where it is not stated.")
@click.option(
    "--pages",
    type=click.Choice(["warm", "cold"]),
    default="warm",
    show_default=True,
    help="warm: just used, as measured; cold: in no cache any more, an estimate.",
)
@as_json
def limit_(
    machine: str,
    like: tuple[str, ...],
    p99_us: float,
    slowdown: float,
    release: str | None,
    config: str | None,
    page_size: int | None,
    pages: str,
    json_: bool,
) -> None:
    """Find MACHINE's largest batch scale factor under a limit.

    With --like MACHINE may be any name.
    """
    from pcpmodel.hardware.machines import machine as find_machine
    from pcpmodel.study.hold.limit import RELEASE, limit

    rules = _rules(release, config) or RELEASE
    of = find_machine(machine, like=like or None)
    found = limit(of, p99_us, slowdown, rules, _kib(page_size), pages)
    answer = found.as_dict()
    if json_:  # has both kinds of pages
        try:
            cold = limit(of, p99_us, slowdown, rules, _kib(page_size), "cold").as_dict()
        except InputError:  # of a machine whose lines take no time
            cold = {"per_scale": [None] * len(answer["per_scale"])}
        named = ("p99_us", "interval", "probability", "mean_us", "mean_interval")
        for row, beside in zip(answer["per_scale"], cold["per_scale"], strict=True):
            row["cold"] = beside and {name: beside[name] for name in named}
    _emit(answer, json_, str(found))


class _NumaCommand(click.Command):
    """``numa``: one option for every parameter of the experiment."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from pcpmodel.numa.parameters import Experiment

        kinds = {"int": int, "float": float, "str": str}
        known = [
            click.Option(
                [f"--{p['name'].replace('_', '-')}"],
                type=kinds[p["type"]],
                default=p["default"],
                show_default=True,
                help=p["what"] + f" [{p['unit']}]" * bool(p["unit"]) + f" ({p['origin']})",
            )
            for p in Experiment.describe()
        ]
        return [*super().get_params(ctx), *known]


@main.command("numa", cls=_NumaCommand)
@click.option("--before", default="v5.12", show_default=True, help="Kernel to compare with.")
@click.option("--after", default="v5.13", show_default=True, help="Kernel that is compared.")
@as_json
def numa_(before: str, after: str, json_: bool, **parameters: Any) -> None:
    """Migrate pages on NUMA hint faults, mapped early or late.

    Without options: 8 processes of 8 threads, 70 GiB on two nodes of 64 GiB, as published
    with the patch; takes about half a minute on two cores.  --scale 0.02 takes a second.
    """
    from pcpmodel.numa.pairs import compare

    found = compare(before=before, after=after, **parameters)
    _emit(found.as_dict(), json_, str(found))


def _pairs(pairs: tuple[str, ...], what: str = "") -> dict[str, str]:
    """Read NAME=VALUE pairs, each name once."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise InputError(f"{what}{pair!r} is not NAME=VALUE")
        if name in values:
            raise InputError(f"{what}{name!r} is given twice")
        values[name] = value
    return values


@main.command("init")
@click.argument("directory", metavar="DIR")
@as_json
def init_(directory: str, json_: bool) -> None:
    """Make a workspace: notebooks, examples and data of your own.

    DIR must be new or empty.  In it, or below it, pcpmodel reads and writes there and not where it
    was installed; an upgrade of the package leaves it alone.
    """
    from pcpmodel.reports.workspace import make_workspace

    parts = make_workspace(directory)
    text = f"{directory}: {', '.join(parts)}\nGo there; then: pcpmodel rerun, jupyter lab notebooks"
    _emit({"path": directory, "parts": parts}, json_, text)


def _say_left_out(project: Path) -> None:
    from pcpmodel.reports.plan import left_out

    if own := left_out(project):
        note(
            f"left out: {', '.join(own)}, whose metadata has no 'pcpmodel' "
            "(docs/data-format.md, A notebook of your own)"
        )


@main.command("rerun")
@click.argument("names", nargs=-1, metavar="[NAME[/DATA]]...")
@click.option("--why", is_flag=True, help="Say everything that changed, not only the first few.")
@click.option("--dry-run", is_flag=True, help="Say what would run; run nothing.")
@with_params
@with_project
@click.option(
    "--out", type=click.Path(path_type=Path), help="Where the reports go.  [PROJECT/reports]"
)
@as_json
def rerun_(
    names: tuple[str, ...],
    why: bool,
    dry_run: bool,
    params: tuple[str, ...],
    project: Path,
    out: Path | None,
    json_: bool,
) -> None:
    """Run the notebooks whose inputs changed, and say why."""
    from pcpmodel.reports.plan import orphans, plan
    from pcpmodel.reports.rerun import rerun

    gone = orphans(project, out)
    if not names:
        _say_left_out(project)
    parameters = _pairs(params, "--param ")
    if dry_run:
        runs = plan(names, parameters, project=project, out=out)
    else:
        runs = rerun(names, parameters, project=project, out=out, progress=note)
    lines = []
    for run in runs:
        said = run.error or ("" if why and run.changes else run.reason)
        lines.append(f"{run.status:10} {run.name}: {said}".rstrip())
        lines += [f"{'':10}   {change}" for change in run.changes if why]
    removed = "to remove" if dry_run else "removed"
    lines += [f"{removed:10} {name}: its data are gone" for name in gone]
    result = {"runs": [run.as_dict() for run in runs], "removed": gone}
    _emit(result, json_, "\n".join(lines))
    failed = [run.name for run in runs if run.status == "failed"]
    if failed:
        raise CheckError(f"{len(failed)} of {len(runs)} runs failed: {', '.join(failed)}")


@main.command("pdf")
@click.argument("name", metavar="NAME[/DATA]")
@click.option(
    "--with", "way", metavar="PROGRAM", help="chromium or pdflatex; default: what is there."
)
@with_project
@click.option(
    "--reports", type=click.Path(path_type=Path), help="Where the reports are.  [PROJECT/reports]"
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="PDF to write; default: NAME-DATA.pdf.",
)
@as_json
def pdf_(
    name: str,
    way: str | None,
    project: Path,
    reports: Path | None,
    out: Path | None,
    json_: bool,
) -> None:
    """Write one report as a PDF.

    Its page printed by chromium, or its words and figures set by pdflatex.
    """
    from pcpmodel.reports.pdf import print_report
    from pcpmodel.reports.plan import plan

    runs = plan([name], project=project, out=reports)
    if len(runs) > 1:
        names = ", ".join(run.name for run in runs)
        raise InputError(f"{name} has {len(runs)} reports; give one of {names}")
    target = out or Path(f"{runs[0].name.replace('/', '-')}.pdf")
    used = print_report(runs[0], target, way)
    stale = "" if runs[0].status == "up-to-date" else f"; it is stale: {runs[0].reason}"
    facts = {"report": runs[0].name, "file": str(target), "with": used, "stale": bool(stale)}
    _emit(facts, json_, f"{target}: {runs[0].name}, by {used}{stale}")


@main.command("figures")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--size",
    metavar="SIZE",
    help="one-column, two-column, slide or W,H [inches]; default: as in the notebook.",
)
@click.option("--font", metavar="FAMILY", help="Installed font family; default: DejaVu Sans.")
@click.option(
    "--format",
    "formats",
    default="svg,pdf,png",
    show_default=True,
    metavar="F[,F]...",
    help="Formats to write.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Directory to write to; needed but for a list."
)
@click.option("--dry-run", is_flag=True, help="List the figures; draw none.")
@with_params
@with_project
@as_json
def figures_(
    names: tuple[str, ...],
    size: str | None,
    font: str | None,
    formats: str,
    out: Path | None,
    dry_run: bool,
    params: tuple[str, ...],
    project: Path,
    json_: bool,
) -> None:
    """Draw the notebooks' figures for print or slides.

    With captions, alt texts, LaTeX floats and the BibTeX of the sources.  NAME is FIGURE, NOTEBOOK
    or a path such as 03-new-hardware/ice-lake/hold-time; default: all. Each runs its notebook's
    cells, with the notebook's parameters unless --param changes them.
    """
    if out is None and not dry_run:
        raise InputError("give --out DIR, or --dry-run for a list")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # how a sum is split changes its last bits
    from pcpmodel.reports.publish import publish, published

    _say_left_out(project)
    found = published(names, _pairs(params, "--param "), project=project)
    if not dry_run:
        publish(
            found,
            out=out,
            size=size,
            font=font,
            formats=[f for f in formats.split(",") if f],
            project=project,
            progress=note,
        )
    rows = [figure.as_dict(Path(os.devnull) if dry_run else out) for figure in found]
    lines = []
    for row in rows:
        lines.append(f"{row['name']:52} {row['function']:18} {', '.join(row['reads'])}")
        lines += [] if row["caption"] is None else [f"  {row['caption']}"]
    _emit({"figures": rows}, json_, "\n".join(lines))


@data_.group("add")
def data_add() -> None:
    """Bring in new measurements."""


def _by_batch(option: str, pairs: tuple[str, ...], whole: bool = False) -> dict[int | None, str]:
    """Turn BATCH=VALUE options into a dict; where ``whole`` is allowed, VALUE alone is None's."""
    made: dict[int | None, str] = {}
    for pair in pairs:
        batch, equals, value = pair.partition("=")
        if whole and pair and not (equals or pair.isdigit() or None in made):
            made[None] = pair
            continue
        if not (equals and value and batch.isascii() and batch.isdigit() and len(batch) < 6):
            raise InputError(f"--{option} {pair!r}: allowed: BATCH=..., BATCH from 1 to 65535")
        if int(batch) in made:
            raise InputError(f"--{option} {pair!r}: batch {batch} is there twice")
        made[int(batch)] = value
    return made


@data_add.command("latency")
@click.argument("table", metavar="[FILE]", required=False)
@click.option(
    "--machine", required=True, metavar="NAME", help="What to call it: [a-z0-9][a-z0-9-]*"
)
@click.option("--free", multiple=True, metavar="[BATCH=]FILE", help="Tool output of drains.")
@click.option("--alloc", multiple=True, metavar="[BATCH=]FILE", help="Tool output of refills.")
@click.option(
    "--throughput",
    multiple=True,
    metavar="BATCH=PAGES_PER_S",
    help="What the workload reached with that batch, if measured.",
)
@click.option(
    "--free-function", metavar="NAME", help="Which one to read, where a --free file has several."
)
@click.option(
    "--alloc-function", metavar="NAME", help="Which one to read, where an --alloc file has several."
)
@click.option("--unit", type=click.Choice(["ns", "us", "ms"]), help="Unit of bpftrace histograms.")
@click.option("--waits", metavar="FILE", help="Waits for locks: events, or perf lock contention.")
@click.option(
    "--zone-lock",
    multiple=True,
    metavar="ADDRESS",
    help="A zone lock's address, where --waits has no stacks.",
)
@click.option("--platform", metavar="FILE", help="What the machine is: platform.json.")
@with_data
@click.option("--replace", is_flag=True, help="Revise a machine of that name; its platform stays.")
@as_json
def data_add_latency(
    table: str | None,
    machine: str,
    free: tuple[str, ...],
    alloc: tuple[str, ...],
    throughput: tuple[str, ...],
    free_function: str | None,
    alloc_function: str | None,
    unit: str | None,
    waits: str | None,
    zone_lock: tuple[str, ...],
    platform: str | None,
    data: str | None,
    replace: bool,
    json_: bool,
) -> None:
    """Bring in a machine's latency table, or its lock waits.

    FILE is a batch_latency.csv.  Or give what a tool printed: for each batch
    setting one --free and one --alloc file of ftrace function_graph,
    funclatency or bpftrace hist(), all of the functions that run with the
    zone lock held.  A file of bpftrace maps keyed by pages (pcpmodel
    measure --script bpftrace) has every batch: --free FILE --alloc FILE.

    --waits alone adds to a machine that is there: ftrace or perf script text
    with lock contention events, or perf lock contention.
    """
    from pcpmodel.hardware.latency_input import MIN_SAMPLES, add_latency, add_waits, read_waits

    raw = {"free": _by_batch("free", free, True), "alloc": _by_batch("alloc", alloc, True)}
    if zone_lock and waits is None:
        raise InputError("--zone-lock goes with --waits only")
    if waits is not None:
        if not (table or any(raw.values())):
            if throughput or free_function or alloc_function or unit or platform or replace:
                raise InputError("--waits alone goes with --machine, --zone-lock and --data only")
            added = add_waits(machine, waits, zone_locks=zone_lock, data=data)
            text = f"{machine}: waits for the zone lock in {added.rows} functions, in {added.path}"
            return _emit(_brought_in(machine, added), json_, text)
        read_waits(waits, zone_lock)  # refused before anything is stored
    if bool(table) == any(raw.values()):
        raise InputError("give either FILE or --free and --alloc files, one of the two")
    if table and (throughput or free_function or alloc_function or unit):
        raise InputError("--throughput, --*-function and --unit go with --free and --alloc only")
    functions = {"free": free_function, "alloc": alloc_function}
    added = add_latency(
        machine,
        table=table,
        raw=raw,
        throughput={int(batch or 0): n for batch, n in _by_batch("throughput", throughput).items()},
        functions={side: name for side, name in functions.items() if name},
        unit=unit,
        platform=platform,
        data=data,
        replace=replace,
    )
    if waits is not None:
        add_waits(machine, waits, zone_locks=zone_lock, data=data)
    text = f"{machine}: {added.rows} rows in {added.path}"
    if added.kept:
        text += f"\nkept of the machine before: {', '.join(added.kept)}"
    if added.dropped:
        text += f"\nof other figures, and gone with them: {', '.join(added.dropped)}"
    if added.left_out:
        few = (
            f"{pages} ({', '.join(f'{side} {n}' for side, n in of.items())})"
            for pages, of in added.left_out.items()
        )
        text += (
            f"\nleft out, numbers of pages with less than {MIN_SAMPLES} samples on a side: "
            + ", ".join(few)
        )
    _emit(_brought_in(machine, added), json_, text)


def _brought_in(machine: str, added: Any) -> dict[str, Any]:
    """What `add_latency` or `add_waits` did, for JSON."""
    return {
        "machine": machine,
        "path": str(added.path),
        "rows": added.rows,
        "kept": list(added.kept),
        "dropped": list(added.dropped),
        "left_out": [{"pages": pages, **of} for pages, of in added.left_out.items()],
    }


@data_add.command("report")
@click.argument("file", metavar="FILE")
@click.option(
    "--name",
    metavar="NAME",
    help="What to call it: [a-z0-9][a-z0-9-]*; default: from the Message-ID.",
)
@with_data
@click.option("--replace", is_flag=True, help="Overwrite a source of that name.")
@as_json
def data_add_report(
    file: str, name: str | None, data: str | None, replace: bool, json_: bool
) -> None:
    """Bring in a kernel robot's mail as a published source.

    It compares two commits. FILE is the mail as it came (headers, quoted-printable) or its text. Of
    perf-profile the page allocator's rows are kept, of perf-sched none.
    """
    from pcpmodel.datasets.robot_report import add_report

    path, rows = add_report(file, name=name, data=data, replace=replace)
    result = {"source": path.name, "path": str(path), "rows": rows}
    text = ", ".join(f"{count} rows of {table}" for table, count in rows.items())
    _emit(result, json_, f"{path.name}: {text} in {path}")


@data_add.command("workload")
@click.argument("recording", metavar="RECORDING")
@click.option("--name", required=True, metavar="NAME", help="What to call it: [a-z0-9][a-z0-9-]*")
@click.option("--page-us", type=float, help="CPU time per page at native speed [us].")
@with_data
@click.option("--replace", is_flag=True, help="Overwrite a workload of that name.")
@as_json
def data_add_workload(
    recording: str,
    name: str,
    page_us: float | None,
    data: str | None,
    replace: bool,
    json_: bool,
) -> None:
    """Bring in a recording's processes as a workload.

    They are drawn anew on any number of CPUs.  RECORDING is what `pcpmodel record` wrote.  Then:
    simulate --workload recorded --param recording=NAME --processes N.
    """
    from pcpmodel.study.workloads import add_workload
    from pcpmodel.trace.recording import recording as open_recording

    cap = open_recording(recording)
    path, rows = add_workload(cap, name, page_us=page_us, data=data, replace=replace)
    result = {"workload": name, "path": str(path), "processes": rows, "lost": cap.lost}
    lost = f"; {cap.lost} events were lost, and what processes did then is not in it"
    _emit(result, json_, f"{name}: {rows} processes in {path}{lost if cap.lost else ''}")


def _settings(pairs: tuple[str, ...], what: str) -> dict[str, Any]:
    """Read KEY=VALUE pairs; values are JSON, or Python's words, where they parse, else text."""
    values: dict[str, Any] = {}
    for key, value in _pairs(pairs, f"{what} ").items():
        try:
            values[key] = parse_json(value)
        except InputError:
            far = re.fullmatch("[-+]?[0-9]{20,999}", value)  # outside of any range, and said so
            word = {"True": True, "False": False, "None": None}.get(value, value)
            values[key] = int(value) if far else word
    return values


def _parts(summary: dict[str, Any]) -> Iterator[str]:
    """Lines of a run's holds by kind, and of its phases."""
    first = "by kind"
    for kind, of in summary["by_kind"].items():
        if of["holds"]:
            wait, hold = (of[f"{what}_ns"]["mean"] / 1e3 for what in ("wait", "hold"))
            yield f"{first:22}{kind}: {of['holds']}, mean wait {wait:.2f} us, hold {hold:.2f} us"
            first = ""
    first = "phases"
    for name, of in summary["phases"].items():
        yield (
            f"{first:22}{name or 'outside'}: busy for {of['busy_s']:.3g} s of CPU time, "
            f"{100 * of['lock_contention']:.2f} % of it waiting, {of['refills']} refills, "
            f"{of['drains']} drains"
        )
        first = ""


@main.command("simulate")
@click.option(
    "--release", "release_", required=True, help="Kernel state (see pcpmodel releases), or a tree."
)
@with_config
@click.option("--machine", required=True, help="Machine whose hold times are used.")
@with_like
@click.option("--workload", required=True, help="Such as page_fault1, kbuild, unix_stream.")
@click.option("--processes", type=int, help="Processes of the workload.")
@click.option("--param", multiple=True, metavar="KEY=VALUE", help="Argument of the workload.")
@click.option("--seconds", type=float, default=1.0, show_default=True, help="Simulated time [s].")
@click.option(
    "--warmup", "warmup_s", type=float, help="Before counting [s]; default: until rates are steady."
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--cpus", type=int, help="CPUs of the machine.")
@click.option("--nodes", type=int, help="NUMA nodes.")
@click.option("--memory-gib", type=float, help="Memory of the machine [GiB].")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any other argument of pm.simulate.",
)
@with_policy
@as_json
def simulate_(
    release_: str,
    config: str | None,
    machine: str,
    like: tuple[str, ...],
    workload: str,
    processes: int | None,
    param: tuple[str, ...],
    seconds: float,
    warmup_s: float | None,
    seed: int,
    cpus: int | None,
    nodes: int | None,
    memory_gib: float | None,
    settings: tuple[str, ...],
    policy_file: str | None,
    json_: bool,
) -> None:
    """Run a workload on many CPUs under one kernel."""
    from tqdm import tqdm

    from pcpmodel.hardware.machines import machine as find_machine
    from pcpmodel.simulation.run import execute, hold_range
    from pcpmodel.simulation.spec import make_spec
    from pcpmodel.workload import make

    params = _arguments_of(workload, processes, _settings(param, "--param"))
    options = _settings(settings, "--set")
    used = find_machine(machine, like=like or None)
    given = {"seconds": seconds, "seed": seed, "cpus": cpus, "nodes": nodes}
    if "warmup_s" in options:
        raise InputError("--set warmup_s: use --warmup")
    given |= {"warmup_s": warmup_s, "memory_gib": memory_gib}
    given |= {"release": _rules(release_, config), "machine": used}
    given |= {"workload": make(workload, **params), "policy": _policy(policy_file)}
    for key in options:
        if key in given:
            raise InputError(f"--set {key}: use --{key.replace('_', '-')}")
    spec = make_spec(**given, **options)
    total = None if spec.settles else round(spec.seconds + (spec.warmup_s or 0.0), 6)
    with tqdm(total=total, unit="s", disable=None, file=sys.stderr, leave=False) as bar:
        try:
            result = execute(spec, progress=lambda done: bar.update(max(done - bar.n, 0)))
        except InputError:
            raise
        except Exception as error:  # of a rule of the user's own
            if policy_file is None:
                raise
            raise InputError(f"{policy_file}: {type(error).__name__}: {error}") from error
    summary = result.summary()
    if spec.machine.derived:
        summary["holds_times"] = {
            f"{factor:.2f}": {"score": run.score, "lock_contention": run.lock_contention}
            for factor, run in hold_range(spec).items()
        }
    _emit(summary, json_, "\n".join(_summed_up(workload, result, summary)))


def _arguments_of(workload: str, processes: int | None, params: dict[str, Any]) -> dict[str, Any]:
    """Those of a workload, --processes among them; refused are words that are not options here."""
    from pcpmodel.workload import WORKLOADS, make

    takes = inspect.signature(WORKLOADS.get(workload, make)).parameters
    if processes is not None:
        if workload in WORKLOADS and "processes" not in takes:
            raise InputError(
                f"workload {workload} has no --processes; with --param it takes {', '.join(takes)}"
            )
        if "processes" in params:
            raise InputError("--param processes: use --processes, and once")
        params = params | {"processes": processes}
    needed = [k for k, p in takes.items() if p.default is p.empty and k not in params]
    if workload in WORKLOADS and needed and params.keys() <= takes.keys():
        how = ("--processes N" if k == "processes" else f"--param {k}=..." for k in needed)
        raise InputError(f"workload {workload} needs {' and '.join(how)}")
    return params


def _summed_up(workload: str, result: Any, summary: dict[str, Any]) -> list[str]:
    """A run in lines of words."""
    spec, over = result.spec, summary["latency_over_us"]
    half = summary["half_width_95"]["lock_contention"]
    sure = "" if half is None else f" (95 %: ± {100 * half:.2f}, batch means)"
    stood = {
        None: "",
        True: ": until the rates were steady",
        False: ": the rates never became steady; the figures are of a run that still changes",
    }
    return [
        f"{workload} under {spec.rules} on {spec.machine.name}: "
        f"{summary['score']} {summary['score_unit']} in {spec.seconds:g} s",
        f"machine               {spec.host}",
        f"zone-lock contention  {100 * summary['lock_contention']:.2f} % of busy cycles{sure}",
        *(
            f"  with holds x {factor:8} {100 * found['lock_contention']:.2f} %, "
            f"{found['score']} {summary['score_unit']}"
            for factor, found in summary.get("holds_times", {}).items()
        ),
        f"refills               {summary['refills']} ({result.per_cpu['refill_pages'].sum()} "
        f"pages; {summary['alloc_zone_pages']} from the zone, those past the lists included)",
        f"drains                {summary['drains']} ({summary['free_high']} for high orders)",
        "wait per hold         "
        + (
            ", ".join(f"{k} {v / 1e3:.2f} us" for k, v in summary["wait_ns"].items())
            if summary["wait_ns"]["mean"] is not None
            else "none: no hold is taken"
        ),
        *_parts(summary),
        "refill over           "
        + ", ".join(f"{us} us: {100 * p:.4f} %" for us, p in over["refill"].items()),
        f"warm-up               {result.warmup_s:.4g} s{stood[result.stands]}",
        "assumed               " + "; ".join(spec.assumed),
        f"real-time factor      {summary['real_time_factor']:.1f}",
        *(f"* {note}" for note in summary["notes"]),
    ]


@main.command("compare")
@click.argument("source", required=False)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--before", metavar="R", help="Of a report: what its first commit stands for.")
@click.option("--after", metavar="R", help="Of a report: what its second commit stands for.")
@click.option("--machine", metavar="NAME", help="Of a report: whose holds are used.")
@as_json
def compare_(
    source: str | None,
    seed: int,
    before: str | None,
    after: str | None,
    machine: str | None,
    json_: bool,
) -> None:
    """Set published tables against the simulator.

    SOURCE is one source of data/published or one of its tables; default: all of machines with a
    latency table. A report that was brought in (data add report) needs --before and --after.
    """
    from pcpmodel.study.published.compare import compare

    if (before is None) != (after is None):
        raise InputError("--before and --after go together: give both, or neither")
    answer = compare(
        source,
        seed=seed,
        releases=None if before is None or after is None else (before, after),
        machine=machine,
        progress=note,
    )
    _emit(answer.as_dict(), json_, str(answer))


@main.command("sweep")
@click.argument("spec_file", metavar="SPEC.json")
@click.option("--out", required=True, help="NetCDF file of the result.")
@click.option("--scheduler", help="Address of a Dask scheduler; default: threads of this host.")
@click.option("--workers", type=int, help="Runs at once; default: as many as CPUs.")
@with_policy
@as_json
def sweep_(
    spec_file: str,
    out: str,
    scheduler: str | None,
    workers: int | None,
    policy_file: str | None,
    json_: bool,
) -> None:
    """Run a grid of simulations.

    SPEC.json: {"base": {"machine": "sapphire-rapids", "workload": {"name": "page_fault1",
    "processes": 64}, "cpus": 64, "seconds": 0.2}, "grid": {"release": ["v6.6", "v6.7"],
    "batch_scale_max": [0, 5], "seed": [1, 2, 3]}}; "base" has one value for each argument of
    simulate, "grid" lists of values, every combination of which is run. Started again after a
    kill it goes on where it was.
    """
    from pcpmodel.study.sweep.grid import read_grid
    from pcpmodel.study.sweep.run import run_grid
    from pcpmodel.study.sweep.workers import cluster

    grid = read_grid(spec_file, policy=_policy(policy_file))
    with cluster(scheduler) as (executor, threads):
        workers = threads if workers is None else workers
        data = run_grid(grid, executor=executor, workers=workers, out=out)
    runs = len(grid.specs)
    _emit({"runs": runs, "out": out}, json_, f"{runs} runs in {out}\n{data}")


@main.command("replay")
@click.argument("recording", metavar="RECORDING")
@click.option(
    "--release",
    metavar="R",
    help="Rules of the recorded kernel; default: those of the known release nearest to it.",
)
@with_config
@click.option(
    "--what-if", "other_rules", is_flag=True, help="Do the same work under the releases RULES."
)
@click.argument("rules", metavar="[RULES]...", nargs=-1)
@with_policy
@as_json
def replay_(
    recording: str,
    release: str | None,
    config: str | None,
    other_rules: bool,
    rules: tuple[str, ...],
    policy_file: str | None,
    json_: bool,
) -> None:
    """Does the model do what the recorded kernel did?

    RECORDING is a directory, or the name of one of data/traces.
    Exit code 1 if a difference stays unexplained, the trace lost events, or more than one event in
    100 had to be explained by another line.

    With --what-if R [R ...]: which refills and drains, in how many holds of the zone lock, the same
    work would have made under other rules. Time is not replayed.
    """
    if other_rules:
        from pcpmodel.trace.recording import recording as open_recording
        from pcpmodel.trace.what_if import what_if

        if not rules and policy_file is None:
            raise InputError("--what-if needs the releases to try, after it, or --policy")
        own, *others = _all_rules([release, *rules], config)
        answer = what_if(
            open_recording(recording, own),
            others,
            _policy(policy_file),
        )
        _emit(answer.as_dict(), json_, repr(answer))
        return
    if rules:
        raise InputError(f"{rules[0]!r} is one argument too many; did you mean --what-if?")
    from pcpmodel.trace.replay import replay

    found = replay(
        recording,
        release=_rules(release, config),
        policy=_policy(policy_file),
        progress=sys.stderr.isatty(),
    )
    _emit(found.as_dict(), json_, repr(found))
    if not found.exact:
        raise CheckError(
            f"{found.nr_unexplained} unexplained differences (causes: {found.nr_causes}), "
            f"{found.lost} lost events, "
            f"{found.nr_explained} of {found.events} events explained "
            "(at most 1 in 100 may be)"
        )


@main.command("record", context_settings={"ignore_unknown_options": True})
@click.option("--out", required=True, metavar="DIR", help="Recording to make; must not exist.")
@click.option("--seconds", required=True, type=float, help="How long [s]; with CMD at most.")
@click.option(
    "--buffer-kb",
    type=int,
    help="Ring buffer of each CPU; the first that is full ends it.  Default: 16 to 256 MiB, as "
    "memory is available.",
)
@as_json
@click.argument("command", metavar="[-- CMD ...]", nargs=-1, type=click.UNPROCESSED)
def record_(
    out: str, seconds: float, buffer_kb: int | None, command: tuple[str, ...], json_: bool
) -> None:
    """Record this machine's page allocator while CMD runs.

    Needs root and tracefs.

    Uses a tracing instance of its own: no setting of the machine changes.
    """
    from pcpmodel.trace.record import record

    done = record(out, seconds, command, buffer_kb=buffer_kb, progress=sys.stderr.isatty())
    text = f"{done.path}: {done.events} events, {done.lost} lost"
    if done.full:
        text += (
            f"; it ended after {done.seconds:.2f} s, when the ring buffer of CPU {done.full[0]} "
            f"was full: a larger --buffer-kb records longer"
        )
    if (done.exit_code or 0) > 0:
        text += f"; {command[0]} ended with the exit code {done.exit_code}"
    _emit(done.as_dict(), json_, text)


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """A bar that says what comes next, as long as it is there."""
    from tqdm import tqdm

    with tqdm(unit="step", disable=None, file=sys.stderr, leave=False) as bar:

        def step(what: str) -> None:
            bar.set_description(what)
            bar.update()

        yield step


def _script(ctx: click.Context, _option: click.Parameter, tool: str | None) -> None:
    """Print what to run on a machine that has only TOOL, and end."""
    if tool and not ctx.resilient_parsing:
        from pcpmodel.hardware.latency_input import SCRIPTS

        _say(SCRIPTS[tool].rstrip("\n"))
        ctx.exit()


@main.command("measure")
@click.argument("name")
@click.option(
    "--script",
    type=click.Choice(["bpftrace", "ftrace", "perf"]),
    is_eager=True,
    expose_value=False,
    callback=_script,
    help="Measure nothing; print what to run on a machine that has only this tool. pcpmodel data "
    "add latency reads what comes out.",
)
@click.option("--minutes", type=float, default=3.0, show_default=True, help="At most, about [min].")
@with_used_cpus
@click.option("--dry-run", is_flag=True, help="Only say what would be touched.")
@click.option("--force", is_flag=True, help="Measure even if busy or short of memory.")
@with_data
@click.option(
    "--replace",
    is_flag=True,
    help="Measure a machine of that name again: intervals take in what is stored.",
)
@as_json
def measure_(
    name: str,
    minutes: float,
    cpus: str | None,
    dry_run: bool,
    force: bool,
    data: str | None,
    replace: bool,
    json_: bool,
) -> None:
    """Measure what this machine's operations and holds take.

    Stores its cost sheet, and how long it holds the zone lock, as machine NAME. The holds need root
    and tracefs; without, the sheet has those of other machines and says so. What was not measured
    is named. No setting of the machine changes.
    """
    from pcpmodel.datasets.packages import data_root
    from pcpmodel.proc.cpulist import parse_cpu_list

    data_root(data)  # what follows takes a while to load
    from pcpmodel.study.measure import measure

    used = None if cpus is None else parse_cpu_list(cpus, Path("--cpus"))
    run = partial(measure, name, minutes, cpus=used, force=force, replace=replace, data=data)
    found = run(dry_run=True)  # refuses what is wrong, and says what will be touched
    if not dry_run:
        note(found["touched"].to_string(index=False))
        with _steps() as step:
            found = run(progress=step)
    _emit(found.as_dict(), json_, str(found))


@main.command("validate")
@click.argument("name")
@click.option(
    "--minutes",
    type=float,
    default=3.0,
    show_default=True,
    help="How long to measure, about [min].",
)
@click.option(
    "--fraction",
    "fractions",
    type=int,
    multiple=True,
    metavar="N",
    help="Value of vm.percpu_pagelist_high_fraction; may be repeated. Default: 0, 128, 2048.",
)
@with_used_cpus
@click.option("--dry-run", is_flag=True, help="Only predict.")
@click.option("--stored", is_flag=True, help="Show the session that is stored.")
@click.option(
    "--force", is_flag=True, help="Measure even if busy, or if this is not the machine measured."
)
@with_data
@as_json
def validate_(
    name: str,
    minutes: float,
    fractions: tuple[int, ...],
    cpus: str | None,
    dry_run: bool,
    stored: bool,
    force: bool,
    data: str | None,
    json_: bool,
) -> None:
    """Predict what loads do on this machine, then measure it.

    NAME is this machine, as pcpmodel measure stored it. The prediction, from what that wrote and
    the running kernel's rules alone, is in its file before the first load runs. Needs root; the
    setting that it changes, vm.percpu_pagelist_high_fraction, is put back. The lists of all CPUs
    are emptied before each load.
    """
    from pcpmodel.proc.cpulist import parse_cpu_list
    from pcpmodel.study.validate import FRACTIONS, validate, validation

    if stored:
        found = validation(name, data)
    else:
        with _steps() as step:
            found = validate(
                name,
                minutes,
                fractions=fractions or FRACTIONS,
                cpus=None if cpus is None else parse_cpu_list(cpus, Path("--cpus")),
                dry_run=dry_run,
                force=force,
                data=data,
                progress=step,
            )
    _emit(found.as_dict(), json_, str(found))


@main.command("cover-letter")
@click.argument("spec_file", metavar="SPEC.json")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "csv", "latex"]),
    default="text",
    show_default=True,
    help="Plain text for a mail (72 columns), CSV or LaTeX.",
)
@click.option(
    "--tree", "trees", multiple=True, metavar="PATH", help="A kernel tree, as one more row."
)
@with_config
@with_policy
@as_json
def cover_letter_(
    spec_file: str,
    form: str,
    trees: tuple[str, ...],
    config: str | None,
    policy_file: str | None,
    json_: bool,
) -> None:
    """Print a cover letter's table: base, patch 1 .. n.

    SPEC.json: {"releases": ["v6.6", "v6.6+p1"], "machine": "sapphire-rapids", "workloads":
    [{"name": "page_fault1", "processes": 8}, {"published": "pcp-auto-tuning-v2", "table":
    "kbuild"}]}; also "labels", "seeds", "figures", "options" of simulate. A published table
    shows each measured row above the simulated one.
    """
    from pcpmodel.study.published.cover_letter import cover_letter, read_spec

    spec = read_spec(spec_file)
    if trees:
        from pcpmodel.study.tree import tree

        made = [tree(path, config=config) for path in trees]
        spec["releases"] = [*spec["releases"], *made]
        if spec.get("labels"):
            spec["labels"] = [*spec["labels"], *map(str, made)]
    elif config is not None:
        raise InputError(f"--config {config} is of a kernel tree, and none is given")
    policy = _policy(policy_file)
    try:
        letter = cover_letter(**spec, policy=policy)
    except InputError as error:
        raise error if error.file else InputError(error.message, file=spec_file) from None
    _emit(letter.as_dict(), json_, str(letter) if form == "text" else getattr(letter, form)())


@main.command("advise")
@click.option(
    "--machine", metavar="NAME", help="Measured machine whose lock holds are like this one's."
)
@with_like
@click.option(
    "--zoneinfo",
    metavar="FILE",
    help="Copy of the machine's /proc/zoneinfo; default, without --machine: this host's.",
)
@click.option("--lscpu", metavar="FILE", help="What lscpu printed on that machine.")
@with_cpus
@click.option(
    "--high-fraction",
    type=int,
    metavar="F",
    help="vm.percpu_pagelist_high_fraction there; default: what high_min and high_max follow from.",
)
@_page_size("the machine advised on; default: what its zoneinfo or platform.json says.")
@click.option(
    "--p99-us", type=float, default=100.0, show_default=True, help="Limit of a hold's p99 [us]."
)
@click.option(
    "--stranded-percent",
    type=float,
    default=12.5,
    show_default=True,
    help="Share of memory that the lists may take [%].",
)
@click.option(
    "--release",
    help="Kernel to advise for; default: the zoneinfo's as far as it tells, else v6.18.",
)
@with_config
@as_json
def advise_(json_: bool, **options: Any) -> None:
    """Batch scale and high fraction: raise, leave or lower?

    Changes nothing itself.
    """
    from pcpmodel.hardware.machines import machine as find_machine
    from pcpmodel.study.hold.advise import advise

    page_size_kib = _kib(options.pop("page_size"))
    options["release"] = _rules(options["release"], options.pop("config"))
    name, like = options.pop("machine"), options.pop("like")
    if like and name is None:
        raise InputError("--like needs --machine NAME")
    machine = None if name is None else find_machine(name, like=like or None)
    cpus = _cpus(options.pop("cpus_per_node"))
    answer = advise(machine, page_size_kib=page_size_kib, cpus_per_node=cpus, **options)
    _emit(answer.as_dict(), json_, str(answer))
