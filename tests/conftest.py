import gc
import importlib
import os
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers
from hypothesis.internal.intervalsets import IntervalSet

from kesin.lifecycle.codec import lifecycle_from_json
from kesin.store import rules
from kesin.store.open import open_store
from kesin.store.sqlite.store import SqliteStore
from tests.databases import repetitions
from tests.pooler import pooler, through_pooler
from tests.redis_server import RedisServer
from tests.servers import PostgresServer

# Shared machines are slow at times; that says nothing about the code.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("ci", PATIENT, derandomize=True, max_examples=50)
settings.register_profile("long", PATIENT, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
if "HYPOTHESIS_PROFILE" not in os.environ:
    # Constants of our code among the examples: another choice for each set of modules that happens
    # to be imported, and a second of reading them for each test process. The long form has them.
    providers._get_local_constants = lambda: providers._local_constants

# What these codecs write and read back: a test process of a fresh clone would try every character
# with each of them, which takes seconds.
_CHARACTERS = {"ascii": [(0, 0x7F)], "utf-8": [(0, 0xD7FF), (0xE000, 0x10FFFF)]}
_tried = charmap.intervals_from_codec


@cache
def _known_characters(codec: str) -> tuple[IntervalSet, IntervalSet]:
    known = _CHARACTERS.get(codec)
    return (IntervalSet(known), IntervalSet()) if known else _tried(codec)


charmap.intervals_from_codec = _known_characters

# `make check` runs these: what starts nothing and takes no seconds.
FAST = re.compile(
    r"tests/(foundation|lifecycle(/drawing)?|engine|engine/access(/accounts)?|store(/sql)?"
    r"|workloads/(oci/conversions|optiplan/orders|pdf/templating))/test_\w+\.py"
)
SERVERS = frozenset({"postgres", "postgres_server", "postgres_url", "redis", "redis_server"})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the long forms too, as `make soak` does")
    parser.addoption("--pooler", action="store_true", help="reach PostgreSQL through PgBouncer")
    parser.addoption("--fast", action="store_true", help="what starts nothing: `make check`")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each process of a whole run begins its imports at another module.

    So each module of a fresh clone is compiled by one of them, and read by the others.
    """
    config = session.config
    worker = getattr(config, "workerinput", None)
    if worker is None or config.getoption("--fast") or config.args != config.getini("testpaths"):
        return
    number, workers = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    paths = sorted(config.rootpath.glob("tests/**/test_*.py"))
    first = len(paths) * number // workers
    for path in paths[first:] + paths[:first]:
        with suppress(Exception, pytest.skip.Exception):  # the collection reports them
            importlib.import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what says nothing new, but for the long form, and with ``--fast`` what starts."""
    long, fast = config.getoption("--long"), config.getoption("--fast")
    left_out = {
        item for item in items if (not long and item.get_closest_marker("long")) or (fast and not is_fast(item))
    }
    if not long:
        left_out |= repetitions([item for item in items if item not in left_out])
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules that ``--fast`` leaves out are not even imported."""
    path = collection_path.relative_to(config.rootpath).as_posix()
    left_out = config.getoption("--fast") and path.endswith(".py") and not FAST.match(path)
    return True if left_out else None


def is_fast(item: pytest.Item) -> bool:
    """Whether a test starts no server and no program."""
    if item.get_closest_marker("starts"):
        return False
    given = getattr(item, "callspec", None)
    values = set(map(str, given.params.values())) if given else set()
    return SERVERS.isdisjoint(values | set(getattr(item, "fixturenames", ())))


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_started(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--fast``: a test that starts a program fails, and wants the mark ``starts``."""
    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("--fast"):
            patch.setattr(subprocess, "Popen", _refuse_to_start)
        yield


def _refuse_to_start(*_: object, **__: object) -> None:
    raise RuntimeError("a test of `make check` starts no process: mark it with `starts`")


@pytest.fixture(autouse=True, scope="session")
def _stored_rules_decoded_once() -> Iterator[None]:
    """The same few lifecycles are read back thousands of times, and decoding is a pure function."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "lifecycle_from_json", cache(lifecycle_from_json))
        yield


@pytest.fixture(autouse=True, scope="session")
def _schema_copied_into_memory() -> Iterator[None]:
    """A store in memory begins as a copy of one: to make its schema takes many times as long."""
    migrate = SqliteStore.migrate
    with closing(SqliteStore(":memory:")) as ready, pytest.MonkeyPatch.context() as patch:
        template = sqlite3.connect(":memory:", check_same_thread=False)
        ready._writer.backup(template)

        def copy_schema(store: SqliteStore) -> list[str]:
            tables = "SELECT count(*) FROM sqlite_schema"
            plain = type(store) is SqliteStore and store._in_memory  # mutants change the schema
            if plain and store._writer.execute(tables).fetchone() == (0,):
                template.backup(store._writer)
            return migrate(store)

        patch.setattr(SqliteStore, "migrate", copy_schema)
        yield
        template.close()


@pytest.fixture(autouse=True, scope="session")
def _programs_start_slowly(request: pytest.FixtureRequest) -> Iterator[None]:
    """A busy machine may take longer than the product allows; tests of these limits set them."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("--fast"):
            from kesin.workloads.pdf.engines import browser, weasyprint
            from kesin.workloads.pdf.templating import filling

            patch.setattr(browser, "LAUNCH_S", 90.0)
            patch.setattr(browser, "OPEN_PAGE_S", 90.0)
            patch.setattr(weasyprint, "START_S", 90.0)
            patch.setattr(filling, "START_S", 90.0)
        yield


gc.disable()  # thirteen thousand tests are collected, and nothing of them is ever garbage


def pytest_collection_finish() -> None:
    """What is there now stays: to search it again and again would take minutes.

    What the tests make once and keep, as analysed routes, is half a million objects more; so what
    came later is looked through a tenth as often as Python would by itself.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Pytest has just looked for what was not closed: it, and Python at its end, would again."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Who looked at the logs leaves them set up: each traceback after it would take seconds."""
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def ready_cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the test processes of a run share a cluster, to be copied."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    folder = tmp_path_factory.getbasetemp()
    return (folder if alone else folder.parent) / "ready-cluster"


@pytest.fixture(scope="session")
def postgres_server(ready_cluster: Path) -> Iterator[PostgresServer]:
    """One private server a test process, started by the first test that wants it."""
    with PostgresServer(fsync=False, like=ready_cluster) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer, pytestconfig: pytest.Config) -> Iterator[str]:
    """The URL of one database that all tests of this process share."""
    url = postgres_server.create_database("kesin")
    if not pytestconfig.getoption("--pooler"):
        yield url
        return
    with pooler(postgres_server, size=20, probe=url):
        yield through_pooler(url)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One private Redis a test process, started by the first test that wants it."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def ready_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the schema in it, to be copied: that takes a tenth of making one."""
    path = tmp_path_factory.mktemp("ready") / "kesin.db"
    open_store(path).close()
    return path


@pytest.fixture(scope="session")
def ready_postgres(postgres_server: PostgresServer) -> str:
    """The name of a database with the schema in it, to be copied."""
    name = "kesin_ready"
    open_store(postgres_server.create_database(name), migrate=True).close()
    return name
