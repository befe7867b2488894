"""Claims of a worker that waits or is busy: planned before, made another way where that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import psycopg
import pytest

from kesin import NewJob, Queue, Worker, task_lifecycle
from kesin.store.postgres import connections
from kesin.store.postgres.connections import TimedConnection
from kesin.store.postgres.store import PostgresStore
from tests.store.conftest import empty, opened

EXECUTED = "SELECT sum(generic_plans), sum(custom_plans) FROM pg_prepared_statements"


@pytest.fixture(scope="module")
def schema(request: pytest.FixtureRequest) -> Iterator[str]:
    """Emptied after each test: to make one takes a tenth of a second."""
    with opened("postgres", request) as store:
        assert isinstance(store, PostgresStore)
        yield store.schema


@pytest.fixture
def store(postgres_url: str, schema: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(postgres_url, schema=schema)) as store:
        yield store
        empty(store)


@pytest.fixture
def queue(store: PostgresStore) -> Queue:
    return Queue("work", task_lifecycle(), store)


def wait(store: PostgresStore) -> None:
    """As a worker does, but without waiting."""
    store.wait("work", store.notification_count("work") - 1, 0.0)


def session(store: PostgresStore) -> TimedConnection | None:
    """The connection of planned claims."""
    assert store._planned_claims
    return store._planned_claims._connection


def executed(store: PostgresStore, claims: connections.PlannedClaims | None = None) -> tuple[int | None, int | None]:
    """How often it ran what it has prepared: with the plan that is kept, and with another."""
    connection = claims._connection if claims else session(store)
    assert connection
    counts = connection.execute(EXECUTED, prepare=False).fetchone()
    assert counts
    return counts[0], counts[1]


def claims_one(queue: Queue) -> bool:
    wanted = queue.enqueue({}).id
    return [job.id for job in queue.claim("worker")] == [wanted]


def test_claims_after_a_wait_keep_their_plan_and_those_before_have_none(queue: Queue, store: PostgresStore):
    assert claims_one(queue)
    assert session(store) is None  # who never waits needs no further connection
    for number in (1, 2, 3):
        wait(store)
        assert claims_one(queue)
        assert claims_one(queue)
        assert executed(store) == (2 * number, 0)


def test_claims_of_many_jobs_keep_their_plan_without_a_wait(queue: Queue, store: PostgresStore):
    queue.enqueue_many([NewJob({}) for _ in range(3 * connections.MANY_JOBS)])
    for kept in (None, 1, 2):
        assert len(queue.claim("worker", limit=connections.MANY_JOBS)) == connections.MANY_JOBS
        assert executed(store) == (kept, kept and 0)


def test_claims_at_the_same_time_keep_a_plan_each(queue: Queue, store: PostgresStore):
    claims = store._planned_claims
    with ExitStack() as at_work:
        for _ in range(connections.MOST_SESSIONS):
            assert queue.claim("worker", limit=connections.MANY_JOBS) == []  # it connects
            assert claims_one(queue)
            assert executed(store, claims) == (1, 0)
            assert claims
            at_work.enter_context(claims._lock)
            claims = claims._next
        assert claims is None
        assert claims_one(queue)


def test_a_plan_is_made_again(queue: Queue, store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "PLAN_S", 0.0)
    for kept in (1, 2, 2, 2):
        wait(store)
        assert claims_one(queue)
        assert executed(store) == (kept, 0)  # each plan once


@pytest.mark.parametrize("jobs", [0, 2])
def test_a_plan_made_for_few_rows_reads_by_the_index_of_ready_jobs(
    postgres_url: str, fresh_schema: Callable[[], str], jobs: int
):
    """In a schema of its own: one that had more rows is planned for otherwise."""
    with closing(PostgresStore(postgres_url, schema=fresh_schema(), migrate=True)) as store:
        queue = Queue("work", task_lifecycle(), store)
        queue.enqueue_many([NewJob({}) for _ in range(jobs)])
        Worker(queue, lambda _job: None).drain()
        wait(store)
        assert queue.claim("worker") == []
        connection = session(store)
        assert connection
        (name,) = connection.execute("SELECT name FROM pg_prepared_statements").fetchone() or ("",)
        plan = connection.execute(
            f"EXPLAIN (COSTS off) EXECUTE {name} (NULL, 'work', '', 1, 'me', 'me', 60000000)"
        ).fetchall()
        scans = [line for (line,) in plan if " Scan" in line and ("job" in line or "paused" in line)]
        assert scans
        assert all("Index" in line for line in scans), scans
        assert not any("job_state" in line for line in scans), scans  # it has jobs at rest, too


def test_a_claim_whose_session_has_ended_is_made_on_another_connection(
    queue: Queue, store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    wait(store)
    connection = session(store)
    assert connection
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,))
    assert claims_one(queue)
    wait(store)
    assert session(store) is None  # a moment must pass
    assert claims_one(queue)
    assert store._planned_claims
    monkeypatch.setattr(store._planned_claims, "_open_from", 0.0)
    wait(store)
    assert claims_one(queue)
    assert executed(store) == (1, 0)


def test_a_claim_that_meets_another_at_work_does_not_wait_for_it(queue: Queue, store: PostgresStore):
    wait(store)
    assert store._planned_claims
    with store._planned_claims._lock:
        assert claims_one(queue)
    assert executed(store) == (None, None)


def test_a_claim_under_a_rate_waits_for_another_at_work(store: PostgresStore):
    queue = Queue("rated", task_lifecycle(rate=(10, 60)), store)
    queue.enqueue_many([NewJob({}) for _ in range(2)])
    wait(store)
    assert len(queue.claim("worker")) == 1
    claims = store._planned_claims
    assert claims
    with ThreadPoolExecutor(1) as pool:
        with claims._lock:
            claiming = pool.submit(queue.claim, "worker")
            with pytest.raises(TimeoutError):
                claiming.result(0.2)
        assert len(claiming.result(30)) == 1
    assert executed(store) == (2, 0)


def test_a_claim_in_a_transaction_is_part_of_it(queue: Queue, store: PostgresStore):
    queue.enqueue({})
    wait(store)
    with store.transaction():
        assert queue.claim("worker")
        raise psycopg.Rollback  # ends the block, and what it did
    assert queue.stats().states["ready"] == 1
    assert executed(store) == (None, None)


def test_a_closed_store_opens_no_connection_again_and_one_that_does_not_listen_has_none(postgres_url: str, schema: str):
    with closing(PostgresStore(postgres_url, schema=schema)) as store:
        wait(store)
        assert session(store)
    wait(store)
    assert session(store) is None
    with closing(PostgresStore(postgres_url, schema=schema, listen=False)) as store:
        wait(store)
        assert claims_one(Queue("silent", task_lifecycle(), store))
        assert store._planned_claims is None
        empty(store)
