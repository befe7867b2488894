"""Reading: one job, pauses, and the store as a whole."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace

from kesin.lifecycle.declare import Move
from kesin.lifecycle.task import task_lifecycle
from kesin.store.records import Note, Pause
from kesin.store.sqlite.store import SqliteStore
from tests.store.scene import NO_IDS, NOW, OPERATOR, UNKNOWN_ID

# One job


def test_a_job_is_read_whole_and_an_unknown_id_is_none(task):
    job = task.claim_new_job(key="k", payload='{"a":1}')
    assert task.store.job(job.id) == job
    for text in (UNKNOWN_ID, *NO_IDS):
        assert (task.store.job(text), task.events(text), task.notes(text)) == (None, [], [])


def test_the_notes_of_jobs_are_read_in_order_as_they_were_made_and_change_nothing(oci):
    first, second, without = (oci.create_job(tenant="a") for _ in range(3))
    before = oci.snapshot()
    for job, kind in ((second, "B"), (first, "A"), (second, "A"), (second, "C")):
        oci.store.add_note("oci", kind=kind, actor="op", tenant="a", job_id=job, details='{"a":1}', now=NOW + 5)
    oci.store.add_note("oci", kind="of the queue", actor="op", now=NOW)
    assert oci.notes(first) == [Note(first, NOW + 5, "A", "op", '{"a":1}')]
    notes = oci.store.notes(second, without, "no id", first, second)
    read = {job: [it.kind for it in notes if it.job_id == job] for job in (first, second)}
    assert (read, len(notes)) == ({first: ["A"], second: ["B", "A", "C"]}, 4)
    assert oci.store.notes() == oci.notes(without) == []
    assert oci.snapshot() == before


# Pauses


def test_pauses_are_read_with_their_actor_and_reason_until_resumed(oci, task):
    for _ in range(2):
        oci.store.pause("oci", actor="op", reason="Google is down", now=NOW)
    oci.store.pause("oci", tenant="a", actor="boss", now=NOW + 1)
    of_queue = Pause("oci", "", NOW, "op", "Google is down")
    of_tenant = Pause("oci", "a", NOW + 1, "boss", None)
    assert oci.store.paused("oci") == [of_queue, of_tenant]
    assert task.store.paused("task") == []
    assert oci.store.resume("oci", tenant="b") is False
    assert [oci.store.resume("oci") for _ in range(2)] == [True, False]
    assert oci.store.paused("oci") == [of_tenant]


# The whole


def test_a_scan_brings_every_job_with_its_events_and_may_be_left_early(oci, task):
    ids = oci.create_jobs(3)
    task.create_job()
    oci.claim(2)
    assert [(job.id, len(events)) for job, events in oci.store.scan("oci")] == list(zip(ids, [2, 2, 1], strict=True))
    scan = oci.store.scan("oci")
    next(scan)
    scan.close()
    assert len(oci.claim(3)) == 1


def test_opening_a_queue_again_or_under_richer_rules_keeps_its_jobs_and_old_moves(open_queue):
    plain = task_lifecycle()
    task = open_queue(plain, "mixed")
    held, job = task.claim_new_job(), task.create_job()
    task.store.open("mixed", plain)
    assert task.move("complete", held).state == "done"
    see = Move("see", ("ready",), "ready", by=("operator",), stamp=("seen_at",))
    richer = open_queue(replace(plain, stamps=("seen_at",), moves=(*plain.moves, see)), "mixed")
    richer.move("see", job, **OPERATOR)
    scene = open_queue(plain, "mixed")
    assert [claimed.id for claimed in scene.claim()] == [job]
    open_queue(plain, "another")
    assert task.store.queues() == ["another", "mixed"]


def test_health_names_the_store_its_version_and_its_size(store):
    health = store.health()
    assert health["store"] in ("sqlite", "postgres", "redis")
    assert str(health["version"])[0].isdigit()
    assert int(health["bytes"]) > 0
    if health["store"] == "postgres":
        assert int(health["oldest_snapshot_s"]) >= 0
    elif health["store"] == "sqlite":
        assert health["journal"] == ("memory" if health["path"] == ":memory:" else "wal")


def test_readers_of_ended_threads_are_closed(tmp_path):
    with closing(SqliteStore(tmp_path / "k.db")) as store:
        for _ in range(20):
            thread = threading.Thread(target=store.ping)
            thread.start()
            thread.join()
        assert len(store._connections.readers) == 1
