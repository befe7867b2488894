from dataclasses import replace
from typing import Any

import pytest

import kesin.engine.queue
from kesin import BadInput, NewJob, Queue, Unproved, Worker, task_lifecycle
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.errors import Category
from kesin.store.errors import StoreError
from kesin.store.records import Filter, Outcome
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.engine.conftest import job_of, moves, only, states

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


def test_a_duplicate_key_returns_the_job_that_holds_it(queue: Queue):
    first = queue.enqueue({"n": 1}, key="k")
    again = queue.enqueue({"n": 2}, key="k")
    assert (again.result, again.id) == ("duplicate", first.id)
    assert only(queue).payload == {"n": 1}
    assert [note.kind for note in queue.notes(first.id)] == ["duplicate"]
    assert queue.enqueue({"n": 3}, key="k", tenant="izmir").result == "inserted"


def test_a_delay_counts_from_now(queue: Queue, clock: ManualClock):
    queue.enqueue({}, delay_s=1.5)
    assert only(queue).run_at == clock.time_us + 1_500_000
    assert queue.claim("w") == []
    clock.advance(1.5)
    assert len(queue.claim("w")) == 1


def test_ids_rise_with_every_job_and_carry_the_clocks_time(queue: Queue, clock: ManualClock):
    ids = [queue.enqueue({}).id for _ in range(50)]
    clock.advance(-10)
    ids += [queue.enqueue({}).id for _ in range(50)]
    clock.advance(3_600)
    ids.append(queue.enqueue({}).id)
    assert ids == sorted(set(ids))
    assert int(ids[-1][:8] + ids[-1][9:13], 16) == clock.time_us // 1_000
    assert {job_id[14] for job_id in ids} == {"7"}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no JSON": ({"payload": object()}, "not_json"),
    "a number that is none": ({"payload": {"x": float("nan")}}, "not_json"),
    "a payload that is too large": ({"payload": "x" * 262_144}, "payload_too_large"),
    "an empty key": ({"payload": 1, "key": ""}, "bad_key"),
    "a key that is only NUL": ({"payload": 1, "key": "\x00"}, "bad_key"),
    "a key that is too long": ({"payload": 1, "key": "k" * 513}, "bad_key"),
    "a key that is no text": ({"payload": 1, "key": 5}, "bad_key"),
    "an empty tenant": ({"payload": 1, "tenant": ""}, "bad_tenant"),
    "a time before 1970": ({"payload": 1, "run_at": -1}, "bad_run_at"),
    "no attempts": ({"payload": 1, "max_attempts": 0}, "bad_max_attempts"),
    "too many attempts": ({"payload": 1, "max_attempts": 1_001}, "bad_max_attempts"),
    "attempts that are no number": ({"payload": 1, "max_attempts": True}, "bad_max_attempts"),
    "an undeclared stamp": ({"payload": 1, "stamps": {"painted_at": 1}}, "unknown_stamp"),
}


