"""How the kernel sizes one zone's lists, in words: its arithmetic, and what gives another number.

Sizing happens at boot, when watermarks change, when a CPU comes or goes and when the sysctl is
written; it uses the managed pages, the watermark and the CPUs *of that moment*.  A value that
does not follow from what the file shows now comes with what would have given it.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pcpmodel.kernel import sizing
from pcpmodel.kernel.releases import Release, Rules
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.proc.cpulist import cpu_list
from pcpmodel.proc.zoneinfo import Pageset, Zone, Zoneinfo

__all__ = ["Case", "few"]

#: Most CPUs that a kernel for s390 is built for (arch/s390/Kconfig, NR_CPUS).
_MOST_CPUS = 512


def few(values: Sequence[int]) -> str:
    """Sorted numbers one by one, or their range where there are many."""
    if len(values) <= 8:
        return ", ".join(map(str, values))
    return f"{len(values)} values in {values[0]} ... {values[-1]}"


@dataclass(frozen=True)
class Case:
    """A zone and the rules it is sized by."""

    info: Zoneinfo
    zone: Zone
    node_cpus: int
    release: Release
    high_fraction: int
    page_shift: int

    @property
    def rules(self) -> Rules:
        return self.release.rules

    @property
    def online(self) -> int:
        return len(self.info.online_cpus)

    @property
    def n(self) -> int:
        return sizing.highsize_divisor(self.node_cpus, self.online)

    def size(self, coming: int = 0) -> sizing.PagesetSize:
        return sizing.zone_set_pageset_high_and_batch(
            self.zone.managed,
            self.zone.low_wmark_pages,
            self.rules,
            node_cpus=self.node_cpus,
            online_cpus=self.online,
            cpu_online=coming,
            high_fraction=self.high_fraction,
            page_shift=self.page_shift,
        )

    def fraction(self, name: str) -> int:
        """Divisor behind a limit; 0: the low watermark is behind it."""
        if name == "high_max":
            return self.high_fraction or sizing.MIN_PERCPU_PAGELIST_HIGH_FRACTION
        return self.high_fraction

    def total(self, name: str) -> int:
        return sizing.highsize_total(
            self.zone.managed, self.zone.low_wmark_pages, self.fraction(name)
        )

    # How a number comes about

    def formula(self, name: str, size: sizing.PagesetSize) -> str:
        """That of a limit; a kernel tree's own function is named where it gives another number."""
        if self.rules.sizing is not None:
            base = replace(self, release=find_release(self.release.recorded["tree_base"]))
            if getattr(base.size(), name) != getattr(size, name):
                function = "zone_batchsize" if name == "batch" else "zone_highsize"
                said = f"{function}() of the tree; {base.release.name} would make it"
                return f"{said} {getattr(base.size(), name)}: {base.formula(name, base.size())}"
        return self.batch_formula() if name == "batch" else self.high_formula(name, size.batch)

    def batch_formula(self) -> str:
        managed = self.zone.managed
        if self.high_fraction and not self.rules.high_by_watermark:
            most = 8 * self.page_shift
            return f"high / 4, at least 1, at most 8 * {self.page_shift} = {most}"
        raw = sizing.zone_batchsize(managed, self.rules, self.page_shift)
        if self.rules.batchsize_256k:
            most = (256 << 10) >> self.page_shift
            share = min(managed >> 12, most)
            text = f"min({managed} managed >> 12, {most}) = {share}"
            if share <= 1:
                return f"{text}, at most 1: batch 1"
        else:
            most = (1 << (20 if self.rules.batchsize_1m else 19)) >> self.page_shift
            quarter = min(managed >> 10, most) // 4
            share = max(quarter, 1)
            text = f"min({managed} managed >> 10, {most}) / 4 = {quarter}"
            text += "" if quarter else ", at least 1"
        text += f"; largest power of two up to {share} + {share // 2}, less 1 = {raw}"
        return text if raw else f"{text}, at least 1: batch 1"

    def high_formula(self, name: str, batch: int) -> str:
        zone, fraction, total = self.zone, self.fraction(name), self.total(name)
        if name == "high_max" and self.high_fraction:
            return "= high_min: the sysctl is set, nothing is tuned"
        if not self.rules.high_by_watermark:
            if fraction:
                return f"{zone.managed} managed / {fraction} = {total}"
            return f"six batches: {sizing.least_high(batch, self.rules)}"
        if fraction:
            text = f"{zone.managed} managed / {fraction} = {total}"
        else:
            text = f"low watermark {total}"
            if zone.boost:
                text += f" ({zone.low} printed less boost {zone.boost})"
        cpus = f"CPUs of node {zone.node}" if self.node_cpus else "online CPUs (the node has none)"
        share, floor = total // self.n, 4 * batch
        text += f"; max({total} / {self.n} {cpus}, 4 * {batch}) = max({share}, {floor})"
        return f"{text} = {max(share, floor)}"

    def tuned_high(self, size: sizing.PagesetSize) -> str:
        """What the CPUs' own ``high`` are, where it is tuned; never wrong, so never checked."""
        lo, hi = size.high_min, size.high_max
        assert lo is not None
        assert hi is not None
        values = sorted({p.high for p in self.zone.pagesets})
        out = [v for v in values if v != sizing.clamp(v, lo, hi)]
        text = f"{few(values)} reported: each CPU's own"
        if self.rules.auto_high:
            text += f", tuned within {lo} ... {hi}"
            if out:
                text += f"; {few(out)}: clamped when that CPU next uses the list"
        return text

    # What would have given a number that does not follow

    def why(self, size: sizing.PagesetSize, checked: Sequence[str]) -> tuple[str, ...]:
        reasons = []
        boot = sizing.boot_pageset(self.rules)
        wrong = [
            p
            for p in self.zone.pagesets
            if any(getattr(p, name) != getattr(size, name) for name in checked)
        ]
        unsized = [
            p for p in wrong if all(getattr(p, name) == getattr(boot, name) for name in checked)
        ]
        if unsized:
            text = "batch 1 and no high: the lists were disabled, or not sized yet"
            reasons.append(text + self._some(unsized))
        skip = {p.cpu for p in unsized}
        for name in checked:
            sized: dict[int, list[Pageset]] = {}
            for p in wrong:
                if p.cpu not in skip and getattr(p, name) != getattr(size, name):
                    sized.setdefault(getattr(p, name), []).append(p)
            why = self.why_batch if name == "batch" else self.why_high
            for value, pagesets in sorted(sized.items()):
                some = self._some(pagesets)
                reasons.append(f"{name} {value}{some} {why(name, value, size.batch)}")
        return tuple(reasons)

    def _some(self, pagesets: Sequence[Pageset]) -> str:
        if len(pagesets) == self.online:
            return ""
        return f" (CPU {cpu_list([p.cpu for p in pagesets])})"

    def why_batch(self, name: str, value: int, batch: int) -> str:
        top = 1 << 18  # from here on both forms are constant, with pages of 4 KiB and more

        def used(managed: int) -> int:
            return sizing.used_batch(managed, self.rules, self.page_shift)

        first = bisect_left(range(top + 1), value, key=used)
        end = bisect_right(range(top + 1), value, key=used)
        if first == end:
            return "is what no zone of any size gets under these rules"
        span = f"{first} and more" if end > top else f"{first} ... {end - 1}"
        return f"is what {span} managed pages give; the zone has {self.zone.managed} now"

    def why_high(self, name: str, value: int, batch: int) -> str:
        if not self.rules.high_by_watermark:
            return "is neither six batches nor what the sysctl gives"
        floor, fraction, total = 4 * batch, self.fraction(name), self.total(name)
        if value < floor:
            return f"is under 4 * batch = {floor}, the least that a sized zone has"
        divisor = self.n * (fraction or 1)
        first, last = value * divisor, (value + 1) * divisor - 1
        if value == floor:
            first = 0
        what, now = (
            ("managed pages", self.zone.managed) if fraction else ("pages of low watermark", total)
        )
        text = f"is what {first} ... {last} {what} give; there are {now} now"
        cpus = [k for k in range(1, self.online + 2) if max(total // k, floor) == value]
        sysctl = self._sysctl(value, batch)
        if sysctl:
            text += f", and what percpu_pagelist_high_fraction {sysctl} gives"
        elif cpus and value > floor:
            text += f", which give it with {' or '.join(map(str, cpus))} CPUs instead of {self.n}"
            if (self.node_cpus + 1 if self.node_cpus else 1) in cpus:
                text += " (a CPU that comes online counts in every node"
                text += ")" if self.node_cpus else ", alone where the node has none)"
        elif possible := self._possible(batch):
            text += (
                f", which give it with {possible} CPUs where {self.online} are online: on s390 all "
                "that are possible count (its cpumask_of_node()), on others nothing known does that"
            )
        elif fraction:
            off = sorted((abs(now - first), abs(now - last)))
            text += (
                f": the zone was sized with {off[0]} ... {off[1]} pages "
                f"{'fewer' if last < now else 'more'} and not since; "
                "late boot and balloons change its pages without sizing it anew"
            )
        else:
            text += ": the watermark was another one, or boosted, when the zone was sized"
        return text

    def _possible(self, batch: int) -> int | None:
        """CPUs, more than are online, that both limits of the only node are a share of."""
        pairs = {(p.high_min, p.high_max) for p in self.zone.pagesets}
        low, most = pairs.pop() if len(pairs) == 1 else (None, None)
        if most is None or most <= 4 * batch or len(self.info.nodes) > 1:
            return None
        totals = self.total("high_min"), self.total("high_max")
        for cpus in range(self.online + 2, _MOST_CPUS + 1):
            if tuple(max(total // cpus, 4 * batch) for total in totals) == (low, most):
                return cpus
        return None

    def _sysctl(self, value: int, batch: int) -> str:
        """Settings of the sysctl that explain the limits, if it was taken to be 0."""
        tuned = any(p.high_min != p.high_max for p in self.zone.pagesets)
        if self.high_fraction or tuned:
            return ""
        first, last = sizing.high_fractions(self.zone.managed, self.n, value, batch)
        if last == sizing.INT_MAX:
            return f"{first} or more"
        return "" if first > last else f"{first} ... {last}" if first < last else str(first)
