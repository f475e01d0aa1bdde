"""Numbers in sentences, as answers and captions tell them."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

__all__ = ["counted", "decimals", "number"]


def counted(n: float, thing: str, plural: str = "s") -> str:
    """``1 thread`` or ``2 threads``; *plural*: what several have at the end."""
    return f"{n:g} {thing}{'' if n == 1 else plural}"


def decimals(value: float) -> int:
    """Decimals that show a value of 1 and more to three digits, a larger one to the unit."""
    return 0 if value >= 100 else 1 if value >= 10 else 2


def number(x: float, digits: int = 3) -> str:
    """``0.012``, ``1.2`` or ``12,345``: so many digits, or all before the point."""
    return f"{x:,.{digits}g}" if abs(x) < 1000 else f"{x:,.0f}"
