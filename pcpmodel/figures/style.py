"""The house style of the figures, what is said of them, and the one way they get into files.

Colours are Okabe and Ito's, told apart with any colour vision; line style and
marker repeat what the colour says, so that print in grey loses nothing.  Lines
without markers are the model, markers without lines are measurements.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter
from matplotlib.transforms import Bbox

from pcpmodel import __version__
from pcpmodel.errors import InputError, unknown_name
from pcpmodel.figures.print import display, latex
from pcpmodel.files import scratch, writing
from pcpmodel.words import number

__all__ = [
    "COLUMN",
    "FORMATS",
    "PAGE",
    "SERIES",
    "SIZES",
    "STYLE",
    "Output",
    "alt_text",
    "caption",
    "figure_style",
    "output",
    "panels",
    "save",
]

# The backend is chosen at the first figure and then sets whether figures show
# themselves; chosen inside a style, that would be undone with the style.
plt.switch_backend(mpl.get_backend())

COLUMN, PAGE = 3.4, 7.0  # width of one printed column, and of a page of two [inches]
FORMATS = ("svg", "pdf", "png")
#: Name -> width and height [inches]; no height: the figure's own.  A slide of 16:9 is shown
#: larger than it is here: on one 13.3 inches wide, 8 points become 15.
SIZES: dict[str, tuple[float, float | None]] = {
    "one-column": (COLUMN, None),
    "two-column": (PAGE, None),
    "slide": (PAGE, PAGE * 9 / 16),
}
_PANEL = 1.6  # the narrowest that a panel may be [inches]
_LETTER, _HANDLE = 0.052, 0.5  # of a legend at 7 points: a letter and what is before it [inches]

STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "axes.titley": 1.0,  # nothing lies above: matplotlib need not look, in every drawing
    "errorbar.capsize": 2,
    "figure.dpi": 120,
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same everywhere
    "font.size": 8,
    "grid.color": "0.88",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # whole glyphs, embedded
    "savefig.dpi": 300,
    "svg.fonttype": "path",  # outlines: nothing to be missing elsewhere
    "svg.hashsalt": "pcpmodel",  # ids that do not change from run to run
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
}

#: (colour, line style, marker) of the first, second ... of several things.
SERIES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#000000", (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("#56B4E9", (0, (8, 2)), "P"),
    ("#E69F00", (0, (1, 3)), "X"),
)


@dataclass(frozen=True)
class Output:
    """How figures are drawn and written; see `output`."""

    size: str | tuple[float, float] | None = None
    formats: tuple[str, ...] = FORMATS
    only: frozenset[str] | None = None
    note: str = ""
    font: str | None = None
    made_from: Mapping[str, Any] | None = None

    @property
    def style(self) -> dict[str, Any]:
        """The house style, in the font that was asked for."""
        return STYLE if self.font is None else STYLE | {"font.family": [self.font]}

    def inches(self, width: float, height: float) -> tuple[float, float]:
        """Size of a figure that is ``width`` by ``height`` where none is asked for."""
        if self.size is None:
            return width, height
        wide, high = SIZES[self.size] if isinstance(self.size, str) else self.size
        return wide, high or height


_OUTPUT = ContextVar("output", default=Output())  # noqa: B039 (it is frozen)
_CAPTIONS: WeakKeyDictionary[Figure, str] = WeakKeyDictionary()


@contextmanager
def output(
    size: str | None = None,
    formats: Sequence[str] = FORMATS,
    only: Iterable[str] | None = None,
    note: str = "",
    font: str | None = None,
    made_from: Mapping[str, Any] | None = None,
) -> Iterator[None]:
    """Draw and save figures in another size or other formats while the context lasts.

    Parameters
    ----------
    size : str, optional
        One of `SIZES`, or width and height, ``W,H``, each from 1 to 40 [inches]; by default every
        figure has its own.
    formats : sequence of str
        Of `FORMATS`.
    only : iterable of str, optional
        Names that `save` writes; by default any.
    note : str
        A sentence that `save` adds to every caption.
    font : str, optional
        Family that is installed; by default DejaVu Sans, which comes with matplotlib.
    made_from : mapping, optional
        ``run`` (notebook and data set), ``notebook``, ``parameters``, ``commit`` and ``again`` (the
        command that makes it, FIGURE in place of its name), for `save`; by default what
        ``PCPMODEL_MADE_FROM`` holds as JSON.

    Raises
    ------
    InputError
        For an unknown size, format or font, or no format.
    """
    chosen = None if size is None else _inches_of(size)
    if font is not None and font not in font_manager.get_font_names():
        raise unknown_name("font", font, font_manager.get_font_names())
    for kind in formats:
        if kind not in FORMATS:
            raise unknown_name("format", kind, FORMATS)
    only = None if only is None else frozenset(only)
    kinds = tuple(kind for kind in FORMATS if kind in formats)
    token = _OUTPUT.set(Output(chosen, kinds, only, note, font, made_from))
    try:
        yield
    finally:
        _OUTPUT.reset(token)


def _inches_of(size: str) -> str | tuple[float, float]:
    """A size by its name, or as ``W,H`` [inches]."""
    if size in SIZES or "," not in size:
        if size not in SIZES:
            raise unknown_name("size", size, SIZES)
        return size
    try:
        wide, high = (float(number) for number in size.split(","))
    except ValueError:
        wide = high = np.nan
    if not (1 <= wide <= 40 and 1 <= high <= 40):
        raise InputError(f"size {size!r}: allowed: W,H [inches], each from 1 to 40, as 3.5,2.4")
    return wide, high


def figure_style(
    *,
    size: tuple[float, float],
    caption: Callable[..., str],
    narrow: float | None = None,
    panel: float = _PANEL,
) -> Any:
    """Draw in the house style, on a figure of its own where no axes are given.

    Parameters
    ----------
    size : tuple of float
        Width and height of that figure [inches].
    caption : callable
        Takes what the figure takes and says in a sentence or two what it shows, with the
        numbers.
    narrow : float, optional
        Height in one column [inches], where it needs another.
    panel : float
        The narrowest that it may be as one of several panels [inches].
    """

    def decorate(draw: Callable[..., Axes]) -> Callable[..., Axes]:
        names = list(inspect.signature(draw).parameters)

        @functools.wraps(draw)
        def styled(*data: Any, ax: Axes | None = None, **options: Any) -> Axes:
            given = {**dict(zip(names, data, strict=False)), **options}
            frames = {name: x for name, x in given.items() if isinstance(x, pd.DataFrame)}
            alone = ax is None
            with mpl.rc_context(current_style()), whole(frames) as drawn:
                if ax is None:
                    wide, high = inches(*size)
                    if narrow and wide < size[0]:
                        high = narrow
                    figure, ax = plt.subplots(figsize=(wide, high), layout="constrained")
                    drawn.append(figure)
                draw(*data, ax=ax, **options)
                thousands(ax)
                if alone:
                    first = next(iter(frames.values()))
                    machines = set(first["machine"]) if "machine" in first else set()
                    if len(machines) == 1:
                        ax.set_title(*machines, loc="left")
                    _legend(ax.figure, [ax])
                    ax.figure.draw_without_rendering()  # ticks take their style now
                    describe(ax.figure, caption(*data, **options))
            return ax

        styled.caption, styled.panel = caption, panel
        return styled

    return decorate


@contextmanager
def whole(frames: Mapping[str, pd.DataFrame]) -> Iterator[list[Figure]]:
    """Leave no part of a figure behind, and name the column that a frame has not got.

    Parameters
    ----------
    frames : mapping of str to pandas.DataFrame
        What is drawn, by the names of the arguments.

    Yields
    ------
    list of matplotlib.figure.Figure
        For the figures that are closed where drawing fails.

    Raises
    ------
    InputError
        For a column that is looked up and that none of the frames has, or not each.
    """
    drawn: list[Figure] = []
    try:
        yield drawn
    except BaseException as error:
        for figure in drawn:
            plt.close(figure)
        if isinstance(error, KeyError):
            _name_missing(error, frames)
        raise


def _name_missing(error: KeyError, frames: Mapping[str, pd.DataFrame]) -> None:
    """Say which frames lack a column, if that is what pandas means."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    if where is None or not where.tb_frame.f_globals["__name__"].startswith("pandas."):
        return  # what a figure looks up in its own tables is a value, not a column
    said = str(error)
    for column in re.findall(r"'([^']+)'", said[said.find("[") + 1 :]):
        lacking = [
            f"{name} (given: {listed(frame.columns) or 'none'})"
            for name, frame in frames.items()
            if column not in frame
        ]
        if lacking:
            raise InputError(
                f"no column {column!r} in {' or '.join(lacking)}; the figure's docstring says "
                "which it takes"
            ) from None


