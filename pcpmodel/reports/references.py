"""The sources of what a report shows, as BibTeX."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pcpmodel import __version__
from pcpmodel.errors import InputError
from pcpmodel.files import read_json
from pcpmodel.reports.plan import Run, project_data

__all__ = ["references", "sources"]

#: The program itself, as CITATION.cff has it, which lies in no wheel.
AUTHOR = "the pcpmodel developers"
TITLE = "pcpmodel: a laboratory for the Linux page allocator's per-CPU page lists"
RELEASED = "2026-11-27"

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}"})


def sources(run: Run) -> dict[str, list[Mapping[str, Any]]]:
    """Packages of ``data/`` that a run reads, as far as they state sources: name -> sources."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for place in run.reads.values():
        for top in (place, *place.parents):
            if (top / "datapackage.json").is_file():
                break
        else:
            continue
        try:
            said = read_json(top / "datapackage.json").get("sources")
        except (InputError, AttributeError):
            continue
        stated = [s for s in said if isinstance(s, dict)] if isinstance(said, list) else []
        found[f"{top.parent.name}/{top.name}"] = stated
    return found


def references(runs: Iterable[Run], project: Path = Path()) -> str:
    """Write a BibTeX entry for every source that the runs read, and for this program.

    Parameters
    ----------
    runs : iterable of Run
    project : path
        As in `pcpmodel.reports.plan.plan`.

    Returns
    -------
    str
        Keys are the names of the packages of ``data/``; where one has several sources, numbered.
    """
    project_data(project)  # named if it is not there
    packages: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        packages |= sources(run)
    entries = [
        _entry("pcpmodel", {
            "author": f"{{{AUTHOR}}}",
            "title": f"{{{TITLE}}}",
            "year": RELEASED[:4],
            "month": f"={_MONTHS[int(RELEASED[5:7]) - 1]}",
            "howpublished": "Computer program",
            "note": f"Version {__version__}",
        })
    ]  # fmt: skip
    for name, stated in sorted(packages.items()):
        key = name.rpartition("/")[2]
        for number, source in enumerate(stated, 1):
            entries.append(_entry(f"{key}-{number}" if len(stated) > 1 else key, _fields(source)))
    return "\n".join(entries)


def _fields(source: Mapping[str, Any]) -> dict[str, str]:
    said = {k: v for k, v in source.items() if isinstance(v, str) and v}
    fields = {"author": said.get("author", ""), "title": f"{{{_plain(said.get('title', ''))}}}"}
    fields["author"] = _plain(fields["author"])
    if found := re.match(r"(\d{4})(?:-(\d{2}))?", said.get("date", "")):
        fields["year"] = found[1]
        if found[2] and 1 <= int(found[2]) <= 12:
            fields["month"] = f"={_MONTHS[int(found[2]) - 1]}"
    if "message_id" in said:
        fields["howpublished"] = "Linux kernel mailing list"
        if "@" in said["message_id"]:
            fields["url"] = f"https://lore.kernel.org/r/{said['message_id'].strip('<>')}"
    notes = [f"Message-ID {said['message_id']}"] if "message_id" in said else []
    notes += [f"commit {said['commit']}"] if "commit" in said else []
    fields["note"] = _plain("; ".join(notes))
    return fields


def _plain(text: str) -> str:
    return " ".join(text.translate(_SPECIAL).split())


def _entry(key: str, fields: Mapping[str, str]) -> str:
    lines = [f"@misc{{{key},"]  # @software is no entry of BibTeX's own styles
    for name, text in fields.items():
        if text:  # a month is a word of BibTeX's own
            lines.append(f"  {name} = {text[1:] if text[0] == '=' else f'{{{text}}}'},")
    return "\n".join([*lines, "}", ""])
