"""Falsify recordings, each copy in one way, and count which of them the replay finds.

``python tools/falsify.py [--copies N] [--seed S] [--kind WORD] [--rows FILE] [NAME ...]``.  A
copy is found if it is refused, or leaves anything unexplained.  One that passes may only be of a
kind which names how a kernel could have written it (`POSSIBLE`); else the exit code is 1.
The heading of a trace is made to fit, so that no line is missed by its number alone.
``--rows`` keeps what became of each copy, one JSON object a line, and of what passed what explained
it.  ``--write`` puts the table into docs/falsified.json, from which the documentation is made.
"""

# SPDX-License-Identifier: GPL-2.0-only

import argparse
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.trace.packed import open_text
from pcpmodel.trace.replay import replay_work

ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / "docs" / "falsified.json"
#: What may become of a copy.
HOW = ("refused", "found", "passed")
#: Every series that is modelled, each kind of probe, and one machine that is short of memory.
RECORDINGS = (
    "6.1-unixpair-4cpu", "6.1-pressure-4cpu", "6.12-detail-4cpu", "6.12-tcp-4cpu",
    "6.18-pf1-2cpu", "6.18-tcp-4cpu", "6.19-mixed-4cpu", "6.19-pf1-4cpu", "7.2-detail-4cpu",
    "7.2-exitstorm-4cpu", "7.2-tcp-4cpu", "7.3-unixpair-4cpu",
)  # fmt: skip


class Original:
    """A recording's files as lines, and which lines of its trace are of which event."""

    @classmethod
    def read(cls, path: Path) -> "Original":
        """The recording in a directory."""
        return cls(path.name, {
            p.name.removesuffix(".gz").removesuffix(".zst"): b"".join(open_text(p)).splitlines(True)
            for p in sorted(path.iterdir())
        })  # fmt: skip

    def __init__(self, name: str, files: dict[str, list[bytes]]) -> None:
        self.name, self.files = name, files
        self.trace = self.files["trace.txt"]
        mark = {w: i for i, t in enumerate(self.trace) for w in _marks(t)}
        self.start, self.stop = mark[b"state-before-end"] + 1, mark[b"state-after-begin"]
        self.events: dict[bytes, list[int]] = {}
        for i in range(self.start, self.stop):
            event = _EVENT(self.trace[i])
            if event:
                self.events.setdefault(event[1], []).append(i)

    def pick(self, event: bytes, dice: random.Random, having: bytes = b"") -> int:
        """A line of this event with these bytes in it."""
        there = [i for i in self.events.get(event, ()) if having in self.trace[i]]
        return dice.choice(there)  # IndexError: no such line

    def page(self, i: int) -> bytes:
        """The page frame of a line, as it stands there."""
        return _value(self.trace[i], b"pfn")

    def next_of(self, i: int, event: bytes) -> int:
        """The next line of this event about the same page."""
        pfn = b" pfn=" + self.page(i) + b" "
        key = b": " + event + b": "
        for j in range(i + 1, self.stop):
            if key in self.trace[j] and pfn in self.trace[j].replace(b"\n", b" "):
                return j
        raise IndexError


Change = dict[str, list[bytes]]
Row = dict[str, Any]

_EVENT = re.compile(rb": (\w+): ").search


def _marks(line: bytes) -> list[bytes]:
    if b"tracing_mark_write" not in line:
        return []
    return re.findall(rb"tracing_mark_write: pcpmodel: (state-\S+)", line)


def _value(line: bytes, key: bytes) -> bytes:
    found = re.search(rb"\b" + key + rb"=(\w+)", line)
    if not found:
        raise IndexError
    return found[1]


def _with(line: bytes, key: bytes, value: bytes) -> bytes:
    return re.sub(rb"\b" + key + rb"=\w+", key + b"=" + value, line, count=1)


def _retimed(line: bytes, as_in: bytes) -> bytes:
    """The line at the moment of another one."""
    here, there = (re.search(rb" \d+\.\d{6}: ", t) for t in (line, as_in))
    return line.replace(here[0], there[0], 1) if here and there else line


