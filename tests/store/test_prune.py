"""Pruning: nothing is left of a job but its counts."""

from __future__ import annotations

from kesin.foundation.ids import first_id_at
from kesin.lifecycle.task import task_lifecycle
from kesin.store.records import MoveCount
from kesin.store.sql.statements import Statements
from kesin.store.sqlite.connections import SQLITE
from tests.store.scene import NOW, count_rows, error


def test_a_prune_leaves_nothing_of_its_jobs_but_their_counts(oci):
    job, other = oci.claim_new_jobs(2, tenant="a")
    oci.apply("ack", [job, other])
    oci.store.add_note("oci", kind="remark", actor="op", job_id=job.id, now=NOW)
    before = oci.store.move_counts("oci")
    oci.clock.advance(91 * 86_400)
    assert oci.sweep("prune", source="COMPLETED") == 2
    assert count_rows(oci.store).keys() <= {"flow", "flow_at"}
    assert (oci.store.job(job.id), oci.events(job), oci.notes(job)) == (None, [], [])
    assert oci.counts() == {}
    counts = oci.store.move_counts("oci")
    assert [count for count in counts if count.move != "prune"] == before
    assert MoveCount("a", "prune", "COMPLETED", "", 2, NOW) in counts
    assert oci.apply_one("ack", job.id).result == "unknown"


def test_a_prune_leaves_the_neighbours_whole_and_each_end_for_its_own_time(oci):
    done, held, failed = oci.claim_new_jobs(3)
    oci.move("ack", done)
    failed = oci.move("ack_failed", failed, **error("BAD", "AUTH"))
    oci.clock.advance(91 * 86_400)
    oci.store.add_note("oci", kind="remark", actor="op", job_id=held.id, now=oci.now)
    assert oci.sweep("prune", source="COMPLETED") == 1
    assert oci.sweep("prune", source="FAILED") == 0
    assert (oci.job(held), oci.job(failed)) == (held, failed)
    assert (len(oci.events(held)), len(oci.notes(held))) == (2, 1)
    assert oci.counts() == {"PROCESSING": 1, "FAILED": 1}


def test_a_prune_reads_no_job_that_was_created_after_its_limit():
    """At ten million jobs, those of a day more cost hundreds of times what a prune does."""
    lifecycle = task_lifecycle()
    statements = Statements("task", lifecycle, SQLITE, "")
    prune = next(move for move in lifecycle.scheduled_moves if move.prunes)
    age_s = prune.guard("age_over").number
    second = 1_000_000
    assert statements.sweep_before(prune, NOW) == first_id_at(NOW - (age_s - 1) * second)


def test_a_job_is_pruned_as_soon_as_it_is_old_enough(oci):
    done = oci.claim_new_jobs(1)[0]
    oci.move("ack", done)
    oci.clock.advance(90 * 86_400 - 1)
    assert oci.sweep("prune", source="COMPLETED") == 0
    oci.clock.advance(1)
    assert oci.sweep("prune", source="COMPLETED") == 1
