"""A lifecycle with one of everything, and ways to spoil it."""

from dataclasses import replace

from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.vocabulary import (
    GONE,
    Fixed,
    age_over,
    budget_left,
    due,
    holds_claim,
    lease_over,
    unclaimed,
)

BROKEN = Fixed("BROKEN", Category.PERMANENT, "it broke")
STATES = (
    State("ready", initial=True),
    State("running"),
    State("done", terminal=True, success=True),
    State("failed", resting=True),
)
ENQUEUE = Move("enqueue", (), "ready", by=("producer",), run_at="input")
CLAIM = Move(
    "claim",
    ("ready",),
    "running",
    by=("worker",),
    when=(due, unclaimed, budget_left),
    claim="take",
    attempt="count",
)
FINISH = Move(
    "finish",
    ("running",),
    "done",
    by=("worker",),
    when=(holds_claim,),
    claim="drop",
    stamp=("finished_at",),
)
FAIL = replace(FINISH, name="fail", action="fail", to="failed", error="record")
RECOVER = Move(
    "recover",
    ("running",),
    "ready",
    by=("clock",),
    when=(lease_over,),
    claim="drop",
    run_at="now",
    stage="recover",
)
PRUNE = Move(
    "prune",
    ("done", "failed"),
    GONE,
    by=("clock",),
    when=(age_over("finished_at", 60),),
    stage="prune",
)
REQUEUE = Move(
    "requeue",
    ("failed",),
    "ready",
    by=("worker",),
    run_at="now",
    unstamp=("finished_at",),
    chained=True,
)
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
