"""Command line: ``pcpmodel VERB``.

Results go to stdout, progress and errors to stderr.  Exit codes: 0 done, 1 a
check failed, 2 wrong usage or bad input.  Heavy imports stay inside the verbs.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pcpmodel import __version__
from pcpmodel.errors import CheckError, InputError

as_json = click.option("--json", "json_", is_flag=True, help="Print the result as JSON.")


class _Main(click.Group):
    """Turns the package's errors into exit codes, in one place."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CheckError as failure:
            click.echo(f"pcpmodel: {failure}", err=True)
            sys.exit(1)
        except (InputError, OSError) as error:
            click.echo(f"pcpmodel: {error}", err=True)
            sys.exit(2)


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pcpmodel")
def main() -> None:
    """A laboratory for the Linux page allocator's per-CPU page lists."""


def _emit(result: Mapping[str, Any], json_: bool, text: str) -> None:
    """Print a verb's result: JSON where asked, else the text."""
    click.echo(json.dumps(result, indent=1, allow_nan=False) if json_ else text)


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
        changes = [(before.name, _changes(before.patches, r.patches)) for before in known]
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


@main.command("explain")
@click.option("--zoneinfo", "file", metavar="FILE", help="A saved /proc/zoneinfo, or a series.")
@click.option(
    "--cpus-per-node",
    metavar="N[,N...]",
    help="Online CPUs of each node: one number for all, or one per node.",
)
@click.option("--release", metavar="R", help="Rules to apply; default: those of the kernel.")
@click.option(
    "--high-fraction",
    type=int,
    metavar="F",
    help="vm.percpu_pagelist_high_fraction at that time; default: this machine's, 0 for a file.",
)
@click.option(
    "--page-size",
    type=int,
    metavar="BYTES",
    help="Page size of the machine that FILE is from: 4096 (default), 16384 or 65536.",
)
@as_json
def explain_(
    file: str | None,
    cpus_per_node: str | None,
    release: str | None,
    high_fraction: int | None,
    page_size: int | None,
    json_: bool,
) -> None:
    """Recompute every batch and high of /proc/zoneinfo.

    Each with its formula.  Without FILE it is this machine's.  Exit code 1 if a reported number
    does not follow.
    """
    from pcpmodel.machine import platform, zoneinfo

    cpus = None
    if cpus_per_node is not None:
        try:
            numbers = [int(n) for n in cpus_per_node.split(",")]
        except ValueError:
            raise InputError(f"--cpus-per-node {cpus_per_node!r} is not N or N,N,...") from None
        cpus = numbers if len(numbers) > 1 else numbers[0]
    if file is None:
        if page_size is not None:
            raise InputError("--page-size is for --zoneinfo FILE; this machine's is known")
        found = platform.this_machine(
            release=release, cpus_per_node=cpus, high_fraction=high_fraction
        )
        _emit(found.as_dict(), json_, repr(found))
        explanation = found.explanation
    else:
        explanation = zoneinfo.explain(
            zoneinfo.read(file), release, cpus, high_fraction or 0, page_size or 4096
        )
        _emit(explanation.as_dict(), json_, str(explanation))
    wrong = [z.title for z in explanation.zones if not z.match]
    if wrong:
        raise CheckError(
            f"{len(wrong)} of {len(explanation.zones)} zones do not match: {', '.join(wrong)}"
        )


@main.group("data")
def data_() -> None:
    """Check the measured tables, or bring in new ones."""


@data_.command("check")
@click.argument("directory", metavar="[DIR]", required=False)
@as_json
def data_check(directory: str | None, json_: bool) -> None:
    """Say file, row and column of every fault below DIR (default: the package's data)."""
    from pcpmodel.data_package import check

    faults = check(directory)
    errors = [
        {"file": e.file, "row": e.row, "column": e.column, "message": e.message} for e in faults
    ]
    text = "\n".join(map(str, faults)) or "no faults"
    _emit({"ok": not faults, "errors": errors}, json_, text)
    if faults:
        raise CheckError(f"{len(faults)} faults")


