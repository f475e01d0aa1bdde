"""A user's own kernel tree: its page-list functions, compiled.

The functions that decide about per-CPU page lists are taken out of mm/page_alloc.c by name, with
what they use, and compiled with the system's C compiler in surroundings of our own
(``tree_surroundings.h``), as the kernel does it for mm/vma.c in tools/testing/vma.  Nothing of the
tree is kept but the compiled result, in the user's cache folder.

Compiling and calling runs code of the tree: open only trees that you would build.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

from pcpmodel.errors import InputError, integer
from pcpmodel.files import read_bytes, read_json, read_sealed, read_text, write_sealed, writing
from pcpmodel.kernel.releases import BATCH_SCALE_MAX_RANGE
from pcpmodel.kernel.tree_elsewhere import begin_at_0, changed, defining
from pcpmodel.kernel.tree_files import (
    FILES,
    KCONFIG,
    MAX_SECONDS,
    Defaults,
    config_of,
    files_with,
    patched,
    tree_files,
)
from pcpmodel.kernel.tree_names import by_known_names
from pcpmodel.kernel.tree_rules import TreeRelease, known_texts, release_of
from pcpmodel.kernel.tree_source import MAX_BYTES, Item, Source, closed, cut, members, segments
from pcpmodel.kernel.zone import ZONE_FLAGS, flags_set

__all__ = [
    "EXCERPT",
    "FILES",
    "Tree",
    "cache_folder",
    "compiler",
    "limits",
    "open_tree",
    "refuse_full_disk",
]

#: As distributions configure x86-64 kernels.
CONFIG = {
    "64BIT": "1", "SMP": "1", "MMU": "1", "NUMA": "1", "TRANSPARENT_HUGEPAGE": "1", "CMA": "1",
    "MEMORY_ISOLATION": "1", "COMPACTION": "1", "ZONE_DMA": "1", "ZONE_DMA32": "1",
    "ZONE_DEVICE": "1", "SPARSEMEM": "1", "X86": "1", "X86_64": "1", "PCP_BATCH_SCALE_MAX": "5",
}  # fmt: skip
_SCALE = "PCP_BATCH_SCALE_MAX"

#: Options that functions of known releases ask for as well, and that are off there.
_OFF = {"HIGHMEM", "ZSMALLOC", "PREEMPT_RT", "DEBUG_VM"}

#: Variables that sizing sets.
_FRACTIONS = {"percpu_pagelist_fraction", "percpu_pagelist_high_fraction"}

#: Words of conditions, and what is defined where C is not compiled.
_NEVER = {"if", "ifdef", "ifndef", "elif", "else", "defined", "IS_ENABLED", "IS_BUILTIN",
          "__ASSEMBLY__", "__ASSEMBLER__", "__GENERATING_BOUNDS_H"}  # fmt: skip

_HERE = Path(__file__).parent
#: An excerpt that reads like mm/page_alloc.c, in words of its own, with the rules of v7.2.
EXCERPT = _HERE / "excerpt"
_SURROUNDINGS = (
    "tree_abi.h", "tree_surroundings.h", "tree_library.h", "tree_older.h", "tree_defaults.h",
    "tree_glue.h",
)  # fmt: skip

#: Functions that a tree must have, by what they do; the first name of each that is there is taken.
NEEDED = {
    "order_to_pindex": ("order_to_pindex",),
    "pindex_to_order": ("pindex_to_order",),
    "free_pcppages_bulk": ("free_pcppages_bulk",),
    "rmqueue_bulk": ("rmqueue_bulk",),
    "rmqueue_pcplist": ("rmqueue_pcplist",),
    "commit": ("free_frozen_page_commit", "free_unref_page_commit"),
    "drain_zone_pages": ("drain_zone_pages",),
    "drain_pages_zone": ("drain_pages_zone",),
}

#: Those that only some releases have.
KNOWN = (
    "__rmqueue_pcplist", "nr_pcp_alloc", "nr_pcp_high", "nr_pcp_free", "decay_pcp_high",
    "zone_batchsize", "zone_highsize", "pageset_set_high_and_batch",
)  # fmt: skip

#: The rest is the model's own, sizes of lists and buddy lists: what of it a tree has is compared
#: as text.
BESIDE = (
    "__free_one_page", "expand", "__rmqueue", "__rmqueue_smallest", "__rmqueue_fallback",
    "__rmqueue_claim", "__rmqueue_steal", "find_suitable_fallback", "refresh_cpu_vm_stats",
    "pcp_allowed_order", "MIN_PERCPU_PAGELIST_HIGH_FRACTION", "zone_set_pageset_high_and_batch",
    "zone_pcp_update_cacheinfo", "rmqueue", "rmqueue_buddy", "get_page_from_freelist",
    "gfp_to_alloc_flags", "__alloc_pages_bulk", "alloc_pages_bulk_noprof", "free_unref_page",
    "free_unref_page_list", "free_unref_folios", "__free_frozen_pages", "free_one_page",
    "reserve_highatomic_pageblock", "unreserve_highatomic_pageblock", "__zone_watermark_ok",
    "zone_watermark_fast", "zone_managed_pages", "zone_to_nid", "min_wmark_pages",
    "low_wmark_pages", "high_wmark_pages", "pcp_spin_trylock", "pcp_spin_unlock",
)  # fmt: skip

#: Structures that a tree may add fields to, by the names that they are defined by.
STRUCTS = {"zone": "zone", "pg_data_t": "pglist_data", "per_cpu_zonestat": "per_cpu_zonestat"}

_FIELDS = ("count", "high", "high_min", "high_max", "batch", "flags", "alloc_factor", "free_factor",
           "free_count", "count_min", "expire")  # fmt: skip

#: What each parameter of the functions that are called stands for: by name, then by type.
_ARGUMENTS = {
    "order": "order", "migratetype": "migratetype", "mt": "migratetype", "pcp": "set->pcp",
    "zone": "&set->zone", "preferred_zone": "&set->zone", "page": "set->loose",
    "alloc_flags": "alloc_flags", "fpi_flags": "0", "cpu": "0", "UP_flags": "&irq_state",
    "flags": "&irq_state", "gfp_flags": "0", "pfn": "0",
}  # fmt: skip
_SIZES = {
    "zone": "&zone", "batch": "batch", "cpu_online": "cpu_online", "high_fraction": "fraction",
    "pcp": "&size",
}  # fmt: skip

#: What does not change here, and flags that are given or that known kernels ask for.
_STILL = {"smp_processor_id", "raw_smp_processor_id", "numa_node_id", "numa_mem_id",
          "spin_is_contended", "spin_needbreak", "need_resched", "cond_resched_lock", "in_nmi",
          "in_hardirq", "in_irq", "in_softirq", "in_serving_softirq", "in_interrupt", "in_task",
          "irqs_disabled", "current_is_kswapd", "spin_trylock", "spin_trylock_irqsave",
          "raw_spin_trylock", "raw_spin_trylock_irqsave", "pcp_spin_trylock",
          "zone_idx", "page_zonenum", "zone_to_nid", "page_to_nid", "page_to_pfn",
          "get_pfnblock_migratetype", "get_pageblock_migratetype", "is_migrate_cma",
          "is_migrate_isolate", "is_migrate_isolate_page", "is_migrate_highatomic",
          "has_isolate_pageblock", "next_memory_node"}  # fmt: skip
#: The same where known kernels ask for it, too, of functions whose text may be another.
_STILL_IN = {
    "free_pcppages_bulk": {"page_to_pfn", "get_pfnblock_migratetype", "get_pageblock_migratetype",
                           "is_migrate_isolate", "has_isolate_pageblock"},
    "free_frozen_page_commit": {"smp_processor_id", "next_memory_node", "pcp_spin_trylock"},
    "free_unref_page_commit": {"is_migrate_isolate", "pcp_spin_trylock"},
    "rmqueue_bulk": {"is_migrate_cma"},
    "rmqueue_pcplist": {"page_zonenum", "pcp_spin_trylock"},
    "zone_highsize": {"zone_to_nid"},
}  # fmt: skip
_KNOWN_FLAGS = {"ZONE_BOOSTED_WATERMARK", "ZONE_RECLAIM_ACTIVE", "ZONE_BELOW_HIGH", "FPI_TO_TAIL",
                "FPI_TRYLOCK", "FPI_NOLOCK", "ALLOC_TRYLOCK", "ALLOC_NOLOCK", "ALLOC_HIGHATOMIC",
                "ALLOC_CMA", "ALLOC_KSWAPD", "FPI_SKIP_REPORT_NOTIFY"}  # fmt: skip
#: What only functions that size lists are given; as are fields of struct zone of these names.
_GIVEN_TO_SIZES = re.compile(
    r"\b(?:zone_managed_pages|(?:min|low|high|promo)_wmark_pages|wmark_pages|num_online_cpus"
    r"|cpumask_weight|zone_watermark_\w+)(?=\s*\()"
    r"|->\s*(?:pageset_(?:batch|high_min|high_max)|managed_pages)\b"
)
#: free_frozen_page_commit() since v6.8, in the statement that asks for the flag or clears it: that
#: goes with the operation, which says that it stays.
_HIGH_OK = r"\bzone_watermark_ok\s*\(\s*\w+\s*,\s*\w+\s*,\s*high_wmark_pages\s*\("
_BELOW_HIGH = re.compile(
    rf"ZONE_BELOW_HIGH[^;]*?&&\s*{_HIGH_OK}|{_HIGH_OK}[^;]*?clear_bit\(ZONE_BELOW_HIGH"
)
#: cpumask_weight() of CPUs of the zone's node is known, of no others.
_OTHER_CPUS = re.compile(r"\bcpumask_weight\s*\(\s*(?!cpumask_of_node\s*\()")
#: rmqueue_bulk() since v6.15: who may not wait gives up where the lock is taken.
_MAY_NOT_WAIT = re.compile(
    r"ALLOC_(?:NO|TRY)LOCK\s*\)+\s*\{\s*if\s*\(\s*!\s*spin_trylock_irqsave\b"
)
_SIZING = {"zone_batchsize", "zone_highsize", "pageset_set_high_and_batch"}
_ZONE_FLAG = re.compile(r"_bit\(\s*(ZONE_\w+)\s*,")
_TRACEPOINT = re.compile(r"(?<![.>\w])(trace_\w+)\s*\(")
_ROOM = re.compile(r"(?m)^[ \t]*([A-Z_][A-Z0-9_]*)[ \t]*\([^()\n]*\)[ \t]*;?[ \t]*$")
_OPTION = re.compile(r"\bCONFIG_(\w+)")
_WORD = re.compile(r"[A-Za-z_]\w*")

TRY_SECONDS = 20  # takes a fraction of one
MAX_MEMORY = 2 << 30
TREE_MEMORY = 512 << 20  # takes about 50 MiB


@dataclass(frozen=True)
class Tree:
    """A kernel tree whose page-list functions are compiled.

    Attributes
    ----------
    name : str
        As it was given.
    digest : str
        Of what was compiled, and how.
    library : Path
        The compiled functions.
    functions : mapping
        Name -> definition, of those that were taken and those that are only compared.
    taken : tuple of str
        Names of all definitions that were compiled.
    fields : tuple of str
        Of struct per_cpu_pages.
    borrowed : bool
        struct per_cpu_pages is not the tree's: it was not given.
    batch_scale_max : int
        CONFIG_PCP_BATCH_SCALE_MAX that it was compiled with.
    options : mapping
        All CONFIG_ values by name, without the prefix.
    text : str
        What was compiled, but for these.
    unread : tuple of str
        Files that a patch changes and that are not looked at.
    tracepoints : tuple of str
        Its own, hooks of vendors among them: calls that were left out.
    static_keys : mapping of str to bool
        Those that its functions ask for, as they are defined.
    by_default : tuple of str
        Options that nobody gave and that are other than usual, by mm/Kconfig of the tree.
    undecided : tuple of str
        Options that mm/Kconfig decides by others that nobody gave: which, by which.
    unset : tuple of str
        Options that its functions ask for and that are off, as no known release has them.
    undefined : tuple of str
        Macros of files that are not read, whose definition decides what is compiled.
    still : tuple of str
        What functions in words of their own ask for and is always the same here.
    variables : tuple of str
        Those that its functions ask for and that hold no constant.
    outside : tuple of str
        Variables that its functions write to, which are no state of a pageset.
    state : tuple of str
        Fields that only the tree has, of `STRUCTS`.
    passed_over : tuple of str
        Definitions that a patch changes or adds in the others, and that are not compiled.
    renamed : mapping of str to str
        What it calls otherwise than known kernels: their name, by its.
    """

    name: str
    digest: str
    library: Path
    functions: Mapping[str, Item] = field(repr=False)
    taken: tuple[str, ...] = field(repr=False)
    fields: tuple[str, ...] = ()
    borrowed: bool = False
    batch_scale_max: int = 5
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    text: str = field(default="", repr=False)
    unread: tuple[str, ...] = ()
    tracepoints: tuple[str, ...] = ()
    static_keys: Mapping[str, bool] = field(default_factory=dict)
    by_default: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    still: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def with_batch_scale_max(self, batch_scale_max: int) -> Self:
        """The same tree compiled with another CONFIG_PCP_BATCH_SCALE_MAX, 0..6.

        Raises
        ------
        InputError
            For a number out of its range, or if it cannot be compiled with it.
        """
        options = _with_scale(self.options, batch_scale_max)
        if options == self.options:
            return self
        digest, library, outside = _built(self.name, options, self.text)
        return replace(
            self, digest=digest, library=library, batch_scale_max=int(options[_SCALE]),
            options=options, outside=outside,
        )  # fmt: skip

    def as_release(self) -> TreeRelease:
        """The tree as a release: what `pcpmodel.release` makes of it."""
        return release_of(self)

    @property
    def caveats(self) -> list[str]:
        """What of the tree and its patch does not show, or stands as it is at boot: sentences."""
        keys = (f"{n} {'on' if on else 'off'}" for n, on in self.static_keys.items())
        values = (f"CONFIG_{n} is {self.options[n]}" for n in self.by_default)
        unset = (f"CONFIG_{n}" for n in self.unset)
        pages = tuple(
            f"CONFIG_{n}={value}" for n, value in self.options.items()
            if re.fullmatch(r"(?:\w+_)?PAGE_SHIFT", n) and value != "12"
        )  # fmt: skip
        return [
            f"{what}: {', '.join(names)}."
            for what, names in (
                ("Sizes of lists, zones and buddy lists stay the model's own; of the tree these "
                 "have the text of no known release", tuple(self._beside())),
                ("The patch changes what is not compiled, so that nothing of it shows here",
                 self.passed_over),
                ("The patch changes files that are not read", self.unread),
                ("Static keys are as they are defined", tuple(keys)),
                ("Tracepoints and hooks of its own do nothing, as nobody is attached to them",
                 self.tracepoints),
                ("By the defaults of mm/Kconfig", tuple(values)),
                ("Decided as if others were off that nobody gave (--config does)",
                 self.undecided),
                ("Off, as nothing sets it (--config does)", tuple(unset)),
                ("Compiled for pages of 4 KiB, which are others by", pages),
                ("Taken as not defined, as no file that is read does", self.undefined),
                ("Always of a task on CPU and node 0 where nobody waits, of a normal zone, of a "
                 "page 0 whose page block is of its own type, and of requests and zones without "
                 "flags of the tree's own", self.still),
                ("Variables are as they are defined",
                 tuple(n for n in self.variables if n not in self.outside)),
                ("Variables are kept once, whichever CPU or run writes to them", self.outside),
                ("Taken for what known kernels have in its place",
                 tuple(f"{name} for {of}" for name, of in self.renamed.items())),
                ("Left out, as no function has that name", tuple(self._absent())),
                ("Begin at 0 and are kept once, whichever zone, CPU or run writes to them",
                 self.state),
            ) if names
        ]  # fmt: skip

    def _beside(self) -> Iterator[str]:
        """Functions that are not compiled and that no known release has."""
        for name, item in self.functions.items():
            known = known_texts().get(name, {})
            if name in BESIDE and name not in self.passed_over and item.digest not in known:
                yield name

    def _absent(self) -> Iterator[str]:
        """What else is called by its name, if there is something of it in kernels of its kind."""
        if "high_min" in self.fields and "decay_pcp_high" not in self.functions:
            yield "decay_pcp_high"
        if "zone_batchsize" not in self.functions:
            yield "zone_batchsize"
        if not {"zone_highsize", "pageset_set_high_and_batch"} & self.functions.keys():
            yield "zone_highsize"

    @property
    def new_fields(self) -> tuple[str, ...]:
        """Fields of struct per_cpu_pages that no known release has."""
        return _own(self.fields)


def open_tree(
    path: str | os.PathLike[str],
    *,
    patch: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | None = None,
    batch_scale_max: int | None = None,
) -> Tree:
    """Take the page-list functions of a kernel tree and compile them.

    Raises
    ------
    InputError
        As `pcpmodel.tree`, which tells the arguments.
    """
    name = os.fspath(path)
    files = tree_files(name)
    before: Mapping[str, bytes] = {}
    unread: tuple[str, ...] = ()
    if patch is not None:
        before, files, unread = patched(name, files, Path(patch))
        name = f"{name}+{Path(patch).name}"
    options, off = (dict(CONFIG), _OFF) if config is None else config_of(Path(config))
    if config is None:
        del options[_SCALE]  # by mm/Kconfig, if that is given
    elif "NUMA" not in options:
        raise InputError(
            f"{config}: CONFIG_NUMA is not set; a tree is taken with CONFIG_NUMA=y, as "
            f"drain_zone_pages() and `expire` are there with it alone"
        )
    if batch_scale_max is not None:
        options = _with_scale(options, batch_scale_max)
    where = name if config is None else os.fspath(config)
    defaults = Defaults(
        files.get(KCONFIG, b""), where, options, off, whole=config is not None
    )  # fmt: skip
    defaults.values.setdefault(_SCALE, CONFIG[_SCALE])
    scale = {**defaults.values, **options}[_SCALE]
    integer(f"{where}: CONFIG_{_SCALE}", int(scale, 0), *BATCH_SCALE_MAX_RANGE)
    sources = _sources(name, files)
    # Whatever the tree has of these anywhere is not to be stood in for.
    stand_ins = Source("", read_bytes(_HERE / "tree_defaults.h")).items.keys()
    sources += defining(os.fspath(path), {*stand_ins, *KNOWN}.union(*NEEDED.values()), sources)
    named = {*KNOWN, *chain(*NEEDED.values())}
    sources, renamed = by_known_names(sources, _FIELDS, known_texts(), sorted(named))
    also: set[str] = set()  # names that no definition spells out
    while True:
        missed = {s.name for s in sources} - files.keys()
        extract = _Extract(name, sources, options, defaults, also, missed)
        try:
            made = extract.tree()
            break
        except MissingError as missing:
            hidden = {n for n in missing.names if extract.has(n)} - also
            more = defining(os.fspath(path), missing.names - hidden, sources)
            if not hidden and not more:
                if not missing.names or any(s.defined("per_cpu_pages") for s in sources):
                    raise
                raise InputError(
                    f"{missing.message}; no file that was given has struct per_cpu_pages, so that "
                    f"v7.3's stood in for it: give the tree, with include/linux/mmzone.h"
                ) from None
            also |= hidden
            sources += more
    own = dict.fromkeys(made.new_fields, "per_cpu_pages")
    own |= {f: STRUCTS[n] for n, some in extract.kept.items() for f in some}
    for file, data in files_with(os.fspath(path), own, {s.name for s in sources}).items():
        with contextlib.suppress(InputError):
            sources.append(Source(file, data))
    begin_at_0(name, own, sources, extract.items, extract.only_written())
    others = changed(before, [s for s in sources if s.name in files] if before else [])
    return replace(
        made, unread=unread, passed_over=tuple(n for n in others if n not in made.taken),
        renamed=renamed,
    )  # fmt: skip


def _sources(tree: str, files: Mapping[str, bytes]) -> list[Source]:
    """Files of a tree, and whether their braces and conditions match."""
    try:
        found = [Source(n, data) for n, data in files.items() if n != KCONFIG]
        for source in found:
            source.conditions  # noqa: B018  # looked at once
    except InputError as error:
        raise InputError(f"{tree}: {error.message}") from None
    return found


def _with_scale(options: Mapping[str, str], batch_scale_max: int) -> dict[str, str]:
    scale = integer("batch_scale_max", batch_scale_max, *BATCH_SCALE_MAX_RANGE)
    return {**options, _SCALE: str(scale)}


# The functions


class MissingError(InputError):
    """Names that nothing of what is read of a tree defines."""

    def __init__(self, message: str, names: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.names = frozenset(names)


class _Extract:
    """What is compiled of a tree."""

    def __init__(
        self,
        name: str,
        sources: list[Source],
        options: Mapping[str, str],
        defaults: Defaults,
        also: Iterable[str] = (),
        missed: Container[str] = (),
    ) -> None:
        self.name = name
        self.also = also
        self.items: list[Item] = []  #: that are compiled
        self.kept: dict[str, list[str]] = {n: [] for n in STRUCTS}  #: new fields that are used
        older = any(s.defined("per_cpu_pageset") for s in sources)
        # The files that page_alloc.c is compiled with, in this order; each other one by itself;
        # and what stands in where the tree has nothing.
        self.segments = segments(sources)
        self.unit = list({s.name: s for s, _, _ in reversed(self.segments)}.values())[::-1]
        self.others = [s for s in sources if s not in self.unit]
        self.stand_ins = [
            Source(n, read_bytes(_HERE / n))
            for n in (*(["tree_older.h"] if older else []), "tree_defaults.h")
        ]
        self.options = options
        self.defaults = defaults
        self.tracepoints: dict[str, None] = {}  #: that were left out
        self.library = frozenset(Source("", read_bytes(_HERE / "tree_library.h")).items)
        # Files that were read for what was missed give no more than that.
        theirs = {
            n for n in self.library for i in self.find(n)
            if i.kind in ("macro", "function") and i.file not in missed
        }  # fmt: skip
        self.ours = (
            frozenset().union(*(Source(n, read_bytes(_HERE / n)).items for n in _SURROUNDINGS[:3]))
            - theirs
        )

    @cache  # noqa: B019  # lives as long as it is worked on
    def find(self, name: str, file: str = "") -> list[Item]:
        """Definitions of a name as a file sees it, mm/page_alloc.c by default, in their order.

        Where it is only declared there, that of another file belongs to it, and where nothing of
        the tree defines it, that of a stand-in.
        """
        *headers, main = self.unit
        here = next((s for s in self.others if s.name == file), main)
        found = [i for s in (*headers, here) for i in s.defined(name)]
        if all(i.declares for i in found):
            more = ([i for i in s.defined(name) if not i.undefines]
                    for s in (main, *self.others, *self.stand_ins))  # fmt: skip
            found += next((m for m in more if m), [])
        return found

    def has(self, name: str) -> bool:
        return not all(i.declares for i in self.find(name))

    def definition(self, name: str) -> Item:
        """The last that counts, of several."""
        return [i for i in self.find(name) if not i.declares][-1]

    def taken(self, item: Item) -> Item:
        """A definition as it is compiled: of structures that others fill, what is kept."""
        if item.kind not in ("struct", "typedef") or item.name not in STRUCTS:
            return self.as_compiled(item)
        first = f"PCPMODEL_OF_{STRUCTS[item.name]}"
        return replace(item, text=cut(item.text, self.kept[item.name], first))

    @cache  # noqa: B019
    def as_compiled(self, item: Item) -> Item:
        """A definition as it is compiled.

        Without calls of tracepoints and vendors' hooks, which none of the files define: they do
        nothing until somebody attaches to them.  In struct per_cpu_pages without macros that
        nobody defines, which are room that a vendor keeps.
        """
        text = item.text
        if item.kind == "function":
            for call in reversed(list(_TRACEPOINT.finditer(text))):
                end = closed(text, call.end())
                if self.find(call[1]) or call[1] in self.ours or not end:
                    continue
                self.tracepoints[call[1]] = None
                nothing = "false" if call[1].endswith("_enabled") else "((void)0)"
                lines = "\n" * text.count("\n", call.start(), end)
                text = text[: call.start()] + nothing + lines + text[end:]
        elif item.name == "per_cpu_pages":
            text = _ROOM.sub(lambda m: m[0] if self.find(m[1]) or m[1] in self.ours else "", text)
        elif text.startswith("DECLARE_STATIC") and all(i.declares for i in self.find(item.name)):
            text = text.replace("DECLARE_STATIC", "DEFINE_STATIC", 1)  # in a file not read
        return item if text == item.text else replace(item, text=text)

    def tree(self) -> Tree:
        roles = {}
        for role, names in NEEDED.items():
            found = next((n for n in names if self.has(n)), None)
            if found is None:
                raise MissingError(
                    f"{self.name}: {self.unit[-1].name} has no function "
                    f"{' or '.join(f'{n}()' for n in names)}",
                    names,
                )
            item = self.definition(found)
            if item.kind != "function" and found in _FORESEEN:
                raise InputError(
                    f"{self.name}: {item.file}: line {item.line}: {found} is a {item.kind}; a "
                    f"function can be taken"
                )
            roles[role] = found
        more = [n for n in KNOWN if self.has(n)]
        items = self.closure([*roles.values(), *more, *self.also, "per_cpu_pages", "NR_PCP_LISTS",
                              "migratetype", "zone_flags", "ALLOC_KSWAPD", *STRUCTS])  # fmt: skip
        self.refuse_sizes([*roles.values(), *(n for n in more if n not in _SIZING)])
        self.refuse_masks(items)
        self.refuse_around(items)
        struct = self.taken(self.definition("per_cpu_pages"))
        fields = _fields(struct)
        for name, is_array in re.findall(r"\b(\w+)\s*(\[|:\s*\d)", struct.text):
            if is_array != "[" or name in _FIELDS:
                raise InputError(
                    f"{self.name}: {struct.file}: line {struct.line}: {name} of struct "
                    f"per_cpu_pages is {'an array' if is_array == '[' else 'a bit-field'}; a "
                    f"number can be taken"
                )
        for needed in ("lists", "count", "batch"):
            if needed not in fields:
                raise InputError(
                    f"{self.name}: {struct.file}: line {struct.line}: struct per_cpu_pages has no "
                    f"field {needed}"
                )
        asked = sorted(
            {w for i in items for t in (i.text, *i.conditions) for w in _OPTION.findall(t)}
        )
        conditions = {w for i in items for c in i.asks for w in _WORD.findall(c)}
        options = {
            **self.options,
            **{n: self.defaults.values[n] for n in (*asked, _SCALE)
               if n in self.defaults.values and n not in self.options},
        }  # fmt: skip
        text = self.text(items, self.calls(roles, more, fields, items))
        theirs = {s.name for s in (*self.unit, *self.others)}
        beside = (n for n in BESIDE if self.has(n) and self.definition(n).file in theirs)
        functions = {n: self.definition(n) for n in (*roles.values(), *more, *beside)}
        digest, library, outside = _built(self.name, options, text)
        return Tree(
            self.name, digest, library, functions,
            tuple(sorted({n for i in items for n in i.defines})),
            tuple(fields), struct.file == self.stand_ins[-1].name,
            int(options[_SCALE], 0), options, text, outside=outside,
            tracepoints=tuple(sorted(self.tracepoints)),
            static_keys=_static_keys(items, options),
            state=tuple(f"{f} of struct {STRUCTS[n]}" for n in STRUCTS for f in self.kept[n]),
            still=tuple(sorted({w for i in items for w in _still(i)})),
            variables=tuple(sorted({
                n for i in items if i.kind == "variable" and not i.declares
                and not re.match(r"[^=]*(?:\bconst\b|_STATIC_KEY_)", i.text)
                for n in i.defines if n not in _FRACTIONS
            })),
            by_default=tuple(
                n for n in options if n not in self.options and options[n] != CONFIG.get(n)
            ),
            undecided=tuple(
                f"CONFIG_{n} by {', '.join(sorted(self.defaults.undecided[n]))}"
                for n in dict.fromkeys((*asked, _SCALE)) if n in self.defaults.undecided
            ),
            unset=tuple(n for n in asked if n not in options and n not in {*CONFIG, *_OFF}),
            undefined=tuple(sorted(
                w for w in conditions - self.ours - self.library - _NEVER
                if not w.startswith("CONFIG_") and not self.known(w)
            )),
        )  # fmt: skip

    def refuse_sizes(self, names: Iterable[str]) -> None:
        """Refuse operations that ask how large the zone is, or the machine: nobody says so here."""
        for item in self.closed(names):
            text = _BELOW_HIGH.sub(lambda m: "\n" * m[0].count("\n"), item.text)
            found = _GIVEN_TO_SIZES.search(text)
            if item.kind == "function" and found:
                line = item.line + text.count("\n", 0, found.start())
                raise InputError(
                    f"{self.name}: {item.file}: line {line}: {item.name}() asks for "
                    f"{found[0].strip('-> ')}, which is given to functions that size the lists "
                    f"({', '.join(sorted(_SIZING))}) and to no operation on them"
                )

    def refuse_masks(self, items: Iterable[Item]) -> None:
        """Refuse what counts other CPUs than those of the zone's node."""
        for item in items:
            found = _OTHER_CPUS.search(item.text)
            if item.kind == "function" and found:
                line = item.line + item.text.count("\n", 0, found.start())
                raise InputError(
                    f"{self.name}: {item.file}: line {line}: {item.name}() counts CPUs of a mask; "
                    f"allowed: cpumask_weight(cpumask_of_node(...)), num_online_cpus()"
                )

    def refuse_around(self, items: Iterable[Item]) -> None:
        """Refuse what zones have around a pageset: it would be taken for the pageset itself.

        As in Android's v5.15, whose struct per_cpu_pages_ext has a lock before it.
        """
        text = "\n".join(i.text for i in items)
        for item in items:
            if (
                item.kind == "struct" and item.name not in ("per_cpu_pageset", *STRUCTS)
                and re.search(r"\bstruct\s+per_cpu_pages\s+\w+\s*;", item.text)
                and re.search(rf"\bstruct\s+{item.name}\b[^;{{}}]*\b__percpu\b", text)
            ):  # fmt: skip
                raise InputError(
                    f"{self.name}: {item.file}: line {item.line}: each CPU has a struct "
                    f"{item.name}, of which nothing is known here; a zone with struct "
                    f"per_cpu_pages, or up to v5.13 per_cpu_pageset, can be taken"
                )

    def closure(self, names: Sequence[str]) -> list[Item]:
        """Definitions of names and of all that they use; what the surroundings have is theirs.

        Of `STRUCTS` the fields that no known kernel has, as far as they are used.
        """
        while True:
            items = self.closed(names)
            used = {w for i in items for w in re.findall(r"(?:->|\.)\s*(\w+)", i.text)}
            kept = {
                n: [f for f in _fields(self.definition(n)) if f in used - known_fields()[of]]
                for n, of in STRUCTS.items()
            }
            if kept == self.kept:
                self.items = items
                return items
            self.kept = kept

    def closed(self, names: Iterable[str]) -> list[Item]:
        """As `closure`, with the fields that are kept."""
        todo, seen, items = [(n, "") for n in names], set(), {}
        apart = {s.name for s in self.others}
        while todo:
            name, file = todo.pop()
            if (name, file) in seen or name in self.ours:
                continue
            seen.add((name, file))
            for item in self.find(name, file):
                if (item.file, item.line) in items or not set(item.defines) - self.ours:
                    continue
                items[item.file, item.line] = item = self.taken(item)
                where = item.file if item.file in apart else file
                asked = {w for c in item.asks for w in _WORD.findall(c)}
                todo += ((w, where) for w in self.used(item, where))
                todo += (
                    (w, where) for w in asked if any(i.kind == "macro" for i in self.find(w, where))
                )
        found: dict[str, Item] = {}
        for item in items.values():
            if item.kind == "macro" or item.declares:
                continue
            same = found.setdefault(item.name, item)
            if same.file != item.file and {same.file, item.file} & apart:
                raise InputError(
                    f"{self.name}: {item.file}: line {item.line}: {item.name} is another than "
                    f"that of {same.file}: line {same.line}; one of a name can be taken"
                )
        return list(items.values())

    def used(self, item: Item, file: str) -> list[str]:
        """Names that a definition may need: functions where they are called, others anywhere."""
        found = []
        for word in item.words - {item.name}:
            kinds = {i.kind for i in self.find(word, file)} if self.known(word) else set()
            if (
                kinds - {"function", "variable"}
                or (kinds and re.search(rf"(?<![.>\w]){word}\s*\(", item.text))
                or (kinds and item.kind in ("variable", "struct", "enum"))
                or (
                    "variable" in kinds
                    and not re.search(rf"(?:[\w*]\s+\**|\*){word}\s*[;,=)\[]", item.text)
                )
            ):
                found.append(word)
        return found

    def only_written(self) -> set[str]:
        """Fields of the tree's own that nothing that is compiled asks for."""
        own = (*_own(_fields(self.definition("per_cpu_pages"))), *chain(*self.kept.values()))
        return {f for f in own if _only_written(f, self.items)}

    def known(self, word: str) -> bool:
        sources = (*self.unit, *self.others, *self.stand_ins)
        return any(word in s.items or f"{word}(" in s.text for s in sources)

    def call(self, name: str, meanings: Mapping[str, str]) -> str:
        function = self.definition(name)
        arguments = []
        for kind, parameter in function.parameters():
            if parameter not in meanings:
                raise InputError(
                    f"{self.name}: {function.file}: line {function.line}: {name}() has a parameter "
                    f"{kind} {parameter}; known: {', '.join(meanings)}"
                )
            of = re.search(r"struct (\w+)", kind)
            if of and of[1] not in ("per_cpu_pages", "per_cpu_pageset", "zone", "page"):
                raise InputError(
                    f"{self.name}: {function.file}: line {function.line}: {name}() has a parameter "
                    f"{kind} {parameter}, of which nothing is known here"
                )
            arguments.append(meanings[parameter])
        return f"{name}({', '.join(arguments)})"

    def calls(
        self, roles: Mapping[str, str], more: list[str], fields: list[str], items: list[Item]
    ) -> list[str]:
        """Macros that tell the glue how to call the tree's functions."""
        names = {n for i in items for n in i.defines}
        lines = [
            f"#define TREE_ALLOC {self.call(roles['rmqueue_pcplist'], _ARGUMENTS)}",
            f"#define TREE_COMMIT {self.call(roles['commit'], _ARGUMENTS)}",
            f'#define TREE_COMMIT_NAME "{roles["commit"]}"',
            f"#define TREE_DRAIN_REMOTE {self.call('drain_zone_pages', _ARGUMENTS)}",
            f"#define TREE_DRAIN_ALL {self.call('drain_pages_zone', _ARGUMENTS)}",
        ]
        if "decay_pcp_high" in more:
            lines.append(f"#define TREE_DECAY {self.call('decay_pcp_high', _ARGUMENTS)}")
        if "zone_batchsize" in more:
            lines.append(f"#define TREE_BATCHSIZE {self.call('zone_batchsize', _SIZES)}")
        if "zone_highsize" in more:
            lines.append(f"#define TREE_HIGHSIZE {self.call('zone_highsize', _SIZES)}")
            if "percpu_pagelist_high_fraction" in names:  # up to v6.6 it looks there itself
                lines.append("#define TREE_FRACTION percpu_pagelist_high_fraction")
        elif "pageset_set_high_and_batch" in more:
            lines.append(f"#define TREE_SET_SIZE {self.call('pageset_set_high_and_batch', _SIZES)}")
        for flag in ZONE_FLAGS:
            value = f"BIT(ZONE_{flag})" if f"ZONE_{flag}" in names else "0"
            lines.append(f"#define TREE_{flag} {value}")
        flags = (n for i in items if i.kind == "enum" for n in i.defines if n.startswith("PCPF_"))
        lines += [f"#define {flag} {flag}" for flag in flags]  # as known kernels define them
        common = [f for f in _FIELDS if f in fields]
        for way, to, source, flags in (
            ("GET", "(f)", "(p)", "flags_of_tree"), ("PUT", "(p)", "(f)", "flags_for_tree"),
        ):  # fmt: skip
            copies = [
                f"{to}->{n} = {flags}({source}->{n});" if n == "flags" else
                f"{to}->{n} = {source}->{n};" for n in common
            ]  # fmt: skip
            lines.append(f"#define TREE_{way}(f, p) " + " ".join(copies))
        if "high_min" in fields:
            lines.append("#define TREE_HIGH_MIN")
        own = [n for n in _own(fields) if not _only_written(n, items)]
        each = " ".join(f"f({n})" for n in (*common, *own))
        lines.append(f"#define TREE_EACH(f) {each}")
        pcp = "((struct per_cpu_pages *)0)"
        lines += [
            "#define TREE_OWN_SIZE (0" + "".join(f" + sizeof({pcp}->{n})" for n in own) + ")",
        ]
        places = zip(own, _places(own), strict=True)
        lines.append(
            "#define TREE_OWN_PLACES(f) "
            + " ".join(f"f({at}, sizeof({pcp}->{n}))" for n, at in places)
        )
        for name, to, source in (
            ("GET", "{at}", "&(p)->{field}"), ("PUT", "&(p)->{field}", "{at}"),
        ):  # fmt: skip
            copies = []
            for n, place in zip(own, _places(own), strict=True):
                at = f"(char *)(o) + {place}"
                copies.append(
                    f"memcpy({to.format(at=at, field=n)}, {source.format(at=at, field=n)}, "
                    f"sizeof((p)->{n}));"
                )
            lines.append(
                f"#define TREE_{name}_OWN(o, p) "
                f"if (TREE_OWN_SIZE <= PCPMODEL_TREE_OWN) {{ {' '.join(copies)} }}"
            )
        return lines

    def text(self, items: list[Item], calls: list[str]) -> str:
        """What is compiled, but for the options: the tree's files in the order of its preprocessor,
        of which the definitions taken are left."""
        written = _Written(self, items)
        for source in self.stand_ins:
            written.lines(source)
        for source, first, last in self.segments[:-1]:
            written.lines(source, first, last)
        for source in self.others:
            written.apart(source)
        written.lines(*self.segments[-1])
        return "\n".join([
            '#include "tree_surroundings.h"', *written.parts, '#line 1 "glue"', *calls,
            '#include "tree_glue.h"', "",
        ])  # fmt: skip


