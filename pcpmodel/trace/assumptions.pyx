# cython: auto_pickle=False, autotestdict=False
"""What a trace tells late or not at all: the one table of what a replay may assume.

A difference is *explained* by one of these, and by nothing else.  Each says when it is
possible, what it does to what is known, and which line proves it: a line other than the
differing one, which the report names.  The follower goes by it, whether it starts from a dump or
infers its start, and `buddy_lists` and `free_lists` for the last two.
"""

# SPDX-License-Identifier: GPL-2.0-only

from dataclasses import dataclass


@dataclass(frozen=True)
class Assumption:
    """One row of the table."""

    name: str  #: as the report says
    when: str  #: it is possible
    does: str  #: to what is known of a pageset
    proof: str  #: the line that shows it


ASSUMPTIONS = {
    E_OVERTAKEN: Assumption(
        "taken before, reported later",
        "a page lies above the one that is taken, or on a list that is refilled",
        "that page has left already, for a task whose own line before is older",
        "its mm_page_alloc, later",
    ),
    E_LATE: Assumption(
        "reported after other pages had joined its list",
        "what lies above the page joined since the line before of the task that reports it; the "
        "first of it not in the same interrupt, which lets no task run, as the page itself",
        "the page left before they came",
        "the line with which the first of them joined",
    ),
    E_IN_FLIGHT: Assumption(
        "left the list at another moment than its line says",
        "count, a refill or a drain is not as foreseen",
        "a page left at another moment between its task's line before and its mm_page_alloc; where "
        "a hidden task had the CPU, or another page did: both are followed from that line on",
        "that mm_page_alloc",
    ),
    E_MIGRATED: Assumption(
        "reported from another CPU",
        "the page is on the lists of another CPU",
        "its task was moved before it reported, and goes on there",
        "the task's line before, on that CPU, or the sched_switch with which it left that",
    ),
    E_ZONE_FLAGS: Assumption(
        "zone flags changed between two probes",
        "kswapd woke, a watermark test may have failed or a drain may have cleared the flag",
        "a decision between goes by other flags",
        "the probe that shows them; without probes the line that lets them turn",
    ),
    E_TRYLOCK: Assumption(
        "lists were locked: freed straight to the buddy lists",
        "an interrupt frees where preemption is off below it, or while a drain of these lists runs",
        "the page joins no list",
        "free_one_page, the drain, the line at which the interrupt stopped the task, that which "
        "finds it in the buddy lists, or an allocation that takes what would lie below it",
    ),
    E_DIRECT: Assumption(
        "lists were locked: taken straight from the buddy lists",
        "a block leaves the buddy lists with fewer locks held than a refill holds, as its preempt "
        "depth tells; without that, while its list is not empty",
        "it goes to no list",
        "its mm_page_alloc",
    ),
    E_MOVED: Assumption(
        "list moved while it was dumped",
        "lines about a list stand between the markers of a dump",
        "its walk saw pages of two moments",
        "the last of these lines",
    ),
    E_DELAYED: Assumption(
        "freed, but joined its list later",
        "the task that freed the page has no line between",
        "the page joins its list where the task goes on",
        "the task's next line; the next one after an interrupt that came with preemption off",
    ),
    E_EXHAUSTED: Assumption(
        "refill cut short: the zone had no more pages",
        "a refill gets less than it asks for",
        "it got what there was",
        "the next probe of the zone's free pages",
    ),
    E_RELOCK: Assumption(
        "drain given up: another CPU had locked the lists, or its task was moved",
        "a drain in pieces ends before it is done",
        "the rest stays",
        "another CPU's line on these lists between two pieces, or the task's next line, on another",
    ),
    E_SILENT: Assumption(
        "stack of a new task, taken without a line",
        "alloc_pages_bulk() takes pages of order 0 from the head and tells of none (until v6.18)",
        "they leave without halving free_count",
        "sched_process_fork, or the line that frees them",
    ),
    E_TOGETHER: Assumption(
        "freed page by page, joined its list as one block",
        "a task frees neighbours one after the other, and vfree() merges them (v7.2)",
        "one block joins its list with the last of them",
        "the next line about it, which has its order",
    ),
    E_EMPTIED: Assumption(
        "all lists of a CPU emptied at once",
        "drain_pages_zone() may be called at any time, by any CPU",
        "a drain from the first list on, of all that is there",
        "the last line of the drain: nothing is left",
    ),
    E_REMOTE: Assumption(
        "a batch of a remote pageset given back",
        "a vmstat tick finds a pageset of another node unused for three ticks",
        "a drain of a batch from the first list on",
        "the tick",
    ),
    E_UNSEEN: Assumption(
        "block left, joined or changed places on its list without a line",
        "compaction isolates free blocks, and nobody tells",
        "a block is not where the free lists have it",
        "the line at which kcompactd had a CPU, or that frees the block",
    ),
    E_COMPACTED: Assumption(
        "free list of the last dump that compaction changed without a line",
        "as above; the pages are counted against what compaction isolated",
        "a free list differs by blocks that compaction holds",
        "the last line of kcompactd",
    ),
    E_READ: Assumption(
        "free list of the last dump that changed while it was read",
        "lines about a free list stand between the markers of the last dump",
        "its walk saw each block at one moment after another",
        "the line that moved a block meanwhile",
    ),
    E_HIDDEN: Assumption(
        "a task of which no line tells had the CPU",
        "a task that writes no line of any event had this CPU when a page lay at the head of its "
        "list, since one came that lies at the end, or since a drain came as foreseen",
        "it took pages, gave some back or drained, as any task does; the fields are open again",
        "its sched_switch; or the last line before one of a task that no sched_switch gave the CPU",
    ),
    E_BETWEEN: Assumption(
        "drain in pieces, and others used the lists between two",
        "its task has no line between two blocks, and another one of the CPU has (from v6.19 on)",
        "it ends where the lists, or the pages that it had to give, do: as many as there were then",
        "the first line between",
    ),
    E_HIGH_MAX: Assumption(
        "high came to high_max, which no file tells",
        "zoneinfo shows no high_max, and it was computed before the kernel gave back the memory of "
        "its own start, a 64th of all at most (from v6.7 on)",
        "high is at it, and known by count alone from there on",
        "the refill that raised high so far",
    ),
    E_PUT_BACK: Assumption(
        "given back to the compaction that had isolated it",
        "vmstat tells that compaction isolated pages; a task frees one that no line told to be in "
        "use again and again, or others with it so, and nobody takes it meanwhile",
        "it joins no list: compaction_free() keeps it for the next page to move, and "
        "free_pages_prepare() writes the line all the same",
        "the line that frees it again, or an allocation that takes what would lie below it",
    ),
}

#: Names of those that `buddy_lists` and `free_lists` go by.
UNSEEN, COMPACTED, READ_MEANWHILE = [
    ASSUMPTIONS[k].name for k in (E_UNSEEN, E_COMPACTED, E_READ)]
