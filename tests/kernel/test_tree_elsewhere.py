"""Functions of a kernel tree that stand in other files than they do in known releases."""

# SPDX-License-Identifier: GPL-2.0-only

import difflib
import re
import shutil
import subprocess

import pytest

from helpers.trees import HEADER, TREES, needs_trees
from pcpmodel.errors import InputError
from pcpmodel.kernel.tree import EXCERPT, open_tree
from pcpmodel.kernel.tree_compare import differences
from pcpmodel.study.tree import tree

PAGE_ALLOC = "mm/page_alloc.c"
BULK = "batch << CONFIG_PCP_BATCH_SCALE_MAX"
INCLUDES = '#include "internal.h"\n'
CAPPED = "static inline int most_at_once(int batch)\n{\n	return batch << 2;\n}\n"
USES = (f"min(pcp->count, {BULK})", "min(pcp->count, most_at_once(batch))")


def function_of(text, name):
    """A function from the line that it begins in to the one that ends it."""
    begin = re.search(rf"(?m)^(?!\s|#)[^;{{}}\n]*\b{name}\([^;{{]*\)\n\{{", text)
    return text[begin.start() : text.index("\n}\n", begin.end()) + 3]


def moved(folder, names, to, *, static=False, first=INCLUDES):
    """Functions of a tree into another file of it."""
    file = folder / PAGE_ALLOC
    text, out = file.read_text(), first
    for name in names:
        function = function_of(text, name)
        text = text.replace(function, "")
        out += "\n" + (function if static else re.sub(r"(?m)^static (inline )?", "", function))
    file.write_text(text)
    (folder / to).parent.mkdir(parents=True, exist_ok=True)
    (folder / to).write_text(out)
    return folder


def decided(folder, **how):
    """Functions that decide otherwise than v7.2."""
    return {d.function for d in differences(open_tree(folder, **how), "v7.2", 100_000)[0]}


LISTS = ("nr_pcp_free", "nr_pcp_high", "decay_pcp_high", "drain_zone_pages", "free_pcppages_bulk")


@pytest.mark.parametrize("names", [("nr_pcp_free",), ("decay_pcp_high",), LISTS])
def test_functions_in_a_file_of_their_own(changed, names):
    """Also where nothing that is left calls them."""
    folder = moved(changed((BULK, "batch << 2"), ("pcp->high >> 3", "pcp->high >> 2")), names,
                   "mm/pcp.c")  # fmt: skip
    opened = open_tree(folder)
    assert {opened.functions[n].file for n in names} == {"mm/pcp.c"}
    assert decided(folder) >= {"nr_pcp_free", "decay_pcp_high"}


def test_sizes_in_a_file_of_their_own(changed):
    folder = changed(("batch * 4", "batch * 8"))
    assert decided(moved(folder, ("zone_batchsize", "zone_highsize"), "mm/pcp.c")) == {
        "zone_highsize"
    }


@pytest.mark.parametrize("to", ["mm/pcp.h", "include/linux/pcp.h"])
@pytest.mark.parametrize("included", [True, False], ids=["included", "by-another"])
def test_functions_in_a_header(changed, to, included):
    folder = moved(changed((BULK, "batch << 2")), ("nr_pcp_free",), to, static=True, first="")
    file = folder / PAGE_ALLOC
    name = '"pcp.h"' if to[0] == "m" else "<linux/pcp.h>"
    if included:
        file.write_text(file.read_text().replace(INCLUDES, f"#include {name}\n"))
    assert decided(folder) >= {"nr_pcp_free"}


def test_a_helper_of_a_header_that_was_not_read(changed):
    assert decided(changed(USES, include__linux__pcp_h=CAPPED)) == {"nr_pcp_free"}


def test_a_structure_in_a_header_of_its_own(changed):
    """It stands where the header is included, and nothing stands in for it."""
    whole = HEADER % {"thp": 2, "more": "\n	u8 cap;"}
    begin = whole.index("struct per_cpu_pages")
    opened = open_tree(changed(
        include__linux__mmzone_h=f"#include <linux/list.h>\n{whole[:begin]}"
        "#include <linux/pcp_types.h>\n",
        include__linux__pcp_types_h=whole[begin:],
    ))  # fmt: skip
    assert (opened.borrowed, opened.new_fields) == (False, ("cap",))


