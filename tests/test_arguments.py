"""Every public function refuses arguments of another kind than its signature says, by name."""

# SPDX-License-Identifier: GPL-2.0-only

import inspect
import pickle
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pcpmodel as pm
from pcpmodel.arguments import checked
from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import Release

ROOMS = {"": pm, **{f"{name}.": getattr(pm, name) for name in pm.__all__ if name[0].islower()}}
FUNCTIONS = {
    f"{room}{name}": getattr(module, name)
    for room, module in ROOMS.items()
    if inspect.ismodule(module)
    for name in module.__all__
    if inspect.isfunction(getattr(module, name))
}
ODD = (object(), b"x", {"a": object()}, 1j)


def parameters(function):
    return [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.annotation not in ("object", "Any")
    ]


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if parameters(f)])
def test_the_first_argument_of_another_kind_is_named(name):
    function = FUNCTIONS[name]
    first, *others = parameters(function)
    others = [p for p in others if p.default is p.empty]
    given = {p.name: ODD[0] for p in others if p.kind is p.KEYWORD_ONLY}
    by_place = [ODD[0] for p in others if p.kind is not p.KEYWORD_ONLY]
    for value in ODD:
        if first.kind is first.KEYWORD_ONLY:
            call = lambda v=value: function(**{first.name: v}, **given)  # noqa: E731
        else:
            call = lambda v=value: function(v, *by_place, **given)  # noqa: E731
        with pytest.raises(InputError, match=rf"\b({'|'.join(p.name for p in [first, *others])})="):
            call()


@pytest.mark.parametrize(
    ("function", "name", "value"),
    [
        (pm.compare, "seed", "x"),
        (pm.compare, "progress", 3),
        (pm.advise, "zoneinfo", 3),
        (pm.advise, "lscpu", [1]),
        (pm.limit, "page_size_kib", np.array([4, 16])),
        (pm.limit, "pages", np.array([1, 2])),
        (pm.limit, "p99_us", np.array(3)),
        (pm.numa.compare, "given", 0),
        (pm.numa.compare, "before", []),
        (pm.study.build_memory, "seeds", 3),
        (pm.study.build_memory, "seeds", []),
        (pm.study.tradeoff, "high_pages", ()),
        (pm.study.largest_drains, "releases", []),
        (pm.study.stranded, "seconds", "1"),
    ],
)
def test_an_argument_of_another_kind_is_named(function, name, value):
    with pytest.raises(InputError, match=rf"{name}=.*; allowed: ") as error:
        function(**{name: value})
    assert inspect.signature(function).parameters[name].annotation in str(error.value)


@pytest.mark.parametrize("call", [pm.replay, pm.policy, pm.recording])
def test_a_path_that_no_system_takes_is_refused_in_a_line(call):
    with pytest.raises(InputError, match=r"^a name of 500\d characters is too long: .{40}\.\.\.$"):
        call("/tmp/" + 5000 * "x")
    with pytest.raises(InputError, match=r"=.*; allowed: no NUL character$"):
        call("a\0b")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: pm.study.bulk_free(hosts={}), "hosts={}: at least one"),
        (lambda: pm.study.boot_drains(pages=0), "pages=0: at least 1"),
        (lambda: pm.table(pd.DataFrame(), digits=-1), "digits=-1: 0 or more"),
        (lambda: pm.Memory("v6.6", [], cpu_node=3), "cpu_node=3 is not a node for each CPU"),
    ],
)
def test_a_number_that_means_nothing_is_refused(call, said):
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        call()


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (pm.Tour, "machine", []),
        (pm.Tour, "workload", {}),
        (pm.Tour, "cpus", np.array([1, 2])),
        (pm.numa.Experiment, "pattern", np.array([1, 2])),
        (pm.numa.experiment, "page_release", []),
        (partial(pm.workload.Workload, "w", (), "pages"), "pages", None),
        (partial(pm.workload.Workload, "w", unit="pages", pages=1), "tasks", 3),
        (partial(pm.workload.Workload, "w", unit="pages", pages=1), "tasks", (None,)),
        (partial(pm.workload.Workload, "w", (), "pages", 1), "channels", 3),
        (partial(pm.workload.Workload, "w", (), "pages", 1), "made", 3),
    ],
)
def test_classes_hold_their_fields_to_it_too(make, name, value):
    with pytest.raises(InputError, match=rf"{name}=.*; allowed: "):
        make(**{name: value})


@pytest.fixture(scope="module")
def objects():
    """What public functions return and users call methods of, by name."""
    workload = pm.workload.page_fault1(2)
    result = pm.simulate(
        "v6.18", machine="ice-lake", workload=workload, seconds=1e-3, cpus=2, memory_gib=2
    )
    return {
        "machine": pm.machine("ice-lake"),
        "release": pm.release("v6.18"),
        "result": result,
        "spec": result.spec,
        "host": result.spec.host,
        "histogram": result.zone_histogram("wait"),
        "recording": pm.recording(Path(__file__).parent / "data" / "native-thp-2cpu"),
        "replay": pm.replay(Path(__file__).parent / "data" / "native-thp-2cpu"),
        "program": pm.workload.Program(),
        "tour": pm.Tour(),
    }


