"""How much of the throughput gained by a larger batch the hold times explain.

With times per page, T = 1 / throughput and h = (refill + drain) / batch, the rows of
a table are regressed as ``T = T0 + g h``.  If holding the lock were all that a batch
changes, g would be 1; the holds explain ``1 / g`` of the gain.  Two things bear on
reading it: the traced holds carry the tracer's cost, so the share is an upper
bound; and what they do not explain is waiting for the lock or work outside it.  The
throughput column is therefore never used to fit a hold time.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pcpmodel.machine import Machine, digest, load_machines
from pcpmodel.machine.hold_time import LEVEL

__all__ = ["ThroughputGain", "throughput_gain"]

FALL_PERCENT = 0.5  # a larger batch that loses more than this to a smaller is flagged
MIN_ROWS = 4


@dataclass(frozen=True, eq=False)
class ThroughputGain:
    """Gain of throughput over the smallest batch, measured and explained.

    Attributes
    ----------
    rows : pandas.DataFrame
        One row per machine and measured batch: ``gain_percent`` measured,
        ``explained_percent`` by the hold times alone, ``noise_percent`` (standard
        error of a measured gain), ``falls`` (throughput below that of a smaller
        batch by more than 0.5 %).
    shares : pandas.DataFrame
        One row per machine: time saved per page from the smallest to the largest
        batch [ns], measured and by the holds; ``share`` of the gain explained, with
        its interval (NaN: not bounded by the data), and the noise of
        the throughput column [%].
    unmeasured : tuple of str
        Machines whose table has no (or too little) throughput.
    digest : str
    """

    rows: pd.DataFrame
    shares: pd.DataFrame
    unmeasured: tuple[str, ...]
    digest: str

    def summary(self) -> str:
        """The findings in sentences (Markdown)."""
        lines = []
        for row in self.shares.itertuples():
            of = (
                f"{100 * row.share:.0f} % of the gain ({100 * LEVEL:g} % interval "
                f"{100 * row.share_low:.0f} to {100 * row.share_high:.0f} %)"
                if np.isfinite(row.share_high)
                else "a share of the gain that the noise of the column leaves open"
            )
            lines.append(
                f"**{row.machine}**: from batch {row.first_batch} to {row.last_batch} a page "
                f"takes {row.saved_ns:.1f} ns less and the holds {row.saved_by_holds_ns:.1f} ns "
                f"less; over all rows the holds explain {of}. Noise of the throughput column: "
                f"{row.noise_percent:.2f} %."
            )
            falls = self.rows[(self.rows["machine"] == row.machine) & self.rows["falls"]]
            if len(falls):
                batches = ", ".join(map(str, falls["batch"]))
                lines[-1] += f" Flagged: throughput falls at batch {batches}."
        lines += [f"**{name}**: no throughput measured." for name in self.unmeasured]
        known = self.shares[self.shares["share_high"].notna()]
        if len(known) > 1:
            low, high = 100 * known["share"].min(), 100 * known["share"].max()
            lines.append(
                f"**Where the data can tell**, the hold times explain {low:.0f} to {high:.0f} %"
                + (": about half or less." if high < 60 else ".")
            )
        return "\n".join(f"- {line}" for line in lines)


def _gain(machine: Machine) -> tuple[pd.DataFrame, dict[str, Any]] | None:
    table = machine.latency.dropna(subset="throughput_pages_per_s")
    if len(table) < MIN_ROWS:
        return None
    throughput = table["throughput_pages_per_s"].to_numpy()
    page_ns = 1e9 / throughput
    holds_us = table["alloc_latency_avg_us"] + table["free_latency_avg_us"]
    hold_ns = (1e3 * holds_us / table["batch"]).to_numpy()
    line = stats.linregress(hold_ns, page_ns)
    spread = stats.t.ppf((1 + LEVEL) / 2, len(table) - 2) * line.stderr
    residual = page_ns - line.intercept - line.slope * hold_ns
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
        "share": 1 / line.slope if line.slope > 0 else np.nan,
        "share_low": 1 / (line.slope + spread) if line.slope + spread > 0 else np.nan,
        "share_high": 1 / (line.slope - spread) if line.slope > spread else np.nan,
        "noise_percent": noise,
    }
    return rows, share


def throughput_gain(
    machines: str | Machine | Iterable[str | Machine] | None = None,
) -> ThroughputGain:
    """Compare the measured gain of throughput with what the hold times explain.

    Parameters
    ----------
    machines : str, Machine, iterable of these, optional
        Which machines; all if not given.

    Returns
    -------
    ThroughputGain
        Rows by machine and batch, shares explained, and a summary.

    Raises
    ------
    InputError
        If a machine is unknown.
    """
    loaded = load_machines(machines)
    gains = {machine.name: _gain(machine) for machine in loaded}
    known = [gain for gain in gains.values() if gain is not None]
    return ThroughputGain(
        rows=pd.concat([rows for rows, _ in known], ignore_index=True) if known else _NO_ROWS,
        shares=pd.DataFrame([share for _, share in known]) if known else _NO_SHARES,
        unmeasured=tuple(name for name, gain in gains.items() if gain is None),
        digest=digest(loaded),
    )


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
