"""PostgreSQL ends a deadlock by undoing one of the two: the loser may try again, and is told so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from kesin.store.contract import StoreUnreachable
from kesin.store.postgres import PostgresStore
from tests.store.scene import Scene


@contextmanager
def locked_out(url: str, store: PostgresStore, first: str, second: str) -> Iterator[Any]:
    """Somebody who holds the second job and waits for the first, more patiently than anybody."""
    lock = f"SELECT 1 FROM {store.schema}.job WHERE id = %s FOR UPDATE"
    with psycopg.connect(url) as other:
        other.execute("SET deadlock_timeout = '1h'")
        other.execute(lock, (second,))
        waits = threading.Thread(target=other.execute, args=(lock, (first,)))

        def wait() -> None:
            waits.start()
            with psycopg.connect(url, autocommit=True) as looker:
                held = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s"
                while looker.execute(held, (other.info.backend_pid,)).fetchone() != ("Lock",):
                    pass

        yield wait
        waits.join()
        other.rollback()


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_who_loses_a_deadlock_is_told_to_try_again_and_can(task: Scene, postgres_url: str):
    store = task.store
    assert isinstance(store, PostgresStore)
    first, second = task.running(), task.running()

    def complete_both() -> None:
        with store.transaction():
            task.ask("complete", first)
            wait()
            task.ask("complete", second)

    told = pytest.raises(StoreUnreachable, match="deadlock")
    with locked_out(postgres_url, store, first.id, second.id) as wait, told:
        complete_both()
    assert [task.state(job) for job in (first, second)] == ["running", "running"]
    assert task.move("complete", first).state == task.move("complete", second).state == "done"
