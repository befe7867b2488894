"""The line is cut at every exchange of every call, before it arrives and after it was carried out.

Whoever calls learns only that the store is not reachable, and asks again: what was done is not done
twice, what was not done is done then, and there is nothing in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kesin.engine.bulk import BulkResult
from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue, apply_changes
from kesin.engine.results import Failed
from kesin.engine.worker import Worker
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Change, Job
from kesin.store.errors import StoreUnreachable
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.faults.promise import check_promise
from tests.faults.proxy import How
from tests.faults.wires import LEASE_S, TASK, Wire, held, until_back

CUTS: tuple[How, ...] = ("cut_before", "cut_after")
FAILED = {"error_code": "BROWSER_LAUNCH_FAILED", "error_category": "TRANSIENT"}


@dataclass(frozen=True)
class Call:
    """What is asked of a queue for one job, and how the answers of two askings look."""

    ask: Callable[[Queue, Any], Any]
    prepare: Callable[[Queue], Any] = lambda _: None
    first: Any = "moved"  # answered if it had not been done
    again: Any = "already"  # if it had
    done: Callable[[Queue, Any], bool] = lambda queue, held: queue.job(held.id).seq != held.seq
    lifecycle: Lifecycle = TASK
    alone: bool = False  # it takes a key, or counts: each time in a queue of its own


def over(queue: Queue) -> Job:
    """A claim whose lease has run out."""
    job = held(queue)
    queue.clock.advance(2 * LEASE_S)  # type: ignore[attr-defined]
    return job


def move(name: str, **details: Any) -> Callable[[Queue, Job], str]:
    def ask(queue: Queue, job: Job) -> str:
        change = Change(job.id, job.claim_seq, **details)
        return apply_changes(queue, name, [change], actor=job.worker or "")[0].result

    return ask


def born(jobs: int) -> Callable[[Queue, Any], bool]:
    """All of them or none."""

    def done(queue: Queue, _: Any) -> bool:
        count = len(queue.jobs().jobs)
        assert count in (0, jobs)
        return count > 0

    return done


def sweep(queue: Queue, _: Job) -> int:
    [move] = [one for one in queue.lifecycle.scheduled_moves if (one.name, one.to) == ("recover", "ready")]
    return queue.sweep(move, limit=10)


def finish_and_follow(queue: Queue, job: Job) -> str:
    """As a workload hands work on: one is finished and the next is born, together."""
    with queue.store.transaction():
        queue.enqueue({}, key="next")
        return move("complete", result="1")(queue, job)


def ready(queue: Queue) -> Job:
    job = queue.job(queue.enqueue({}).id)
    assert job is not None
    return job


def cancel(queue: Queue, job: Job) -> tuple[int, int]:
    """As an operator does: what was done is written down with it."""

    def in_transaction(_: BulkResult) -> None:
        queue.store.add_note(queue.name, kind="audit", actor="me", job_id=job.id)

    bulk = queue.act("cancel", actor="me", ids=[job.id], in_transaction=in_transaction)
    return bulk.moved, bulk.already


def cancelled(queue: Queue, job: Job) -> bool:
    found = queue.job(job.id)
    assert found is not None
    assert bool(queue.notes(job.id)) == (found.state == "failed")
    return found.state == "failed"


CALLS = {
    "enqueue": Call(
        lambda queue, _: queue.enqueue({}, key="k").result,
        first="inserted",
        again="duplicate",
        done=born(1),
        alone=True,
    ),
    "enqueue many": Call(
        lambda queue, _: {one.result for one in queue.enqueue_many(NewJob({}, key=k) for k in "abc")},
        first={"inserted"},
        again={"duplicate"},
        done=born(3),
        alone=True,
    ),
    "complete": Call(move("complete", result="1"), held),
    "retry": Call(move("retry", error_code="X", error_category="TRANSIENT"), held),
    "release": Call(move("release"), held),
    "chain": Call(move("fail", **FAILED), held, lifecycle=pdf_lifecycle()),
    "sweep": Call(sweep, over, first=1, again=0),
    "transaction": Call(finish_and_follow, held, alone=True),
    "act": Call(cancel, ready, first=(1, 0), again=(0, 1), done=cancelled),
}


SELDOM = {"enqueue many", "retry", "release"}  # like others, in one statement too
PARAMS = [pytest.param(name, marks=pytest.mark.long) if name in SELDOM else name for name in CALLS]


@pytest.fixture(params=PARAMS)
def call(request: pytest.FixtureRequest) -> Call:
    return CALLS[request.param]


def test_what_a_cut_leaves_in_doubt_is_settled_by_asking_again(wire: Wire, call: Call):
    near, far = wire.queues(call.lifecycle)
    thing = call.prepare(far)
    exchanges = wire.calls(lambda: call.ask(near, thing))
    for nth in range(1, exchanges + 1):
        for how in CUTS:
            if call.alone:
                near, far = wire.queues(call.lifecycle)
            thing = call.prepare(far)
            wire.proxy.fail(how, nth=nth)
            with pytest.raises(StoreUnreachable):
                call.ask(near, thing)
            assert wire.proxy.struck.is_set()
            wire.proxy.mend()
            done = (how, nth) == ("cut_after", exchanges)
            assert call.done(far, thing) == done, (how, nth, exchanges)
            assert until_back(lambda: call.ask(near, thing)) == (call.again if done else call.first)  # noqa: B023
            assert call.done(far, thing)
            assert call.ask(near, thing) == call.again
            check_promise(wire.far, far.name, call.lifecycle, (), at_rest=False)


def test_a_claim_whose_answer_was_lost_is_recovered_and_counts(wire: Wire):
    near, far = wire.queues()
    job_id = far.enqueue({}).id
    near.peek()  # its first turn is drawn: from now on a claim is one call
    wire.proxy.fail("cut_after")
    with pytest.raises(StoreUnreachable):
        near.claim("lost")
    wire.proxy.mend()
    assert until_back(lambda: near.claim("other")) == []
    assert far.job(job_id).worker == "lost"
    far.clock.advance(LEASE_S)  # type: ignore[attr-defined]
    assert sweep(near, far.job(job_id)) == 1  # type: ignore[arg-type]
    wire.proxy.fail("cut_before")
    with pytest.raises(StoreUnreachable):
        near.claim("early")
    wire.proxy.mend()
    [job] = until_back(lambda: near.claim("heir"))
    assert (job.id, job.attempt_count) == (job_id, 2)
    assert move("complete")(near, job) == "moved"
    check_promise(wire.far, far.name, TASK, [job_id])


@pytest.mark.parametrize("how", CUTS)
def test_a_renewal_that_is_asked_for_twice_keeps_the_claim(wire: Wire, how: How):
    near, far = wire.queues()
    job = held(far)
    far.clock.advance(LEASE_S / 2)  # type: ignore[attr-defined]
    wire.proxy.fail(how)
    with pytest.raises(StoreUnreachable):
        near.renew([job])
    wire.proxy.mend()
    lease_until = job.lease_until or 0
    renewed = far.job(job.id).lease_until or 0
    assert (renewed > lease_until) == (how == "cut_after")
    assert until_back(lambda: near.renew([job])) == {job.id}
    assert far.job(job.id).lease_until == lease_until + LEASE_S * 1_000_000 // 2
    assert move("complete")(near, job) == "moved"
    check_promise(wire.far, far.name, TASK, [job.id])


def test_a_worker_counts_what_it_wrote_and_was_not_answered_for(wire: Wire):
    """Whoever sends for workers goes by it: a job put back, and not told of, would wait in vain."""
    near, far = wire.queues()
    job_id = far.enqueue({}).id
    worker = Worker(near, lambda _: Failed("BUSY"))
    wire.proxy.fail("cut_after", nth=2)  # the claim is the first
    assert worker.work_on([job_id]) == {"ready": 1}
    assert wire.proxy.struck.is_set()
    check_promise(wire.far, far.name, TASK, [job_id], at_rest=False)
