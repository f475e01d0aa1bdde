"""Digests of the functions of known kernels' mm/page_alloc.c, for `pcpmodel tree`.

    python tools/tree_texts.py RELEASE=TREE...

writes pcpmodel/kernel/tree_texts.json anew.  No text is kept.
"""

# SPDX-License-Identifier: GPL-2.0-only

import json
import sys
from pathlib import Path

from pcpmodel.kernel.tree import BESIDE, FILES, KNOWN, NEEDED
from pcpmodel.kernel.tree_source import Source

OUT = Path(__file__).parents[1] / "pcpmodel/kernel/tree_texts.json"


def main(arguments: list[str]) -> None:
    names = dict.fromkeys([*(n for some in NEEDED.values() for n in some), *KNOWN, *BESIDE])
    found: dict[str, dict[str, list[str]]] = {}
    for argument in arguments:
        release, _, tree = argument.partition("=")
        sources = [Source(f, Path(tree, f).read_bytes()) for f in FILES if Path(tree, f).exists()]
        for name in names:
            for item in next((d for s in sources if (d := s.defined(name))), []):
                if item.kind in ("function", "macro"):
                    found.setdefault(name, {}).setdefault(item.digest, []).append(release)
    OUT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
