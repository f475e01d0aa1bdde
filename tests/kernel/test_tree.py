"""A user's kernel tree: found, compiled, compared."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.trees import HEADER, PATCHES, TREES, edited, needs_trees, patched
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.kernel.pcp import PerCpuPages
from pcpmodel.kernel.releases import release
from pcpmodel.kernel.sizing import large_zone_batch
from pcpmodel.kernel.tree import EXCERPT, MAX_SECONDS, TREE_MEMORY, open_tree
from pcpmodel.kernel.tree_compare import decides_as, differences
from pcpmodel.kernel.tree_pages import TreePages, compare, sizing
from pcpmodel.kernel.tree_rules import Hits
from pcpmodel.kernel.tree_source import Source
from pcpmodel.study.tree import tree

AS_V72 = ["v6.19", "debian-6.19.14", "v7.2", "debian-7.2.13"]


def functions_of(found):
    return sorted({d.function for d in found})


# What a tree decides


def test_the_excerpt_decides_as_v7_2_and_as_no_other():
    mine = open_tree(EXCERPT)
    equal, done = decides_as(mine, 300_000)
    assert [r.name for r in equal if r.name in AS_V72] == AS_V72
    assert not {"v6.6", "v6.7", "v6.12", "v6.18", "debian-6.1.192"} & {r.name for r in equal}
    assert done >= 300_000 * len(equal)


def test_a_pageset_of_the_tree_does_what_one_of_the_release_does():
    ours = PerCpuPages("v7.2", high_min=500, high_max=4000)
    theirs = TreePages(open_tree(EXCERPT), high_min=500, high_max=4000)
    for step in range(3000):
        order = (0, 0, 0, 1, 3)[step * 7 % 5]
        if step // 700 % 2:
            assert ours.alloc(order) == theirs.alloc(order)
        else:
            assert ours.free(order) == theirs.free(order)
        if step % 500 == 499:
            assert ours.decay() == theirs.decay()
        a, b = ours.state(), theirs.state()
        assert {k: a[k] for k in b if k not in ("count_min", "expire")} == {
            k: v for k, v in b.items() if k not in ("count_min", "expire")
        }
    assert ours.drain_pages_zone() == theirs.drain_pages_zone()


def test_sizing_of_the_tree():
    mine = open_tree(EXCERPT)
    assert sizing(mine, 1 << 24, 60_000, 4, 8) == (63, 15_000)
    assert sizing(mine, 1 << 24, 60_000, 4, 8, fraction=8) == (63, (1 << 24) // 8 // 4)
    assert sizing(mine, 1 << 24, 60_000, 0, 8) == (63, 7500)


# Six patches: what each changes is named


@pytest.mark.parametrize("base", [EXCERPT, pytest.param(TREES / "7.3.4", marks=needs_trees)],
                         ids=["excerpt", "7.3.4"])  # fmt: skip
@pytest.mark.parametrize("name", PATCHES)
def test_what_a_patch_changes_is_named(tmp_path, name, base):
    mine = open_tree(patched(name, tmp_path / name, base))
    found, done = differences(mine, "v7.2", 300_000)
    assert found
    assert set(functions_of(found)) <= PATCHES[name].functions
    # Not one of the others' differences: the same base without the patch has none.
    assert compare(open_tree(base), "v7.2", 50_000)[1] == []
    if name == "nineteen-lists":
        assert (found[0].ours, found[0].theirs) == ({"lists": 14}, {"lists": 19})
        assert (len(found), done) == (1, 300_000)  # the rest is compared all the same


def test_a_cap_on_drains(tmp_path):
    (d,) = differences(open_tree(patched("cap", tmp_path / "cap")), "v7.2", 300_000)[0]
    assert d.theirs["pages"] < d.ours["pages"]
    assert d.state["free_count"] >= 4 * d.state["batch"]


def test_another_threshold_of_free_high(tmp_path):
    found, _ = differences(open_tree(patched("threshold", tmp_path / "it")), "v7.2", 300_000)
    assert all(d.operation.startswith("free") and d.state["free_count"] for d in found)


def test_a_new_field(changed):
    mine = tree(changed(
        ("	pcp->free_count >>= 1;\n", "	pcp->free_count >>= 1;\n	pcp->refills++;\n"),
        ("return n > 1 ?", "if (pcp->refills > 2)\n\t\tn = base;\n	return n > 1 ?"),
        include__linux__mmzone_h=HEADER % {"thp": 2, "more": "\n	int refills;"},
    ))  # fmt: skip
    answer = mine.compare("v7.2", operations=100_000)
    assert mine.new_fields == ("refills",)
    assert answer.facts["new_fields"] == ["refills"]
    assert "refills" in answer.text
    assert {d["function"] for d in answer.facts["differences"]} == {"nr_pcp_alloc"}


def test_a_new_function_is_taken_along(tmp_path):
    assert "most_at_once" in open_tree(patched("helper", tmp_path / "helper")).taken


def test_decay_by_a_quarter(tmp_path):
    (d,) = differences(open_tree(patched("quarter", tmp_path / "it")), "v7.2", 300_000)[0]
    assert d.theirs["high"] < d.ours["high"] <= d.state["high"]


def test_the_smallest_state_shows_the_difference_again(changed):
    mine = open_tree(changed(("pcp->high >> 3", "pcp->high >> 2")))
    (d,) = differences(mine, "v7.2", 300_000)[0]
    # An eighth of 4 is 0 and a quarter is 1: there is no smaller value that shows it.
    assert d.state["high"] == 4
    assert d.state["lists"] == {}


@pytest.mark.parametrize("name", ["v5.10", "v6.6"])
def test_the_smallest_state_is_one_that_the_release_may_come_to(name):
    """Up to v6.6 there is one `high`: a drain at 0 of 1 page was shown, which was no difference."""
    found, _ = differences(open_tree(EXCERPT), name, 200_000)
    states = [d.state for d in found if "high" in d.state]
    assert {d.function for d in found} >= {"nr_pcp_alloc", "nr_pcp_high"}
    assert all(s["high_min"] == s["high"] == s["high_max"] for s in states)


def test_the_smallest_state_has_what_only_the_tree_keeps():
    """v6.6 has no alloc_factor: of two refills by 0 of it the tree's was said to be larger."""
    found, _ = differences(open_tree(EXCERPT), "v6.6", 200_000)
    (d,) = (d for d in found if d.function == "nr_pcp_alloc")
    assert d.state["alloc_factor"] == 1
    assert (d.ours["asked"], d.theirs["asked"]) == (d.state["batch"], 2 * d.state["batch"])