class _Written:
    """What is compiled of a tree, as it is written down."""

    def __init__(self, extract: _Extract, items: Iterable[Item]) -> None:
        self.extract = extract
        self.items: dict[str, dict[int, Item]] = {}
        self.functions: dict[str, list[Item]] = {}
        for item in items:
            self.items.setdefault(item.file, {})[item.line] = item
            if item.kind == "function":
                self.functions.setdefault(item.name, []).append(item)
        self.parts = [f"struct {i.name};" for i in items if i.kind == "struct"]
        self.open: list[list[str]] = []  #: conditions around, each to be written yet or empty
        self.declared: set[str] = set()

    def lines(self, source: Source, first: int = 1, last: int = MAX_BYTES) -> None:
        """What is taken of some lines, and the conditions around it."""
        items = self.items.get(source.name, {})
        directives = {n: (word, text) for n, word, text in source.directives()}
        behind = 0  # the last item
        for number in sorted({*items, *directives}):
            if not first <= number <= last or number < behind:
                continue
            if number in items:
                for condition in self.open:
                    self.parts += condition
                    condition.clear()
                self.item(items[number])
                behind = number + items[number].text.count("\n") + 1
                continue
            word, text = directives[number]
            if word in ("if", "ifdef", "ifndef"):
                self.open.append([f'#line {number} "{source.name}"', text])
            elif word in ("elif", "else"):
                (self.open[-1] or self.parts).append(text)
            elif word == "endif" and not self.open.pop():
                self.parts.append("#endif")

    def apart(self, source: Source) -> None:
        """A file that is not compiled with mm/page_alloc.c, whose macros it does not see."""
        items = self.items.get(source.name, {}).values()
        macros = {i.name for i in items if i.kind == "macro"}
        self.parts += [f'#pragma push_macro("{n}")' for n in sorted(macros)]
        self.lines(source)
        self.parts += [f'#pragma pop_macro("{n}")' for n in sorted(macros)]

    def item(self, item: Item) -> None:
        if item.kind not in ("macro", "typedef"):
            for name in sorted(self.called(item) - self.declared):
                for function in self.functions[name]:
                    head = function.text[: function.text.index("{")].strip()
                    self.parts += [*function.conditions, f"{head};", *_foreseen(function),
                                   *("#endif" for _ in function.conditions)]  # fmt: skip
        if item.name in (
            self.declared if item.kind == "function" and _foreseen(item) else self.extract.library
        ):
            self.parts.append(f"#undef {item.name}")
        if item.kind not in ("macro", "typedef"):
            self.declared |= self.called(item) | {item.name}
        if item.kind != "macro":
            self.parts.append(f'#line {item.line} "{item.file}"')
        self.parts.append(item.text)
        if item.kind == "function":
            self.parts += _foreseen(item)

    def called(self, item: Item) -> set[str]:
        """Functions that stand in one, macros included."""
        found: set[str] = set()
        todo, seen = [item], {item.name}
        while todo:
            for word in todo.pop().words - seen:
                seen.add(word)
                if word in self.functions:
                    found.add(word)
                todo += (i for i in self.extract.find(word, item.file) if i.kind == "macro")
        return found


