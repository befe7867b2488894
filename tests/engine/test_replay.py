import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from kesin import Done, Failed, Job, NewJob, Queue, Sweeper, Worker, task_lifecycle
from kesin.engine.queue import apply_changes
from kesin.engine.replay import Difference, fold, verify
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import JOB_COLUMNS, Change
from kesin.store.contract import Store
from kesin.store.postgres.store import PostgresStore
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.engine.conftest import job_of


def busy_week(store: Store) -> list[Queue]:
    """A week of every workload, with retries, dead workers, holds and prunes."""
    clock = ManualClock()
    queues = [
        Queue(lifecycle.name, lifecycle, store, clock=clock, seed=7 + number)
        for number, lifecycle in enumerate((task_lifecycle(), oci_lifecycle(), pdf_lifecycle(), optiplan_lifecycle()))
    ]
    sweeper = Sweeper(queues)
    codes = [None, "UPLOAD_EXCEPTION", "NAVIGATION_TIMEOUT", "E_CRM_NO_MATCH", "TOO_RECENT_CLICK"]

    def handler(job: Job) -> Any:
        code = codes[(job.payload["n"] + job.attempt_count) % len(codes)]
        if code == "TOO_RECENT_CLICK" and job.queue != "oci":
            raise ConnectionError("connection lost")
        return Done({"n": job.payload["n"]}) if code is None else Failed(code, "as planned")

    def order(_job: Job, run: Any) -> Any:
        for action in ("prepare", "import", "run", "collect", "validate", "deliver"):
            if run.move(action).result != "moved":
                return Failed("E_OPTI_RUNNER_FAILED")
        return Done()

    for day in range(5):
        for queue in queues:
            queue.enqueue_many(NewJob({"n": n}, key=f"k{n % 9}", tenant=f"t{n % 2}") for n in range(day, day + 6))
            work = order if queue.name == "optiplan" else handler
            Worker(queue, work, name="w", channel="api" if queue.name == "oci" else None).drain()
            queue.claim("dead", limit=2)
        clock.advance(6 * 3_600)
        sweeper.sweep()
        newest = [job.id for job in queues[1].jobs(limit=3).jobs]
        queues[1].act("RETRY_SELECTED", actor="o", ids=newest)
        clock.advance(18 * 3_600)
    sweeper.sweep()
    return queues


Week = tuple[SqliteStore, list[Queue]]


@pytest.fixture(scope="module")
def week() -> Iterator[Week]:
    """Shared by the tests that only read it."""
    with closing(SqliteStore(":memory:")) as store:
        yield store, busy_week(store)


def dump(store: Store, queue: Queue) -> str:
    """All jobs, events, notes and counters of the queue, as text."""
    return json.dumps(
        [[job, events, store.notes(job.id)] for job, events in store.scan(queue.name)]
        + [store.move_counts(queue.name)],
        ensure_ascii=False,
    )


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[PostgresStore]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS replay CASCADE")
    store = PostgresStore(postgres_url, schema="replay", pool_size=2, listen=False, migrate=True)
    with closing(store):
        yield store


# The same history


def test_the_same_seed_and_clock_give_the_same_history_byte_for_byte(week: Week, postgres: PostgresStore):
    first = [dump(week[0], queue) for queue in week[1]]
    assert first == [dump(postgres, queue) for queue in busy_week(postgres)]
    assert min(map(len, first)) > 10_000
    for queue in week[1]:
        assert_replayed(postgres, queue.name)


def test_another_seed_gives_other_ids(store: SqliteStore):
    first, second = (Queue(f"work{seed}", task_lifecycle(), store, clock=ManualClock(), seed=seed) for seed in (7, 100))
    ids = {queue.enqueue({}).id for queue in (first, second) for _ in range(3)}
    assert len(ids) == 6


# No difference


def assert_replayed(store: Store, queue: str) -> None:
    verified = verify(store, queue)
    assert [str(difference) for difference in verified.differences] == []
    assert verified
    assert verified.jobs > 0
    assert verified.events > 2 * verified.jobs


def test_every_history_replays_to_its_rows(week: Week):
    """On PostgreSQL this is checked by the test above."""
    store, queues = week
    for queue in queues:
        assert_replayed(store, queue.name)


def test_a_fold_computes_every_column_but_the_lease(week: Week):
    store, queues = week
    for queue in queues:
        for job, events in store.scan(queue.name):
            replayed = fold(job, events)
            assert set(replayed) == set(JOB_COLUMNS)
            stored = dict(zip(JOB_COLUMNS, job, strict=True))
            differing = {name for name in JOB_COLUMNS if replayed[name] != stored[name]}
            assert differing <= {"lease_until"}


def test_a_replaced_payload_is_in_its_event_with_the_old_one(store: SqliteStore, clock: ManualClock):
    queue = Queue("oci", oci_lifecycle(), store, clock=clock)
    job_id = queue.enqueue({"gclid": "wrong"}).id
    queue.act("MARK_FAILED", actor="o", ids=[job_id], code="X", category=Category.VALIDATION, reason="no")
    change = Change(job_id, payload='{"gclid":"right"}')
    [outcome] = apply_changes(queue, "correct", [change], role="operator", actor="o")
    assert outcome.result == "moved"
    last = queue.events(job_id)[-1]
    assert (last.old_payload, last.payload) == ('{"gclid":"wrong"}', '{"gclid":"right"}')
    assert job_of(queue, job_id).payload == {"gclid": "right"}
    assert verify(store, "oci")


