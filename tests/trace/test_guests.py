"""What recordings of guests showed, with kernels and loads that those of data/traces have not."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import re
import shutil

import numpy as np
import pytest

import pcpmodel as pm
from helpers.paths import TESTS, TRACES
from pcpmodel.errors import InputError
from pcpmodel.trace.dumps import PcpState
from pcpmodel.trace.ftrace import EVENT_IDS, FLAGS, HIDDEN, HIT, MIGRATE_SHIFT, Events
from pcpmodel.trace.packed import open_text
from pcpmodel.trace.preempt_rt import in_one_piece
from pcpmodel.trace.replay import replay_without_dump
from pcpmodel.trace.switched import hand_over, untold

NATIVE = TESTS / "data" / "native-thp-2cpu"

_WORDS = {
    "alloc": b"mm_page_alloc: page=0 pfn=%#x order=0 migratetype=0 gfp_flags=GFP_KERNEL",
    "charged": b"mm_page_alloc: page=0 pfn=%#x order=0 migratetype=0 "
    b"gfp_flags=GFP_KERNEL_ACCOUNT|__GFP_NOWARN",
    "movable": b"mm_page_alloc: page=0 pfn=%#x order=0 migratetype=1 gfp_flags=GFP_KERNEL",
    "large": b"mm_page_alloc: page=0 pfn=%#x order=5 migratetype=0 gfp_flags=GFP_KERNEL",
    "failed": b"mm_page_alloc: page=(null) pfn=%#x order=0 migratetype=0 gfp_flags=GFP_NOWAIT",
    "free": b"mm_page_free: page=0 pfn=%#x order=0",
    "alloc block": b"mm_page_alloc: page=0 pfn=%#x order=2 migratetype=0 gfp_flags=GFP_KERNEL",
    "free block": b"mm_page_free: page=0 pfn=%#x order=2",
    "free large": b"mm_page_free: page=0 pfn=%#x order=5",
    "drained block": b"mm_page_pcpu_drain: page=0 pfn=%#x order=2 migratetype=0",
    "batched": b"mm_page_free_batched: page=0 pfn=%#x order=0",
    "refill": b"mm_page_alloc_zone_locked: page=0 pfn=%#x order=0 migratetype=0 percpu_refill=1",
    "refilled": b"mm_page_alloc_zone_locked: page=0 pfn=%#x order=0 migratetype=1 percpu_refill=1",
    "cma": b"mm_page_alloc_zone_locked: page=0 pfn=%#x order=0 migratetype=4 percpu_refill=1",
    "switch": b"sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=R ==> next_comm=b "
    b"next_pid=%d next_prio=120",
    "sleep": b"sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=D ==> next_comm=b "
    b"next_pid=%d next_prio=120",
    "claimed": b"mm_page_alloc_extfrag: page=0 pfn=%#x alloc_order=0 fallback_order=5 "
    b"pageblock_order=9 alloc_migratetype=0 fallback_migratetype=0 fragmenting=0 "
    b"change_ownership=0",
    "bulk": b"alloc_pages_bulk: (alloc_pages_bulk_noprof+0x0/0x6) gfp=0x2dc2 nid=0 nr=%d",
    "bulk_ret": b"alloc_pages_bulk_ret: (vmalloc+0x2/0x8 <- alloc_pages_bulk_noprof) n=%d",
    "tick": b"workqueue_execute_start: work struct 0: function vmstat_update",
    "decay": b"decay_pcp_high: (decay_pcp_high+0x4/0x90) pcp=0xffff88803ea%05x",
    "drain": b"drain_pages_zone: (drain_pages_zone+0x4/0x90) of_cpu=%d",
    "drained": b"mm_page_pcpu_drain: page=0 pfn=%#x order=0 migratetype=0",
    "fork": b"sched_process_fork: comm=a pid=11 child_comm=b child_pid=%d",
    "hold": b"free_pcppages_bulk: (free_pcppages_bulk+0x0/0x250) n=63 pindex=0 pcp=0xff%06x",
}
_NO_PAGE = (
    "switch",
    "tick",
    "sleep",
    "failed",
    "bulk",
    "bulk_ret",
    "decay",
    "drain",
    "hold",
    "fork",
)
_BULK_PROBES = ["alloc_pages_bulk_noprof gfp=%di:x32 nid=%si:s32 nr=%cx:s32",
                "alloc_pages_bulk_noprof n=$retval:u32"]  # fmt: skip


@pytest.fixture
def told(tmp_path):
    """Replays (task, CPU, what, page or number[, flags[, us]]) of each line of the work, that and
    the next so much later; pages are numbered from the start of a block of which no line tells, all
    of it unmovable."""

    def replayed(events, sizes=None, isolated=0, **meta):
        lines = b"".join(open_text(NATIVE / "trace.txt.zst")).splitlines(keepends=True)
        work = next(i for i, t in enumerate(lines) if b"phase 0 work begin" in t) + 1
        used = {int(pfn, 16) >> 9 for pfn in re.findall(rb" pfn=(0x[0-9a-f]+) ", b"".join(lines))}
        base = next(block for block in range(max(used), 0, -1) if block not in used) << 9
        time = float(re.search(rb" ([\d.]+): ", lines[work - 1])[1])
        text = [t for t in lines[:work] if b"# entries-in-buffer" not in t]
        counts, begun = [], sum(b"mm_page_alloc:" in t for t in text)
        for task, cpu, what, n, *flags in events:
            if what == "counts":  # of CPU 0: so many more than when the work began, high, high_min
                counts.append((n - begun, *flags))
                text += (
                    b"a-%d [%03d] ..... %.6f: tracing_mark_write: pcpmodel: snapshot-counts-%d%s\n"
                    % (task, cpu, time, len(counts), edge)
                    for edge in (b"", b"-end")
                )
                continue
            time += 1e-6 * (flags[1] if flags[1:] else 0)
            head = b"a-%d [%03d] %s %.6f: " % (task, cpu, (flags or [b"....."])[0], time)
            text.append(
                head
                + _WORDS[what] % (() if what == "tick" else n + base * (what not in _NO_PAGE))
                + b"\n"
            )
        target = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        shutil.copytree(NATIVE, target, ignore=shutil.ignore_patterns("trace.*"))
        (target / "trace.txt").write_bytes(b"".join(text))
        zone, cpu, text = (target / "zoneinfo.before").read_text().partition("zone   Normal")
        for name, n in (sizes or {}).items():  # of CPU 0, which comes first
            text = re.sub(rf"(\s{name}: +)\d+", rf"\g<1>{n}", text, count=1)
        (target / "zoneinfo.before").write_text(zone + cpu + text)
        series = ""
        for k, (more, *sizes) in enumerate(counts, 1):
            count = int(re.search(r"\scount: +(\d+)", text)[1]) + more
            then = re.sub(r"(\scount: +)\d+", rf"\g<1>{count}", text, count=1)
            for name, n in zip(("high", "high_min"), sizes, strict=False):
                then = re.sub(rf"(\s{name}: +)\d+", rf"\g<1>{n}", then, count=1)
            series += f"=== counts-{k}\n{zone}{cpu}{then}"
        if counts:
            (target / "zoneinfo.series").write_text(series)
        for tag, pages in (("before", 7), ("after", 7 + isolated)):
            (target / f"vmstat.{tag}").write_text(f"compact_isolated {pages}\n")
        known = json.loads((target / "meta.json").read_text())
        (target / "meta.json").write_text(json.dumps(known | meta))
        return pm.replay(target)

    return replayed


#: Task 11 frees six pages: page 0 is at the head of the list.
_FREED = [
    *((11, 0, "alloc", page) for page in range(6)),
    *((11, 0, "free", page) for page in reversed(range(6))),
]


@pytest.mark.parametrize("drains", [False, True])
def test_counts_that_were_read_amid_many_frees_do_not_become_many_states(told, monkeypatch, drains):
    """Which of a thousand counts and two thousand values of free_count it was shows in the end.

    Where nothing drains it is no matter how much each would (it was 50 million states), nor which
    of them free_count had as it came to its greatest.
    """

    def counts(rows, begin, first, snapshot):
        return {
            key: sorted({pcp.count, *(range(pcp.high - 500, pcp.high + 500) if key[2] else ())})
            for key, pcp in snapshot.pcps.items()
        }

    monkeypatch.setattr("pcpmodel.trace.replay.counts_at_start", counts)
    frees = [(11, 1, "free", page) for page in range(300)]
    drain = [(11, 1, "drained", page) for page in range(512, 912)]
    found = told([*frees, *drain * drains, (11, 1, "free", 300)])
    assert found.cut == found.nr_unexplained == 0, found
    assert found.count("drains") == (drains, 0, 0, 0)
    assert found.states < 1001 * 24 * 8


@pytest.mark.parametrize("batched", [False, True])
def test_a_page_directory_is_freed_by_whoever_gets_the_cpu_next(told, batched):
    """__mmdrop() in finish_task_switch(): the task was stopped in an allocation on another CPU.

    What is freed in a batch is its own, and it had been moved by then.
    """
    found = told([
        *_FREED, (13, 1, "alloc", 100), (12, 0, "alloc", 0), (1, 1, "switch", 12),
        (12, 1, "free", 100, b"...1."), *[(12, 1, "batched", 100, b"...2.")] * batched,
        (12, 1, "alloc", 1), (13, 1, "switch", 13),
    ])  # fmt: skip
    assert (found.nr_unexplained > 0) == batched, found
    assert found.causes().get("reported from another CPU", 0) == (not batched)


@pytest.mark.parametrize("depth", [b".", b"1"])
def test_a_page_directory_joins_its_list_after_an_interrupt_that_came_meanwhile(told, depth):
    """While preemption was still off; where the interrupt found it on, the page had joined."""
    irq = b"..s%s." % depth
    found = told([
        *_FREED, *((11, 0, "alloc", page) for page in range(3)), (12, 0, "switch", 12),
        (12, 0, "free", 0, b"...1."), (12, 0, "free", 1, irq), (12, 0, "free", 2, irq),
        (15, 0, "movable", 900), (15, 0, "alloc", 0), (15, 0, "alloc", 2),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == (depth == b"1"), found
    assert ("freed, but joined its list later" in found.causes()) == (depth == b"1")


@pytest.mark.parametrize("isolated", [0, 1, 2])
@pytest.mark.parametrize("known", [False, True])
def test_what_compaction_gets_back_joins_no_list(told, isolated, known):
    """compaction_free() writes a line, and keeps the page for the next one to be moved.

    Not more than vmstat tells, none of which a line told that it was taken, and with a line that
    shows each: it is freed again, or what would lie below it is taken.
    """
    found = told([
        *_FREED, *[(12, 0, "alloc", 100)] * known,
        (12, 0, "free", 101), *((12, 0, "free", 100) for _ in range(3)),
        *((13, 0, "alloc", page) for page in range(3)), (14, 1, "free", 101), (14, 1, "alloc", 101),
    ], isolated=isolated)  # fmt: skip
    assert (found.nr_unexplained == 0) == (isolated == 2 and not known), found.unexplained
    if isolated == 2 and not known:
        assert found.causes() == {"given back to the compaction that had isolated it": 4}


@pytest.mark.parametrize("head", [96, 97])
def test_compaction_isolates_what_a_larger_block_brought_to_the_buddy_lists(told, head):
    """Whether it begins that block or not."""
    found = told([
        *_FREED, (12, 0, "free large", 96), (12, 0, "free", head + 1),
        *((12, 0, "free", head) for _ in range(3)), *((13, 0, "alloc", page) for page in range(3)),
        (14, 1, "free", head + 1), (14, 1, "alloc", head + 1),
    ], isolated=2)  # fmt: skip
    assert found.nr_unexplained == 0, found
    assert found.causes() == {"given back to the compaction that had isolated it": 4}


@pytest.mark.parametrize("cpu", [0, 1])
def test_a_free_that_was_stopped_joins_a_list_of_the_cpu_that_its_task_goes_on_at(told, cpu):
    """Or of that at which it was stopped, if it was moved only then: who takes the page tells."""
    found = told([
        *_FREED, (11, 0, "alloc", 0), (11, 0, "free", 0), (12, 0, "movable", 300),
        (12, 0, "alloc", 1), (11, 1, "movable", 301), (12 - cpu, cpu, "alloc", 0),
    ])  # fmt: skip
    assert found.nr_unexplained == 0, found
    assert found.causes() == {"freed, but joined its list later": 1}


@pytest.mark.parametrize("taken", [1, 100])
def test_a_free_that_was_put_off_has_joined_once_its_task_frees_another_page(told, taken):
    """Only that one may have been stopped then: page 1 lies below both."""
    found = told([
        *_FREED, (12, 0, "free", 100), (13, 0, "movable", 800), (13, 0, "alloc", 0),
        (12, 0, "free", 101), (13, 0, "movable", 801), (13, 0, "alloc", taken),
        (12, 0, "movable", 802), (13, 0, "movable", 803), (13, 0, "alloc", 101),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == (taken == 100), found
    assert found.causes() == {"freed, but joined its list later": 2}


@pytest.mark.parametrize("by", [13, 14])
def test_who_has_a_page_next_shows_where_it_joined_though_others_took_what_lies_below(told, by):
    """If that task was on the CPU before; another one may have been moved with the page."""
    found = told([
        (13, 1, "movable", 400), *_FREED, (11, 0, "alloc", 0), (11, 0, "free", 0),
        (11, 1, "movable", 301), (12, 0, "alloc", 1), (by, 1, "alloc", 0),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == (by == 13), found
    assert found.causes().get("freed, but joined its list later", 0) == (by == 13)


@pytest.mark.parametrize("flags", [b".....", b"...1."])
@pytest.mark.parametrize("told_again", [0, -1])
def test_a_free_with_preemption_off_is_over_when_its_cpu_does_anything_else(
    told, flags, told_again
):
    """Such as to read the counts, in which another one may be missing."""
    found = told([
        (12, 0, "alloc", 20), *_FREED, (11, 0, "movable", 300), (12, 0, "free", 20, flags),
        (12, 0, "switch", 900), (900, 0, "counts", told_again - 1), (900, 0, "switch", 12),
        (12, 0, "large", 448),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == (told_again == 0 or flags == b"....."), found
    assert not found.causes()


@pytest.mark.parametrize("told_again", [0, -1])
def test_another_cpu_may_read_the_counts_amid_a_free_with_preemption_off(told, told_again):
    found = told([
        (12, 0, "alloc", 20), *_FREED, (11, 0, "movable", 300), (900, 1, "large", 448),
        (12, 0, "free", 20, b"...1."), (900, 1, "counts", told_again - 1), (12, 0, "large", 480),
    ])  # fmt: skip
    assert found.nr_unexplained == 0, found
    assert not found.causes()


_NEW_STACK = "stack of a new task, taken without a line"


def _read(*count_and_high):
    """Task 12 has gone to sleep, and another one reads the lists' counts."""
    return (12, 0, "sleep", 900), (900, 0, "counts", *count_and_high), (900, 0, "sleep", 11)


