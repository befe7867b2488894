"""A store at the far end of a line that fails on command, and the same store seen directly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from kesin.engine.queue import Queue
from kesin.foundation.clock import Clock, ManualClock
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Job
from kesin.lifecycle.task import task_lifecycle
from kesin.store import notify
from kesin.store.contract import Store
from kesin.store.errors import StoreUnreachable
from kesin.store.postgres import connections as postgres_connections
from kesin.store.postgres.store import PostgresStore
from kesin.store.redis import connection as redis_connection
from kesin.store.redis.store import RedisStore
from tests.faults.proxy import Postgres, Proxy, Redis
from tests.redis_server import WIRES
from tests.servers import PORT

KINDS = ("postgres", "redis")
SOON_S = 0.3  # how long a store waits for an answer, where a test lets it wait in vain
PATIENCE_S = 30.0
LEASE_S = 60
TASK = task_lifecycle(max_attempts=20, lease_seconds=LEASE_S)
T = TypeVar("T")
_numbers = itertools.count(1)


@dataclass
class Wire:
    """``near`` goes through the proxy, ``far`` does not; both are the same jobs."""

    proxy: Proxy
    near: Store
    far: Store

    def queues(self, lifecycle: Lifecycle = TASK, clock: Clock | None = None) -> tuple[Queue, Queue]:
        """A queue that nobody used, from both ends and by one clock."""
        name, clock = f"wire{next(_numbers)}", clock or ManualClock()
        far = Queue(name, lifecycle, self.far, clock=clock)
        return Queue(name, lifecycle, self.near, clock=clock), far

    def calls(self, ask: Callable[[], object]) -> int:
        """How many calls this takes, on a line that works."""
        before = self.proxy.calls
        ask()
        return self.proxy.calls - before


@dataclass
class End:
    """The server's end: its socket, its own address, and a store that goes there directly."""

    kind: str
    socket: Path
    url: str
    store: Store

    def address(self, port: int) -> str:
        """Where a proxy stands in between."""
        if self.kind == "redis":
            return f"redis://127.0.0.1:{port}/{WIRES}"
        name = urlsplit(self.url).path
        return f"postgresql://postgres@127.0.0.1:{port}{name}?sslmode=disable&gssencmode=disable"


@pytest.fixture(scope="module")
def end(request: pytest.FixtureRequest, kind: str) -> Iterator[End]:
    if kind == "postgres":
        server, ready = (request.getfixturevalue(n) for n in ("postgres_server", "ready_postgres"))
        url = server.create_database(f"wires{next(_numbers)}", like=ready)
        with closing(PostgresStore(url, listen=False)) as store:
            yield End(kind, server.folder / f".s.PGSQL.{PORT}", url, store)
        return
    redis = request.getfixturevalue("redis_server")
    with closing(RedisStore(redis.url(WIRES), listen=False)) as jobs:
        yield End(kind, redis.folder / "redis.sock", redis.url(WIRES), jobs)
        jobs.client.flushdb()


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def wire(end: End) -> Iterator[Wire]:
    with opened(end) as wire:
        yield wire


@pytest.fixture
def hasty(end: End, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """Whatever says nothing is given up on soon, and asked again at once."""
    monkeypatch.setattr(redis_connection, "UNRESPONSIVE_PAUSE_S", 0.0)
    for module in (notify, postgres_connections, redis_connection):
        monkeypatch.setattr(module, "POLL_S", 0.05)
        monkeypatch.setattr(module, "LIVENESS_CHECK_S", 0.05)
        monkeypatch.setattr(module, "RESPONSE_TIMEOUT_S", SOON_S)
    monkeypatch.setitem(postgres_connections.CONNECTION, "connect_timeout", 2)  # the least there is
    with opened(end, response_timeout_s=SOON_S, listen=True) as wire:
        yield wire


@contextmanager
def opened(end: End, **details: Any) -> Iterator[Wire]:
    """A store behind a proxy; at the end the line works again."""
    speaks = Postgres() if end.kind == "postgres" else Redis()
    with ExitStack() as ending:
        proxy = ending.enter_context(Proxy(end.socket, speaks))
        near = ending.enter_context(closing(open_near(end, proxy, **details)))
        yield Wire(proxy, near, end.store)
        proxy.release()
        proxy.mend()


def open_near(end: End, proxy: Proxy, *, response_timeout_s: float = PATIENCE_S, listen: bool = False) -> Store:
    url = end.address(proxy.port)
    if end.kind == "redis":
        return RedisStore(f"{url}?socket_timeout={response_timeout_s}", listen=listen)
    return PostgresStore(url, response_timeout_s=response_timeout_s, pool_size=4, listen=listen)


def held(queue: Queue) -> Job:
    """A job that was just claimed."""
    queue.enqueue({})
    [job] = queue.claim("worker")
    return job


def until_back(ask: Callable[[], T]) -> T:
    """Ask until the line is used again: of several connections each finds out by itself."""
    for _ in range(100):
        try:
            return ask()
        except StoreUnreachable as problem:
            last = problem
    raise last
