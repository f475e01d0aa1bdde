"""Random operations on kernel trees and on the releases that they should decide as.

    python tools/tree_oracle.py RELEASE=TREE... [--operations 100000000] [--wrong RELEASE]

Each tree twice: its whole operations, and the steps that the engines take.  Against the wrong
release, if one is given, it must differ.  Exit code 1 if not all is as said.
"""

# SPDX-License-Identifier: GPL-2.0-only

import argparse
import sys
import time

from pcpmodel.kernel.releases import release
from pcpmodel.kernel.tree import open_tree
from pcpmodel.kernel.tree_pages import compare

PART = 10_000_000


def alike(tree: object, state: object, operations: int) -> int:
    """Operations until the first difference, or all."""
    done = 0
    while done < operations:
        compared, found = compare(tree, state, min(PART, operations - done), seed=done // PART)
        done += compared
        if found:
            print(f"  differs after {done:,}: {found[0]['op']}", flush=True)
            return done
        print(f"  {done:,}", file=sys.stderr, flush=True)
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("pairs", nargs="+", metavar="RELEASE=TREE")
    parser.add_argument("--operations", type=int, default=100_000_000)
    parser.add_argument("--wrong", metavar="RELEASE")
    given = parser.parse_args()
    good = True
    for pair in given.pairs:
        name, _, path = pair.partition("=")
        tree = open_tree(path)
        steps = release(tree)
        for what, state in (("operations", release(name)), ("steps", steps)):
            began = time.process_time()
            done = alike(tree, state, given.operations)
            took = time.process_time() - began
            print(f"{path} as {state.name}: {done:,} {what} alike, {took:.0f} s", flush=True)
            good &= done == given.operations
        if given.wrong:
            good &= alike(tree, release(given.wrong), PART) < PART
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
