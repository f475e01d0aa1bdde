"""A setting of the kernel is as it was afterwards, whatever happens to who changed it."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import os

import pytest

from pcpmodel.errors import InputError
from pcpmodel.trace import owner, setting
from pcpmodel.trace.tracefs import instance

DEAD = f"pcpmodel_{os.stat('/proc/self/ns/pid').st_ino}_{2**22 + 1}_77"


@pytest.fixture
def knob(tmp_path, monkeypatch):
    """A setting and a place for notes of the test's own."""
    path = tmp_path / "percpu_pagelist_high_fraction"
    path.write_text("16\n")
    monkeypatch.setattr(setting, "HIGH_FRACTION", path)
    monkeypatch.setattr(setting, "NOTES", tmp_path / "notes")
    return path


def notes():
    return list(setting.NOTES.glob("*")) if setting.NOTES.is_dir() else []


def left_behind(knob, was=16, used=(64, 128)):
    setting.NOTES.mkdir(exist_ok=True)
    note = setting.NOTES / DEAD
    note.write_text(json.dumps({"path": str(knob), "was": was, "used": list(used)}))


@pytest.mark.parametrize("end", [None, KeyboardInterrupt, InputError("no")])
def test_it_is_as_it_was(knob, end):
    def use():
        with setting.changed([0, 64, 128]) as set_to:
            set_to(64)
            assert knob.read_text() == "64\n"
            assert json.loads(notes()[0].read_text())["was"] == 16
            if end:
                raise end

    if end:
        with pytest.raises(end if isinstance(end, type) else type(end)):
            use()
    else:
        use()
    assert knob.read_text() == "16\n"
    assert notes() == []


def test_only_what_was_announced_is_set(knob):
    with setting.changed([64]) as set_to:
        set_to(16)  # what it was
        with pytest.raises(InputError, match=r"65 was not announced; allowed: \[64\]"):
            set_to(65)
        assert knob.read_text() == "16\n"


def test_what_a_killed_one_left_is_put_back(knob):
    knob.write_text("64\n")
    left_behind(knob)
    setting.sweep()
    assert knob.read_text() == "16\n"
    assert notes() == []


def test_whoever_traces_next_puts_it_back(knob, tmp_path):
    knob.write_text("128\n")
    left_behind(knob)
    tracefs = tmp_path / "tracing"
    (tracefs / "events" / "a" / "b").mkdir(parents=True)
    (tracefs / "instances").mkdir()
    with instance(tracefs, ["a/b"]):
        assert knob.read_text() == "16\n"


def test_a_value_that_somebody_else_has_set_stays(knob):
    knob.write_text("1000\n")
    left_behind(knob)
    setting.sweep()
    assert knob.read_text() == "1000\n"
    assert notes() == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"path": "/etc/passwd", "was": 1, "used": [1]}'])
def test_a_note_is_not_believed_more_than_it_must(knob, tmp_path, text):
    setting.NOTES.mkdir()
    (setting.NOTES / DEAD).write_text(text)
    setting.sweep()
    assert knob.read_text() == "16\n"


def test_a_note_that_was_only_begun_goes(knob):
    setting.NOTES.mkdir()
    (setting.NOTES / f".{DEAD}").touch()
    own = setting.NOTES / f".{owner.own_name()}"
    own.touch()
    setting.sweep()
    assert notes() == [own]  # its writer is at work
    assert knob.read_text() == "16\n"


def test_one_at_a_time(knob):
    setting.NOTES.mkdir()
    pids = os.stat("/proc/self/ns/pid").st_ino
    (setting.NOTES / f"pcpmodel_{pids}_{os.getppid()}_{owner.start_time(os.getppid())}").touch()
    with pytest.raises(InputError, match="changes it as well"), setting.changed([64]):
        pass
    assert knob.read_text() == "16\n"


def test_what_is_not_there_cannot_be_set(knob):
    knob.unlink()
    with pytest.raises(InputError, match="cannot be set"), setting.changed([64]):
        pass
    assert notes() == []
