"""A lifecycle of one's own: refunds that a person approves when they are large."""

from kesin import (
    STAY,
    Act,
    Category,
    Done,
    Fixed,
    Job,
    Lifecycle,
    Move,
    Queue,
    State,
    Taxonomy,
    Verdict,
    Worker,
    budget_left,
    budget_spent,
    due,
    holds_claim,
    lease_over,
    open_store,
    prove,
    same_everywhere,
    unclaimed,
)

LARGE = 1_000  # lira
GAVE_UP = Fixed("MAX_ATTEMPTS", Category.PERMANENT, "every attempt was used up")
TO_DO = ("asked", "approved")  # a claim leaves the state as it is, so the handler can read it

states = (
    State("asked", initial=True),
    State("held", resting=True),  # a person takes it on
    State("approved"),
    State("paid", terminal=True, success=True),
    State("failed", resting=True),
)
# fmt: off
moves = (
    Move("enqueue", (), "asked", by=("producer",), run_at="input"),
    Move("claim", TO_DO, STAY, by=("worker",), when=(due, unclaimed, budget_left),
         claim="take", attempt="count"),
    Move("hold", ("asked",), "held", by=("worker",), when=(holds_claim,),
         claim="drop", stamp=("finished_at",)),
    Move("approve", ("held",), "approved", by=("operator",),
         attempt="renew", run_at="now", unstamp=("finished_at",)),
    Move("pay", TO_DO, "paid", by=("worker",), when=(holds_claim,),
         claim="drop", result="record", stamp=("finished_at",)),
    Move("fail", TO_DO, "failed", by=("worker",), when=(holds_claim,),
         claim="drop", error="record", stamp=("finished_at",)),
    Move("recover", TO_DO, STAY, by=("clock",), when=(lease_over,),
         claim="drop", run_at="now", stage="recover"),
    Move("attempt_cap", TO_DO, "failed", by=("clock",), when=(unclaimed, budget_spent),
         error=GAVE_UP, stamp=("finished_at",), stage="cap"),
)
# fmt: on
errors = Taxonomy(
    channels=("worker",),
    rules=same_everywhere(("worker",), dict.fromkeys(Category, Verdict.FAIL)),
    moves=((Verdict.FAIL, "fail"), (Verdict.COMPLETE, "pay")),
)
refund = Lifecycle("refund", states, moves, errors, max_attempts=3)
print(prove(refund))


def pay(job: Job) -> Done | Act:
    """Pay small ones at once; large ones once somebody approved."""
    if job.data["lira"] > LARGE and job.state != "approved":
        return Act("hold", note={"why": f"more than {LARGE} lira"})
    return Done({"paid": job.data["lira"]})


refunds = Queue("refunds", refund, open_store(":memory:"))
refunds.enqueue({"lira": 80})
large = refunds.enqueue({"lira": 4_500}).id
Worker(refunds, pay).drain()
print(refunds.stats().states)
refunds.act("approve", actor="ayse", ids=[large], reason="the goods came back")
Worker(refunds, pay).drain()
print([event.move for event in refunds.events(large)])
