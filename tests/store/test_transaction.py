"""Transactions: several calls, all or nothing, and only this thread's."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from kesin.store.records import Outcome
from kesin.store.redis.store import RedisStore
from kesin.store.sqlite.store import SqliteStore
from tests.store.scene import NOW, PRODUCER, error, results, rolled_back, rows

TABLES = ("job", "job_body", "event", "note", "flow")


class Undo(Exception):
    """Raised inside a transaction to undo it."""


def everything(store):
    """All there is, in a fixed order."""
    if isinstance(store, RedisStore):
        return {key: contents(store, key) for key in store.client.keys("*")}
    return [sorted(rows(store, f"SELECT * FROM {{{t}}}"), key=repr) for t in TABLES]


def contents(store, key):
    """The value of a key in Redis."""
    client = store.client
    readers = {
        "string": client.get,
        "hash": client.hgetall,
        "set": client.smembers,
        "list": lambda name: client.lrange(name, 0, -1),
        "zset": lambda name: client.zrange(name, 0, -1, withscores=True),
        "stream": client.xrange,
    }
    return readers[client.type(key)](key)


def rendered(pdf, key="k"):
    return pdf.move("succeed", pdf.claim_new_job(key=key))


def test_two_calls_in_a_block_are_both_kept_or_both_undone(pdf):
    gone = rendered(pdf)
    before = everything(pdf.store)
    with rolled_back(pdf.store):
        pdf.move("artifact_gone", gone.id, **PRODUCER)
        pdf.enqueue(pdf.new(key="k"))
    assert everything(pdf.store) == before
    assert pdf.enqueue(pdf.new(key="k"))[0].id == gone.id, "the old holder has the key"
    new = pdf.new(key="k")
    with pdf.store.transaction():
        pdf.move("artifact_gone", gone.id, **PRODUCER)
        (outcome,) = pdf.enqueue(new)
    assert outcome == Outcome("inserted", new.id, "queued", 1)
    assert (pdf.state(gone), pdf.state(new.id)) == ("expired", "queued")


def test_every_kind_of_call_is_undone(oci):
    waiting = oci.claim_new_job(key="w", tenant="a")
    lost = oci.claim_new_job(tenant="b")
    before = everything(oci.store)
    with rolled_back(oci.store):
        oci.create_jobs(3)
        oci.claim(2)
        oci.apply_one("release", lost._replace(claim_seq=1))  # stale, and noted
        oci.enqueue(oci.new(key="w", tenant="a"))  # a duplicate, and noted
        oci.move("ack", waiting)
        oci.clock.advance(60)
        oci.store.renew("oci", [(lost.id, lost.claim_seq)], lease_us=9, now=oci.now)
        oci.sweep("recover", to="RETRY")
        oci.clock.advance(91 * 86_400)
        oci.sweep("prune", source="COMPLETED")
        oci.store.add_note("oci", kind="remark", actor="op", now=NOW)
        oci.store.pause("oci", actor="op", now=NOW)
    assert everything(oci.store) == before
    assert oci.store.paused("oci") == []


def test_inside_the_block_its_own_writes_are_seen_and_after_an_interruption_the_store_works_on(task):
    with suppress(KeyboardInterrupt), task.store.transaction():
        task.create_job()
        raise KeyboardInterrupt
    assert task.counts() == {}
    with task.store.transaction():
        job = task.create_job(key="k")
        assert task.state(job) == "ready"
        assert [claimed.id for claimed in task.claim()] == [job]
        assert task.counts() == {"running": 1}
        assert len(task.events(job)) == 2
    assert task.counts() == {"running": 1}


def test_a_refused_move_does_not_undo_the_rest(task):
    old = [task.move("fail", task.claim_new_job(key="k"), **error()).id for _ in range(2)]
    ready = task.create_job()
    with task.store.transaction():
        refused = task.apply_one("complete", ready)
        outcomes = task.apply("requeue", old, role="operator")
        task.create_job()
    assert refused.reason == "stale"
    assert sorted(results(outcomes)) == ["duplicate", "moved"]
    assert task.counts() == {"ready": 3, "failed": 1}


def test_a_chain_inside_a_block_is_kept_or_undone_with_it(pdf):
    job = pdf.claim_new_job()
    with rolled_back(pdf.store):
        pdf.move("fail", job, **error("NAVIGATION_TIMEOUT"))
    assert pdf.job(job) == job
    with pdf.store.transaction():
        pdf.move("fail", job, **error("NAVIGATION_TIMEOUT"))
        pdf.create_job()
    assert pdf.counts() == {"queued": 2}


# Blocks in blocks


def test_an_inner_block_is_kept_or_undone_with_the_outer_one_which_stays_whole_without_it(task):
    with rolled_back(task.store), task.store.transaction():
        task.create_job()
    with suppress(Undo), task.store.transaction():
        task.create_job()
        with task.store.transaction():
            task.create_job()
            raise Undo
    assert task.counts() == {}
    with task.store.transaction():
        first = task.create_job(key="first")
        with rolled_back(task.store):
            task.create_job(key="undone")
        with task.store.transaction():
            inner = task.create_job(key="inner")
        later = task.create_job(key="later")
    assert sorted(task.all()) == [first, inner, later]


# Threads


def test_another_threads_calls_do_not_join_the_block_and_never_see_what_was_undone(task):
    def other(mine):
        started.set()
        return task.store.job(mine), task.create_job(key="theirs")

    started = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with rolled_back(task.store):
            theirs = pool.submit(other, task.create_job(key="mine"))
            assert started.wait(10)
        seen, stored = theirs.result(10)
    assert (seen, list(task.all())) == (None, [stored])


def test_blocks_of_many_threads_keep_apart(task):
    def block(n):
        with task.store.transaction():
            first = task.create_job(key=f"{n}a")
            second = task.create_job(key=f"{n}b")
            if n % 2:
                raise Undo
        return first, second

    with ThreadPoolExecutor(4) as pool:
        blocks = [pool.submit(block, n) for n in range(10)]
    stored = [job for n in range(0, 10, 2) for job in blocks[n].result()]
    assert sorted(task.all()) == sorted(stored)
    assert all(isinstance(blocks[n].exception(), Undo) for n in range(1, 10, 2))


def test_of_two_producers_who_find_the_artifact_gone_one_makes_the_new_job(pdf):
    gone = rendered(pdf)

    def ask_again(_):
        with pdf.store.transaction():
            pdf.apply_one("artifact_gone", gone.id, **PRODUCER)
            return pdf.enqueue(pdf.new(key="k"))[0]

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(ask_again, range(6)))
    assert sorted(results(outcomes)) == ["duplicate"] * 5 + ["inserted"]
    assert len({outcome.id for outcome in outcomes}) == 1


def test_a_store_that_was_closed_is_not_taken_for_one_that_comes_back():
    """A worker would ask it again forever."""
    store = SqliteStore(":memory:")
    store.close()
    with pytest.raises(sqlite3.ProgrammingError), store.transaction():
        pass
