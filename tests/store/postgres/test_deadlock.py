"""PostgreSQL ends a deadlock by undoing one of the two: the loser may try again, and is told so.

Of our own making there are none: whoever moves many jobs takes them in the order of their ids.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from kesin.lifecycle.model import Change
from kesin.store.errors import StoreUnreachable
from kesin.store.postgres.store import PostgresStore
from tests.store.scene import DAY, Scene


def until_it_waits(url: str, pid: int) -> None:
    """Look until that session waits for a lock."""
    with psycopg.connect(url, autocommit=True) as looker:
        held = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s"
        while looker.execute(held, (pid,)).fetchone() != ("Lock",):
            pass


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
            until_it_waits(url, other.info.backend_pid)

        yield wait
        waits.join()
        other.rollback()


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_who_loses_a_deadlock_is_told_to_try_again_and_can(task: Scene, postgres_url: str):
    store = task.store
    assert isinstance(store, PostgresStore)
    first, second = task.claim_new_job(), task.claim_new_job()

    def complete_both() -> None:
        with store.transaction():
            task.apply_one("complete", first)
            wait()
            task.apply_one("complete", second)

    refused = pytest.raises(StoreUnreachable, match="deadlock")
    with locked_out(postgres_url, store, first.id, second.id) as wait, refused:
        complete_both()
    assert [task.state(job) for job in (first, second)] == ["running", "running"]
    assert task.move("complete", first).state == task.move("complete", second).state == "done"


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
@pytest.mark.parametrize("values", ["alike", "apart", "renewed"])
def test_jobs_are_taken_in_the_order_of_their_ids_wherever_they_lie(task: Scene, postgres_url: str, values: str):
    store = task.store
    assert isinstance(store, PostgresStore)
    first, second = task.claim_new_jobs(2)
    store.renew(task.queue, [(first.id, 2)], lease_us=DAY, now=task.now)  # it lies behind now
    lock = f"SELECT 1 FROM {store.schema}.job WHERE id = %s FOR UPDATE NOWAIT"
    sessions: list[int] = []

    def act() -> None:
        with store.transaction() as connection:
            sessions.append(connection.info.backend_pid)
            begun.set()
            if values == "renewed":
                both = [(job.id, 2) for job in (second, first)]
                store.renew(task.queue, both, lease_us=2 * DAY, now=task.now)
            else:
                notes = ("1", "1" if values == "alike" else "2")
                pairs = zip((second, first), notes, strict=True)
                task.apply("complete", [Change(job.id, 2, note=note) for job, note in pairs])

    begun = threading.Event()
    acts = threading.Thread(target=act)
    with psycopg.connect(postgres_url) as other:
        other.execute(lock, (second.id,))
        acts.start()
        begun.wait()
        until_it_waits(postgres_url, sessions[0])
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute(lock, (first.id,))
        other.rollback()
    acts.join()
