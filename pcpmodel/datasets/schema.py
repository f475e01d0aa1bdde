"""Tables as Table Schema describes them: read strictly, every fault with its place.

A cell is what its field's type and constraints allow, a row has a cell for every field, and a
table keeps its ``rules``: ``min_rows`` (int), ``ascending`` (columns that rise from row to row)
and ``at_least`` (pairs of columns of which the first is nowhere below the second).  What is
refused is said by file, row (line of the file, header included), column, what was given and
what is allowed.  Of Table Schema itself only what is used in ``data/`` is read; `check_schema`
refuses the rest.

A reader of its own, because users write these tables by hand and in spreadsheets: a decimal comma,
a unit in the header or a mistyped column is called that, and nothing takes a second to import.
The tests hold every package to frictionless, too.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import csv
import difflib
import io
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcpmodel.cached import cached_property
from pcpmodel.errors import InputError
from pcpmodel.files import decode, has_surrogate

if TYPE_CHECKING:
    import pandas

__all__ = [
    "Table",
    "check_rules",
    "check_schema",
    "is_text",
    "kind_of",
    "parse_table",
    "read_value",
    "wrong_value",
]

#: Faults reported for one file; a file of another kind altogether has millions.
MAX_FAULTS = 100
#: Columns of a table.
MAX_FIELDS = 256
#: Longest numeral [characters].
MAX_NUMERAL = 40

_TYPES = ("string", "integer", "number")
_CONSTRAINTS = ("required", "unique", "minimum", "maximum", "enum")
_RULES = ("min_rows", "ascending", "at_least")

#: Takes a fault: what is wrong, and where.
Fault = Callable[..., None]


@dataclass
class Table:
    """A table as read: typed columns, the cells' text, and where each row stood."""

    path: Path
    schema: Mapping[str, Any]
    columns: dict[str, list[Any]]
    cells: list[list[str]]
    rows: list[int]

    @property
    def units(self) -> dict[str, str]:
        """Column to unit, where a unit is stated."""
        return {f["name"]: f["unit"] for f in self.schema["fields"] if "unit" in f}

    def __getitem__(self, column: str) -> list[Any]:
        """Cells of a column, as a frame gives them; None where nothing is stated."""
        return self.columns[column]

    def records(self) -> list[dict[str, Any]]:
        """Every row as a dict; None where nothing is stated."""
        return [
            dict(zip(self.columns, row, strict=True))
            for row in zip(*self.columns.values(), strict=True)
        ]

    def frame(self) -> pandas.DataFrame:
        """Return the typed table: int64 (Int64 where cells are missing), float64, str."""
        return self._frame.copy(deep=False)  # what is written to it is not written to others

    @cached_property
    def _frame(self) -> pandas.DataFrame:
        import pandas

        made = {}
        for column in self.schema["fields"]:
            values = self.columns[column["name"]]
            dtype = {"string": "object", "number": "float64"}.get(column["type"])
            if dtype is None:
                dtype = "Int64" if None in values else "int64"
            made[column["name"]] = pandas.Series(values, dtype=dtype)
        return pandas.DataFrame(made)


def parse_table(
    raw: bytes,
    path: str | Path,
    schema: Mapping[str, Any],
    rules: Mapping[str, Any],
    faults: list[InputError],
) -> Table:
    """Parse a CSV file strictly against a Table Schema and table rules.

    Parameters
    ----------
    raw : bytes
        Content of the file.
    path : path
        For the messages.
    schema, rules : dict
        Table Schema descriptor and the resource's ``rules``.
    faults : list of InputError
        Gets every fault, at most `MAX_FAULTS`; the table is of use only if
        there is none.
    """
    path = Path(path)
    fields = schema["fields"]
    table = Table(path, schema, {f["name"]: [] for f in fields}, [], [])
    found: list[InputError] = []

    def fault(message: str, row: int | None = None, column: str | None = None) -> None:
        found.append(InputError(message, file=path, row=row, column=column))

    try:
        text = decode(raw, path)
    except InputError as error:
        faults.append(error)
        return table
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    row = 1
    try:
        header = next(reader, None)
        if not header:
            fault(f"has no header; expected {','.join(table.columns)}", 1)
        elif _check_header(header, list(table.columns), fault):
            seen: dict[str, dict[Any, int]] = {}
            row = reader.line_num + 1
            for cells in reader:
                if len(found) >= MAX_FAULTS:
                    fault("more faults follow; none of them is listed", row)
                    break
                _read_row(table, cells, row, seen, fault)
                row = reader.line_num + 1
            if len(found) < MAX_FAULTS:
                _check_table(table, rules, fault)
    except csv.Error as error:
        fault(f"quotes are not balanced or not doubled ({error})", row)
    faults.extend(found)
    return table


