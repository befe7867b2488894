from dataclasses import replace
from typing import Any

import pytest

from kesin import BadInput, New, Queue, Unproved, Worker, task_lifecycle
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.errors import Category
from kesin.store.errors import StoreError
from kesin.store.records import Filter, Outcome
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.engine.conftest import moves, only, states

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


def test_enqueue_tells_what_it_did(queue: Queue, clock: ManualClock):
    outcome = queue.enqueue({"b": 1, "a": 2}, key="k", actor="importer")
    assert outcome == Outcome("inserted", outcome.id, "ready", 1)
    job = only(queue)
    assert (job.payload, job.data) == ('{"a":2,"b":1}', {"a": 2, "b": 1})
    assert (job.dedup_key, job.tenant, job.actor) == ("k", "default", "importer")
    assert job.created_at == job.run_at == clock.time_us


def test_a_key_that_is_held_gives_the_job_that_holds_it(queue: Queue):
    first = queue.enqueue({"n": 1}, key="k")
    again = queue.enqueue({"n": 2}, key="k")
    assert (again.result, again.id) == ("duplicate", first.id)
    assert only(queue).data == {"n": 1}
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
    assert {one[14] for one in ids} == {"7"}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no JSON": ({"payload": object()}, "not_json"),
    "a number that is none": ({"payload": {"x": float("nan")}}, "not_json"),
    "a payload that is too large": ({"payload": "x" * 262_144}, "payload_too_large"),
    "an empty key": ({"payload": 1, "key": ""}, "bad_key"),
    "a key that is only NUL": ({"payload": 1, "key": "\x00"}, "bad_key"),
    "a key that is too long": ({"payload": 1, "key": "k" * 513}, "bad_key"),
    "a key that is no text": ({"payload": 1, "key": 5}, "bad_key"),
    "an empty tenant": ({"payload": 1, "tenant": ""}, "bad_tenant"),
    "a time that is no number": ({"payload": 1, "run_at": "soon"}, "bad_run_at"),
    "a time before 1970": ({"payload": 1, "run_at": -1}, "bad_run_at"),
    "no attempts": ({"payload": 1, "max_attempts": 0}, "bad_max_attempts"),
    "too many attempts": ({"payload": 1, "max_attempts": 1_001}, "bad_max_attempts"),
    "attempts that are no number": ({"payload": 1, "max_attempts": True}, "bad_max_attempts"),
    "a stamp nobody declared": ({"payload": 1, "stamps": {"painted_at": 1}}, "unknown_stamp"),
}


@pytest.mark.parametrize(("kwargs", "code"), BAD.values(), ids=BAD)
def test_what_may_not_enter_is_refused_with_a_code(queue: Queue, kwargs: dict[str, Any], code: str):
    with pytest.raises(BadInput) as refusal:
        queue.enqueue(**kwargs)
    assert refusal.value.code == code
    assert refusal.value.field
    assert str(refusal.value)
    assert states(queue) == {}


def test_text_is_stripped_of_what_databases_choke_on(queue: Queue):
    queue.enqueue({"na\x00me": "a\x00b\ud800c"}, key="k\x00ey", tenant="izm\ud800ir")
    job = only(queue)
    assert (job.data, job.dedup_key, job.tenant) == ({"name": "abc"}, "key", "izmir")


def test_large_numbers_and_odd_text_come_back_as_they_went_in(queue: Queue):
    payload = {"n": 2**70, "f": 0.1, "t": "’ü漢🙂\u2028", "deep": [[[{}]]], "": None}
    queue.enqueue(payload)
    assert only(queue).data == payload


def test_the_limit_of_a_payload_can_be_set(store: SqliteStore, clock: ManualClock):
    queue = Queue("small", task_lifecycle(), store, clock=clock, max_payload_bytes=10)
    queue.enqueue("x" * 8)
    with pytest.raises(BadInput, match="11 bytes; the limit is 10"):
        queue.enqueue("x" * 9)


# Enqueue many


def test_a_bad_job_of_a_batch_comes_back_and_the_others_enter(queue: Queue):
    answers = queue.enqueue_many(
        [New(1), New(object()), New(2, key="k"), New(3, key="k"), New(4, tenant=""), New(5)]
    )
    kinds = [
        one.code if isinstance(one, BadInput) else one.result  # in the order they were given
        for one in answers
    ]
    assert kinds == ["inserted", "not_json", "inserted", "duplicate", "bad_tenant", "inserted"]
    assert sorted(job.data for job in queue.jobs().jobs) == [1, 2, 5]
    first, third = answers[2], answers[3]
    assert isinstance(first, Outcome)
    assert isinstance(third, Outcome)
    assert third.id == first.id


def test_a_batch_may_hold_nothing_or_nothing_good(queue: Queue):
    assert queue.enqueue_many([]) == []
    [problem] = queue.enqueue_many([New(object())])
    assert isinstance(problem, BadInput)


def test_a_batch_larger_than_one_statement_enters_whole_or_not_at_all(
    queue: Queue, store: SqliteStore
):
    calls: list[int] = []
    enqueue = store.enqueue

    def breaks(name: str, jobs: Any, **kwargs: Any) -> Any:
        calls.append(len(jobs))
        if len(calls) == 2:
            raise StoreError("gone")
        return enqueue(name, jobs, **kwargs)

    store.enqueue = breaks  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        queue.enqueue_many(New(n) for n in range(10_050))
    assert calls == [10_000, 50]
    assert states(queue) == {}


