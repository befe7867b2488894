"""PostgreSQL is away for longer than the pool tries to reach it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from psycopg_pool import ConnectionPool

from kesin.store.postgres import connections
from kesin.store.postgres.store import PostgresStore
from tests.faults.proxy import Postgres, Proxy
from tests.servers import PORT, PostgresServer


def test_who_waits_goes_on_when_it_is_back(postgres_server: PostgresServer, ready_postgres: str, monkeypatch):
    """A pool that gave up knows nothing of those who wait: they ask it anew."""
    gave_up = threading.Event()
    monkeypatch.setattr(connections, "RECONNECT_TIMEOUT_S", 0.0)
    monkeypatch.setattr(connections, "CONNECTION_POLL_S", 0.2)
    monkeypatch.setattr(ConnectionPool, "reconnect_failed", lambda _: gave_up.set())
    postgres_server.create_database("wire_away", like=ready_postgres)
    details = "sslmode=disable&gssencmode=disable"
    with (
        Proxy(postgres_server.folder / f".s.PGSQL.{PORT}", Postgres()) as proxy,
        closing(
            PostgresStore(
                f"postgresql://postgres@127.0.0.1:{proxy.port}/wire_away?{details}",
                pool_size=1,
                timeout_s=20,
                listen=False,
            )
        ) as store,
        ThreadPoolExecutor(1) as beside,
    ):
        proxy.door = "away"
        with store._pool.connection() as connection:
            connection.close()  # its place is free: the pool tries to fill it, and gives up
        assert gave_up.wait(20)
        gave_up.clear()
        waiting = beside.submit(store.ping)
        assert gave_up.wait(20)
        proxy.mend()
        waiting.result()
