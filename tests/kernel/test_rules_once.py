"""The kernel's rules stand in pcpmodel/kernel alone: no other file decides them again."""

# SPDX-License-Identifier: GPL-2.0-only

import re

import pytest

from helpers.paths import ROOT
from pcpmodel.kernel import lists
from pcpmodel.kernel.releases import releases

PACKAGE = ROOT / "pcpmodel"

#: What a copy looks like, and what to call instead.
COPIES = {
    r"(//|%) ?(3|MIGRATE_PCPTYPES)\b": "pindex_to_order(), pindex_to_type()",
    r"(<|>=) ?12\b(?! ?\))|== 13\b|\(0, 13\)|range\(1[34]\)": "lists.pxd; Rules.nr_pcp_lists",
    r"<= ?3 or \w+ == 9|\(0, 1, 2, 3, 9\)|\b1 <= \S+ <= 3\b": "PCP_ORDERS, pcp_allowed_order()",
    r"< MIGRATE_PCPTYPES else (<int>)?MIGRATE_MOVABLE": "pcp_migratetype()",
    r"\+ 1 if \w+ \+ 1 < \S*nr_pcp_lists": "pindex_after()",
    r"\brules\.commit_drain|\bCOMMIT_(WHOLE|CHUNKS)": "commit_hold(), commit_goes_on()",
    r"\brules\.decay_chunks": "decay_hold()",
    r"\brules\.drain_zone_chunks": "zone_hold()",
    r"min\([\w.\[\]]*count, [\w.\[\]]*batch\)": "remote_hold()",
    r"\.expire -= 1|\.expire = 3": "pcp_expire()",
    r"(free_count|free_factor|alloc_factor) >>= ": "pcp_alloc_hits(), pcp_free_hits()",
}


def copies(text: str) -> list[str]:
    """Lines that decide what the kernel's own functions decide; not comments."""
    return [
        f"{row}: {line.strip()}; call {instead}"
        for row, line in enumerate(text.splitlines(), 1)
        for pattern, instead in COPIES.items()
        if re.search(pattern, line.split("#")[0])
    ]


SOURCES = sorted(
    str(path.relative_to(PACKAGE))
    for path in PACKAGE.rglob("*.p*")
    if path.suffix in (".py", ".pyx", ".pxd") and path.relative_to(PACKAGE).parts[0] != "kernel"
)


@pytest.mark.parametrize("source", SOURCES)
def test_no_rule_is_copied(source: str) -> None:
    assert copies((PACKAGE / source).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [  # as they once stood in trace/ and workload/
        "return sum(len(p) << (i // 3 if i < 12 else 9) for i, p in self.lists.items())",
        "if pindex_to_order(i) != order or (i < 12 and i % 3 != r.c):",
        '_LIST_FIELDS = {"idx": (0, 13)}',
        "open_ = r.differing(places[key], pcp, range(14))",
        "if not direct and (order <= 3 or order == 9):",
        "9 if op[4] >= 12 else op[4] // 3",
        "return mt if 0 <= mt < MIGRATE_PCPTYPES else MIGRATE_MOVABLE",
        "i = i + 1 if i + 1 < s.rules.nr_pcp_lists else 0",
        "if s.rules.commit_drain != COMMIT_WHOLE:",
        "if s.rules.decay_chunks:",
        "if s.rules.drain_zone_chunks:",
        "n = min(s.sets[x].pcp.count, s.sets[x].pcp.batch)",
        "pcp.free_count >>= min(k, 31)",
        "pcp.expire -= 1",
        "if 1 <= order <= 3:",
    ],
)
def test_a_copy_is_found(line: str) -> None:
    assert copies(line)


@pytest.mark.parametrize("nr", sorted({r.rules.nr_pcp_lists for r in releases()}))
def test_every_block_has_a_list_of_its_order_and_type(nr: int) -> None:
    found = {
        (mt, order): lists.order_to_pindex(nr, mt, order)
        for order in lists.pcp_orders(nr)
        for mt in lists.MIGRATETYPES.values()
    }
    assert set(found.values()) == set(range(nr))
    for (mt, order), pindex in found.items():
        assert lists.pindex_to_order(pindex) == order
        if order < lists.HPAGE_PMD_ORDER:
            assert lists.pindex_to_type(pindex) == mt


def test_the_flags_of_a_zone_are_named_once() -> None:
    sources = [f for f in PACKAGE.rglob("*.p*") if f.suffix in (".py", ".pyx", ".pxd")]
    assert [f.name for f in sources if '"BELOW_HIGH"' in f.read_text()] == ["zone.py"]