# Behind each definition: what callers of it get where an operation is only foreseen, and when that
# is; by the names of its parameters, or else their places in known releases.
_FORESEEN = {
    "free_pcppages_bulk": ("pcpmodel_foresees", "pcpmodel_ask", {"count": 1}),
    "rmqueue_bulk": ("pcpmodel_fills", "pcpmodel_fill", {"count": 2, "list": 3}),
}


def _foreseen(item: Item) -> tuple[str, ...]:
    """Lines behind a definition: `_FORESEEN`, and what nr_pcp_high() is told and says."""
    names = [f"{name}_" for _, name in item.parameters()]
    given = ", ".join(names)
    if item.name == "nr_pcp_high":
        told = "pcpmodel_in_bulk(free_high_), " if "free_high_" in names else ""
        return (f"#define nr_pcp_high({given}) ({told}pcpmodel_threshold(nr_pcp_high({given})))",)
    if item.name not in _FORESEEN:
        return ()
    when, instead, places = _FORESEEN[item.name]
    passed = [
        f"{name}_" if f"{name}_" in names else names[min(place, len(names) - 1)]
        for name, place in places.items()
    ]
    call = f"{instead}({', '.join(passed)})"
    return (f"#define {item.name}({given}) ({when}() ? {call} : {item.name}({given}))",)


