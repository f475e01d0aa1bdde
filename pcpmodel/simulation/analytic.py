"""Closed forms for CPUs that share one lock.

Every CPU works ("thinks") on its own, then takes the lock, then works again: a
closed queueing network with one delay station and one first-come-first-served
server.  `mva` solves it exactly for exponential holds (any law of the work);
`chain` solves it when the lock has to be handed over to who waits.  The event
engine is checked against both.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pcpmodel.errors import InputError

__all__ = ["Closed", "chain", "mva"]


@dataclass(frozen=True)
class Closed:
    """Steady state of the closed network with ``cpus`` CPUs.

    Attributes
    ----------
    cpus : int
        Number of CPUs.
    holds_per_s : float
        Lock holds of all CPUs together [1/s].
    wait_ns : float
        Mean wait for the lock per hold, without the hold itself [ns].
    utilisation : float
        Share of time that the lock is held or being handed over, 0..1.
    wait_share : float
        Share of all CPU time spent waiting for the lock, 0..1: what ``perf``
        shows as lock contention cycles%, divided by 100.
    """

    cpus: int
    holds_per_s: float
    wait_ns: float
    utilisation: float
    wait_share: float


def _checked(cpus: int, think_ns: float, hold_ns: float) -> None:
    if isinstance(cpus, bool) or not isinstance(cpus, int | np.integer) or cpus < 1:
        raise InputError(f"cpus={cpus!r} is not a whole number >= 1")
    if not (np.isfinite(think_ns) and think_ns >= 0):
        raise InputError(f"think_ns={think_ns!r} is not a finite time >= 0 ns")
    if not (np.isfinite(hold_ns) and hold_ns > 0):
        raise InputError(f"hold_ns={hold_ns!r} is not a finite time > 0 ns")


def mva(cpus: int, think_ns: float, hold_ns: float) -> Closed:
    """Exact mean value analysis of one first-come-first-served lock.

    Parameters
    ----------
    cpus : int
        CPUs that share the lock, at least 1.
    think_ns : float
        Mean time between releasing the lock and asking for it again [ns].
    hold_ns : float
        Mean hold, exponentially distributed [ns].

    Returns
    -------
    Closed

    Raises
    ------
    InputError
        For fewer than one CPU or impossible times.

    References
    ----------
    .. [1] M. Reiser, S. S. Lavenberg, "Mean-Value Analysis of Closed Multichain
       Queuing Networks", J. ACM 27 (1980).

    Examples
    --------
    >>> round(mva(2, 1000.0, 1000.0).wait_ns, 9)
    500.0
    """
    _checked(cpus, think_ns, hold_ns)
    queue = response = rate = 0.0
    for n in range(1, cpus + 1):
        response = hold_ns * (1.0 + queue)
        rate = n / (think_ns + response)
        queue = rate * response
    wait = response - hold_ns
    return Closed(
        cpus=int(cpus),
        holds_per_s=rate * 1e9,
        wait_ns=wait,
        utilisation=rate * hold_ns,
        wait_share=wait / (think_ns + response),
    )


def chain(
    cpus: int,
    think_ns: float,
    hold_ns: float,
    handover_ns: float = 0.0,
) -> Closed:
    """Load-dependent Markov chain: a lock that is slower once somebody waits for it.

    With ``j`` CPUs at the lock (the holder included) one of them leaves after
    ``hold_ns`` on average, plus, when somebody waits (``j >= 2``), ``handover_ns``: as
    `pcpmodel.hardware.lock` has it.  Work and holds are exponential.

    Parameters
    ----------
    cpus, think_ns, hold_ns
        As for `mva`.
    handover_ns : float
        Cost of handing the lock to a waiting CPU [ns].

    Returns
    -------
    Closed

    References
    ----------
    .. [1] S. Boyd-Wickizer, M. F. Kaashoek, R. Morris, N. Zeldovich,
       "Non-scalable locks are dangerous", Linux Symposium 2012, section 4.
    """
    _checked(cpus, think_ns, hold_ns)
    if not (np.isfinite(handover_ns) and handover_ns >= 0):
        raise InputError(f"handover_ns={handover_ns!r} is not a finite time >= 0 ns")
    if think_ns == 0:
        raise InputError("think_ns=0: the chain needs a think time above 0 ns")
    j = np.arange(cpus + 1)
    leave: npt.NDArray[np.float64] = hold_ns + np.where(j >= 2, handover_ns, 0.0)
    # Birth-death balance: p[j] (cpus - j) / think = p[j + 1] / leave[j + 1], in logarithms.
    log_p = np.zeros(cpus + 1)
    log_p[1:] = np.cumsum(np.log((cpus - j[:-1]) * leave[1:] / think_ns))
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    rate = float(p[1:] @ (1.0 / leave[1:]))
    at_lock = float(p @ j)
    wait = at_lock / rate - hold_ns
    return Closed(
        cpus=int(cpus),
        holds_per_s=rate * 1e9,
        wait_ns=wait,
        utilisation=float(1.0 - p[0]),
        wait_share=wait * rate / cpus,
    )
