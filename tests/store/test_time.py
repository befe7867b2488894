"""Time: it comes from the call, and never runs backward for a job."""

from __future__ import annotations

import random

import pytest

from kesin.engine.replay import verify
from kesin.lifecycle.model import Change
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.store.scene import DAY, HOUR, LEASE_S, MINUTE, NOW, OPERATOR, SECOND, error
from tests.store.traffic import traffic

TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")


def test_every_move_happens_at_the_time_of_its_call(task):
    job = task.create_job()
    task.clock.advance(1)
    task.claim()
    task.clock.advance(1)
    task.move("fail", Change(job, 2), **error())
    assert [event.at for event in task.events(job)] == [NOW, NOW + SECOND, NOW + 2 * SECOND]


def test_without_a_time_the_clock_of_the_machine_decides(task):
    (outcome,) = task.store.enqueue("task", [task.new()], actor="p")
    assert task.job(outcome.id).created_at > NOW


def test_a_claim_after_a_jump_back_happens_at_the_jobs_last_move(task):
    task.create_job(run_at=NOW - DAY)
    task.clock.advance(-3_600)
    (job,) = task.claim()
    assert (job.moved_at, job.claimed_at, job.lease_until) == (NOW, NOW, NOW + LEASE_S * SECOND)


def test_a_finish_after_a_jump_back_is_stamped_with_the_jobs_last_move(task):
    job = task.claim_new_job()
    task.clock.advance(-3_600)
    done = task.move("complete", job)
    assert (done.moved_at, done.finished_at) == (NOW, NOW)


def test_a_retry_after_a_jump_back_waits_from_the_jobs_last_move(oci):
    job = oci.claim_new_job()
    oci.clock.advance(-3_600)
    expected = oci.modelled(oci.declared("retry_later"), job, Change(job.id, **TRANSIENT))
    assert oci.move("retry_later", job, **TRANSIENT) == expected
    assert expected.run_at >= NOW + 300 * SECOND


def test_a_timer_after_a_jump_back_runs_from_the_jobs_last_move(oci):
    job = oci.claim_new_job()
    oci.clock.advance(-3_600)
    assert oci.move("ack_failed", job, **TRANSIENT).timer_at >= NOW + 300 * SECOND


def test_a_deadline_after_a_jump_back_runs_from_the_jobs_last_move(optiplan):
    job = optiplan.claim_new_job()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    optiplan.clock.advance(-3_600)
    assert optiplan.move("run", job).timer_at == NOW + 20 * MINUTE


def test_a_release_after_a_jump_back_is_due_at_the_jobs_last_move(task):
    job = task.claim_new_job()
    task.clock.advance(-3_600)
    assert task.move("release", job).run_at == NOW


def test_a_sweep_after_a_jump_back_happens_at_the_jobs_last_move(oci):
    job = oci.move("retry_later", oci.claim_new_job(max_attempts=1), **TRANSIENT)
    oci.clock.advance(-3_600)
    oci.sweep("attempt_cap", source="QUEUED")
    capped = oci.job(job)
    assert (capped.moved_at, capped.finished_at) == (NOW, NOW)


def test_a_chain_after_a_jump_back_happens_at_the_jobs_last_move(pdf):
    job = pdf.claim_new_job()
    pdf.clock.advance(-3_600)
    after = pdf.move("fail", job, **error("NAVIGATION_TIMEOUT"))
    assert (after.moved_at, after.run_at) == (NOW, NOW)


def test_a_lease_is_judged_by_the_clock_at_hand_not_by_the_last_move(oci):
    job = oci.claim_new_job()
    oci.clock.time_us = job.lease_until
    oci.create_job()
    oci.clock.advance(-1)
    assert oci.sweep("recover", to="RETRY") == 0


def test_a_jump_back_does_not_shorten_a_lease(task):
    job = task.claim_new_job()
    task.clock.advance(-3_600)
    task.store.renew("task", [(job.id, job.claim_seq)], lease_us=LEASE_S * SECOND, now=task.now)
    assert task.job(job).lease_until == job.lease_until


def test_a_time_the_caller_gives_is_taken_as_it_is(optiplan):
    job = optiplan.claim_new_job()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    optiplan.clock.advance(-7_200)
    assert optiplan.move("wait", job, run_at=NOW - HOUR).run_at == NOW - HOUR


def test_times_never_fall_in_a_history_under_a_wandering_clock(oci):
    chance = random.Random(1)
    job = oci.create_job(run_at=0)
    for _ in range(30):
        oci.clock.time_us = NOW + chance.randrange(-DAY, DAY)
        for held in oci.claim():
            oci.clock.time_us = NOW + chance.randrange(-DAY, DAY)
            oci.move("release" if held.return_count < 2 else "ack_failed", held, **TRANSIENT)
        oci.clock.time_us = NOW + chance.randrange(-DAY, DAY)
        oci.move("RESET_TO_QUEUED", job, **OPERATOR)
    times = [event.at for event in oci.events(job)]
    assert len(times) > 30
    assert times == sorted(times)


# Replay


@pytest.mark.parametrize(
    "lifecycle", [oci_lifecycle(), pdf_lifecycle(), optiplan_lifecycle()], ids=lambda one: one.name
)
def test_random_traffic_under_a_jumping_clock_replays_exactly(open_queue, lifecycle):
    scene = open_queue(lifecycle)
    traffic(scene, random.Random(7), steps=150, jumps=True)
    verified = verify(scene.store, scene.queue)
    assert verified.jobs > 20
    assert verified.events > 100
    assert verified.differences == []


def test_replay_is_empty_after_a_payload_was_replaced_twice(oci):
    job = oci.create_job(payload='{"v":1}')
    for version in (2, 3):
        oci.move("reject", job, **error("BAD", "VALIDATION"))
        oci.move("correct", job, payload=f'{{"v":{version}}}', role="producer", actor="p")
    assert verify(oci.store, "oci").differences == []
    assert [event.old_payload for event in oci.events(job) if event.payload] == [
        '{"v":1}',
        '{"v":2}',
    ]


def test_replay_counts_jobs_and_events(task):
    task.claim_new_jobs(3)
    verified = verify(task.store, "task")
    assert (verified.jobs, verified.events) == (3, 6)


def test_replay_passes_over_pruned_jobs_and_other_queues(oci, task):
    oci.move("ack", oci.claim_new_job())
    oci.claim_new_job()
    task.claim_new_job()
    oci.clock.advance(91 * 86_400)
    oci.sweep("prune", source="COMPLETED")
    verified = verify(oci.store, "oci")
    assert (verified.jobs, verified.events, verified.differences) == (1, 2, [])
