"""A notebook of the project: what it reads, its parameters and their types, without running it."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.files import parse_json, read_json

__all__ = [
    "NoReportError",
    "Notebook",
    "Parameter",
    "notebooks",
    "placeholder",
    "read_notebook",
    "saved_figures",
]

#: Largest notebook [bytes]; one may be stored with its pictures.
MAX_NOTEBOOK_BYTES = 64 << 20

_TYPES = {"bool": bool, "float": float, "int": int, "list": list, "str": str}


class NoReportError(InputError):
    """A notebook that does not say what it reads: somebody's own, and no report."""


@dataclass(frozen=True)
class Parameter:
    """One line of a notebook's parameters cell: ``name: type = default``."""

    name: str
    type: str
    element: str | None  # of list[element]
    default: Any

    def accepts(self, value: Any) -> bool:
        """Tell whether ``value`` is of this type; nothing is converted."""
        if self.type == "list":
            elements = [self.element] if self.element else ["bool", "float", "int", "str"]
            return isinstance(value, list) and all(
                any(_is(element, item) for element in elements) for item in value
            )
        return _is(self.type, value)

    def parse(self, text: str) -> Any:
        """Read a value typed on the command line; strings are taken as they are."""
        if self.type == "str":
            return text
        try:
            value = parse_json(text)
        except InputError:
            value = None
        if self.type == "float" and _is("int", value):
            value = float(value)
        if not self.accepts(value):
            wanted = self.type if self.element is None else f"{self.type}[{self.element}]"
            example = {"bool": "true", "list": '["a", "b"]', "float": "0.5"}.get(self.type, "5")
            raise InputError(
                f"parameter {self.name} is {wanted}, such as {example}; got {text[:200]!r}"
            )
        return value


def _is(type_: str, value: Any) -> bool:
    """Compare exactly: True is no int, NaN no float."""
    return type(value) is _TYPES[type_] and (type_ != "float" or math.isfinite(value))


@dataclass(frozen=True)
class Notebook:
    """A notebook of the project, as far as it can be known without running it."""

    path: Path
    title: str
    inputs: tuple[str, ...]  # patterns under data/
    for_each: str | None  # the parameter that names the data set
    parameters: Mapping[str, Parameter]
    digest: str  # of what decides its result: cells and metadata, no outputs
    content: Mapping[str, Any]  # the file as it was then; this is what runs

    @property
    def name(self) -> str:
        return self.path.stem


def notebooks(project: Path) -> dict[str, Path]:
    """Return the project's notebooks by name, sorted.

    Raises
    ------
    InputError
        If the project has none.
    """
    found = {path.stem: path for path in sorted((project / "notebooks").glob("*.ipynb"))}
    if not found:
        raise InputError("holds no notebook; name the project directory", file=project)
    return found


def read_notebook(path: Path) -> Notebook:
    """Read what a notebook declares: inputs and typed parameters.

    Raises
    ------
    NoReportError
        If it is a notebook that declares nothing.
    InputError
        If it is not a notebook, or declares something else.
    """
    try:
        content = read_json(path, MAX_NOTEBOOK_BYTES)
    except InputError as error:
        raise InputError(f"is not a notebook: {error.message}", file=path, row=error.row) from None
    try:
        if "pcpmodel" not in content["metadata"] and isinstance(content["cells"], list):
            raise NoReportError(
                'is no report: its metadata has no \'pcpmodel\'. Add "pcpmodel": {"inputs": []}, '
                "with what it reads under data/, and a cell tagged 'parameters' "
                "(docs/data-format.md, A notebook of your own)",
                file=path,
            )
        cells = [(c["cell_type"], "".join(c["source"]), _tags(c)) for c in content["cells"]]
        declared = content["metadata"]["pcpmodel"]
        patterns, for_each = declared["inputs"], declared.get("for_each")
    except NoReportError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            "is not a notebook whose metadata has 'pcpmodel': {'inputs': [...]} "
            f"({type(error).__name__}: {error})",
            file=path,
        ) from None
    parameters = _parameters(path, [source for _, source, tags in cells if "parameters" in tags])
    _check_inputs(path, patterns, for_each, parameters)
    headings = (
        line.lstrip("# ").strip()
        for kind, source, _ in cells
        for line in source.splitlines()
        if kind == "markdown" and line.startswith("# ")
    )
    return Notebook(
        path=path,
        title=next(headings, path.stem),
        inputs=tuple(patterns),
        for_each=for_each,
        parameters=parameters,
        digest=hashlib.sha256(json.dumps([cells, declared], sort_keys=True).encode()).hexdigest(),
        content=content,
    )


