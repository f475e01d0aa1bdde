"""What a report was made from: written beside it, and compared with what is there now."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pcpmodel.errors import InputError
from pcpmodel.files import read_json

__all__ = ["RECORD", "Record", "changes", "made_from", "remember"]

#: Name of the record in the directory of its report.
RECORD = "inputs.json"


@dataclass(frozen=True)
class Record:
    """What one report was made from.

    Attributes
    ----------
    run : str
        ``NOTEBOOK/DATA``.
    inputs : dict of str to str
        What it comes from -> digest.
    outputs : list of str
        Files of the report, as they appeared.
    title : str
        Of the notebook.
    version : str
        Of the package.
    data_digest : str
        Over all data that were read.
    conclusion : str
        What came out, in a sentence or two.
    """

    run: str
    inputs: dict[str, str]
    outputs: list[str]
    title: str
    version: str
    data_digest: str
    conclusion: str = ""


def remember(directory: Path, record: Record) -> None:
    """Write a record, the same bytes for the same record."""
    text = json.dumps(asdict(record), indent=1, sort_keys=True)
    (directory / RECORD).write_text(text, encoding="utf-8")


def made_from(report: Path) -> Record | None:
    """Return the record of a report; None if it is damaged or of something else.

    Parameters
    ----------
    report : Path
        Its directory: ``NOTEBOOK/DATA`` below where the reports are.
    """
    try:
        store = read_json(report / RECORD)
    except InputError:
        return None
    match store:
        case {
            "run": str(run),
            "inputs": dict(inputs),
            "outputs": list(outputs),
            "title": str(title),
            "version": str(version),
            "data_digest": str(digest),
        }:
            right = (
                run == f"{report.parent.name}/{report.name}"
                and all(isinstance(text, str) for text in [*inputs.values(), *outputs])
                and not any(name.startswith("/") or ".." in name.split("/") for name in outputs)
            )
            said = store.get("conclusion", "")
            right &= isinstance(said, str)
            return Record(run, inputs, outputs, title, version, digest, said) if right else None
    return None


def changes(report: Path, inputs: Mapping[str, str]) -> list[str]:
    """Say what changed since a report was made, one by one; nothing: it is up to date."""
    if not (report / RECORD).is_file():
        return ["never run"]
    record = made_from(report)
    if record is None:
        return [f"{RECORD} is unreadable"]
    missing = [
        f"output {Path(n).name} missing" for n in record.outputs if not (report / n).exists()
    ]
    return [*_what_changed(record.inputs, inputs), *missing]


def _what_changed(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Say what happened to the inputs; of data, the package is enough to name.

    A package of which one file was added or removed has changed; so has one that is there and was
    there before.
    """
    added, removed = now.keys() - before.keys(), before.keys() - now.keys()
    changed = {name for name in now.keys() & before.keys() if now[name] != before[name]}
    for thing in dict.fromkeys(map(_thing, sorted(added | removed | changed))):
        files = {name for name in now.keys() | removed if _thing(name) == thing}
        verb = "added" if files <= added else "removed" if files <= removed else "changed"
        yield f"{thing} {verb}"


def _thing(name: str) -> str:
    kind, _, rest = name.partition(" ")
    return " ".join([kind, "/".join(rest.split("/")[:2])]) if rest else kind
