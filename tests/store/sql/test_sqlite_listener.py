"""A SQLite file that several processes share: a commit of one wakes the waiting of another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kesin import Queue, task_lifecycle
from kesin.store.sqlite import listener
from kesin.store.sqlite.store import SqliteStore

PATIENCE_S = 60.0
HOUR_S = 3_600.0


class Both(NamedTuple):
    """Two stores on one file: each is another process to the other."""

    ours: SqliteStore
    theirs: SqliteStore

    def waiting(self, queue: str) -> threading.Thread:
        """A thread that waits for a queue of ours, and does so when this returns."""
        since = self.ours.notification_count(queue)
        thread = threading.Thread(target=self.ours.wait, args=(queue, since, HOUR_S), daemon=True)
        thread.start()
        while queue not in self.ours._notifier.waiting():
            assert thread.is_alive()
        return thread

    def enqueue(self, queue: str, **when: Any) -> None:
        """Enqueue a job as another process does."""
        Queue(queue, task_lifecycle(), self.theirs).enqueue({}, **when)


@contextmanager
def _unreported(_folder: Path) -> Iterator[None]:
    yield None


@pytest.fixture(params=["reported", "unreported"])
def both(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    if request.param == "unreported":
        monkeypatch.setattr(listener, "_writes_reported", _unreported)
    path = tmp_path / "shared.db"
    with closing(SqliteStore(path)) as ours, closing(SqliteStore(path)) as theirs:
        for store in (ours, theirs):
            for name in ("mail", "other"):
                Queue(name, task_lifecycle(), store)
        ours.wait("mail", ours.notification_count("mail"), PATIENCE_S)  # it begins to listen
        yield Both(ours, theirs)


def test_a_job_that_another_process_enqueues_wakes_who_waits_for_its_queue(both):
    thread = both.waiting("mail")
    both.enqueue("mail")
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_only_jobs_that_are_due_wake_only_their_queue(both):
    other, mail = both.waiting("other"), both.waiting("mail")
    before = both.ours.notification_count("other")
    both.enqueue("other", delay_s=HOUR_S)
    both.enqueue("mail")
    mail.join(PATIENCE_S)
    assert not mail.is_alive()
    assert both.ours.notification_count("other") == before
    both.ours.wake("other")
    other.join(PATIENCE_S)


def test_a_store_that_is_closed_listens_no_more(both):
    thread = both.ours._listener._thread
    assert thread.is_alive()
    both.ours.close()
    assert not thread.is_alive()


def test_a_job_that_comes_before_somebody_waits_is_not_missed(both):
    since = both.ours.notification_count("mail")
    both.enqueue("mail")
    both.ours.wait("mail", since, PATIENCE_S)
    assert both.ours.notification_count("mail") > since
