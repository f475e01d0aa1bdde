"""Transcribe the batch latency tables into ``data/hardware/``.

    python tools/transcribe_hardware.py MAIL OUT

MAIL is the text of the list mail on the batch scale factor; OUT gets one
directory per machine.  Every number is copied as text, digit for digit.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
import sys
from pathlib import Path

from pcpmodel.datasets.packages import (
    LATENCY_RESOURCE,
    PLATFORM_FIELDS,
    PLATFORM_RESOURCE,
)
from pcpmodel.datasets.store import dump_json, hardware_descriptor

LICENCE_NOTE = (
    "Measured figures quoted from public kernel mailing lists; they belong to their authors. "
    "The compilation is under the licence of this project."
)
SOURCE = {
    "title": "[PATCH 04/10] mm: restrict the pcp batch scale factor to avoid too long latency",
    "author": "Huang Ying",
    "date": "2023-09-20",
    "message_id": None,
    "note": "Version 1 of the series, quoted in full in Huang's answer to Mel Gorman. The text "
    "at hand shows neither the message id of the mail nor id and date of the answer.",
}
#: Heading in the mail -> directory, title, microarchitecture.
MACHINES = {
    "Sapphire Rapids Server": ("sapphire-rapids", "Sapphire Rapids"),
    "Ice Lake Server": ("ice-lake", "Ice Lake"),
    "Cascade Lake Server": ("cascade-lake", "Cascade Lake"),
    "Commet Lake Desktop": ("comet-lake", "Comet Lake"),
    "Coffee Lake Desktop": ("coffee-lake", "Coffee Lake"),
}


def tables(mail: str) -> dict[str, list[list[str]]]:
    """Return heading -> rows of cells, as text."""
    lines = [re.sub(r"^>+ ?", "", line).strip() for line in mail.splitlines()]
    found: dict[str, list[list[str]]] = {}
    rows: list[list[str]] | None = None
    for heading, line in zip(["", *lines], lines, strict=False):
        if re.fullmatch("=+", line):
            rows = found.setdefault(heading, [])
        elif rows is not None and re.fullmatch(r"\d+(\s+[\d.]+){5}", line):
            rows.append(line.split())
    return {heading: rows for heading, rows in found.items() if rows}


def main(mail: Path, out: Path) -> None:
    """Write one package per machine."""
    found = tables(mail.read_text(encoding="utf-8"))
    if found.keys() != MACHINES.keys():
        raise SystemExit(f"expected the tables of {list(MACHINES)}, found {list(found)}")
    columns = [field["name"] for field in LATENCY_RESOURCE["schema"]["fields"]]
    for heading, (name, design) in MACHINES.items():
        title = heading.replace("Commet", "Comet")
        platform = {
            **dict.fromkeys(PLATFORM_FIELDS),
            "title": title,
            "kind": heading.split()[-1].lower(),
            "microarchitecture": design,
            "workload": "will-it-scale page_fault1; PCP high set to 2 * batch, "
            "scaling of the free batch disabled",
            "tool": "ftrace function_graph on the code with the zone lock held",
            "sources": [SOURCE],
        }
        directory = out / name
        directory.mkdir(parents=True, exist_ok=True)
        lines = [columns, *found[heading]]
        (directory / LATENCY_RESOURCE["path"]).write_text(
            "".join(",".join(cells) + "\n" for cells in lines), encoding="utf-8"
        )
        (directory / PLATFORM_RESOURCE["path"]).write_text(dump_json(platform), encoding="utf-8")
        descriptor = hardware_descriptor(
            name, f"Batch latency, {title}", [SOURCE], licence_note=LICENCE_NOTE
        )
        (directory / "datapackage.json").write_text(dump_json(descriptor), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
