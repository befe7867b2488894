"""A handler for a batch of jobs, with a result for each: one request instead of hundreds."""

from collections.abc import Sequence

from kesin import Category, Done, Failed, Job, NewJob, Queue, Worker, open_store, task_lifecycle

points = Queue("points", task_lifecycle(), open_store(":memory:"))
known = {f"customer-{n}" for n in range(290)}  # the receiver's customers


def upload(jobs: Sequence[Job]) -> list[Done | Failed]:
    """Send a whole batch; return the results in the order of the jobs."""
    print(f"one request with {len(jobs)} rows")
    return [
        Done()
        if job.payload["customer"] in known
        else Failed("UNKNOWN_CUSTOMER", category=Category.VALIDATION)
        for job in jobs
    ]


points.enqueue_many(NewJob({"customer": f"customer-{n}", "points": 10}) for n in range(300))
Worker(points, batch_handler=upload, batch=100).drain()
print(points.stats().states)