def _tags(cell: Mapping[str, Any]) -> list[str]:
    tags = cell["metadata"].get("tags", [])
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def _check_inputs(
    path: Path, patterns: Any, for_each: Any, parameters: Mapping[str, Parameter]
) -> None:
    if not isinstance(patterns, list) or not all(isinstance(p, str) for p in patterns):
        raise InputError(f"inputs are a list of patterns under data/, not {patterns!r}", file=path)
    for pattern in patterns:
        if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
            raise InputError(f"input {pattern!r} leads out of data/", file=path)
        name = placeholder(pattern)
        if re.search("[{}]", pattern) and (
            name not in parameters or parameters[name].type != "str"
        ):
            raise InputError(
                f"input {pattern!r} does not end in /{{name}} of a str of the parameters cell",
                file=path,
            )
    if for_each is not None and [placeholder(p) for p in patterns].count(for_each) != 1:
        raise InputError(f"for_each {for_each!r} needs one input /{{{for_each}}}", file=path)


def placeholder(pattern: str) -> str | None:
    """Return the parameter that names the last part of an input, if one does."""
    found = re.fullmatch(r"[^{}]*/\{(\w+)\}", pattern)
    return found and found[1]


def _parameters(path: Path, sources: Sequence[str]) -> dict[str, Parameter]:
    if len(sources) != 1:
        raise InputError(f"has {len(sources)} cells tagged 'parameters'; needs one", file=path)
    try:
        lines = ast.parse(sources[0]).body
    except SyntaxError as error:
        raise InputError(f"parameters cell, line {error.lineno}: {error.msg}", file=path) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"parameters cell: is no Python: {error}", file=path) from None
    found = {}
    for line in lines:
        match line:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr()):
                pass
            case _:
                name = ""
        type_, _, element = ast.unparse(annotation).partition("[") if name else ("", "", "")
        element = element.removesuffix("]")
        parameter = Parameter(name, type_, element or None, None)
        try:
            default = ast.literal_eval(line.value) if name else None
            typed = type_ in _TYPES and (not element or (type_ == "list" and element in _TYPES))
            if not (typed and parameter.accepts(default)):
                raise ValueError
        except ValueError:
            raise InputError(
                f"parameters cell, line {line.lineno}: {ast.unparse(line)!r} is not "
                f"'name: type = value' with a type of {', '.join(_TYPES)} and a value of it",
                file=path,
            ) from None
        found[name] = Parameter(name, type_, element or None, default)
    return found


def _saved(source: str) -> dict[str, str]:
    if source.startswith("%%"):
        return {}
    drawn: dict[str, ast.expr] = {}
    found = {}
    for statement in ast.parse(source).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=variable)], value=value):
                drawn[variable] = value
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(attr="save"),
                    args=[figure, ast.Constant(value=str(name)), *_],
                )
            ):
                if isinstance(figure, ast.Name):
                    figure = drawn.get(figure.id, figure)
                calls = [n.attr for n in ast.walk(figure) if _of_figures(n)]
                found[name] = next((f for f in calls if f != "panels"), ast.unparse(figure))
    return found


def saved_figures(source: str, path: Path) -> dict[str, str]:
    """Say which figures a cell saves: name -> function that draws it.

    Raises
    ------
    InputError
        If the cell is no Python.
    """
    try:
        return _saved(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"a cell is no Python: {error}", file=path) from None


def _of_figures(node: ast.AST) -> bool:
    """Whether it is ``pm.figures.NAME``."""
    match node:
        case ast.Attribute(value=ast.Attribute(attr="figures")):
            return True
    return False