def _static_keys(items: Iterable[Item], options: Mapping[str, str]) -> dict[str, bool]:
    """Whether each static branch is taken at boot."""
    found = {}
    for item in items:
        key = re.search(r"_STATIC_KEY_(TRUE|FALSE|MAYBE)(?:_RO)?\((?:CONFIG_(\w+))?", item.text)
        if item.kind == "variable" and key:
            found[item.name] = key[1] == "TRUE" or (key[1] == "MAYBE" and key[2] in options)
    return found


def _still(item: Item) -> set[str]:
    """What a function asks for, known kernels' not, and is always the same here."""
    if item.kind != "function" or item.digest in known_texts().get(item.name, {}):
        return set()
    flags = set(re.findall(r"\b(?:alloc|fpi|gfp)_flags\s*&\s*\(?\s*(\w+)", item.text))
    known = _STILL_IN.get(item.name, set())
    asked = set(_WORD.findall(_MAY_NOT_WAIT.sub("", item.text)))
    return asked & _STILL - known | (flags | set(_ZONE_FLAG.findall(item.text))) - _KNOWN_FLAGS


@cache
def known_fields() -> dict[str, frozenset[str]]:
    """Fields of `STRUCTS` in known kernels."""
    known = read_json(_HERE / "tree_fields.json")
    return {name: frozenset(fields) for name, fields in known.items()}


