"""What an object works out when it is asked for it first, and keeps.

Up to Python 3.11 `functools.cached_property` has one lock for all objects of a class.  A process
that is forked while a thread has it finds it taken, by nobody that is still there, and waits for
ever.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

__all__ = ["cached_property"]

T = TypeVar("T")


class cached_property(functools.cached_property[T]):  # noqa: N801 - as that is named
    """`functools.cached_property` as of Python 3.12: two threads may each work it out."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = nullcontext()
