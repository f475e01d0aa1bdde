"""The tour of ``00-start-here``: a few settings, one picture, and controls to turn them."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from hashlib import sha256
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pcpmodel import figures
from pcpmodel.arguments import checked
from pcpmodel.errors import InputError, unknown_name
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel.releases import Release, releases
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import simulate
from pcpmodel.study.contention.runs import half_width
from pcpmodel.study.lists.trajectory import Trajectory, trajectory
from pcpmodel.workload import Workload, make, unix_stream

if TYPE_CHECKING:
    import ipywidgets
    from matplotlib.figure import Figure

__all__ = ["BATCHES", "CPUS", "HIGHS", "WORKLOADS", "Settings", "Tour"]

BATCHES = (15, 31, 63, 126, 252)  # pages
HIGHS = (252, 500, 1000, 2000, 4000, 8000)  # pages
CPUS = 224  # of the simulated machine: two nodes, 512 GiB
_CURVE = (2, 28, 56, 112, 168, CPUS)
_DPI = 120


@dataclass(frozen=True)
class _Kind:
    """A workload, as one list sees it and as many CPUs run it."""

    title: str
    work: Sequence[tuple[str | int, ...]]
    make: Callable[[int], Workload]
    seconds: float  # simulated, and as much before counting: enough for the picture [s]


#: Workloads by name; holds as measured, on warm pages.
WORKLOADS = {
    "large-bursts": _Kind(
        "touch 4,000 pages, give all back, idle",
        (("alloc", 4000), ("free", 4000), ("decay", 15)),
        lambda cpus: make("page_fault1", processes=cpus, pages=4000),
        0.05,
    ),
    "small-bursts": _Kind(
        "ten times touch 300 pages and give them back, idle",
        (*(("alloc", 300), ("free", 300)) * 10, ("decay", 15)),
        lambda cpus: make("page_fault1", processes=cpus, pages=300),
        0.02,
    ),
    "stream": _Kind(
        "receive 300 writes of a stream: free what another CPU allocated",
        tuple(("free", 1, order) for order in (3, 2, 1, 0)) * 300,
        lambda cpus: unix_stream(cpus // 2),
        0.005,
    ),
}


@checked
@dataclass(frozen=True)
class Settings:
    """What the controls set; `Tour` says what each of them is."""

    release: str | Release = "v6.7"
    batch: int = 63
    high_min: int = 500
    batch_scale_max: int = 5
    cpus: int = CPUS
    workload: str = "large-bursts"

    def __post_init__(self) -> None:
        find_release(self.release).with_batch_scale_max(self.batch_scale_max)
        if self.workload not in WORKLOADS:
            raise unknown_name("workload", self.workload, WORKLOADS)
        if self.cpus not in range(2, CPUS + 1, 2):
            raise InputError(f"cpus={self.cpus!r} is not an even number in 2..{CPUS}")


@lru_cache(maxsize=512)
def _tasks(workload: str, cpus: int) -> Workload:
    return WORKLOADS[workload].make(cpus)


@lru_cache(maxsize=512)
def _run(settings: Settings, machine: str, seed: int = 1) -> Result:
    kind = WORKLOADS[settings.workload]
    return simulate(
        release=settings.release,
        machine=machine,
        workload=_tasks(settings.workload, settings.cpus),
        seconds=kind.seconds,
        warmup_s=kind.seconds,
        cpus=CPUS,
        nodes=2,
        memory_gib=512.0,
        batch=settings.batch,
        high_min_pages=settings.high_min,
        batch_scale_max=settings.batch_scale_max,
        samples=50,
        warm=True,
        seed=seed,
    )


def _waiting(settings: Settings, machine: str) -> pd.DataFrame:
    """Share of waiting by the number of CPUs, the chosen one included."""
    cpus = sorted({*_CURVE, settings.cpus})
    runs = [_run(replace(settings, cpus=n), machine) for n in cpus]
    return pd.DataFrame(
        {"cpus": cpus, "waiting_percent": [100 * run.lock_contention for run in runs]}
    )


def _price(settings: Settings, machine: str, seed: int = 1) -> dict[str, float]:
    run = _run(settings, machine, seed)
    latency = run.zone_histogram("latency")
    return {
        "cpus": settings.cpus,
        "waiting_percent": 100 * run.lock_contention,
        "p99_us": latency.quantile_ns(0.99) / 1000,
        "list_mib": run.spec.host.mib(run.pages_in_pcp.max()),
    }


@lru_cache(maxsize=64)
def _life(settings: Settings, machine: str) -> Trajectory:
    size = _run(settings, machine).spec
    sizes = size.host.sizes(size.release, batch=settings.batch, high_min_pages=settings.high_min)[0]
    return trajectory(
        size.release,
        WORKLOADS[settings.workload].work,
        batch=settings.batch,
        high_min=settings.high_min,
        high_max=sizes.high_max,
    )


@checked
class Tour:
    """A page list and what its settings cost, as a picture whose settings can be turned.

    In a notebook with a live kernel it shows controls; on paper the picture of the settings
    that it was made with.  The counts of the upper half are exact; the prices of the lower
    half are simulated, on a machine of 224 CPUs, two nodes and 512 GiB.

    Parameters
    ----------
    before : str
        Kernel state to compare with.  It keeps the batch and the high given here, whatever
        the controls say; CPUs and workload are the same on both sides.
    machine : str or Machine
        Whose hold times are used, see `pcpmodel.machine`.
    release : str
        Kernel state.
    batch : int
        Pages per unscaled refill or drain [pages]; at most ``high_min``.
    high_min : int
        Lower bound of ``high``; the fixed ``high`` of kernels that do not tune it [pages].
    batch_scale_max : int
        CONFIG_PCP_BATCH_SCALE_MAX, 0..6; without effect on kernels that know no such bound.
    cpus : int
        CPUs at work at once, even, 2..224.
    workload : str
        ``large-bursts``, ``small-bursts`` or ``stream``.

    Raises
    ------
    InputError
        For an unknown name or an impossible number.

    Examples
    --------
    >>> pm.Tour(release="v7.2", cpus=56).prices()["setting"].tolist()
    ['before: v6.6', 'now: v7.2']
    """

    def __init__(
        self,
        *,
        before: str | Release = "v6.6",
        machine: str | Machine = "sapphire-rapids",
        **settings: Any,
    ) -> None:
        known = [field.name for field in fields(Settings)]
        for name in settings:
            if name not in known:
                raise unknown_name("setting", name, known)
        self.settings = Settings(**settings)
        self.before = replace(self.settings, release=before)
        self.machine = machine
        self.lives()  # refuses what cannot be run

    def _both(self, changed: dict[str, Any]) -> dict[str, Settings]:
        now = replace(self.settings, **changed)
        then = replace(self.before, cpus=now.cpus, workload=now.workload)
        return {f"before: {then.release}": then, f"now: {now.release}": now}

    def prices(self, **changed: Any) -> pd.DataFrame:
        """Three prices before and now.

        Parameters
        ----------
        **changed
            Settings to change.

        Returns
        -------
        pandas.DataFrame
            ``setting``, ``cpus``, ``waiting_percent``: share of CPU time that waits for the
            zone lock, ``p99_us``: 99th percentile of a refill or drain, its wait included
            (NaN: there was none), ``list_mib``: most pages on all lists at once.
        """
        both = self._both(changed)
        return pd.DataFrame(
            [{"setting": name} | _price(at, self.machine) for name, at in both.items()]
        )

    def lives(self) -> tuple[Trajectory, Trajectory]:
        """Follow one list through the first settings' work, before and now."""
        return _life(self.before, self.machine), _life(self.settings, self.machine)

    def figure(self, **changed: Any) -> Figure:
        """Draw the picture.

        Parameters
        ----------
        **changed
            Settings to change.

        Returns
        -------
        matplotlib.figure.Figure
        """
        both = self._both(changed)
        now = [*both.values()][-1]
        life = _life(now, self.machine)
        return figures.tour_picture(
            life.steps,
            life.events,
            {name: _waiting(at, self.machine) for name, at in both.items()},
            self.prices(**changed),
            label=f"The list of one CPU, {now.release}: {WORKLOADS[now.workload].title}",
        )

    def summary(self, **changed: Any) -> str:
        """Say in words and numbers what the picture shows.

        Parameters
        ----------
        **changed
            Settings to change.
        """
        then, now = self.prices(**changed).itertuples()
        released = self._both(changed)[now.setting].release
        return (
            f"{released} on {now.cpus} CPUs, against {self.before.release} in brackets: "
            f"{now.waiting_percent:.1f} % ({then.waiting_percent:.1f} %) of the CPU time waits for "
            f"the zone lock; {_longest(now.p99_us, then.p99_us)}; the lists hold up to "
            f"{now.list_mib:,.0f} MiB ({then.list_mib:,.0f} MiB)."
        )

    __str__ = summary

    def surprise(self, seeds: Sequence[int] = (1, 2, 3)) -> str:
        """Say whether one of the two kernels is cheaper in all three prices (Markdown).

        Parameters
        ----------
        seeds : sequence of int
            Of the runs, two or more: prices are means with half of their 95 % intervals, and
            differ where these do not reach over the difference.
        """
        names = {
            "waiting_percent": ("waiting", "%"),
            "p99_us": ("99th percentile of a visit", "µs"),
            "list_mib": ("memory on the lists", "MiB"),
        }
        half = half_width(seeds)
        both = self._both({})
        runs = [
            pd.DataFrame(_price(at, self.machine, seed) for seed in seeds) for at in both.values()
        ]
        said, signs = [], set()
        for name, (words, unit) in names.items():
            both_ways = [run[name] for run in runs]
            (a, da), (b, db) = ((x.mean(), half * x.std()) for x in both_ways)
            known = all(x.notna().all() for x in both_ways)  # runs without a visit have no price
            told = known and bool(abs(b - a) > np.hypot(da, db))
            signs.add(float(np.sign(b - a)) if told else 0.0)
            prices = " and ".join(_price_over_seeds(x, half, unit) for x in both_ways)
            beside = "" if told else " (no difference)" if known else " (not compared)"
            said.append(f"{words} {prices}{beside}")
        cheaper = len(signs) == 1 and 0.0 not in signs
        return (
            f"- Is one kernel cheaper in all three? {'Yes' if cheaper else 'No'}: "
            f"{'; '.join(said)} ({' | '.join(both)}; {len(seeds)} seeds)."
        )

    @property
    def digest(self) -> str:
        """SHA-256 of what the picture of the first settings shows."""
        lives = [life.digest for life in self.lives()]
        text = [asdict(self.settings), self.before.release, *lives, self.prices().to_csv()]
        return sha256(json.dumps(text).encode()).hexdigest()

    def png(self, **changed: Any) -> bytes:
        """Draw the picture for the screen, as a PNG.

        Parameters
        ----------
        **changed
            Settings to change.
        """
        file = BytesIO()
        self.figure(**changed).savefig(
            file, format="png", dpi=_DPI, pil_kwargs={"compress_level": 1}
        )
        return file.getvalue()

    def controls(self) -> ipywidgets.VBox:
        """Make the controls and the picture that follows them; needs a live kernel."""
        import ipywidgets

        start = self.settings
        style = {"description_width": "9em"}
        layout = {"width": "auto"}

        def made(kind: Any, name: str, description: str, **options: Any) -> Any:
            return kind(
                value=getattr(start, name),
                description=description,
                style=style,
                layout=layout,
                **options,
            )

        names = [r.name for r in releases()]
        ladder, slider = ipywidgets.SelectionSlider, ipywidgets.IntSlider
        turned = {
            "release": made(
                ipywidgets.Dropdown,
                "release",
                "release",
                options=names if start.release in names else [*names, start.release],
            ),
            "workload": made(ipywidgets.Dropdown, "workload", "workload", options=[*WORKLOADS]),
            "batch": made(
                ladder, "batch", "batch [pages]", options=sorted({*BATCHES, start.batch})
            ),
            "high_min": made(
                ladder, "high_min", "high [pages]", options=sorted({*HIGHS, start.high_min})
            ),
            "batch_scale_max": made(slider, "batch_scale_max", "batch scale max", min=0, max=6),
            "cpus": made(slider, "cpus", "CPUs at work", min=2, max=CPUS, step=2),
        }
        picture = ipywidgets.Image(format="png", layout={"max_width": "100%"})
        words = ipywidgets.HTML()

        def redraw(_: Any = None) -> None:
            values = {name: control.value for name, control in turned.items()}
            try:
                picture.value, words.value = self.png(**values), html.escape(self.summary(**values))
            except InputError as error:
                words.value = f"<b>{html.escape(str(error))}</b>"

        for control in turned.values():
            control.observe(redraw, "value")
        redraw()
        grid = ipywidgets.GridBox(
            [*turned.values()],
            layout={"grid_template_columns": "1fr 1fr", "max_width": "840px"},
        )
        return ipywidgets.VBox([grid, picture, words])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Controls where there is somebody to turn them, the picture elsewhere."""
        shown = self.controls()._repr_mimebundle_()
        return {**shown, "image/png": self.png(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        words = ", ".join(f"{name}={value!r}" for name, value in asdict(self.settings).items())
        return f"<Tour {words}>"


def _longest(now: float, then: float) -> str:
    """The 99th percentiles of both; that of no refill and no drain is no number."""
    if math.isnan(now) and math.isnan(then):
        return "there are no refills and drains"
    told = ["none is taken" if math.isnan(us) else f"up to {us:,.0f} µs" for us in (now, then)]
    return f"99 of 100 refills and drains take, with their wait, {told[0]} ({told[1]})"


def _price_over_seeds(prices: pd.Series, half: float, unit: str) -> str:
    """Mean and half of its interval; of runs some of which have no such price, the mean alone."""
    n = int(prices.notna().sum())
    if n == 0:
        return "none"
    if n < len(prices):
        return f"{prices.mean():,.1f} {unit} in {n} of {len(prices)} runs, none in the others"
    return f"{prices.mean():,.1f} ± {half * prices.std():,.1f} {unit}"
