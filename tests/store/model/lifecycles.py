"""The lifecycles of random histories; one of them leans on words the workloads use little."""

from functools import partial

from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.moves import (
    attempt_cap,
    claim,
    complete,
    enqueue,
    fail,
    prioritize,
    prune,
    recover,
    recover_spent,
    release,
    requeue,
)
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import Fixed, flag_not_set, flag_set, unclaimed
from kesin.workloads import lifecycles

TOO_OFTEN = Fixed("TOO_OFTEN", Category.PERMANENT, "it was tried often enough")
SUNK = Fixed("SUNK", Category.PERMANENT, "it never came back")


def ferry_lifecycle() -> Lifecycle:
    """One ferry: the claim itself takes the slot, and only waiting and crossing hold the key."""
    return Lifecycle(
        name="ferry",
        max_attempts=2,
        max_returns=1,
        lease_seconds=60,
        max_run_seconds=600,
        stamps=("arrived_at",),
        flags=("refused", "heavy"),
        states=(
            State("waiting", initial=True, holds_key=True),
            State("crossing", exclusive=True, holds_key=True),
            State("across", terminal=True, success=True),
            State("ashore", resting=True),
        ),
        moves=(
            enqueue("waiting"),
            claim("waiting", "crossing"),
            complete("crossing", "across", name="land", stamp=("arrived_at", "finished_at")),
            fail("crossing", "ashore", name="turn_back", flag=("refused",)),
            release("crossing", "waiting"),
            attempt_cap("waiting", "ashore", error=TOO_OFTEN),
            recover("crossing", "waiting"),
            recover_spent("crossing", "ashore", error=SUNK),
            requeue("ashore", "waiting", name="board", when=(flag_not_set("heavy"),)),
            Move(
                "weigh",
                ("ashore", "waiting"),
                "ashore",
                by=("operator", "producer"),
                when=(unclaimed, flag_set("refused"), flag_not_set("heavy")),
                flag=("heavy",),
                stamp=("finished_at",),
                payload="replace",
            ),
            prioritize(("waiting", "crossing", "ashore")),
            prune(("across", "ashore"), days=1),
        ),
        errors=Taxonomy(
            channels=("worker",),
            rules=same_everywhere(("worker",), dict.fromkeys(Category, Verdict.FAIL)),
            moves=((Verdict.FAIL, "turn_back"), (Verdict.COMPLETE, "land")),
        ),
    )


# Batches and webhooks say nothing that the others do not: their words are tried with the others'.
ALL = {name: make for name, make in lifecycles().items() if not name.startswith("pdf_")}
ALL |= {
    "ferry": ferry_lifecycle,
    "after_others": partial(task_lifecycle, parents=True, max_attempts=2, keep_days=1),
    "three_at_once": partial(task_lifecycle, concurrency=3, max_attempts=3),
    "two_a_tenant": partial(task_lifecycle, concurrency=2, per="tenant", rate=(3, 60), max_attempts=3),
}
