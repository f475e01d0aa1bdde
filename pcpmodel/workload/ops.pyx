"""The operations of a program by name, for `pcpmodel.workload.program`."""

# SPDX-License-Identifier: GPL-2.0-only

__all__ = ["LIMITS", "OPS", "SEQUENCES"]

OPS = {
    "alloc": OP_ALLOC,
    "free": OP_FREE,
    "work": OP_WORK,
    "idle": OP_IDLE,
    "send": OP_SEND,
    "recv": OP_RECV,
    "give": OP_GIVE,
    "take": OP_TAKE,
    "draw": OP_DRAW,
    "loop": OP_LOOP,
    "score": OP_SCORE,
    "maybe": OP_MAYBE,
    "pick": OP_PICK,
    "kswapd": OP_KSWAPD,
    "barrier": OP_BARRIER,
    "phase": OP_PHASE,
    "rest": OP_REST,
    "lru_drain": OP_LRU,
    "end": OP_END,
}
#: Which of the blocks held a free takes.
SEQUENCES = {"allocated": AS_ALLOCATED, "reversed": REVERSED, "shuffled": SHUFFLED}
LIMITS = {
    "table": TABLE, "registers": REGISTERS, "loops": LOOPS, "channels": CHANNELS,
    "kinds": BLOCK_KINDS, "barriers": BARRIERS,
    "phases": PHASES,
}