def _own(fields: Iterable[str]) -> tuple[str, ...]:
    """Fields that no release has."""
    return tuple(f for f in fields if f not in {*_FIELDS, "lock", "lists"})


def _only_written(field: str, items: Iterable[Item]) -> bool:
    """Whether nothing asks for a field: it stands in statements that add to it or set it alone."""
    place = rf"(?:->|\.)\s*{field}\b"
    written = re.compile(
        rf"(?<=[;{{}})])\s*(?:\w+{place}\s*(?:\+\+|--|[-+|&^]?=(?!=)[^;]*)|(?:\+\+|--)\w+{place})\s*;"
    )
    texts = [i.text for i in items if i.kind in ("function", "macro")]
    return sum(len(re.findall(place, t)) for t in texts) == sum(
        len(written.findall(t)) for t in texts
    )


def _places(own: Sequence[str]) -> list[str]:
    """Where each of a tree's own fields begins, one after the other."""
    sizes = [f"sizeof(((struct per_cpu_pages *)0)->{n})" for n in own]
    return [" + ".join(["0", *sizes[:i]]) for i in range(len(own))]


def _fields(struct: Item) -> list[str]:
    """Names of the fields of struct per_cpu_pages."""
    return [name for names, _, _ in members(struct.text) for name in names]