def _trace(lines: list[bytes]) -> Change:
    """A trace whose heading says as many events as it has."""
    text = b"\n" + b"".join(lines)
    n = len(lines) - text.count(b"\n#") - text.count(b" EVENTS]")
    i = next((i for i, t in enumerate(lines) if t.startswith(b"# entries")), None)
    if i is not None:
        lines = [*lines]
        lines[i] = re.sub(rb"written: \d+/\d+", b"written: %d/%d" % (n, n), lines[i])
    return {"trace.txt": lines}


def _without(o: Original, *gone: int) -> Change:
    dropped = set(gone)
    return _trace([t for i, t in enumerate(o.trace) if i not in dropped])


def _instead(o: Original, changed: dict[int, bytes]) -> Change:
    lines = list(o.trace)
    for i, line in changed.items():
        lines[i] = line
    return _trace(lines)


def removed(event: bytes, n: int, o: Original, dice: random.Random) -> Change:
    """``n`` lines of an event are missing."""
    there = o.events[event]
    return _without(o, *dice.sample(there, min(n, len(there))))


def doubled(event: bytes, o: Original, dice: random.Random) -> Change:
    """A line stands twice."""
    i = o.pick(event, dice)
    return _trace([*o.trace[: i + 1], *o.trace[i:]])


def another_page(event: bytes, o: Original, dice: random.Random) -> Change:
    """One bit of a page frame is another."""
    i = o.pick(event, dice)
    other = int(o.page(i), 16) ^ 1 << dice.randrange(9)
    return _instead(o, {i: _with(o.trace[i], b"pfn", b"0x%x" % other)})


def another_field(event: bytes, key: bytes, o: Original, dice: random.Random) -> Change:
    """One field is one more; a migratetype another one of the three."""
    i = o.pick(event, dice, b" " + key + b"=")
    old = _value(o.trace[i], key)
    base = 16 if old.startswith(b"0x") else 10
    new = int(old, base) + 1
    if key == b"migratetype":
        new %= 3
    return _instead(o, {i: _with(o.trace[i], key, b"0x%x" % new if base == 16 else b"%d" % new)})


def another_flag(event: bytes, bit: int, o: Original, dice: random.Random) -> Change:
    """A probe shows one of a zone's flags the other way round."""
    i = o.pick(event, dice, b" zfl=")
    return _instead(o, {i: _with(o.trace[i], b"zfl", b"0x%x" % (_flags(o.trace[i]) ^ bit))})


def _flags(line: bytes) -> int:
    return int(_value(line, b"zfl"), 16)


def several(kinds: tuple[str, ...], o: Original, dice: random.Random) -> Change:
    """The first of these changes, and in the lines that come of it the next one, and so on."""
    for kind in kinds:
        change = KINDS[kind](o, dice)
        if set(change) != {"trace.txt"}:
            raise ValueError
        o = Original(o.name, o.files | change)
    return {"trace.txt": o.trace}


def every_field(event: bytes, key: bytes, o: Original, dice: random.Random) -> Change:
    """A hundred lines of an event have that field one more."""
    there = o.events[event]
    first = dice.randrange(max(1, len(there) - 100))
    changed = {}
    for i in there[first : first + 100]:
        new = int(_value(o.trace[i], key), 0) + 1
        if key == b"migratetype":
            new %= 3
        changed[i] = _with(o.trace[i], key, b"%d" % new)
    return _instead(o, changed)


def _on(line: bytes, cpu: int) -> bytes:
    return re.sub(rb"\[\d{3}\]", b"[%03d]" % cpu, line, count=1)


def _cpu(line: bytes) -> int:
    found = re.search(rb"\[(\d{3})\]", line)
    if not found:
        raise IndexError
    return int(found[1])


