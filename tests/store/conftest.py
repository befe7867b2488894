"""The stores every conformance test runs on, each fresh, and the check that ends every test."""

from __future__ import annotations

import _sqlite3
import ctypes
import itertools
import os
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import psycopg
import pytest

from kesin.engine.replay import verify
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.task import task_lifecycle
from kesin.store.contract import Store
from kesin.store.limits import MAX_BATCH
from kesin.store.postgres.connections import CONNECTION
from kesin.store.postgres.store import PostgresStore
from kesin.store.redis.store import RedisStore
from kesin.store.rules import jobs_by_state
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.redis_server import ALIKE, RedisServer
from tests.store.scene import NOW, Scene, rows

SQL_STORES = ("sqlite-file", "sqlite-memory", "postgres")
STORES = (*SQL_STORES, "redis")
TABLES = (
    *("job", "job_body", "event", "note", "flow", "paused", "declared", "lifecycle"),
    *("rules", "state", "parent", "progress", "schedule", "meter", "fact"),
    *("listing", "search_term"),
)
KEPT = "schema_migration", "folding", "place"  # filled by migrations
HERE = "tests/store/"  # nodes have paths from the root
RAM = Path("/dev/shm")  # where there is one, no test waits for a disk
_numbers = itertools.count(1)


def _unused_name() -> str:
    return f"t{os.getpid()}_{next(_numbers)}"


@pytest.fixture
def fresh_schema(postgres_url: str) -> Iterator[Callable[[], str]]:
    """Makes unused names of PostgreSQL schemas, and drops the schemas at the end."""
    names: list[str] = []

    def make() -> str:
        names.append(_unused_name())
        return names[-1]

    yield make
    _drop(postgres_url, *names)


_ready_schemas: list[tuple[str, str]] = []  # as migrations made them, with their shape
# Whatever a test may change in a schema but for its rows.
SHAPE = """
SELECT md5(concat(
  (SELECT string_agg(concat(relname, relkind, relpersistence, reloptions), ',' ORDER BY oid)
   FROM pg_class WHERE relnamespace = n.oid),
  (SELECT string_agg(concat(attname, atttypid, attnotnull, attoptions), ',' ORDER BY c.oid, attnum)
   FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE relnamespace = n.oid),
  (SELECT string_agg(concat(tgname, tgenabled), ',' ORDER BY t.oid)
   FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace = n.oid),
  (SELECT string_agg(md5(prosrc), ',' ORDER BY oid) FROM pg_proc WHERE pronamespace = n.oid)
)) FROM pg_namespace n WHERE nspname = %(schema)s
"""


def _leave(url: str, schema: str, shape: str) -> None:
    """Empty a schema for the next test, which takes a tenth of making one; drop a changed one."""
    with psycopg.connect(url) as connection:
        if connection.execute(SHAPE, {"schema": schema}).fetchone() == (shape,):
            connection.execute("SET LOCAL session_replication_role = replica")
            connection.execute("SET LOCAL lock_timeout = '10s'")
            tables = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
            rows = connection.execute(tables, [schema]).fetchall()
            names = [name for (name,) in rows if name not in KEPT]
            deletes = ", ".join(f"{name} AS (DELETE FROM {schema}.{name})" for name in names)
            connection.execute(f"WITH {deletes} SELECT 1")
            _ready_schemas.append((schema, shape))
            return
    _drop(url, schema)


def _drop(url: str, *schemas: str) -> None:
    """Drop schemas on a new connection: some tests restart the server."""
    with psycopg.connect(url, autocommit=True) as connection:
        for schema in schemas:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@contextmanager
