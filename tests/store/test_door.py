"""The door: what a queue lets in, cleaned and in one spelling, and what it refuses."""

from __future__ import annotations

import math

import pytest

from kesin import BadInput, New, Queue
from kesin.foundation.clock import ManualClock
from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.store.records import Filter, Outcome
from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.store.conftest import listed
from tests.store.scene import NOW, error, kept

NUL, SURROGATE = chr(0), chr(0xD800)


@pytest.fixture
def queue(store):
    """The door: text, sizes and types are checked here and nowhere below."""
    return Queue("task", task_lifecycle(), store, clock=ManualClock(NOW), seed=1)


def nothing_was_written(store):
    return not kept(store)


def stored(queue, payload):
    return queue.job(queue.enqueue(payload).id).payload


def test_a_payload_is_stored_in_one_spelling(queue):
    assert stored(queue, {"b": [1, 2], "a": {"d": None, "c": True}}) == (
        '{"a":{"c":true,"d":null},"b":[1,2]}'
    )


def test_equal_payloads_are_stored_alike_however_they_were_written(queue):
    assert stored(queue, {"a": 1, "b": 2}) == stored(queue, {"b": 2, "a": 1})


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 2**70, -(2**70), 10**40])
def test_whole_numbers_stay_whole_whatever_their_size(queue, number):
    assert queue.job(queue.enqueue({"n": number}).id).data == {"n": number}


@pytest.mark.parametrize(
    "text",
    [
        "ğışİŞ₺",
        "日本語",
        "🦊👩‍👩‍👧",
        "e\u0301 é",
        "\u202eright to left",
        "\ufeff",
        "\U0010ffff",
        "\x01\x1f\x7f",
        "a'b\"c\\d",
    ],
)
def test_text_comes_back_as_it_went_in(queue, text):
    assert queue.job(queue.enqueue({"t": text, text: 1}).id).data == {"t": text, text: 1}


@pytest.mark.parametrize("text", ["\\u0000", "\\ud800", "%s %(now)s", ":now {schema}", "$1 ?"])
def test_text_that_looks_like_an_escape_or_a_gap_is_only_text(queue, text):
    assert queue.job(queue.enqueue({"t": text}, key=text).id).data == {"t": text}


@pytest.mark.parametrize("dirt", [NUL, SURROGATE, chr(0xDFFF), NUL + SURROGATE + NUL])
def test_nul_and_lone_surrogates_are_dropped_from_payloads(queue, dirt):
    job = queue.job(queue.enqueue({f"k{dirt}": [f"a{dirt}b"]}).id)
    assert job.data == {"k": ["ab"]}


@pytest.mark.parametrize("dirt", [NUL, SURROGATE])
def test_nul_and_lone_surrogates_are_dropped_from_keys_and_tenants(queue, dirt):
    job = queue.job(queue.enqueue({}, key=f"k{dirt}1", tenant=f"t{dirt}1").id)
    assert (job.dedup_key, job.tenant) == ("k1", "t1")


def test_keys_are_compared_after_they_were_cleaned(queue):
    first = queue.enqueue({}, key="k")
    assert queue.enqueue({}, key="k\x00") == first._replace(result="duplicate")


def test_one_dirty_job_does_not_sink_its_batch(queue):
    answers = queue.enqueue_many([New({"a": NUL}), New({"a": SURROGATE}), New({"a": "b"})])
    assert [one.result for one in answers] == ["inserted"] * 3


def test_a_delay_is_counted_from_now(queue):
    assert queue.job(queue.enqueue({}, delay_s=1.5).id).run_at == NOW + 1_500_000


def test_a_payload_may_be_as_large_as_the_limit(store):
    queue = Queue("task", task_lifecycle(), store, clock=ManualClock(NOW), max_payload_bytes=100)
    assert queue.enqueue("x" * 98).result == "inserted"


@pytest.mark.parametrize("text", ["x" * 99, "ğ" * 50])
def test_a_payload_is_measured_in_bytes_and_refused_when_too_large(store, text):
    queue = Queue("task", task_lifecycle(), store, clock=ManualClock(NOW), max_payload_bytes=100)
    with pytest.raises(BadInput, match=r"bytes; the limit is 100: store the data elsewhere") as bad:
        queue.enqueue(text)
    assert (bad.value.code, bad.value.field) == ("payload_too_large", "payload")
    assert nothing_was_written(store)


def test_the_limit_is_256_kib_unless_told_otherwise(queue):
    assert queue.enqueue("x" * (256 * 1024 - 2)).result == "inserted"
    with pytest.raises(BadInput, match="payload has 262145 bytes"):
        queue.enqueue("x" * (256 * 1024 - 1))


LOOP: list = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "payload",
    [
        math.nan,
        {"a": [math.inf]},
        -math.inf,
        {1, 2},
        b"bytes",
        object(),
        {"a": 1j},
        {(1, 2): 3},
        LOOP,
    ],
    ids=["nan", "inf", "-inf", "set", "bytes", "object", "complex", "tuple key", "loop"],
)
def test_what_is_no_json_is_refused(queue, payload):
    with pytest.raises(BadInput, match="the payload is not a JSON value") as bad:
        queue.enqueue(payload)
    assert (bad.value.code, bad.value.field) == ("not_json", "payload")
    assert nothing_was_written(queue.store)


