"""Which reports a test needs (fixture ``reported``)."""

# SPDX-License-Identifier: GPL-2.0-only

import pytest

#: What simulates little: a question, the rules, a recording, a patch.
FEW = ("00-start-here", "04-refill-and-drain-rules", "05-replay", "16-your-patch")
#: All of them, which `make report` makes too.
ALL = pytest.param((), id="all", marks=pytest.mark.long)
of_every_notebook = pytest.mark.parametrize("reported", [ALL], indirect=True)
