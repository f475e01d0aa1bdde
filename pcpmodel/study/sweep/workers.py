"""Who computes the runs of a sweep: threads, any executor, the workers of a Dask scheduler."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager, nullcontext
from threading import Event
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.simulation.run import execute
from pcpmodel.simulation.spec import RunSpec
from pcpmodel.study.sweep.grid import Grid, figures

__all__ = ["cluster", "compute", "computing"]

#: In flight per worker: enough to keep it busy, few enough to stop soon.
_AHEAD = 4


#: How often a silent scheduler is looked at, and how long it may be silent or alone [s].
_LOOK_S, _PATIENCE_S = 3, 12
#: How long a scheduler may take to answer at first [s].
_ANSWER_S = 10


def compute(
    spec: RunSpec, engine: str, halt: Callable[[float], None] | None = None
) -> dict[str, float]:
    """One run, on whatever worker."""
    return figures(execute(spec, engine=engine, progress=halt))


@contextmanager
def _threads(workers: int) -> Iterator[tuple[Executor, Callable[[float], None]]]:
    """Threads, and what stops their runs half-way once it is over."""
    over = Event()

    def halt(_: float) -> None:
        if over.is_set():
            raise CancelledError

    own = ThreadPoolExecutor(workers)
    try:
        yield own, halt
    finally:
        over.set()
        own.shutdown(wait=True, cancel_futures=True)


class _Workers(Executor):
    """The workers of a Dask scheduler; says when they are gone instead of waiting for ever."""

    def __init__(self, client: Any, address: str) -> None:
        from distributed.scheduler import KilledWorker

        self._client, self._executor, self._address = client, client.get_executor(), address
        self._absent: float | None = None  # since when
        self._killed = KilledWorker

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        with self.watched():
            return self._executor.submit(*args, **kwargs)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Let what Dask raises when somebody died be one line."""
        try:
            yield
        except (CancelledError, OSError, RuntimeError) as error:
            if not isinstance(error, CancelledError) and self._client.status == "running":
                raise  # not Dask's: a run's own
            raise InputError(f"the Dask scheduler at {self._address!r} is gone") from None
        except self._killed:
            raise InputError(
                f"a run's workers died again and again at {self._address!r}; out of memory?"
            ) from None

    def check(self) -> None:
        """Refuse to wait on where nobody has been for a while."""
        with self.watched():
            try:
                there = self._client.sync(self._client.scheduler.ncores, callback_timeout=_LOOK_S)
            except TimeoutError:
                there = None
        now = time.monotonic()
        if there:
            self._absent = None
            return
        self._absent = self._absent or now
        if now - self._absent > _PATIENCE_S:
            what = "does not answer" if there is None else "has no workers any more"
            raise InputError(f"the Dask scheduler at {self._address!r} {what}")


@contextmanager
def cluster(address: str | None) -> Iterator[tuple[Executor | None, int | None]]:
    """Executor of a Dask scheduler and its number of threads; None without an address.

    Raises
    ------
    InputError
        If nobody answers there, there are no workers, or Dask is not installed; later, if the
        scheduler or all workers are gone.
    """
    if address is None:
        yield None, None
        return
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--scheduler needs pcpmodel[cluster]") from None
    for name in ("asyncio", *logging.root.manager.loggerDict):  # what matters is said once
        # Each logger has a level of its own.
        if name.partition(".")[0] in ("asyncio", "distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=_ANSWER_S)
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler at {address!r}: {error}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=30)
        except TimeoutError:
            raise InputError(f"the Dask scheduler at {address!r} has no workers") from None
        yield _Workers(client, address), sum(client.nthreads().values())


def computing(
    grid: Grid, todo: list[int], executor: Executor | None, workers: int
) -> Generator[tuple[int, dict[str, float]]]:
    """Runs and their figures, as they come."""
    waiting = iter(todo)
    running: dict[Future[dict[str, float]], int] = {}
    remote = isinstance(executor, _Workers)
    timeout, watched = (_LOOK_S, executor.watched) if remote else (None, nullcontext)
    with _threads(workers) if executor is None else nullcontext((executor, None)) as (pool, halt):
        try:
            while True:
                for run in itertools.islice(waiting, _AHEAD * workers - len(running)):
                    future = pool.submit(compute, grid.specs[run], grid.engines[run], halt)
                    running[future] = run
                if not running:
                    return
                ready = wait(running, timeout, FIRST_COMPLETED).done
                if not ready and remote:
                    executor.check()
                # What was done beside a failure is kept.
                for future in sorted(ready, key=lambda f: f.cancelled() or bool(f.exception())):
                    run = running.pop(future)
                    with watched(), grid.at(run):
                        values = future.result()
                    yield run, values
        finally:
            for future in running:
                future.cancel()
