"""How much of the throughput gained by a larger batch the hold times explain.

With times per page, T = 1 / throughput and h = (refill + drain) / batch, the rows of
a table are regressed as ``T = T0 + g h``.  If holding the lock were all that a batch
changes, g would be 1; the holds explain ``1 / g`` of the gain.  Two things bear on
reading it: the traced holds carry the tracer's cost, so the share is an upper
bound; and what they do not explain is waiting for the lock or work outside it.  The
throughput column is therefore never used to fit a hold time.  That 1 / throughput is the time
of a page assumes one process; the source does not say how many ran.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtrit

from pcpmodel.files import digest_of
from pcpmodel.hardware.hold_time import LEVEL
from pcpmodel.hardware.machines import Machine, digest, load_machines
from pcpmodel.simulation.run import simulate
from pcpmodel.study.answer import Answer
from pcpmodel.workload import page_fault1

__all__ = ["throughput_gain", "throughput_simulated"]

FALL_PERCENT = 0.5  # a larger batch that loses more than this to a smaller is flagged
MIN_ROWS = 4


def _said(
    rows: pd.DataFrame, shares: pd.DataFrame, unmeasured: Iterable[str]
) -> Iterator[tuple[str, str]]:
    for row in shares.itertuples():
        of = (
            f"{100 * row.share:.0f} % of the gain ({100 * LEVEL:g} % interval "
            f"{100 * row.share_low:.0f} to {100 * row.share_high:.0f} %)"
            if np.isfinite(row.share_high)
            else "a share of the gain that the noise of the column leaves open"
        )
        said = (
            f"- **{row.machine}**: from batch {row.first_batch} to {row.last_batch} a page "
            f"takes {row.saved_ns:.1f} ns less and the holds {row.saved_by_holds_ns:.1f} ns "
            f"less; over all rows the holds explain {of}. Noise of the throughput column: "
            f"{row.noise_percent:.2f} %."
        )
        falls = rows[(rows["machine"] == row.machine) & rows["falls"]]
        if len(falls):
            batches = ", ".join(map(str, falls["batch"]))
            said += f" Flagged: throughput falls at batch {batches}."
        yield row.machine, said
    for name in unmeasured:
        yield name, f"- **{name}**: no throughput measured."
    known = shares[shares["share_high"].notna()]
    if len(known) > 1:
        low, high = 100 * known["share"].min(), 100 * known["share"].max()
        yield (
            "where the data can tell",
            f"- **Where the data can tell**, the hold times explain {low:.0f} to {high:.0f} %"
            + (": about half or less." if high < 60 else "."),
        )


def _line(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """Slope, intercept and the slope's standard error, as `scipy.stats.linregress` has them.

    Its import takes longer than the notebook of a new machine calculates.
    """
    xx, xy, _, yy = np.cov(x, y, bias=True).flat
    slope, r = xy / xx, xy / np.sqrt(xx * yy)
    error = np.sqrt(max(1 - r**2, 0.0) * yy / xx / (len(x) - 2))
    return slope, y.mean() - slope * x.mean(), error


def _gain(machine: Machine) -> tuple[pd.DataFrame, dict[str, Any]] | None:
    table = machine.latency.dropna(subset="throughput_pages_per_s")
    if len(table) < MIN_ROWS:
        return None
    throughput = table["throughput_pages_per_s"].to_numpy()
    page_ns = 1e9 / throughput
    holds_us = table["alloc_latency_avg_us"] + table["free_latency_avg_us"]
    hold_ns = (1e3 * holds_us / table["batch"]).to_numpy()
    slope, intercept, error = _line(hold_ns, page_ns)
    spread = stdtrit(len(table) - 2, (1 + LEVEL) / 2) * error
    residual = page_ns - intercept - slope * hold_ns
    noise = 100 * np.sqrt((residual**2).sum() / (len(table) - 2)) / page_ns.mean()
    rows = pd.DataFrame(
        {
            "machine": machine.name,
            "batch": table["batch"].to_numpy(),
            "page_ns": page_ns,
            "hold_per_page_ns": hold_ns,
            "gain_percent": 100 * (page_ns[0] / page_ns - 1),
            "explained_percent": 100 * (page_ns[0] / (page_ns[0] - (hold_ns[0] - hold_ns)) - 1),
            "noise_percent": np.where(np.arange(len(table)) > 0, np.sqrt(2) * noise, 0.0),
            "falls": throughput < (1 - FALL_PERCENT / 100) * np.maximum.accumulate(throughput),
        }
    )
    share = {
        "machine": machine.name,
        "first_batch": int(rows["batch"].iloc[0]),
        "last_batch": int(rows["batch"].iloc[-1]),
        "saved_ns": page_ns[0] - page_ns[-1],
        "saved_by_holds_ns": hold_ns[0] - hold_ns[-1],
        "share": 1 / slope if slope > 0 else np.nan,
        "share_low": 1 / (slope + spread) if slope + spread > 0 else np.nan,
        "share_high": 1 / (slope - spread) if slope > spread else np.nan,
        "noise_percent": noise,
    }
    return rows, share


def throughput_gain(
    machine: str | Machine | Iterable[str | Machine] | None = None,
) -> Answer:
    """Compare the measured gain of throughput with what the hold times explain.

    Parameters
    ----------
    machine : str, Machine, iterable of these, optional
        Which machines; all if not given.

    Returns
    -------
    Answer
        ``rows``: by machine and measured batch ``gain_percent`` measured, ``explained_percent``
        by the hold times alone, ``noise_percent`` (standard error of a measured gain), ``falls``
        (throughput below that of a smaller batch by more than 0.5 %).  ``shares``: by machine the
        time saved per page from the smallest to the largest batch [ns], measured and by the
        holds; ``share`` of the gain explained, with its interval (NaN: not bounded by the data),
        and the noise of the throughput column [%].

    Raises
    ------
    InputError
        If a machine is unknown.
    """
    loaded = load_machines(machine)
    gains = {machine.name: _gain(machine) for machine in loaded}
    known = [gain for gain in gains.values() if gain is not None]
    rows = pd.concat([rows for rows, _ in known], ignore_index=True) if known else _NO_ROWS
    shares = pd.DataFrame([share for _, share in known]) if known else _NO_SHARES
    said = _said(rows, shares, [name for name, gain in gains.items() if gain is None])
    return Answer(
        {"rows": rows, "shares": shares}, dict(said), digest=digest(loaded), shown=("shares",)
    )


def throughput_simulated(
    machine: str | Machine | Iterable[str | Machine] | None = None,
    *,
    processes: int = 1,
    seconds: float = 1.0,
    seeds: Sequence[int] = (1, 2, 3),
) -> Answer:
    """Simulate the tables' own set-up: page_fault1, one batch a hold, ``high`` = 2 x batch.

    Parameters
    ----------
    machine : str, Machine, iterable of these, optional
        Which machines; all if not given.
    processes : int
        Of page_fault1; the source does not say how many ran.
    seconds : float
        Simulated time of a run [s].
    seeds : sequence of int

    Returns
    -------
    Answer
        ``gains``: by ``machine`` and ``batch`` ``measured_gain_percent`` of throughput over the
        smallest batch, ``simulated_gain_percent``, mean over the seeds, ``error_percent``,
        simulated
        less measured, and ``rate_ratio``, simulated throughput over measured.

    Notes
    -----
    What a fault costs outside the lists is not known of these machines; it is that of the
    workload on any, for pages of the machine's size, so only the gains are to be compared.
    """
    rows = []
    loaded = load_machines(machine)
    for machine in loaded:
        table = machine.latency.dropna(subset="throughput_pages_per_s")
        kib = machine.page_size_kib
        # The workload's own, not the machine's, which a run takes where none is given.
        fault_ns = page_fault1(processes, page_size_kib=kib).params["fault_ns"]
        first: dict[int, float] = {}
        for line in table.itertuples():
            batch = int(line.batch)
            gains, rates = [], []
            for seed in seeds:
                rate = simulate(
                    release="v6.6",
                    machine=machine,
                    workload=page_fault1(processes, fault_ns=fault_ns, page_size_kib=kib),
                    warm=True,
                    cpus=max(2, processes),
                    nodes=1,
                    memory_gib=64.0,
                    batch=batch,
                    batch_scale_max=0,
                    high_pages=2 * batch,
                    seconds=seconds,
                    warmup_s=seconds / 4,
                    seed=seed,
                ).score_per_s
                rates.append(rate)
                gains.append(100 * (rate / first.setdefault(seed, rate) - 1))
            rows.append(
                {
                    "machine": machine.name,
                    "batch": batch,
                    "measured_gain_percent": 100
                    * (line.throughput_pages_per_s / table["throughput_pages_per_s"].iloc[0] - 1),
                    "simulated_gain_percent": float(np.mean(gains)),
                    "rate_ratio": float(np.mean(rates)) / line.throughput_pages_per_s,
                }
            )
    found = pd.DataFrame(rows, columns=_GAINS)
    gap = found["simulated_gain_percent"] - found["measured_gain_percent"]
    found["error_percent"] = gap
    said = {
        each.name: f"- **{each.name}**: no throughput measured."
        for each in loaded
        if each.name not in set(found["machine"])
    }
    if rows:
        worst = found.loc[gap.abs().idxmax()]
        said["error"] = (
            f"- Simulated, the gains of throughput are off by {gap.min():+.1f} to {gap.max():+.1f} "
            f"points; most on {worst['machine']} at batch {worst['batch']}."
        )
    return Answer({"gains": found}, said, digest=digest_of(digest(loaded), processes))


_GAINS = [
    *("machine", "batch", "measured_gain_percent", "simulated_gain_percent", "rate_ratio"),
    "error_percent",
]
_NO_ROWS = pd.DataFrame(
    columns=[
        *("machine", "batch", "page_ns", "hold_per_page_ns", "gain_percent"),
        *("explained_percent", "noise_percent", "falls"),
    ]
)
_NO_SHARES = pd.DataFrame(
    columns=[
        *("machine", "first_batch", "last_batch", "saved_ns", "saved_by_holds_ns"),
        *("share", "share_low", "share_high", "noise_percent"),
    ]
)
