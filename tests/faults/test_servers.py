"""The database crashes under a load, and everybody goes on as soon as it is back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import psycopg
import pytest

from kesin.store.open import open_store
from tests.faults.cast import Address
from tests.faults.load import Load
from tests.redis_server import RedisServer
from tests.servers import PostgresServer

JOBS = 25
CUTS = 5


@pytest.fixture(scope="module")
def server(ready_cluster: Path) -> Iterator[PostgresServer]:
    """One that flushes, as in the world: what it answered for must be there after a crash."""
    with PostgresServer(fsync=True, like=ready_cluster) as server:
        open_store(server.create_database("faults"), migrate=True).close()
        yield server


def stop(server: PostgresServer) -> None:
    server.stop("immediate")


@pytest.mark.parametrize(
    "crash",
    [pytest.param(stop, id="immediate"), pytest.param(PostgresServer.kill, id="killed", marks=pytest.mark.long)],
)
def test_postgres_crashes_under_a_load(server: PostgresServer, crash: Callable[..., None]):
    address = Address("postgres", server.url("faults"), crash.__name__)
    with closing(address.open()) as store, Load(address, store) as load:
        load.go_on(JOBS)
        crash(server)
        server.start()
        load.go_on(JOBS)
        report = load.bring_to_rest()
    assert report.jobs >= 2 * JOBS


def test_connections_to_postgres_are_cut_under_a_load(server: PostgresServer):
    url = server.url("faults")
    address = Address("postgres", url, "cut")
    with closing(address.open()) as store, psycopg.connect(url, autocommit=True) as other, Load(address, store) as load:
        cut = 0
        for _ in range(CUTS):
            load.go_on(JOBS // CUTS)
            cut += other.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = 'faults' AND pid <> pg_backend_pid()"
            ).fetchall()[0][0]
        report = load.bring_to_rest()
    assert report.jobs >= JOBS
    assert cut >= CUTS


@pytest.mark.parametrize("fsync", ["always", pytest.param("everysec", marks=pytest.mark.long)])
def test_redis_is_killed_under_a_load(fsync: Literal["always", "everysec"]):
    """With ``everysec`` a lagging disk may cost what it answered for, but never half a move."""
    with RedisServer(durable=True, fsync=fsync) as server:
        address = Address("redis", server.url())
        with closing(address.open()) as store, Load(address, store) as load:
            load.go_on(JOBS)
            server.kill()
            server.start()
            load.go_on(JOBS)
            report = load.bring_to_rest(may_lose=fsync == "everysec")
    assert report.jobs >= JOBS
