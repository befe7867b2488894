"""Births: what enters, what is refused at the door, and who holds a key."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kesin.lifecycle.model import Job
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreError, UnknownQueue
from kesin.store.limits import MAX_BATCH
from kesin.store.records import Outcome
from tests.store.scene import DAY, HOUR, NOW, SECOND, error, kept, rows, sent_by


def nothing_was_written(store):
    return not kept(store)


# Outcomes


def test_a_new_job_answers_inserted_with_its_own_id_and_first_state(task):
    new = task.new()
    assert task.enqueue(new) == [Outcome("inserted", new.id, "ready", 1)]


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
        result=None,
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
        payload='{"gclid":"x"}',
    )


def test_a_job_without_a_time_is_due_when_it_is_born(task):
    assert task.job(task.create_job()).run_at == NOW


def test_a_job_for_later_keeps_its_time(task):
    assert task.job(task.create_job(run_at=NOW + DAY)).run_at == NOW + DAY


def test_the_birth_is_the_first_event(task):
    new = task.new(note='{"from":"csv"}', run_at=NOW + HOUR)
    task.enqueue(new, actor="importer")
    (event,) = task.events(new.id)
    assert (event.seq, event.at, event.move, event.from_state, event.to_state) == (
        1,
        NOW,
        "enqueue",
        "",
        "ready",
    )
    assert (event.actor, event.worker, event.note, event.run_at) == (
        "importer",
        None,
        '{"from":"csv"}',
        NOW + HOUR,
    )


def test_each_job_keeps_the_cap_it_was_born_with(task):
    assert [task.job(task.create_job(max_attempts=n)).max_attempts for n in (1, 3, 8)] == [1, 3, 8]


def test_outcomes_stand_in_the_order_of_the_jobs(task):
    holder = task.create_job(key="b")
    news = [task.new(key=key) for key in ("c", "b", "a", None)]
    assert [(one.result, one.id) for one in task.enqueue(*news)] == [
        ("inserted", news[0].id),
        ("duplicate", holder),
        ("inserted", news[2].id),
        ("inserted", news[3].id),
    ]


def test_nothing_to_enqueue_is_no_mistake(task):
    assert task.enqueue() == []


# Keys


def test_a_key_in_use_answers_duplicate_with_its_holder(task):
    holder = task.claim_new_job(key="k")
    assert task.enqueue(task.new(key="k")) == [Outcome("duplicate", holder.id, "running", 2)]


def test_a_duplicate_writes_no_job(task):
    holder = task.create_job(key="k")
    task.enqueue(task.new(key="k"))
    assert [job.id for job, _ in task.store.scan("task")] == [holder]


def test_a_duplicate_leaves_a_note_on_its_holder(task):
    holder = task.create_job(key="k")
    task.clock.advance(5)
    task.enqueue(task.new(key="k"), actor="second")
    assert [(one.job_id, one.at, one.kind, one.actor) for one in task.notes(holder)] == [
        (holder, NOW + 5 * SECOND, "duplicate", "second")
    ]


def test_a_duplicate_leaves_the_holders_history_alone(task):
    holder = task.create_job(key="k")
    before = task.job(holder), task.events(holder)
    task.enqueue(task.new(key="k"))
    assert (task.job(holder), task.events(holder)) == before


def test_of_twins_in_one_batch_the_first_is_born(task):
    first, second, third = (task.new(key="k") for _ in range(3))
    assert task.enqueue(first, second, third) == [
        Outcome("inserted", first.id, "ready", 1),
        Outcome("duplicate", first.id, "ready", 1),
        Outcome("duplicate", first.id, "ready", 1),
    ]


def test_each_twin_in_one_batch_leaves_a_note(task):
    first, second, third = (task.new(key="k") for _ in range(3))
    task.enqueue(first, second, third)
    assert [one.kind for one in task.notes(first.id)] == ["duplicate", "duplicate"]


def test_a_duplicate_does_not_sink_the_rest_of_its_batch(task):
    task.create_job(key="k")
    news = [task.new(key=key) for key in ("a", "k", "b")]
    task.enqueue(*news)
    assert task.counts() == {"ready": 3}


def test_jobs_without_a_key_are_never_duplicates(task):
    assert len(task.create_jobs(3)) == 3


def test_a_key_is_free_once_its_job_rests_in_a_state_that_does_not_hold_it(task):
    task.move("complete", task.claim_new_job(key="k"))
    assert task.enqueue(task.new(key="k"))[0].result == "inserted"


def test_a_freed_key_belongs_to_its_next_job(task):
    task.move("complete", task.claim_new_job(key="k"))
    second = task.create_job(key="k")
    assert task.enqueue(task.new(key="k"))[0].id == second


def test_the_old_job_still_shows_the_key_it_once_held(task):
    old = task.move("complete", task.claim_new_job(key="k"))
    task.create_job(key="k")
    assert task.job(old).dedup_key == "k"


@pytest.mark.parametrize("finish", ["ack", "ack_failed"])
def test_a_key_stays_taken_in_every_state_declared_to_hold_it(oci, finish):
    ended = oci.move(finish, oci.claim_new_job(key="k"), **error())
    assert oci.enqueue(oci.new(key="k")) == [Outcome("duplicate", ended.id, ended.state, ended.seq)]


def test_a_pruned_job_frees_its_key(oci):
    oci.move("ack", oci.claim_new_job(key="k"))
    oci.clock.advance(91 * 86_400)
    assert oci.sweep("prune", source="COMPLETED") == 1
    assert oci.enqueue(oci.new(key="k"))[0].result == "inserted"


def test_tenants_do_not_share_keys(oci):
    oci.create_job(key="k", tenant="a")
    assert oci.enqueue(oci.new(key="k", tenant="b"))[0].result == "inserted"


def test_queues_do_not_share_keys(task, pdf):
    task.create_job(key="k")
    assert pdf.enqueue(pdf.new(key="k"))[0].result == "inserted"


@pytest.mark.sql
def test_a_duplicate_is_noted_under_its_own_tenant(oci):
    holder = oci.create_job(key="k", tenant="a")
    oci.enqueue(oci.new(key="k", tenant="a"))
    assert rows(oci.store, "SELECT queue, tenant FROM {note}") == [("oci", "a")]
    assert len(oci.notes(holder)) == 1


def test_of_many_equal_births_at_once_exactly_one_is_born(task):
    news = [[task.new(key="k"), task.new(key="l")] for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        answers = [
            one for batch in pool.map(lambda batch: task.enqueue(*batch), news) for one in batch
        ]
    assert sorted(one.result for one in answers) == ["duplicate"] * 14 + ["inserted"] * 2
    assert len({one.id for one in answers}) == 2


# Batches


def test_ten_thousand_jobs_are_born_in_one_call(task):
    news = [task.new(f'{{"n":{n}}}', key=f"k{n}") for n in range(MAX_BATCH)]
    outcomes = task.enqueue(*news)
    assert outcomes == [Outcome("inserted", new.id, "ready", 1) for new in news]
    assert task.counts() == {"ready": MAX_BATCH}


def test_a_batch_that_is_too_large_is_refused_whole(task):
    news = [task.new() for _ in range(MAX_BATCH + 1)]
    with pytest.raises(StoreError, match="at most 10000 jobs, got 10001"):
        task.enqueue(*news)
    assert nothing_was_written(task.store)


def test_a_birth_costs_the_same_number_of_statements_for_one_and_for_many(task, statements):
    task.create_job()
    one = sent_by(statements, lambda: task.create_jobs(1))
    assert sent_by(statements, lambda: task.create_jobs(200)) == one


def test_a_duplicate_costs_the_same_number_of_statements_for_one_and_for_many(task, statements):
    keys = [f"k{n}" for n in range(200)]
    task.enqueue(*(task.new(key=key) for key in keys))
    one = sent_by(statements, lambda: task.enqueue(task.new(key="k0")))
    many = sent_by(statements, lambda: task.enqueue(*(task.new(key=key) for key in keys)))
    assert many == one


# Queues


def test_an_unknown_queue_is_refused_by_name(task):
    with pytest.raises(UnknownQueue, match="'nope' is not open on this store: open it first"):
        task.store.enqueue("nope", [task.new()], actor="x", now=NOW)
    assert nothing_was_written(task.store)


@pytest.mark.parametrize(
    "name",
    ["", "Upper", "1st", "with space", "a.b", "semi;colon", "ü", "x" * 64, "new\nline", "a\n"],
)
def test_a_bad_queue_name_is_refused(store, name):
    with pytest.raises(StoreError, match="is no queue name"):
        store.open(name, task_lifecycle())
    assert store.queues() == []


def test_a_queue_name_may_be_as_long_as_it_says(store):
    store.open("x" * 63, task_lifecycle())
    assert store.queues() == ["x" * 63]