# What cannot be taken: one sentence each


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("static int rmqueue_bulk(", "static int rmqueue_lots(")],
         "mm/page_alloc.c has no function rmqueue_bulk()"),
        ([("int surplus, batch", "int surplus, other = pcp->owner, batch")],
         "line 65: decay_pcp_high() uses owner, which is not in the files"),
        ([("	pcp->free_count >>= 1;", "	reserve_a_page(zone);")],
         "rmqueue_pcplist() uses reserve_a_page, which is not in the files"),
        ([("unsigned int order, int migratetype, unsigned int alloc_flags)",
           "unsigned int order, int migratetype, struct folio_batch *fbatch)")],
         "rmqueue_pcplist() has a parameter struct folio_batch * fbatch"),
        ([("	guard(spinlock_irqsave)(&zone->lock);", "	mutex_lock(&zone->lists_mutex);")],
         "line 27: free_pcppages_bulk() uses "),
        ([("	int high, left;\n", "	int high, left\n")], "mm/page_alloc.c: line 14"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_one_sentence(changed, pairs, words):
    with pytest.raises(InputError) as error:
        open_tree(changed(*pairs))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_without_its_header_is_asked_for_it(changed):
    """Up to v6.6 it has fields that v7.3's does not have."""
    older = changed(("pcp->free_count", "pcp->free_factor"))
    said = r"uses free_factor, which .*; no file .* has struct per_cpu_pages, .*linux/mmzone\.h$"
    with pytest.raises(InputError, match=said):
        open_tree(older)


# Bad input


def test_a_truncated_file(changed):
    folder = changed()
    text = (folder / "mm/page_alloc.c").read_text()
    (folder / "mm/page_alloc.c").write_text(text[: len(text) // 2])
    with pytest.raises(InputError, match=r"line \d+: .\{. without .\}."):
        open_tree(folder)


def test_an_unclosed_condition(changed):
    with pytest.raises(InputError, match=r"'#ifdef CONFIG_NUMA' has no #endif"):
        open_tree(changed(("#endif\n", "\n")))


def test_a_macro_bomb(changed):
    bomb = "".join(f"#define B{i} B{i + 1} + B{i + 1}\n" for i in range(30)) + "#define B30 1\n"
    folder = changed(
        ("static int nr_pcp_free(", bomb + "static int nr_pcp_free("),
        ("		return 1;\n	return clamp_t", "		return B0;\n	return clamp_t"),
    )
    code = (
        "import resource, sys\n"
        "from pcpmodel.errors import InputError\n"
        "from pcpmodel.kernel.tree import open_tree\n"
        "try:\n    open_tree(sys.argv[1])\n"
        "except InputError as error:\n    print(error)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(used.ru_maxrss, used.ru_utime + used.ru_stime)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True)
    said, used = done.stdout.splitlines()
    kib, seconds = map(float, used.split())
    assert said.startswith(f"{folder}: ")
    assert kib <= TREE_MEMORY >> 10
    assert seconds < MAX_SECONDS


def test_a_function_of_100_000_lines(changed):
    with pytest.raises(InputError, match="more than 2000 lines"):
        open_tree(changed(("		return 1;\n", "		;\n" * 100_000 + "		return 1;\n")))


def test_functions_without_end(changed):
    said = r"decay_pcp_high\(\).* comes to no end within 3 s, where count \d+, high"
    with pytest.raises(InputError, match=said):
        open_tree(changed(("surplus > 0; surplus -= batch", "1; surplus -= 0")))


def test_functions_that_end_the_process(changed):
    with pytest.raises(InputError, match=r"free_pcppages_bulk\(\) .* is not mapped \(SIGSEGV\)"):
        open_tree(
            changed(("	int left = min(count", "	*(int *)8 = 1;\n	int left = min(count"))
        )


def test_braces_that_do_not_match(changed):
    for text, words in (
        ("	return got;\n", r"mm/page_alloc\.c: line \d+: '\{' without '\}'"),
        ("	return got;\n}\n}\n", r"mm/page_alloc\.c: line 62: '\}' without '\{'"),
    ):
        with pytest.raises(InputError, match=words):
            open_tree(changed(("	return got;\n}\n", text)))
    # Branches of the preprocessor may open the same block, literals none.
    text = (
        "int f(void)\n{\n	if ('{' == \"{\"[0])\n		return 0;\n#ifdef A\n	if (a) {\n#else\n"
        "	if (b) {\n#endif\n	}\n	return 1;\n}\n"
    )
    assert Source("mm/page_alloc.c", text.encode()).text == text
    with pytest.raises(InputError, match=r"line 12: '\}' without"):
        Source("mm/page_alloc.c", text.replace("	}\n", "	}}\n").encode())


def test_a_tree_without_permission(changed):
    """Not readable for whoever asks, who is not root then."""
    folder = changed()
    for at in (folder / "mm/page_alloc.c", folder / "mm", folder):
        mode = at.stat().st_mode
        at.chmod(0)
        with not_root(), pytest.raises(InputError) as error:
            open_tree(folder)
        assert "denied" in str(error.value)
        at.chmod(mode)


@contextlib.contextmanager
def not_root():
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("make", ["folder", "missing", "binary"])
def test_no_tree(tmp_path, make):
    path = tmp_path / "it"
    if make == "folder":
        path.mkdir()
    elif make == "binary":
        path.mkdir()
        (path / "page_alloc.c").write_bytes(b"\0\1" * 50)
    with pytest.raises(InputError, match=r"no such tree|no kernel tree|not C source"):
        open_tree(path)


def test_no_compiler(changed, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(InputError, match="no C compiler"):
        open_tree(changed())


def test_a_cache_that_others_can_write_to(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "pcpmodel/trees").mkdir(parents=True)
    (tmp_path / "pcpmodel/trees").chmod(0o777)
    with pytest.raises(InputError, match="others can write to it"):
        open_tree(EXCERPT)


def test_two_processes_at_once(tmp_path):
    code = f"from pcpmodel.kernel.tree import open_tree; print(open_tree({str(EXCERPT)!r}).digest)"
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    digests = {p.communicate()[0].strip() for p in both}
    assert len(digests) == 1
    left = sorted(p.suffix for p in (tmp_path / "pcpmodel/trees").iterdir())
    assert left == [".ok", ".so"]


@pytest.mark.parametrize("value", [-1, 7, 2.5, True, "5"])
def test_a_bad_scale(value):
    with pytest.raises(InputError, match="batch_scale_max"):
        open_tree(EXCERPT, batch_scale_max=value)


# Ways to name a tree


def test_one_file_a_folder_and_a_commit(tmp_path):
    file = open_tree(EXCERPT / "mm/page_alloc.c")
    shutil.copy(EXCERPT / "mm/page_alloc.c", tmp_path)
    folder = open_tree(tmp_path)
    repo = tmp_path / "repo"
    shutil.copytree(EXCERPT, repo)
    git = ["git", "-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    (repo / "mm/page_alloc.c").write_text("nothing")
    commit = open_tree(f"{repo}@HEAD")
    assert file.digest == folder.digest == commit.digest
    with pytest.raises(InputError, match="git show"):
        open_tree(f"{repo}@no-such-commit")


@pytest.mark.parametrize("given", [".", "page_alloc.c", "../mm", "mm", "mm/page_alloc.c"])
def test_mm_is_read_with_the_headers_of_its_tree(changed, monkeypatch, given):
    folder = changed(include__linux__mmzone_h=HEADER % {"thp": 2, "more": ""})
    monkeypatch.chdir(folder if given.startswith("mm") else folder / "mm")
    assert not open_tree(given).borrowed


def test_a_patch(tmp_path, changed):
    new = changed(("pcp->high >> 3", "pcp->high >> 2"))
    patch = tmp_path / "quarter.patch"
    done = subprocess.run(
        ["git", "diff", "--no-index", "--no-prefix", EXCERPT, new],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    text = done.stdout.replace(str(EXCERPT).strip("/"), "a").replace(str(new).strip("/"), "b")
    patch.write_text(text.replace("/a/", "a/").replace("/b/", "b/"))
    assert open_tree(EXCERPT, patch=patch).digest == open_tree(new).digest
    patch.write_text(text.replace("eighth", "ninth").replace("/a/", "a/").replace("/b/", "b/"))
    with pytest.raises(InputError, match="does not apply"):
        open_tree(EXCERPT, patch=patch)


@pytest.mark.parametrize(
    ("old", "new"),
    [("a/", "b/"), ("", ""), ("i/", "w/"), ("/somewhere/linux/", "/somewhere/linux.new/")],
)
def test_a_patch_is_read_whatever_stands_before_the_names(tmp_path, changed, old, new):
    """git --no-prefix, diff -u of folders, mnemonic prefixes; other files of it are named."""
    mine = changed(("pcp->high >> 3", "pcp->high >> 2"))
    name = "mm/page_alloc.c"
    done = subprocess.run(
        ["diff", "-u", "--label", old + name, "--label", new + name, EXCERPT / name, mine / name],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    patch = tmp_path / "quarter.patch"
    patch.write_text(
        f"Subject: a patch\n\n--- {old}mm/Kconfig\n+++ {new}mm/Kconfig\n@@ -1 +1 @@\n-5\n+3\n"
        + done.stdout + "-- \n2.47\n"
    )  # fmt: skip
    opened = open_tree(EXCERPT, patch=patch)
    assert opened.digest == open_tree(mine).digest
    assert [Path(f).name for f in opened.unread] == ["Kconfig"]
    said = tree(EXCERPT, patch=patch).compare("v7.2", operations=1000).text
    assert "files that are not read" in said


def test_flags_of_a_pageset_go_by_their_names(tmp_path):
    """A tree may number PCPF_* otherwise: that decides nothing."""
    mine = edited(
        tmp_path,
        header=(
            (r"PCPF_PREV_FREE_HIGH_ORDER BIT\(0\)", "PCPF_PREV_FREE_HIGH_ORDER BIT(3)"),
            (r"PCPF_FREE_HIGH_BATCH BIT\(1\)", "PCPF_FREE_HIGH_BATCH BIT(0)"),
        ),
    )
    assert compare(open_tree(mine), "v7.2", 1_000_000)[1] == []


@pytest.mark.parametrize(
    "more", ["return min(high, 4096);", "return high > 20000 ? high / 2 : high;"]
)
def test_what_acts_at_the_sizes_of_machines_alone_is_noticed(changed, more):
    """Lists of 16 MiB and more: what a cap on them would be for."""
    end = "\n}\n\nstatic bool free_frozen_page_commit("
    opened = open_tree(changed(("return high;" + end, more + end)))
    (found, *_), _ = differences(opened, "v7.2")
    assert "high" in found.state
    assert release(opened).hits & Hits.FREES_AS_RULES == 0


@pytest.mark.parametrize("n", [1, 3])
def test_a_batch_of_its_own_is_said_and_used(changed, n):
    """zone_batchsize() that grows beyond a zone of 1 GiB."""
    opened = tree(changed(("SZ_256K", f"{n} * SZ_1M")))
    (sized,) = opened.compare("v7.2", operations=1000).facts["differences"]
    assert (sized["function"], sized["ours"]["batch"]) == ("zone_batchsize", 63)
    assert sized["theirs"]["batch"] > 63
    assert "size the lists of a zone of 1," in opened.compare("v7.2", operations=1000).text
    assert large_zone_batch(release(opened).rules) > 63


def test_a_config(tmp_path):
    config = tmp_path / "config"
    config.write_text("# a comment\nCONFIG_NUMA=y\nCONFIG_SMP=y\nCONFIG_PCP_BATCH_SCALE_MAX=3\n")
    found, _ = differences(open_tree(EXCERPT, config=config), "v7.2", 200_000)
    assert found
    config.write_text("CONFIG_NUMA\n")
    with pytest.raises(InputError, match="line 1: 'CONFIG_NUMA' is not CONFIG_NAME=value"):
        open_tree(EXCERPT, config=config)


@pytest.mark.parametrize("option", ["PAGE_SHIFT=16", "ARM64_PAGE_SHIFT=14", "PAGE_SHIFT=12"])
def test_pages_of_another_size_are_said(tmp_path, option):
    """A .config of theirs was taken without a word, and sizes compared as for 4 KiB."""
    config = tmp_path / "config"
    config.write_text(f"CONFIG_NUMA=y\nCONFIG_SMP=y\nCONFIG_{option}\n")
    said = f"Compiled for pages of 4 KiB, which are others by: CONFIG_{option}."
    assert (said in open_tree(EXCERPT, config=config).caveats) == (option != "PAGE_SHIFT=12")


# Command line


def run(*arguments):
    from click.testing import CliRunner

    return CliRunner().invoke(main, ["tree", *map(str, arguments)])


def test_the_verb():
    done = run(EXCERPT, "--operations", 50_000, "--json")
    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    assert set(AS_V72) <= set(answer["equal_to"])
    assert answer["differences"] == []
    assert answer["operations"] >= 50_000
    found = {f["name"]: f["found"] for f in answer["functions"]}
    assert found["nr_pcp_free"]
    assert not found["__rmqueue_pcplist"]


def test_both_kernels_in_one_answer_and_figure(tmp_path, changed):
    mine = tree(changed(("pcp->high >> 3", "pcp->high >> 2")))
    answer = mine.compare("v7.2", operations=50_000)
    own = next(r for r in answer.ladders["decay"].groups if r != "v7.2")
    assert set(answer["rungs"]["kind"]) == {"refill", "drain", "decay"}
    assert next(iter(answer.ladders["refill"].groups.values())) == ("v7.2", own)
    by_kernel = answer["ladders"].loc["decay"]
    assert by_kernel.loc["v7.2", 1] == 8192 - 8192 // 8
    assert by_kernel.loc[own, 1] == 8192 - 8192 // 4
    assert "rungs\n" not in str(answer)
    done = run(mine.name, "--against", "v7.2", "--operations", 50_000, "--figures", tmp_path)
    assert done.exit_code == 0, done.output
    about = json.loads((tmp_path / "ladders.json").read_text())
    assert about["digest"] == answer.digest
    assert f"{own}: 500 to 6,144 in 22 visits" in about["caption"]
    assert {p.suffix for p in tmp_path.iterdir()} == {
        ".svg",
        ".pdf",
        ".png",
        ".json",
        ".tex",
    }


def test_what_cannot_be_run_is_compared(changed, tmp_path):
    drain = "free_pcppages_bulk(zone, {0}, pcp, pindex);\n		left -= {0};"
    tree_ = changed((drain.format("min(left, batch)"), drain.format("max(left / 2, 1)")))
    answer = tree(tree_).compare("v7.2", operations=50_000)
    assert "how the commit of a free drains" in answer.facts["cannot_run"]
    assert "It can be compared, and not run: " in answer.text
    assert answer.facts["differences"]
    assert answer.ladders == {}
    done = run(tree_, "--against", "v7.2", "--operations", 50_000, "--figures", tmp_path)
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])


def test_a_tree_is_compared_with_a_tree(changed):
    quarter = tree(changed(("pcp->high >> 3", "pcp->high >> 2")))
    answer = quarter.compare(open_tree(EXCERPT), operations=50_000)
    assert {d["function"] for d in answer.facts["differences"]} == {"decay_pcp_high"}
    assert answer.facts["against"].startswith("excerpt#")


def test_the_verb_says_where_it_differs():
    done = run(EXCERPT, "--against", "v6.12", "--operations", 50_000)
    assert done.exit_code == 0
    assert "decay_pcp_high(): vmstat tick" in done.stdout


def test_the_verb_on_nothing(tmp_path):
    done = run(tmp_path / "none")
    assert done.exit_code == 2


# Real kernels


@needs_trees
@pytest.mark.parametrize(
    ("version", "equal", "unequal"),
    [
        ("6.1.192", "debian-6.1.192", "v6.12"),
        ("6.12.107", "debian-6.12.107", "debian-6.1.192"),
        ("7.2.13", "debian-7.2.13", "debian-6.12.107"),
        ("7.3.4", "v7.2", "v6.18"),
    ],
)
def test_real_kernels_decide_as_their_releases(version, equal, unequal):
    mine = open_tree(TREES / version)
    assert compare(mine, equal, 500_000)[1] == []
    assert compare(mine, unequal, 50_000)[1]
    assert not mine.borrowed
    assert mine.new_fields == ()


@needs_trees
@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "equal"),
    [("6.1.192", "debian-6.1.192"), ("6.12.107", "debian-6.12.107"),
     ("7.2.13", "debian-7.2.13"), ("7.3.4", "v7.2")],
)  # fmt: skip
def test_ten_million_operations(version, equal):
    done, found = compare(open_tree(TREES / version), equal, 10**7, seed=7)
    assert (done, found) == (10**7, [])


def test_a_kill_in_the_middle_leaves_nothing_half_written(tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text(
        '#!/bin/sh\nfor last; do :; done\necho half > "$(dirname "$last")/tree.so"\n'
        f"touch {tmp_path}/begun\nexec sleep 60\n"
    )
    compiler.chmod(0o755)
    code = f"from pcpmodel.kernel.tree import open_tree; open_tree({str(EXCERPT)!r})"
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "CC": str(compiler)}
    killed = subprocess.Popen([sys.executable, "-c", code], env=env, start_new_session=True)
    end = time.monotonic() + 60
    while not (tmp_path / "begun").exists() and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    trees = tmp_path / "cache/pcpmodel/trees"
    assert not list(trees.glob("*.so"))
    (left,) = trees.iterdir()
    os.utime(left, (0, 0))  # the next one sweeps up what is old
    del env["CC"]
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(p.suffix for p in trees.iterdir()) == [".ok", ".so"]


def test_a_compiler_is_allowed_no_more_than_who_starts_it():
    """Who lives under a limit (ulimit -v, -t, -f) may not raise it, unless he is root."""
    code = (
        "from resource import RLIMIT_CPU, RLIMIT_FSIZE, getrlimit, setrlimit\n"
        "from pcpmodel.kernel.tree import limits\n"
        "setrlimit(RLIMIT_FSIZE, (5000, 9000))\n"
        "limits()\n"
        "print(*getrlimit(RLIMIT_FSIZE), *getrlimit(RLIMIT_CPU))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "9000 9000 60 60\n", done.stderr


def test_what_was_compiled_and_is_damaged_is_compiled_again(tmp_path):
    """Half a library ends the process that loads it."""
    code = (
        "from pcpmodel.kernel.tree import open_tree\n"
        "from pcpmodel.kernel.tree_pages import TreePages\n"
        f"TreePages(open_tree({str(EXCERPT)!r}), high_min=500, high_max=500).free()\n"
    )
    command = {"args": [sys.executable, "-c", code], "capture_output": True, "text": True}
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run(**command, env=env, check=True)
    files = {path: path.read_bytes() for path in tmp_path.glob("pcpmodel/trees/*")}
    assert sorted(path.suffix for path in files) == [".ok", ".so"]
    for path, content in files.items():
        path.write_bytes(content[: len(content) // 2])
    done = subprocess.run(**command, env=env, check=False)
    assert done.returncode == 0, done.stderr
    left = {path: path.read_bytes() for path in tmp_path.glob("pcpmodel/trees/*")}
    assert {path: len(content) for path, content in left.items()} == {
        path: len(content) for path, content in files.items()
    }
