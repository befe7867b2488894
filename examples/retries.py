"""Failures: the code determines what happens, the budget how often, the backoff when."""

from kesin import (
    Backoff,
    Category,
    Failed,
    Job,
    ManualClock,
    Queue,
    Worker,
    open_store,
    task_lifecycle,
)

clock = ManualClock()  # does not move until `advance` is called
started = clock.now()
rules = task_lifecycle(max_attempts=3, backoff=Backoff((10, 60)))
calls = Queue("calls", rules, open_store(":memory:"), clock=clock)


def call(job: Job) -> None:
    """Fail in two ways: the first may work later, the second never will."""
    print(f"{(clock.now() - started) // 1_000_000:3} s  attempt {job.attempt_count}: {job.payload}")
    if job.payload == "the line is busy":
        raise Failed("BUSY", "the line is busy")  # an unknown code is TRANSIENT: retried
    raise Failed("NO_SUCH_NUMBER", "11 digits expected", category=Category.VALIDATION)


busy = calls.enqueue("the line is busy").id
wrong = calls.enqueue("the number is wrong").id
worker = Worker(calls, call)
worker.drain()
for pause_s in (9, 1, 60):  # nothing is due after 9 s; retries after 10 s and 60 s later
    clock.advance(pause_s)
    worker.drain()

for one in (busy, wrong):
    job = calls.job(one)
    if job:
        print(f"{job.state} after {job.attempt_count}: {job.error_code} ({job.error_category})")

calls.act("requeue", actor="ayse", ids=[busy], reason="they called back")
job = calls.job(busy)
print(f"requeued: {job.state}, {job.attempts_left} attempts left" if job else "gone")
