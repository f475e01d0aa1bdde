"""The lock: order, hand-over, ties."""

# SPDX-License-Identifier: GPL-2.0-only

import pytest

from pcpmodel.errors import InputError
from pcpmodel.hardware.lock import FifoLock


def test_a_free_lock_is_granted_at_once():
    lock = FifoLock(100)
    assert lock.acquire(1000, 50) == 1000
    assert lock.acquire(2000, 50) == 2000


def test_waiting_cpus_are_served_in_order_of_arrival_each_for_one_handover():
    lock = FifoLock(100)
    assert lock.acquire(0, 1000) == 0
    assert lock.acquire(1, 1000) == 1000 + 100
    assert lock.acquire(2, 1000) == 2100 + 100
    assert lock.acquire(3, 1000) == 3200 + 100


def test_a_release_precedes_an_arrival_of_the_same_time():
    lock = FifoLock(100)
    lock.acquire(0, 1000)
    assert lock.acquire(1000, 10) == 1000
    lock.acquire(1005, 1000)
    assert lock.acquire(1009, 1) == 1010 + 100 + 1000 + 100


def test_many_holds_follow_each_other():
    lock = FifoLock()
    free_at = 0
    for i in range(10_000):
        now = i * 700
        assert lock.acquire(now, 699 + i % 3) == max(now, free_at)
        free_at = max(now, free_at) + 699 + i % 3


def test_wrong_use_is_refused():
    lock = FifoLock()
    lock.acquire(10, 5)
    for now, hold in ((9, 5), (20, 0), (20, -1)):
        with pytest.raises(InputError):
            lock.acquire(now, hold)
    for price in (-1, 1 << 41):
        with pytest.raises(InputError, match="hand-over"):
            FifoLock(price)