def current_style() -> dict[str, Any]:
    """The house style, in the font asked for with `output`."""
    return _OUTPUT.get().style


def inches(width: float, height: float) -> tuple[float, float]:
    """Size of a figure [inches]: as asked for with `output`, else as given."""
    return _OUTPUT.get().inches(width, height)


def describe(figure: Figure, text: str) -> None:
    """Give a figure its caption."""
    _CAPTIONS[figure] = text


def caption(figure: Figure | Axes) -> str:
    """What a figure shows, in a sentence or two with the numbers of its data.

    Parameters
    ----------
    figure : Figure or Axes
        Drawn by a function of this package.

    Returns
    -------
    str
    """
    return _CAPTIONS.get(_figure(figure), "")


def alt_text(figure: Figure | Axes) -> str:
    """What a figure looks like, for those who do not see it: axes, ranges, series.

    Parameters
    ----------
    figure : Figure or Axes

    Returns
    -------
    str
    """
    drawn = _figure(figure)
    bars = [ax for ax in drawn.axes if ax.get_label() == "<colorbar>"]
    axes = [ax for ax in drawn.axes if ax.axison and ax not in bars]
    if not axes:
        return " ".join(text.get_text() for ax in drawn.axes for text in ax.texts)
    labels = _entries(axes)[1]
    first = axes[0]
    titles = [" ".join(t.split()) for ax in axes if (t := ax.get_title(loc="left"))]
    xlabel, ylabel = (
        listed(dict.fromkeys(" ".join(t.split()) for t in texts if t))
        for texts in zip(*((ax.get_xlabel(), ax.get_ylabel()) for ax in axes), strict=True)
    )
    words = [
        f"{len(axes)} panels ({'; '.join(titles)})"
        if len(axes) > 1
        else "Chart" + "".join(f", {t}" for t in titles)
    ]
    for name, label, axis in (("Horizontal", xlabel, "x"), ("Vertical", ylabel, "y")):
        said = [label.strip() or _ticks(first, axis)]
        if getattr(first, f"get_{axis}scale")() == "log":
            said.append("logarithmic")
        words.append(f"{name}: {', '.join(filter(None, said))}")
    words += [f"Colour: {bar.get_ylabel()}" for bar in bars]
    if labels:
        words.append(f"Shown: {'; '.join(labels)}")
    return ". ".join(words) + "."


