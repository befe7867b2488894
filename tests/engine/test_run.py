"""The RunContext of a handler: actions while it works, and a lost lease."""

from typing import Any

from kesin import Done, Job, Queue, RunContext, StaleClaim, Sweeper, Wait, Worker
from kesin.foundation.clock import ManualClock
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from tests.engine.conftest import fill, only, states

# The second argument of a handler


def test_a_handler_may_take_the_run_as_its_second_argument(queue: Queue):
    runs: list[RunContext] = []

    def handler(_job: Job, run: RunContext) -> None:
        runs.append(run)
        assert not run.lost
        assert not run.stopping

    [job_id] = fill(queue, 1)
    Worker(queue, handler).drain()
    assert runs[0].job.id == job_id

    def alone(job: Job, again: object = None) -> None:
        assert again is None, "an optional second argument is none"

    fill(queue, 1)
    Worker(queue, alone).drain()
    assert states(queue) == {"done": 2}


def test_moves_of_a_handler_are_made_under_its_claim(store: SqliteStore, clock: ManualClock):
    orders = Queue("orders", optiplan_lifecycle(), store, clock=clock)

    def handler(_job: Job, run: RunContext) -> Done:
        for action in ("prepare", "import", "run", "collect", "validate", "deliver"):
            assert run.move(action, note={"step": action}).result == "moved"
        return Done({"plates": 3})

    orders.enqueue({})
    Worker(orders, handler, name="runner").drain()
    job = only(orders)
    assert (job.state, job.result_json, job.attempt_count) == ("DONE", '{"plates":3}', 1)
    steps = orders.events(job.id)[2:-1]
    assert {event.worker for event in steps} == {"runner"}
    assert steps[0].note == '{"step":"prepare"}'


def test_a_busy_exclusive_state_is_a_result_and_not_an_exception(store: SqliteStore, clock: ManualClock):
    orders = Queue("orders", optiplan_lifecycle(), store, clock=clock)
    seen: list[str] = []

    def handler(_job: Job, run: RunContext) -> Any:
        run.move("prepare")
        run.move("import")
        seen.append(run.move("run").result)
        return Wait(30)

    orders.enqueue({})
    orders.enqueue({})
    Worker(orders, handler).drain()
    assert seen == ["moved", "busy"]
    assert states(orders) == {"OPTI_IMPORTED": 1, "OPTI_RUNNING": 1}


# Losing the lease


def steal(queue: Queue, clock: ManualClock) -> Job:
    """Let the lease run out and let another worker claim the job."""
    clock.advance(queue.lifecycle.lease_seconds + 1)
    assert Sweeper([queue]).sweep(("recover",)).total == 1
    [job] = queue.claim("thief")
    return job


def test_after_a_lost_lease_the_finish_is_refused_as_stale_and_noted(queue: Queue, clock: ManualClock):
    lost: list[bool] = []

    def handler(_job: Job, run: RunContext) -> Done:
        stolen = steal(queue, clock)
        lost.append(run.lost)
        worker.leases.renew()
        lost.append(run.lost)
        assert stolen.worker == "thief"
        return Done("too late")

    [job_id] = fill(queue, 1)
    worker = Worker(queue, handler, name="slow")
    worker.drain()
    assert lost == [False, True]
    job = only(queue)
    assert (job.state, job.worker, job.result_json) == ("running", "thief", None)
    [note] = queue.notes(job_id)
    assert (note.kind, note.actor, note.details) == ("stale", "slow", "complete")
    assert worker.completed == 0
    assert worker.leases.held() == []


def test_a_move_under_a_lost_claim_raises_stale_claim(store: SqliteStore, clock: ManualClock):
    orders = Queue("orders", optiplan_lifecycle(), store, clock=clock)
    problems: list[str] = []

    def handler(_job: Job, run: RunContext) -> Any:
        steal(orders, clock)
        try:
            run.move("prepare")
        except StaleClaim as problem:
            problems.append(str(problem))
            raise

    orders.enqueue({})
    Worker(orders, handler).drain()
    [problem] = problems
    assert "prepare" in problem
    assert only(orders).worker == "thief"


def test_a_lost_run_stays_lost_when_the_same_worker_claims_the_job_again(queue: Queue, clock: ManualClock):
    lost: list[bool] = []

    def handler(_job: Job, run: RunContext) -> None:
        clock.advance(queue.lifecycle.lease_seconds + 1)
        Sweeper([queue]).sweep(("recover",))
        worker.leases.renew()
        lost.append(run.lost)
        worker.leases.take(queue.claim(worker.name))  # as another thread does
        lost.append(run.lost)

    fill(queue, 1)
    worker = Worker(queue, handler, name="w")
    worker.drain()
    assert lost == [True, True]
