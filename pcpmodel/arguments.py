"""Arguments held to the kinds that the signature of a function names."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import errno
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from numbers import Real
from operator import index
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from pcpmodel.errors import InputError, truth

__all__ = ["checked", "checked_methods"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse what is not of the kind that a parameter's annotation names, before anything is done.

    So is a list of none where the default has some.  Ranges, names, and whatever else the kind does
    not say, are the function's to look at.

    Parameters
    ----------
    function : callable
        Its annotations are text.  A class is returned itself: what can be called of it looks.

    Returns
    -------
    callable

    Raises
    ------
    InputError
        When it is called: which argument, what was given, and what is allowed.
    """
    if isinstance(function, type):
        type.__setattr__(function, "__init__", checked(vars(function)["__init__"]))
        return checked_methods(function)
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.annotation is not p.empty]
    said = {p.name: p.annotation for p in parameters}
    where = inspect.unwrap(function).__globals__
    # At the first call: a method may name its class, which is not there before its methods are.
    hints = cache(lambda: get_type_hints(SimpleNamespace(__annotations__=said), where))
    # Types that were held to them already: of integers they say it all, but for truth values.
    whole = not any("bool" in text for text in said.values())
    held: set[tuple[type, ...]] = set()

    def hold(given: Mapping[str, Any]) -> None:
        for parameter in parameters:
            hint, allowed, usual = hints()[parameter.name], parameter.annotation, parameter.default
            some = isinstance(usual, tuple | range) and len(usual) > 0
            for name, value in _each(parameter, given):
                if not _is(value, hint):
                    raise InputError(f"{name}={value!r}; allowed: {allowed}")
                if isinstance(value, str | os.PathLike) and "\0" in str(value):
                    raise InputError(f"{name}={value!r}; allowed: no NUL character")
                if some and _does(len, value) and not len(value):
                    raise InputError(f"{name}={value!r}; allowed: {allowed}, of at least one")

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        types = tuple(map(type, args))
        if kwargs or types not in held:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError:
                return function(*args, **kwargs)  # which says it with its name
            hold(given)
            if whole and all(type(given.get(name)) in (int, NoneType) for name in said):
                held.add(types)
        try:
            return function(*args, **kwargs)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            name = str(error.filename)
            raise InputError(
                f"a name of {len(name)} characters is too long: {name[:40]}..."
            ) from None

    return call


def checked_methods(one: type[C]) -> type[C]:
    """Have the public methods of a class hold their arguments to their kinds, as `checked` does.

    Parameters
    ----------
    one : type
        One whose objects are made by functions of the package, not by its users.

    Returns
    -------
    type
        The class itself.
    """
    for name, method in list(vars(one).items()):
        if not name.startswith("_") and inspect.isfunction(method):
            type.__setattr__(one, name, checked(method))
    return one


def _each(parameter: inspect.Parameter, given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What was given for a parameter, with its name: ``*args`` and ``**kwargs`` one by one."""
    if parameter.name not in given:
        return []
    value = given[parameter.name]
    if parameter.kind is parameter.VAR_POSITIONAL:
        return [(parameter.name, one) for one in value]
    if parameter.kind is parameter.VAR_KEYWORD:
        return list(value.items())
    return [(parameter.name, value)]


def _is(value: Any, hint: Any) -> bool:
    """Whether a value is of a kind; what an iterator has to give is not taken from it."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is Any:
        return True
    if kind is UnionType:
        return any(_is(value, part) for part in parts)
    if kind is bool:
        return _does(truth, "", value)
    if kind is int:  # of NumPy, too
        return not isinstance(value, bool) and _does(index, value)
    if kind is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    if kind is Callable:
        return callable(value)
    if kind in (Iterable, Sequence):
        if isinstance(value, str | bytes | Mapping) or not _does(iter, value):
            return False
        if not hasattr(value, "__getitem__"):
            return kind is Iterable
        return all(_is(one, parts[0]) for one in value)
    if isinstance(value, Mapping) and issubclass(kind, Mapping):
        return all(_is(key, parts[0]) and _is(value[key], parts[1]) for key in value)
    if isinstance(value, tuple) and kind is tuple:
        return all(_is(one, parts[0]) for one in value)
    # A kernel tree stands for the release that it decides as.
    return isinstance(value, kind) or hasattr(value, f"as_{kind.__name__.lower()}")


def _does(act: Callable[..., object], *args: object) -> bool:
    try:
        act(*args)
    except (TypeError, ValueError):
        return False
    return True
