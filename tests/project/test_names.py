"""What a docstring, a comment or a page of the documentation names is there."""

# SPDX-License-Identifier: GPL-2.0-only

import inspect
import json
import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import pytest

import pcpmodel as pm
from helpers.paths import ROOT

CODE = (".py", ".pyx", ".pxd", ".pyi")
#: Made by docs/generate.py of data and notebooks.
MADE = {line.strip() for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()}
SOURCES = sorted(
    str(p.relative_to(ROOT))
    for p in [
        *(ROOT / n for n in ("README.md", "CONTRIBUTING.md", "setup.py", "Makefile")),
        *(p for d in ("pcpmodel", "tools", "docs") for p in (ROOT / d).rglob("*")),
        *(p for d in ("tests", "examples") for p in (ROOT / d).rglob("*.py")),
        *(ROOT / "notebooks").glob("*.ipynb"),
    ]
    if (p.suffix in (*CODE, ".md", ".ipynb") or p.name == "Makefile")
    and not {str(p.relative_to(ROOT)), f"{p.parent.relative_to(ROOT)}/"} & MADE
)
TARGETS = set(
    re.search(r"^\.PHONY:(.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)[1].split()
)
COMMENT = re.compile(r"#.*")
#: In backticks, or a line of commands.
MAKE = re.compile(r"(?:(?<=`)make |^ *make (?=[^ ]+ *(?:\w+=.*|#.*)?$))([a-z-]+)", re.MULTILINE)
FILE = re.compile(r"(?<![\w./*{}<>$-])((?:[\w-]+/)*[\w-]+\.(?:pyx?|pxd|pyi|toml|ipynb|md))\b(?!/)")
DOTTED = re.compile(r"`~?([A-Za-z_]\w*(?:\.\w+)+)(?:\(\))?`")
#: Sysctls, releases, files of a recording and of a data package, names that stand for any.
OTHER = re.compile(
    r"vm\..*|v\d+\.\d+|\w+\.(before|after|series|snapA|txt|csv|html)|(.*\.)?[A-Z]{3,}(\..*)?"
)


def split(name: str) -> tuple[str, str]:
    """Prose and code of a file."""
    text = (ROOT / name).read_text("utf-8")
    if name.endswith(".md"):
        return text, ""
    if name.endswith(".ipynb"):
        cells = json.loads(text)["cells"]
        return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown"), ""
    if name.endswith("Makefile"):
        return "\n".join(COMMENT.findall(text)), ""
    docs = re.findall(r'"""(.*?)"""', text, re.DOTALL)
    code = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    return "\n".join([*docs, *COMMENT.findall(code)]), COMMENT.sub("", code)


@cache
def modules() -> dict[str, ModuleType]:
    """Every module of the package, and the package."""
    names = [m.name for m in walk_packages(pm.__path__, "pcpmodel.")]
    return {"pm": pm, "pcpmodel": pm} | {name: import_module(name) for name in names}


@cache
def files() -> set[str]:
    """Every file of the repository, as its path and all ends of that."""
    parts = [
        p.relative_to(ROOT).parts
        for p in ROOT.rglob("*")
        if not {".venv", "build", ".git"} & set(p.relative_to(ROOT).parts[:1])
    ]
    return {"/".join(p[k:]) for p in parts for k in range(len(p))}


def has(thing: Any, names: list[str]) -> bool:
    """Whether the attributes are there, each of the one before."""
    for i, name in enumerate(names):
        if not hasattr(thing, name):
            # Only an object has it, not its class.
            fields = {**getattr(thing, "__annotations__", {}), "": None}
            made = inspect.isclass(thing) and thing.__module__ in modules()
            source = Path(modules()[thing.__module__].__file__) if made else None
            in_source = source and source.suffix == ".py" and f"self.{name} " in source.read_text()
            return i == len(names) - 1 and (name in fields or bool(in_source))
        thing = getattr(thing, name)
    return True


def known(name: str, code: str) -> bool:
    """Whether a dotted name is one of the package, of another module, or of the code beside it."""
    parts = name.split(".")
    ours = False
    for path, module in modules().items():
        tail = path.split(".")
        for k in range(len(tail)):
            if parts[: len(tail) - k] == tail[k:]:
                ours = True
                if has(module, parts[len(tail) - k :]):
                    return True
        if hasattr(module, parts[0]):
            ours = True
            if has(module, parts):
                return True
    words = set(re.findall(r"\w+", code))
    if "cdef " in code:  # fields of structs cannot be asked for
        return parts[-1] in words
    if ours:
        return False
    try:
        return parts[0] in words or find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("source", SOURCES)
def test_what_the_text_names_is_there(source: str) -> None:
    prose, code = split(source)
    assert [t for t in MAKE.findall(prose) if t not in TARGETS] == []
    assert [f for f in FILE.findall(prose) if f not in files()] == []
    dotted = {d for d in DOTTED.findall(prose) if not OTHER.fullmatch(d) and d not in files()}
    assert [d for d in sorted(dotted) if not FILE.fullmatch(d) and not known(d, code)] == []


@pytest.mark.parametrize("name", ["simulation.nothing", "experiment.Experiment", "sizing.nothing"])
def test_a_name_that_is_not_there_is_seen(name: str) -> None:
    assert not known(name, "")


def test_targets_and_files_are_seen() -> None:
    text = "Run `make build`, or::\n\n    make report\n\nSee pcpmodel/spec.py and kernel/zone.py."
    assert MAKE.findall(text) == ["build", "report"]
    assert [f in files() for f in FILE.findall(text)] == [False, True]