@main.command("fit")
@click.argument("machine")
@as_json
def fit_(machine: str, json_: bool) -> None:
    """Fit what a zone-lock hold costs to MACHINE's measured table."""
    from pcpmodel.study.fit import fit

    found = fit(machine)
    _emit(found.as_dict(), json_, found.table())


@main.command("limit")
@click.argument("machine")
@click.option("--p99-us", type=float, required=True, help="Limit of the p99 of one hold [us].")
@click.option("--slowdown", type=float, default=1.0, help="Ask of a CPU this many times slower.")
@as_json
def limit_(machine: str, p99_us: float, slowdown: float, json_: bool) -> None:
    """Find MACHINE's largest batch scale factor under a limit."""
    from pcpmodel.study.limit import limit

    found = limit(machine, p99_us, slowdown)
    _emit(found.as_dict(), json_, found.table())


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
                help=f"{p['unit'] or p['name']} ({p['origin']})",
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
    from pcpmodel.numa.study import compare

    found = compare(before=before, after=after, **parameters)
    _emit(found.as_dict(), json_, found.table())


def _parameters(params: tuple[str, ...]) -> dict[str, str]:
    """Read --param NAME=VALUE, each name once."""
    split = [param.partition("=") for param in params]
    for name, equals, _ in split:
        if not (name and equals):
            raise InputError(f"--param {name!r} is not NAME=VALUE")
    if len({name for name, _, _ in split}) < len(split):
        raise InputError(f"--param names a parameter twice: {', '.join(params)}")
    return {name: value for name, _, value in split}


@main.command("rerun")
@click.argument("names", nargs=-1, metavar="[NAME[/DATA]]...")
@click.option("--why", is_flag=True, help="Say everything that changed, not only the first few.")
@click.option("--dry-run", is_flag=True, help="Say what would run; run nothing.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Set a parameter.")
@click.option(
    "--project", default=".", type=click.Path(path_type=Path), help="Where notebooks/ is.  [.]"
)
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
    from pcpmodel.rerun import plan, rerun

    parameters = _parameters(params)
    if dry_run:
        runs = plan(names, parameters, project=project, out=out)
    else:
        runs = rerun(
            names, parameters, project=project, out=out, progress=lambda t: click.echo(t, err=True)
        )
    lines = []
    for run in runs:
        lines.append(f"{run.status:10} {run.name}: {run.error or run.reason}")
        lines += [f"{'':10}   {change}" for change in run.changes if why]
    _emit({"runs": [run.as_dict() for run in runs]}, json_, "\n".join(lines))
    failed = [run.name for run in runs if run.status == "failed"]
    if failed:
        raise CheckError(f"{len(failed)} of {len(runs)} runs failed: {', '.join(failed)}")