@pytest.mark.parametrize("known", [1, 2, 3])
def test_a_stack_of_pages_known_and_unknown_is_deducted_once(told, known):
    """Whether it has left is not known until they are freed again, and count was thought both."""
    pages = [*range(6 - known, 6), *range(800, 804 - known)]
    found = told([
        *_FREED, *((12, 0, "alloc", page) for page in range(6 - known)), (11, 0, "fork", 14),
        *((15, 1, "free", page) for page in pages),
        *((15, 1, "alloc", page) for page in reversed(pages)), *_read(known - 10),
    ])  # fmt: skip
    assert found.nr_unexplained == 0, found
    assert found.causes() == {_NEW_STACK: known}


@pytest.mark.parametrize("told_again", [-6, -10])
def test_a_stack_that_had_left_when_count_was_read_is_deducted_once(told, told_again):
    """Whether the line that shows which pages it had comes before that or later."""
    found = told([
        *_FREED, (11, 0, "fork", 14), *_read(-4), (13, 0, "alloc", 4), (12, 0, "alloc", 5),
        *_read(told_again),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == (told_again == -6), found
    assert found.causes() == {_NEW_STACK: 4}  # each page


@pytest.mark.parametrize("left", [True, False])
def test_the_switch_with_which_a_task_left_a_cpu_shows_that_it_was_there(told, left):
    """Though it has no line of its own before, and goes on where it was."""
    found = told([
        *_FREED, (1, 0, "switch", 12), *[(12, 0, "switch", 11)] * left, (1, 1, "switch", 12),
        (12, 1, "alloc", 0), (12, 0, "movable", 300),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == left, found
    assert found.causes().get("reported from another CPU", 0) == left


@pytest.mark.parametrize("stopped", [True, False])
def test_a_page_left_before_one_joined_whose_task_was_stopped_though_both_went_on(told, stopped):
    """Its task had freed that before the other one was last seen."""
    freed = [(15, 0, "free", 20), (12, 0, "movable", 300), (15, 0, "free", 21)]
    if not stopped:
        freed.append(freed.pop(1))
    found = told([
        (15, 0, "alloc", 20), (15, 0, "alloc", 21), *_FREED, (11, 0, "movable", 301), *freed,
        (12, 0, "alloc", 0), (11, 0, "alloc", 21), (11, 0, "alloc", 20), (11, 0, "alloc", 1),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == stopped, found
    if stopped:
        assert found.causes() == {
            "freed, but joined its list later": 1,
            "reported after other pages had joined its list": 1,
        }


@pytest.mark.parametrize("flags", [b"..s2.", b"..s.."])
def test_what_was_never_seen_lies_below_what_an_interrupt_freed_while_the_lists_were_locked(
    told, flags
):
    """Of six pages a new task may have had four, which tells nothing of those."""
    found = told([
        *((15, 0, "alloc", page) for page in range(6)), (12, 0, "movable", 300),
        *((12, 0, "free", page, flags) for page in range(6)),
        *((12, 0, "alloc", page) for page in (100, 101)), (12, 0, "fork", 14),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == (flags == b"..s2."), found
    if not found.nr_unexplained:
        assert found.causes()["lists were locked: freed straight to the buddy lists"] == 2
        assert found.causes()[_NEW_STACK] == 4


@pytest.mark.parametrize("forks", [True, False])
def test_four_pages_are_a_stack_before_a_free_was_stopped_for_as_long_as_its_task_slept(
    told, forks
):
    found = told([
        *((11, 0, "alloc", page) for page in range(6)), (15, 0, "alloc", 20),
        (15, 0, "free", 20), *((11, 0, "free", page) for page in range(4)),
        *[(11, 0, "fork", 14)] * forks, (11, 0, "movable", 300), (12, 0, "alloc", 20),
        (15, 0, "movable", 301),
    ])  # fmt: skip
    assert found.nr_unexplained == 0, found
    assert set(found.causes()) == {_NEW_STACK if forks else "freed, but joined its list later"}


@pytest.mark.parametrize("again", [False, True])
def test_a_page_that_was_there_at_the_start_left_before_the_refill(told, again):
    """It is reported later, by a task that has no line since."""
    found = told([
        (12, 0, "alloc", 0), *((11, 0, "refill", page, b"d..3.") for page in range(100, 163)),
        (11, 0, "alloc", 100), *[(12, 0, "alloc", 101)] * again, (12, 0, "alloc", 1),
    ])  # fmt: skip
    assert (found.nr_unexplained > 0) == again, found
    assert found.causes() == ({} if again else {"taken before, reported later": 1})


def test_a_page_of_which_nothing_is_known_is_of_the_cpu_that_its_task_was_moved_from(told):
    """Where on the CPU of its line others had joined the list since."""
    found = told([
        (13, 1, "alloc", 20), (11, 0, "alloc", 0), (13, 1, "free", 20), (11, 1, "alloc", 1),
    ])  # fmt: skip
    assert found.nr_unexplained == 0, found
    assert found.causes() == {"reported from another CPU": 1}


def test_a_page_that_was_not_on_a_list_is_of_the_cpu_that_its_task_was_moved_from(told):
    """Below what came there since, where the other list has been filled anew."""
    found = told([
        (11, 0, "alloc", 0), (12, 0, "alloc", 20),
        *((13, 1, "refill", page, b"d..3.") for page in range(100, 163)), (13, 1, "alloc", 100),
        (12, 0, "free", 20), (11, 1, "alloc", 1),
    ])  # fmt: skip
    assert found.nr_unexplained == 0, found
    assert found.causes()["reported from another CPU"] == 1


@pytest.mark.parametrize("probes", [_BULK_PROBES, []])
def test_what_alloc_pages_bulk_takes_is_told_by_its_probe(told, probes):
    """Of any number of pages, and whoever asks; without it there are the stacks of new tasks."""
    found = told(
        [*_FREED, (12, 0, "movable", 300), (13, 0, "bulk", 3), (13, 0, "bulk_ret", 3),
         (12, 0, "alloc", 3)], probes=probes,
    )  # fmt: skip
    assert (found.nr_unexplained == 0 and not found.causes()) == bool(probes), found


def test_what_alloc_pages_bulk_takes_of_unknown_pages(told):
    """Some of a list before its first refill, the rest of that; some of this a second call."""
    refill = [(13, 0, "refill", page, b"d..3.") for page in range(100, 163)]
    found = told([
        *_FREED, (13, 0, "bulk", 50), *refill, (13, 0, "bulk_ret", 50),
        (13, 0, "bulk", 20), (13, 0, "bulk_ret", 20), (12, 0, "alloc", 162),
    ], probes=_BULK_PROBES)  # fmt: skip
    assert found.nr_unexplained == 0, found


def test_the_probes_that_record_makes_are_read(told):
    """They know no layout of a struct, and so do not print its fields."""
    more = [(9, 0, "decay", 7), (9, 0, "drain", 0), (9, 0, "hold", 7)]
    found = told([*_FREED, *more, (12, 0, "alloc", 0)])
    assert found.nr_unexplained == 0, found


_NO_PROBES = np.zeros((0, 16), np.int64)


def _rows(*lines):
    """(event, CPU, task, flags[, a]) of each line."""
    rows = np.zeros(len(lines), pm.recording(NATIVE).trace[0].rows.dtype)
    for k, (event, cpu, task, flags, *a) in enumerate(lines):
        number = EVENT_IDS[event.removeprefix("hit:")] + HIT * event.startswith("hit:")
        rows[k]["event"], rows[k]["cpu"], rows[k]["pid"] = number, cpu, task
        rows[k]["flags"], rows[k]["time"], rows[k]["line"] = FLAGS["known"] | flags, k, k
        rows[k]["a"] = a[0] if a else 0
    return rows


def test_what_is_freed_while_a_task_gets_the_cpu():
    rows = _rows(
        ("sched_switch", 0, 1, 2, 12), ("mm_page_free", 1, 12, 1), ("mm_page_free", 0, 12, 1),
        ("mm_page_free", 0, 12, 1), ("mm_page_alloc", 0, 12, 0), ("mm_page_free", 0, 12, 1),
        ("sched_switch", 0, 12, 2, 13), ("mm_page_free", 0, 13, 0),
        ("mm_page_pcpu_drain", 0, 13, 4), ("sched_switch", 0, 13, 2, 14),
        ("mm_page_free", 0, 14, 1), ("hit:free_pcppages_bulk", 0, 14, 3),
        ("mm_page_pcpu_drain", 0, 14, 4), ("mm_page_free", 0, 14, 1),
        ("mm_page_pcpu_drain", 0, 14, 4 | FLAGS["softirq"]), ("mm_page_pcpu_drain", 0, 14, 4),
        ("sched_switch", 1, 12, 2, 14), ("mm_page_free", 1, 14, 1),
        ("mm_page_free", 1, 14, 1 | FLAGS["need_resched"]),
        ("mm_page_free_batched", 1, 14, 2), ("sched_switch", 1, 14, 2, 15),
    )  # fmt: skip
    tasks = rows["pid"].copy()
    hand_over(Events(rows, _NO_PROBES), 2)
    switched = np.isin(rows["event"], (EVENT_IDS["sched_switch"], HIDDEN))
    others = ~switched & (rows["pid"] != tasks)
    assert np.flatnonzero(others).tolist() == [2, 3, 10, 11, 12, 13]
    assert not rows["pid"][others].any()


def test_a_switch_is_of_who_gets_the_cpu_and_is_hidden():
    rows = _rows(
        ("sched_switch", 0, 1, 2, 12), ("mm_page_alloc", 0, 12, 0), ("sched_switch", 0, 12, 2, 13),
        ("sched_switch", 0, 12, 2, 12),
    )  # fmt: skip
    hand_over(Events(rows, _NO_PROBES), 1)
    assert np.flatnonzero(rows["event"] == HIDDEN).tolist() == [2]
    assert rows["pid"].tolist() == [0, 12, 13, 0]
    assert rows["c"].tolist() == [1, 0, 12, 12]


@pytest.mark.parametrize("hidden", [True, False])
def test_a_task_that_no_switch_gave_its_cpu_had_it_from_one_that_writes_none(hidden):
    idle = FLAGS["softirq"] | 1
    rows = _rows(
        ("sched_switch", 0, 1, 2, 12), ("mm_page_alloc", 0, 12, 0), ("mm_page_free", 0, 0, idle),
        ("mm_page_alloc", 1, 14, 0), ("mm_page_alloc", 0, 12, 0),
        ("sched_switch", 0, 12, 2, 99 if hidden else 14), ("mm_page_alloc", 0, 13, 0),
        ("sched_switch", 0, 13, 2, 0), ("sched_switch", 0, 0, 2, 12), ("mm_page_free", 0, 12, 0),
    )  # fmt: skip
    events = Events(rows, _NO_PROBES)
    hand_over(events, 2)
    assert untold(events, 2).tolist() == ([[4, 2, 1], [6, 5, 5]] if hidden else [])
    rows["event"][5] = HIDDEN
    with pytest.raises(InputError, match="the trace tells of CPU 1; there are 1"):
        untold(events, 1)


@pytest.mark.parametrize("hidden", [True, False])
def test_what_an_idle_task_that_writes_no_line_took_is_explained_by_those_around_it(told, hidden):
    """Where tasks are hidden from the tracer, and only there: others write a sched_switch."""
    found = told([
        *_FREED, *[(1, 1, "switch", 99), (1, 1, "switch", 1)] * hidden,
        (0, 0, "free", 101, b"..s1."),
        (11, 0, "alloc", 101), (11, 0, "alloc", 1),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == hidden, found
    assert found.causes() == ({"a task of which no line tells had the CPU": 1} if hidden else {})


@pytest.mark.parametrize(("taken", "hidden"), [((2,), 2), ((1, 2), 1), ((0, 2), 0)])
def test_a_hidden_task_takes_what_lies_at_the_head_when_it_has_the_cpu(told, taken, hidden):
    """Not a page below one that was there then, and came to another task afterwards."""
    found = told([
        *_FREED, (1, 0, "switch", 99), (1, 0, "switch", 11), (11, 0, "movable", 900),
        *((11, 0, "alloc", page) for page in taken),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == (hidden > 0), found
    assert sum(found.causes().values()) == hidden, found


@pytest.mark.parametrize("hidden", [True, False])
def test_a_hidden_task_takes_what_an_interrupt_above_it_freed(told, hidden):
    """It goes on when that is over; one that is not hidden would tell of it."""
    task = 99 if hidden else 12
    found = told([
        *_FREED, (11, 0, "alloc", 0), (1, 0, "switch", task),
        *((task, 0, "free", page, b"..s..") for page in (101, 102)),
        (1, 0, "switch", 11), (11, 0, "alloc", 1), (11, 0, "alloc", 2), (12, 1, "alloc", 700),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == hidden, found
    assert found.causes().get("a task of which no line tells had the CPU", 0) == 2 * hidden


@pytest.mark.parametrize("hidden", [True, False])
def test_a_hidden_task_may_have_drained_what_lay_at_the_end(told, hidden):
    """The last two pages of the list, which never were at its head while that task had the CPU."""
    lists = _Filled()
    lists.lines += [(11, 0, "switch", 99), (11, 0, "switch", 12)] * hidden
    lists.pages = lists.pages[:-2]
    lists.frees(12, 148)
    lists.drains(12, 148)
    found = told(lists.lines, sizes=_SIZES)
    assert (found.nr_unexplained == 0) == hidden, found
    pages = [d for d in found.unexplained if d.what == "page of a drain"]
    assert bool(pages) == (not hidden), found


@pytest.mark.parametrize("before", [True, False])
def test_what_a_hidden_task_freed_lies_below_what_came_after_it(told, before):
    free = (11, 0, "free", 200)
    found = told([
        *_FREED, (11, 0, "alloc", 0), *[free] * before, (1, 0, "switch", 99),
        (1, 0, "switch", 11), *[free] * (not before), (11, 0, "alloc", 0),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == before, found


@pytest.mark.parametrize("cpu", [0, 1])
def test_what_another_cpu_drains_need_not_have_been_on_the_lists_of_who_freed_it(told, cpu):
    """A hidden task may have refilled it there: the next page of the same interrupt tells."""
    irq = b"..s2."
    found = told([
        *_FREED, (11, 0, "free", 100, irq), (11, 0, "free", 101, irq), (16, cpu, "drained", 100),
        (17, 1, "refill", 101), (11, 0, "alloc", 0),
    ])  # fmt: skip
    assert found.causes()["lists were locked: freed straight to the buddy lists"] == 1 + cpu


@pytest.mark.parametrize("high", [7000, 8000])
def test_a_free_brings_high_to_what_it_may_be_before_anybody_tells_of_the_new_sizes(told, high):
    """nr_pcp_high(); or none came after the sizes had changed."""
    found = told(
        [*_FREED, (12, 0, "counts", 0, high, 8000), (12, 0, "movable", 900)], {"high": 7000}
    )
    assert found.nr_unexplained == 0, found


def test_sizes_that_changed_with_no_line_are_told_of(tmp_path):
    """`vm.percpu_pagelist_high_fraction` was written, say: what differs then has this cause."""
    made = tmp_path / "resized"
    shutil.copytree(NATIVE, made)
    lines = b"".join(open_text(NATIVE / "trace.txt.zst")).splitlines(keepends=True)
    end = re.search(rb" [\d.]+: ", lines[-1])[0]
    lines += [
        re.sub(rb" [\d.]+: ", end, t.replace(b"-before", b"-after"))
        for t in lines if b": pcpmodel: snapshot-before" in t
    ]  # fmt: skip
    (made / "trace.txt.zst").unlink()
    (made / "trace.txt").write_bytes(b"".join(t for t in lines if b"# entries" not in t))
    told = shutil.copy(NATIVE / "zoneinfo.before", made / "zoneinfo.after")
    assert not [note for note in pm.replay(made).notes if "no line tells" in note]
    told.write_text(re.sub(r"high_max: +\d+", "high_max: 777", told.read_text()))
    (note,) = [note for note in pm.replay(made).notes if "no line tells" in note]
    assert re.match(r"high_max of node 0 \w+ is 777 at the end and was \d+ at the start", note)


def test_rows_of_another_cpu_or_that_cannot_be_written_are_not_handed_over():
    rows = _rows(("sched_switch", 0, 1, 2, 12))
    with pytest.raises(InputError, match="the trace tells of CPU 0; there are 0"):
        hand_over(Events(rows, _NO_PROBES), 0)
    rows.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        hand_over(Events(rows, _NO_PROBES), 1)


def test_a_page_that_a_hidden_task_has_freed_is_explained_and_counted_so(told):
    """Its allocation was in no column but the unexplained one, with nothing unexplained."""
    found = told([*_FREED, (13, 0, "alloc", 0), (1, 0, "switch", 99), (12, 0, "alloc", 0),
                  (12, 0, "switch", 12)])  # fmt: skip
    assert found.nr_unexplained == 0, found
    assert found.causes() == {"a task of which no line tells had the CPU": 1}
    assert found.count("allocations")[2:] == (1, 0)


_DIRECT = "lists were locked: taken straight from the buddy lists"
#: Locks held with PREEMPT_RT: migration is off as often as preemption elsewhere.
_ONE, _THREE = 1 << MIGRATE_SHIFT, 3 << MIGRATE_SHIFT
_TAKEN = "mm_page_alloc_zone_locked"


def test_a_refill_that_another_task_stopped_is_one_again():
    rows = in_one_piece(_rows(
        (_TAKEN, 0, 11, _THREE), (_TAKEN, 0, 11, _THREE), ("sched_switch", 0, 11, 2, 12),
        (_TAKEN, 0, 12, _ONE), ("mm_page_alloc", 0, 12, 0), (_TAKEN, 1, 13, _THREE),
        ("sched_switch", 0, 12, 2, 11), (_TAKEN, 0, 11, _THREE), ("mm_page_alloc", 0, 11, 0),
        (_TAKEN, 0, 11, _THREE), ("tracing_mark_write", 0, 12, 0), (_TAKEN, 0, 11, _THREE),
    ))  # fmt: skip
    assert rows["line"].tolist() == [0, 1, 7, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    assert rows["time"].tolist() == [0, 0, 0, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    assert (rows["flags"] & 15).tolist() == [3, 3, 3, 0, 1, 0, 3, 0, 0, 3, 0, 3]


#: CPU 0 has so many pages, and drains once it has as many as high.
_SIZES = {"count": 900, "high": 1100, "high_min": 1100, "high_max": 1100}


class _Filled:
    """Lines about an unmovable list that is empty, then filled: pages 600 to 662."""

    def __init__(self):
        self.pages, self.freed = list(range(601, 663)), 0
        self.lines = [
            (11, 0, "alloc", 500), *((11, 0, "refill", n, b"d..3.") for n in range(600, 663)),
            (11, 0, "alloc", 600),
        ]  # fmt: skip

    def frees(self, task, n):
        for _ in range(n):
            self.pages.insert(0, self.freed)
            self.lines.append((task, 0, "free", self.freed))
            self.freed += 1

    def takes(self, task, n):
        self.lines += [(task, 0, "alloc", self.pages.pop(0)) for _ in range(n)]

    def drains(self, task, n):
        self.lines += [(task, 0, "drained", self.pages.pop(), b"d..3.") for _ in range(n)]


@pytest.mark.parametrize(
    ("taken", "reported", "right"),
    [
        (b"d.s3.", b"..s2.", True),  # the interrupt came while the lists were held
        (b"d..1.", b".....", True),
        (b"d.s5.", b"..s2.", False),  # of these lists, which are not empty
        (b"d..3.", b".....", False),
    ],
)
@pytest.mark.parametrize("claimed", [False, True])
def test_a_block_is_taken_past_the_lists_by_the_locks_held_since_it_was_asked_for(
    told, taken, reported, right, claimed
):
    lists = _Filled()
    for page in range(700, 710):
        lists.lines.append((11, 0, "refill", page, taken))
        lists.lines += [(11, 0, "claimed", page, taken)] * claimed
        lists.lines.append((11, 0, "alloc", page, reported))
    lists.takes(11, 20)
    found = told(lists.lines, sizes=_SIZES)
    assert (found.nr_unexplained == 0) == right, (found, found.causes())
    if right:
        assert found.causes() == {_DIRECT: 10}


@pytest.mark.parametrize("more", [0, 3, 4, 8])
def test_pages_that_were_taken_to_be_a_stack_may_have_been_on_the_lists(told, more):
    """count tells that they had not left; but no more than those."""
    lists = _Filled()
    lists.lines += [(11, 0, "fork", 14), *_read(61), (11, 0, "fork", 16)]
    lists.pages = lists.pages[4:]
    lists.takes(12, 1)
    found = told([*lists.lines, *_read(61 - 5 + more)], sizes=_SIZES)
    assert (found.nr_unexplained == 0) == (more in (0, 4)), found
    assert found.causes() == {_NEW_STACK: 4 + (more == 4)}


def test_a_stack_that_count_showed_to_have_left_is_the_first_that_lines_tell_of(told):
    """Not that of a task which began after count was read."""
    lists = _Filled()
    pages = lists.pages[:4]
    found = told([
        *lists.lines, (11, 0, "fork", 14), *_read(61), (11, 0, "fork", 16), *_read(61 - 4),
        (11, 0, "fork", 18),
        *((15, 1, "free", page) for page in pages),
        *((15, 1, "alloc", page) for page in reversed(pages)), *_read(61 - 4),
    ], sizes=_SIZES)  # fmt: skip
    assert found.nr_unexplained == 0, found
    assert found.causes() == {_NEW_STACK: 5}  # count, and each page


def test_a_count_that_was_read_does_not_say_how_much_a_refill_asks_for(told):
    """A hidden task has refilled another list since, or before; high rises by as much as asked."""

    def replayed(blocks, hidden):
        return told([
            (11, 0, "alloc", 500), *((11, 0, "refill", n, b"d..3.") for n in range(600, 663)),
            *((11, 0, "alloc", n) for n in range(600, 663)), *[(11, 0, "switch", 99)] * hidden,
            (900, 0, "counts", -1, 2063), (900, 0, "sleep", 11),
            *((11, 0, "refill", n, b"d..3.") for n in range(700, 700 + blocks)),
            (11, 0, "alloc", 700), (11, 0, "sleep", 900),
            (900, 0, "counts", blocks - 2, 2063 + blocks), (900, 0, "sleep", 11),
        ], sizes={"count": 100, "high": 2000, "high_min": 500, "high_max": 5000})  # fmt: skip

    assert [replayed(blocks, 0).nr_unexplained == 0 for blocks in (126, 252)] == [True, False]
    found = replayed(252, 1)
    assert found.nr_unexplained == 0, found
    assert found.causes() == {"a task of which no line tells had the CPU": 1}


@pytest.mark.parametrize("forks", [0, 1])
def test_stacks_that_left_since_count_was_read_are_missing_when_the_tick_drains(told, forks):
    lists = _Filled()
    lists.lines += [(11, 0, "fork", 13), *_read(61, 1063), *[(11, 0, "fork", 15)] * forks]
    lists.lines += [(11, 0, "switch", 77), (77, 0, "tick", 0)]
    lists.drains(77, 954 - (1063 - 1063 // 8) - 4)
    lists.lines += [(77, 0, "sleep", 12), (12, 0, "movable", 900)]
    found = told(lists.lines, sizes=_SIZES | {"high": 1000, "high_min": 100, "high_max": 5000})
    assert (found.nr_unexplained == 0) == forks, found
    assert found.causes() == ({_NEW_STACK: 1} if forks else {})


def test_stacks_that_left_since_count_was_read_are_missing_when_a_free_would_drain(told):
    def foreseen(frees):
        lists = _Filled()
        lists.lines += [(11, 0, "fork", 13), *_read(61), (11, 0, "fork", 15)]
        lists.frees(12, frees)
        lists.drains(12, frees)
        return told(lists.lines, sizes=_SIZES).nr_unexplained == 0

    assert [foreseen(frees) for frees in range(145, 152)] == [
        frees in (146, 150) for frees in range(145, 152)
    ]


@pytest.mark.parametrize("forks", [0, 2])
def test_stacks_that_left_since_a_drain_came_as_foreseen_are_missing_at_the_next(told, forks):
    def foreseen(frees):
        lists = _Filled()
        lists.frees(12, 146)
        lists.drains(12, 146)
        lists.takes(12, 12)
        lists.lines += [(11, 0, "fork", task) for task in (13, 15)][:forks]
        lists.frees(12, frees)
        lists.drains(12, frees)
        return told(lists.lines, sizes=_SIZES).nr_unexplained == 0

    assert [foreseen(frees) for frees in range(156, 164)] == [
        frees in (158, 158 + 2 * forks) for frees in range(156, 164)
    ]


def test_a_stack_that_did_not_leave_is_not_missing_when_a_free_drains(told):
    """Pages that lay above one that was told of were taken to be gone."""

    def foreseen(frees):
        lists = _Filled()
        lists.lines += [(11, 0, "fork", 13), *_read(61), (11, 0, "fork", 15)]
        lists.pages = lists.pages[4:]
        lists.takes(12, 1)
        lists.frees(12, frees)
        lists.drains(12, frees)
        return told(lists.lines, sizes=_SIZES).nr_unexplained == 0

    assert [foreseen(frees) for frees in range(145, 153)] == [
        frees in (147, 151) for frees in range(145, 153)
    ]


_SMALL_BATCH = {"count": 1000, "high": 1010, "high_min": 100, "high_max": 5000, "batch": 1}


@pytest.mark.parametrize("what", ["free", "alloc", "none"])
@pytest.mark.parametrize("fewer", [0, 1, 2])
def test_the_tick_makes_high_of_a_count_that_a_stopped_task_is_about_to_change(told, what, fewer):
    """By the block of its line before, or of that with which it goes on, but by no other."""
    at_tick = 992 + (what == "free")
    found = told([
        (12, 0, "alloc", 300), *_FREED, *[(12, 0, "free", 300)] * (what == "free"),
        (12, 0, "switch", 77), (77, 0, "tick", 0),
        *((77, 0, "drained", 400 + k, b"d..3.") for k in range(32)), (77, 0, "sleep", 12),
        *[(12, 0, "alloc", 0)] * (what == "alloc"), (12, 0, "large", 448), (12, 0, "movable", 310),
        (12, 0, "sleep", 900),
        (900, 0, "counts", at_tick - 32 - (what == "alloc") - 1 - 993, at_tick - 32 - fewer),
        (900, 0, "sleep", 11), (11, 0, "movable", 320),
    ], sizes=_SMALL_BATCH)  # fmt: skip
    assert (found.nr_unexplained == 0) == (fewer == 0 or (fewer == 1 and what != "none")), found
    assert sum(found.causes().values()) == (found.nr_unexplained == 0 and fewer)


@pytest.mark.parametrize("forks", [True, False])
def test_a_stack_that_was_taken_before_a_refill_is_told_of_after_it(told, forks):
    """From pages of which nothing is known: the drain may come four pages later."""

    def foreseen(frees):
        lists = _Filled()
        lists.lines += [(11, 0, "fork", 13)] * forks
        lists.frees(12, frees)
        lists.drains(12, frees)
        return told(lists.lines, sizes=_SIZES).nr_unexplained == 0

    assert [foreseen(frees) for frees in range(145, 152)] == [
        frees == 146 or (forks and frees == 150) for frees in range(145, 152)
    ]


@pytest.mark.parametrize("flags", [b"..s..", b"....."])
def test_a_page_that_was_taken_before_an_interrupt_freed_others_is_told_of_after_it(told, flags):
    """Its list does not show when; free_count, halved before those frees, and so a drain does."""
    lists = _Filled()
    lists.frees(12, 130)
    lists.lines[-100:] = [(*line, flags) for line in lists.lines[-100:]]
    lists.lines.append((12, 0, "movable", 900))
    lists.frees(15, 17)
    lists.drains(15, 30 // 2 + 100 + 17)
    found = told(lists.lines, sizes=_SIZES)
    assert (found.nr_unexplained == 0) == (flags == b"..s.."), (found, found.causes())


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_an_interrupt_deeper_than_a_batch_finds_the_lists_locked(told, before, depth):
    """It stopped the tracer there; what it freed joins no list, though it is never seen again."""
    lists = _Filled()
    lists.frees(12, 145)
    lines = [(12, 0, "free", 950, b"..s%d." % depth), (12, 0, "batched", 144, b"...2.")]
    lists.lines += lines if before else lines[::-1]
    lists.frees(12, 1)
    lists.drains(12, 146)
    found = told(lists.lines, sizes=_SIZES)
    assert (found.nr_unexplained == 0) == (depth > 2), found
    if depth > 2:
        assert found.causes() == {"lists were locked: freed straight to the buddy lists": 1}


@pytest.mark.parametrize("depth", [b".", b"2"])
def test_a_free_that_an_interrupt_stopped_with_preemption_off_is_done_before_others_run(
    told, depth
):
    """Else its task may be stopped once more before the page joins its list."""
    irq = b"..s%s." % depth
    found = told([
        *((11, 0, "alloc", page) for page in range(4)), (12, 0, "free", 0),
        (12, 0, "free", 1, irq), (12, 0, "free", 2, irq), (15, 0, "free", 3),
        (12, 0, "movable", 900),
        *((16, 0, "drained", page) for page in ((1, 2, 0, 3) if depth == b"2" else (1, 2, 3, 0))),
    ])  # fmt: skip
    assert not [d for d in found.unexplained if d.what == "page of a drain"], found


@pytest.mark.parametrize("depth", [b".", b"1"])
def test_a_free_that_an_interrupt_stopped_may_be_the_last_line_of_its_task(told, depth):
    """It was done before the next task, as preemption was off by then, and after the interrupt."""
    irq = b"..s%s." % depth
    found = told([
        *((11, 0, "alloc", page) for page in range(3)), (12, 0, "free", 0),
        (12, 0, "free", 1, irq), (12, 0, "free", 2, irq), (15, 0, "movable", 900),
        (15, 0, "alloc", 0), (15, 0, "alloc", 2),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == (depth == b"1"), found


@pytest.mark.parametrize("to", ["switch", "sleep"])
def test_a_task_that_goes_to_sleep_has_done_what_it_freed(told, to):
    """Only one that was stopped may have been on its way to the list."""
    found = told([
        *_FREED, (11, 0, "movable", 899), (12, 0, "free", 200), (12, 0, to, 11),
        (11, 0, "movable", 900),
        (11, 0, "alloc", 0), (12, 0, "movable", 901),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == (to == "switch"), found


@pytest.mark.parametrize("us", [1, 48])
def test_what_comes_later_is_not_of_the_same_interrupt(told, us):
    """Task 12 took page 0 after the first, and reports it after the second."""
    found = told([
        *_FREED, (12, 0, "alloc", 0), (12, 0, "free", 0, b"..s1."),
        (12, 0, "free", 200, b"..s1.", us), (12, 0, "alloc", 0),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == (us == 48), found


@pytest.mark.parametrize("flags", [b"..s2.", b"....."])
def test_a_page_of_a_larger_block_had_gone_past_its_list(told, flags):
    """It is of order 2 when it is next told of: only in the buddy lists it becomes that."""
    found = told([
        *_FREED, (11, 0, "movable", 899), (12, 0, "free", 800, flags), (12, 0, "movable", 901),
        (11, 0, "movable", 900), (11, 0, "alloc", 0), (11, 0, "alloc block", 800),
    ])  # fmt: skip
    above = [d for d in found.unexplained if "not at the head" in d.what]
    assert (not above) == (flags == b"..s2."), found


@pytest.mark.parametrize("depth", [1, 3])
def test_an_interrupt_right_after_a_hold_finds_the_lists_locked(told, depth):
    """The zone's lock has been given back, the lists' has not."""
    lists = _Filled()
    lists.lines.insert(-1, (11, 0, "free", 950, b"..s%d." % depth))
    lists.frees(12, 146)
    lists.drains(12, 146)
    found = told(lists.lines, sizes=_SIZES)
    assert (found.nr_unexplained == 0) == (depth == 3), found


@pytest.mark.parametrize("who", [11, 15])
def test_a_task_makes_one_new_task_after_the_other(told, who):
    """So eight pages are no two stacks if one task is told to have made both afterwards."""
    found = told([
        *((11, 0, "alloc", page) for page in range(12)),
        *((11, 0, "free", page) for page in reversed(range(12))),
        (12, 0, "alloc", 0), (12, 0, "alloc", 9), (11, 0, "fork", 13), (who, 0, "fork", 14),
    ])  # fmt: skip
    assert (found.nr_unexplained == 0) == (who == 15), found


_IN_PIECES = {"kernel_series": "7.2", "kernel": "Linux version 7.2.13 #1 SMP PREEMPT_DYNAMIC"}
_GIVEN_UP = "drain given up: another CPU had locked the lists, or its task was moved"


@pytest.mark.parametrize("cpu", [0, 1])
def test_a_task_that_is_moved_between_two_pieces_of_a_drain_gives_it_up(told, cpu):
    lists = _Filled()
    lists.frees(12, 146)
    lists.drains(12, 63)
    found = told([*lists.lines, (12, cpu, "movable", 900)], sizes=_SIZES, **_IN_PIECES)
    assert (found.nr_unexplained == 0) == (cpu == 1), found
    assert found.causes().get(_GIVEN_UP, 0) == cpu


@pytest.mark.parametrize("seen", [False, True])
def test_a_page_of_which_no_line_told_may_have_left_before_its_own(told, seen):
    """Its task was stopped until after a drain that it put off; not if it wrote a line between."""
    lists = _Filled()
    lists.frees(12, 147)
    lists.drains(12, 147)
    found = told(
        [*lists.lines, *[(15, 1, "movable", 901)] * seen, (15, 0, "movable", 900)], sizes=_SIZES
    )
    assert (found.nr_unexplained > 0) == seen, found
    if not seen:
        assert found.causes() == {"left the list at another moment than its line says": 1}


@pytest.mark.parametrize(("left", "cpu"), [("switch", 0), ("switch", 1), ("sleep", 0)])
def test_a_page_of_which_no_line_told_may_be_of_a_cpu_that_its_task_was_stopped_on(told, left, cpu):
    """It comes out then that a drain of that CPU comes a page later; not if the task slept there,
    or was never there."""
    lists = _Filled()
    lists.frees(12, 147)
    lists.drains(12, 147)
    others = [(16, "large", 928), (17, "failed", 0)]
    found = told(
        [
            *(line for task, *_ in others for line in ((1, 0, "switch", task),
                                                       (task, 0, "switch", 12))),
            (1, cpu, "switch", 15), (15, cpu, left, 12), *lists.lines,
            *(line for task, what, page in others for line in ((1, 1, "switch", task),
                                                               (task, 1, what, page))),
            (1, 1, "switch", 15), (15, 1, "movable", 900),
        ],
        sizes=_SIZES,
    )  # fmt: skip
    was_there = left == "switch" and cpu == 0
    assert (found.nr_unexplained == 0) == was_there, found
    assert found.causes() == ({"reported from another CPU": 1} if was_there else {})


@pytest.mark.parametrize(
    ("then", "amid"),
    [
        ((13, 1, "movable", 900), True),
        ((13, 0, "movable", 900), False),
        ((12, 1, "movable", 900), False),
        ((12, 0, "switch", 13), False),
    ],
)
def test_a_recording_may_end_amid_a_drain(told, then, amid):
    """Neither its CPU nor its task has a line after it, nor did it leave the CPU."""
    lists = _Filled()
    lists.frees(12, 146)
    lists.drains(12, 100)
    found = told([*lists.lines, then], sizes=_SIZES)
    assert (found.nr_unexplained == 0) == amid, found
    assert found.nr_explained == 0


@pytest.mark.parametrize("first", [71, 63])
def test_another_task_drains_between_two_pieces_of_a_drain(told, first):
    """Each goes on with its own, one right after the other too."""
    lists = _Filled()
    lists.frees(12, 146)
    lists.drains(12, 63)
    lists.takes(15, 8)  # free_count is 0 then
    lists.frees(15, 71)
    lists.drains(15, first)
    lists.drains(12, 146 - 63)
    lists.drains(15, 71 - first)
    found = told(lists.lines, sizes=_SIZES, **_IN_PIECES)
    assert found.nr_unexplained == 0, found
    assert found.drains == 2


@pytest.mark.parametrize("kernel", ["PREEMPT_RT", "PREEMPT_DYNAMIC"])
def test_a_kernel_with_preempt_rt_is_followed(told, kernel):
    """A refill with preemption on is none that found the lists locked."""
    refill = [(11, 0, "refill", page, b"....3") for page in range(100, 163)]
    apart = [(11, 0, "switch", 12, b"d..23"), (12, 0, "refill", 163, b"....1"),
             (12, 0, "alloc", 163), (12, 0, "switch", 11, b"d..2.")]  # fmt: skip
    found = told(
        [*_FREED, (12, 0, "alloc", 0), *((12, 0, "alloc", page) for page in range(1, 6)),
         *refill[:30], *apart, *refill[30:], (11, 0, "alloc", 100), (12, 0, "alloc", 101)],
        kernel=f"Linux version 6.18.15 #1 SMP {kernel} Debian 6.18.15-1",
    )  # fmt: skip
    # Without PREEMPT_RT each is a block past the lists, which only who reports it can prove.
    assert found.nr_unexplained == (0 if kernel == "PREEMPT_RT" else 61), found
    assert all("no other line" in difference.what for difference in found.unexplained)
    assert found.causes() == {_DIRECT: 1 if kernel == "PREEMPT_RT" else 3}


def test_a_kernel_is_known_by_its_package_where_meta_json_has_another_version(told):
    found = told(
        _FREED, kernel_series="6.1", debian_package="linux 12.2.0-14+deb12u1)",
        kernel="Linux version 6.1.0-56-amd64 (gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0) "
        "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-16)",
    )  # fmt: skip
    assert found.release == "debian-6.1.192"
    assert not any("nearest" in note for note in found.notes)


def test_a_refill_of_movable_pages_takes_blocks_of_cma(told):
    """__rmqueue_cma_fallback(), in kernels with CONFIG_CMA: its lines have their type, not that of
    the request."""
    movable = [(11, 0, "cma" if page % 7 else "refilled", page, b"d..3.") for page in range(63)]
    found = told([*movable, (11, 0, "movable", 0), (12, 0, "movable", 1)])
    assert found.nr_unexplained == 0, found
    assert found.causes() == {}
    assert found.refills == 1


_BETWEEN = "drain in pieces, and others used the lists between two"


def _with_a_pause(lines, drain):
    """Another task takes the page that a drain has last, between its first two holds of 63 blocks.

    The rest of the trace is left out.
    """
    last = drain[-1]
    pfn, order, mt = re.search(rb"pfn=(\w+) order=(\d) migratetype=(\d)", lines[last]).groups()
    head = re.sub(rb"^.*? \[(\d+)\] \S+", rb"  another-31000 [\1] .....", lines[drain[63]])
    taken = head.partition(b": mm_page")[0] + b": mm_page_alloc: page=0 pfn=%s order=%s " \
        b"migratetype=%s gfp_flags=GFP_KERNEL\n" % (pfn, order, mt)  # fmt: skip
    return [*lines[: drain[63]], taken, *lines[drain[63] : last]]


def test_others_use_the_lists_between_two_pieces_of_a_drain(tmp_path):
    """From v6.19 on preemption is on there: what they take the drain has no more."""
    source = TRACES / "7.3-unixpair-4cpu"
    lines = b"".join(open_text(source / "trace.txt.zst")).splitlines(keepends=True)
    lines = [t for t in lines if b"# entries-in-buffer" not in t]
    drains, last = [], None
    for i, t in enumerate(lines):
        if b": mm_page_pcpu_drain: " not in t:
            last = None if t.partition(b"]")[0] == last and b"free_pcppages" not in t else last
        elif t.partition(b"]")[0] == last:
            drains[-1].append(i)
        else:
            last = t.partition(b"]")[0]
            drains.append([i])
    causes = []
    for n, drain in enumerate(d for d in drains[len(drains) // 2 :] if len(d) > 130):
        changed = _with_a_pause(lines, drain)
        target = tmp_path / f"{n}"
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(
            "trace.*", "pcpstate.*", "buddylists.*", "pageblocks.*", "zoneinfo.after*",
        ))  # fmt: skip
        (target / "trace.txt").write_bytes(b"".join(changed))
        found = pm.replay(target)
        causes.append(found.causes().get(_BETWEEN, 0) if found.nr_unexplained == 0 else 0)
        if causes[-1] or n == 8:
            break
    assert causes[-1] == 1, causes


@pytest.mark.parametrize("kernel", ["PREEMPT_RT", "PREEMPT_DYNAMIC"])
def test_with_preempt_rt_a_task_may_find_the_lists_locked(told, kernel):
    """By one that has not the CPU: what it frees goes straight to the buddy lists, as the line
    shows that takes it from there."""
    found = told(
        [*_FREED, (12, 0, "alloc", 0), (12, 0, "free", 0), (13, 0, "refill", 0, b"d.s11"),
         (13, 0, "alloc", 0), (12, 0, "alloc", 1)],
        kernel=f"Linux version 6.18.15 #1 SMP {kernel} Debian 6.18.15-1",
    )  # fmt: skip
    assert (found.nr_unexplained == 0) == (kernel == "PREEMPT_RT"), found
    cause = "lists were locked: freed straight to the buddy lists"
    assert found.causes().get(cause, 0) == (kernel == "PREEMPT_RT")


@pytest.mark.parametrize(
    ("what", "flags"), [("charged", b"...1."), ("alloc", b"...1."), ("charged", b".....")]
)
def test_who_charges_a_page_to_a_cgroup_reclaims_before_reporting_it(told, what, flags):
    """__memcg_kmem_charge_page(): what is asked for meanwhile, to compress others, lies below."""
    found = told([*_FREED, (11, 0, "alloc", 1, flags), (11, 0, what, 0)])
    good = what == "charged" and flags == b"...1."
    assert (found.nr_unexplained == 0) == good, found
    assert found.causes() == ({"taken before, reported later": 1} if good else {})


def test_a_batch_that_the_recording_ends_amid(told, tmp_path):
    """What is still to come has not joined its list; nor may the last one have."""
    told([
        *((11, 0, "alloc", page) for page in range(6)),
        *((11, 0, "free", page) for page in range(6)),
        *((11, 0, "batched", page) for page in range(3)),
        (12, 1, "alloc", 7),
    ])  # fmt: skip
    cap = pm.recording(tmp_path / "0")
    last = cap.trace[0].rows["a"][-2]
    _, follower = replay_without_dump(cap, cap.release, stop=len(cap.trace[0]) - 1)
    x = next(x for x in range(8) if last in follower.list_of(x, 0))
    assert follower.list_of(x, 0)[:4] == [last - k for k in range(3)]
    counts = [state[0] for state in follower.states(x)[0]]
    end = len(cap.trace[0]) - 1
    for below, shown in ((1, 1), (2, 0)):
        mine = PcpState(0, "", 0, 0, min(counts) - below, *[-1] * 9)
        assert follower.compare_counts({x: mine}, end, end) == (1, shown)


@pytest.mark.parametrize("hidden", [True, False])
def test_how_far_count_is_from_high_is_all_that_hidden_tasks_leave_known(told, tmp_path, hidden):
    """What they took before a tick made high of count is missing in both."""
    lists = _Filled()
    lists.lines[:0] = [(1, 0, "switch", 99), (1, 0, "switch", 1)] * hidden
    lists.frees(12, 146)
    lists.drains(12, 146)
    lists.takes(12, 1)
    assert told(lists.lines, sizes=_SIZES).nr_unexplained == 0
    cap = pm.recording(tmp_path / "0")
    end = len(cap.trace[0]) - 1
    _, follower = replay_without_dump(cap, cap.release, stop=end)
    x = 2 * [zone.name for zone in cap.zoneinfo("before").zones].index("Normal")
    count, high = follower.states(x)[0][0][:2]
    for below, lower, shown in ((3, 3, hidden), (3, 2, False)):
        mine = PcpState(0, "", 0, 0, count - below, high - lower, *[-1] * 8)
        assert follower.compare_counts({x: mine}, end, end) == (1, shown)


@pytest.mark.parametrize(("less", "stacks"), [(20, 5), (8, 2), (10, 0)])
def test_stacks_of_new_threads_at_the_head_of_a_list_are_missing_in_count(told, less, stacks):
    """They take no pages for a memory map of their own: no line shows that the head is gone."""
    found = told(
        [
            *_Filled().lines,
            *((11, 0, "fork", 20 + k) for k in range(5)),
            *((12, 0, "refilled", page, b"d..3.") for page in range(1300, 1426)),
            *((12, 0, "movable", page) for page in range(1300, 1426)),
            *((12, 0, "refilled", page, b"d..3.") for page in range(1500, 1637 + less)),
            *((14, 0, "free", page) for page in range(601, 621)),
        ],
        sizes={"count": 946, "high": 1200, "high_min": 1200, "high_max": 1200},
    )  # fmt: skip
    sizes = [d for d in found.unexplained if d.what.startswith("size of a refill")]
    assert (not sizes) == (stacks > 0), found


@pytest.mark.parametrize("hidden", [True, False])
def test_a_drain_of_a_large_block_bears_count_out_to_its_size_only(told, hidden):
    """What hidden tasks gave back before shows when a refill ends at high, two pages sooner."""
    found = told(
        [
            *((12, 0, "alloc", page) for page in range(700, 710)),
            *[(1, 0, "switch", 99), (1, 0, "switch", 12)] * hidden, (12, 0, "free block", 800),
            (12, 0, "drained block", 800, b"d..3."),
            *((12, 0, "drained", page, b"d..3.") for page in range(1000, 1059)),
            *((12, 0, "free block", page) for page in range(804, 868, 4)),
            *((12, 0, "drained block", page, b"d..3.") for page in range(804, 868, 4)),
            *((12, 0, "drained", page, b"d..3.") for page in range(1060, 1064)),
            *((12, 0, "alloc", page) for page in range(140)),
            *((12, 0, "refill", page, b"d..3.") for page in range(200, 263)),
            *((12, 0, "alloc", page) for page in range(200, 263)),
            *((12, 0, "refill", page, b"d..3.") for page in range(300, 426)),
            *((12, 0, "alloc", page) for page in range(300, 426)),
            *((12, 0, "refill", page, b"d..3.") for page in range(1500, 1642)),
        ],
        sizes={"count": 1303, "high": 1290, "high_min": 1290, "high_max": 1290},
    )  # fmt: skip
    assert (found.nr_unexplained == 0) == hidden, found
    assert found.causes() == ({"a task of which no line tells had the CPU": 1} if hidden else {})


def test_whose_pages_are_charged_is_told_by_their_own_line(told):
    taken = (11, 0, "alloc", 1, b"...1."), (11, 0, "alloc", 0), (11, 0, "charged", 2)
    found = told([*_FREED, *taken])
    assert found.nr_unexplained, found
