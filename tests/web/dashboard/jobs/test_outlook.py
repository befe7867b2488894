"""The next thing that happens to a job is read from its lifecycle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.model import Change, Job
from kesin.store.records import Pause
from kesin.web.dashboard.jobs.outlook import Outlook, outlook
from tests.web.conftest import World


@pytest.fixture
def world(shared_world: World) -> Iterator[World]:
    """One for all of them: each looks at a job of its own, and takes its pauses back."""
    yield shared_world
    for one in shared_world.store.paused("task"):
        shared_world.task.resume(tenant=one.tenant)


def looked(world: World, job_id: str, **how: object) -> Outlook:
    job = world.found(job_id)
    queue = world.service.queues[job.queue]
    pauses = queue.store.paused(queue.name)
    return outlook(queue.lifecycle, job, queue.now(), pauses, acts=bool(how.get("acts")))


def claimed(world: World) -> Job:
    [job] = world.task.claim("one", ids=[world.job()])
    return job


def test_a_job_that_is_due_waits_for_a_worker(world):
    found = looked(world, world.job(), acts=True).next
    assert (found.kind, found.to) == ("claim", "running")
    assert found.at is not None
    assert found.at <= world.task.now()


def test_a_job_for_later_says_when(world):
    later = world.task.now() + 3_600 * SECOND_US
    found = looked(world, world.job(run_at=later)).next
    assert (found.kind, found.at) == ("claim", later)


def test_a_claimed_job_waits_for_its_worker_until_the_lease_ends(world):
    job = claimed(world)
    found = looked(world, job.id)
    assert (found.next.kind, found.next.at) == ("answer", job.lease_until)
    [otherwise] = found.otherwise
    assert (otherwise.kind, otherwise.to, otherwise.at) == ("clock", "ready", job.lease_until)


def test_the_last_attempt_ends_in_failure_when_its_worker_is_lost(world):
    [job] = world.task.claim("one", ids=[world.job(max_attempts=1)])
    [otherwise] = looked(world, job.id).otherwise
    assert otherwise.to == "failed"


def test_a_failed_job_waits_for_a_person_and_is_removed_if_nobody_comes(world):
    found = looked(world, world.failed(), acts=True)
    assert found.next.kind == "person"
    [otherwise] = found.otherwise
    assert otherwise.kind == "gone"
    assert otherwise.at is not None
    assert otherwise.at > world.task.now() + DAY_S * SECOND_US


def test_a_job_that_is_done_is_kept_for_a_while(world):
    job = claimed(world)
    world.task.apply("complete", [Change(job.id, job.claim_seq)], actor="one")
    found = looked(world, job.id, acts=False).next
    assert found.kind == "gone"
    assert found.at is not None


@pytest.mark.parametrize("tenant", ["", "north"])
def test_a_paused_queue_or_site_hands_nothing_out(tenant, world):
    job_id = world.job("north")
    world.task.pause(actor="user:ayse", tenant=tenant, reason="the network is down")
    found = looked(world, job_id).next
    assert found.kind == "paused"
    assert isinstance(found.pause, Pause)
    assert found.pause.reason == "the network is down"


def test_another_sites_pause_is_nothing_to_it(world):
    job_id = world.job("north")
    world.task.pause(actor="user:ayse", tenant="south")
    assert looked(world, job_id).next.kind == "claim"


def test_a_pause_does_not_stop_what_a_worker_has(world):
    job = claimed(world)
    world.task.pause(actor="user:ayse")
    assert looked(world, job.id).next.kind == "answer"


def test_a_made_pdf_expires(world):
    job_id = world.job("somebody", queue="pdf")
    queue = world.service.queues["pdf"]
    [job] = queue.claim("one", ids=[job_id])
    queue.apply("succeed", [Change(job.id, job.claim_seq, result="{}")], actor="one")
    found = looked(world, job_id).next
    assert (found.kind, found.to) == ("clock", "expired")
    assert found.at is not None
    assert found.at > queue.now()