_UNITS = {"ns", "us", "ms", "s", "usec", "nsec", "msec", "sec", "min", "h"}


def _stem(name: str) -> str:
    head, _, tail = name.rpartition("_")
    return head if tail.lower().rstrip("s") in {u.rstrip("s") for u in _UNITS} else name


def _check_header(header: list[str], expected: list[str], fault: Fault) -> bool:
    """Hold a header to the schema's; report how it differs."""
    if header == expected:
        return True
    if len(header) > 2 * MAX_FIELDS:
        fault(f"has {len(header)} columns; expected {','.join(expected)}", 1)
        return False
    if len(header) == 1 < len(expected):
        for mark, name in ((";", "semicolon"), ("\t", "tab"), ("|", "bar")):
            if mark in header[0]:
                fault(f"columns are separated by {mark!r} ({name}); allowed: comma", 1)
                return False
    missing = [name for name in expected if name not in header]
    for name in dict.fromkeys(header):
        if header.count(name) > 1:
            fault("column is there twice", 1, name)
        if name in expected:
            continue
        unit = [other for other in missing if _stem(other) == _stem(name)]
        near = unit or difflib.get_close_matches(name, missing, n=1)
        if unit:
            fault(f"unit in the header differs: expected {unit[0]!r}", 1, name)
        else:
            said = f"did you mean {near[0]!r}? Allowed" if near else "allowed"
            fault(f"unknown column; {said}: {', '.join(expected)}", 1, name)
        missing = [other for other in missing if other not in near]
    for name in missing:
        fault(f"column is missing; expected {','.join(expected)}", 1, name)
    if sorted(header) == sorted(expected):
        fault(f"columns in another order; expected {','.join(expected)}", 1)
    return False


def _read_row(
    table: Table, cells: list[str], row: int, seen: dict[str, dict[Any, int]], fault: Fault
) -> None:
    fields = table.schema["fields"]
    if len(cells) != len(fields):
        if not cells:
            return fault("line is empty", row)
        hint = "; a decimal comma?" if len(cells) > len(fields) else ""
        return fault(f"has {len(cells)} cells; expected {len(fields)}{hint}", row)
    missing = table.schema.get("missingValues", [""])
    table.cells.append(cells)
    table.rows.append(row)
    for column, cell in zip(fields, cells, strict=True):
        name, limits = column["name"], column.get("constraints", {})
        value: Any = None
        if cell in missing:
            if limits.get("required"):
                fault(f"is empty; allowed: {_allowed(column)}", row, name)
        else:
            value, message = read_value(cell, column)
            if message:
                fault(message, row, name)
        table.columns[name].append(value)
        if limits.get("unique") and value is not None:
            _check_twice(seen.setdefault(name, {}), value, row, name, fault)
    key = table.schema.get("primaryKey", [])
    if key:
        values = tuple(table.columns[name][-1] for name in key)
        if None not in values or len(key) > 1:
            _check_twice(seen.setdefault("", {}), values, row, ", ".join(key), fault)


def _check_twice(seen: dict[Any, int], value: Any, row: int, name: str, fault: Fault) -> None:
    if value in seen:
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        fault(f"{shown} is there twice, first in row {seen[value]}", row, name)
    else:
        seen[value] = row


