"""Streams between pairs of processes: one allocates, the other frees.

What a write asks for, and when, comes from ``data/workload/native-streams``: a
64 KiB write on an AF_UNIX stream takes one block each of order 3, 2, 1 and 0,
all freed on the receiver's CPU in that order.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from typing import Any

from pcpmodel.data_package import load_workload
from pcpmodel.errors import InputError
from pcpmodel.workload.program import Channel, Program, Task, Workload, _count

__all__ = ["sctp_stream", "unix_stream"]


def _pairs(
    name: str,
    sender: Program,
    receiver: Program,
    pairs: int,
    room: int,
    cross_node: bool,
    nodes: int,
    unit: str,
    message_pages: int,
    params: dict[str, Any],
    back: bool = False,
) -> Workload:
    """``pairs`` times sender and receiver; pair i on node i mod ``nodes``, or across two.

    Channel 0 of both leads from sender to receiver, channel 1 (``back``) the other way.
    """
    tasks: list[Task] = []
    channels: list[Channel] = []
    for i in range(pairs):
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
    return Workload(name, tuple(tasks), unit, pages, tuple(channels), params)


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
        sender,
        receiver,
        pairs,
        room,
        cross_node,
        _count("nodes", nodes, 1),
        "writes of 64 KiB",
        sum(1 << order for order in orders),
        {"send_us": send_us, "recv_us": recv_us},
    )


def sctp_stream(
    pairs: int,
    *,
    send_us: float = 60.0,
    recv_us: float = 60.0,
    acks_per_page: int = 500,
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
    room : int
        Buffers in flight before the sender waits.
    cross_node : bool
        Sender and receiver on different nodes.
    nodes : int
        Nodes over which the pairs are spread.

    Notes
    -----
    No native recording of SCTP exists; order 3 follows from the published tables (keeping a
    batch of 63 pages divides the drains by eight).  ``acks_per_page`` is an assumption: with
    64, version 2's patch 10 would drain twice as often as patch 5; from 500 on it hardly matters.
    """
    pairs = _count("pairs", pairs, 1)
    acks_per_page = _count("acks_per_page", acks_per_page, 1)
    for key, value in (("send_us", send_us), ("recv_us", recv_us)):
        if not 0.01 <= value <= 1e6:
            raise InputError(f"{key}={value} is outside 0.01..1e6 us")
    sender, receiver = Program(), Program()
    with sender.forever():
        with sender.repeat(acks_per_page):
            sender.alloc(1, order=3, migratetype="unmovable", ns=send_us * 1000)
            sender.send(0, unmovable_3=1)
        sender.recv(1, unmovable_0=1)
        sender.free(1, migratetype="unmovable", ns=100, of="peer")
    with receiver.forever():
        with receiver.repeat(acks_per_page):
            receiver.recv(0, unmovable_3=1)
            receiver.free(1, order=3, migratetype="unmovable", ns=recv_us * 1000, of="peer")
            receiver.score()
        receiver.alloc(1, migratetype="unmovable", ns=100)
        receiver.send(1, unmovable_0=1)
    return _pairs(
        "sctp_stream",
        sender,
        receiver,
        pairs,
        room,
        cross_node,
        _count("nodes", nodes, 1),
        "order-3 buffers",
        8,
        {"send_us": send_us, "recv_us": recv_us, "acks_per_page": acks_per_page},
        back=True,
    )
