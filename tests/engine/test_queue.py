from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import kesin.engine.bulk
from kesin import BadInput, NewJob, Queue, Unproved, task_lifecycle
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.errors import Category
from kesin.store.errors import StoreError
from kesin.store.records import Filter, Outcome
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.engine.conftest import job_of, only, states

SECOND = 1_000_000


@pytest.fixture
def conversions(store: SqliteStore, clock: ManualClock) -> Queue:
    return Queue("oci", oci_lifecycle(), store, clock=clock)


# A queue's lifecycle is proved before it opens


def test_a_lifecycle_that_does_not_always_end_is_refused(store: SqliteStore):
    lifecycle = task_lifecycle()
    without = [move for move in lifecycle.moves if move.name != "recover"]
    broken = replace(lifecycle, moves=tuple(without))
    with pytest.raises(Unproved, match="R3"):
        Queue("work", broken, store)
    assert store.queues() == []


# Enqueue


def test_enqueue_returns_its_outcome(queue: Queue, clock: ManualClock):
    outcome = queue.enqueue({"b": 1, "a": 2}, key="k", actor="importer")
    assert outcome == Outcome("inserted", outcome.id, "ready", 1)
    job = only(queue)
    assert (job.payload_json, job.payload) == ('{"a":2,"b":1}', {"a": 2, "b": 1})
    assert (job.dedup_key, job.tenant, job.actor) == ("k", "default", "importer")
    assert job.created_at == job.run_at == clock.time_us


def test_a_delay_counts_from_now(queue: Queue, clock: ManualClock):
    queue.enqueue({}, delay_s=1.5)
    assert only(queue).run_at == clock.time_us + 1_500_000
    assert queue.claim("w") == []
    clock.advance(1.5)
    assert len(queue.claim("w")) == 1


@pytest.mark.parametrize("run_at", [0, 5, datetime(2026, 1, 1, tzinfo=UTC)])
def test_a_delay_and_a_time_are_refused_together(queue: Queue, run_at):
    with pytest.raises(BadInput, match="give delay_s or run_at, not both") as refused:
        queue.enqueue({}, delay_s=5, run_at=run_at)
    assert (refused.value.code, refused.value.field) == ("bad_delay_s", "delay_s")
    assert queue.stats().total == 0


def test_ids_rise_with_every_job_and_carry_the_clocks_time(queue: Queue, clock: ManualClock):
    ids = [queue.enqueue({}).id for _ in range(50)]
    clock.advance(-10)
    ids += [queue.enqueue({}).id for _ in range(50)]
    clock.advance(3_600)
    ids.append(queue.enqueue({}).id)
    assert ids == sorted(set(ids))
    assert int(ids[-1][:8] + ids[-1][9:13], 16) == clock.time_us // 1_000
    assert {job_id[14] for job_id in ids} == {"7"}


# Enqueue many


def test_a_batch_may_be_empty_or_all_bad(queue: Queue):
    assert queue.enqueue_many([]) == []
    [problem] = queue.enqueue_many([NewJob(object())])
    assert isinstance(problem, BadInput)


def test_a_batch_larger_than_one_statement_is_enqueued_whole_or_not_at_all(
    queue: Queue, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kesin.engine.queue, "MAX_BATCH", 100)
    calls: list[int] = []
    enqueue = store.enqueue

    def fail_second(name: str, jobs: Any, **kwargs: Any) -> Any:
        calls.append(len(jobs))
        if len(calls) == 2:
            raise StoreError("gone")
        return enqueue(name, jobs, **kwargs)

    monkeypatch.setattr(store, "enqueue", fail_second)
    with pytest.raises(StoreError):
        queue.enqueue_many(NewJob(n) for n in range(150))
    assert calls == [100, 50]
    assert states(queue) == {}


# Claim


def test_a_lease_lasts_as_declared_or_as_requested(queue: Queue, clock: ManualClock):
    queue.enqueue({})
    queue.enqueue({})
    [declared] = queue.claim("w")
    [requested] = queue.claim("w", lease_seconds=5)
    assert declared.lease_until == clock.time_us + 60 * SECOND
    assert requested.lease_until == clock.time_us + 5 * SECOND
    assert queue.renew([declared, requested]) == {declared.id, requested.id}
    with pytest.raises(BadInput, match="at least 1, got 0"):
        queue.claim("w", limit=0)


# Acting on jobs


