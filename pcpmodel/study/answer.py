"""What a question returns: tables, a conclusion in named pieces, a digest."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from pcpmodel.errors import unknown_name
from pcpmodel.files import digest_of, parse_json

__all__ = ["Answer"]

_FORMAT = "{:.6g}".format


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to one question; ``answer["name"]`` is one of its tables.

    Attributes
    ----------
    tables : mapping of str to pandas.DataFrame
        By name; the first is the answer, the others are views of it or what it was made of.
    said : mapping of str to str
        The conclusion in named pieces, sentences with numbers (Markdown).
    facts : mapping
        The same for programs: what ``--json`` prints; JSON values alone.  By default tables and
        conclusion.
    digest : str
        SHA-256: equal for equal answers.  Of the inputs where these decide, else of the facts.
    shown : tuple of str
        Tables that it shows by itself; by default all.
    """

    tables: Mapping[str, pd.DataFrame]
    said: Mapping[str, str]
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    digest: str = ""
    shown: tuple[str, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.digest:
            object.__setattr__(self, "digest", digest_of(self.as_dict()))

    @property
    def table(self) -> pd.DataFrame:
        """The first table."""
        return next(iter(self.tables.values()))

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self.tables:
            raise unknown_name("table of the answer", name, self.tables)
        return self.tables[name]

    @property
    def text(self) -> str:
        """The conclusion, in numbers (Markdown)."""
        return "\n".join(self.said.values())

    def as_dict(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        if self.facts:
            return dict(self.facts)
        tables = {name: records(table) for name, table in self.tables.items()}
        return {"tables": tables, "conclusion": dict(self.said)}

    def _shown(self) -> Iterable[tuple[str, pd.DataFrame]]:
        names = self.tables if self.shown is None else self.shown
        return ((name, self.tables[name]) for name in names if len(self.tables[name]))

    def __str__(self) -> str:
        parts = [
            f"{name}\n" + table.to_string(index=_named(table), float_format=_FORMAT, na_rep="-")
            for name, table in self._shown()
        ]
        return "\n\n".join([*parts, self.text.replace("**", "")])

    def _repr_markdown_(self) -> str:
        parts = [
            f"**{html.escape(name)}**\n\n"
            + table.to_html(index=_named(table), float_format=_FORMAT, na_rep="-", border=0)
            for name, table in self._shown()
        ]
        return "\n\n".join([*parts, self.text])


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for JSON; what is not known, or no number, is null."""
    plain = table.reset_index() if _named(table) else table
    return parse_json(plain.to_json(orient="records"))


def exact_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for JSON with all their digits, without the index; NaN, which it has not, is None."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


def _named(table: pd.DataFrame) -> bool:
    """Whether the index says something."""
    return any(name is not None for name in table.index.names)
