"""Streams between pairs of processes: one allocates, the other frees.

What a write asks for, and when, comes from ``data/workload/native-streams``: a
64 KiB write on an AF_UNIX stream takes one block each of order 3, 2, 1 and 0,
all freed on the receiver's CPU in that order.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pcpmodel.datasets.packages import load_workload
from pcpmodel.errors import InputError
from pcpmodel.workload.program import Program, _count, _tasks
from pcpmodel.workload.tasks import Channel, Made, Task, Workload

__all__ = ["sctp_stream", "unix_stream"]

_GOLDEN = (math.sqrt(5) - 1) / 2
#: Packet's order -> messages of 10 KiB in it (``data/workload/emulated-streams``).
PACKETS = {4: 5, 3: 2}
#: CPU time of a message of 10 KiB, and how long the other side takes to wake up [us]: with these 64
#: pairs come to what data/published/pcp-auto-tuning-rfc states of them, 7,136 Mbit/s each (it says
#: MB/s of all: then a message would take 137,000 instructions) with 73 % of 128 CPUs idle.  The
#: sender has two thirds of the CPU time, as recorded.
SEND_US, RECV_US, LATENCY_US = 3.1, 1.6, 22.0
#: Messages until two processes change CPUs, where there is a process for every CPU: about 1.02 s,
#: after which a busy CPU of a socket of 64 looks for others to balance with (kernel/sched: 64 ms,
#: times busy_factor 16); an assumption.
SWAP_AFTER = 89_000


def _moved(pairs: int) -> int:
    """Pairs that balancing of load has moved to another node, in the mean over a short test."""
    recorded = load_workload("emulated-streams").tables["placements"]
    return round(pairs * float(recorded["moved"].sum() / recorded["pairs"].sum()))


def _nodes(nodes: int | None, cross_node: bool) -> int | None:
    if nodes is None:
        return 2 if cross_node else None
    return _count("nodes", nodes, 1)


def _check_us(**times: float) -> None:
    """Refuse CPU times of a message that are out of range [us]."""
    for name, value in times.items():
        if not 0.01 <= value <= 1e6:
            raise InputError(f"{name}={value} is outside 0.01..1e6 us")


def _pairs(
    make: Callable[..., Workload],
    programs: Sequence[tuple[Program, Program]],
    room: int,
    cross_node: bool,
    nodes: int | None,
    unit: str,
    message_pages: int,
    given: dict[str, Any],
    back: bool = False,
    latency_ns: float = 0.0,
) -> Workload:
    """Sender and receiver of each pair; pair i on node i mod ``nodes``, or across two.

    Channel 0 of both leads from the first to the second, channel 1 (``back``) the other way.
    Without ``nodes`` a pair is where the kernel leaves it, see `unix_stream`.  ``given``: arguments
    of ``make`` beside those that all streams have.
    """
    pairs = len(programs)
    moved = _moved(pairs) if nodes is None else 0
    stay = pairs - moved
    tasks: list[Task] = []
    channels: list[Channel] = []
    for i, (sender, receiver) in enumerate(programs):
        mine = tuple(range(len(channels), len(channels) + 1 + back))
        ends = ((2 * i, 2 * i + 1), (2 * i + 1, 2 * i))[: 1 + back]
        channels += [Channel(*each, room, latency_ns) for each in ends]
        first = Task(sender, channels=mine, peer=2 * i + 1, near=0 if 0 < i < stay else None)
        second = Task(receiver, channels=mine, peer=2 * i, near=2 * i)
        if nodes is not None:
            first = replace(first, node=i % nodes, near=None)
            second = replace(second, node=(i + cross_node) % nodes, near=None)
        tasks += [first, second]
    where = {"cross_node": cross_node, "nodes": nodes, "moved": moved}
    params = {"pairs": pairs, "room": room, **where, **given}
    asked = {"pairs": pairs, **given, "room": room, "cross_node": cross_node, "nodes": nodes}
    pages = pairs * message_pages * (room + 2)
    return Workload(
        make.__name__,
        tuple(tasks),
        unit,
        pages,
        tuple(channels),
        params,
        from_memory=0.0,
        made=Made(make, asked),
    )


def unix_stream(
    pairs: int,
    *,
    send_us: float | None = None,
    recv_us: float | None = None,
    room: int = 3,
    cross_node: bool = False,
    nodes: int | None = None,
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
    nodes : int, optional
        Nodes over which the pairs are spread evenly; by default where the kernel leaves them, with
        ``cross_node`` two.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For a number out of range.

    Notes
    -----
    Processes are forked on one node and sleep until all are there, so that no node is crowded
    (kernel/sched/fair.c: find_idlest_group()).  Then each has a CPU of its own: nothing waits that
    balancing could move, and of a pair that it does part the next wake-up brings the halves
    together again, on either node (wake_affine()).  In emulated machines of two nodes with 16 to 64
    CPUs (``placements`` of ``data/workload/emulated-streams``) pairs were parted for less than a
    hundredth of twelve seconds, and one in nine was away from the first node in the mean.
    """
    pairs = _tasks("pairs", pairs)
    nodes = _nodes(nodes, cross_node)
    recorded = load_workload("native-streams").tables["writes"].set_index("side")
    send, recv = recorded.loc["sender"], recorded.loc["receiver"]
    send_us = float(send["time"].sum()) if send_us is None else send_us
    recv_us = float(recv["time"].sum()) if recv_us is None else recv_us
    _check_us(send_us=send_us, recv_us=recv_us)
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
        unix_stream,
        [(sender, receiver)] * pairs,
        room,
        cross_node,
        nodes,
        "writes of 64 KiB",
        sum(1 << order for order in orders),
        {"send_us": send_us, "recv_us": recv_us},
    )


