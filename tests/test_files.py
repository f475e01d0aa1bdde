"""Files and JSON: one place that reads them, whatever they are."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from helpers.paths import ROOT
from pcpmodel import files
from pcpmodel.errors import InputError, printable

READS = re.compile(
    r"(?<![\w.])open\(|\.open\(|\.read_text\(|\.read_bytes\(|json\.loads?\(|JSONDecoder|os\.open\("
    r"|load_dataset\(|read_csv\(|loadtxt\(|np\.load\(|genfromtxt\(|fromfile\("
)
#: Where a file is opened or JSON parsed outside of pcpmodel.files -> lines, and why that is right.
ALLOWED = {
    "cli.py": (2, "writes: to nobody, once who read the results has gone, or a stream is closed"),
    "errors.py": (1, "writes: to nobody, once stderr is full"),
    "hardware/load.py": (2, "lines of JSON on the pipes of the processes that it has started"),
    "figures/style.py": (1, "what rerun says in the environment of a notebook it runs"),
    "study/hold_sources.py": (1, "writes: what bpftrace prints, which is read while it runs"),
    "trace/hold_tracer.py": (2, "tracefs: its switches and the raw ring buffer, which is streamed"),
    "trace/record.py": (
        5,
        "files of the kernel, under /proc: read to their end whatever size they have; and the "
        "trace, which is streamed, and written so",
    ),
    "trace/setting.py": (1, "the setting itself, a file of the kernel"),
    "trace/tracefs.py": (2, "tracefs, whose files have no size"),
    "reports/kernels.py": (
        4,
        "writes: the logs of kernels; reads: a line of JSON for each from the process that runs "
        "notebooks, and how a kernel is from /proc",
    ),
    "reports/rerun.py": (1, "writes: the copy of the data"),
    "datasets/store.py": (1, "writes a package's files"),
    "study/sweep/run.py": (1, "xarray reads the bytes that pcpmodel.files has read"),
}


def test_nothing_else_in_the_package_opens_a_file_or_parses_json():
    found = {}
    for path in sorted((ROOT / "pcpmodel").rglob("*.py*")):
        if path.suffix not in (".py", ".pyx") or path.name == "files.py":
            continue
        text = path.read_text(encoding="utf-8")
        # Names that pcpmodel.files gives, as it gives them.
        own = re.compile(r"(?<![\w.])(open_regular|open_stream|open_lock|read_text|read_bytes)\(")
        lines = [li for li in text.splitlines() if READS.search(own.sub("(", li))]
        if lines:
            found[str(path.relative_to(ROOT / "pcpmodel"))] = lines
    assert {name: len(lines) for name, lines in found.items()} == {
        name: count for name, (count, _) in ALLOWED.items()
    }, found


def test_the_command_line_prints_in_one_place():
    text = (ROOT / "pcpmodel" / "cli.py").read_text(encoding="utf-8")
    assert text.count("click.echo(") == 1
    assert "click.secho(" not in text
    assert not re.search(r"(?<!\w)print\(", text)


# What is no file to be read ---------------------------------------------------------------------


def fifo(path):
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (fifo, "is not a regular file"),
        (Path.mkdir, "is a directory"),
        (lambda p: p.symlink_to("/dev/zero"), "is not a regular file"),
        (lambda p: p.symlink_to(p), "cannot be read"),
        (lambda p: None, "cannot be read: No such file"),
        (lambda p: p.write_bytes(b"x" * 101), "holds 101 bytes; allowed: at most 100"),
    ],
)
def test_what_is_no_regular_file_is_refused_at_once(make, said, tmp_path):
    make(tmp_path / "x")
    began = time.process_time()  # whoever else is busy
    with pytest.raises(InputError, match=said):
        files.read_bytes(tmp_path / "x", 100)
    assert time.process_time() - began < 1


def test_a_name_that_no_file_can_have_is_refused():
    with pytest.raises(InputError, match="cannot be read"):
        files.read_bytes("a\0b")


def test_a_file_of_proc_has_no_size_and_is_bounded_all_the_same():
    assert files.read_text("/proc/self/stat")
    with pytest.raises(InputError, match="holds more than 3 bytes"):
        files.read_bytes("/proc/self/stat", 3)


def test_a_link_is_followed_only_where_that_is_meant(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").symlink_to("a")
    assert files.read_bytes(tmp_path / "b") == b"1"
    with pytest.raises(InputError, match="is a symbolic link"):
        files.read_bytes(tmp_path / "b", follow=False)


# JSON -------------------------------------------------------------------------------------------

NESTED = "[" * 64 + "]" * 64


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"\\ud800"', "half a surrogate pair"),
        ('{"a": {"\\udfff": 1}}', "half a surrogate pair"),
        ('"' + "\udcff" + '"', "half a surrogate pair"),
        (f"[{NESTED}]", "nested deeper than 64"),
        ("[" * 100_000, "nested deeper than 64"),
        ('{"a":' * 100_000, "nested deeper than 64"),
        ("1" + "0" * 400, "out of range"),
        ("9" * 5000, "out of range"),
        (str(2**64), "out of range"),
        ("1e999", "out of range"),
        ("1." + "0" * 10_000, "out of range"),
        ("NaN", "NaN is not a JSON number"),
        ("[-Infinity]", "-Infinity is not a JSON number"),
        ('{"a": 1, "a": 2}', "key 'a' is there twice"),
        ("", "Expecting value"),
        ("{} {}", "Extra data"),
        (b"\xff\xfe1\0", "UTF-16"),
        (b'"\xff"', "byte 0xff is not UTF-8"),
        (b"1\0", "NUL byte"),
    ],
)
def test_json_that_would_trip_somebody_up_is_refused(text, said):
    with pytest.raises(InputError, match=said) as caught:
        files.parse_json(text, "x.json")
    assert str(caught.value).startswith("x.json")
    str(caught.value).encode()


@pytest.mark.parametrize(
    "value",
    [
        json.loads(NESTED),
        2**64 - 1,
        -(2**63),
        1.7976931348623157e308,
        5e-324,
        "\U0001f600",
        {"": ""},
    ],
)
def test_json_that_is_right_is_read_as_it_was_written(value):
    assert files.parse_json(json.dumps(value)) == value
    assert files.parse_json(json.dumps(value).encode()) == value


def test_a_million_equal_keys_take_no_longer_than_as_many_others():
    began = time.process_time()  # whoever else is busy
    with pytest.raises(InputError, match="there twice"):
        files.parse_json("{" + ",".join(f'"{i}": 0' for i in range(300_000)) + ', "299999": 0}')
    assert time.process_time() - began < 20


# What is printed --------------------------------------------------------------------------------


def test_no_message_steers_a_terminal_or_fills_it():
    error = InputError(
        "given '\x1b]0;x\x07' \ud800 " + "y" * 10**6, file="a\x1b[31m", column="\x9b"
    )
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800]", str(error))
    assert len(str(error)) < 5000


def test_printable_leaves_text_as_it_is():
    text = "µs, ±5 %\n\tü 漢字"
    assert printable(text) == text
    assert printable("\u202egnp.exe\r") == "\\u202egnp.exe\\r"


# What is written --------------------------------------------------------------------------------


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    target = tmp_path / "x"
    files.write_whole(target, b"one")
    (tmp_path / ".x.new").write_text("left by a process that was killed")
    files.write_whole(target, b"two")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "full")))
    for write in files.write_whole, files.write_sealed:
        with pytest.raises(
            InputError, match=f"^{re.escape(str(target))}: cannot be written: full$"
        ):
            write(target, b"three")
    assert target.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["x"]


def test_a_leftover_that_is_a_link_is_not_written_through(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".x.new").symlink_to(victim)
    files.write_whole(tmp_path / "x", b"two")
    assert victim.read_text() == "mine"


def test_a_lock_that_is_a_link_or_a_pipe_is_refused(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "link").symlink_to(victim)
    fifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="is a symbolic link"):
        files.open_lock(tmp_path / "link")
    with pytest.raises(InputError, match="is not a regular file"):
        files.open_lock(tmp_path / "fifo")
    with pytest.raises(InputError, match="cannot be written: No such file"):
        files.open_lock(tmp_path / "no" / "folder")
    assert victim.read_text() == "mine"


def test_a_scratch_folder_that_is_swept_as_it_is_made_is_made_again(tmp_path, monkeypatch):
    make = tempfile.mkdtemp

    def swept(*args, **options):
        place = make(*args, **options)
        if len(made) == 0:
            os.rmdir(place)
        made.append(place)
        return place

    made = []
    monkeypatch.setattr(tempfile, "mkdtemp", swept)
    with files.scratch("pcpmodel-", tmp_path) as place:
        assert place.is_dir()
    assert len(made) == 2


def test_scratch_folders_of_the_dead_are_removed_and_no_others(tmp_path):
    code = (
        "import sys, time; from pcpmodel import files\n"
        f"with files.scratch('pcpmodel-', {str(tmp_path)!r}) as place:\n"
        "    (place / 'x').write_text('x'); print(place, flush=True); time.sleep(60)\n"
    )
    dead, alive = (
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    )
    left, used = (Path(process.stdout.readline().strip()) for process in (dead, alive))
    dead.kill()
    dead.wait()
    others = [tmp_path / "pcpmodel-notes", tmp_path / "other-abcdefgh"]
    for path in others:
        path.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "pcpmodel-abcdefgh").symlink_to(elsewhere)
    try:
        with files.scratch("pcpmodel-", tmp_path) as mine:
            assert mine.is_dir()
        assert not mine.exists()
        assert not left.exists()
        assert (used / "x").exists()
        assert all(path.is_dir() for path in (*others, elsewhere))
    finally:
        alive.kill()
        alive.wait()


def test_what_fails_while_a_directory_is_held_fails_as_it_does_otherwise(tmp_path):
    """Where a thread held it already, an OSError was taken for one of holding it."""

    def fail():
        with files.held(tmp_path) as inner:
            assert inner
            raise OSError("disk full")

    with files.held(tmp_path) as outer:
        assert outer
        with pytest.raises(OSError, match="disk full"):
            fail()
    with files.held(tmp_path / "not there") as missing:
        assert not missing
    with files.held(tmp_path) as again:
        assert again


def test_a_sealed_file_is_known_from_a_damaged_one(tmp_path):
    path = tmp_path / "kept"
    assert files.read_sealed(path) is None
    for content in (b"", b"one", b"two\n" * 1000):
        files.write_sealed(path, content)
        assert files.read_sealed(path) == content
        whole = path.read_bytes()
        for damaged in (b"", whole[:-1], whole[1:], whole + b"\n", b"x" + whole[1:]):
            path.write_bytes(damaged)
            assert files.read_sealed(path) is None
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        files.write_sealed(tmp_path / "folder", b"one")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "kept"]
