"""Several processes on one store; those that are killed are in ``tests/faults``."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kesin import ManualClock, NewJob, Queue
from kesin.engine.replay import verify
from kesin.store.postgres.store import PostgresStore
from kesin.store.records import Outcome
from kesin.store.redis.store import RedisStore
from kesin.store.sqlite.store import SqliteStore
from tests.apart import Member, Start, crew
from tests.engine import processes
from tests.engine.conftest import states
from tests.engine.processes import KEYS, Address, lifecycle
from tests.store.conftest import empty

JOBS = 60
pytestmark = pytest.mark.starts


@pytest.fixture(scope="module")
def shared_store(postgres_url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(postgres_url, schema="processes", listen=False)) as store:
        store.migrate()
        yield store


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path, ready_file: Path) -> Address:
    if request.param == "redis":
        url = request.getfixturevalue("redis_server").empty_url()
        with closing(RedisStore(url, listen=False)) as store:
            store.migrate()
        return Address(url)
    if request.param == "sqlite":
        return Address(str(shutil.copyfile(ready_file, tmp_path / "shared.db")))
    empty(request.getfixturevalue("shared_store"))
    return Address(request.getfixturevalue("postgres_url"), "processes")


@pytest.fixture
def queue(address: Address) -> Iterator[Queue]:
    """The queue as the test sees it."""
    with closing(address.open()) as store:
        yield Queue("work", lifecycle(), store)


@pytest.fixture
def start(address: Address) -> Iterator[Start]:
    """Starts a process that waits for ``go``."""
    with crew() as begin:

        def start(part: Callable[..., None], argument: int) -> Member:
            member = begin(part, address, argument)
            assert member.hear() == "ready"
            return member

        yield start


def fill(queue: Queue, jobs: int) -> set[str]:
    outcomes = queue.enqueue_many(NewJob({"n": n}) for n in range(jobs))
    return {outcome.id for outcome in outcomes if isinstance(outcome, Outcome)}


def check(queue: Queue, ids: set[str]) -> None:
    """No job is lost or was done twice, and the file and the history are intact."""
    store = queue.store
    assert states(queue) == {"done": len(ids)}
    seen = set()
    for job, events in store.scan("work"):
        seen.add(job.id)
        ends = [event for event in events if event.to_state == "done"]
        assert len(ends) == 1, [event.move for event in events]
        assert ends[0].seq == job.seq
        assert job.payload == job.result or job.result is None
        claims = sum(event.claim == 1 for event in events)
        assert claims == job.attempt_count <= job.max_attempts
    assert seen == ids
    assert [str(difference) for difference in verify(store, "work").differences] == []
    if isinstance(store, SqliteStore):
        assert store._read("PRAGMA integrity_check", {}) == [("ok",)]


def test_concurrent_claims_never_share_a_job(queue: Queue, start: Start):
    ids = fill(queue, JOBS)
    members = [start(processes.claim_and_finish, batch) for batch in (1, 7, 20)]
    for member in members:
        member.go()
    claims = Counter(job_id for member in members for job_id in member.hear())
    assert set(claims) == ids
    assert set(claims.values()) == {1}
    check(queue, ids)
    assert {job.seq for job, _ in queue.store.scan("work")} == {3}


def test_concurrent_enqueues_of_the_same_keys_insert_each_once(queue: Queue, start: Start):
    members = [start(processes.enqueue_keys, seed) for seed in range(3)]
    for member in members:
        member.go()
    results = [result for member in members for result in member.hear()]
    inserted = {key: job_id for key, result, job_id in results if result == "inserted"}
    assert len(inserted) == KEYS
    assert Counter(result for _, result, _ in results) == {"inserted": KEYS, "duplicate": 2 * KEYS}
    assert all(inserted[key] == job_id for key, _, job_id in results)
    assert states(queue) == {"ready": KEYS}
    assert verify(queue.store, "work")


@pytest.mark.parametrize("address", ["sqlite", "postgres", "redis"], indirect=True)
def test_sweepers_of_several_processes_make_one_job_a_tick(address: Address, start: Start):
    members = [start(processes.sweep_once, 1) for _ in range(2)]
    for member in members:
        member.go()
    assert [member.hear() for member in members] == ["swept", "swept"]
    with closing(address.open()) as store:
        queue = Queue("ticks", lifecycle(), store, clock=ManualClock())
        keys = sorted(job.dedup_key or "" for job in queue.jobs().jobs)
    assert keys == ["hourly@2023-11-15T22:00:00Z", "nightly@2023-11-15T03:00:00Z"]
