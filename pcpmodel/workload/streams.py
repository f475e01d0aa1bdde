"""Streams between pairs of processes: one allocates, the other frees.

What a write asks for, and when, comes from ``data/workload/native-streams``: a
64 KiB write on an AF_UNIX stream takes one block each of order 3, 2, 1 and 0,
all freed on the receiver's CPU in that order.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from pcpmodel.datasets.packages import load_workload
from pcpmodel.errors import InputError
from pcpmodel.workload.program import Program, _count
from pcpmodel.workload.tasks import Channel, Made, Task, Workload

__all__ = ["sctp_stream", "unix_stream"]

_GOLDEN = (math.sqrt(5) - 1) / 2
#: CPU time of an order-3 buffer with three messages of 10 KiB, one side [us]: 7,136 MB/s with 73 %
#: of 128 CPUs idle (data/published/pcp-auto-tuning-rfc) are 49 us for 10 KiB, both sides.
BUFFER_US = 74.0
#: Buffers until two processes change CPUs, where there is a process for every CPU: about 1.02 s,
#: after which a busy CPU of a socket of 64 looks for others to balance with (kernel/sched: 64 ms,
#: times busy_factor 16); an assumption.
SWAP_AFTER = 14_000


def _pairs(
    name: str,
    programs: Sequence[tuple[Program, Program]],
    room: int,
    cross_node: bool,
    nodes: int,
    unit: str,
    message_pages: int,
    params: dict[str, Any],
    made: tuple[Callable[..., Workload], dict[str, Any]],
    back: bool = False,
) -> Workload:
    """Sender and receiver of each pair; pair i on node i mod ``nodes``, or across two.

    Channel 0 of both leads from the first to the second, channel 1 (``back``) the other way.
    """
    pairs = len(programs)
    tasks: list[Task] = []
    channels: list[Channel] = []
    for i, (sender, receiver) in enumerate(programs):
        mine = tuple(range(len(channels), len(channels) + 1 + back))
        channels += [Channel(2 * i, 2 * i + 1, room), Channel(2 * i + 1, 2 * i, room)][: 1 + back]
        here = i % nodes
        there = (i + 1) % nodes if cross_node else here
        tasks += [
            Task(sender, here, mine, peer=2 * i + 1),
            Task(receiver, there, mine, peer=2 * i),
        ]
    params = {"pairs": pairs, "room": room, "cross_node": cross_node, "nodes": nodes, **params}
    pages = pairs * message_pages * (room + 2)
    return Workload(
        name, tuple(tasks), unit, pages, tuple(channels), params, from_memory=0.0, made=Made(*made)
    )


def unix_stream(
    pairs: int,
    *,
    send_us: float | None = None,
    recv_us: float | None = None,
    room: int = 3,
    cross_node: bool = False,
    nodes: int = 2,
) -> Workload:
    """AF_UNIX streams of 64 KiB writes (lmbench3 UNIX).

    Parameters
    ----------
    pairs : int
        Pairs of sender and receiver, each process on its own CPU.
    send_us, recv_us : float, optional
        CPU time of one write and of its receipt without the zone lock [us]; by default as
        recorded on either side.
    room : int
        Writes in flight before the sender waits: a socket buffer of 208 KiB.
    cross_node : bool
        Sender and receiver on different nodes.
    nodes : int
        Nodes over which the pairs are spread.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For a number out of range.
    """
    pairs = _count("pairs", pairs, 1)
    recorded = load_workload("native-streams").tables["writes"].set_index("side")
    send, recv = recorded.loc["sender"], recorded.loc["receiver"]
    send_us = float(send["time"].sum()) if send_us is None else send_us
    recv_us = float(recv["time"].sum()) if recv_us is None else recv_us
    for key, value in (("send_us", send_us), ("recv_us", recv_us)):
        if not 0.01 <= value <= 1e6:
            raise InputError(f"{key}={value} is outside 0.01..1e6 us")
    orders = [int(order) for order in send["from_order"]]
    message = {f"unmovable_{order}": 1 for order in orders}
    sender, receiver = Program(), Program()
    with sender.forever():
        for order, share in zip(orders, send["time"] / send["time"].sum(), strict=True):
            sender.alloc(1, order=order, migratetype="unmovable", ns=send_us * 1000 * share)
        sender.send(0, **message)
    with receiver.forever():
        receiver.recv(0, **message)
        for order, share in zip(orders, recv["time"] / recv["time"].sum(), strict=True):
            receiver.free(
                1, order=order, migratetype="unmovable", ns=recv_us * 1000 * share, of="peer"
            )
        receiver.score()
    return _pairs(
        "unix_stream",
        [(sender, receiver)] * pairs,
        room,
        cross_node,
        _count("nodes", nodes, 1),
        "writes of 64 KiB",
        sum(1 << order for order in orders),
        {"send_us": send_us, "recv_us": recv_us},
        (
            unix_stream,
            {
                "pairs": pairs,
                "send_us": send_us,
                "recv_us": recv_us,
                "room": room,
                "cross_node": cross_node,
                "nodes": nodes,
            },
        ),
    )


def sctp_stream(
    pairs: int,
    *,
    send_us: float = BUFFER_US,
    recv_us: float = BUFFER_US,
    acks_per_page: int = 500,
    swap_after: int = SWAP_AFTER,
    room: int = 16,
    cross_node: bool = False,
    nodes: int = 2,
) -> Workload:
    """SCTP_STREAM_MANY: order-3 buffers one way, acknowledgements the other.

    Parameters
    ----------
    pairs : int
        Pairs of sender and receiver, each process on its own CPU.
    send_us, recv_us : float
        CPU time of one buffer and of its receipt without the zone lock [us].
    acks_per_page : int
        Messages after which the receiver's acknowledgements have used up a page, which it
        allocates anew and the sender frees.
    swap_after : int
        Mean number of buffers after which the two processes of a pair change CPUs, as on a
        machine with a process for every CPU; exponentially distributed over the pairs.
        0: they stay.
    room : int
        Buffers in flight before the sender waits.
    cross_node : bool
        Sender and receiver on different nodes.
    nodes : int
        Nodes over which the pairs are spread.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For a number out of range.

    Notes
    -----
    No native recording of SCTP exists; order 3 follows from the published tables (keeping a
    batch of 63 pages divides the drains by eight).  ``acks_per_page`` is an assumption: with
    64, version 2's patch 10 would drain twice as often as patch 5; from 500 on it hardly matters.
    A CPU that now sends and now receives is what auto-tuning keeps pages for: without it patches
    7 and 9 would drain as often as patch 5.
    """
    pairs = _count("pairs", pairs, 1)
    acks_per_page = _count("acks_per_page", acks_per_page, 1)
    for key, value in (("send_us", send_us), ("recv_us", recv_us)):
        if not 0.01 <= value <= 1e6:
            raise InputError(f"{key}={value} is outside 0.01..1e6 us")

    def send(p: Program, there: int, back: int) -> None:
        with p.repeat(acks_per_page):
            p.alloc(1, order=3, migratetype="unmovable", ns=send_us * 1000)
            p.send(there, unmovable_3=1)
        p.recv(back, unmovable_0=1)
        p.free(1, migratetype="unmovable", ns=100, of="peer")

    def receive(p: Program, there: int, back: int) -> None:
        with p.repeat(acks_per_page):
            p.recv(there, unmovable_3=1)
            p.free(1, order=3, migratetype="unmovable", ns=recv_us * 1000, of="peer")
            p.score()
        p.alloc(1, migratetype="unmovable", ns=100)
        p.send(back, unmovable_0=1)

    def pair(rounds: int) -> tuple[Program, Program]:
        one, other = Program(), Program()
        for p, turns in ((one, (send, receive)), (other, (receive, send))):
            with p.forever():
                if not rounds:
                    turns[0](p, 0, 1)
                    continue
                for channel, turn in enumerate(turns):
                    with p.repeat(rounds):
                        turn(p, channel, 1 - channel)
        return one, other

    swap_after = _count("swap_after", swap_after)
    # Quantiles of the exponential distribution, neighbours far apart.
    mean = swap_after / acks_per_page
    shares = ((i + 0.5) * _GOLDEN % 1 for i in range(pairs))
    rounds = [max(1, round(-mean * math.log1p(-s))) if swap_after else 0 for s in shares]
    programs = {r: pair(r) for r in set(rounds)}
    return _pairs(
        "sctp_stream",
        [programs[r] for r in rounds],
        room,
        cross_node,
        _count("nodes", nodes, 1),
        "order-3 buffers",
        8,
        {
            "send_us": send_us,
            "recv_us": recv_us,
            "acks_per_page": acks_per_page,
            "swap_after": swap_after,
        },
        (
            sctp_stream,
            {
                "pairs": pairs,
                "send_us": send_us,
                "recv_us": recv_us,
                "acks_per_page": acks_per_page,
                "swap_after": swap_after,
                "room": room,
                "cross_node": cross_node,
                "nodes": nodes,
            },
        ),
        back=True,
    )
