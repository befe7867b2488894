import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from kesin.store.open import open_store
from tests.redis_server import RedisServer
from tests.servers import PostgresServer

# Shared machines are slow at times; that says nothing about the code.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("ci", PATIENT, derandomize=True, max_examples=50)
settings.register_profile("long", PATIENT, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the long forms too, as `make soak` does")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is marked ``long`` to the long form."""
    if config.getoption("--long"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


gc.disable()  # thirteen thousand tests are collected, and nothing of them is ever garbage


def pytest_collection_finish() -> None:
    """What is there now stays: looking through it again and again would take minutes."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Who looked at the logs leaves them set up: each traceback after it would take seconds."""
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One private server a test process, started by the first test that wants it."""
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of one database that all tests of this process share."""
    return postgres_server.create_database("kesin")


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
