"""The oracle in cases that are easily misjudged."""

from contextlib import closing
from typing import Any

from kesin import Queue
from kesin.engine.simulation.checker import StoreChecker
from kesin.foundation.clock import ManualClock
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle


def test_a_job_that_wakes_in_its_slot_has_not_left_it():
    """An order runs and wakes again; an older order waits for the slot, unclaimed."""
    clock = ManualClock()
    with closing(SqliteStore(":memory:")) as store:
        queue = Queue("orders", optiplan_lifecycle(), store, clock=clock, seed=1)
        waits, runs = (queue.enqueue({}).id for _ in range(2))
        for job in queue.claim("first", limit=2):
            queue.move(job, "prepare")
            queue.move(job, "import")
            if job.id == runs:
                queue.move(job, "run")
                clock.advance(1)
                queue.move(job, "wait", run_in_s=0)
            else:
                queue.move(job, "wait", run_in_s=0)
        checker = StoreChecker("orders", queue.lifecycle, store, None)
        checker.rows = {job.id: job for job in store.find("orders", [waits, runs]).values()}
        checker.history = {job_id: store.events(job_id) for job_id in (waits, runs)}
        clock.advance(2)
        arguments: dict[str, Any] = {"worker": "again", "limit": 2, "lease_us": 60_000_000}
        arguments["now"] = clock.time_us
        claimed = store.claim("orders", **arguments)
        assert [job.id for job in claimed] == [runs]
        checker.check(("claim", ("orders",), arguments, claimed))
        assert checker.violation is None
