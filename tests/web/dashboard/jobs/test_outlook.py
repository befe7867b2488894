"""The next thing that happens to a job is read from its lifecycle."""

from collections.abc import Iterator

import pytest

from kesin.engine.queue import Queue, apply_changes
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.task import task_lifecycle
from kesin.store.records import Pause
from kesin.web.dashboard.jobs.page import Outlook, outlook
from tests.web.conftest import World
from tests.workloads.optiplan.orders_ready import held_order


@pytest.fixture
def world(shared_world: World) -> Iterator[World]:
    """One for all of them: each looks at a job of its own, and takes its pauses back."""
    yield shared_world
    for one in shared_world.store.paused("task"):
        shared_world.task.resume(tenant=one.tenant)


def outlook_of(world: World, job_id: str) -> Outlook:
    job = world.found(job_id)
    queue = world.service.queues[job.queue]
    pauses = queue.store.paused(queue.name)
    return outlook(queue.lifecycle, job, queue.now(), pauses)


def claimed(world: World) -> Job:
    [job] = world.task.claim("one", ids=[world.job()])
    return job


def test_a_job_that_is_due_waits_for_a_worker(world):
    expected = outlook_of(world, world.job()).next
    assert (expected.kind, expected.to) == ("claim", "running")
    assert expected.at is not None
    assert expected.at <= world.task.now()


def test_a_job_for_later_says_when(world):
    later = world.task.now() + 3_600 * SECOND_US
    expected = outlook_of(world, world.job(run_at=later)).next
    assert (expected.kind, expected.at) == ("claim", later)


def test_a_claimed_job_waits_for_its_worker_until_the_lease_ends(world):
    job = claimed(world)
    expected = outlook_of(world, job.id)
    assert (expected.next.kind, expected.next.at) == ("answer", job.lease_until)
    [otherwise] = expected.otherwise
    assert (otherwise.kind, otherwise.to, otherwise.at) == ("clock", "ready", job.lease_until)


def test_the_last_attempt_ends_in_failure_when_its_worker_is_lost(world):
    [job] = world.task.claim("one", ids=[world.job(max_attempts=1)])
    [otherwise] = outlook_of(world, job.id).otherwise
    assert otherwise.to == "failed"


def test_a_failed_job_waits_for_a_person_and_is_removed_if_nobody_comes(world):
    expected = outlook_of(world, world.failed())
    assert expected.next.kind == "person"
    [otherwise] = expected.otherwise
    assert otherwise.kind == "gone"
    assert otherwise.at is not None
    assert otherwise.at > world.task.now() + DAY_S * SECOND_US


def test_an_order_on_hold_waits_for_a_person_though_only_its_workload_lets_one_act(world):
    assert outlook_of(world, held_order(world.service)).next.kind == "person"


def test_a_job_that_is_done_is_kept_for_a_while(world):
    job = claimed(world)
    apply_changes(world.task, "complete", [Change(job.id, job.claim_seq)], actor="one")
    expected = outlook_of(world, job.id).next
    assert expected.kind == "gone"
    assert expected.at is not None


@pytest.mark.parametrize("tenant", ["", "north"])
def test_a_paused_queue_or_site_hands_nothing_out(tenant, world):
    job_id, job = world.job("north"), claimed(world)
    world.task.pause(actor="user:ayse", tenant=tenant, reason="the network is down")
    next_step = outlook_of(world, job_id).next
    assert next_step.kind == "paused"
    assert isinstance(next_step.pause, Pause)
    assert next_step.pause.reason == "the network is down"
    assert outlook_of(world, job.id).next.kind == "answer"  # a worker goes on with what it has


def test_the_pause_of_another_site_changes_nothing(world):
    job_id = world.job("north")
    world.task.pause(actor="user:ayse", tenant="south")
    assert outlook_of(world, job_id).next.kind == "claim"


def test_a_made_pdf_expires(world):
    job_id = world.job("somebody", queue="pdf")
    queue = world.service.queues["pdf"]
    [job] = queue.claim("one", ids=[job_id])
    apply_changes(queue, "succeed", [Change(job.id, job.claim_seq, result="{}")], actor="one")
    expected = outlook_of(world, job_id).next
    assert (expected.kind, expected.to) == ("clock", "expired")
    assert expected.at is not None
    assert expected.at > queue.now()


def test_a_job_that_comes_after_others_waits_for_them_and_not_for_a_person(world):
    lifecycle = task_lifecycle("steps", parents=True)
    queue = Queue("steps", lifecycle, world.store, clock=world.clock)
    job = world.found(queue.enqueue(2, after=[queue.enqueue(1).id]).id)
    assert outlook(lifecycle, job, queue.now()).next.kind == "parents"


def test_a_due_job_waits_for_a_slot_of_a_full_state(world):
    lifecycle = task_lifecycle(concurrency=3)
    job, now = world.found(world.job()), world.task.now()
    expected = outlook(lifecycle, job, now, full=["running"]).next
    assert (expected.kind, expected.to, expected.slots) == ("slots", "running", 3)
    assert outlook(lifecycle, job, now, full=["done"]).next.kind == "claim"
    later = job._replace(run_at=now + SECOND_US)
    assert outlook(lifecycle, later, now, full=["running"]).next.kind == "claim"