def test_an_empty_queue_has_no_differences(queue: Queue, store: SqliteStore):
    verified = verify(store, "work")
    assert (verified.jobs, verified.events, verified.differences) == (0, 0, [])


# A difference


@pytest.fixture
def tampered(store: SqliteStore, clock: ManualClock) -> Iterator[Callable[..., list[Difference]]]:
    """Runs SQL without the guard triggers, and undoes it; the differences that replay finds."""
    queue = Queue("work", task_lifecycle(), store, clock=clock, seed=3)
    for n in range(5):
        queue.enqueue({"n": n})
    Worker(queue, lambda job: Done(job.payload["n"]), name="w").drain()
    names = store._writer.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
    for (name,) in names.fetchall():
        store._writer.execute(f"DROP TRIGGER {name}")
    assert verify(store, "work")
    sound = sqlite3.connect(":memory:")
    store._writer.backup(sound)

    def run(sql: str, **how: Any) -> list[Difference]:
        store._writer.execute(sql)
        differences = verify(store, "work", **how).differences
        sound.backup(store._writer)
        return differences

    with closing(sound):
        yield run


ONE_JOB = "(SELECT min(id) FROM job)"
FORGED = {
    "state": "'failed'",
    "attempt_count": "attempt_count + 1",
    "attempt_base": "1",
    "max_attempts": "9",
    "return_count": "1",
    "retry_count": "1",
    "result": "'[]'",
    "error_code": "'X'",
    "moved_at": "moved_at + 1",
    "created_at": "created_at - 1",
    "run_at": "run_at + 1",
    "timer_at": "1",
    "finished_at": "NULL",
    "stamp_3": "1",
    "flags": "1",
    "claim_seq": "1",
    "payload_seq": "2",
    "actor": "'somebody'",
    "note": "'\"hm\"'",
}


def test_a_changed_column_is_found(tampered: Callable[..., list[Difference]]):
    for column, value in FORGED.items():
        differences = tampered(f"UPDATE job SET {column} = {value} WHERE id = {ONE_JOB}")
        assert column in {difference.subject for difference in differences}
        assert len({each.job_id for each in differences if "-" in each.job_id}) == 1, column


def test_a_difference_shows_both_values_and_their_number_is_limited(tampered: Callable[..., list[Difference]]):
    [difference] = tampered(f"UPDATE job SET max_attempts = 9 WHERE id = {ONE_JOB}")
    assert (difference.row, difference.replayed) == (9, 5)
    assert str(difference) == f"{difference.job_id}: max_attempts is 9, expected 5"
    assert len(tampered("UPDATE job SET max_attempts = 9", max_differences=2)) == 2


def test_changed_histories_and_counters_are_found(tampered: Callable[..., list[Difference]]):
    for sql in (
        f"DELETE FROM event WHERE job_id = {ONE_JOB} AND seq = 2",
        f"DELETE FROM event WHERE job_id = {ONE_JOB} AND seq = 3",
        f"DELETE FROM event WHERE job_id = {ONE_JOB}",
        f"UPDATE event SET seq = 4 WHERE job_id = {ONE_JOB} AND seq = 3",
        f"UPDATE event SET from_state = 'failed' WHERE job_id = {ONE_JOB} AND seq = 3",
        f"UPDATE event SET at = at + 1 WHERE job_id = {ONE_JOB} AND seq = 3",
        f"UPDATE event SET attempt = 2 WHERE job_id = {ONE_JOB} AND seq = 3",
        "UPDATE flow SET n = n + 1 WHERE move = 'complete'",
        "DELETE FROM flow WHERE move = 'claim'",
        f"DELETE FROM job WHERE id = {ONE_JOB}",
    ):
        assert tampered(sql), sql


def test_declarations_that_no_rules_account_for_are_found(tampered: Callable[..., list[Difference]]):
    for sql, subject in (
        ("UPDATE declared SET min_age_us = 7 WHERE to_state = ''", "the age of the move prune"),
        ("UPDATE declared SET mask = -1 WHERE move = 'complete'", "what the move complete"),
        ("UPDATE declared SET move = 'other' WHERE move = 'fail'", "the move other"),
        ("UPDATE state SET retired_at = 1 WHERE name = 'done'", "in the retired state done"),
        ("UPDATE rules SET definition = replace(definition, 'ready', 'reedy')", "version 1 of"),
        (
            "INSERT INTO rules SELECT queue, 3, fingerprint, definition, 1, declared_at FROM rules",
            "version 3 of the rules",
        ),
    ):
        assert any(subject in str(difference) for difference in tampered(sql)), sql


def test_a_clock_that_is_injected_later_is_found(store: SqliteStore, clock: ManualClock):
    Queue("work", task_lifecycle(), store)
    assert verify(store, "work")
    Queue("work", task_lifecycle(), store, clock=clock)
    [difference] = verify(store, "work").differences
    assert difference.subject == "the clock of version 2 of the rules"
