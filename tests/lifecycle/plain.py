"""The plain lifecycle with a slot, stamps and flags, and the context of an action."""

from dataclasses import replace

from kesin.lifecycle.declare import State
from kesin.lifecycle.model import MoveContext
from kesin.lifecycle.task import task_lifecycle
from tests.lifecycle.adversary import NOW
from tests.lifecycle.table import LEASE

TASK = task_lifecycle()
PLAIN = replace(
    TASK,
    states=(*TASK.states, State("slot", exclusive=True)),
    stamps=("sold_at", "sent_at", "seen_at", "paid_at"),
    flags=("vip", "fragile"),
)
VIP, FRAGILE = (PLAIN.flag_bit(flag) for flag in ("vip", "fragile"))


def context(**changes):
    return replace(MoveContext(NOW, "somebody", "worker-2", LEASE), **changes)