KINDS = ["machine", "release", "result", "spec", "host", "histogram", "recording", "replay"]
KINDS += ["program", "tour"]
MAY_BE_TAKEN = (-(2**31), 10**30, float("nan"), [], (1, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_methods_of_what_is_returned_hold_to_their_signatures_too(kind, objects):
    one, tried = objects[kind], 0
    for name in dir(type(one)):
        method = inspect.getattr_static(type(one), name)
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        own = list(inspect.signature(method).parameters.values())[1:]
        needed = [p for p in own if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        for parameter in own:
            if "Any" in parameter.annotation:
                continue
            for value in (*ODD, *MAY_BE_TAKEN):
                first = [value if p is parameter else ODD[0] for p in needed]
                if parameter.kind is parameter.VAR_POSITIONAL:
                    call = partial(getattr(one, name), *first, value)
                elif parameter in needed:
                    call = partial(getattr(one, name), *first)
                else:
                    call = partial(getattr(one, name), *first, **{parameter.name: value})
                tried += 1
                with suppress(InputError) if value in MAY_BE_TAKEN else pytest.raises(InputError):
                    got = call()
                    if hasattr(got, "__enter__"):
                        got.__enter__()
    assert tried


@pytest.mark.parametrize(
    ("name", "given"),
    [("core", -1), ("node_of", -1), ("node_of_zone", -1), ("zonelist", -1), ("core", 2)],
)
def test_a_cpu_that_is_not_there_is_not_counted_from_the_end(name, given, objects):
    with pytest.raises(InputError, match=rf"^(cpu|zone)={given} is outside 0\.\.[01]$"):
        getattr(objects["host"], name)(given)


@checked
def one_of_each(
    whole: "int" = 0,
    number: "float | None" = None,
    yes: "bool" = False,
    several: "Sequence[int]" = (),
    any_: "Iterable[str | Release]" = ("v6.6",),
    named: "Mapping[str, Sequence[float]] | None" = None,
    call: "Callable[[], None] | None" = None,
    **rest: "object",
) -> "str":
    """Takes one of each kind."""
    return "taken"


@pytest.mark.parametrize(
    "given",
    [
        {"whole": np.int64(3), "number": np.float32(1), "yes": np.bool_(True)},
        {"number": 3, "yes": 1, "several": np.array([1, 2]), "any_": iter("ab")},
        {"several": range(3), "any_": {"v6.6"}, "named": {"a": [1, 2.5]}, "call": print},
        {"number": float("nan"), "any_": [pm.release("v6.6")], "other": object()},
    ],
)
def test_what_is_as_good_is_taken(given):
    assert one_of_each(**given) == "taken"


@pytest.mark.parametrize(
    "given",
    [
        *({"whole": v} for v in (True, 1.0, "1", None, np.array([1]))),
        *({"number": v} for v in (True, "1", np.array([1.0]), 1j)),
        *({"yes": v} for v in ("no", 2, None, np.array([True, False]))),
        *({"several": v} for v in ("12", b"12", {1: 2}, {1}, iter([1]), [1, None], [[1]], 3)),
        *({"any_": v} for v in ("v6.6", [1], np.array(3), [])),
        *({"named": v} for v in ({"a": 1}, {1: [1]}, ["a"])),
        {"call": 3},
    ],
)
def test_what_is_not_is_refused(given):
    ((name, _),) = given.items()
    with pytest.raises(InputError, match=re.escape(f"{name}=")):
        one_of_each(**given)


def test_a_public_function_goes_to_other_processes():
    assert pickle.loads(pickle.dumps(pm.simulate)) is pm.simulate
    assert pickle.loads(pickle.dumps(pm.study.ladder)) is pm.study.ladder


def test_what_was_held_to_its_kind_once_lets_nothing_else_by():
    """A call with integers is not looked at again; one with anything else is."""

    @checked
    def least(a: "int", b: "int | None" = None, sure: "bool" = True):
        return min(a, b if b is not None else a)

    @checked
    def half(n: "int", most: "int" = 9):
        return min(n // 2, most)

    for function in (least, half):
        assert function(4, 6) == function(4, 6)
        for odd in (True, 4.0, "4", np.float64(4), None):
            with pytest.raises(InputError, match=r"^(a|n)="):
                function(odd, 6)
    with pytest.raises(InputError, match="sure=2"):
        least(4, 6, 2)
    with pytest.raises(InputError, match="most='6'"):
        half(4, most="6")
    with pytest.raises(TypeError, match="positional"):
        half(4, 6, 8)


def test_a_name_that_is_too_long_is_said_each_time(tmp_path):
    @checked
    def opened(n: "int"):
        (tmp_path / ("x" * 300)).open()

    for _ in range(2):  # the second call's argument is not looked at again
        with pytest.raises(InputError, match="characters is too long"):
            opened(1)