def test_nobody_knows_which_of_two_is_meant(changed):
    folder = changed(USES)
    for n in (2, 3):
        (folder / f"mm/pcp{n}.c").write_text(CAPPED.replace("2", str(n)))
    with pytest.raises(InputError, match="uses most_at_once, which is not in the files"):
        open_tree(folder)


@pytest.mark.parametrize("way", ["commit", "files", "patch"])
def test_however_a_tree_is_given(changed, tmp_path, way):
    folder = moved(changed((BULK, "batch << 2")), LISTS, "mm/pcp.c")
    how = {}
    if way == "commit":
        for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b",
                        "commit", "-qm", "it"]):  # fmt: skip
            subprocess.run(["git", "-C", folder, *command], check=True)
        shutil.rmtree(folder / "mm")
        folder = f"{folder}@HEAD"
    elif way == "files":
        for file in (folder / "mm").iterdir():
            shutil.copy(file, tmp_path)
        folder = tmp_path
    else:
        parts = [
            difflib.unified_diff(
                before.splitlines(keepends=True),
                (folder / name).read_text().splitlines(keepends=True),
                f"a/{name}" if before else "/dev/null", f"b/{name}",
            ) for name, before in ((PAGE_ALLOC, (EXCERPT / PAGE_ALLOC).read_text()),
                                   ("mm/pcp.c", ""))
        ]  # fmt: skip
        how["patch"] = tmp_path / "it.patch"
        how["patch"].write_text("".join(line for part in parts for line in part))
        folder = EXCERPT
        assert open_tree(folder, **how).passed_over == ()
    assert "nr_pcp_free" in decided(folder, **how)


@pytest.mark.parametrize("name", ["decay_pcp_high", "zone_batchsize", "zone_highsize"])
def test_what_has_another_name_is_said_to_be_left_out(changed, name):
    """Nothing calls it here, and it may be gone."""
    opened = open_tree(changed((f"{name}(", f"pcp_{name}(")))
    assert opened.caveats == [f"Left out, as no function has that name: {name}."]


PASTED = f"#define CAP(kind) cap_##kind\n\n{CAPPED.replace('most_at_once', 'cap_small')}\n"


def test_names_that_are_put_together(changed):
    free = "static int nr_pcp_free("
    folder = changed((free, PASTED + free), (USES[0], "min(pcp->count, CAP(small)(batch))"))
    assert decided(folder) == {"nr_pcp_free"}


@needs_trees
def test_a_real_tree_with_a_file_of_its_own(tmp_path):
    base = TREES / "7.3.4"
    for file in base.rglob("*.*"):
        at = tmp_path / file.relative_to(base)
        at.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, at)
    names = ("nr_pcp_free", "nr_pcp_high", "nr_pcp_alloc", "decay_pcp_high", "zone_highsize")
    answer = tree(moved(tmp_path, names, "mm/pcp.c")).compare("v7.3", operations=100_000)
    assert answer.facts["differences"] == []


@needs_trees
def test_what_the_grammar_takes_for_a_part_of_another_function(tmp_path):
    """show_free_areas() of v5.10 and all behind it: patches of that were said to change it."""
    name = "mm/page_alloc.c"
    before = (TREES / "5.10.262" / name).read_text()
    for old, new, others in (
        ("6 * batch", "8 * batch", ()),
        (
            "watermark_scale_factor, 10000",
            "watermark_scale_factor, 5000",
            ("__setup_per_zone_wmarks",),
        ),
    ):
        assert before.count(old) == 1
        patch = tmp_path / "it.patch"
        patch.write_text("".join(difflib.unified_diff(
            before.splitlines(True), before.replace(old, new).splitlines(True), f"a/{name}",
            f"b/{name}",
        )))  # fmt: skip
        assert open_tree(TREES / "5.10.262", patch=patch).passed_over == others
