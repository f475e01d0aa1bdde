"""A frame as a reader of a notebook wants it."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pcpmodel.errors import InputError

__all__ = ["Table", "table"]

_STYLE = (
    ".pcpmodel-table tbody th {white-space: nowrap; vertical-align: top}"
    ".pcpmodel-table tbody th.long {white-space: normal; min-width: 16em}"
    ".pcpmodel-table td {max-width: 30em; white-space: normal}"
    ".pcpmodel-table thead th {white-space: normal; vertical-align: bottom}"
)


@dataclass(frozen=True, eq=False)
class Table:
    """A frame as a reader wants it, see :func:`table`.

    Attributes
    ----------
    frame : pandas.DataFrame
    digits : int
        After the point.
    """

    frame: pd.DataFrame
    digits: int = 2

    def _cell(self, value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, float):
            return f"{value:,.{self.digits}f}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    def _repr_html_(self) -> str:
        shown = self.frame.astype(object).map(self._cell, na_action="ignore")
        with pd.option_context("display.max_colwidth", None):
            page = shown.to_html(border=0, na_rep="")
        # Names may break at their joints, labels of rows only between words and if they are long.
        head, start, body = page.partition("<tbody>")
        head = re.sub(r"_(?=[^<>]*</th>)", "_<wbr>", head)
        body = re.sub(r"_(?=[^<>]*</td>)", "_<wbr>", body)
        body = re.sub(r"<th([^>]*>[^<]{33})", r'<th class="long"\1', body)
        return f'<div class="pcpmodel-table"><style>{_STYLE}</style>{head}{start}{body}</div>'

    def __repr__(self) -> str:
        return self.frame.round(self.digits).to_string()


def table(frame: pd.DataFrame, digits: int = 2) -> Table:
    """Show a frame whole: every row, every word, numbers with ``digits`` after the point.

    Parameters
    ----------
    frame : pandas.DataFrame
    digits : int
        After the point, 0 or more.

    Returns
    -------
    Table
        Shows itself in a notebook.

    Raises
    ------
    InputError
        For ``digits`` below 0.

    Examples
    --------
    >>> import pandas as pd
    >>> pm.table(pd.DataFrame({"wait_us": [0.1234]}), digits=3)
       wait_us
    0    0.123
    """
    if digits < 0:
        raise InputError(f"digits={digits}: 0 or more")
    return Table(frame, digits)
