"""Digests of the functions of known kernels' mm/page_alloc.c, and fields of structures, for
`pcpmodel tree`.

    python tools/tree_texts.py RELEASE=TREE...

writes pcpmodel/kernel/tree_texts.json and tree_fields.json anew.  No text is kept.
"""

# SPDX-License-Identifier: GPL-2.0-only

import json
import sys
from pathlib import Path

from pcpmodel.kernel.tree import BESIDE, FILES, KNOWN, NEEDED, STRUCTS
from pcpmodel.kernel.tree_source import Source, members

OUT = Path(__file__).parents[1] / "pcpmodel/kernel"


def main(arguments: list[str]) -> None:
    names = dict.fromkeys([*(n for some in NEEDED.values() for n in some), *KNOWN, *BESIDE])
    found: dict[str, dict[str, list[str]]] = {}
    fields: dict[str, set[str]] = {name: set() for name in STRUCTS.values()}
    for argument in arguments:
        release, _, tree = argument.partition("=")
        sources = [Source(f, Path(tree, f).read_bytes()) for f in FILES if Path(tree, f).exists()]
        for name in names:
            for item in next((d for s in sources if (d := s.defined(name))), []):
                if item.kind in ("function", "macro"):
                    found.setdefault(name, {}).setdefault(item.digest, []).append(release)
        for name, of in STRUCTS.items():
            for item in (i for s in sources for i in s.items.get(name, ()) if "{" in i.text):
                fields[of] |= {f for names, _, _ in members(item.text) for f in names}
    for file, made in (
        ("tree_texts", found),
        ("tree_fields", {n: sorted(f) for n, f in fields.items()}),
    ):
        (OUT / f"{file}.json").write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
