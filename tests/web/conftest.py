"""A service without workers, under a clock that the test moves, with users and keys."""

import hashlib
import itertools
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
from fastapi import FastAPI
from httpx._transports import default as transports
from jinja2 import Environment, FileSystemBytecodeCache

from kesin.engine.access.accounts import Accounts
from kesin.engine.queue import Queue
from kesin.engine.results import Failed
from kesin.engine.worker import Worker
from kesin.foundation import logs, passwords
from kesin.foundation.clock import ManualClock
from kesin.foundation.permissions import Actor, system_actor
from kesin.foundation.settings import Settings
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.audit_log import AuditLine
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.postgres.store import PostgresStore
from kesin.store.redis.store import RedisStore
from kesin.store.routed import RoutedStore
from kesin.store.sql.statements import Statements
from kesin.store.sqlite.connections import ReaderConnection
from kesin.store.sqlite.store import SqliteStore
from kesin.web.app import create_app
from kesin.web.dashboard.frame import templates
from kesin.web.service import Service
from kesin.workloads import built_in
from tests.quick_hashes import quick_hashes
from tests.redis_server import RedisServer
from tests.web.client import ADDRESS, Client
from tests.web.lifecycle_cache import make_once, workloads
from tests.web.route_cache import analyse_once

PASSWORD = "correct-horse-battery"
CRON_SECRET = "cron-secret-of-the-tests"
ROOT = system_actor("cli:tests")
SAME_ORIGIN = {"sec-fetch-site": "same-origin"}
DEFAULTS = {"rate_per_s": 1e6, "sign_in_per_min": 10_000, "cron_secret": CRON_SECRET}
_numbers = itertools.count(1)


analyse_once()
make_once()
# Every client would read the same certificates, which takes 40 ms.
_ssl_context = transports.create_ssl_context  # type: ignore[attr-defined]
transports.create_ssl_context = cache(_ssl_context)  # type: ignore[attr-defined]
# Every process, and every language, would compile the same templates: as long as a thousand pages.
_compiler = version("jinja2").encode() + Path(templates.__file__).read_bytes()
_compiled = FileSystemBytecodeCache(pattern=f"kesin-{hashlib.sha256(_compiler).hexdigest()}-%s")
templates.Environment = partial(Environment, bytecode_cache=_compiled)  # type: ignore[attr-defined,assignment]


_read_settings: dict[Any, Settings] = {}


def _settings(**given: Any) -> Settings:
    """The same settings are read once: the environment takes longer than a service."""
    variables = [(name, os.environ[name]) for name in os.environ if name.startswith("KESIN_")]
    key = (repr(given), *variables)
    if key not in _read_settings:
        _read_settings[key] = Settings(**given)
    return _read_settings[key]


_described: list[dict[str, Any]] = []