@pytest.mark.parametrize(
    ("details", "code", "field"),
    [
        ({"max_attempts": 0}, "bad_max_attempts", "max_attempts"),
        ({"max_attempts": -1}, "bad_max_attempts", "max_attempts"),
        ({"max_attempts": 1_001}, "bad_max_attempts", "max_attempts"),
        ({"max_attempts": True}, "bad_max_attempts", "max_attempts"),
        ({"max_attempts": "3"}, "bad_max_attempts", "max_attempts"),
        ({"max_attempts": 2.5}, "bad_max_attempts", "max_attempts"),
        ({"key": ""}, "bad_key", "key"),
        ({"key": "\x00"}, "bad_key", "key"),
        ({"key": "x" * 513}, "bad_key", "key"),
        ({"key": 5}, "bad_key", "key"),
        ({"key": b"k"}, "bad_key", "key"),
        ({"tenant": ""}, "bad_tenant", "tenant"),
        ({"tenant": "x" * 129}, "bad_tenant", "tenant"),
        ({"tenant": None}, "bad_tenant", "tenant"),
        ({"run_at": -1}, "bad_run_at", "run_at"),
        ({"run_at": 10**18}, "bad_run_at", "run_at"),
        ({"run_at": 1.5}, "bad_run_at", "run_at"),
        ({"run_at": True}, "bad_run_at", "run_at"),
        ({"run_at": "now"}, "bad_run_at", "run_at"),
        ({"stamps": {"uploaded_at": NOW}}, "unknown_stamp", "stamps"),
        ({"stamps": {"nonsense": NOW}}, "unknown_stamp", "stamps"),
        ({"stamps": {"conversion_at": "today"}}, "bad_conversion_at", "conversion_at"),
    ],
)
def test_a_wrong_detail_is_refused_with_its_name(store, details, code, field):
    queue = Queue("oci", oci_lifecycle(), store, clock=ManualClock(NOW))
    with pytest.raises(BadInput) as bad:
        queue.enqueue({}, **details)
    assert (bad.value.code, bad.value.field) == (code, field)
    assert nothing_was_written(store)


@pytest.mark.parametrize(
    "bad",
    [New(math.nan), New({}, key=""), New({}, max_attempts=0), New({}, note=math.nan)],
    ids=["payload", "key", "max_attempts", "note"],
)
def test_a_bad_job_comes_back_in_its_place_and_the_others_are_born(queue, bad):
    answers = queue.enqueue_many([New({"n": 1}), bad, New({"n": 2})])
    assert [type(one) for one in answers] == [Outcome, BadInput, Outcome]
    assert listed(queue.store, "task") == {("default", "ready"): 2}


def test_more_jobs_than_one_call_takes_go_in_by_several(queue, monkeypatch):
    monkeypatch.setattr("kesin.engine.queue.MAX_BATCH", 5)
    answers = queue.enqueue_many(New({"n": n}) for n in range(12))
    assert [queue.job(one.id).data["n"] for one in answers] == list(range(12))


def test_the_same_seed_and_clock_give_the_same_ids(store):
    first = Queue("one", task_lifecycle(), store, clock=ManualClock(NOW), seed=3)
    second = Queue("two", task_lifecycle(), store, clock=ManualClock(NOW), seed=3)
    assert first._ids.make(3) == second._ids.make(3)


def test_a_note_with_the_birth_is_canonical_json(queue):
    (answer,) = queue.enqueue_many([New({}, note={"b": 1, "a": "\x00x"})])
    assert queue.events(answer.id)[0].note == canonical_json({"a": "x", "b": 1})


# All other text


def test_the_name_of_a_producer_is_cleaned(queue):
    job = queue.enqueue({}, actor=f"a{NUL}b{SURROGATE}").id
    assert queue.events(job)[0].actor == "ab"


def test_the_name_of_a_worker_is_cleaned(queue):
    queue.enqueue({})
    (job,) = queue.claim(f"w{NUL}1{SURROGATE}")
    assert job.worker == "w1"


def test_what_a_failure_says_is_cleaned(queue):
    queue.enqueue({})
    (job,) = queue.claim("w1")
    dirty = error(f"C{NUL}", "PERMANENT", f"it {SURROGATE}broke{NUL}")
    queue.apply("fail", [Change(job.id, job.claim_seq, **dirty)], actor=f"w{NUL}1")
    failed = queue.job(job.id)
    assert (failed.error_code, failed.error_message, failed.actor) == ("C", "it broke", "w1")


def test_what_an_operator_says_is_cleaned(queue):
    job = queue.enqueue({}).id
    queue.act("cancel", actor=f"o{NUL}p", ids=[job], reason=f"be{NUL}cause{SURROGATE}")
    event = queue.events(job)[-1]
    assert (event.actor, event.note) == ("op", '{"reason":"because"}')


def test_what_a_pause_says_is_cleaned(queue):
    queue.pause(actor=f"o{NUL}p", reason=f"be{SURROGATE}cause")
    (pause,) = queue.store.paused("task")
    assert (pause.actor, pause.reason) == ("op", "because")


@pytest.mark.parametrize("dirt", [NUL, SURROGATE])
def test_a_filter_with_unstorable_text_finds_what_the_clean_one_finds(queue, dirt):
    job = queue.enqueue({}, key="k", tenant="t").id
    queue.act("cancel", actor="op", ids=[job])
    where = Filter(tenants=(f"t{dirt}",), codes=(f"CANCELLED{dirt}",), dedup_key=f"k{dirt}")
    assert [one.id for one in queue.jobs(where).jobs] == [job]
    assert [one.id for one in queue.jobs(Filter(text=f"before it{dirt} ran")).jobs] == [job]


def test_an_id_with_unstorable_text_is_unknown(queue):
    assert queue.act("cancel", actor="op", ids=[NUL, SURROGATE]).refused == {"unknown": 2}