def failed(queue: Queue, jobs: int, **kwargs: Any) -> list[str]:
    ids = [queue.enqueue({"n": n}, **kwargs).id for n in range(jobs)]
    queue.act("cancel", actor="operator", ids=ids)
    return ids


def test_an_action_by_ids_returns_the_outcome_of_each_job(queue: Queue):
    ids = failed(queue, 2)
    ready = queue.enqueue({}).id
    unknown = "00000000-0000-7000-8000-000000000000"
    bulk = queue.act("requeue", actor="ayşe", ids=[*ids, ready, unknown, "not an id"])
    assert (bulk.moved, bulk.already, bulk.refused) == (2, 1, {"unknown": 2})
    results = [outcome.result for outcome in bulk.outcomes]
    assert results == ["moved", "moved", "already", "unknown", "unknown"]
    assert job_of(queue, ids[0]).actor == "ayşe"


def test_an_action_by_filter_reaches_every_job_that_matches_and_no_other(queue: Queue):
    failed(queue, 3, tenant="ankara")
    failed(queue, 2, tenant="izmir")
    bulk = queue.act("requeue", actor="o", where=Filter(states=("failed",), tenants=("ankara",)))
    assert bulk.moved == 3
    assert queue.stats().tenants["izmir"]["failed"] == 2


def test_an_action_by_filter_reaches_each_job_once_even_if_it_still_matches(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kesin.engine.bulk, "MAX_PAGE", 100)
    queue.enqueue_many(NewJob(n) for n in range(234))
    bulk = queue.act("cancel", actor="o", where=Filter())
    assert (bulk.moved, bulk.refused) == (234, {})
    bulk = queue.act("requeue", actor="o", where=Filter(states=("failed", "ready")))
    assert (bulk.moved, bulk.already) == (234, 0)
    assert {job.seq for job in queue.jobs(limit=1_000).jobs} == {3}


@pytest.mark.parametrize(
    ("details", "error"),
    [
        ({}, ("MANUAL_FAIL", "PERMANENT", "MANUALLY_MARKED_FAILED")),
        ({"code": "SOLD_TWICE", "category": Category.AUTH, "reason": "twice"}, ("SOLD_TWICE", "AUTH", "twice")),
    ],
)
def test_the_error_of_an_action_is_the_declared_one_unless_the_operator_gives_one(
    conversions: Queue, details: dict[str, Any], error: tuple[str, str, str]
):
    job_id = conversions.enqueue({}).id
    conversions.act("MARK_FAILED", actor="ops", ids=[job_id], **details)
    job = only(conversions)
    assert (job.error_code, job.error_category, job.error_message) == error
    assert job.note == ('{"reason":"twice"}' if details else None)
    assert conversions.events(job_id)[-1].actor == "ops"


@pytest.mark.parametrize("options", [frozenset(), frozenset({"clearErrors"})])
def test_an_option_of_the_action_decides_between_its_moves(conversions: Queue, options: frozenset[str]):
    job_id = conversions.enqueue({}).id
    conversions.act("MARK_FAILED", actor="o", ids=[job_id], code="X", reason="because")
    conversions.act("RESET_TO_QUEUED", actor="o", ids=[job_id], options=options)
    assert only(conversions).error_code == (None if options else "X")


@pytest.mark.parametrize(
    ("kwargs", "code"),
    [
        ({"action": "requeue"}, "bad_selection"),
        ({"action": "requeue", "ids": [], "max_attempts": 0}, "bad_max_attempts"),
        ({"action": "requeue", "ids": [], "where": Filter()}, "bad_selection"),
        ({"action": "dance", "ids": []}, "unknown_call"),
        ({"action": "complete", "ids": []}, "unknown_call"),
        ({"action": "recover", "ids": []}, "unknown_call"),
    ],
)
def test_a_bad_action_is_refused(queue: Queue, kwargs: dict[str, Any], code: str):
    with pytest.raises(BadInput) as refusal:
        queue.act(**kwargs, actor="o")
    assert refusal.value.code == code
    nothing = queue.act("requeue", actor="o", ids=[])
    assert (nothing.moved, nothing.already, nothing.refused, nothing.outcomes) == (0, 0, {}, [])


# Reading


def test_a_job_of_another_queue_is_not_this_queues(queue: Queue, conversions: Queue):
    job_id = conversions.enqueue({}).id
    assert queue.job(job_id) is None
    assert conversions.job(job_id) is not None
    assert queue.job("not an id") is None
    assert queue.act("cancel", actor="o", ids=[job_id]).refused == {"unknown": 1}
