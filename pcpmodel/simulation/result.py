"""What a run says: counters, times, histograms, time series; named, with units."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pcpmodel import __version__
from pcpmodel.arguments import checked_methods
from pcpmodel.errors import unknown_name
from pcpmodel.simulation.spec import RunSpec
from pcpmodel.simulation.state import State
from pcpmodel.simulation.steady import half_width

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["THRESHOLDS_US", "ZONE_KINDS", "Histogram", "Phase", "Result"]

#: Holds of the zone lock: of one block past the lists, beside refills and drains of lists.
ZONE_KINDS = ("refill", "drain", "direct")
KINDS = ("refill", "drain", "lru", "direct")
THRESHOLDS_US = (100, 1_000, 10_000)
_QUANTILES = (0.5, 0.9, 0.99, 0.999)
_PHASE_TIMES = ("wait", "hold", "lru_wait", "lru_hold")
_BATCH_SUMS = ("score", "wait_ps", "lru_wait_ps", "idle_ps", "refill_pages")

# name -> (unit, meaning)
_COUNTERS = {
    "alloc_blocks": ("blocks", "allocations"),
    "alloc_pages": ("pages", "pages allocated"),
    "free_pages": ("pages", "pages freed"),
    "refills": ("1", "zone-lock holds that filled a list"),
    "refill_pages": ("pages", "pages that refills took from the zone"),
    "drains": ("1", "zone-lock holds that emptied lists"),
    "drain_pages": ("pages", "pages given back to the zone"),
    "moved_blocks": ("blocks", "blocks moved under the zone lock"),
    "free_high": ("1", "drains because of consecutive high-order frees"),
    "tick_pages": ("pages", "pages given back by the vmstat worker"),
    "lru_holds": ("1", "LRU-lock holds"),
    "score": ("units", "units of work done"),
    "wait_ps": ("ps", "waiting for the zone lock"),
    "hold_ps": ("ps", "holding the zone lock"),
    "lru_wait_ps": ("ps", "waiting for the LRU lock"),
    "lru_hold_ps": ("ps", "holding the LRU lock"),
    "idle_ps": ("ps", "asleep"),
    "direct_allocs": ("blocks", "allocations past the lists: locked, or none of that order"),
    "direct_frees": ("blocks", "frees past the lists"),
    "direct_pages": ("pages", "pages allocated past the lists"),
    "found_private": ("pages", "pages allocated that were in the CPU's private cache"),
    "found_llc": ("pages", "pages allocated that were in its slice of the last-level cache"),
    "found_memory": ("pages", "pages allocated that were in neither"),
    "wait_max_ps": ("ps", "longest wait for the zone lock"),
    "lru_wait_max_ps": ("ps", "longest wait for the LRU lock"),
    "start_ps": ("ps", "when counting started"),
    "end_ps": ("ps", "when the CPU finished"),
}


def bucket_edges_ns(buckets: int) -> npt.NDArray[np.int64]:
    """Lower edges of the engine's histogram buckets [ns], eight per power of two."""
    i = np.arange(buckets + 1)
    e = np.maximum(i // 8 + 2, 3)
    return np.where(i < 8, i, (8 + i % 8) << (e - 3))


@checked_methods
@dataclass(frozen=True)
class Histogram:
    """Times of many interactions.

    Attributes
    ----------
    counts : (N,) ndarray of int
        Interactions in each bucket.
    edges_ns : (N + 1,) ndarray of int
        Edges of the buckets [ns], eight per power of two.
    """

    counts: npt.NDArray[np.int64]
    edges_ns: npt.NDArray[np.int64]

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def quantile_ns(self, q: float) -> float:
        """Time that a share ``q`` of the interactions stays under [ns]; NaN if none.

        Interpolated within a bucket, whose width is at most an eighth of its edge.
        """
        if not self.total:
            return float("nan")
        below = np.concatenate([[0], np.cumsum(self.counts)])
        i = min(int(np.searchsorted(below, q * self.total, side="right")) - 1, len(self.counts) - 1)
        while self.counts[i] == 0:
            i -= 1
        lo, hi = self.edges_ns[i], self.edges_ns[i + 1]
        share = (q * self.total - below[i]) / self.counts[i]
        return float(lo + (hi - lo) * min(share, 1.0))

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(self.counts + other.counts, self.edges_ns)


class _Counted:
    """Figures that follow from counters of CPUs."""

    per_cpu: dict[str, npt.NDArray[np.int64]]

    def _sum(self, name: str) -> int:
        return int(self.per_cpu[name].sum())

    @property
    def cpu_ps(self) -> int:
        """CPU time of all tasks over the counted time [ps]."""
        raise NotImplementedError

    @property
    def busy_ps(self) -> int:
        """CPU time without sleep [ps]."""
        return self.cpu_ps - self._sum("idle_ps")

    @property
    def lock_contention(self) -> float:
        """Share of busy CPU cycles spent waiting for the zone lock, 0..1."""
        return self._sum("wait_ps") / self.busy_ps if self.busy_ps else 0.0

    @property
    def lru_contention(self) -> float:
        """Share of busy CPU cycles spent waiting for the LRU lock, 0..1."""
        return self._sum("lru_wait_ps") / self.busy_ps if self.busy_ps else 0.0

    @property
    def refills(self) -> int:
        """Zone-lock holds that filled a list."""
        return self._sum("refills")

    @property
    def drains(self) -> int:
        """Zone-lock holds that emptied lists."""
        return self._sum("drains")

    @property
    def free_high(self) -> int:
        """Drains caused by consecutive frees of orders 1..3."""
        return self._sum("free_high")

    @property
    def alloc_zone_pages(self) -> int:
        """Pages taken from the zone, by refills and past the lists [pages]."""
        return self._sum("refill_pages") + self._sum("direct_pages")

    @property
    def score(self) -> int:
        """Units of work done, as the workload calls them."""
        return self._sum("score")


@checked_methods
@dataclass(frozen=True, eq=False)
class Phase(_Counted):
    """What the CPUs did in one phase of their programs (`pcpmodel.workload.Program.phase`).

    Attributes
    ----------
    per_cpu : dict of str -> (cpus,) ndarray of int
        Counters of each CPU, as those of `Result`, without the longest waits; ``time_ps``: how
        long it was in the phase [ps].
    """

    per_cpu: dict[str, npt.NDArray[np.int64]]

    @property
    def cpu_ps(self) -> int:
        """CPU time of all tasks in the phase [ps]."""
        return self._sum("time_ps")

    def summary(self) -> dict[str, float]:
        """Its figures, ready for JSON; times of all CPUs together [s]."""
        return {
            "cpu_s": self.cpu_ps / 1e12,
            "busy_s": self.busy_ps / 1e12,
            **{
                name: getattr(self, name)
                for name in ("score", "lock_contention", "lru_contention", "refills", "drains")
            },
            "alloc_pages": self._sum("alloc_pages"),
            "free_pages": self._sum("free_pages"),
            **{f"{name}_s": self._sum(f"{name}_ps") / 1e12 for name in _PHASE_TIMES},
        }


@checked_methods
@dataclass(frozen=True, eq=False)
class Result(_Counted):
    """Outcome of one run.

    Attributes
    ----------
    spec : RunSpec
        What was run.
    per_cpu : dict of str -> (cpus,) ndarray of int
        Counters of each CPU over the counted time; see ``to_dataset`` for units.
    wait_hist, hold_hist, latency_hist : dict of str -> Histogram
        By kind of interaction ("refill", "drain", "lru"; "direct": one block past the lists):
        waiting for the lock, holding it, both together.
    by_kind : dict of str -> dict of str -> int
        All waits ("wait") and all holds ("hold") of each kind [ps].
    phases : dict of str -> Phase
        By the names that the programs give; what is outside of all has the name "".
    over : dict of str -> tuple of int
        Interactions whose latency passed each of `THRESHOLDS_US`.
    pcp_pages_by_cpu, held_pages_by_cpu : (cpus, samples) ndarray of int
        Pages on each CPU's lists, of all zones, and held by its task over time [pages].
    pages_in_messages : (samples,) ndarray of int
        Pages that were given to a message and that nobody has taken yet, over time [pages].
    time_s : (samples,) ndarray of float
        When these were sampled [s], from the beginning of the run, the warm-up included.
    batch_sums : dict of str -> (samples,) ndarray of int
        Of all CPUs between two samples: ``score``, ``wait_ps``, ``lru_wait_ps``, ``idle_ps``,
        ``refill_pages``, with the units of ``per_cpu``.
    events : int
        Lock interactions, the warm-up included.
    order_digests : tuple of int
        Of each lock, a digest of which CPU got it when.
    zone_free_pages : tuple of int
        Pages on the buddy lists of each zone at the end [pages].
    run_s : float
        How long the run took [s]; not part of the outcome.
    warmup_s : float
        Simulated time before counting started [s].
    stands : bool or None
        Whether rates were steady after that; None: not looked at, since ``warmup_s`` was given or
        it is a course of events.
    """

    spec: RunSpec
    per_cpu: dict[str, npt.NDArray[np.int64]]
    wait_hist: dict[str, Histogram]
    hold_hist: dict[str, Histogram]
    latency_hist: dict[str, Histogram]
    over: dict[str, tuple[int, ...]]
    pcp_pages_by_cpu: npt.NDArray[np.int64]
    held_pages_by_cpu: npt.NDArray[np.int64]
    pages_in_messages: npt.NDArray[np.int64]
    time_s: npt.NDArray[np.float64]
    events: int
    order_digests: tuple[int, ...]
    zone_free_pages: tuple[int, ...]
    run_s: float
    batch_sums: dict[str, npt.NDArray[np.int64]]
    by_kind: dict[str, dict[str, int]]
    phases: dict[str, Phase] = field(default_factory=dict)
    warmup_s: float = 0.0
    stands: bool | None = None

    @classmethod
    def from_state(cls, spec: RunSpec, state: State, run_s: float) -> Result:
        counters = state.counters()
        hists = state.histograms()
        series = np.frombuffer(state.series(), dtype=np.int64).reshape(
            len(counters), spec.samples, 3 + len(_BATCH_SUMS)
        )
        series = np.ascontiguousarray(series.transpose(0, 2, 1))
        edges = bucket_edges_ns(len(hists["wait"]["refill"]))

        def histogram(what: str) -> dict[str, Histogram]:
            return {
                k: Histogram(np.array(v, dtype=np.int64), edges) for k, v in hists[what].items()
            }

        rows = state.phases()
        phases = {
            name: Phase({k: np.array([cpu[i][k] for cpu in rows]) for k in rows[0][i]})
            for i, name in enumerate(spec.workload.phases if rows else ())
        }
        warm = spec.warmup_s or 0.0
        step = round(spec.seconds * 1e12) // spec.samples if spec.samples else 0
        sums = np.diff(series[:, 2:-1].sum(axis=0), axis=1, prepend=0)
        return cls(
            spec=spec,
            per_cpu={k: np.array([c[k] for c in counters], dtype=np.int64) for k in _COUNTERS},
            wait_hist=histogram("wait"),
            hold_hist=histogram("hold"),
            latency_hist=histogram("latency"),
            over={k: tuple(v) for k, v in state.over().items()},
            pcp_pages_by_cpu=series[:, 0],
            held_pages_by_cpu=series[:, 1],
            pages_in_messages=series[:, -1].sum(axis=0),
            time_s=(np.arange(spec.samples) + 1) * step / 1e12 + warm,
            events=state.events,
            order_digests=state.order_digests,
            zone_free_pages=tuple(state.zone_free()),
            run_s=run_s,
            batch_sums=dict(zip(_BATCH_SUMS, sums, strict=True)),
            by_kind=state.by_kind(),
            phases=phases,
            warmup_s=warm,
        )

    @property
    def cpu_ps(self) -> int:
        """CPU time of all tasks over the counted time [ps]."""
        return self._sum("end_ps") - self._sum("start_ps")

    @property
    def cache_miss_rate(self) -> float:
        """Share of the pages allocated that no cache of the CPU held any more, 0..1.

        NaN where caches were not followed (``simulate(identity=True, caches=True)``).
        """
        known = self._sum("found_private") + self._sum("found_llc") + self._sum("found_memory")
        return self._sum("found_memory") / known if known else math.nan

    @property
    def score_per_s(self) -> float:
        """Units of work per simulated second [1/s]."""
        return self.score / self.spec.seconds

    def half_width(self, name: str) -> float:
        """Half of the 95 % confidence interval of a figure, by batch means; NaN: not known.

        Parameters
        ----------
        name : str
            "lock_contention", "lru_contention" [1], "score_per_s" [1/s] or "cpu_ns_per_unit"
            (CPU time per unit of work [ns]).

        Notes
        -----
        It says how far the figure of a longer run may be off, and of one with another seed; not
        how far the model is.  See `pcpmodel.simulation.steady`.
        """
        sums, n = self.batch_sums, self.spec.samples
        whole = np.full(n, self.cpu_ps / max(n, 1))
        parts = {
            "lock_contention": (sums["wait_ps"], whole - sums["idle_ps"]),
            "lru_contention": (sums["lru_wait_ps"], whole - sums["idle_ps"]),
            "score_per_s": (sums["score"], np.full(n, self.spec.seconds / max(n, 1))),
            "cpu_ns_per_unit": (whole / 1000, sums["score"]),
        }
        if name not in parts:
            raise unknown_name("figure", name, parts)
        return half_width(*parts[name])

    @property
    def pages_in_pcp(self) -> npt.NDArray[np.int64]:
        """Pages stranded on the lists of all CPUs over time, (samples,) [pages]."""
        return self.pcp_pages_by_cpu.sum(axis=0)

    @property
    def pages_held(self) -> npt.NDArray[np.int64]:
        """Pages that the tasks hold, messages included, over time, (samples,) [pages]."""
        return self.held_pages_by_cpu.sum(axis=0) + self.pages_in_messages

    @property
    def used_memory_pages(self) -> npt.NDArray[np.int64]:
        """Memory that is not free over time, (samples,) [pages].

        What the tasks hold and what sits on per-CPU lists: NR_FREE_PAGES counts neither.
        """
        return self.pages_in_pcp + self.pages_held

    def zone_histogram(self, what: str) -> Histogram:
        """All holds of the zone lock, whatever their kind: ``what`` is one of the three histograms.

        Parameters
        ----------
        what : str
            "wait", "hold" or "latency".
        """
        known = {"wait": self.wait_hist, "hold": self.hold_hist, "latency": self.latency_hist}
        if what not in known:
            raise unknown_name("histogram", what, known)
        refills, *others = (known[what][kind] for kind in ZONE_KINDS)
        return sum(others, refills)

    def kind_ns(self, kind: str) -> dict[str, dict[str, float]]:
        """Waits and holds of one kind: mean, p50..p99.9 [ns].

        Parameters
        ----------
        kind : str
            "refill", "drain", "lru" or "direct".

        Returns
        -------
        dict
            ``wait`` and ``hold``.
        """
        if kind not in KINDS:
            raise unknown_name("kind of hold", kind, KINDS)
        hists = {"wait": self.wait_hist, "hold": self.hold_hist}
        return {
            what: self._times_ns(hist[kind], self.by_kind[what][kind])
            for what, hist in hists.items()
        }

    def _times_ns(self, hist: Histogram, total_ps: int, longest: str = "") -> dict[str, float]:
        """Mean, quantiles and, where it is counted, the longest of some interactions [ns].

        NaN where there are none: a percentile of nothing is no number.
        """
        most = int(self.per_cpu[longest].max()) / 1000 if longest else math.inf
        names = ["mean", *(f"p{100 * q:g}" for q in _QUANTILES), *(["max"] if longest else [])]
        if not hist.total:
            return dict.fromkeys(names, math.nan)
        quantiles = [min(hist.quantile_ns(q), most) for q in _QUANTILES]
        return dict(zip(names, [total_ps / 1000 / hist.total, *quantiles, most], strict=False))

    @property
    def wait_ns(self) -> dict[str, float]:
        """Wait for the zone lock per hold: mean, p50..p99.9, longest [ns]."""
        return self._times_ns(self.zone_histogram("wait"), self._sum("wait_ps"), "wait_max_ps")

    @property
    def hold_ns(self) -> dict[str, float]:
        """Holds of the zone lock: mean, p50..p99.9 [ns]."""
        return self._times_ns(self.zone_histogram("hold"), self._sum("hold_ps"))

    @property
    def lru_wait_ns(self) -> dict[str, float]:
        """Wait for the LRU lock per hold: mean, p50..p99.9, longest [ns]."""
        return self._times_ns(self.wait_hist["lru"], self._sum("lru_wait_ps"), "lru_wait_max_ps")

    @property
    def lru_hold_ns(self) -> dict[str, float]:
        """Holds of the LRU lock: mean, p50..p99.9 [ns]."""
        return self._times_ns(self.hold_hist["lru"], self._sum("lru_hold_ps"))

    @property
    def longest_starvation_ns(self) -> float:
        """Longest that a CPU waited for any lock [ns].

        A CPU that waits runs neither tasks nor RCU callbacks: the soft-lockup watchdog reports
        20 s of it, RCU a stall after 21 s (kernel/watchdog.c, Documentation/RCU/stallwarn.rst).
        """
        longest = max(int(self.per_cpu[f"{lock}wait_max_ps"].max()) for lock in ("", "lru_"))
        return longest / 1000

    def over_probability(self, kind: str = "refill") -> dict[int, float]:
        """Probability that wait and hold together pass 100 us, 1 ms, 10 ms, by threshold [us].

        ``kind`` is "refill", "drain", "lru" or "direct".
        """
        if kind not in KINDS:
            raise unknown_name("kind of hold", kind, KINDS)
        total = self.latency_hist[kind].total
        return {
            us: n / total if total else 0.0
            for us, n in zip(THRESHOLDS_US, self.over[kind], strict=True)
        }

    @property
    def real_time_factor(self) -> float:
        """Simulated seconds per second of computing."""
        return (self.spec.seconds + self.warmup_s) / max(self.run_s, 1e-9)

    def summary(self) -> dict[str, Any]:
        """The figures of `pcpmodel simulate`, ready for JSON; None where there is no number."""
        return {
            "release": self.spec.release.name,
            "machine": self.spec.machine.name,
            "workload": self.spec.workload.name,
            "page_size_kib": self.spec.host.page_size_kib,
            "host": asdict(self.spec.host),
            "notes": self.spec.notes,
            "rules": self.spec.rules,
            "seconds": self.spec.seconds,
            "warmup_s": self.warmup_s,
            "stands": self.stands,
            "assumed": self.spec.assumed,
            "seed": self.spec.seed,
            "score": self.score,
            "score_unit": self.spec.workload.unit,
            "lock_contention": self.lock_contention,
            "lru_contention": self.lru_contention,
            "half_width_95": _known(
                {
                    name: self.half_width(name)
                    for name in ("lock_contention", "lru_contention", "score_per_s")
                }
            ),
            "refills": self.refills,
            "drains": self.drains,
            "free_high": self.free_high,
            "alloc_zone_pages": self.alloc_zone_pages,
            "alloc_pages": self._sum("alloc_pages"),
            "cache_miss_rate": self.cache_miss_rate if self.spec.caches else None,
            "free_pages": self._sum("free_pages"),
            "wait_ns": _known(self.wait_ns),
            "hold_ns": _known(self.hold_ns),
            "lru_wait_ns": _known(self.lru_wait_ns),
            "lru_hold_ns": _known(self.lru_hold_ns),
            "by_kind": {
                kind: {
                    "holds": self.hold_hist[kind].total,
                    **{f"{what}_ns": _known(ns) for what, ns in self.kind_ns(kind).items()},
                }
                for kind in KINDS
            },
            "phases": {name: phase.summary() for name, phase in self.phases.items()},
            "longest_starvation_ns": self.longest_starvation_ns,
            "latency_over_us": {
                kind: {str(us): p for us, p in self.over_probability(kind).items()}
                for kind in KINDS
            },
            "pages_in_pcp_max": int(self.pages_in_pcp.max()) if self.spec.samples else None,
            "used_memory_pages_mean": (
                float(self.used_memory_pages.mean()) if self.spec.samples else None
            ),
            "events": self.events,
            "run_s": self.run_s,
            "real_time_factor": self.real_time_factor,
        }

    def to_dataset(self) -> xr.Dataset:
        """Everything as labelled arrays with units, seed and provenance.

        The time that the run took is left out: same spec, same dataset.  ``to_netcdf()`` writes
        whole numbers as floats, for NetCDF-3 has none of 64 bits.
        """
        import xarray as xr

        made = xr.Dataset(
            self._variables(),
            coords={
                "cpu": np.arange(len(self.per_cpu["score"])),
                "kind": list(KINDS),
                **({"phase": list(self.phases)} if self.phases else {}),
                "quantile": list(_QUANTILES),
                "bucket_ns": ("bucket_ns", self.wait_hist["refill"].edges_ns[:-1], {"units": "ns"}),
                "threshold_us": ("threshold_us", list(THRESHOLDS_US), {"units": "us"}),
                "time_s": ("time_s", self.time_s, {"units": "s"}),
            },
            attrs={
                "pcpmodel_version": __version__,
                "schema_version": 2,
                "seed": self.spec.seed,
                "warmup_s": self.warmup_s,
                "stands": "not looked at" if self.stands is None else str(self.stands),
                "assumed": "; ".join(self.spec.assumed),
                "order_digests": " ".join(f"{d:016x}" for d in self.order_digests),
                "spec": json.dumps(self.spec.as_dict(), sort_keys=True, default=str),
            },
        )
        for variable in made.variables.values():
            if variable.dtype == np.int64:
                variable.encoding["dtype"] = "float64"
        return made

    def _variables(self) -> dict[str, tuple[Any, ...]]:
        """Dimensions, values and attributes of every array of `to_dataset`."""
        data: dict[str, Any] = {}
        for name, (unit, meaning) in _COUNTERS.items():
            data[name] = ("cpu", self.per_cpu[name], {"units": unit, "long_name": meaning})
        for name, what in (
            ("wait", self.wait_hist),
            ("hold", self.hold_hist),
            ("latency", self.latency_hist),
        ):
            data[f"{name}_hist"] = (
                ("kind", "bucket_ns"),
                np.stack([what[k].counts for k in KINDS]),
                {"units": "1", "long_name": f"{name} per lock interaction, by lower edge"},
            )
        for what, meaning in (("wait", "waiting for"), ("hold", "holding")):
            data[f"{what}_ps_by_kind"] = (
                "kind",
                [self.by_kind[what][k] for k in KINDS],
                {"units": "ps", "long_name": f"{meaning} a lock, by kind of hold"},
            )
        for name in next(iter(self.phases.values())).per_cpu if self.phases else ():
            unit, meaning = _COUNTERS.get(name, ("ps", "how long the CPU was in the phase"))
            data[f"phase_{name}"] = (
                ("phase", "cpu"),
                np.stack([phase.per_cpu[name] for phase in self.phases.values()]),
                {"units": unit, "long_name": f"{meaning}, by phase of the program"},
            )
        data["over"] = (
            ("kind", "threshold_us"),
            np.array([self.over[k] for k in KINDS]),
            {"units": "1", "long_name": "interactions longer than the threshold"},
        )
        for name, values, meaning in (
            ("pages_in_pcp", self.pages_in_pcp, "pages stranded on per-CPU lists"),
            ("pages_held", self.pages_held, "pages that the tasks hold, messages included"),
            ("used_memory", self.used_memory_pages, "pages not free, on per-CPU lists or held"),
        ):
            data[name] = ("time_s", values, {"units": "pages", "long_name": meaning})
        for name, values, meaning in (
            ("pcp_pages_by_cpu", self.pcp_pages_by_cpu, "pages stranded on the CPU's lists"),
            ("held_pages_by_cpu", self.held_pages_by_cpu, "pages that the CPU's task holds"),
        ):
            data[name] = (("cpu", "time_s"), values, {"units": "pages", "long_name": meaning})
        for what, meaning in (
            ("wait", "wait for the zone lock"),
            ("hold", "hold of the zone lock"),
            ("lru_wait", "wait for the LRU lock"),
            ("lru_hold", "hold of the LRU lock"),
        ):
            times = getattr(self, f"{what}_ns")
            data[f"{what}_quantiles"] = (
                "quantile",
                [times[f"p{100 * q:g}"] for q in _QUANTILES],
                {"units": "ns", "long_name": f"{meaning}, by share of holds below"},
            )
        data["over_probability"] = (
            ("kind", "threshold_us"),
            [list(self.over_probability(k).values()) for k in KINDS],
            {"units": "1", "long_name": "probability that wait and hold pass the threshold"},
        )
        data["longest_starvation"] = (
            (),
            self.longest_starvation_ns,
            {"units": "ns", "long_name": "longest wait of a CPU for any lock"},
        )
        for name, unit in (
            ("lock_contention", "1"),
            ("lru_contention", "1"),
            ("cache_miss_rate", "1"),
            ("score", "units"),
        ):
            data[f"total_{name}"] = ((), getattr(self, name), {"units": unit})
        for name, unit in (("lock_contention", "1"), ("score_per_s", "1/s")):
            data[f"{name}_half_width"] = (
                (),
                self.half_width(name),
                {"units": unit, "long_name": "half of the 95 % interval, by batch means"},
            )
        return data

    def __repr__(self) -> str:
        half = self.half_width("lock_contention")
        sure = "" if math.isnan(half) else f" ± {100 * half:.2f}"
        return (
            f"<Result {self.spec.workload.name} on {self.spec.machine.name}, "
            f"{self.spec.rules}: lock contention {100 * self.lock_contention:.2f}{sure} %, "
            f"{self.refills} refills, {self.drains} drains>"
        )


def _known(figures: dict[str, float]) -> dict[str, float | None]:
    """Figures with None, which JSON has, in the place of NaN, which it has not."""
    return {name: None if math.isnan(value) else value for name, value in figures.items()}