# The compiler


def cache_folder(what: str) -> Path:
    """The folder of what was compiled, in the user's cache; nobody else can write to it."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base, "pcpmodel", what)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.lstat()
    except OSError as e:
        raise InputError(f"{folder}: {e.strerror}; XDG_CACHE_HOME names another place") from None
    if not stat.S_ISDIR(mode.st_mode) or mode.st_uid != os.getuid() or mode.st_mode & 0o022:
        raise InputError(
            f"{folder}: others can write to it, so what is compiled there is not to be trusted; "
            f"make it yours alone (chmod 700) or set XDG_CACHE_HOME"
        )
    for left in folder.glob(".new-*"):  # of one that was killed, if it is older than any can be
        with contextlib.suppress(OSError):
            if time.time() - left.lstat().st_mtime > 4 * MAX_SECONDS:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    return folder


def compiler() -> str:
    """The system's C compiler, or the one that CC names."""
    asked = os.environ.get("CC", "cc")
    found = shutil.which(asked)
    if found is None:
        raise InputError(f"no C compiler: {asked} is not there (Debian: apt install gcc)")
    return found


def limits(memory: int = MAX_MEMORY) -> None:
    """For a compiler: no more memory, time or output than any real source needs, or is allowed."""
    for what, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, MAX_SECONDS),
        (resource.RLIMIT_FSIZE, 64 << 20),
    ):
        _, allowed = resource.getrlimit(what)
        most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
        resource.setrlimit(what, (most, most))


