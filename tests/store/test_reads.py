"""Reads without writes: previews of a claim, jobs by id, holders of keys, the backlog."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest

from kesin.engine.queue import Queue
from kesin.engine.validation import BadInput
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreError, UnknownQueue
from kesin.store.limits import MAX_BATCH
from kesin.store.records import Backlog, Filter
from kesin.store.sql.reader import SqlReader
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.store.scene import DAY, HOUR, LEASE_S, MINUTE, NOW, SECOND, UNKNOWN_ID, count_rows, error, sent_by

NOTHING = Backlog(None, {}, 0, 0)


def ids(jobs):
    return [job.id for job in jobs]


# What a claim would give


def test_a_peek_shows_the_jobs_a_claim_then_gives_in_its_order(oci):
    """``test_histories`` compares every claim with the peek before it."""
    chance = random.Random(7)
    for n in range(40):
        tenant = chance.choice("aaaabc")
        oci.create_job(tenant=tenant, key=f"k{n}", run_at=NOW + chance.randint(-9, 3) * MINUTE)
    for limit, tenants in ((1, None), (3, ["b", "c", "b"]), (2, ["a"]), (5, None), (4, []), (3, ["z"]), (9, None)):
        seen = oci.peek(limit, tenants=tenants)
        assert ids(oci.claim(limit, tenants=tenants)) == ids(seen)


def test_a_peek_shows_what_a_claim_would_give_and_changes_nothing(oci):
    oci.claim_new_job(tenant="held")
    oci.create_job(tenant="later", run_at=NOW + 1)
    spent = oci.claim_new_job(tenant="spent", max_attempts=1)
    oci.move("retry_later", spent, **error())
    oci.clock.advance(DAY / SECOND)
    oci.store.pause("oci", tenant="paused", actor="op", now=NOW)
    oci.create_job(tenant="paused")
    oci.create_job(tenant="other", key="k", payload='{"a":1}')
    before = oci.snapshot(), oci.store.move_counts("oci")
    assert oci.peek(0) == []
    seen = oci.peek(9)
    assert [job.tenant for job in seen] == ["later", "other"]
    assert seen == [oci.job(job) for job in seen]
    assert len(oci.store.peek("oci", limit=1)) == 1, "without a time, by the clock of the store"
    assert (oci.snapshot(), oci.store.move_counts("oci")) == before
    oci.store.pause("oci", actor="op", now=NOW)
    assert oci.peek(9) == []


def test_a_peek_is_one_statement(oci, statements):
    """On SQLite it walks the tenants: as many statements for each, however many jobs they have."""
    in_sqlite = isinstance(oci.store, SqliteStore)
    oci.create_jobs(2, tenant="a")
    counts = []
    with oci.store.transaction():  # where SQLite reads through the connection that is watched
        counts.append(sent_by(statements, lambda: oci.peek(4)))
        oci.create_jobs(200, tenant="a")
        counts += [sent_by(statements, partial(oci.peek, limit)) for limit in (1, 4, 200)]
        oci.create_jobs(2, tenant="b")
        counts.append(sent_by(statements, lambda: oci.peek(4)))
    assert counts == ([4] * 4 + [6] if in_sqlite else [1] * 5)
    assert not any("FOR UPDATE" in sql for sql in statements)


def test_a_peek_does_not_block_a_claim(oci):
    oci.create_jobs(2)
    with oci.store.transaction():
        seen = oci.peek(2)
        assert ids(oci.claim(2, worker="w2")) == ids(seen)
        assert oci.peek(2) == []


def test_a_peek_at_a_queue_with_an_exclusive_claim_shows_one_job(lonely):
    first, _ = lonely.create_jobs(2)
    assert ids(lonely.peek(5)) == [first]
    assert ids(lonely.claim(5)) == [first]
    assert lonely.peek(5) == []


def test_a_peek_at_rivals_for_a_key_shows_the_one_that_a_claim_takes(open_queue):
    """And the other takes no turn of another tenant."""
    lifecycle = task_lifecycle()
    states = tuple(replace(state, holds_key=state.name == "running") for state in lifecycle.states)
    scene = open_queue(replace(lifecycle, name="rivals", states=states))
    first, _, other = (scene.create_job(key=key, tenant="b") for key in ("k", "k", "other"))
    scene.clock.advance(1)
    foreign = scene.create_job(tenant="a")
    for limit, expected in ((1, [foreign]), (5, [first]), (5, [other])):
        assert ids(scene.peek(limit)) == expected
        assert ids(scene.claim(limit)) == expected
    assert scene.peek(5) == scene.claim(5) == []


# Jobs by id


def test_jobs_and_their_states_are_read_by_id_in_one_statement(oci, task, statements):
    claimed, waiting = oci.claim_new_job(key="k", payload="[1]"), oci.create_job(tenant="b")
    ids = [claimed.id, waiting, task.create_job(), UNKNOWN_ID, waiting.upper(), waiting]
    ids += ["", "nope", "' OR 1=1 --", "\x00"]
    jobs, states = {}, {}
    with oci.store.transaction():  # where SQLite reads through the connection that is watched
        assert sent_by(statements, lambda: jobs.update(oci.store.find("oci", ids))) == 1
        assert sent_by(statements, lambda: states.update(oci.store.states("oci", ids))) == 1
    assert jobs == {claimed.id: claimed, waiting: oci.job(waiting)}
    assert states == {claimed.id: "PROCESSING", waiting: "QUEUED"}
    for none in (["nope"], []):
        assert oci.store.find("oci", none) == oci.store.states("oci", none) == {}


# Who holds a key


def test_the_holder_of_each_key_is_read(oci, task):
    odd = ["it's", "100%", "{schema}", ":now", "İ", '"', "a\\b"]
    holders = {"b": oci.claim_new_job(key="b").id}
    holders |= {key: oci.create_job(key=key) for key in ("a", *odd)}
    other = oci.create_job(key="a", tenant="other")
    oci.create_job()
    task.create_job(key="c")
    keys = [*odd, "b", "a", "c", "a", ""]
    assert oci.store.ids_by_key("oci", "default", keys) == holders
    assert oci.store.ids_by_key("oci", "nobody", ["a"]) == {}
    assert oci.store.ids_by_key("oci", "default", []) == {}
    assert set(oci.store.key_holders("oci", ["other", "default", "z"], "a")) == {holders["a"], other}
    assert oci.store.key_holders("oci", ["other"], "a") == [other]
    assert oci.store.key_holders("oci", [], "a") == oci.store.key_holders("oci", ["other"], "b") == []


def test_a_released_key_has_no_holder_until_the_next(task):
    task.move("complete", task.claim_new_job(key="k"))
    assert task.store.ids_by_key("task", "default", ["k"]) == {}
    again = task.create_job(key="k")
    assert task.store.ids_by_key("task", "default", ["k"]) == {"k": again}


# What waits


def waiting(scene, tenant="default", **how):
    return scene.store.backlog(scene.queue, tenant, now=scene.now, **how)


def test_the_backlog_of_a_tenant_is_read(oci):
    """``test_histories`` compares that of every tenant with the reference."""
    assert waiting(oci, aged=("conversion_at", NOW)) == NOTHING
    oci.claim_new_job()
    oci.create_job(tenant="b", run_at=NOW - DAY, stamps={"conversion_at": NOW - 85 * DAY})
    assert waiting(oci) == NOTHING
    oci.create_job(run_at=NOW + HOUR, stamps={"conversion_at": NOW - 85 * DAY})
    assert waiting(oci) == Backlog(None, {"QUEUED": NOW}, 0, 0)
    assert oci.store.backlog("oci", "default").oldest_due_at == NOW + HOUR, "by the store's own clock"
    oci.clock.advance(LEASE_S)
    for minutes in (1, 9, 5):
        oci.create_job(run_at=NOW - minutes * MINUTE, stamps={"conversion_at": NOW - 80 * DAY})
    aged = [waiting(oci, aged=("conversion_at", NOW - days * DAY + 1)).aging for days in (86, 85, 80)]
    assert aged == [0, 1, 4]
    assert waiting(oci) == Backlog(NOW - 9 * MINUTE, {"QUEUED": NOW}, 1, 0)
    assert waiting(oci, "b", aged=("conversion_at", NOW)) == Backlog(NOW - DAY, {"QUEUED": NOW}, 0, 1)


def test_a_sql_store_also_counts_by_the_fourth_stamp(oci):
    for days in (1, 3):
        oci.create_job(stamps={"conversion_at": NOW, "expires_at": NOW + days * DAY})
    oci.create_job(tenant="b", stamps={"conversion_at": NOW, "expires_at": NOW + 2 * DAY})
    oci.create_job(stamps={"conversion_at": NOW})
    if isinstance(oci.store, SqlReader):
        assert oci.store.aging("oci", ("expires_at", NOW + 2 * DAY + 1)) == {"default": 1, "b": 1}
    else:
        with pytest.raises(StoreError, match="'expires_at' is not the first stamp"):
            oci.store.aging("oci", ("expires_at", NOW))


def test_age_is_measured_by_the_first_stamp_only(oci, task):
    for stamp in ("uploaded_at", "created_at", "nothing", ""):
        with pytest.raises(StoreError, match=f"'{stamp}' is not the first stamp of the queue 'oci'"):
            waiting(oci, aged=(stamp, NOW))
    with pytest.raises(StoreError, match="is not the first stamp"):
        waiting(task, aged=("created_at", NOW))


# Limits


def test_an_unknown_queue_is_refused_by_name(task):
    store, expire = task.store, task.lifecycle.scheduled_moves[0]
    for call in (
        lambda: store.enqueue("nope", [task.new()], actor="x", now=NOW),
        lambda: store.claim("nope", worker="w", limit=1, lease_us=1, now=NOW),
        lambda: store.apply("nope", "complete", [], role="worker", actor="w", now=NOW),
        lambda: store.renew("nope", [(UNKNOWN_ID, 1)], lease_us=1, now=NOW),
        lambda: store.sweep("nope", expire, limit=1, now=NOW),
        lambda: store.jobs("nope", Filter()),
        lambda: store.stats("nope", now=NOW),
        lambda: store.compact("nope"),
        lambda: store.peek("nope", limit=1),
        lambda: store.find("nope", [UNKNOWN_ID]),
        lambda: store.states("nope", [UNKNOWN_ID]),
        lambda: store.ids_by_key("nope", "a", ["k"]),
        lambda: store.backlog("nope", "a"),
    ):
        with pytest.raises(UnknownQueue, match="'nope' is not open on this store: open it first"):
            call()
    assert not count_rows(store)


def test_a_call_takes_no_more_jobs_or_keys_than_a_batch(oci):
    many = ["x"] * (MAX_BATCH + 1)
    for call in (
        lambda: oci.store.find("oci", many),
        lambda: oci.store.states("oci", many),
        lambda: oci.store.ids_by_key("oci", "default", many),
        lambda: oci.claim(ids=many),
        lambda: oci.apply("ack", many),
    ):
        with pytest.raises(StoreError, match="at most 10000 jobs, got 10001"):
            call()


# Through a queue


def test_a_queue_reads_its_store_at_its_own_time(store):
    clock = ManualClock(NOW)
    queue = Queue("oci", oci_lifecycle(), store, clock=clock)
    stamp = {"conversion_at": NOW - 80 * DAY}
    made = queue.enqueue({"city": "İzmir"}, key="a\0b", tenant="n\0orth", stamps=stamp)
    later = queue.enqueue({}, tenant="north", run_at=NOW + HOUR)
    assert ids(queue.peek(limit=5)) == ids(queue.peek(tenants=["no\0rth"])) == [made.id]
    assert list(queue.find([later.id, "nope"])) == [later.id]
    assert queue.holders("north", ["a\0b", "ab", "c"]) == {"a\0b": made.id, "ab": made.id}
    expected = Backlog(NOW, {"QUEUED": NOW}, 0, 1)
    assert queue.waiting("no\0rth", ("conversion_at", NOW)) == expected
    assert ids(queue.jobs(Filter(contains="İz\0mir")).jobs) == [made.id]
    clock.advance(3_600)
    assert ids(queue.peek(limit=5)) == [made.id, later.id]


@pytest.mark.parametrize("store", ["sqlite-file"], indirect=True)
def test_a_queue_refuses_to_peek_at_less_than_one_job(store):
    queue = Queue("oci", oci_lifecycle(), store)
    with pytest.raises(BadInput, match="limit must be at least 1, got 0"):
        queue.peek(limit=0)
