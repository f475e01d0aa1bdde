"""What sources say of kernels: which release a rule came with, and up to which it holds."""

# SPDX-License-Identifier: GPL-2.0-only

import re
from enum import IntEnum

import pcpmodel as pm
from helpers.paths import ROOT


def test_values_of_rules_begin_where_their_patches_came():
    """What `releases` says beside Fallback.STEAL_PAGE and the like, and the patch that sets it."""
    text = (ROOT / "pcpmodel/kernel/releases.py").read_text()
    said = dict(re.findall(r"^    ([A-Z_0-9]+) = \d+  #: .*?\b(v\d+\.\d+)\b", text, re.M))
    for patch in pm.patches():
        for value in patch.sets.values():
            if isinstance(value, IntEnum) and re.search(r"\bv\d+\.", patch.origin):
                assert re.search(rf"\b{said[value.name]}\b", patch.origin), (patch.key, value)


def test_what_holds_up_to_now_holds_up_to_the_newest_kernel():
    names = [r.name for r in pm.releases()]
    newest = [name for name in names if re.fullmatch(r"v[\d.]+", name)][-1]
    sources = [f for f in (ROOT / "pcpmodel").rglob("*.p*") if f.suffix in (".py", ".pyx", ".pxd")]
    ends = {(f.name, v) for f in sources for v in re.findall(r" \.\.\. (v7\.\d+)", f.read_text())}
    assert {v for _, v in ends} == {newest}, ends