def refuse_full_disk(errors: str, path: Path) -> None:
    """Refuse what a compiler could not write, which is not the source's fault."""
    if (full := os.strerror(errno.ENOSPC)) in errors:
        raise InputError(f"cannot be written: {full}", file=path)


# Tables of lines tell where a function failed.
_FLAGS = ("-O2", "-g1", "-std=gnu11", "-D_GNU_SOURCE", "-fPIC", "-shared",
          "-fsanitize=bounds-strict", "-fsanitize-undefined-trap-on-error",
          "-fno-strict-aliasing", "-fwrapv", "-fno-delete-null-pointer-checks",
          "-fno-tree-vectorize", "-fno-store-merging",
          "-Werror=implicit-function-declaration", "-Werror=int-conversion",
          "-Werror=incompatible-pointer-types", "-Werror=undef",
          "-fdiagnostics-color=never", "-fmax-errors=20",
          "-Wl,-z,defs,-z,relro,-z,now")  # fmt: skip


def _built(name: str, options: Mapping[str, str], text: str) -> tuple[str, Path, tuple[str, ...]]:
    """Digest and library of a source under CONFIG_ values, compiled and tried, and `outside`."""
    config = [f"#define CONFIG_{n} {v}" for n, v in sorted(options.items())]
    digest, library = _compiled(name, "\n".join([*config, text]))
    return digest, library, _checked(name, library)


