"""Transactions: several calls, all or nothing, and only this thread's."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from kesin.store.records import Outcome
from kesin.store.redis.store import RedisStore
from kesin.store.sqlite.store import SqliteStore
from tests.store.scene import NOW, PRODUCER, error, rows

TABLES = ("job", "job_body", "event", "note", "flow")


class Changed(Exception):  # nothing failed: a caller changed its mind
    """Raised inside a block to undo it."""


@contextmanager
def undone(store):
    """A block whose caller changes its mind at the end."""
    with suppress(Changed), store.transaction():
        yield
        raise Changed


def everything(store):
    """All there is, in a fixed order."""
    if isinstance(store, RedisStore):
        return {key: contents(store, key) for key in store.client.keys("*")}
    return [sorted(rows(store, f"SELECT * FROM {{{t}}}"), key=repr) for t in TABLES]


def contents(store, key):
    """What a key of Redis holds."""
    client = store.client
    reading = {
        "string": client.get,
        "hash": client.hgetall,
        "set": client.smembers,
        "list": lambda one: client.lrange(one, 0, -1),
        "zset": lambda one: client.zrange(one, 0, -1, withscores=True),
        "stream": client.xrange,
    }
    return reading[client.type(key)](key)


def rendered(pdf, key="k"):
    return pdf.move("succeed", pdf.claim_new_job(key=key))


def test_two_calls_in_a_block_are_both_kept(pdf):
    gone = rendered(pdf)
    new = pdf.new(key="k")
    with pdf.store.transaction():
        pdf.move("artifact_gone", gone.id, **PRODUCER)
        (outcome,) = pdf.enqueue(new)
    assert outcome == Outcome("inserted", new.id, "queued", 1)
    assert (pdf.state(gone), pdf.state(new.id)) == ("expired", "queued")


def test_an_exception_undoes_both_calls(pdf):
    gone = rendered(pdf)
    before = everything(pdf.store)
    with undone(pdf.store):
        pdf.move("artifact_gone", gone.id, **PRODUCER)
        pdf.enqueue(pdf.new(key="k"))
    assert everything(pdf.store) == before


def test_an_undone_block_leaves_the_key_with_its_old_holder(pdf):
    gone = rendered(pdf)
    with undone(pdf.store):
        pdf.move("artifact_gone", gone.id, **PRODUCER)
    assert pdf.enqueue(pdf.new(key="k"))[0].id == gone.id


def test_every_kind_of_call_is_undone(oci):
    waiting = oci.claim_new_job(key="w", tenant="a")
    lost = oci.claim_new_job(tenant="b")
    before = everything(oci.store)
    with undone(oci.store):
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


def test_inside_the_block_its_own_writes_are_seen(task):
    with task.store.transaction():
        job = task.create_job(key="k")
        assert task.state(job) == "ready"
        assert [one.id for one in task.claim()] == [job]
        assert task.counts() == {"running": 1}
        assert len(task.events(job)) == 2


def test_an_interruption_undoes_the_block_too(task):
    with suppress(KeyboardInterrupt), task.store.transaction():
        task.create_job()
        raise KeyboardInterrupt
    assert task.counts() == {}


def test_the_store_works_on_after_an_undone_block(task):
    with undone(task.store):
        task.create_job()
    with task.store.transaction():
        task.create_job()
    assert task.counts() == {"ready": 1}


def test_a_refused_move_does_not_undo_the_rest(pdf):
    job = pdf.create_job()
    with pdf.store.transaction():
        outcome = pdf.apply_one("artifact_gone", job, **PRODUCER)
        pdf.create_job()
    assert outcome.result == "refused"
    assert pdf.counts() == {"queued": 2}


def test_a_move_refused_for_its_key_does_not_undo_the_rest(task):
    old = task.move("fail", task.claim_new_job(key="k"), **error())
    task.create_job(key="k")
    with task.store.transaction():
        outcome = task.apply_one("requeue", old.id, role="operator")
        task.create_job()
    assert outcome.reason == "duplicate"
    assert task.counts() == {"ready": 2, "failed": 1}


def test_two_equal_moves_into_a_key_do_not_undo_the_rest(task):
    old = [task.move("fail", task.claim_new_job(key="k"), **error()).id for _ in range(2)]
    with task.store.transaction():
        outcomes = task.apply("requeue", old, role="operator")
        task.create_job()
    assert sorted(one.result for one in outcomes) == ["moved", "refused"]
    assert task.counts() == {"ready": 2, "failed": 1}


def test_a_chain_inside_a_block_is_kept_with_it(pdf):
    job = pdf.claim_new_job()
    with pdf.store.transaction():
        pdf.move("fail", job, **error("NAVIGATION_TIMEOUT"))
        pdf.create_job()
    assert pdf.counts() == {"queued": 2}


def test_a_chain_inside_a_block_is_undone_with_it(pdf):
    job = pdf.claim_new_job()
    with undone(pdf.store):
        pdf.move("fail", job, **error("NAVIGATION_TIMEOUT"))
    assert pdf.job(job) == job


# Blocks in blocks


def test_an_inner_block_is_kept_with_the_outer_one(task):
    with task.store.transaction():
        task.create_job()
        with task.store.transaction():
            task.create_job()
    assert task.counts() == {"ready": 2}


def test_an_inner_block_is_undone_with_the_outer_one(task):
    with undone(task.store), task.store.transaction():
        task.create_job()
    assert task.counts() == {}


def test_an_undone_inner_block_leaves_the_outer_one_whole(task):
    with task.store.transaction():
        kept = task.create_job(key="kept")
        with undone(task.store):
            task.create_job(key="undone")
        later = task.create_job(key="later")
    assert sorted(task.all()) == [kept, later]


def test_an_exception_through_both_blocks_undoes_both(task):
    with suppress(Changed), task.store.transaction():
        task.create_job()
        with task.store.transaction():
            task.create_job()
            raise Changed
    assert task.counts() == {}


# Threads


def test_another_threads_calls_do_not_join_the_block(task):
    def other():
        started.set()
        return task.create_job(key="theirs")

    started = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with undone(task.store):
            task.create_job(key="mine")
            theirs = pool.submit(other)
            assert started.wait(10)
        kept = theirs.result(10)
    assert list(task.all()) == [kept]


def test_another_thread_never_sees_what_was_undone(task):
    def other(job):
        started.set()
        return task.store.job(job)

    started = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with undone(task.store):
            seen = pool.submit(other, task.create_job())
            assert started.wait(10)
        assert seen.result(10) is None


def test_blocks_of_many_threads_keep_apart(task):
    def block(n):
        with task.store.transaction():
            first = task.create_job(key=f"{n}a")
            second = task.create_job(key=f"{n}b")
            if n % 2:
                raise Changed
        return first, second

    with ThreadPoolExecutor(4) as pool:
        blocks = [pool.submit(block, n) for n in range(10)]
    kept = [one for n in range(0, 10, 2) for one in blocks[n].result()]
    assert sorted(task.all()) == sorted(kept)
    assert all(isinstance(blocks[n].exception(), Changed) for n in range(1, 10, 2))


def test_of_two_producers_who_find_the_artifact_gone_one_makes_the_new_job(pdf):
    gone = rendered(pdf)

    def ask_again(_):
        with pdf.store.transaction():
            pdf.apply_one("artifact_gone", gone.id, **PRODUCER)
            return pdf.enqueue(pdf.new(key="k"))[0]

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask_again, range(6)))
    assert sorted(one.result for one in answers) == ["duplicate"] * 5 + ["inserted"]
    assert len({one.id for one in answers}) == 1


def test_a_store_that_was_closed_is_not_taken_for_one_that_comes_back():
    """A worker would ask it again for ever."""
    store = SqliteStore(":memory:")
    store.close()
    with pytest.raises(sqlite3.ProgrammingError), store.transaction():
        pass