@main.command("figures")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--size",
    metavar="SIZE",
    help="one-column, two-column or slide; default: as in the notebook.",
)
@click.option("--format", "formats", default="svg,pdf,png", show_default=True, metavar="F[,F]...")
@click.option("--out", type=click.Path(path_type=Path), help="Directory to write to.")
@click.option("--dry-run", is_flag=True, help="List the figures; draw none.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Set a parameter.")
@click.option(
    "--project", default=".", type=click.Path(path_type=Path), help="Where notebooks/ is.  [.]"
)
@as_json
def figures_(
    names: tuple[str, ...],
    size: str | None,
    formats: str,
    out: Path | None,
    dry_run: bool,
    params: tuple[str, ...],
    project: Path,
    json_: bool,
) -> None:
    """Draw the notebooks' figures for print or slides.

    With captions and alt texts.  NAME is FIGURE, NOTEBOOK or a path such as
    03-new-hardware/ice-lake/hold-time; default: all. Each runs its notebook's cells, with the
    notebook's parameters unless --param changes them.
    """
    if out is None and not dry_run:
        raise InputError("give --out DIR, or --dry-run for a list")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # how a sum is split changes its last bits
    from pcpmodel.publish import publish, published

    found = published(names, _parameters(params), project=project)
    if not dry_run:
        publish(
            found,
            out=out,
            size=size,
            formats=[f for f in formats.split(",") if f],
            project=project,
            progress=lambda t: click.echo(t, err=True),
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


def _by_batch(option: str, pairs: tuple[str, ...]) -> dict[int, str]:
    """Turn BATCH=VALUE options into a dict."""
    made: dict[int, str] = {}
    for pair in pairs:
        batch, equals, value = pair.partition("=")
        if not (equals and value and batch.isascii() and batch.isdigit() and len(batch) < 6):
            raise InputError(f"--{option} {pair!r}: allowed: BATCH=..., BATCH from 1 to 65535")
        if int(batch) in made:
            raise InputError(f"--{option} {pair!r}: batch {batch} is there twice")
        made[int(batch)] = value
    return made


@data_add.command("latency")
@click.argument("table", metavar="[FILE]", required=False)
@click.option("--machine", required=True, metavar="NAME", help="[a-z0-9][a-z0-9-]*")
@click.option("--free", multiple=True, metavar="BATCH=FILE", help="Tool output, freeing side.")
@click.option("--alloc", multiple=True, metavar="BATCH=FILE", help="Tool output, allocating side.")
@click.option("--throughput", multiple=True, metavar="BATCH=PAGES_PER_S", help="If measured.")
@click.option("--free-function", metavar="NAME", help="Where a --free file has several.")
@click.option("--alloc-function", metavar="NAME", help="Where an --alloc file has several.")
@click.option("--unit", type=click.Choice(["ns", "us", "ms"]), help="Of bpftrace histograms.")
@click.option("--platform", metavar="FILE", help="What the machine is: platform.json.")
@click.option("--data", metavar="DIR", help="Data directory (default: the package's).")
@click.option("--replace", is_flag=True, help="Overwrite a machine of that name.")
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
    platform: str | None,
    data: str | None,
    replace: bool,
    json_: bool,
) -> None:
    """Bring in a machine's batch latency table.

    FILE is a batch_latency.csv.  Or give what a tool printed: for each batch
    setting one --free and one --alloc file of ftrace function_graph, bcc
    funclatency or bpftrace hist(), all of the functions that run with the
    zone lock held.
    """
    from pcpmodel.machine.latency_input import add_latency

    raw = {"free": _by_batch("free", free), "alloc": _by_batch("alloc", alloc)}
    if bool(table) == any(raw.values()):
        raise InputError("give either FILE or --free and --alloc files, one of the two")
    if table and (throughput or free_function or alloc_function or unit):
        raise InputError("--throughput, --*-function and --unit go with --free and --alloc only")
    functions = {"free": free_function, "alloc": alloc_function}
    path, rows = add_latency(
        machine,
        table=table,
        raw=raw,
        throughput=_by_batch("throughput", throughput),
        functions={side: name for side, name in functions.items() if name},
        unit=unit,
        platform=platform,
        data=data,
        replace=replace,
    )
    result = {"machine": machine, "path": str(path), "rows": rows}
    _emit(result, json_, f"{machine}: {rows} rows in {path}")


@data_add.command("workload")
@click.argument("recording", metavar="CAPTURE")
@click.option("--name", required=True, metavar="NAME", help="[a-z0-9][a-z0-9-]*")
@click.option("--page-us", type=float, help="CPU time per page at native speed [us].")
@click.option("--data", metavar="DIR", help="Data directory (default: the package's).")
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
    """Bring in the processes of a recording, to be drawn anew on any number of CPUs.

    CAPTURE is what `pcpmodel capture` wrote.  Then: simulate --workload recorded
    --param capture=NAME --processes N.
    """
    from pcpmodel.study.workloads import add_workload

    path, rows = add_workload(recording, name, page_us=page_us, data=data, replace=replace)
    result = {"workload": name, "path": str(path), "processes": rows}
    _emit(result, json_, f"{name}: {rows} processes in {path}")


