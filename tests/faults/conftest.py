"""A store of each kind for a module, a queue of its own for each test, and processes beside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.results import Done
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.store.contract import Store
from kesin.store.open import open_store
from kesin.store.redis.store import RedisStore
from tests.apart import Start, crew
from tests.faults.cast import LEASE_S, Address, Ahead
from tests.faults.promise import PromiseReport, check_promise
from tests.faults.wires import end, hasty, kind, wire  # noqa: F401  # fixtures
from tests.redis_server import FAULTS

TURNS = 2_000
_numbers = itertools.count(1)


class Place:
    """A store, and queues in it."""

    def __init__(self, address: Address, store: Store) -> None:
        self.address = address
        self.store = store

    def new(self, lifecycle: str = "task") -> Address:
        return replace(self.address, name=f"work{next(_numbers)}", lifecycle=lifecycle)

    def bury(self) -> None:
        """Let the time pass that Redis leaves to a transaction whose owner is silent."""
        if isinstance(self.store, RedisStore) and self.store.client.exists("kesin:lock"):
            self.store.client.hset("kesin:lock", "until", "0")


@pytest.fixture(scope="module", params=["sqlite", "postgres", "redis"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if request.param == "sqlite":
        url = str(tmp_path_factory.mktemp("faults") / "work.db")
    elif request.param == "postgres":
        server, ready = (request.getfixturevalue(n) for n in ("postgres_server", "ready_postgres"))
        url = server.create_database(f"faults{next(_numbers)}", like=ready)
    else:
        url = request.getfixturevalue("redis_server").url(FAULTS)
    open_store(url, migrate=True).close()
    address = Address(request.param, url)
    with closing(address.open()) as store:
        yield Place(address, store)
        if isinstance(store, RedisStore):
            store.client.flushdb()


@pytest.fixture
def start() -> Iterator[Start]:
    with crew() as start:
        yield start


def fill(queue: Queue, jobs: int) -> list[str]:
    outcomes = queue.enqueue_many(NewJob({"n": n}) for n in range(jobs))
    return [outcome.id for outcome in outcomes]


def end_of_leases(queue: Queue) -> None:
    assert isinstance(queue.clock, Ahead)
    queue.clock.seconds += 2 * LEASE_S


def bring_to_rest(queue: Queue, answered_ids: list[str]) -> PromiseReport:
    """Whoever is left sweeps and works; then the promise holds.

    A connection that dies may hold a row for a moment: they look again.
    """
    end_of_leases(queue)
    working = [state.name for state in queue.lifecycle.states if state.working]
    worker = Worker(queue, lambda job: Done(job.payload), name="heir")
    for _ in range(TURNS):
        Sweeper([queue]).sweep(("cap", "recover", "revive"))
        worker.drain()
        states = queue.stats().states
        if not any(states[name] for name in working):
            return check_promise(queue.store, queue.name, queue.lifecycle, answered_ids)
    raise AssertionError(f"not everything came to rest: {queue.stats().states}")


def made(queue: Queue, move: str) -> int:
    """How often a move was made, by the counters."""
    return sum(flow.n for flow in queue.store.move_counts(queue.name) if flow.move == move)
