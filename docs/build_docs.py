"""Build the documentation below a directory and try its examples; a warning is an error.

``python docs/build_docs.py OUT``.  Both builders run in one process, as what they share is made
once: imports, generated pages, doctrees.
"""

# SPDX-License-Identifier: GPL-2.0-only

import sys
from pathlib import Path

from sphinx.cmd.build import build_main


def main(out: str) -> int:
    """Exit code of the first builder that fails, or 0."""
    source = str(Path(__file__).parent)
    for builder, place in (("html", "docs"), ("doctest", "doctest")):
        trees = ["-d", f"{out}/doctrees"]
        flags = ["-W", "--keep-going", "-q", "-b", builder]
        code = build_main([*flags, *trees, source, f"{out}/{place}"])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