def sctp_stream(
    pairs: int,
    *,
    send_us: float = SEND_US,
    recv_us: float = RECV_US,
    latency_us: float = LATENCY_US,
    swap_after: int = SWAP_AFTER,
    room: int = 16,
    cross_node: bool = False,
    nodes: int | None = None,
) -> Workload:
    """SCTP_STREAM_MANY: messages of 10 KiB on loopback.

    Parameters
    ----------
    pairs : int
        Pairs of sender and receiver, each process on its own CPU.
    send_us, recv_us : float
        CPU time of one message and of its receipt without the zone lock [us].
    latency_us : float
        From sending a packet, or an acknowledgement, until the other side works on it [us].
    swap_after : int
        Mean number of messages after which the two processes of a pair change CPUs, as on a
        machine with a process for every CPU; exponentially distributed over the pairs.
        0: they stay.
    room : int
        Packets in flight before the sender waits; its acknowledgement makes it wait before.
    cross_node : bool
        Sender and receiver on different nodes.
    nodes : int, optional
        As in `unix_stream`.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For a number out of range.

    Notes
    -----
    Blocks are those of a recorded association once it stands (``blocks`` of
    ``data/workload/emulated-streams``, the last parts): the socket's send buffer has room for seven
    messages, each a block of order 2, which an acknowledgement gives back all at once, on the
    sender's CPU.  Five of them go in a packet of order 4, past the lists, two in one of order 3,
    which the receiver frees.  Before, packets of one message went, too, of order 2; published
    counts of what is freed (an eighth of the drains with a batch kept) know of none.
    A CPU that now sends and now receives is what auto-tuning keeps pages for: without it patches
    7 and 9 would drain as often as patch 5.
    """
    pairs = _tasks("pairs", pairs)
    _check_us(send_us=send_us, recv_us=recv_us)
    if not 0 <= latency_us <= 1e6:
        raise InputError(f"latency_us={latency_us} is outside 0..1e6 us")
    nodes = _nodes(nodes, cross_node)
    messages = sum(PACKETS.values())
    # Every byte is copied twice by the sender, from the process and into the packet.
    copy_ns = send_us * 1000 / 2

    def send(p: Program, there: int, back: int) -> None:
        p.free(messages, order=2, migratetype="unmovable")
        for order, inside in PACKETS.items():
            if order != max(PACKETS):  # what was queued goes first
                p.alloc(messages, order=2, migratetype="unmovable", ns=copy_ns)
            p.alloc(1, order=order, migratetype="unmovable", ns=inside * copy_ns)
            p.send(there, **{f"unmovable_{order}": 1})
        p.recv(back)

    def receive(p: Program, there: int, back: int) -> None:
        for order, inside in PACKETS.items():
            p.recv(there, **{f"unmovable_{order}": 1})
            ns = inside * recv_us * 1000
            p.free(1, order=order, migratetype="unmovable", ns=ns, of="peer")
        p.score(messages)
        p.send(back)

    def pair(rounds: int) -> tuple[Program, Program]:
        one, other = Program(), Program()
        for p, turns in ((one, (send, receive)), (other, (receive, send))):
            p.alloc(messages, order=2, migratetype="unmovable")
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
    mean = swap_after / messages
    shares = ((i + 0.5) * _GOLDEN % 1 for i in range(pairs))
    rounds = [max(1, round(-mean * math.log1p(-s))) if swap_after else 0 for s in shares]
    programs = {r: pair(r) for r in set(rounds)}
    given = {
        "send_us": send_us,
        "recv_us": recv_us,
        "latency_us": latency_us,
        "swap_after": swap_after,
    }
    return _pairs(
        sctp_stream,
        [programs[r] for r in rounds],
        room,
        cross_node,
        nodes,
        "messages of 10 KiB",
        2 * messages * 4 + sum(1 << order for order in PACKETS),
        given,
        back=True,
        latency_ns=latency_us * 1000,
    )
