"""The lifecycles of random histories; one of them leans on words the workloads use little."""

from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.vocabulary import (
    GONE,
    Fixed,
    age_over,
    budget_left,
    budget_spent,
    due,
    flag_not_set,
    flag_set,
    holds_claim,
    lease_over,
    returns_left,
    unclaimed,
)
from kesin.workloads import lifecycles


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
            Move("enqueue", (), "waiting", by=("producer",), run_at="input"),
            Move(
                "claim",
                ("waiting",),
                "crossing",
                by=("worker",),
                when=(due, unclaimed, budget_left),
                claim="take",
                attempt="count",
            ),
            Move(
                "land",
                ("crossing",),
                "across",
                by=("worker",),
                when=(holds_claim,),
                claim="drop",
                result="record",
                error="clear",
                stamp=("arrived_at", "finished_at"),
            ),
            Move(
                "turn_back",
                ("crossing",),
                "ashore",
                by=("worker",),
                when=(holds_claim,),
                claim="drop",
                error="record",
                flag=("refused",),
                stamp=("finished_at",),
            ),
            Move(
                "release",
                ("crossing",),
                "waiting",
                by=("worker",),
                when=(holds_claim, returns_left),
                claim="drop",
                attempt="return",
                run_at="now",
            ),
            Move(
                "attempt_cap",
                ("waiting",),
                "ashore",
                by=("clock",),
                when=(unclaimed, budget_spent),
                error=Fixed("TOO_OFTEN", Category.PERMANENT, "it was tried often enough"),
                stamp=("finished_at",),
                stage="cap",
            ),
            Move(
                "recover",
                ("crossing",),
                "waiting",
                by=("clock",),
                when=(lease_over, budget_left),
                claim="drop",
                run_at="now",
                stage="recover",
            ),
            Move(
                "recover",
                ("crossing",),
                "ashore",
                by=("clock",),
                when=(lease_over, budget_spent),
                claim="drop",
                error=Fixed("SUNK", Category.PERMANENT, "it never came back"),
                stamp=("finished_at",),
                stage="recover",
            ),
            Move(
                "board",
                ("ashore",),
                "waiting",
                by=("operator",),
                when=(flag_not_set("heavy"),),
                attempt="renew",
                run_at="now",
                unstamp=("finished_at",),
            ),
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
            Move(
                "prune",
                ("across", "ashore"),
                GONE,
                by=("clock",),
                when=(age_over("finished_at", 86_400),),
                stage="prune",
            ),
        ),
        errors=Taxonomy(
            channels=("worker",),
            rules=same_everywhere(("worker",), dict.fromkeys(Category, Verdict.FAIL)),
            moves=((Verdict.FAIL, "turn_back"), (Verdict.COMPLETE, "land")),
        ),
    )


# Batches and webhooks say nothing that the others do not: their words are tried with the others'.
ALL = {name: make for name, make in lifecycles().items() if not name.startswith("pdf_")}
ALL |= {"ferry": ferry_lifecycle}
