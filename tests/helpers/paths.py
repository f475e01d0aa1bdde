"""Where things lie."""

# SPDX-License-Identifier: GPL-2.0-only

from pathlib import Path

#: Checkout.
ROOT = Path(__file__).parents[2]
#: The project's tables and recordings.
DATA = ROOT / "data"
TRACES = DATA / "traces"
TESTS = ROOT / "tests"
#: Sources beside the checkout, which users do not have.
SHARED = ROOT.parent / "shared"