def _compiled(name: str, text: str) -> tuple[str, Path]:
    """Digest and library of a source; compiled if that has not been done yet."""
    cc = compiler()
    parts = [text, *(read_text(_HERE / n) for n in _SURROUNDINGS), cc, *_FLAGS]
    digest = hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:32]
    folder = cache_folder("trees")
    library = folder / f"{digest}.so"
    if read_sealed(library) is not None:
        return digest, library
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as scratch:
        source, built = Path(scratch, "tree.c"), Path(scratch, "tree.so")
        with writing(source):
            source.write_text(text)
        try:
            done = subprocess.run(
                [cc, *_FLAGS, f"-I{_HERE}", "-o", built, source],
                capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                timeout=2 * MAX_SECONDS, preexec_fn=partial(limits, TREE_MEMORY), check=False,
                env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"} | {"LC_ALL": "C"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise InputError(f"{name}: the compiler takes more than {2 * MAX_SECONDS} s") from None
        if done.returncode:
            log = folder / f"{digest}.log"
            with writing(log):
                log.write_text(done.stderr)
            refuse_full_disk(done.stderr, library)
            raise MissingError(
                f"{name}: {_sentence(done.stderr)} (all of it: {log})", _missing(done.stderr)
            )
        write_sealed(library, read_bytes(built))
    return digest, library


def _checked(name: str, library: Path) -> tuple[str, ...]:
    """Whether what was compiled comes to an end; tried once, in a process of its own.

    Which variables it has written to then.
    """
    mark = library.with_suffix(".ok")
    known = read_sealed(mark)
    if known is not None:
        return tuple(known.decode().split())
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRY, library, name], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=TRY_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InputError(
            f"{name}: its functions do not come to an end within {TRY_SECONDS} s of random "
            f"operations"
        ) from None
    if done.returncode < 0:
        raise InputError(
            f"{name}: its functions end the process ({signal.Signals(-done.returncode).name})"
        )
    if done.returncode:
        raise InputError((done.stderr.strip().splitlines() or [f"{name}: fails"])[-1])
    write_sealed(mark, done.stdout.encode())
    return tuple(done.stdout.split())


_TRY = """
import sys
from types import SimpleNamespace
from pcpmodel.errors import InputError
from pcpmodel.kernel.tree import of_failed
from pcpmodel.kernel.tree_outside import Outside
from pcpmodel.kernel.tree_pages import compare
tree = SimpleNamespace(name=sys.argv[2], library=sys.argv[1], fields=(), functions=())
try:
    outside = Outside(sys.argv[1])
    _, found = compare(tree, "v7.2", 100_000, 0, 100_000)
except InputError as error:
    sys.exit(str(error))
failed = [f for f in found if f.get("failed")]
print(*outside.changed())
sys.exit(f"{tree.name}: {of_failed(failed[0])}" if failed else 0)
"""


#: Who is called for an operation (`pcpmodel.kernel.tree_pages.compare`) of another name.
_CALLED = {"alloc": "rmqueue_pcplist", "free": "the commit of a free", "decay": "decay_pcp_high"}


def of_failed(example: Mapping[str, Any]) -> str:
    """Of an operation that failed: who was called, what went wrong, in what state."""
    op = _CALLED.get(example["op"], example["op"])
    numbers = {k: v for k, v in example["before"].items() if k != "lists"}
    lists = {i: n for i, n in enumerate(example["before"]["lists"]) if n}
    told = [f"{k} {v}" for k, v in numbers.items() if v or k in ("count", "high", "batch")]
    told += [f"lists {lists}"] if lists else []
    told += [f"order {example['order']}"] if example["order"] else []
    told += flags_set(example["zone_flags"])
    who = op if " " in op else f"{op}()"
    return f"in {who} {example['failed']}, where {', '.join(told)}"


def _missing(errors: str) -> frozenset[str]:
    """Names that a compiler has not found."""
    found = re.findall(
        r"'(\w+)' undeclared|implicit declaration of function '(\w+)'|unknown type name '(\w+)'"
        r"|incomplete type '(?:const )?(?:struct|enum|union) (\w+)"
        r"|undefined type '(?:const )?(?:struct|union) (\w+)|undefined reference to .(\w+)",
        errors,
    )
    return frozenset(name for names in found for name in names if name)


def _sentence(errors: str) -> str:
    """What a compiler has against a tree, in one sentence: function, line, name."""
    function = ""
    lines = errors.splitlines()
    for at, line in enumerate(lines):
        inside = re.search(r"In function .([\w]+).:", line)
        if inside:
            function = inside.group(1)
        error = re.match(r"([^:]+):(\d+):(?:\d+:)? (?:fatal )?error: (.*)", line)
        if error:
            file, number, what = error.groups()
            if file.endswith(_SURROUNDINGS[1:3]):  # a macro of ours: where the tree uses it
                uses = (re.match(r"([^:/]+/[^:]+):(\d+):\d+: note: in ", n) for n in lines[at:])
                file, number = next((u.groups() for u in uses if u), (file, number))
            field = re.search(r".struct (zone|page|pglist_data). has no member named .(\w+).", what)
            missing = re.search(
                r".(\w+). undeclared|implicit declaration of function .(\w+).|"
                r"has no member named .(\w+).|use of undeclared identifier .(\w+).|"
                r"unknown type name .(\w+).", what
            )  # fmt: skip
            what = re.sub(r"\s+", " ", what)
            if file == "glue" or file.endswith("tree_glue.h"):
                return f"a function or struct per_cpu_pages is unlike any known release's: {what}"
            where = f"{file}: line {number}: " + (f"{function}() " if function else "")
            if field:
                return (
                    f"{where}uses {field[2]} of struct {field[1]}, of which nothing is there but "
                    f"what known releases use here"
                )
            if missing:
                word = next(g for g in missing.groups() if g)
                return f"{where}uses {word}, which is not in the files of the tree that are read"
            return where + what
    lines = [line for line in lines if line.strip()]
    undefined = re.search(
        r"(?:(?:\S*/)?(\w+/\w+\.[ch]):(\d+): )?undefined reference to .(\w+)", errors
    )
    if undefined:
        where = f"{undefined[1]}: line {undefined[2]}: " if undefined[1] else ""
        return f"{where}{undefined[3]} is used and not defined in the files that are read"
    return "the compiler failed" + (f": {lines[-1][:200]}" if lines else "")
