"""Time: it comes from the caller, and never runs backward for a job.

``test_words`` tries every effect under a clock that was set back, ``test_histories`` every call.
"""

from __future__ import annotations

from kesin.engine.replay import verify
from kesin.lifecycle.model import Change
from tests.store.scene import HOUR, LEASE_S, MINUTE, NOW, SECOND, error

TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")


def test_without_a_time_the_clock_of_the_machine_decides(task):
    (outcome,) = task.store.enqueue("task", [task.new()], actor="p")
    assert task.job(outcome.id).created_at > NOW


def test_a_time_the_caller_gives_is_taken_as_it_is(optiplan):
    job = optiplan.claim_new_job()
    optiplan.move("prepare", job)
    optiplan.move("import", job)
    optiplan.clock.advance(-7_200)
    assert optiplan.move("wait", job, run_at=NOW - HOUR).run_at == NOW - HOUR


def test_every_retry_waits_as_long_as_the_model_says(oci):
    job = oci.create_job(max_attempts=12)
    waits = []
    for _ in range(12):
        (held,) = oci.claim()
        expected = oci.modelled(oci.declared("retry_later"), held, Change(held.id, **TRANSIENT))
        assert oci.move("retry_later", held, **TRANSIENT) == expected
        waits.append((expected.run_at - oci.now) // MINUTE)
        oci.clock.time_us = expected.run_at
    assert waits[:3] == [5, 10, 20]
    assert waits[-1] == 24 * 60
    assert oci.job(job).attempt_count == 12


def test_a_jump_back_ends_no_lease_and_does_not_shorten_it(oci):
    job = oci.claim_new_job()
    oci.clock.time_us = job.lease_until
    oci.create_job()
    oci.clock.advance(-1)
    assert oci.sweep("recover", to="RETRY") == 0, "by the clock at hand, not by the last move"
    oci.clock.advance(-3_600)
    oci.store.renew("oci", [(job.id, job.claim_seq)], lease_us=LEASE_S * SECOND, now=oci.now)
    assert oci.job(job).lease_until == job.lease_until


def test_replay_knows_payloads_that_were_replaced_twice_and_passes_over_pruned_jobs_and_other_queues(oci, task):
    job = oci.create_job(payload='{"v":1}')
    for version in (2, 3):
        oci.move("reject", job, **error("BAD", "VALIDATION"))
        oci.move("correct", job, payload=f'{{"v":{version}}}', role="producer", actor="p")
    assert [event.old_payload for event in oci.events(job) if event.payload] == ['{"v":1}', '{"v":2}']
    oci.claim(1)
    oci.move("ack", oci.claim_new_job())
    task.claim_new_job()
    oci.clock.advance(91 * 86_400)
    oci.sweep("prune", source="COMPLETED")
    verified = verify(oci.store, "oci")
    assert (verified.jobs, verified.events, verified.differences) == (1, 6, [])