_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ALLOWED = {"integer": "a whole number", "number": "a number with a point", "string": "a text"}


def read_value(text: str, column: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Read a value by its field's type and limits.

    Parameters
    ----------
    text : str
        As it stands in a cell.
    column : mapping
        Field descriptor of a Table Schema.

    Returns
    -------
    tuple of object and (str or None)
        The value and None, or None and what is wrong.
    """
    value, wrong = _parse_cell(text, column)
    wrong = wrong or _out_of_limits(value, column, text)
    return (None, wrong) if wrong else (value, None)


def _parse_cell(cell: str, column: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Return (value, None) or (None, what is wrong)."""
    type_ = column["type"]
    if type_ == "string":
        return cell, None
    shown = repr(cell if len(cell) <= MAX_NUMERAL else cell[:MAX_NUMERAL] + "...")
    given = f"given {shown}; allowed: {_allowed(column)}"
    pattern = _INTEGER if type_ == "integer" else _NUMBER
    if len(cell) > MAX_NUMERAL or not pattern.fullmatch(cell):
        if re.fullmatch(r"[+-]?[0-9]+,[0-9]+", cell):
            given += " (a decimal point, not a comma)"
        return None, given
    value = int(cell) if type_ == "integer" else float(cell)
    if math.isinf(value) or (type_ == "integer" and abs(value) >= 1 << 63):
        return None, given
    return value, None


def _out_of_limits(value: Any, column: Mapping[str, Any], cell: str | None = None) -> str | None:
    """Return what is wrong with a typed value, or None."""
    if value is None:
        return None
    limits = column.get("constraints", {})
    wrong = (
        ("minimum" in limits and value < limits["minimum"])
        or ("maximum" in limits and value > limits["maximum"])
        or ("enum" in limits and value not in limits["enum"])
        or ("pattern" in limits and not re.fullmatch(limits["pattern"], value))
    )
    shown = repr(value) if cell is None or column["type"] == "string" else cell
    return f"given {shown}; allowed: {_allowed(column)}" if wrong else None


def _allowed(column: Mapping[str, Any]) -> str:
    limits = column.get("constraints", {})
    if "enum" in limits:
        return "one of " + ", ".join(map(str, limits["enum"]))
    words = _ALLOWED[column["type"]]
    if "pattern" in limits:
        words += f" that matches {limits['pattern']}"
    if "minimum" in limits:
        words += f" from {limits['minimum']:g}"
    if "maximum" in limits:
        words += f" to {limits['maximum']:.15g}"
    unit = column.get("unit")
    return f"{words} [{unit}]" if unit else words


def _check_table(table: Table, rules: Mapping[str, Any], fault: Fault) -> None:
    """Hold a whole table to its rules."""
    least = rules.get("min_rows", 1)
    if len(table.rows) < least:
        fault(f"has {len(table.rows)} rows below the header; allowed: at least {least}")
    for name in rules.get("ascending", ()):
        last = None
        for row, value in zip(table.rows, table.columns[name], strict=True):
            if value is None:
                continue
            # An equal one is reported as there twice.
            if last is not None and value < last:
                fault(f"given {value} after {last}; allowed: rising from row to row", row, name)
            last = value
    for upper, lower in rules.get("at_least", ()):
        pairs = zip(table.rows, table.columns[upper], table.columns[lower], strict=True)
        for row, high, low in pairs:
            if high is not None and low is not None and high < low:
                fault(f"given {high:g}; allowed: at least {lower} = {low:g}", row, upper)


# ------------------------------------------------------- schemas themselves


def check_schema(schema: Any, where: str, fault: Fault) -> None:
    """Tell every fault of a Table Schema descriptor, and what of it is not read here."""
    if not (isinstance(schema, dict) and isinstance(schema.get("fields"), list)):
        return fault("expected an object with a list of fields", where)
    for key in schema.keys() - {"fields", "missingValues", "primaryKey"}:
        fault("not supported; allowed: fields, missingValues, primaryKey", f"{where}.{key}")
    missing = schema.get("missingValues", [""])
    if not (isinstance(missing, list) and all(isinstance(text, str) for text in missing)):
        fault("expected a list of texts", f"{where}.missingValues")
    if len(schema["fields"]) > MAX_FIELDS:
        return fault(
            f"has {len(schema['fields'])} fields; allowed: at most {MAX_FIELDS}", f"{where}.fields"
        )
    names = []
    for number, column in enumerate(schema["fields"]):
        at = f"{where}.fields[{number}]"
        if not (isinstance(column, dict) and is_text(column.get("name"))):
            fault("expected an object with a name", at)
            continue
        names.append(column["name"])
        if column.get("type") not in _TYPES:
            fault(f"{column.get('type')!r} is not one of {', '.join(_TYPES)}", f"{at}.type")
        elif column["type"] != "string" and not is_text(column.get("unit")):
            fault("a numeric field states its unit", f"{at}.unit")
        if not is_text(column.get("description")):
            fault("a field is described in words", f"{at}.description")
        limits = column.get("constraints", {})
        if not isinstance(limits, dict):
            fault("expected an object", f"{at}.constraints")
            continue
        for key, value in limits.items():
            if not _constraint_ok(key, value, column.get("type")):
                fault(
                    f"{value!r} not supported; allowed keys: {', '.join(_CONSTRAINTS)}",
                    f"{at}.constraints.{key}",
                )
    for name in sorted({name for name in names if names.count(name) > 1}):
        fault(f"field {name!r} is there twice", where)
    key = schema.get("primaryKey", [])
    if not (isinstance(key, list) and all(name in names for name in key)):
        fault(f"expected a list of fields, given {key!r}", f"{where}.primaryKey")


def _constraint_ok(key: str, value: Any, type_: Any) -> bool:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if key in ("required", "unique"):
        return isinstance(value, bool)
    if key in ("minimum", "maximum"):
        return numeric and type_ != "string"
    return key == "enum" and isinstance(value, list) and bool(value)


def check_rules(resource: Mapping[str, Any], where: str, fault: Fault) -> None:
    """Tell every fault of the rules that a table's resource carries."""
    rules = resource.get("rules", {})
    schema = resource["schema"]
    if not isinstance(rules, dict):
        return fault("expected an object", where)
    fields = schema.get("fields", []) if isinstance(schema, dict) else []
    numeric = {
        column.get("name")
        for column in fields
        if isinstance(column, dict)
        and is_text(column.get("name"))
        and column.get("type") in ("integer", "number")
    }

    def known(names: Any) -> bool:
        return isinstance(names, list) and all(is_text(n) and n in numeric for n in names)

    for key, value in rules.items():
        at = f"{where}.{key}"
        if key == "min_rows":
            ok = isinstance(value, int) and not isinstance(value, bool) and value > 0
        elif key == "ascending":
            ok = known(value)
        elif key == "at_least":
            ok = isinstance(value, list) and all(known(p) and len(p) == 2 for p in value)
        else:
            ok = False
        if not ok:
            fault(f"{value!r} not supported; allowed rules: {', '.join(_RULES)}", at)


def wrong_value(value: Any, column: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a value of JSON for a field, or None."""
    return _wrong_type(value, column["type"]) or _out_of_limits(value, column)


def _wrong_type(value: Any, type_: str) -> str | None:
    right = {
        "string": is_text(value),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
    }[type_]
    return None if right else f"given {value!r}; allowed: {_ALLOWED[type_]} or null"


def is_text(value: Any) -> bool:
    """Whether it is a string that says something, and that a file in UTF-8 can hold."""
    return isinstance(value, str) and bool(value.strip()) and not has_surrogate(value)


def kind_of(value: Any) -> str:
    """Name what a value of JSON is, for a message."""
    return {dict: "an object", list: "a list", str: "a text", type(None): "null"}.get(
        type(value), f"{value!r}"
    )
