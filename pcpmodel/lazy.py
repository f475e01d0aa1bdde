"""Public names of a package, loaded at first use, so that importing it stays quick."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import isfunction

__all__ = ["lazily"]


def lazily(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make a package's ``__getattr__`` and ``__dir__``.

    Its functions look at their arguments first, see `pcpmodel.arguments`.

    Parameters
    ----------
    package : str
        The package, ``__name__`` in it.
    names : mapping of str to str
        Name a user types -> module that has it, or that it is.

    Returns
    -------
    tuple of callable
    """

    def get(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(names[name])
        value = module if module.__name__ == f"{package}.{name}" else getattr(module, name)
        if isfunction(value):
            from pcpmodel.arguments import checked

            value = checked(value)
            value.__module__ = package  # where pickle finds it
        setattr(sys.modules[package], name, value)
        return value

    def known() -> list[str]:
        return sorted({*names, *(n for n in vars(sys.modules[package]) if n.startswith("__"))})

    return get, known
