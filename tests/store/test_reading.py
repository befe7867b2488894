"""Reading: one job, pauses, and the store as a whole."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from kesin.lifecycle.task import task_lifecycle
from kesin.store.records import Note, Pause
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.store.scene import (
    NO_IDS,
    NOW,
    OPERATOR,
    UNKNOWN_ID,
    error,
)

# One job


def test_a_job_is_read_whole(task):
    job = task.claim_new_job(key="k", payload='{"a":1}')
    assert task.store.job(job.id) == job


def test_a_job_nobody_has_is_none(task):
    assert task.store.job(UNKNOWN_ID) is None


@pytest.mark.parametrize("text", NO_IDS)
def test_an_id_that_is_none_has_no_job_no_events_and_no_notes(task, text):
    assert (task.store.job(text), task.events(text), task.notes(text)) == (None, [], [])


def test_events_come_in_the_order_they_happened(task):
    job = task.claim_new_job()
    task.move("fail", job, **error())
    task.move("requeue", job.id, **OPERATOR)
    assert [(one.seq, one.move) for one in task.events(job)] == [
        (1, "enqueue"),
        (2, "claim"),
        (3, "fail"),
        (4, "requeue"),
    ]


def test_events_are_only_the_jobs_own(task):
    first, second = task.create_jobs(2)
    assert [one.job_id for one in task.events(first)] == [first]
    assert [one.job_id for one in task.events(second)] == [second]


def test_a_job_without_remarks_has_no_notes(task):
    assert task.notes(task.create_job()) == []


def test_a_remark_is_read_as_it_was_made(oci):
    job = oci.create_job(tenant="a")
    oci.store.add_note(
        "oci", kind="remark", actor="op", tenant="a", job_id=job, details='{"a":1}', now=NOW + 5
    )
    assert oci.notes(job) == [Note(job, NOW + 5, "remark", "op", '{"a":1}')]


def test_remarks_come_in_the_order_they_were_made(task):
    job = task.create_job()
    for kind in ("b", "a", "c"):
        task.store.add_note("task", kind=kind, actor="op", job_id=job, now=NOW)
    assert [one.kind for one in task.notes(job)] == ["b", "a", "c"]


def test_a_remark_on_the_queue_belongs_to_no_job(task):
    job = task.create_job()
    task.store.add_note("task", kind="remark", actor="op", now=NOW)
    assert task.notes(job) == []


def test_a_remark_changes_neither_the_job_nor_its_history(task):
    job = task.claim_new_job()
    before = task.events(job)
    task.store.add_note("task", kind="remark", actor="op", job_id=job.id, now=NOW)
    assert (task.job(job), task.events(job)) == (job, before)


# Pauses


def test_a_pause_says_who_and_why(oci):
    oci.store.pause("oci", actor="op", reason="Google is down", now=NOW)
    oci.store.pause("oci", tenant="a", actor="boss", now=NOW + 1)
    assert oci.store.paused("oci") == [
        Pause("oci", "", NOW, "op", "Google is down"),
        Pause("oci", "a", NOW + 1, "boss", None),
    ]


def test_a_queue_paused_twice_is_resumed_once(oci):
    for _ in range(2):
        oci.store.pause("oci", actor="op", now=NOW)
    assert [oci.store.resume("oci") for _ in range(2)] == [True, False]
    assert oci.store.paused("oci") == []


def test_resuming_what_is_not_paused_is_no_mistake(oci):
    oci.store.pause("oci", tenant="a", actor="op", now=NOW)
    assert oci.store.resume("oci", tenant="b") is False
    assert len(oci.store.paused("oci")) == 1


def test_pauses_of_another_queue_are_not_shown(oci, task):
    oci.store.pause("oci", actor="op", now=NOW)
    assert task.store.paused("task") == []


# The whole


def test_a_scan_brings_every_job_with_its_events(oci, task):
    ids = oci.create_jobs(3)
    task.create_job()
    oci.claim(2)
    assert [(job.id, len(events)) for job, events in oci.store.scan("oci")] == list(
        zip(ids, [2, 2, 1], strict=True)
    )


def test_a_scan_may_be_left_early(oci):
    oci.create_jobs(3)
    scan = oci.store.scan("oci")
    next(scan)
    scan.close()
    assert len(oci.claim(3)) == 3


def test_the_queues_ever_opened_are_known(store, open_queue):
    for name in ("pdf", "oci"):
        open_queue(task_lifecycle(), name)
    assert store.queues() == ["oci", "pdf"]


def test_opening_a_queue_again_changes_nothing(task):
    job = task.claim_new_job()
    task.store.open("task", task.lifecycle)
    assert task.store.queues() == ["task"]
    assert task.move("complete", job).state == "done"


def test_a_queue_opened_under_richer_rules_keeps_its_jobs_and_old_moves(store, open_queue):
    job = open_queue(pdf_lifecycle(), "mixed").create_job()
    open_queue(task_lifecycle(), "mixed")
    scene = open_queue(pdf_lifecycle(), "mixed")
    assert [one.id for one in scene.claim()] == [job]


def test_health_names_the_store_its_version_and_its_size(store):
    health = store.health()
    assert health["store"] in ("sqlite", "postgres", "redis")
    assert str(health["version"])[0].isdigit()
    assert int(health["bytes"]) > 0


@pytest.mark.sql
def test_a_sqlite_file_keeps_a_write_ahead_log(store):
    health = store.health()
    if health["store"] != "sqlite":
        assert int(health["oldest_snapshot_s"]) >= 0
    else:
        assert health["journal"] == ("memory" if health["path"] == ":memory:" else "wal")


def test_readers_of_ended_threads_are_closed(tmp_path):
    with closing(SqliteStore(tmp_path / "k.db")) as store:
        for _ in range(20):
            thread = threading.Thread(target=store.ping)
            thread.start()
            thread.join()
        assert len(store._readers) == 1