@pytest.mark.parametrize(("kwargs", "code"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_with_a_code(queue: Queue, kwargs: dict[str, Any], code: str):
    with pytest.raises(BadInput) as refusal:
        queue.enqueue(**kwargs)
    assert refusal.value.code == code
    assert refusal.value.field
    assert str(refusal.value)
    assert states(queue) == {}


def test_text_is_stripped_of_nul_and_lone_surrogates(queue: Queue):
    queue.enqueue({"na\x00me": "a\x00b\ud800c"}, key="k\x00ey", tenant="izm\ud800ir")
    job = only(queue)
    assert (job.payload, job.dedup_key, job.tenant) == ({"name": "abc"}, "key", "izmir")


def test_large_numbers_and_unicode_text_are_stored_unchanged(queue: Queue):
    payload = {"n": 2**70, "f": 0.1, "t": "’ü漢🙂\u2028", "deep": [[[{}]]], "": None}
    queue.enqueue(payload)
    assert only(queue).payload == payload


def test_the_limit_of_a_payload_can_be_set(store: SqliteStore, clock: ManualClock):
    queue = Queue("small", task_lifecycle(), store, clock=clock, max_payload_bytes=10)
    queue.enqueue("x" * 8)
    with pytest.raises(BadInput, match="11 bytes; the limit is 10"):
        queue.enqueue("x" * 9)


# Enqueue many


def test_a_bad_job_of_a_batch_is_returned_and_the_others_are_enqueued(queue: Queue):
    jobs = [NewJob(1), NewJob(object()), NewJob(2, key="k"), NewJob(3, key="k")]
    outcomes = queue.enqueue_many([*jobs, NewJob(4, tenant=""), NewJob(5)])
    results = [
        outcome.code if isinstance(outcome, BadInput) else outcome.result for outcome in outcomes
    ]
    assert results == ["inserted", "not_json", "inserted", "duplicate", "bad_tenant", "inserted"]
    assert sorted(job.payload for job in queue.jobs().jobs) == [1, 2, 5]
    inserted, duplicate = outcomes[2:4]
    assert isinstance(inserted, Outcome)
    assert isinstance(duplicate, Outcome)
    assert duplicate.id == inserted.id


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


def test_a_claim_with_a_limit_below_one_is_refused(queue: Queue):
    with pytest.raises(BadInput, match="at least 1, got 0"):
        queue.claim("w", limit=0)


def test_a_lease_lasts_as_declared_or_as_requested(queue: Queue, clock: ManualClock):
    queue.enqueue({})
    queue.enqueue({})
    [declared] = queue.claim("w")
    [requested] = queue.claim("w", lease_seconds=5)
    assert declared.lease_until == clock.time_us + 60 * SECOND
    assert requested.lease_until == clock.time_us + 5 * SECOND
    assert queue.renew([declared, requested]) == {declared.id, requested.id}


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
    monkeypatch.setattr(kesin.engine.queue, "MAX_PAGE", 100)
    queue.enqueue_many(NewJob(n) for n in range(234))
    bulk = queue.act("cancel", actor="o", where=Filter())
    assert (bulk.moved, bulk.refused) == (234, {})
    bulk = queue.act("requeue", actor="o", where=Filter(states=("failed", "ready")))
    assert (bulk.moved, bulk.already) == (234, 0)
    assert {job.seq for job in queue.jobs(limit=1_000).jobs} == {3}


def test_an_action_limited_to_tenants_does_not_see_other_tenants_jobs(queue: Queue):
    ids = failed(queue, 1, tenant="ankara")
    bulk = queue.act("requeue", actor="o", ids=ids, tenants=["izmir"])
    assert bulk.refused == {"unknown": 1}
    assert states(queue) == {"failed": 1}


def test_the_reason_of_an_action_is_stored_with_the_job(conversions: Queue):
    job_id = conversions.enqueue({}).id
    conversions.act(
        "MARK_FAILED",
        actor="ayşe",
        ids=[job_id],
        reason="the click was a test",
        code="MANUAL_FAIL",
        category=Category.PERMANENT,
    )
    job = only(conversions)
    assert (job.error_code, job.error_category) == ("MANUAL_FAIL", "PERMANENT")
    assert job.error_message == "the click was a test"
    assert job.note == '{"reason":"the click was a test"}'
    assert conversions.events(job_id)[-1].actor == "ayşe"


@pytest.mark.parametrize(
    ("details", "error"),
    [
        ({}, ("MANUAL_FAIL", "PERMANENT", "MANUALLY_MARKED_FAILED")),
        (
            {"code": "SOLD_TWICE", "category": Category.AUTH, "reason": "twice"},
            ("SOLD_TWICE", "AUTH", "twice"),
        ),
    ],
)
def test_the_error_of_an_action_is_the_declared_one_unless_the_operator_gives_one(
    conversions: Queue, details: dict[str, Any], error: tuple[str, str, str]
):
    job_id = conversions.enqueue({}).id
    conversions.act("MARK_FAILED", actor="ops", ids=[job_id], **details)
    job = only(conversions)
    assert (job.error_code, job.error_category, job.error_message) == error


@pytest.mark.parametrize("options", [frozenset(), frozenset({"clearErrors"})])
def test_an_option_of_the_action_decides_between_its_moves(
    conversions: Queue, options: frozenset[str]
):
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


def test_an_action_on_no_jobs_does_nothing(queue: Queue):
    bulk = queue.act("requeue", actor="o", ids=[])
    assert (bulk.moved, bulk.already, bulk.refused, bulk.outcomes) == (0, 0, {}, [])


# Reading


def test_a_job_of_another_queue_is_not_this_queues(queue: Queue, conversions: Queue):
    job_id = conversions.enqueue({}).id
    assert queue.job(job_id) is None
    assert conversions.job(job_id) is not None
    assert queue.job("not an id") is None
    assert queue.act("cancel", actor="o", ids=[job_id]).refused == {"unknown": 1}


def test_jobs_come_in_pages_newest_first(queue: Queue):
    ids = [queue.enqueue({"n": n}).id for n in range(5)]
    page = queue.jobs(limit=2)
    seen = [job.id for job in page.jobs]
    while page.cursor:
        page = queue.jobs(limit=2, cursor=page.cursor)
        seen += [job.id for job in page.jobs]
    assert seen == ids[::-1]


def test_stats_count_by_state_and_tenant_and_show_overdue_jobs(queue: Queue, clock: ManualClock):
    queue.enqueue({}, tenant="ankara")
    clock.advance(5)
    queue.enqueue({}, tenant="izmir")
    queue.enqueue({}, tenant="izmir", delay_s=60)
    stats = queue.stats()
    assert (stats.states["ready"], stats.total) == (3, 3)
    assert stats.tenants["izmir"]["ready"] == 2
    assert stats.oldest_due_at == clock.time_us - 5 * SECOND
    queue.claim("w", limit=3)
    clock.advance(60)
    assert (queue.stats().lease_over, queue.stats().states["running"]) == (2, 2)


def test_a_pause_has_an_actor_a_reason_and_a_time(
    queue: Queue, store: SqliteStore, clock: ManualClock
):
    queue.pause(actor="ayşe", reason="stock-taking")
    [pause] = store.paused("work")
    assert (pause.tenant, pause.actor, pause.reason) == ("", "ayşe", "stock-taking")
    assert pause.at == clock.time_us
    assert queue.claim("w") == []


def test_the_events_of_a_job_come_in_order(queue: Queue):
    job_id = queue.enqueue({}).id
    Worker(queue, lambda _job: None, name="w").drain()
    assert moves(queue, job_id) == ["enqueue", "claim", "complete"]
    assert [event.actor for event in queue.events(job_id)] == ["producer", "w", "w"]
    assert queue.events("not an id") == []
