"""A job that waits for a file: it drops its claim, checks again later, and has a deadline."""

import tempfile
from pathlib import Path

from kesin import (
    STAY,
    After,
    Category,
    Done,
    Fixed,
    Job,
    Lifecycle,
    ManualClock,
    Move,
    Queue,
    State,
    Sweeper,
    Taxonomy,
    Verdict,
    Wait,
    Worker,
    budget_left,
    budget_spent,
    due,
    holds_claim,
    lease_over,
    open_store,
    same_everywhere,
    set_up_logs,
    timer_not_over,
    timer_over,
    unclaimed,
)

LATE = Fixed("NO_FILE", Category.TRANSIENT, "no file arrived within ten minutes")
GAVE_UP = Fixed("MAX_ATTEMPTS", Category.PERMANENT, "all attempts were used")
BOTH = ("new", "waiting")

states = (
    State("new", initial=True),
    State("waiting"),
    State("done", terminal=True, success=True),
    State("failed", resting=True),
)
# fmt: off
moves = (
    Move("enqueue", (), "new", by=("producer",), run_at="input"),
    Move("claim", ("new",), STAY, by=("worker",), when=(due, unclaimed, budget_left),
         claim="take", attempt="count"),
    Move("claim", ("waiting",), STAY, by=("worker",), when=(due, unclaimed, timer_not_over),
         claim="take"),  # a check: it uses no attempt, and the timer limits the wait
    Move("wait", ("new",), "waiting", by=("worker",), when=(holds_claim,),
         claim="drop", run_at="input", timer=After(600)),  # the first wait sets the deadline
    Move("wait", ("waiting",), STAY, by=("worker",), when=(holds_claim,),
         claim="drop", run_at="input"),
    Move("complete", BOTH, "done", by=("worker",), when=(holds_claim,),
         claim="drop", timer="clear", result="record", stamp=("finished_at",)),
    Move("fail", BOTH, "failed", by=("worker",), when=(holds_claim,),
         claim="drop", timer="clear", error="record", stamp=("finished_at",)),
    Move("late", ("waiting",), "failed", by=("clock",), when=(unclaimed, timer_over),
         timer="clear", error=LATE, stamp=("finished_at",), stage="timeout"),
    Move("recover", BOTH, STAY, by=("clock",), when=(lease_over,),
         claim="drop", run_at="now", stage="recover"),
    Move("attempt_cap", ("new",), "failed", by=("clock",), when=(unclaimed, budget_spent),
         error=GAVE_UP, stamp=("finished_at",), stage="cap"),
)
# fmt: on
errors = Taxonomy(
    channels=("worker",),
    rules=same_everywhere(("worker",), dict.fromkeys(Category, Verdict.FAIL)),
    moves=((Verdict.FAIL, "fail"), (Verdict.COMPLETE, "complete")),
)


def fetch(job: Job) -> Done | Wait:
    """Return when to check again instead of sleeping, so the worker can run other jobs."""
    file = Path(job.payload)
    return Done({"bytes": file.stat().st_size}) if file.exists() else Wait(seconds=60)


set_up_logs()  # logs warnings to standard error
clock = ManualClock()
pickups = Queue(
    "pickups", Lifecycle("pickup", states, moves, errors), open_store(":memory:"), clock=clock
)
with tempfile.TemporaryDirectory() as folder:
    ids = [pickups.enqueue(f"{folder}/{name}").id for name in ("arrives", "missing")]
    for minute in range(12):
        if minute == 2:
            Path(folder, "arrives").write_text("content")
        Worker(pickups, fetch).drain()
        Sweeper([pickups]).sweep()
        clock.advance(60)
for job in filter(None, map(pickups.job, ids)):
    waits = sum(event.move == "wait" for event in pickups.events(job.id))
    print(f"{job.state} after {waits} waits and {job.attempt_count} attempt:", end=" ")
    print(job.result or job.error_message)
