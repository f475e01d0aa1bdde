"""What objects keep once they have worked it out."""

# SPDX-License-Identifier: GPL-2.0-only

import os
import re
import signal
import threading

import pytest

from helpers.paths import ROOT
from pcpmodel.cached import cached_property


class Number:
    def __init__(self, begun=None, goes_on=None):
        self.times = 0
        self.begun, self.goes_on = begun, goes_on

    @cached_property
    def value(self):
        """A number."""
        if self.begun:
            self.begun.set()
            self.goes_on.wait(60)
        self.times += 1
        return self.times


def test_it_is_worked_out_once():
    number = Number()
    assert [number.value, number.value] == [1, 1]
    assert Number.value.__doc__ == "A number."


@pytest.mark.filterwarnings("ignore:This process")  # is multi-threaded and forks
def test_a_process_that_is_forked_while_a_thread_works_one_out():
    begun, goes_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: Number(begun, goes_on).value)
    thread.start()
    assert begun.wait(60)
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)
        os._exit(Number().value)
    goes_on.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_nothing_uses_that_of_functools():
    users = [
        path.name
        for path in sorted((ROOT / "pcpmodel").rglob("*.py*"))
        if path.suffix in (".py", ".pyx")
        and re.search(r"\bfunctools\b.*\bcached_property\b", path.read_text("utf-8"))
    ]
    assert users == ["cached.py"]
