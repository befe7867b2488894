"""A lifecycle with one of everything, and ways to spoil it."""

from dataclasses import replace

from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.moves import claim, complete, enqueue, fail, recover, requeue
from kesin.lifecycle.vocabulary import GONE, Fixed, age_over, lease_over

BROKEN = Fixed("BROKEN", Category.PERMANENT, "it broke")
STATES = (
    State("ready", initial=True),
    State("running"),
    State("done", terminal=True, success=True),
    State("failed", resting=True),
)
ENQUEUE = enqueue("ready")
CLAIM = claim("ready", "running")
FINISH = complete("running", "done", name="finish", error="keep", result="keep")
FAIL = fail("running", "failed")
RECOVER = recover("running", "ready", when=(lease_over,))
PRUNE = Move("prune", ("done", "failed"), GONE, by=("clock",), when=(age_over("finished_at", 60),), stage="prune")
REQUEUE = requeue("failed", "ready", by=("worker",), attempt="keep", chained=True)
ERRORS = Taxonomy(
    channels=("worker",),
    rules=same_everywhere(("worker",), dict.fromkeys(Category, Verdict.FAIL)),
    moves=((Verdict.FAIL, "fail"),),
)


def small(*more, without=(), **header):
    moves = [ENQUEUE, CLAIM, FINISH, FAIL, RECOVER, PRUNE]
    header.setdefault("name", "small")
    header.setdefault("states", STATES)
    kept = [move for move in moves if move not in without]
    return Lifecycle(moves=(*kept, *more), errors=ERRORS, **header)


def swapped(move, **changes):
    return small(replace(move, **changes), without=(move,))


def with_state(**marks):
    return (*STATES, State("aside", **marks))
