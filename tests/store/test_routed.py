"""Several stores behind one interface: each queue is in one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.workload import Workload
from kesin.foundation.permissions import system_actor
from kesin.lifecycle.task import task_lifecycle
from kesin.store.directory import Directory
from kesin.store.errors import StoreUnreachable
from kesin.store.redis.store import RedisStore
from kesin.store.routed import RoutedStore
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.redis_server import RedisServer

pytestmark = pytest.mark.starts

ROOT = system_actor("tests")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def both(server: RedisServer, tmp_path: Path) -> Iterator[RoutedStore]:
    main = SqliteStore(tmp_path / "k.db")
    redis = RedisStore(server.url(), listen=False)
    with closing(RoutedStore(main, {"pdf": redis})) as stores:
        yield stores


def test_a_queue_is_opened_and_read_where_it_lives(both):
    task, pdf = Queue("task", task_lifecycle(), both), Queue("pdf", pdf_lifecycle(), both)
    jobs = {"task": task.enqueue({}).id, "pdf": pdf.enqueue({}).id}
    assert both.queues() == ["pdf", "task"]
    assert both.main.queues() == ["task"]
    for queue, job in jobs.items():
        assert both.job(job).queue == queue
        assert len(both.events(job)) == both.stats(queue).total == 1
        assert both.notes(job) == []
    assert task.store is both.main
    assert Directory(both).sites() == []


def test_what_a_job_left_behind_in_another_store_is_not_the_job(both):
    old = Queue("pdf", pdf_lifecycle(), both.main, seed=1)
    left = old.enqueue({"at": "home"}).id
    assert both.main.job(left) is not None
    assert (both.job(left), both.events(left)) == (None, [])


def test_a_home_that_is_away_is_no_matter_of_the_others(both, server):
    queues = {"pdf": Queue("pdf", pdf_lifecycle(), both), "task": Queue("task", task_lifecycle(), both)}
    job = queues["task"].enqueue({}).id
    known = {name: Workload(name, task_lifecycle, has_sites=False) for name in queues}
    commands = Commands(queues, Accounts(Directory(both)), known)
    server.kill()
    assert commands.job(ROOT, job).job.id == job
    assert both.queues() == ["pdf", "task"]
    with pytest.raises(StoreUnreachable):
        commands.job(ROOT, "00000000-0000-7000-8000-000000000000")
