"""Input of a queue: text is cleaned and stored in one form; what cannot be meant is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kesin import BadInput, NewJob, Queue
from kesin.engine.queue import apply_changes
from kesin.foundation.clock import ManualClock
from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.store.records import Filter, Outcome
from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.store.conftest import listed
from tests.store.scene import NOW, count_rows, error

NUL, SURROGATE = chr(0), chr(0xD800)
# What is refused or computed before the store is called is tested on one store.
before_the_store = pytest.mark.parametrize("store", ["sqlite-file"], indirect=True)


@pytest.fixture
def queue(store):
    return Queue("task", task_lifecycle(), store, clock=ManualClock(NOW), seed=1)


def test_payloads_come_back_as_they_went_in(queue):
    numbers = [2**53 + 1, 2**63, 2**70, -(2**70), 10**40]
    texts = ["ğışİŞ₺", "日本語", "🦊👩‍👩‍👧", "e\u0301 é", "\u202eright to left", "\ufeff"]
    texts += ["\U0010ffff", "\x01\x1f\x7f", "a'b\"c\\d"]
    # text that looks like an escape or a placeholder
    texts += ["\\u0000", "\\ud800", "%s %(now)s", ":now {schema}", "$1 ?"]
    for payload, key in [({"n": n}, None) for n in numbers] + [({"t": t, t: 1}, t) for t in texts]:
        job = queue.job(queue.enqueue(payload, key=key).id)
        assert (job.payload, job.dedup_key) == (payload, key)


@pytest.mark.parametrize("store", ["postgres"], indirect=True)  # it cannot store these characters
def test_nul_and_lone_surrogates_are_dropped(queue):
    for dirt in (NUL, SURROGATE, chr(0xDFFF), NUL + SURROGATE + NUL):
        new = {f"k{dirt}": [f"a{dirt}b"]}
        tenant = f"t{len(dirt)}{ord(dirt[0])}"
        job = queue.job(queue.enqueue(new, key=f"k{dirt}1", tenant=f"{dirt}{tenant}").id)
        assert (job.payload, job.dedup_key, job.tenant) == ({"k": ["ab"]}, "k1", tenant)


def test_keys_are_compared_after_cleaning(queue):
    first = queue.enqueue({}, key="k")
    assert queue.enqueue({}, key="k\x00") == first._replace(result="duplicate")


@before_the_store
def test_a_payload_is_measured_in_bytes_and_refused_if_too_large(store):
    queue = Queue("task", task_lifecycle(), store, clock=ManualClock(NOW), max_payload_bytes=100)
    usual = Queue("usual", task_lifecycle(), store, clock=ManualClock(NOW))
    for text in ("x" * 99, "ğ" * 50):
        with pytest.raises(BadInput, match=r"the limit is 100: store the data elsewhere") as bad:
            queue.enqueue(text)
        assert (bad.value.code, bad.value.field) == ("payload_too_large", "payload")
    with pytest.raises(BadInput, match="payload is 262145 bytes"):
        usual.enqueue("x" * (256 * 1024 - 1))
    assert not count_rows(store)
    assert queue.enqueue("x" * 98).result == "inserted"


def test_a_payload_may_have_256_kib_by_default(queue):
    assert queue.enqueue("x" * (256 * 1024 - 2)).result == "inserted"


LOOP: list[Any] = []
LOOP.append(LOOP)
NOT_JSON: list[Any] = [math.nan, {"a": [math.inf]}, -math.inf, {1, 2}, b"bytes", object()]
NOT_JSON += [{"a": 1j}, {(1, 2): 3}, LOOP]
BAD_VALUES: dict[str, list[Any]] = {
    "max_attempts": [0, -1, 1_001, True, "3", 2.5],
    "key": ["", "\x00", "x" * 513, 5, b"k"],
    "tenant": ["", "x" * 129, None],
    "run_at": [-1, 10**13, 10**18, 1.5, True, "now"],
}
BAD_STAMPS: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"uploaded_at": NOW}, "unknown_stamp", "stamps"),
    ({"nonsense": NOW}, "unknown_stamp", "stamps"),
    ({"conversion_at": "today"}, "bad_conversion_at", "conversion_at"),
)


@before_the_store
def test_a_bad_value_is_refused_with_its_field_and_nothing_is_written(store):
    queue = Queue("oci", oci_lifecycle(), store, clock=ManualClock(NOW))
    cases: list[tuple[NewJob, str, str]] = [
        *((NewJob(payload), "not_json", "payload") for payload in NOT_JSON),
        *(
            (NewJob({}, **{field: value}), f"bad_{field}", field)
            for field, values in BAD_VALUES.items()
            for value in values
        ),
        *((NewJob({}, stamps=stamps), code, field) for stamps, code, field in BAD_STAMPS),
    ]
    for new, code, field in cases:
        (refusal,) = queue.enqueue_many([new])
        assert isinstance(refusal, BadInput), new
        assert (refusal.code, refusal.field) == (code, field), new
    with pytest.raises(BadInput, match="the payload is not a JSON value"):
        queue.enqueue(math.nan)
    with pytest.raises(BadInput, match="key"):
        queue.enqueue({}, key="")
    assert not count_rows(store)


@before_the_store
def test_a_bad_job_is_answered_in_its_place_and_the_others_are_created(queue):
    good = [NewJob({"a": NUL}), NewJob({"a": SURROGATE})]
    for n, bad in enumerate(
        (NewJob(math.nan), NewJob({}, key=""), NewJob({}, max_attempts=0), NewJob({}, note=math.nan))
    ):
        outcomes = queue.enqueue_many([good[0], bad, good[1]])
        assert [type(outcome) for outcome in outcomes] == [Outcome, BadInput, Outcome]
        assert listed(queue.store, "task") == {("default", "ready"): 2 * (n + 1)}


# All other text: PostgreSQL would refuse it unclean


@pytest.mark.parametrize("store", ["sqlite-file", "postgres"], indirect=True)
def test_all_other_text_is_cleaned(queue):
    note = {"b": 1, "a": f"{NUL}x"}
    (outcome,) = queue.enqueue_many([NewJob({}, note=note)], actor=f"a{NUL}b{SURROGATE}")
    event = queue.events(outcome.id)[0]
    assert (event.actor, event.note) == ("ab", canonical_json({"a": "x", "b": 1}))

    (job,) = queue.claim(f"w{NUL}1{SURROGATE}")
    assert job.worker == "w1"
    dirty = error(f"C{NUL}", "PERMANENT", f"it {SURROGATE}broke{NUL}")
    apply_changes(queue, "fail", [Change(job.id, job.claim_seq, **dirty)], actor=f"w{NUL}1")
    failed = queue.job(job.id)
    assert (failed.error_code, failed.error_message, failed.actor) == ("C", "it broke", "w1")

    cancelled = queue.enqueue({}).id
    queue.act("cancel", actor=f"o{NUL}p", ids=[cancelled], reason=f"be{NUL}cause{SURROGATE}")
    event = queue.events(cancelled)[-1]
    assert (event.actor, event.note) == ("op", '{"reason":"because"}')

    queue.pause(actor=f"o{NUL}p", reason=f"be{SURROGATE}cause")
    (pause,) = queue.store.paused("task")
    assert (pause.actor, pause.reason) == ("op", "because")


@pytest.mark.parametrize("store", ["sqlite-file", "postgres"], indirect=True)
def test_unclean_text_in_a_filter_or_an_id_is_cleaned_too(queue):
    job = queue.enqueue({}, key="k", tenant="t").id
    queue.act("cancel", actor="op", ids=[job])
    for dirt in (NUL, SURROGATE):
        where = Filter(tenants=(f"t{dirt}",), codes=(f"CANCELLED{dirt}",), dedup_key=f"k{dirt}")
        assert [row.id for row in queue.jobs(where).jobs] == [job]
        where = Filter(text=f"before it{dirt} ran")
        assert [row.id for row in queue.jobs(where).jobs] == [job]
    assert queue.act("cancel", actor="op", ids=[NUL, SURROGATE]).refused == {"unknown": 2}