def _ticks(ax: Axes, axis: str) -> str:
    """What an axis without a label has on it."""
    return ", ".join(t.get_text() for t in getattr(ax, f"get_{axis}ticklabels")())


def _figure(figure: Figure | Axes) -> Figure:
    return figure.figure if isinstance(figure, Axes) else figure


def _legend(figure: Figure, axes: Iterable[Axes]) -> None:
    """One legend below everything, as many columns as fit."""
    handles, labels = _entries(axes)
    if not handles:
        return
    width = max(map(len, labels)) * _LETTER + _HANDLE
    columns = max(1, min(4, int(figure.get_figwidth() / width), len(labels)))
    rows = -(-len(labels) // columns)
    columns = -(-len(labels) // rows)  # no more than these rows need
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def _legend_beside(ax: Axes, width: float, axes: Iterable[Axes]) -> None:
    """A legend in a spare panel that is so wide, its words wrapped."""
    handles, labels = _entries(axes)
    letters = int((width - 1.6 * _HANDLE) / _LETTER)
    labels = [textwrap.fill(label, letters) for label in labels]
    ax.legend(handles, labels, loc="center left", borderpad=0).set_in_layout(False)


def listed(names: Iterable[object]) -> str:
    """``a, b and c``; of more than eight the rest is counted."""
    words = [str(name) for name in names]
    if len(words) > 8:
        words = [*words[:7], f"{len(words) - 7} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def capital(label: str) -> str:
    """``Zone instances`` for ``zone instances``; ``p99`` stays."""
    return label[:1].upper() + label[1:] if label[:2].isalpha() else label


def span(values: Iterable[float], unit: str = "") -> str:
    """``1.2 to 3.4 us``; one number where all are the same."""
    array = np.asarray(list(values), float)
    array = array[np.isfinite(array)]
    if not len(array):
        return "not known"
    ends = (number(x) for x in (array.min(), array.max()))
    return f"{' to '.join(dict.fromkeys(ends))} {unit}".strip()


def _entries(axes: Iterable[Axes]) -> tuple[list[Any], list[str]]:
    """Legend entries of several axes, each label once."""
    entries: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    return list(entries.values()), list(entries)


_NOTHING = "Nothing is drawn: what was asked for has no such rows."


def panels(
    draw: Callable[..., Axes],
    *frames: pd.DataFrame,
    by: str | Sequence[str],
    columns: int = 3,
    height: float = 2.0,
    share: str = "xy",
    title: str = "{}",
    **options: Any,
) -> Figure:
    """Draw one panel per value of a column, with one legend.

    Parameters
    ----------
    draw : callable
        A function of this package.
    *frames : pandas.DataFrame
        Its data; each has the column ``by``.
    by : str or sequence of str
        The column, or columns, that tell the panels apart; they keep the order of the first frame.
    columns : int
        Panels side by side.
    height : float
        Of a row of panels [inches].
    share : str
        Axes that all panels share: any of ``x`` and ``y``.
    title : str
        Format of the panels' titles, which takes their values.
    **options : object
        Passed to ``draw``.

    Returns
    -------
    matplotlib.figure.Figure
        One that says so where the first frame has no row.

    Raises
    ------
    InputError
        For a frame without a column that it is to be parted by, or that ``draw`` takes.
    """
    by = [by] if isinstance(by, str) else list(by)
    for i, frame in enumerate(frames, 1):
        for name in by:
            if name not in frame:
                raise InputError(
                    f"by: frame {i} has no column {name!r}; given: {listed(frame.columns)}"
                )
    values = list(dict.fromkeys(frames[0][by].itertuples(index=False, name=None)))
    wide, high = inches(PAGE, 0)
    if not values:
        with mpl.rc_context(current_style()):
            figure, ax = plt.subplots(figsize=(wide, high or 0.6), layout="constrained")
            ax.set_axis_off()
            ax.text(0, 0.5, _NOTHING, va="center")
        describe(figure, _NOTHING)
        return figure
    columns = min(columns, len(values), int(wide / draw.panel)) or 1
    rows = max(-(-len(values) // columns), 1)
    with mpl.rc_context(current_style()):
        figure, grid = plt.subplots(
            rows,
            columns,
            figsize=(wide, high or height * rows + 0.4),
            sharex="x" in share,
            sharey="y" in share,
            squeeze=False,
            layout="constrained",
        )
        # Spare cells end the first row, so that every column has its axis at the bottom.
        spare = list(grid[0, columns - (rows * columns - len(values)) :])
        used = [ax for ax in grid.flat if ax not in spare]
        letters = int(15 * (wide / columns - 0.3))
        for ax, value in zip(used, values, strict=True):
            of = pd.Series(value, by)
            draw(*(frame[(frame[by] == of).all(axis=1)] for frame in frames), ax=ax, **options)
            said = (("no", "yes")[v] if isinstance(v, bool) else v for v in value)
            words = textwrap.fill(display(title.format(*said)), letters, break_on_hyphens=False)
            ax.set_title(words, loc="left")
            if "x" in share and ax not in grid[-1]:
                ax.set_xlabel("")
                ax.tick_params(labelbottom=False)
            if ax not in grid[:, 0]:
                ax.tick_params(labelleft="y" not in share)
        if len({ax.get_ylabel() for ax in used}) == 1:
            for ax in used:
                if ax not in grid[:, 0]:
                    ax.set_ylabel("")
        for ax in spare:
            ax.set_axis_off()
        for ax in used:
            ax.set_xlabel(textwrap.fill(ax.get_xlabel(), letters))
        if spare and _entries(used)[0]:
            _legend_beside(spare[0], wide / columns, used)
        else:
            _legend(figure, used)
        figure.draw_without_rendering()  # ticks take their style now
        shown = f"One panel per {display(listed(by))}" if len(values) > 1 else ""
        if shown and len({ax.get_ylim() for ax in used}) > 1:
            shown += "; their vertical axes differ"
        shown += "." if shown else ""
        describe(figure, f"{draw.caption(*frames, **options)} {shown}".strip())
    return figure


def save(
    figure: Figure | Axes, name: str, directory: str | os.PathLike[str], *, digest: str
) -> None:
    """Write a figure as SVG, PDF and PNG, the same bytes from run to run.

    The files carry the package's version, the alt text, the digest of the data and, where a
    report or ``pcpmodel figures`` runs the notebook, its name, parameters and commit;
    ``NAME.json`` beside them has these, the caption and the command that makes the figure again,
    ``NAME.tex`` (with a PDF) a LaTeX float with caption and label, which then both begin with
    notebook and data set.  Each is complete or absent: it is written beside and then renamed.

    Parameters
    ----------
    figure : Figure or Axes
        What to save.
    name : str
        File name without suffix: lower-case letters, digits and hyphens.
    directory : path
        Where to; made if missing.  Empty: nothing is written, the figure is only shown.
    digest : str
        Of the data shown.

    Raises
    ------
    InputError
        If the name is not of that form, or the files cannot be written.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise InputError(f"figure name {name!r}: lower-case letters, digits and hyphens only.")
    wanted = _OUTPUT.get()
    if not os.fspath(directory) or (wanted.only is not None and name not in wanted.only):
        return
    drawn = _figure(figure)
    target = Path(directory)
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    creator, alt = f"pcpmodel {__version__}", alt_text(drawn)
    source = _source(name)
    data = f"data sha256 {digest}" + "".join(
        f"; {key} {json.dumps(said) if isinstance(said, dict) else said}"
        for key, said in source.items()
        if said and key != "again"
    )
    metadata: dict[str, dict[str, Any]] = {
        "svg": {"Creator": creator, "Description": alt, "Keywords": data, "Date": None},
        "pdf": {"Creator": creator, "Subject": alt, "Keywords": data, "CreationDate": None},
        "png": {"Software": creator, "Description": alt, "Comment": data},
    }
    about = {
        "name": name,
        "caption": f"{caption(drawn)} {wanted.note}".strip(),
        "alt": alt,
        "digest": digest,
        "pcpmodel": __version__,
        "inches": [round(float(x), 3) for x in drawn.get_size_inches()],
        **source,
    }
    kinds = [*wanted.formats, "json"]
    with (
        mpl.rc_context(wanted.style),
        writing(target / name),
        scratch(f".{name}.pcpmodel-", target) as beside,
    ):
        with _laid_out(drawn):
            for kind in wanted.formats:
                words = {"Title": name, **metadata[kind]}
                with _fonts_for_print() if kind == "pdf" else nullcontext():
                    drawn.savefig(beside / kind, format=kind, metadata=words)
        text = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
        (beside / "json").write_text(text, encoding="utf-8")
        if "pdf" in kinds:
            text = latex(name, about["caption"], source.get("again", ""), source.get("run", ""))
            (beside / "tex").write_text(text, encoding="utf-8")
            kinds.append("tex")
        for kind in kinds:
            os.replace(beside / kind, target / f"{name}.{kind}")


@contextmanager
def _fonts_for_print() -> Iterator[None]:
    """Leave out of an embedded font the tables that place glyphs, which have their places.

    To read them and cut them down takes most of the time in which a font is embedded.
    """
    from fontTools import subset  # matplotlib's own; only a PDF needs it

    load = subset.load_font

    def without(*args: Any, **options: Any) -> Any:
        font = load(*args, **options)
        for table in ("GDEF", "GPOS", "GSUB"):
            if table in font:
                del font[table]
        return font

    subset.load_font = without
    try:
        yield
    finally:
        subset.load_font = load


@contextmanager
def _laid_out(figure: Figure) -> Iterator[None]:
    """Place everything once for all formats: it takes as long as writing one of them.

    Under no engine at all, not even one that does nothing, matplotlib draws each format once.
    """
    engine, stale = figure.get_layout_engine(), figure.stale
    if engine is None:
        yield
        return
    if stale:  # or it was done when the figure was drawn
        engine.execute(figure)
    figure.set_layout_engine(None)
    try:
        yield
    finally:
        figure.set_layout_engine(engine)
        figure.stale = stale  # as large and as fine as before


def _source(name: str) -> dict[str, Any]:
    """Which notebook draws the figure, with what parameters, at which commit, and how again."""
    given = _OUTPUT.get().made_from
    if given is None:
        given = json.loads(os.environ.get("PCPMODEL_MADE_FROM", "{}"))
    keys = ("run", "notebook", "parameters", "commit")
    source = {key: given[key] for key in keys if given.get(key)}
    return source | (
        {"again": given["again"].replace("FIGURE", name)} if given.get("again") else {}
    )


_APART = 1.6  # ratio of neighbouring batches that both have a tick


def batch_axis(ax: Axes, batches: Iterable[float]) -> None:
    """A logarithmic axis of pages whose ticks are the batches themselves.

    Panels that share it keep the ticks of those before.
    """
    others = ax.get_shared_x_axes().get_siblings(ax)
    set_before = len(others) > 1 and ax.get_xscale() == "log"
    ticks = list(ax.get_xticks()) if set_before else []
    for batch in np.unique(np.asarray(list(batches))):
        if all(not 1 / _APART < batch / tick < _APART for tick in ticks):
            ticks.append(batch)
    ticks.sort()
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{tick:,g}" if tick < 1e6 else f"{tick:g}" for tick in ticks])
    ax.set_xticks([], minor=True)


def thousands(ax: Axes) -> None:
    """Numbers on linear axes as in the text: ``10,000``."""
    for axis, scale in ((ax.xaxis, ax.get_xscale()), (ax.yaxis, ax.get_yscale())):
        plain = scale == "linear" and type(axis.get_major_formatter()) is ScalarFormatter
        if plain and max(map(abs, axis.get_view_interval())) >= 1000:
            axis.set_major_formatter("{x:,.10g}")


def widen_x(ax: Axes, low: float, high: float) -> None:
    """Set the horizontal range, or widen the one that another panel has set."""
    if not ax.get_autoscalex_on():
        low, high = min(low, ax.get_xlim()[0]), max(high, ax.get_xlim()[1])
    ax.set_xlim(low, high)


def widen_y(ax: Axes, low: float, high: float) -> None:
    """Set the vertical range, or widen the one that another panel has set."""
    if not ax.get_autoscaley_on():
        low, high = min(low, ax.get_ylim()[0]), max(high, ax.get_ylim()[1])
    ax.set_ylim(low, high)


def beside(ax: Axes, points: npt.ArrayLike, names: Sequence[str], others: npt.ArrayLike) -> None:
    """Name points, each name where it covers neither a point nor another name.

    Parameters
    ----------
    ax : Axes
        With its final limits and scales.
    points : (n, 2) array_like
        What is named, in data coordinates; in order.
    names : sequence of str
    others : (m, 2) array_like
        Points to keep clear of.
    """
    figure = ax.figure
    figure.draw_without_rendering()  # places are known now
    unit = figure.dpi / 72
    size = 6.0  # of the letters [points]
    frame = ax.get_window_extent()
    taken = [Bbox.from_bounds(x - 3 * unit, y - 3 * unit, 6 * unit, 6 * unit)
             for x, y in ax.transData.transform(others)]  # fmt: skip
    for (x, y), name in zip(ax.transData.transform(points), names, strict=True):
        wide, high = (0.6 * len(name) * size * unit, 1.15 * size * unit)
        best, least = None, np.inf
        for far in (1.0, 2.0, 3.2, 4.6, 6.2):
            for right, up in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)):
                gap = far * 5 * unit
                left = x + right * gap - (wide if right < 0 else wide / 2 if not right else 0)
                low = y + up * gap - high / 2
                box = Bbox.from_bounds(left, low, wide, high)
                inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 \
                    and box.y1 <= frame.y1  # fmt: skip
                covered = sum(box.overlaps(other) for other in taken) + 100 * (not inside)
                if covered < least:
                    best, least = (box, far), covered
            if not least:
                break
        assert best is not None
        box, far = best
        taken.append(box)
        at = ((box.x0 + box.x1) / 2 - x) / unit, ((box.y0 + box.y1) / 2 - y) / unit
        ax.annotate(
            name,
            ax.transData.inverted().transform((x, y)),
            at,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=size,
            arrowprops={"arrowstyle": "-", "color": "0.5", "lw": 0.4, "shrinkA": 0, "shrinkB": 2}
            if far > 1
            else None,
        )