def _settings(pairs: tuple[str, ...], what: str) -> dict[str, Any]:
    """Read KEY=VALUE pairs; values are JSON where they parse, else text."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InputError(f"{what} {pair!r} is not KEY=VALUE")
        if key in values:
            raise InputError(f"{what} {key!r} is given twice")
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value
    return values


@main.command("simulate")
@click.option("--release", "release_", required=True, help="Kernel state: pcpmodel releases.")
@click.option("--machine", required=True, help="Machine whose hold times are used.")
@click.option("--workload", required=True, help="page_fault1, kbuild, unix_stream, ...")
@click.option("--processes", type=int, help="Processes of the workload.")
@click.option("--param", multiple=True, metavar="KEY=VALUE", help="Argument of the workload.")
@click.option("--seconds", type=float, default=1.0, show_default=True, help="Simulated time [s].")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--cpus", type=int, help="CPUs of the machine.")
@click.option("--nodes", type=int, help="NUMA nodes.")
@click.option("--memory-gib", type=float, help="Memory of the machine [GiB].")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other argument of simulate."
)
@as_json
def simulate_(
    release_: str,
    machine: str,
    workload: str,
    processes: int | None,
    param: tuple[str, ...],
    seconds: float,
    seed: int,
    cpus: int | None,
    nodes: int | None,
    memory_gib: float | None,
    settings: tuple[str, ...],
    json_: bool,
) -> None:
    """Run a workload on many CPUs under one kernel."""
    from tqdm import tqdm

    from pcpmodel.simulation.run import execute, make_spec
    from pcpmodel.workload import make

    params = _settings(param, "--param")
    if processes is not None:
        params["processes"] = processes
    options = _settings(settings, "--set")
    given = {"seconds": seconds, "seed": seed, "cpus": cpus, "nodes": nodes}
    given |= {"memory_gib": memory_gib, "release": release_, "machine": machine}
    for key in options:
        if key in given:
            raise InputError(f"--set {key}: use --{key.replace('_', '-')}")
    spec = make_spec(workload=make(workload, **params), **given, **options)
    total = spec.seconds + spec.warmup_s
    with tqdm(total=round(total, 6), unit="s", disable=None, file=sys.stderr, leave=False) as bar:
        result = execute(spec, progress=lambda done: bar.update(done - bar.n))
    summary = result.summary()
    over = summary["latency_over_us"]
    text = "\n".join(
        [
            f"{workload} under {spec.release} on {spec.machine.name}: "
            f"{summary['score']} {summary['score_unit']} in {seconds:g} s",
            f"zone-lock contention  {100 * summary['lock_contention']:.2f} % of busy cycles",
            f"refills               {summary['refills']} ({summary['alloc_zone_pages']} pages)",
            f"drains                {summary['drains']} ({summary['free_high']} for high orders)",
            "wait per hold         "
            + ", ".join(f"{k} {v / 1e3:.2f} us" for k, v in summary["wait_ns"].items()),
            "refill over           "
            + ", ".join(f"{us} us: {100 * p:.4f} %" for us, p in over["refill"].items()),
            f"real-time factor      {summary['real_time_factor']:.1f}",
        ]
    )
    _emit(summary, json_, text)


@main.command("compare")
@click.argument("source", required=False)
@click.option("--seed", type=int, default=1, show_default=True)
@as_json
def compare_(source: str | None, seed: int, json_: bool) -> None:
    """Set published tables against the simulator.

    SOURCE is one source of data/published or one of its tables; default: all that are modelled.
    """
    from pcpmodel.study.compare import as_text, compare

    answer = compare(source, seed=seed, progress=lambda name: click.echo(name, err=True))
    _emit(answer, json_, as_text(answer))


@main.command("sweep")
@click.argument("spec_file", metavar="SPEC.json")
@click.option("--out", required=True, help="NetCDF file of the result.")
@click.option("--scheduler", help="Address of a Dask scheduler; default: threads of this host.")
@click.option("--workers", type=int, help="Runs at once; default: CPUs.")
@as_json
def sweep_(
    spec_file: str, out: str, scheduler: str | None, workers: int | None, json_: bool
) -> None:
    """Run a grid of simulations.

    Started again after a kill it goes on where it was.
    """
    from pcpmodel.study.sweep import cluster, read_grid, run_grid

    grid = read_grid(spec_file)
    with cluster(scheduler) as (executor, threads):
        workers = threads if workers is None else workers
        data = run_grid(grid, executor=executor, workers=workers, out=out)
    runs = len(grid.specs)
    _emit({"runs": runs, "out": out}, json_, f"{runs} runs in {out}\n{data}")


@main.command("replay")
@click.argument("capture", metavar="CAPTURE", type=click.Path(path_type=str))
@click.option("--release", metavar="R", help="Rules to apply; default: those of the capture.")
@click.option(
    "--what-if", "other_rules", is_flag=True, help="Do the same work under the releases RULES."
)
@click.argument("rules", metavar="[RULES]...", nargs=-1)
@as_json
def replay_(
    capture: str, release: str | None, other_rules: bool, rules: tuple[str, ...], json_: bool
) -> None:
    """Does the model do what the recorded kernel did?

    Exit code 1 if a difference stays unexplained, or the trace lost events.

    With --what-if R [R ...]: how often and how long the zone lock would have been held under
    other rules.
    """
    if other_rules:
        from pcpmodel.trace.what_if import what_if

        if not rules or release is not None:
            raise InputError("--what-if needs releases, and takes the place of --release")
        answer = what_if(capture, rules)
        _emit(answer.as_dict(), json_, repr(answer))
        return
    if rules:
        raise InputError(f"{rules[0]!r} is one argument too many; did you mean --what-if?")
    from pcpmodel.trace.replay import replay

    found = replay(capture, release=release, progress=sys.stderr.isatty())
    _emit(found.as_dict(), json_, repr(found))
    if not found.exact:
        raise CheckError(
            f"{found.nr_unexplained} unexplained differences, {found.lost} lost events"
        )


@main.command("capture", context_settings={"ignore_unknown_options": True})
@click.option("--out", required=True, metavar="DIR", help="Capture to make; must not exist.")
@click.option("--seconds", required=True, type=float, help="Time to record; with CMD at most.")
@click.option(
    "--buffer-kb", type=int, default=16384, show_default=True, help="Ring buffer of each CPU."
)
@as_json
@click.argument("command", metavar="[-- CMD ...]", nargs=-1, type=click.UNPROCESSED)
def capture_(
    out: str, seconds: float, buffer_kb: int, command: tuple[str, ...], json_: bool
) -> None:
    """Record this machine's page allocator while CMD runs.

    Needs root and tracefs.

    Uses a tracing instance of its own: no setting of the machine changes.
    """
    from pcpmodel.trace.capture import record

    done = record(out, seconds, command, buffer_kb=buffer_kb, progress=sys.stderr.isatty())
    text = f"{done.path}: {done.events} events, {done.lost} lost"
    if done.lost:
        text += "; a larger --buffer-kb loses fewer"
    _emit(done.as_dict(), json_, text)


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
@as_json
def cover_letter_(spec_file: str, form: str, json_: bool) -> None:
    """Print a cover letter's table: base, patch 1 .. n.

    SPEC.json: {"releases": ["v6.6", "v6.6+p1"], "machine": "sapphire-rapids", "workloads":
    [{"name": "page_fault1", "processes": 8}, {"published": "pcp-auto-tuning-v2", "table":
    "kbuild"}]}; also "labels", "seeds", "figures", "options" of simulate. A published table
    shows each measured row above the simulated one.
    """
    from pcpmodel.study.cover_letter import cover_letter, read_spec

    letter = cover_letter(**read_spec(spec_file))
    _emit(letter.as_dict(), json_, getattr(letter, form)())


@main.command("advise")
@click.option(
    "--machine", metavar="NAME", help="Measured machine whose lock holds are like this one's."
)
@click.option(
    "--zoneinfo",
    metavar="FILE",
    help="Copy of the machine's /proc/zoneinfo; without --machine this host's.",
)
@click.option("--lscpu", metavar="FILE", help="What lscpu printed there.")
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
@click.option("--release", default="v6.18", show_default=True, help="Kernel of the runs.")
@as_json
def advise_(json_: bool, **options: Any) -> None:
    """Batch scale and high fraction: raise, leave or lower?

    Changes nothing itself.
    """
    from pcpmodel.study.advise import advise

    answer = advise(options.pop("machine"), **options)
    _emit(answer.as_dict(), json_, str(answer))
