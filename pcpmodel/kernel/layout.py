"""``struct per_cpu_pages``, field by field, as pahole prints it.

The members follow from the rules of a release; offsets, holes and padding follow from C: natural
alignment on a 64-bit machine, and 64-byte lines for ``____cacheline_aligned_in_smp``, which comes
with the lock; up to v5.13 ``expire`` stands beside the structure, in ``struct per_cpu_pageset``.
The configuration is that of a distribution kernel: ``CONFIG_SMP``, ``CONFIG_NUMA`` (else there is
no ``expire``), ``CONFIG_TRANSPARENT_HUGEPAGE`` (else the lists of order 9 are missing) and no lock
debugging (``spinlock_t`` takes 4 bytes).
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from dataclasses import dataclass

from pcpmodel.kernel.releases import Release, Rules
from pcpmodel.kernel.releases import release as _release

__all__ = ["CACHELINE_BYTES", "Layout", "Member", "layout"]

CACHELINE_BYTES = 64

#: C type -> size and alignment in bytes.
_C_TYPES = {
    "spinlock_t": (4, 4),
    "int": (4, 4),
    "short int": (2, 2),
    "u8": (1, 1),
    "struct list_head": (16, 8),
}


@dataclass(frozen=True)
class Member:
    """A member of the structure and the hole behind it."""

    c_type: str
    name: str
    length: int  #: elements of an array, 0 for a plain member
    offset_bytes: int
    size_bytes: int
    hole_bytes: int  #: unused bytes before the next member; the last member has none

    @property
    def declarator(self) -> str:
        """``name``, or ``name[length]`` of an array."""
        return f"{self.name}[{self.length}]" if self.length else self.name


@dataclass(frozen=True)
class Layout:
    """``struct per_cpu_pages`` of one release.

    Attributes
    ----------
    release : str
        Name of the kernel state.
    members : tuple of Member
        In the order of the declaration.
    size_bytes : int
        With the padding at the end; a multiple of ``align_bytes``.
    align_bytes : int
        64, or 8 where the structure is not aligned to lines.
    """

    release: str
    members: tuple[Member, ...]
    size_bytes: int
    align_bytes: int = CACHELINE_BYTES

    @property
    def cachelines(self) -> int:
        """64-byte lines that one instance takes."""
        return -(-self.size_bytes // CACHELINE_BYTES)

    @property
    def sum_members_bytes(self) -> int:
        """Bytes in use."""
        return sum(m.size_bytes for m in self.members)

    @property
    def holes_bytes(self) -> tuple[int, ...]:
        """Sizes of the holes, in order."""
        return tuple(m.hole_bytes for m in self.members if m.hole_bytes)

    @property
    def padding_bytes(self) -> int:
        """Unused bytes behind the last member."""
        return self.size_bytes - self.sum_members_bytes - sum(self.holes_bytes)

    def __getitem__(self, name: str) -> Member:
        """Member by name.

        Raises
        ------
        KeyError
            If this release has no such member.
        """
        for member in self.members:
            if member.name == name:
                return member
        raise KeyError(name)

    def __str__(self) -> str:
        """Listing in pahole's form."""
        lines = ["struct per_cpu_pages {"]
        for m in self.members:
            place = f"/* {m.offset_bytes:5} {m.size_bytes:5} */"
            lines.append(f"\t{m.c_type:<26} {m.declarator + ';':<22}{place}")
            if m.hole_bytes:
                unit = "byte" if m.hole_bytes == 1 else "bytes"
                lines += ["", f"\t/* XXX {m.hole_bytes} {unit} hole, try to pack */", ""]
        lines += [
            "",
            f"\t/* size: {self.size_bytes}, cachelines: {self.cachelines}, "
            f"members: {len(self.members)} */",
        ]
        if self.holes_bytes:
            lines.append(
                f"\t/* sum members: {self.sum_members_bytes}, holes: {len(self.holes_bytes)}, "
                f"sum holes: {sum(self.holes_bytes)} */"
            )
        if self.padding_bytes:
            lines.append(f"\t/* padding: {self.padding_bytes} */")
        aligned = self.align_bytes == CACHELINE_BYTES
        lines.append(f"}} __attribute__((__aligned__({CACHELINE_BYTES})));" if aligned else "};")
        return "\n".join(lines)


def _declaration(rules: Rules) -> list[tuple[str, str, int]]:
    """C type, name and array length of every member, in order."""
    flags = rules.free_high_two_in_a_row or rules.free_high_batch
    scaled = rules.scaled_drains
    members = [
        ("spinlock_t", "lock", rules.pcp_lock),
        ("int", "count", True),
        ("int", "count_min", rules.count_min),
        ("int", "high", True),
        ("int", "high_min", rules.high_min_max),
        ("int", "high_max", rules.high_min_max),
        ("int", "batch", True),
        ("u8", "flags", flags),
        ("u8", "alloc_factor", rules.alloc_scale),
        ("u8" if flags else "short int", "free_factor", scaled and not rules.free_count),
        ("u8" if rules.alloc_scale else "short int", "expire", scaled or rules.free_count),
        ("short int", "free_count", rules.free_count),
    ]
    plain = [(c_type, name, 0) for c_type, name, present in members if present]
    return [*plain, ("struct list_head", "lists", rules.nr_pcp_lists)]


def layout(release: str | Release) -> Layout:
    """Lay out ``struct per_cpu_pages`` of a release.

    Parameters
    ----------
    release : str or Release
        Kernel state; for a combination of patches that was never posted, the members that
        its rules need, in the series' order.

    Returns
    -------
    Layout
        ``str()`` of it is pahole's listing.

    Raises
    ------
    InputError
        For an unknown release.

    References
    ----------
    include/linux/mmzone.h, struct per_cpu_pages, v6.6 and v6.7, and the patches between.

    Examples
    --------
    >>> new = layout("v6.7")
    >>> new["free_count"].offset_bytes, new.holes_bytes, new.padding_bytes
    (28, (1, 2), 16)
    """
    state = _release(release)
    declared = _declaration(state.rules)
    offset, placed = 0, []
    for c_type, _, length in declared:
        size, align = _C_TYPES[c_type]
        offset += -offset % align
        placed.append((offset, size * (length or 1)))
        offset += placed[-1][1]
    ends = [start for start, _ in placed[1:]] + [offset]
    members = tuple(
        Member(c_type, name, length, start, size, end - start - size)
        for (c_type, name, length), (start, size), end in zip(declared, placed, ends, strict=True)
    )
    to = CACHELINE_BYTES if state.rules.pcp_lock else 8
    return Layout(state.name, members, offset + -offset % to, to)