def another_cpu(event: bytes, o: Original, dice: random.Random) -> Change:
    """A line is said to come from another CPU."""
    i = o.pick(event, dice)
    return _instead(o, {i: _on(o.trace[i], _cpu(o.trace[i]) ^ 1)})


def half_on_another_cpu(o: Original, dice: random.Random) -> Change:
    """Every other allocation comes from another CPU."""
    there = o.events[b"mm_page_alloc"][dice.randrange(2) :: 2]
    return _instead(o, {i: _on(o.trace[i], _cpu(o.trace[i]) ^ 1) for i in there})


def pages_swapped(event: bytes, apart: int, o: Original, dice: random.Random) -> Change:
    """Two lines of an event, so many lines of it apart, have each other's page."""
    there = o.events[event]
    k = dice.randrange(len(there) - apart)
    i, j = there[k], there[k + apart]
    if o.page(i) == o.page(j):
        raise IndexError
    swapped = {}
    for a, b in ((i, j), (j, i)):
        head, key, _ = o.trace[a].partition(b": page=")
        swapped[a] = head + key + o.trace[b].partition(b": page=")[2]
    return _instead(o, swapped)


def moved(event: bytes, far: int, o: Original, dice: random.Random) -> Change:
    """A line stands elsewhere, with a time that fits."""
    i = o.pick(event, dice)
    to = min(max(i + dice.choice((-1, 1)) * dice.randint(2, far), o.start + 1), o.stop - 1)
    if to == i:
        raise IndexError
    line = _retimed(o.trace[i], o.trace[to])
    rest = o.trace[:i] + o.trace[i + 1 :]
    return _trace([*rest[:to], line, *rest[to:]])


def no_free_at_all(o: Original, dice: random.Random) -> Change:
    """A page is freed without a line, mm_page_free and what follows of it."""
    i = o.pick(b"mm_page_free_batched", dice)
    pfn = b" pfn=" + o.page(i) + b" "
    j = next(
        j for j in range(i, o.start, -1)
        if b": mm_page_free: " in o.trace[j] and pfn in o.trace[j].replace(b"\n", b" ")
    )  # fmt: skip
    return _without(o, i, j)


def no_life(o: Original, dice: random.Random) -> Change:
    """An allocation and the free after it are both missing."""
    i = o.pick(b"mm_page_alloc", dice)
    j = o.next_of(i, b"mm_page_free")
    pfn = b" pfn=" + o.page(i) + b" "
    k = next(k for k in range(j + 1, o.stop) if pfn in o.trace[k].replace(b"\n", b" "))
    batched = b": mm_page_free_batched: " in o.trace[k]
    return _without(o, i, j, *([k] if batched else []))


def no_drain(o: Original, dice: random.Random) -> Change:
    """A whole drain is missing, its probe and its pages."""
    i = o.pick(b"free_pcppages_bulk", dice)
    cpu, gone = _cpu(o.trace[i]), [i]
    for j in range(i + 1, o.stop):
        if _cpu(o.trace[j]) == cpu:
            if b": mm_page_pcpu_drain: " not in o.trace[j]:
                break
            gone.append(j)
    return _without(o, *gone)


def no_refill(o: Original, dice: random.Random) -> Change:
    """A whole refill is missing."""
    key = b": mm_page_alloc_zone_locked: "
    i = o.pick(b"mm_page_alloc_zone_locked", dice)
    cpu, gone = _cpu(o.trace[i]), []
    for step in (-1, 1):
        j = i
        while o.start <= j < o.stop and (_cpu(o.trace[j]) != cpu or key in o.trace[j]):
            gone += [j] * (_cpu(o.trace[j]) == cpu)
            j += step
    return _without(o, *gone)


