"""Enqueueing: what a new job holds, what is refused, and which job holds a key."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kesin.lifecycle.model import Job
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreError
from kesin.store.limits import MAX_BATCH
from kesin.store.records import Outcome
from tests.store.scene import DAY, HOUR, NOW, SECOND, count_rows, error, results, rows, sent_by

# Outcomes


def test_a_new_job_holds_all_it_was_given_and_nothing_else(oci):
    new = oci.new(
        '{"gclid":"x"}',
        key="order-1",
        tenant="site-1",
        run_at=NOW + HOUR,
        max_attempts=8,
        note='{"why":"import"}',
        stamps={"conversion_at": NOW - DAY},
    )
    oci.enqueue(new, actor="importer")
    assert oci.job(new.id) == Job(
        id=new.id,
        queue="oci",
        tenant="site-1",
        state="QUEUED",
        phase=0,
        move="enqueue",
        actor="importer",
        seq=1,
        claim_seq=0,
        payload_seq=1,
        worker=None,
        attempt_count=0,
        attempt_base=0,
        return_count=0,
        max_attempts=8,
        retry_count=0,
        salt=new.salt,
        flags=0,
        error_code=None,
        error_category=None,
        error_message=None,
        note='{"why":"import"}',
        result_json=None,
        new_payload=None,
        created_at=NOW,
        moved_at=NOW,
        run_at=NOW + HOUR,
        timer_at=None,
        claimed_at=None,
        lease_until=None,
        finished_at=None,
        stamp_1=NOW - DAY,
        stamp_2=None,
        stamp_3=None,
        stamp_4=None,
        dedup_key="order-1",
        payload_json='{"gclid":"x"}',
    )


def test_outcomes_are_in_the_order_of_the_jobs(task):
    holder = task.create_job(key="b")
    news = [task.new(key=key, max_attempts=n) for n, key in enumerate(("c", "b", "a", None), 1)]
    outcomes = task.enqueue(*news)
    assert results(outcomes) == ["inserted", "duplicate", "inserted", "inserted"]
    assert [outcome.id for outcome in outcomes] == [news[0].id, holder, news[2].id, news[3].id]
    assert task.counts() == {"ready": 4}
    assert [task.job(news[n].id).max_attempts for n in (0, 2, 3)] == [1, 3, 4]


# Keys


def test_a_duplicate_is_answered_with_the_holder_and_leaves_only_a_note_there(task):
    holder = task.claim_new_job(key="k")
    before = task.snapshot()
    task.clock.advance(5)
    assert task.enqueue(task.new(key="k"), actor="second") == [Outcome("duplicate", holder.id, "running", 2)]
    assert task.snapshot() == before
    assert [(note.job_id, note.at, note.kind, note.actor) for note in task.notes(holder)] == [
        (holder.id, NOW + 5 * SECOND, "duplicate", "second")
    ]


def test_of_equal_keys_in_one_batch_the_first_is_created_and_the_others_noted(task):
    first, second, third = (task.new(key="k") for _ in range(3))
    assert task.enqueue(first, second, third) == [
        Outcome("inserted", first.id, "ready", 1),
        Outcome("duplicate", first.id, "ready", 1),
        Outcome("duplicate", first.id, "ready", 1),
    ]
    assert [note.kind for note in task.notes(first.id)] == ["duplicate", "duplicate"]


def test_a_key_is_held_in_the_states_declared_to_hold_it_and_until_the_job_is_pruned(task, oci):
    old = task.move("complete", task.claim_new_job(key="k"))
    new = task.create_job(key="k")
    assert task.enqueue(task.new(key="k"))[0].id == new
    assert task.job(old).dedup_key == "k", "the old job still shows its key"
    for finish in ("ack", "ack_failed"):
        ended = oci.move(finish, oci.claim_new_job(key=finish), **error())
        assert oci.enqueue(oci.new(key=finish)) == [Outcome("duplicate", ended.id, ended.state, ended.seq)]
    oci.clock.advance(91 * 86_400)
    assert oci.sweep("prune", source="COMPLETED") == 1
    assert results(oci.enqueue(oci.new(key="ack"), oci.new(key="ack_failed"))) == ["inserted", "duplicate"]


def test_tenants_and_queues_do_not_share_keys(oci, pdf):
    oci.create_job(key="k", tenant="a")
    assert oci.enqueue(oci.new(key="k", tenant="b"))[0].result == "inserted"
    assert pdf.enqueue(pdf.new(key="k", tenant="a"))[0].result == "inserted"


@pytest.mark.sql
def test_a_duplicate_is_noted_under_its_own_tenant(oci):
    holder = oci.create_job(key="k", tenant="a")
    oci.enqueue(oci.new(key="k", tenant="a"))
    assert rows(oci.store, "SELECT queue, tenant FROM {note} WHERE job_id IS NOT NULL") == [("oci", "a")]
    assert len(oci.notes(holder)) == 1


def test_of_many_equal_jobs_enqueued_at_once_exactly_one_is_created(task):
    news = [[task.new(key="k"), task.new(key="l")] for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        batches = pool.map(lambda batch: task.enqueue(*batch), news)
    outcomes = [outcome for batch in batches for outcome in batch]
    assert sorted(results(outcomes)) == ["duplicate"] * 14 + ["inserted"] * 2
    assert len({outcome.id for outcome in outcomes}) == 2


# Batches


@pytest.mark.parametrize(
    "store", ["sqlite-file", "redis", pytest.param("postgres", marks=pytest.mark.long)], indirect=True
)  # PostgreSQL takes them as arrays, of any length
def test_a_batch_holds_ten_thousand_jobs_and_a_larger_one_is_refused_whole(task):
    news = [task.new(f'{{"n":{n}}}', key=f"k{n}") for n in range(MAX_BATCH + 1)]
    with pytest.raises(StoreError, match="at most 10000 jobs, got 10001"):
        task.enqueue(*news)
    assert not count_rows(task.store)
    outcomes = task.enqueue(*news[:-1])
    assert outcomes == [Outcome("inserted", new.id, "ready", 1) for new in news[:-1]]
    assert task.counts() == {"ready": MAX_BATCH}


def test_the_number_of_statements_does_not_depend_on_the_number_of_jobs(task, statements):
    def enqueue(count):
        task.enqueue(*(task.new(key=f"k{n}") for n in range(count)))

    task.create_job()
    single = sent_by(statements, lambda: task.create_jobs(1))
    assert sent_by(statements, lambda: task.create_jobs(100)) == single
    enqueue(100)
    duplicate = sent_by(statements, lambda: enqueue(1))
    assert sent_by(statements, lambda: enqueue(100)) == duplicate


# Queues


def test_a_bad_queue_name_is_refused(store):
    bad = ["", "Upper", "1st", "with space", "a.b", "semi;colon", "ü", "x" * 64, "new\nline", "a\n"]
    for name in bad:
        with pytest.raises(StoreError, match="is not a queue name"):
            store.open(name, task_lifecycle())
    assert store.queues() == []
    store.open("x" * 63, task_lifecycle())
    assert store.queues() == ["x" * 63]
