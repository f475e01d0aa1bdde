"""Write ``costs.csv`` of the measured machines: the cost sheets, row by row with their origins.

``python tools/cost_sheets.py [--check]``: what a late line takes in a hold is derived from the
recordings of a guest of the Sapphire Rapids class (``holds`` of ``data/workload/native-kbuild`` and
``native-streams``), holds and faults from each machine's own latency table; published and assumed
rows stand in ``cost_sheets.toml``.  ``--check`` writes nothing and fails where a sheet differs.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
import math
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from transcribe_hardware import LICENCE_NOTE

from pcpmodel.datasets.packages import COSTS_RESOURCE, load_hardware, load_published, load_workload
from pcpmodel.datasets.store import dump_json, hardware_descriptor
from pcpmodel.hardware import machines
from pcpmodel.hardware.costs import rows_of
from pcpmodel.hardware.sheet import class_holds
from pcpmodel.kernel.releases import release
from pcpmodel.workload.faults import UNMAP_NS

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data" / "hardware"
#: Whose guest was recorded.
RECORDED = "sapphire-rapids"
#: Of whose class a source states the rate of faults of two processes.
BARE = "cascade-lake"
#: Idle latencies of that class, by which others are scaled: line dirty in a cache of the socket, of
#: the other one, line in memory [ns].
IDLE_DIRTY, IDLE_FAR, IDLE_MEMORY = 75.0, 160.0, 108.0
#: What a warm page takes more in a drain than in a refill, by that class's latency table [ns].
WARM_DRAIN = 7.0


class Row(NamedTuple):
    operation: str
    distance: str
    value: float
    low: float
    high: float
    origin: str
    source: str


def recorded() -> dict[str, float]:
    """What a line takes in a hold of the recorded guest [ns]: another CPU's, memory's, a buddy's.

    All beside what a block takes whose line comes ahead, the event of the trace included: the
    pages that the streams refill one beside the other.
    """
    holds = {
        name: load_workload(f"native-{name}").tables["holds"].set_index(["side", "order", "beside"])
        for name in ("kbuild", "streams")
    }
    ahead = holds["streams"].loc[("refill", 0, 1), "mean"]

    def mean(name: str, *keys: tuple[str, int, int]) -> float:
        part = holds[name].loc[list(keys)]
        return float(np.average(part["mean"], weights=part["blocks"]) - ahead)

    return {
        # Blocks of orders 1 to 3, all of them freed by the other CPU.
        "dirty": mean("streams", *(("refill", order, 0) for order in (1, 2, 3))),
        # Pages anywhere in memory.
        "memory": mean("kbuild", ("refill", 0, 0)),
        # Pages just freed, whose buddies are anybody's.
        "beside": mean("kbuild", ("drain", 0, 0)) - WARM_DRAIN,
    }


def of_lines(name: str, given: dict[str, Any]) -> Iterator[Row]:
    """Lines and hand-overs."""
    found = recorded()
    here = "refills of the recorded guest of this class (data/workload/native-*, holds)"
    dirty, memory = found["dirty"], found["memory"]
    near, far, dirty_by, dirty_from = given.get(
        "idle_dirty", [IDLE_DIRTY, IDLE_FAR, "assumed", "MLC on the class before is 60 ns"]
    )
    idle, memory_by, memory_from = given.get(
        "idle_memory", [IDLE_MEMORY, "assumed", "MLC on a server of 2022: 108 ns"]
    )
    if name != RECORDED:
        here = (
            f"{dirty_from}; in a hold {{times:.2f}} times as long, as Sapphire Rapids' guest "
            "(recorded) to its class's idle latency"
        )
    times, times_memory = dirty / IDLE_DIRTY, memory / IDLE_MEMORY
    at = here.format(times=times)
    origin = "derived" if name == RECORDED or dirty_by == "published" else "assumed"
    value = near * times
    pair = found["beside"]
    yield Row(
        "line_beside", "", near * pair / IDLE_DIRTY, 0, 1.3 * near * pair / IDLE_DIRTY, origin,
        "drains of the recorded build: pages just freed, buddies anybody's" if name == RECORDED
        else f"as on Sapphire Rapids' recorded guest; {dirty_from}",
    )  # fmt: skip
    yield Row("line_dirty", "llc", value, near, 1.3 * value, origin, at)
    yield Row("line_dirty", "socket", value, near, 1.3 * value, "assumed", "as within a cache")
    yield Row("line_dirty", "node", far * times, far, 1.3 * far * times, origin, at)
    yield Row("line_llc", "", value, near / 2, 1.3 * value, "assumed", "as a line that is dirty")
    at = here.format(times=times_memory)
    if name != RECORDED:
        at = at.replace(dirty_from, memory_from)
    origin = "derived" if name == RECORDED or memory_by == "published" else "assumed"
    yield Row("line_memory", "", idle * times_memory, idle, 1.2 * idle * times_memory, origin, at)
    for distance, line in (("core", 10.0), ("llc", near), ("socket", near), ("node", far)):
        yield Row(
            "handover", distance, 2 * line, line, 4 * line, "assumed",
            "two transfers of the lock's line, idle: seen free, and taken",
        )  # fmt: skip
    for operation, lines in (("mmap_lock", 1), ("page_counter", 3)):
        yield Row(
            operation, "", lines * near, 0, 2 * lines * near, "assumed",
            f"{lines} line{'s' * (lines > 1)} of another CPU, idle",
        )  # fmt: skip


def of_table(name: str, clear_ns: float, folio_ns: float) -> Iterator[Row]:
    """Holds and faults, from the machine's own latency table."""
    machine = machines.machine(name)
    for operation, (value, low, high) in class_holds([machine.hold_time]).items():
        at = "fits of its latency table" + (", both sides" if operation == "hold_fixed" else "")
        yield Row(operation, "", value, low, high, "derived", at)
    origin = "derived" if name == BARE else "assumed"
    longest = share_of_a_folio() * in_a_guest() * traced_page_ns(name)
    yield Row(
        "lru_page", "", folio_ns, folio_ns / 2, max(longest, 2 * folio_ns), origin,
        f"between {100 * share_of_a_folio():.1f} % of a page, as in a guest of a Zen 5 (data/"
        "workload/lru-holds), and the most that 27.7 million pages/s leave if they are of two "
        "nodes; page_fault1 on a Cascade Lake that nobody traces (high-order-pcp-2022)",
    )  # fmt: skip
    bare = rest_of_a_page(BARE, bare_page_ns(), clear_ns, folio_ns)
    traced = in_a_guest() * traced_page_ns(name)
    guest = max(rest_of_a_page(name, traced, clear_ns, longest), 2 * bare)
    yield Row(
        "fault_entry", "", bare, bare / 2, guest, origin,
        "a page of page_fault1 on a Cascade Lake that nobody traces (high-order-pcp-2022, 2 "
        "processes), less holds, unmap and clearing; at most as in the recorded guest",
    )  # fmt: skip


