"""What is Redis' own: keys, transactions by a lock, trouble with the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.engine.replay import verify
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import age_over
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.records import Filter
from kesin.store.redis import connection
from kesin.store.redis.store import RedisStore
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.redis_server import STORE, RedisServer
from tests.store.scene import NOW, Scene


@pytest.fixture
def url(redis_server: RedisServer) -> Iterator[str]:
    address = redis_server.url(STORE)
    yield address
    with closing(RedisStore(address, listen=False)) as store:
        store.client.flushdb()


@pytest.fixture
def redis_store(url: str) -> Iterator[RedisStore]:
    with closing(RedisStore(url, listen=False)) as store:
        yield store


def test_keys_are_named_by_their_queue_and_where_that_does_not_say_whose_they_are_by_their_tenant(url):
    with closing(RedisStore(url, keys_name_tenant=frozenset({"pdf"}), listen=False)) as store:
        pdf, task = Scene(store, "pdf", pdf_lifecycle()), Scene(store, "task", task_lifecycle())
        job = pdf.create_job(key="abc", tenant="ayse")
        client: Any = store.client
        assert client.hget(f"pdf:job:{job}", "state") == "queued"
        assert client.get("pdf:key:abc") == job
        assert client.zrange("pdf:jobs:queued", 0, -1, withscores=True) == [(job, NOW)]
        assert [entry[1]["move"] for entry in client.xrange(f"pdf:events:{job}")] == ["enqueue"]
        mine, yours = task.create_job(key="k", tenant="me"), task.create_job(key="k", tenant="you")
        assert client.get("task:key:2:me:k") == mine
        assert client.get("task:key:3:you:k") == yours


def test_no_sign_in_a_tenant_or_a_key_makes_two_of_them_one(redis_store):
    task = Scene(redis_store, "task", task_lifecycle())
    pairs = [("a", "b:c"), ("a:b", "c"), ("a", "b@c"), ("1:a", "b"), ("a\x1fb", "c"), ("a", "b")]
    jobs = [task.create_job(tenant=tenant, key=key) for tenant, key in pairs]
    assert len(set(jobs)) == len(pairs)
    assert sorted(redis_store.stats("task", now=NOW).tenants) == sorted({tenant for tenant, _ in pairs})
    listed = [job.id for tenant in {pair[0] for pair in pairs} for job in page(redis_store, tenant)]
    assert sorted(listed) == sorted(jobs)


def page(store, tenant):
    return store.jobs("task", Filter(tenants=(tenant,))).jobs


# Transactions


def test_what_a_dead_process_left_undone_is_undone_by_the_next_caller(url, redis_store):
    task = Scene(redis_store, "task", task_lifecycle())
    before = task.create_job(key="before")
    with closing(RedisStore(url, listen=False)) as dead, ExitStack() as never_left:
        lost = Scene(dead, "task", task_lifecycle())
        lost.clock.advance(1)  # ids of its own
        never_left.enter_context(suppress(StoreUnreachable))
        never_left.enter_context(dead.transaction())
        lost.create_job(key="never")
        dead.client.hset("kesin:lock", "until", "0")  # its time is over
        assert [job.id for job, _ in redis_store.scan("task")] == [before]
        assert not redis_store.client.exists("kesin:lock", "kesin:undo")
        with pytest.raises(StoreUnreachable, match="took too long and was undone"):
            lost.create_job(key="too late")
    assert verify(redis_store, "task")


def test_who_meets_a_transaction_under_way_waits_no_longer_than_it_must(url, redis_store, monkeypatch):
    monkeypatch.setattr(connection, "LOCK_WAIT_S", 0)
    Scene(redis_store, "task", task_lifecycle())
    with closing(RedisStore(url, listen=False)) as other:
        other.open("task", task_lifecycle())
        with redis_store.transaction(), pytest.raises(StoreUnreachable, match="is under way"):
            other.stats("task")
        assert other.stats("task").total == 0


# The server


def test_a_script_or_a_queue_that_redis_forgot_is_sent_again(redis_store):
    task = Scene(redis_store, "task", task_lifecycle())
    redis_store.client.script_flush()
    task.create_job()
    redis_store.client.flushdb()  # it came back empty
    job = task.create_job()
    assert (redis_store.queues(), task.state(job), task.history(job)) == (["task"], "ready", ["enqueue"])
    done = task.move("complete", task.claim()[0])
    task.clock.advance(400 * 86_400)
    assert task.sweep("prune", source="done") == 1
    assert redis_store.job(done.id) is None


def test_a_server_without_room_takes_nothing_breaks_nothing_and_lets_a_transaction_go(redis_store):
    task = Scene(redis_store, "task", task_lifecycle())
    job = task.create_job()
    try:
        with suppress(StoreUnreachable), redis_store.transaction():
            task.create_job(key="undone")
            redis_store.client.config_set("maxmemory", "1mb")
            with pytest.raises(StoreUnreachable, match="at the moment") as refused:
                task.create_job(key="too much")
            raise refused.value
        with pytest.raises(StoreUnreachable, match="at the moment"):
            task.create_job(key="too much")
        assert task.state(job) == "ready"
    finally:
        redis_store.client.config_set("maxmemory", "0")
    assert not redis_store.client.exists("kesin:lock", "kesin:undo")
    assert verify(redis_store, "task")
    assert task.counts() == {"ready": 1}
    assert task.move("complete", task.claim()[0]).state == "done"


def test_the_layout_of_the_keys_has_a_version(redis_store):
    assert redis_store.migrate() == ["0001_keys"]
    assert redis_store.migrate() == []
    redis_store.client.set("kesin:schema", "2")
    with pytest.raises(StoreError, match="upgrade Kesin"):
        redis_store.migrate()


def test_what_is_no_address_is_told(tmp_path):
    with pytest.raises(StoreError, match="not the address of a Redis server"):
        RedisStore("nowhere")
    with (
        closing(RedisStore(f"unix://{tmp_path}/none", listen=False)) as store,
        pytest.raises(StoreUnreachable, match="not reachable"),
    ):
        store.ping()


def test_a_queue_opened_while_it_is_away_works_once_it_is_back():
    with RedisServer() as server, closing(RedisStore(server.url(), listen=False)) as store:
        server.kill()
        queue = Queue("task", task_lifecycle(), store, clock=ManualClock(NOW))
        with pytest.raises(StoreUnreachable):
            queue.enqueue({})
        server.start()
        assert queue.enqueue({}).result == "inserted"
        assert store.definition("task") is not None


def test_a_version_that_asks_for_another_age_finds_the_jobs_of_the_old_one(url):
    def version(stamp: str) -> Lifecycle:
        rules = task_lifecycle()
        moves = tuple(replace(move, when=(age_over(stamp, 86_400),)) if move.prunes else move for move in rules.moves)
        return replace(rules, moves=moves)

    with closing(RedisStore(url, listen=False)) as old:
        scene = Scene(old, "task", version("moved_at"))
        scene.move("complete", scene.claim_new_jobs()[0])
    with closing(RedisStore(url, listen=False)) as new:
        later = Scene(new, "task", version("finished_at"))
        later.clock.advance(2 * 86_400)
        assert later.sweep("prune", source="done") == 1


def test_a_crash_keeps_what_was_answered():
    with RedisServer(durable=True) as server, closing(RedisStore(server.url())) as store:
        task = Scene(store, "task", task_lifecycle())
        done = [job.id for job in task.claim_new_jobs(3)][:2]
        task.apply("complete", [task.job(job) for job in done])
        with suppress(StoreUnreachable), store.transaction():
            task.create_job(key="half")
            server.kill()
        server.start()
        store.client.hset("kesin:lock", "until", "0")  # as if its time were over
        assert {job: task.state(job) for job in task.all()} == {
            **dict.fromkeys(done, "done"),
            **dict.fromkeys(set(task.all()) - set(done), "running"),
        }
        assert len(task.all()) == 3
        assert verify(store, "task")
