"""In which states a kernel tree decides otherwise than a release: the meaning of a patch."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from random import Random
from typing import Any

from pcpmodel.kernel.lists import pindex_to_order
from pcpmodel.kernel.releases import Release, Rules, release, releases
from pcpmodel.kernel.sizing import SizeError, zone_set_pageset_high_and_batch
from pcpmodel.kernel.tree import Tree
from pcpmodel.kernel.tree_pages import ARGUMENTS, compare, sizing, try_once
from pcpmodel.kernel.tree_rules import TreeRelease, known_texts, near
from pcpmodel.kernel.zone import flags_set

__all__ = ["OPERATIONS", "Difference", "closest", "decides_as", "differences"]

#: Random operations that a tree and a release must do alike to count as equal.
OPERATIONS = 10_000_000

_TYPES = ("unmovable", "movable", "reclaimable")

# What is looked at first, of each operation; the function that decides it, and all else.
_WHO = {
    "alloc": (
        (("free_count", "free_factor"), "rmqueue_pcplist"),
        (("high", "alloc_factor", "asked"), "nr_pcp_alloc"),
        (("refills",), "rmqueue_bulk"),  # the same in more holds
        (("got", "count", "lists", "count_min"), "__rmqueue_pcplist"),
        ((), "rmqueue_pcplist"),
    ),
    "free": (
        (("alloc_factor", "free_count", "flags"), "commit"),
        (("drains",), "nr_pcp_high"),
        (("pages", "free_factor"), "nr_pcp_free"),
        (("high",), "nr_pcp_high"),
        (("holds",), "commit"),
        (("count", "lists", "blocks"), "free_pcppages_bulk"),
        ((), "commit"),
    ),
    "decay": (
        (("high", "pages", "holds", "count_min"), "decay_pcp_high"),
        (("count", "lists", "blocks"), "free_pcppages_bulk"),
        ((), "decay_pcp_high"),
    ),
    "drain_zone_pages": (
        (("pages", "holds"), "drain_zone_pages"),
        (("count", "lists", "blocks"), "free_pcppages_bulk"),
        ((), "drain_zone_pages"),
    ),
    "drain_pages_zone": (
        (("pages", "holds"), "drain_pages_zone"),
        (("count", "lists", "blocks"), "free_pcppages_bulk"),
        ((), "drain_pages_zone"),
    ),
}


# Who may have a part in it, too: whose text is not the release's is named before whose is.
_ALSO = {
    "alloc": ("nr_pcp_alloc", "__rmqueue_pcplist", "rmqueue_pcplist", "rmqueue_bulk"),
    "free": ("nr_pcp_high", "nr_pcp_free", "commit", "free_pcppages_bulk"),
    "decay": ("decay_pcp_high", "free_pcppages_bulk"),
    "drain_zone_pages": ("drain_zone_pages", "free_pcppages_bulk"),
    "drain_pages_zone": ("drain_pages_zone", "free_pcppages_bulk"),
}
_LISTS = ("order_to_pindex", "pindex_to_order")

# Who moves what a hold moves, which is always compared.
_BULK = {"alloc": "rmqueue_bulk"}
#: Who takes a block off a list, or adds one, itself: what is passed otherwise then, and who.
_AT_AN_END = {
    "alloc": ("blocks leave a list at its", ("__rmqueue_pcplist", "rmqueue_pcplist")),
    "free": ("blocks come to a list at its", ("commit",)),
}
_MOVED = ("count", "lists", "drains", "pages", "holds", "blocks", "asked", "refills", "got")


@dataclass(frozen=True)
class Difference:
    """One operation in which a tree and a release differ, from as small a state as was found.

    Attributes
    ----------
    function : str
        That decides what differs; one of the tree's, but for decay_pcp_high() where it has none.
    operation : str
        In words.
    state : dict
        Fields of struct per_cpu_pages before it, and the blocks on each list that is not empty.
    ours, theirs : dict
        What the release and the tree make of it: what differs, by name.
    """

    function: str
    operation: str
    state: dict[str, Any]
    ours: dict[str, Any]
    theirs: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {
            "function": self.function,
            "operation": self.operation,
            "state": self.state,
            "ours": self.ours,
            "theirs": self.theirs,
        }


# Zones [pages of 4 KiB], CPUs of their node and of the machine, fractions of a zone, and whether a
# CPU comes online, in which sizes are compared.
_ZONES = tuple(m << n for n in range(12, 25, 2) for m in (4, 5, 6, 7))
_CPUS = ((4, 8), (56, 224), (0, 8), (1, 1), (1, 8), (2, 2), (112, 224), (224, 448))
_FRACTIONS = (0, 8, 1000, 4096)
_SIZES = 300  # further ones, at random


#: Pages of the zone, CPUs of its node and of the machine, fraction, whether a CPU comes online
_Machine = tuple[int, tuple[int, int], int, int]


@cache
def _machines() -> tuple[_Machine, ...]:
    """Those in which sizes are compared, the smallest zone first."""
    rng = Random(1)
    made = {(zone, cpus, fraction, 0) for zone in _ZONES for cpus in _CPUS[:3]
            for fraction in _FRACTIONS[:2]}  # fmt: skip
    for k in range(_SIZES + len(_ZONES)):
        zone = _ZONES[k] if k < len(_ZONES) else int(2 ** rng.uniform(14, 26)) | rng.getrandbits(1)
        made.add((zone, rng.choice(_CPUS), rng.choice(_FRACTIONS), int(rng.random() < 0.25)))
    return tuple(sorted(made))


def _sized(rules: Rules, machine: _Machine) -> dict[str, int]:
    """Sizes of the lists; the watermarks lie a thousandth of the zone apart."""
    pages, (node_cpus, cpus), fraction, cpu_online = machine
    return zone_set_pageset_high_and_batch(
        pages, pages // 800, rules, node_cpus=node_cpus, online_cpus=cpus, cpu_online=cpu_online,
        high_fraction=fraction,
    )._asdict()  # fmt: skip


#: Each tree is compared with each release; of rules that a tree sizes by equal ones may not be.
_sized_by_release = cache(_sized)


def sizes_differ(tree: Tree, base: Release) -> Difference | None:
    """The smallest zone whose lists the tree sizes otherwise than a release, if there is one.

    The watermark is that of a zone whose watermarks lie a thousandth of it apart
    (watermark_scale_factor=10).
    """
    own = replace(base.rules)
    object.__setattr__(own, "sizing", partial(sizing, tree))
    sized = _sized if base.rules.sizing else _sized_by_release
    for machine in _machines():
        pages, (node_cpus, cpus), fraction, cpu_online = machine
        zone = {"managed": pages, "low_wmark": pages // 800, "node_cpus": node_cpus, "cpus": cpus}
        ours = sized(base.rules, machine)
        try:
            theirs = _sized(own, machine)
        except SizeError as error:
            return Difference(
                error.function, f"size the lists of a zone of {pages:,} pages",
                zone, {"sizes": ours}, {"sizes": error.message},
            )  # fmt: skip
        unlike = [name for name in ours if ours[name] != theirs[name]]
        if "high_min" not in tree.fields and "high_max" in unlike:
            unlike.remove("high_max")  # which it does not have
        if unlike:
            both = "pageset_set_high_and_batch"
            who = ["zone_batchsize"] if "batch" in unlike else ["zone_highsize"]
            who = [both, *who] if fraction else [*who, both]
            there = [n for n in who if n in tree.functions] or ["zone_batchsize"]
            zone |= {"percpu_pagelist_high_fraction": fraction} if fraction else {}
            zone |= {"cpu_online": cpu_online} if cpu_online else {}
            others = [n for n in ("zone_batchsize", "zone_highsize", both) if n in tree.functions]
            return Difference(
                next((n for n in (*there, *others) if _own_text(tree, base, n)), there[0]),
                f"size the lists of a zone of {pages / 256:,.8g} MiB", zone,
                {n: ours[n] for n in unlike}, {n: theirs[n] for n in unlike},
            )  # fmt: skip
    return None


def decides_as(tree: Tree, n: int = OPERATIONS, seed: int = 1) -> tuple[list[Release], int]:
    """Releases that size and decide alike in n random operations, and how many were compared."""
    equal, done = [], 0
    for candidate in releases():
        if sizes_differ(tree, candidate):
            continue
        for part, most in ((min(n, 50_000), 1), (n, 1)):
            compared, found = compare(tree, candidate, part, seed, most)
            done += compared
            if found:
                break
        else:
            equal.append(candidate)
    return equal, done


def closest(tree: Tree, n: int = 500_000, seed: int = 1) -> Release:
    """Of the nearest releases the one beside which the fewest functions decide otherwise."""

    def unlike(name: str) -> int:
        base = release(name)
        found = compare(tree, base, n, seed, 20)[1]
        return len({_function(tree, base, example) for example in found})

    return release(min(reversed(near(tree)), key=unlike))


def differences(
    tree: Tree, base: str | Release, n: int = OPERATIONS, seed: int = 1
) -> tuple[list[Difference], int]:
    """One difference for each function that decides otherwise, and the operations compared."""
    base = release(base)
    done, found = compare(tree, base, n, seed, 500)
    smallest: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}
    for example in found:
        who = _function(tree, base, example)
        size = _size(example)
        if who not in smallest or size < smallest[who][0]:
            smallest[who] = size, example
    made = [_smallest(tree, base, who, example) for who, (_, example) in smallest.items()]
    sized = sizes_differ(tree, base)
    return made + ([sized] if sized else []), done


def _smallest(tree: Tree, base: Release, who: str, example: dict[str, Any]) -> Difference:
    """A difference from as small a state as was found; what does not show of that is told."""
    shrunk = _shrunk(tree, base, who, example)
    found = _difference(shrunk, who)
    if "before" in shrunk and try_once(tree, base, shrunk) is None:
        own = {"and": "what the tree keeps of its own, as earlier operations left it"}
        return replace(found, state={**found.state, **own})
    return found


def _outcome(after: dict[str, Any]) -> dict[str, Any]:
    """What can differ, of one side."""
    holds = [h for h in after["holds"] if h["pages"] or h["asked"]]
    return {
        **after,
        "holds": [h["pages"] for h in holds if h["pages"]],
        "blocks": [h["blocks"] for h in holds if h["pages"]],
        "refills": [h["asked"] for h in holds if h["asked"]],
        "drains": any(h["pages"] for h in holds),
        "pages": sum(h["pages"] for h in holds),
        "asked": sum(h["asked"] for h in holds),
        "got": sum(h["got"] for h in holds),
    }


def _unlike(example: dict[str, Any]) -> list[str]:
    """What differs, of what both kernels have."""
    ours, theirs = _outcome(example["release"]), _outcome(example["tree"])
    compared = {*_MOVED, *example["compared"]}
    return [name for name in ours if name in compared and ours[name] != theirs[name]]


def _own_text(tree: Tree, base: Release, name: str) -> bool:
    """Whether a function's text is another than the base's; if nobody knows that, than any."""
    known = known_texts().get(name, {})
    if isinstance(base, TreeRelease):
        texts = {base.tree.functions[name].digest} if name in base.tree.functions else set()
    else:
        texts = {text for text, names in known.items() if base.name in names} or set(known)
    return name in tree.functions and tree.functions[name].digest not in texts


def _function(tree: Tree, base: Release, example: dict[str, Any]) -> str:
    """The function that decides what is different, of those that the tree has.

    Of several that may the one with a text of its own.  What a hold moves is decided by who asks
    for it, but where of both only the one that moves has a text of its own.
    """
    if example["op"] not in _WHO:
        return str(example["op"])
    op, unlike = example["op"], set(_unlike(example))
    bulk = _BULK.get(op, "free_pcppages_bulk")
    who = next(f for names, f in _WHO[op] if not names or not unlike.isdisjoint(names))
    if example["passed"] and not unlike:
        end, itself = _AT_AN_END.get(op, ("", ()))
        alone = {ARGUMENTS[place][0] for place in example["passed"]} == {end}
        there = (n for n in itself if n in ("commit", *tree.functions))
        who = next(there, bulk) if alone else bulk
    also = [bulk] if unlike <= {*_MOVED, "count_min"} else []
    commit = next((n for n in tree.functions if n.endswith("_page_commit")), "")
    first, *others = [commit if n == "commit" else n for n in (who, *also, *_ALSO[op], *_LISTS)]
    own = next((n for n in (first, *others) if _own_text(tree, base, n)), "")
    callers = (commit,) if op == "free" else ("__rmqueue_pcplist", "rmqueue_pcplist")
    if not own and first not in tree.functions and op in ("alloc", "free"):
        return next((n for n in callers if n in tree.functions), first)
    return own or first


def _size(example: dict[str, Any]) -> tuple[int, int]:
    """How much there is to read of a state: digits and lists first."""
    before = example.get("before", {})
    lists = list(before.get("lists", ()))
    numbers = [v for k, v in before.items() if k != "lists"] + lists
    numbers += [example.get("zone_flags", 0), example.get("order", 0)]
    return sum(n.bit_length() for n in numbers) + sum(n > 0 for n in lists), sum(numbers)


def _smaller(example: dict[str, Any], base: Release) -> Iterator[dict[str, Any]]:
    """The same operation from simpler states that the release may come to."""
    before = example["before"]
    limits = [("high",), ("high_min",), ("high_max",)]
    if not base.rules.high_min_max:
        limits = [("high", "high_min", "high_max")]  # of which it has one
    for names in (("free_count",), ("alloc_factor",), ("free_factor",), ("flags",), *limits,
                  ("batch",), ("count_min",), ("expire",)):  # fmt: skip
        least = 1 if names == ("batch",) else 0
        value = before[names[0]]
        for less in sorted({least, value // 2, value - 1} & set(range(least, value))):
            fields = {**before, **dict.fromkeys(names, less)}
            if fields["high_min"] <= fields["high"] <= fields["high_max"]:
                yield {**example, "before": fields}
    for i in range(len(_TYPES)) if sum(map(bool, before["lists"])) > 1 else ():
        lists = [before["count"] if k == i else 0 for k in range(len(before["lists"]))]
        yield {**example, "before": {**before, "lists": lists}}
    for i, blocks in enumerate(before["lists"]):
        for less in sorted({0, 1, blocks // 2, blocks - 1} & set(range(blocks))):
            lists = [*before["lists"][:i], less, *before["lists"][i + 1 :]]
            count = sum(n << pindex_to_order(k) for k, n in enumerate(lists))
            yield {**example, "before": {**before, "lists": lists, "count": count}}
    if example["zone_flags"]:
        yield {**example, "zone_flags": 0}
    if example["order"]:
        yield {**example, "order": 0}


def _shrunk(
    tree: Tree, base: Release, who: str, example: dict[str, Any], tries: int = 4000
) -> dict[str, Any]:
    """The difference from as small a state as steps downhill lead to."""
    if "before" not in example or try_once(tree, base, example) is None:
        return example  # the tree's own fields have a part in it
    found = True
    while found and tries:
        found = False
        for candidate in _smaller(example, base):
            tries -= 1
            now = try_once(tree, base, candidate)
            if (
                now is not None
                and _function(tree, base, now) == who
                and _size(now) < _size(example)
            ):
                example, found = now, True
                break
            if not tries:
                break
    return example


def _argument(place: int) -> tuple[str, Callable[[int], Any]]:
    """What is passed otherwise, and how its values are told."""
    function, name = ARGUMENTS[place]
    if not name:
        others = (f"{function}()", f"{function}_smallest()", f"{function}_cma_fallback()")
        return "what the buddy lists are asked by", lambda value: others[value]
    if name == "end":
        return function, lambda value: ("head", "tail")[value]
    return (
        f"{name} of {function}()",
        lambda value: (
            _TYPES[value] if name == "migratetype" and 0 <= value < len(_TYPES) else value
        ),
    )


def _difference(example: dict[str, Any], who: str) -> Difference:
    if "before" not in example:
        sides = {k: dict(example[k]) for k in ("release", "tree")}
        where = {k: v for k, v in example.items() if k in ("order", "migratetype", "pindex")}
        if "order" in where:
            words = f"list of a block of order {where['order']}, {_TYPES[where['migratetype']]}"
        else:
            words = f"order of list {where['pindex']}" if where else "numbers of lists"
        if example["left_out"]:
            orders = ", ".join(map(str, example["left_out"]))
            words += f" (blocks of order {orders} are not compared: their lists do not correspond)"
        return Difference(who, words, where, sides["release"], sides["tree"])
    op, order = example["op"], example["order"]
    words = {
        "alloc": f"allocate a block of order {order}, {_TYPES[example['migratetype']]}",
        "free": f"free a block of order {order}, {_TYPES[example['migratetype']]}",
        "decay": "vmstat tick: decay_pcp_high()",
        "drain_zone_pages": "drain of a remote pageset: drain_zone_pages()",
        "drain_pages_zone": "drain of all: drain_pages_zone()",
    }[op]
    before = {k: v for k, v in example["before"].items() if k != "lists"}
    lists = {i: n for i, n in enumerate(example["before"]["lists"]) if n}
    state = {**before, "lists": lists, "zone_flags": flags_set(example["zone_flags"])}
    ours, theirs = _outcome(example["release"]), _outcome(example["tree"])
    unlike = [n for n in _unlike(example) if n not in ("drains", "lists", "got")]
    for more, told in (("blocks", "holds"), ("refills", "asked")):
        if more in unlike and told in unlike:
            unlike.remove(more)
    for place, (due, given) in example["passed"].items():
        what, argument = _argument(place)
        ours[what], theirs[what] = argument(due), argument(given)
        unlike.append(what)
        if ARGUMENTS[place][1] == "mode":
            state["blocks that the zone has"] = example["available"]
    if not unlike:
        unlike = ["lists"]
        for side in (ours, theirs):
            side["lists"] = {i: n for i, n in enumerate(side["lists"]) if n}
    if example["failed"]:
        theirs["failed"] = example["failed"]
        unlike.append("failed")
        ours["failed"] = ""
    return Difference(
        who, words, state, {n: ours[n] for n in unlike}, {n: theirs[n] for n in unlike}
    )
