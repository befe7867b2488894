"""Pruning: nothing is left of a job but its counts."""

from __future__ import annotations

from kesin.store.records import MoveCount
from tests.store.scene import NOW, count_rows, error


def test_a_prune_leaves_no_trace_of_the_job(oci):
    job = oci.move("ack", oci.claim_new_job(key="k"))
    oci.store.add_note("oci", kind="remark", actor="op", job_id=job.id, now=NOW)
    oci.clock.advance(91 * 86_400)
    oci.sweep("prune", source="COMPLETED")
    assert count_rows(oci.store).keys() <= {"flow", "flow_at"}
    assert (oci.store.job(job.id), oci.events(job), oci.notes(job)) == (None, [], [])


def test_a_prune_leaves_a_tombstone_count(oci):
    oci.apply("ack", oci.claim_new_jobs(3, tenant="a"))
    oci.clock.advance(91 * 86_400)
    oci.sweep("prune", source="COMPLETED")
    assert MoveCount("a", "prune", "COMPLETED", "", 3, NOW) in oci.store.move_counts("oci")


def test_a_prune_leaves_all_other_counts_as_they_were(oci):
    oci.apply("ack", oci.claim_new_jobs(3))
    before = oci.store.move_counts("oci")
    oci.clock.advance(91 * 86_400)
    oci.sweep("prune", source="COMPLETED")
    assert [count for count in oci.store.move_counts("oci") if count.move != "prune"] == before


def test_a_pruned_job_is_no_longer_counted(oci):
    oci.apply("ack", oci.claim_new_jobs(3))
    oci.create_job()
    oci.clock.advance(91 * 86_400)
    oci.sweep("prune", source="COMPLETED")
    assert oci.counts() == {"QUEUED": 1}


def test_a_prune_leaves_the_neighbours_whole(oci):
    first, second = oci.claim_new_jobs(2)
    oci.move("ack", first)
    oci.clock.advance(91 * 86_400)
    oci.store.add_note("oci", kind="remark", actor="op", job_id=second.id, now=oci.now)
    oci.sweep("prune", source="COMPLETED")
    assert oci.job(second) == second
    assert (len(oci.events(second)), len(oci.notes(second))) == (2, 1)


def test_completed_and_failed_jobs_are_kept_for_their_own_time(oci):
    oci.move("ack", oci.claim_new_job())
    failed = oci.move("ack_failed", oci.claim_new_job(), **error("BAD", "AUTH"))
    oci.clock.advance(91 * 86_400)
    assert oci.sweep("prune", source="COMPLETED") == 1
    assert oci.sweep("prune", source="FAILED") == 0
    assert oci.job(failed) == failed


def test_an_acknowledgement_of_a_pruned_job_is_unknown(oci):
    job = oci.move("ack", oci.claim_new_job())
    oci.clock.advance(91 * 86_400)
    oci.sweep("prune", source="COMPLETED")
    assert oci.apply_one("ack", job.id).result == "unknown"