def a_page_of_a_refill_is_another(o: Original, dice: random.Random) -> Change:
    """A page is replaced by its buddy in every line of the trace."""
    i = o.pick(b"mm_page_alloc_zone_locked", dice, b" order=0 ")
    old, new = o.page(i), b"0x%x" % (int(o.page(i), 16) ^ 1)
    names = {b"pfn=" + old: b"pfn=" + new, b"pfn=" + new: b"pfn=" + old}
    either = re.compile(rb"pfn=(?:" + old + rb"|" + new + rb")\b")
    return _trace([
        either.sub(lambda m: names[m[0]], t) if k >= o.start else t for k, t in enumerate(o.trace)
    ])  # fmt: skip


def ownership(o: Original, dice: random.Random) -> Change:
    """A fallback claims its block, or not, the other way round."""
    changed = {}
    i = o.pick(b"mm_page_alloc_extfrag", dice)
    for j in o.events[b"mm_page_alloc_extfrag"]:
        if abs(j - i) < 3:
            new = b"%d" % (1 - int(_value(o.trace[j], b"change_ownership")))
            changed[j] = _with(o.trace[j], b"change_ownership", new)
    return _instead(o, changed)


def _listed(o: Original, name: str, dice: random.Random, least: int) -> int:
    """A line of a dump that lists at least so many blocks."""
    lines = o.files[name]
    return dice.choice([
        i for i, t in enumerate(lines)
        if t.startswith((b"free ", b"list ")) and len(t.split(b": ")[1].split()) >= least
    ])  # fmt: skip


def list_changed(name: str, how: str, o: Original, dice: random.Random) -> Change:
    """A list of a dump has two blocks swapped, one missing, or one of another list."""
    lines = list(o.files[name])
    i = _listed(o, name, dice, 2)
    head, pages = lines[i].split(b": ")
    pages = pages.split()
    k = dice.randrange(len(pages) - 1)
    if how == "swapped":
        pages[k : k + 2] = pages[k + 1], pages[k]
    elif how == "missing":
        del pages[k]
    else:
        j = _listed(o, name, dice, 1)
        if j == i:
            raise IndexError
        other, there = lines[j].split(b": ")
        lines[j] = other + b": " + b" ".join([*there.split(), pages.pop(k)]) + b"\n"
    lines[i] = head + b": " + b" ".join(pages) + b"\n"
    return {name: lines}


def dump_field(name: str, key: bytes, o: Original, dice: random.Random) -> Change:
    """A field of a pageset in a dump is one more."""
    lines = list(o.files[name])
    i = dice.choice([
        i for i, t in enumerate(lines) if t.startswith(b"pcp ") and _value(t, b"count") != b"0"
    ])  # fmt: skip
    lines[i] = _with(lines[i], key, b"%d" % (int(_value(lines[i], key)) + 1))
    return {name: lines}


def block_type(name: str, o: Original, dice: random.Random) -> Change:
    """A page block has another migratetype."""
    lines = list(o.files[name])
    i = dice.randrange(len(lines))
    head, blocks = lines[i].rstrip(b"\n").split(b": ")
    k = dice.choice([k for k, c in enumerate(blocks) if c in b"012"])
    other = b"%d" % ((int(blocks[k : k + 1]) + 1) % 3)
    lines[i] = head + b": " + blocks[:k] + other + blocks[k + 1 :] + b"\n"
    return {name: lines}


