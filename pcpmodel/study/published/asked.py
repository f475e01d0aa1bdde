"""Published tables that are asked for by name: of older kernels, small loops, versions posted."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Mapping

from pcpmodel.study.published.drafts import DRAFTS
from pcpmodel.study.published.loops import LOOPS
from pcpmodel.study.published.older import OLDER
from pcpmodel.study.published.question import Answer

__all__ = ["ASKED"]

#: Table -> its rows and what is assumed.
ASKED: Mapping[str, Answer] = {**OLDER, **LOOPS, **DRAFTS}