def share_of_a_folio() -> float:
    """A folio of a hold of the LRU lock, as a share of a page of page_fault1 in a guest.

    One goes to the lists, and leaves them, for each page; the middle one of all rounds.
    """
    table = load_workload("lru-holds").tables["holds"]
    return float(((table["added"] + table["removed"]) / table["samples"] / 2).median())


def folio_left_ns(rows: dict[tuple[str, str], Row]) -> float:
    """The most that a folio can take where two nodes' LRU locks let the most pages through [ns].

    A hold begins with what is not its folios', and with its hand-over.
    """
    kernel = release("v5.17")
    each_ns = 2e9 / float(_rates().max())
    begins_ns = (
        rows["lru_hold", ""].value
        + rows["lru_lines", ""].value * rows["line_dirty", "llc"].value
        + rows["handover", "llc"].value
    )
    return (each_ns - begins_ns * (1 / kernel.folio_batch + 1 / kernel.swap_cluster_max)) / 2


def _rates() -> pd.Series:
    """Pages of page_fault1 [1/s] on a Cascade Lake that nobody traces, by processes."""
    rates = load_published("high-order-pcp-2022").tables["page_fault1"].set_index("processes")
    return rates["vanilla_5.17rc3_hmean_score_per_s"]


def traced_page_ns(name: str) -> float:
    """A page of page_fault1 in the latency table."""
    return float(1e9 / machines.machine(name).latency["throughput_pages_per_s"].median())


