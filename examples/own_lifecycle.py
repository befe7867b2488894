"""Your own lifecycle: an operator approves large refunds."""

from kesin import (
    STAY,
    Act,
    Category,
    Done,
    Job,
    Lifecycle,
    Move,
    Queue,
    State,
    Taxonomy,
    Verdict,
    Worker,
    holds_claim,
    lease_over,
    moves,
    open_store,
    prove,
    same_everywhere,
)

LARGE = 1_000  # lira
TO_DO = ("asked", "approved")  # a claim keeps the state, so the handler can read it

STATES = (
    State("asked", initial=True),
    State("held", resting=True),  # until an operator approves it
    State("approved"),
    State("paid", terminal=True, success=True),
    State("failed", resting=True),
)
MOVES = (
    moves.enqueue("asked"),
    moves.claim(TO_DO, STAY),
    Move(
        "hold",
        ("asked",),
        "held",
        by=("worker",),
        when=(holds_claim,),
        claim="drop",
        stamp=("finished_at",),
    ),
    moves.requeue("held", "approved", name="approve"),
    moves.complete(TO_DO, "paid", name="pay", error="keep"),
    moves.fail(TO_DO, "failed"),
    moves.recover(TO_DO, STAY, when=(lease_over,)),
    moves.attempt_cap(TO_DO, "failed"),
)
ERRORS = Taxonomy(
    channels=("worker",),
    rules=same_everywhere(("worker",), dict.fromkeys(Category, Verdict.FAIL)),
    moves=((Verdict.FAIL, "fail"), (Verdict.COMPLETE, "pay")),
)
refund = Lifecycle("refund", STATES, MOVES, ERRORS, max_attempts=3)
print(prove(refund))


def pay(job: Job) -> Done | Act:
    """Pay small refunds immediately and large ones after approval."""
    if job.payload["lira"] > LARGE and job.state != "approved":
        return Act("hold", note={"why": f"more than {LARGE} lira"})
    return Done({"paid": job.payload["lira"]})


refunds = Queue("refunds", refund, open_store(":memory:"))
refunds.enqueue({"lira": 80})
large = refunds.enqueue({"lira": 4_500}).id
Worker(refunds, pay).drain()
print(refunds.stats().states)
refunds.act("approve", actor="ayse", ids=[large], reason="the goods came back")
Worker(refunds, pay).drain()
print([event.move for event in refunds.events(large)])
