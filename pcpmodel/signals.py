"""SIGTERM and SIGHUP end the program as Ctrl-C does: what it began is undone first.

A signal that kills leaves behind whatever a ``finally`` would have removed; here it raises
instead.  Signals that are ignored, as under nohup, stay ignored.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Ended", "Shield", "shielded", "unwinding"]

_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Ended(SystemExit):
    """A signal asked the process to end.

    Parameters
    ----------
    number : int
        The signal; the exit code is 128 more, as shells have it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number
        self.name = signal.Signals(number).name


def _raise(number: int, _: Any = None) -> None:
    raise KeyboardInterrupt if number == signal.SIGINT else Ended(number)


@contextmanager
def _handled(handler: Callable[[int, Any], None], *numbers: int) -> Iterator[None]:
    """Handle the signals that are not ignored; only the main thread can."""
    before = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in numbers:
                old = signal.getsignal(number)
                if old is not signal.SIG_IGN and old is not None:
                    before[number] = old
                    signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def _heard() -> Iterator[None]:
    """Send a signal again that raised where Python ignores it, as in what an import calls back."""
    before = sys.unraisablehook

    def look(ignored: sys.UnraisableHookArgs) -> None:
        error = ignored.exc_value
        number = signal.SIGINT if isinstance(error, KeyboardInterrupt) else None
        if isinstance(error, Ended):
            number = error.number
        if number is None:
            before(ignored)
        else:  # at once it would be ignored again
            threading.Timer(0.01, os.kill, (os.getpid(), number)).start()

    sys.unraisablehook = look
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def unwinding() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `Ended` in the main thread."""
    with _handled(_raise, *_ENDING), _heard():
        yield


class Shield:
    """Holds signals back but where it is lifted; made by `shielded`."""

    def __init__(self) -> None:
        self._lifted = False
        self._waiting: int | None = None

    def _handle(self, number: int, _: Any = None) -> None:
        if not self._lifted:
            self._waiting = number
            return
        self._lifted = False  # what is done about this one is not interrupted by another
        _raise(number)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Let a signal interrupt: KeyboardInterrupt or `Ended`; also one that came before."""
        self._lifted = True
        try:
            if self._waiting is not None:
                number, self._waiting = self._waiting, None
                self._handle(number)
            yield
        finally:
            self._lifted = False


@contextmanager
def shielded() -> Iterator[Shield]:
    """Hold SIGINT, SIGTERM and SIGHUP back, so that whatever is begun is also undone.

    Yields
    ------
    Shield
        Its `Shield.lifted` marks what may be interrupted.  A signal that comes elsewhere takes
        effect at the end.
    """
    shield = Shield()
    with _handled(shield._handle, signal.SIGINT, *_ENDING):
        yield shield
    if shield._waiting is not None:
        signal.raise_signal(shield._waiting)