#: How a kernel could have written what passes, by kind.
POSSIBLE = {
    "CPU of mm_page_alloc":
        "a task is moved to another CPU after it took its page; its line before is of the list's",
    "CPU of mm_page_free":
        "a task is moved to another CPU between mm_page_free and its list",
    "ZONE_BELOW_HIGH of decay_pcp_high turned":
        "zone DMA has less than it keeps from requests to higher zones; or one probe shows the "
        "flag cleared where free pages were near the watermark",
    "count of decay_pcp_high":
        "a task took a page about then and reports it later: before the probe or after it",
    "ZONE_BELOW_HIGH of free_pcppages_bulk turned":
        "free pages were near the watermark",
    **dict.fromkeys(
        ("zfl of free_pcppages_bulk", *(
            f"ZONE_BOOSTED_WATERMARK of {event} turned"
            for event in ("free_pcppages_bulk", "decay_pcp_high"))),
        "a fallback since the probe before may have boosted the watermark; that rmqueue() clears "
        "the flag again leaves no line"),
    **dict.fromkeys(
        ("mm_page_alloc up to 20 lines away", "free_pcppages_bulk up to 20 lines away"),
        "it stands between the same lines of its list: only its time is another, or the order in "
        "which a task takes blocks of two lists"),
    "mm_page_alloc up to 2000 lines away":
        "its task has no line between: it may have stood still after it took the page, while "
        "others joined the list",
    "an allocation and its free without any line":
        "nothing in the recording hangs on it: the block is at the same place of its list without",
    "pages of two mm_page_alloc swapped":
        "a task takes blocks of two lists in another order, or one stood still after it took its "
        "page, while others joined the list",
    **dict.fromkeys(
        ("mm_page_free up to 20 lines away", "pages of two mm_page_free swapped"),
        "a task frees its blocks in another order: they join different lists, whose drains and "
        "allocations come out as before"),
    "mm_page_free_batched removed":
        "the page was freed by itself, which has no such line",
    "5 of mm_page_free_batched removed":
        "these pages were freed by themselves, which has no such line",
    "buddylists.after: blocks of a list missing":
        "the list had that block at another moment of the dump only",
    **{f"pcpstate.{tag}: count":
       "the lists moved while they were dumped, and count was so at another moment of that"
       for tag in ("snapA", "after")},
}  # fmt: skip
KINDS: dict[str, Callable[[Original, random.Random], Change]] = {
    **{f"{n} of {event} removed" if n > 1 else f"{event} removed":
       partial(removed, event.encode(), n)
       for n in (1, 5) for event in (
           "mm_page_alloc", "mm_page_free", "mm_page_free_batched", "mm_page_alloc_zone_locked",
           "mm_page_pcpu_drain", "free_pcppages_bulk")},
    "decay_pcp_high removed": partial(removed, b"decay_pcp_high", 1),
    "free_one_page removed": partial(removed, b"free_one_page", 1),
    "rmqueue_bulk removed": partial(removed, b"rmqueue_bulk", 1),
    "page_commit removed": partial(removed, b"page_commit", 1),
    **{f"{event} twice": partial(doubled, event.encode()) for event in (
        "mm_page_alloc", "mm_page_free", "mm_page_alloc_zone_locked", "mm_page_pcpu_drain",
        "free_pcppages_bulk", "decay_pcp_high", "rmqueue_bulk", "page_commit")},
    **{f"page of {event}": partial(another_page, event.encode()) for event in (
        "mm_page_alloc", "mm_page_free", "mm_page_free_batched", "mm_page_alloc_zone_locked",
        "mm_page_pcpu_drain")},
    **{f"{key} of {event}": partial(another_field, event.encode(), key.encode())
       for event, keys in (
           ("mm_page_alloc", "order migratetype"),
           ("mm_page_free", "order"),
           ("mm_page_alloc_zone_locked", "order migratetype"),
           ("mm_page_pcpu_drain", "order migratetype"),
           ("free_pcppages_bulk", "n pindex pcp count high batch hmin af fc pfl zfl"),
           ("decay_pcp_high", "count high af fc pfl"))
       for key in keys.split()},
    **{f"{flag} of {event} turned": partial(another_flag, event.encode(), bit)
       for event in ("free_pcppages_bulk", "decay_pcp_high")
       for flag, bit in (("ZONE_BOOSTED_WATERMARK", 1), ("ZONE_RECLAIM_ACTIVE", 2),
                         ("ZONE_BELOW_HIGH", 4))},
    "migratetype of 100 mm_page_alloc": partial(every_field, b"mm_page_alloc", b"migratetype"),
    "order of 100 mm_page_alloc": partial(every_field, b"mm_page_alloc", b"order"),
    **{f"CPU of {event}": partial(another_cpu, event.encode()) for event in (
        "mm_page_alloc", "mm_page_free", "mm_page_alloc_zone_locked", "mm_page_pcpu_drain",
        "free_pcppages_bulk")},
    "CPU of half of all mm_page_alloc": half_on_another_cpu,
    **{f"pages of two {event}{' 50 apart' * (apart > 1)} swapped":
       partial(pages_swapped, event.encode(), apart)
       for apart in (1, 50) for event in (
           "mm_page_alloc", "mm_page_free", "mm_page_alloc_zone_locked", "mm_page_pcpu_drain")},
    **{f"{event} up to {far} lines away": partial(moved, event.encode(), far)
       for far in (20, 2000) for event in ("mm_page_alloc", "mm_page_free", "free_pcppages_bulk")},
    "a free without any line": no_free_at_all,
    "an allocation and its free without any line": no_life,
    "a drain without any line": no_drain,
    "a refill without any line": no_refill,
    "a page of a refill is its buddy everywhere": a_page_of_a_refill_is_another,
    "a fallback claims its block or not": ownership,
    **{f"{name}: blocks of a list {how}": partial(list_changed, name, how)
       for name in ("pcpstate.snapA", "pcpstate.after", "buddylists.before", "buddylists.after")
       for how in ("swapped", "missing", "on another list")},
    **{f"{name}: {key}": partial(dump_field, name, key.encode())
       for name in ("pcpstate.snapA", "pcpstate.after") for key in ("count", "high")},
    "pageblocks.before: migratetype": partial(block_type, "pageblocks.before"),
    "pageblocks.after: migratetype": partial(block_type, "pageblocks.after"),
}  # fmt: skip
#: Of several lines at once: each of these on top of the one before.
TOGETHER = (
    ("mm_page_alloc removed", "mm_page_free removed"),
    ("5 of mm_page_alloc removed", "5 of mm_page_alloc_zone_locked removed"),
    ("mm_page_pcpu_drain removed", "mm_page_alloc_zone_locked removed"),
    ("order of mm_page_alloc", "order of mm_page_free"),
    ("migratetype of mm_page_alloc", "migratetype of mm_page_alloc_zone_locked"),
    ("page of mm_page_alloc", "page of mm_page_free"),
    ("count of free_pcppages_bulk", "n of free_pcppages_bulk"),
    ("count of free_pcppages_bulk",) * 3,
    ("high of free_pcppages_bulk", "count of free_pcppages_bulk"),
    ("fc of free_pcppages_bulk", "af of free_pcppages_bulk"),
    ("zfl of free_pcppages_bulk", "high of free_pcppages_bulk"),
    ("mm_page_alloc twice", "mm_page_free twice"),
    ("mm_page_alloc up to 20 lines away", "mm_page_free up to 20 lines away"),
    ("an allocation and its free without any line",) * 3,
    ("a drain without any line", "a refill without any line"),
)
KINDS |= {
    (f"{len(kinds)} times {kinds[0]}" if len(set(kinds)) == 1 else "; ".join(kinds)):
    partial(several, kinds) for kinds in TOGETHER
}  # fmt: skip