def bare_page_ns() -> float:
    """A page of page_fault1 without a tracer, in no guest: there a fault walks two page tables."""
    return 2e9 / float(_rates()[2])


def rest_of_a_page(name: str, page_ns: float, clear_ns: float, folio_ns: float) -> float:
    """What a page takes beside the holds of either lock, unmap and clearing."""
    table = machines.machine(name).latency
    holds = (table["alloc_latency_avg_us"] + table["free_latency_avg_us"]) / table["batch"]
    return page_ns - 1e3 * float(holds.median()) - 2 * folio_ns - UNMAP_NS - clear_ns


def in_a_guest() -> float:
    """A page of page_fault1 in a guest without a tracer, as a share of one in the latency table."""
    rates = load_workload("native-kbuild").tables["rates"]
    one = rates[(rates["workload"] == "page_fault1") & (rates["processes"] == 1)]
    rate = one.set_index("parameter")["value"]["pages_per_second_per_process"]
    return 1e9 / float(rate) / traced_page_ns(RECORDED)


def sheet(name: str, told: dict[str, Any]) -> list[Row]:
    """All rows of a machine."""
    given = told[name]
    listed = {(r[0], r[1]): Row(*r) for r in told["class"]["rows"]}
    listed |= {(r[0], r[1]): Row(*r) for r in given["rows"]}
    found = {(r.operation, r.distance): r for r in of_lines(name, given)}
    found |= listed
    bare = listed | {(r.operation, r.distance): r for r in of_lines(BARE, told[BARE])}
    folio_ns = math.sqrt(share_of_a_folio() * bare_page_ns() * folio_left_ns(bare))
    made = of_table(name, listed["clear_page", ""].value, folio_ns)
    found |= {(r.operation, r.distance): r for r in made}
    return [found[row] for row in rows_of()]


def text(rows: list[Row]) -> str:
    lines = [[field["name"] for field in COSTS_RESOURCE["schema"]["fields"]]]
    units = {"clear_rate": "pages/s", "smt_share": "1", "zone_lines": "1", "lru_lines": "1",
             "lines_at_once": "1"}  # fmt: skip
    for r in rows:
        value, low, high = (f"{x:.4g}" for x in (r.value, r.low, r.high))
        source = f'"{r.source}"' if "," in r.source else r.source
        unit = units.get(r.operation, "ns")
        lines.append([r.operation, r.distance, value, unit, low, high, r.origin, source])
    return "".join(",".join(cells) + "\n" for cells in lines)


def _describe() -> None:
    """Bring the descriptors of all machines up to the schema of the sheet."""
    for path in sorted(DATA.glob("*/datapackage.json")):
        told = json.loads(path.read_text(encoding="utf-8"))
        told["resources"] = [
            dict(COSTS_RESOURCE) if r["name"] == "costs" else r for r in told["resources"]
        ]
        path.write_text(dump_json(told), encoding="utf-8")


def main() -> int:
    check = "--check" in sys.argv[1:]
    told = tomllib.loads((HERE / "cost_sheets.toml").read_text(encoding="utf-8"))
    wrong = 0
    if not check:
        _describe()
    for name in told:
        if name == "class":
            continue
        path = DATA / name / COSTS_RESOURCE["path"]
        made = text(sheet(name, told))
        if check:
            if not path.exists() or path.read_text(encoding="utf-8") != made:
                print(f"{path}: differs from what tools/cost_sheets.py makes", file=sys.stderr)
                wrong = 1
            continue
        data = load_hardware(name)
        path.write_text(made, encoding="utf-8")
        package = path.parent / "datapackage.json"
        package.write_text(
            dump_json(
                hardware_descriptor(
                    name,
                    f"Batch latency, {data.platform['title']}",
                    data.sources,
                    licence_note=LICENCE_NOTE,
                    costs=True,
                )
            ),
            encoding="utf-8",
        )
    return wrong


if __name__ == "__main__":
    sys.exit(main())