def opened(kind: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store of that kind, deleted afterwards."""
    with ExitStack() as stack:
        store: Store
        if kind == "postgres":
            url = request.getfixturevalue("postgres_url")
            schema, shape = _ready_schemas.pop() if _ready_schemas else (_unused_name(), "")
            store = PostgresStore(url, schema=schema, migrate=True, listen=False)
            shape = shape or store._read(SHAPE, {"schema": schema})[0][0]
            stack.callback(_leave, url, schema, shape)
        elif kind == "redis":
            server = request.getfixturevalue("redis_server")
            store = RedisStore(server.empty_url(), listen=False)
            store.migrate()
        elif kind == "sqlite-file":
            folder = TemporaryDirectory(dir=RAM if RAM.is_dir() else None, prefix="kesin-test-")
            path = Path(stack.enter_context(folder)) / "k.db"
            shutil.copyfile(request.getfixturevalue("ready_file"), path)
            store = SqliteStore(path)
        else:
            store = SqliteStore(":memory:")
        stack.callback(store.close)
        yield store


@pytest.fixture(scope="session")
def postgres_store(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[PostgresStore]:
    """One schema a process, emptied after each test, and statements that are planned once.

    Through a pooler nothing is prepared: two clients would share what one of them prepared.
    """
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        if not request.config.getoption("--pooler"):
            patch.setitem(CONNECTION, "prepare_threshold", 2)
            patch.setitem(CONNECTION, "options", "-c plan_cache_mode=force_generic_plan -c jit=off")
        store = stack.enter_context(opened("postgres", request))
        patch.undo()
        assert isinstance(store, PostgresStore)
        if not request.config.getoption("--pooler"):
            raw = stack.enter_context(psycopg.connect(store._pool._url, autocommit=True))
            raw.execute("SET session_replication_role = replica")
            raw.execute("SET lock_timeout = '10s'")
            patch.setitem(_UNGUARDED, store.schema, raw)
        yield store


@pytest.fixture(scope="session")
def redis_shared(redis_server: RedisServer) -> Iterator[RedisStore]:
    """One database a process, emptied after each test, whose script is loaded once."""
    with closing(RedisStore(redis_server.url(ALIKE), listen=False)) as store:
        yield store


@pytest.fixture(scope="session")
def sqlite_store(request: pytest.FixtureRequest) -> Iterator[Callable[[], SqliteStore]]:
    """One file a process, emptied before each use, and statements that are prepared once."""
    with ExitStack() as stack:
        store = stack.enter_context(opened("sqlite-file", request))
        assert isinstance(store, SqliteStore)
        raw = stack.enter_context(closing(_unguarded(store.path)))
        tables = raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()

        def emptied() -> SqliteStore:
            raw.execute("BEGIN IMMEDIATE")
            for (name,) in tables:
                if name not in KEPT:
                    raw.execute(f"DELETE FROM {name}")
            raw.execute("COMMIT")
            store._queues.clear()
            return store

        yield emptied


def _unguarded(path: str) -> sqlite3.Connection:
    """A connection without triggers: a setting that Python 3.11 has no name for."""
    connection = sqlite3.connect(path, isolation_level=None)
    handle = ctypes.c_void_p.from_address(id(connection) + object.__basicsize__)
    configure = ctypes.CDLL(_sqlite3.__file__).sqlite3_db_config
    enable_trigger, off, unasked = 1003, 0, None
    assert configure(handle, enable_trigger, off, unasked) == 0
    return connection


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store of each kind."""
    if request.param == "sqlite-file":
        yield request.getfixturevalue("sqlite_store")()
    elif request.param == "postgres":
        postgres = request.getfixturevalue("postgres_store")
        yield postgres
        empty(postgres)
    elif request.param == "redis":
        redis = request.getfixturevalue("redis_shared")
        redis.migrate()
        yield redis
        redis.client.flushdb()
        for known in (redis._queues, redis._undeclared, redis._virtual_time):
            known.clear()
    else:
        with opened(request.param, request) as store:
            yield store


# PostgreSQL: a session whose guard was switched off and on plans every statement again. So the
# schema that most tests share is emptied on another session.
_UNGUARDED: dict[str, psycopg.Connection[Any]] = {}


def empty(store: PostgresStore) -> None:
    """Delete every row, bypassing the guard: only a superuser can, and only explicitly."""
    deletes = ", ".join(f"{name} AS (DELETE FROM {store.dialect.table(name)})" for name in TABLES)
    emptied = f"WITH {deletes} SELECT 1"
    if raw := _UNGUARDED.get(store.schema):
        raw.execute(emptied)
    else:
        with store.transaction():
            store._rows("SET LOCAL session_replication_role = replica", {})
            store._rows("SET LOCAL lock_timeout = '10s'", {})
            store._rows(emptied, {})
    store._queues.clear()


@pytest.fixture(scope="module", params=STORES)
def shared_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A store of each kind for tests that only read: it is filled once a module."""
    with opened(request.param, request) as store:
        yield store
        check_histories_and_counts(store)


@pytest.fixture(autouse=True)
def _every_history_replays(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check after every test that the histories replay and the counts agree."""
    if "store" not in request.fixturenames:
        yield
        return
    store = request.getfixturevalue("store")
    yield
    check_histories_and_counts(store)


def check_histories_and_counts(store: Any) -> None:
    """The events give exactly the rows, and the counters count them, but for a large batch."""
    for queue in store._queues:
        if sum(jobs_by_state(store.move_counts(queue)).values()) < MAX_BATCH:
            differences = map(str, verify(store, queue).differences)
            # Some tests inject times into a queue that began without.
            assert [each for each in differences if "clock of version" not in each] == []


def counted(store: Store, queue: str) -> dict[tuple[str, str], int]:
    """(tenant, state) → jobs, by the counters."""
    tenants = store.stats(queue, now=NOW).tenants
    return {(t, s): n for t, states in tenants.items() for s, n in states.items() if n}


def listed(store: Store, queue: str) -> dict[tuple[str, str], int]:
    """(tenant, state) → jobs, by reading every row."""
    if isinstance(store, RedisStore):
        return Counter((job.tenant, job.state) for job, _ in store.scan(queue))
    sql = "SELECT tenant, state, count(*) FROM {job} WHERE queue = '%s' GROUP BY 1, 2"
    return Counter({(t, s): n for t, s, n in rows(store, sql.replace("%s", queue))})


@pytest.fixture
def open_queue(store: Store) -> Callable[..., Scene]:
    """Opens further queues on the store at hand."""

    def opened(lifecycle: Lifecycle, queue: str | None = None) -> Scene:
        return Scene(store, queue or lifecycle.name, lifecycle)

    return opened


@cache
def known(lifecycle: Callable[[], Lifecycle]) -> Lifecycle:
    """A lifecycle that is declared, checked and written as JSON once a process."""
    return lifecycle()


@pytest.fixture
def task(store: Store) -> Scene:
    return Scene(store, "task", known(task_lifecycle))


@pytest.fixture
def oci(store: Store) -> Scene:
    return Scene(store, "oci", known(oci_lifecycle))


@pytest.fixture
def pdf(store: Store) -> Scene:
    return Scene(store, "pdf", known(pdf_lifecycle))


@pytest.fixture
def optiplan(store: Store) -> Scene:
    return Scene(store, "optiplan", known(optiplan_lifecycle))


@pytest.fixture
def lonely(store: Store) -> Scene:
    """Only one job of this queue may run at a time."""
    plain = task_lifecycle("lonely")
    states = tuple(replace(state, exclusive=state.name == "running") for state in plain.states)
    return Scene(store, "lonely", replace(plain, states=states))


# A database in memory runs the same statements on the same SQLite. It differs in that all threads
# share one connection: what happens at once and in transactions is tested there as well. The tests
# of the engine and the random histories run on one too.
IN_MEMORY = re.compile("test_transaction|_at_once")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect redundant tests.

    Tests marked ``sql`` read tables: Redis has none. A database in memory is tested only with
    ``--long`` where the test does not depend on its difference from a file.
    """
    long = config.getoption("--long")

    def is_redundant(item: pytest.Item) -> bool:
        kinds = getattr(item, "callspec", _NO_PARAMS).params.values()
        if "redis" in kinds and item.get_closest_marker("sql"):
            return True
        in_memory = not long and "sqlite-memory" in kinds and item.nodeid.startswith(HERE)
        return in_memory and not IN_MEMORY.search(item.nodeid)

    left_out = {item for item in items if is_redundant(item)}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


class _NO_PARAMS:  # noqa: N801  # stands for the parameters of a test that has none
    params: ClassVar[dict[str, object]] = {}


@pytest.fixture
def statements(store: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every statement sent to the database from here on, those inside triggers left out."""
    sent: list[str] = []
    if isinstance(store, SqliteStore):
        # What a trigger does is traced as the statement that fired it, once more.
        store._writer.set_trace_callback(lambda sql: None if sql in sent[-1:] else sent.append(sql))
        yield sent
        store._writer.set_trace_callback(None)
        return
    if isinstance(store, RedisStore):
        run = store._connection.script

        def spied(**how: Any) -> Any:
            sent.append(how["args"][0])
            return run(**how)

        monkeypatch.setattr(store._connection, "script", spied)
        yield sent
        return
    execute = psycopg.Cursor.execute
    executemany = psycopg.Cursor.executemany

    def single(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append(str(query))
        return execute(self, query, *args, **kwargs)

    def many(self: Any, query: Any, params: Any, **kwargs: Any) -> Any:
        listed_params = list(params)
        sent.extend([str(query)] * len(listed_params))
        return executemany(self, query, listed_params, **kwargs)

    monkeypatch.setattr(psycopg.Cursor, "execute", single)
    monkeypatch.setattr(psycopg.Cursor, "executemany", many)
    yield sent
