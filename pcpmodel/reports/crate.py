"""RO-Crate metadata of a report: what was read, what ran, with what, and what came of it.

RO-Crate 1.1 (https://w3id.org/ro/crate/1.1): one JSON-LD file beside the report.  It knows no
time of day: the same report has the same bytes.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pcpmodel.files import read_bytes

__all__ = ["CRATE", "write_crate"]

#: Name of the file.
CRATE = "ro-crate-metadata.json"
_PROFILE = "https://w3id.org/ro/crate/1.1"
_LICENCE = "https://spdx.org/licenses/GPL-2.0-only"
_TYPES = {
    ".csv": "text/csv",
    ".html": "text/html",
    ".ipynb": "application/x-ipynb+json",
    ".json": "application/json",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".tex": "application/x-tex",
}


def write_crate(
    directory: Path,
    outputs: Sequence[str],
    *,
    run: str,
    title: str,
    conclusion: str,
    date: str,
    version: str,
    inputs: Mapping[str, str],
    made_from: Mapping[str, Any],
    sources: Mapping[str, Sequence[Mapping[str, Any]]],
) -> None:
    """Describe a report in ``ro-crate-metadata.json``.

    Parameters
    ----------
    directory : path
        Of the report.
    outputs : sequence of str
        Its files, below that.
    run, title, conclusion : str
        ``NOTEBOOK/DATA``, the notebook's title, what came out in a sentence.
    date : str
        Day from which the code is, ``YYYY-MM-DD``.
    version : str
        Of the package.
    inputs : mapping of str to str
        What it comes from -> digest, or version.
    made_from : mapping
        ``notebook``, ``parameters``, ``commit``.
    sources : mapping of str to sequence
        Packages of data read -> what they state as their sources.
    """
    parts = [_file(directory, name) for name in outputs]
    reads, packages = [], []
    for name, digest in sorted(inputs.items()):
        kind, _, rest = name.partition(" ")
        if kind in ("data", "notebook"):
            what = rest or f"notebooks/{made_from['notebook']}.ipynb"
            reads.append(_thing(f"#input/{what}", "CreativeWork", what, sha256=digest))
        elif kind == "environment":
            program = _thing(f"#{rest}", "SoftwareApplication", rest, softwareVersion=digest)
            packages.append(program)
    values = [
        _thing(f"#parameter/{name}", "PropertyValue", name, value=json.dumps(value))
        for name, value in sorted(made_from["parameters"].items())
    ]
    cited = [
        _thing(f"#source/{name}/{n}", "CreativeWork", source.get("title") or name, **_cited(source))
        for name, stated in sorted(sources.items())
        for n, source in enumerate(stated, 1)
    ]
    own = _thing("#pcpmodel", "SoftwareApplication", "pcpmodel", softwareVersion=version,
                 license=_at(_LICENCE))  # fmt: skip
    if made_from.get("commit"):
        own["identifier"] = f"git commit {made_from['commit']}"
    used = _all([own, *packages])
    action = _thing("#run", "CreateAction", f"execution of {run}", instrument=used,
                    object=_all([*reads, *values]), result=_all(parts))  # fmt: skip
    root = _thing("./", "Dataset", f"{title} ({run})", description=conclusion or title,
                  datePublished=date, license=_at(_LICENCE), hasPart=_all(parts),
                  mentions=_at("#run"), citation=_all(cited))  # fmt: skip
    about = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "conformsTo": _at(_PROFILE),
        "about": _at("./"),
    }
    licence = _thing(_LICENCE, "CreativeWork", "GPL-2.0-only")
    graph = [about, root, action, own, licence, *packages, *reads, *values, *cited, *parts]
    crate = {"@context": f"{_PROFILE}/context", "@graph": graph}
    text = json.dumps(crate, indent=1, ensure_ascii=False) + "\n"
    (directory / CRATE).write_text(text, encoding="utf-8")


def _at(name: str) -> dict[str, str]:
    return {"@id": name}


def _all(things: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [_at(thing["@id"]) for thing in things]


def _thing(at: str, kind: str, name: str, **rest: Any) -> dict[str, Any]:
    return {"@id": at.replace(" ", "%20"), "@type": kind, "name": name, **rest}


def _cited(source: Mapping[str, Any]) -> dict[str, Any]:
    names = {"author": "author", "date": "datePublished", "message_id": "identifier"}
    return {names[key]: said for key, said in source.items() if key in names and said}


def _file(directory: Path, name: str) -> dict[str, Any]:
    content = read_bytes(directory / name)
    suffix = Path(name).suffix
    kind = _TYPES.get(suffix, "application/octet-stream")
    digest = hashlib.sha256(content).hexdigest()
    return _thing(name, "File", name, encodingFormat=kind, contentSize=str(len(content)),
                  sha256=digest)  # fmt: skip