def _describe_once(describe: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The schema is the same in every app of these workloads, and takes as long as 20 pages."""
    if not _described:
        _described.append(describe())
    return _described[0]


class World:
    """A service, its app and short names for what tests do with them."""

    def __init__(self, store: Store, folder: Path, **settings: Any) -> None:
        self.clock = ManualClock()
        settings = {**DEFAULTS, **settings}
        self.settings = _settings(**settings).model_copy(update={"data_dir": folder})
        self.store = store
        self.service = Service(self.settings, store, workloads(), work=False, clock=self.clock)
        self._kept: ExitStack | None = None

    @cached_property
    def app(self) -> FastAPI:
        """Created on first use: many tests send no request."""
        app = create_app(self.service)
        app.openapi = partial(_describe_once, app.openapi)  # type: ignore[method-assign]
        return app

    @cached_property
    def client(self) -> Client:
        client = Client(self.app)
        if self._kept is not None:
            self._kept.enter_context(client.kept())
        return client

    @contextmanager
    def kept(self) -> Iterator[None]:
        """One event loop for all requests of the block."""
        with ExitStack() as self._kept:
            yield
        self._kept = None

    @property
    def accounts(self) -> Accounts:
        return self.service.accounts

    @property
    def task(self) -> Queue:
        return self.service.queues["task"]

    def site(self, *names: str) -> None:
        for name in names:
            self.accounts.add_site(ROOT, name)

    def person(self, name: str, role: str = "viewer", **may: Any) -> str:
        self.accounts.add_user(ROOT, name, PASSWORD, role=role, **may)
        return name

    def known(self, name: str, role: str = "viewer", **may: Any) -> str:
        """The same, created by the first test that needs it."""
        there = self.accounts.directory.user(name)
        return there.name if there else self.person(name, role, **may)

    def token(self, name: str) -> str:
        return self.accounts.sign_in(name, PASSWORD, ADDRESS)[0]

    def cookie(self, name: str) -> dict[str, str]:
        """The headers of a browser with a session, from our own page."""
        return by_cookie(self.token(name))

    def key(self, *scopes: str, site: str | None = None, days: int | None = None) -> dict[str, str]:
        """The headers of a program with a new key."""
        return {"x-api-key": self.raw_key(*scopes, site=site, days=days)}

    def raw_key(self, *scopes: str, site: str | None = None, days: int | None = None) -> str:
        return self.accounts.create_key(ROOT, "tests", scopes, site=site, days=days)[0]

    def revoke(self, key: str) -> None:
        self.accounts.revoke_key(ROOT, passwords.key_id_of(key) or "")

    def job(self, site: str = "north", queue: str = "task", key: str | None = None, **how: Any) -> str:
        payload = how.pop("payload", {})
        return self.service.queues[queue].enqueue(payload, key=key, tenant=site, **how).id

    def failed(self, site: str = "north", key: str | None = None) -> str:
        """A task that was cancelled: it can be requeued."""
        job_id = self.job(site, key=key)
        self.task.act("cancel", actor="tests", ids=[job_id])
        return job_id

    def broken(self, site: str = "north", code: str = "BAD") -> str:
        """A task whose handler failed for good: it needs a person."""
        job_id = self.job(site)
        answer = Failed(code, "so the test wants it", category=Category.VALIDATION)
        Worker(self.task, lambda _job: answer).drain()
        return job_id

    def state(self, job_id: str) -> str:
        return self.found(job_id).state

    def found(self, job_id: str) -> Job:
        job = self.store.job(job_id)
        assert job is not None
        return job

    def audit(self) -> list[AuditLine]:
        """Every line, the oldest first."""
        return self.accounts.directory.audit(limit=10_000)[::-1]

    def said(self, request: Callable[[], Any]) -> list[AuditLine]:
        """The audit lines that a request leaves; refusals before it do not count this one in."""
        self.accounts.write_counted_refusals(unfinished=True)
        before = len(self.audit())
        request()
        return self.audit()[before:]


def by_cookie(token: str, **headers: str) -> dict[str, str]:
    return {"cookie": f"kesin_session={token}", **(headers or SAME_ORIGIN)}


def actor(name: str = "user:someone", role: str = "viewer", **may: Any) -> Actor:
    return Actor(name, frozenset({role}), **may)


def error_of(answer: Any) -> dict[str, Any]:
    """The error of a response, which has nothing else in it."""
    body = answer.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() - {"details"} == {"code", "message"}
    error: dict[str, Any] = body["error"]
    return error


@pytest.fixture(scope="module", autouse=True)
def _quick_hashes() -> Iterator[None]:
    with quick_hashes():
        yield


@pytest.fixture(autouse=True)
def _plain_logs() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if type(handler) is logs._LibraryHandler:
            root.removeHandler(handler)
    structlog.contextvars.clear_contextvars()


def opened(
    kind: str, folder: Path, request: pytest.FixtureRequest, stack: ExitStack, sites: tuple[str, ...] = ()
) -> Store:
    """A store with no more than sites; ``redis`` is a file for everything but PDFs."""
    store: Store
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
        schema = _empty_schemas.pop() if _empty_schemas else f"web{os.getpid()}_{next(_numbers)}"
        stack.callback(_empty, url, schema)
        store = PostgresStore(url, schema=schema, migrate=True, listen=False)
    else:
        path = folder / "kesin.db"
        if not path.exists():
            ready: Path = request.getfixturevalue("ready_file")
            shutil.copyfile(_with_queues(ready, sites) if kind == "sqlite" else ready, path)
            store = _ReadyStore(path) if kind == "sqlite" else SqliteStore(path)
        else:
            store = SqliteStore(path)
        if kind == "redis":
            server: RedisServer = request.getfixturevalue("redis_server")
            jobs = RedisStore(server.empty_url(), keys_name_tenant=frozenset({"pdf"}))
            homes = [workload.name for workload in built_in() if workload.in_redis]
            store = RoutedStore(store, dict.fromkeys(homes, jobs))
    stack.callback(store.close)
    if sites and kind != "sqlite":
        accounts = Accounts(Directory(store), ManualClock())
        for site in sites:
            accounts.add_site(ROOT, site)
    return store


_statements: dict[tuple[str, Lifecycle, bool], Statements] = {}


class _ReadyStore(SqliteStore):
    """A copy of the file below: what it stores of a queue is compared with the rules once.

    Threads lend each other their connections: to open one costs as much as two requests.
    """

    def __init__(self, path: Path) -> None:
        self._free: list[ReaderConnection] = []
        super().__init__(path)
        self._connections.reading = self._lend  # type: ignore[method-assign]
        self._connections.scanning = self._lend  # type: ignore[method-assign]

    @contextmanager
    def _lend(self) -> Iterator[sqlite3.Connection]:
        try:
            reader = self._free.pop()
        except IndexError:
            reader = self._connections._add_reader()
            reader.thread = threading.main_thread()  # it is not closed with its first thread
        try:
            with reader.lock:
                yield reader.connection
        finally:
            self._free.append(reader)

    def open(self, queue: str, lifecycle: Lifecycle, *, virtual_time: bool = False) -> None:
        key = (queue, lifecycle, virtual_time)
        if queue not in self._queues and key in _statements:
            self._queues[queue] = _statements[key]
            return
        first = queue not in self._queues
        before = self.rules(queue), self.declared(queue)
        super().open(queue, lifecycle, virtual_time=virtual_time)
        if first and (self.rules(queue), self.declared(queue)) == before:
            _statements[key] = self._queues[queue]


def _with_queues(ready: Path, sites: tuple[str, ...]) -> Path:
    """A file with sites and the moves of all queues: adding them takes longer than most tests."""
    path = ready.with_name(f"queues-{'-'.join(sites)}.db")
    if not path.exists():
        store = SqliteStore(shutil.copyfile(ready, path))
        World(store, ready.parent).site(*sites)
        store.close()
    return path


_empty_schemas: list[str] = []  # left by earlier tests: emptying one takes a tenth of making one


def _empty(url: str, schema: str) -> None:
    """Remove every row, past the guard, so that the next test finds the schema as if new."""
    with psycopg.connect(url) as connection:
        connection.execute("SET LOCAL session_replication_role = replica")
        connection.execute("SET LOCAL lock_timeout = '10s'")
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'schema_migration'", (schema,)
        ).fetchall()
        for (table,) in tables:
            connection.execute(f"DELETE FROM {schema}.{table}")
    _empty_schemas.append(schema)


MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeWorld]:
    """Makes a service with other settings: ``make_world(rate_per_s=2)``."""
    with ExitStack() as stack:

        def make(kind: str = "sqlite", **settings: Any) -> World:
            folder = tmp_path / str(next(_numbers))
            folder.mkdir()
            store = opened(kind, folder, request, stack, ("north", "south"))
            world = World(store, folder, **settings)
            stack.enter_context(world.kept())
            return world

        yield make


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A service with the sites north and south and no users."""
    return make_world()


@pytest.fixture(scope="module")
def shared_world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _quick_hashes: None
) -> Iterator[World]:
    """One for a whole module: for tests that look only at what they created."""
    folder = tmp_path_factory.mktemp("shared")
    with ExitStack() as stack:
        world = World(opened("sqlite", folder, request, stack, ("north", "south")), folder)
        stack.enter_context(world.kept())
        yield world


EITHER = ["sqlite", pytest.param("postgres", marks=pytest.mark.long)]


@pytest.fixture(params=EITHER)
def either_world(request: pytest.FixtureRequest, make_world: MakeWorld) -> World:
    """The same on each database; on PostgreSQL in the long form."""
    return make_world(request.param)


@pytest.fixture
def client(world: World) -> Client:
    return world.client


@pytest.fixture
def ayse(world: World) -> World:
    world.person("ayse", "operator", sites=["north"])
    return world