# Claim


def test_a_claim_takes_at_least_one(queue: Queue):
    with pytest.raises(BadInput, match="at least 1, got 0"):
        queue.claim("w", limit=0)


def test_a_claim_lasts_as_long_as_the_lifecycle_says_or_as_asked(queue: Queue, clock: ManualClock):
    queue.enqueue({})
    queue.enqueue({})
    [one] = queue.claim("w")
    [other] = queue.claim("w", lease_seconds=5)
    assert one.lease_until == clock.time_us + 60 * SECOND
    assert other.lease_until == clock.time_us + 5 * SECOND
    assert queue.renew([one, other]) == {one.id, other.id}


# Acting on jobs


def failed(queue: Queue, jobs: int, **kwargs: Any) -> list[str]:
    ids = [queue.enqueue({"n": n}, **kwargs).id for n in range(jobs)]
    queue.act("cancel", actor="operator", ids=ids)
    return ids


def test_an_act_by_ids_tells_what_became_of_each(queue: Queue):
    ids = failed(queue, 2)
    ready = queue.enqueue({}).id
    nobody = "00000000-0000-7000-8000-000000000000"
    bulk = queue.act("requeue", actor="ayşe", ids=[*ids, ready, nobody, "not an id"])
    assert (bulk.moved, bulk.already, bulk.refused) == (2, 1, {"unknown": 2})
    assert [one.result for one in bulk.outcomes] == [
        "moved",
        "moved",
        "already",
        "unknown",
        "unknown",
    ]
    assert queue.job(ids[0]).actor == "ayşe"  # type: ignore[union-attr]


def test_an_act_by_filter_reaches_every_job_that_matches_and_no_other(queue: Queue):
    failed(queue, 3, tenant="ankara")
    failed(queue, 2, tenant="izmir")
    bulk = queue.act("requeue", actor="o", where=Filter(states=("failed",), tenants=("ankara",)))
    assert bulk.moved == 3
    assert queue.stats().tenants["izmir"]["failed"] == 2


def test_an_act_by_filter_meets_each_job_once_even_where_it_stays_in_the_filter(queue: Queue):
    queue.enqueue_many(New(n) for n in range(2_345))
    bulk = queue.act("cancel", actor="o", where=Filter())
    assert (bulk.moved, bulk.refused) == (2_345, {})
    bulk = queue.act("requeue", actor="o", where=Filter(states=("failed", "ready")))
    assert (bulk.moved, bulk.already) == (2_345, 0)
    assert {job.seq for job in queue.jobs(limit=1_000).jobs} == {3}


def test_an_act_of_one_tenants_operator_does_not_see_another_tenants_jobs(queue: Queue):
    ids = failed(queue, 1, tenant="ankara")
    bulk = queue.act("requeue", actor="o", ids=ids, tenants=["izmir"])
    assert bulk.refused == {"unknown": 1}
    assert states(queue) == {"failed": 1}


def test_the_reason_of_an_act_is_kept_with_the_job(conversions: Queue):
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


def test_what_an_operator_leaves_unsaid_is_recorded_as_declared(conversions: Queue):
    job_id = conversions.enqueue({}).id
    conversions.act("MARK_FAILED", actor="ops", ids=[job_id])
    job = only(conversions)
    assert (job.error_code, job.error_category, job.error_message) == (
        "MANUAL_FAIL",
        "PERMANENT",
        "MANUALLY_MARKED_FAILED",
    )


def test_what_an_operator_says_wins_over_the_declaration(conversions: Queue):
    job_id = conversions.enqueue({}).id
    conversions.act(
        "MARK_FAILED", actor="ops", ids=[job_id], code="DUPLICATE_SALE", category=Category.AUTH,
        reason="sold twice",
    )  # fmt: skip
    job = only(conversions)
    assert (job.error_code, job.error_category, job.error_message) == (
        "DUPLICATE_SALE",
        "AUTH",
        "sold twice",
    )


@pytest.mark.parametrize("options", [frozenset(), frozenset({"clearErrors"})])
def test_an_option_of_the_call_decides_between_its_moves(
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
def test_an_act_that_cannot_be_is_refused(queue: Queue, kwargs: dict[str, Any], code: str):
    with pytest.raises(BadInput) as refusal:
        queue.act(**kwargs, actor="o")
    assert refusal.value.code == code


def test_an_act_on_nothing_does_nothing(queue: Queue):
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


def test_stats_count_by_state_and_tenant_and_tell_what_is_overdue(queue: Queue, clock: ManualClock):
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


def test_a_pause_is_told_with_who_and_why(queue: Queue, store: SqliteStore, clock: ManualClock):
    queue.pause(actor="ayşe", reason="stock-taking")
    [pause] = store.paused("work")
    assert (pause.tenant, pause.actor, pause.reason) == ("", "ayşe", "stock-taking")
    assert pause.at == clock.time_us
    assert queue.claim("w") == []


def test_the_history_of_a_job_is_told_in_order(queue: Queue):
    job_id = queue.enqueue({}).id
    Worker(queue, lambda _job: None, name="w").drain()
    assert moves(queue, job_id) == ["enqueue", "claim", "complete"]
    assert [event.actor for event in queue.events(job_id)] == ["producer", "w", "w"]
    assert queue.events("not an id") == []