def falsified(o: Original, kind: str, seed: int | str) -> Change | None:
    """The changed files of one copy; None if this recording has nothing to change so."""
    try:
        return KINDS[kind](o, random.Random(f"{seed}/{o.name}/{kind}"))
    except (IndexError, KeyError, StopIteration, ValueError):
        return None


def verdict(target: Path, o: Original, change: Change) -> tuple[str, object]:
    """("refused", error), ("found", Exactness) or ("passed", Exactness) of a copy in *target*."""
    for name, lines in change.items():
        (target / name).write_bytes(b"".join(lines))
    try:
        found = replay_work(target, ops=("direct_free",), whole=False)[0]
    except InputError as error:
        return "refused", error
    finally:
        for name in change:
            (target / name).write_bytes(b"".join(o.files[name]))
    return ("passed" if found.exact else "found"), found


def first_changed(o: Original, change: Change) -> str:
    """What is another line than before, as a person looks it up."""
    for name, lines in change.items():
        for i, (old, new) in enumerate(zip(o.files[name], lines, strict=False)):
            if old != new and not new.startswith(b"#"):
                return (
                    f"{name}:{i + 1}: {old.decode().strip()[:150]} -> {new.decode().strip()[:150]}"
                )
    return ""


def try_all(
    names: Sequence[str], kinds: Sequence[str], copies: int, seed: int, done: dict[str, Row]
) -> Iterator[Row]:
    """What became of each copy of these recordings; those *done* are not made again."""
    with tempfile.TemporaryDirectory(prefix="falsify-") as scratch:
        for name in names:
            o = Original.read(ROOT / "data" / "traces" / name)
            target = Path(scratch) / name
            target.mkdir()
            for file, lines in o.files.items():
                (target / file).write_bytes(b"".join(lines))
            for kind in kinds:
                for n in range(copies):
                    copy = f"{name}, {kind}, copy {seed}/{n}"
                    if copy in done:
                        yield done[copy]
                        continue
                    change = falsified(o, kind, f"{seed}/{n}")
                    if change is None:
                        continue
                    start = time.process_time()
                    how, found = verdict(target, o, change)
                    row: Row = {"copy": copy, "kind": kind, "how": how,
                                "s": round(time.process_time() - start, 2)}  # fmt: skip
                    if how == "passed":
                        row |= {"change": first_changed(o, change), "explained": found.causes()}
                    yield row
            shutil.rmtree(target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=RECORDINGS, metavar="NAME")
    parser.add_argument("--copies", type=int, default=3, help="of each kind and recording")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="", help="only kinds with this in their name")
    parser.add_argument("--rows", type=Path, help="what became of each copy; goes on where it ends")
    parser.add_argument("--write", action="store_true", help="write docs/falsified.json")
    args = parser.parse_args()
    kinds = [kind for kind in KINDS if args.kind in kind]
    done: dict[str, Row] = {}
    if args.rows and args.rows.exists():
        lines = args.rows.read_text(encoding="utf-8").splitlines()
        done = {row["copy"]: row for row in map(json.loads, lines)}
    table = {kind: Counter() for kind in kinds}
    longest = {"s": 0.0, "copy": ""}
    for row in try_all(args.names, kinds, args.copies, args.seed, done):
        table[row["kind"]][row["how"]] += 1
        longest = max(longest, row, key=itemgetter("s"))
        if args.rows and row["copy"] not in done:
            with args.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    print(f"{'kind':60} {'copies':>6} {'refused':>7} {'found':>6} {'passed':>6}")
    wrong = 0
    for kind, n in table.items():
        possible = POSSIBLE.get(kind, "")
        wrong += n["passed"] > 0 and not possible
        why = f"  {possible}" if n["passed"] and possible else ""
        print(f"{kind:60} {n.total():6} {n['refused']:7} {n['found']:6} {n['passed']:6}{why}")
    total = sum(table.values(), Counter())
    print(f"{'all':60} {total.total():6} {total['refused']:7} {total['found']:6} "
          f"{total['passed']:6}")  # fmt: skip
    print(f"longest: {longest['s']:.1f} s of a CPU ({longest['copy']})")
    if args.write:
        command = ["--copies", str(args.copies), "--seed", str(args.seed), *args.names]
        told = {
            "command": " ".join(["python tools/falsify.py", *command, "--write"]),
            "recordings": list(args.names),
            "kinds": [
                {"kind": kind, **{how: n[how] for how in HOW},
                 "possible": POSSIBLE.get(kind, "") if n["passed"] else ""}
                for kind, n in table.items() if n
            ],
        }  # fmt: skip
        rows = ",\n".join(f"  {json.dumps(row)}" for row in told.pop("kinds"))
        head = json.dumps(told, indent=1).removesuffix("\n}")
        WRITTEN.write_text(f'{head},\n "kinds": [\n{rows}\n ]\n}}\n', encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
