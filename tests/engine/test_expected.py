"""What a call should have changed, where it is easily misjudged."""

from contextlib import closing

from kesin import New, Queue
from kesin.engine.simulation.checker import Witness
from kesin.foundation.clock import ManualClock
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle


def test_who_wakes_in_a_slot_has_not_left_it():
    """One order runs and is looked at again; an older one waits for the slot, unclaimed."""
    clock = ManualClock()
    with closing(SqliteStore(":memory:")) as store:
        queue = Queue("orders", optiplan_lifecycle(), store, clock=clock, seed=1)
        waits, runs = (one.id for one in queue.enqueue_many([New({}), New({})]))
        for one in queue.claim("first", limit=2):
            queue.move(one, "prepare")
            queue.move(one, "import")
            if one.id == runs:
                queue.move(one, "run")
                clock.advance(1)
                queue.move(one, "wait", run_in_s=0)
            else:
                queue.move(one, "wait", run_in_s=0)
        witness = Witness("orders", queue.lifecycle, store, None)
        witness.rows = {job.id: job for job in store.find("orders", [waits, runs]).values()}
        witness.history = {one: store.events(one) for one in (waits, runs)}
        clock.advance(2)
        told = {"worker": "again", "limit": 2, "lease_us": 60_000_000, "now": clock.time_us}
        claimed = store.claim("orders", **told)
        assert [job.id for job in claimed] == [runs]
        witness.look("claim", ("orders",), told, claimed)
        assert witness.broken is None
