"""`kesin.testing`: what an app's own tests get."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kesin import BadInput, Failed, Job, Schedule, StaleClaim, task_lifecycle
from kesin.testing import MAX_SHOWN, MemoryQueue
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle


class Flaky:
    """A handler that fails so many times, then succeeds."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def __call__(self, _job: Job) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise Failed("SMTP_DOWN", "try later", category="TRANSIENT")


def filled(*payloads: Any, **how: Any) -> MemoryQueue:
    queue = MemoryQueue("mails")
    for payload in payloads:
        queue.enqueue(payload, **how)
    return queue


def refused(call: Any, *given: Any, **named: Any) -> str:
    with pytest.raises(AssertionError) as raised:
        call(*given, **named)
    return str(raised.value)


def test_time_passes_only_when_told_and_brings_what_was_for_later():
    queue = filled({"to": "ayse"}, delay_s=3_600)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert queue.now() == round(start.timestamp() * 1_000_000)
    assert queue.drain(lambda _job: None) == {}
    queue.advance(timedelta(hours=1))
    assert queue.drain(lambda _job: None) == {"done": 1}


def test_drain_all_goes_on_to_the_end_of_every_job():
    queue = filled({"to": "ayse"}, {"to": "can"}, delay_s=60)
    assert queue.drain_all(Flaky(3)) == Counter(ready=3, done=2)
    assert MemoryQueue().drain_all(Flaky(0)) == {}


def test_drain_all_lets_time_pass_for_a_rate():
    queue = MemoryQueue("mails", task_lifecycle(rate=(2, 60)))
    for _ in range(5):
        queue.enqueue({})
    start = queue.now()
    assert queue.drain(Flaky(0)) == {"done": 2}
    assert queue.drain_all(Flaky(0)) == {"done": 3}
    assert queue.now() - start >= 60_000_000
    tries = task_lifecycle().max_attempts
    queue = filled({"to": "ayse"})
    queue.drain_all(Flaky(tries))
    queue.assert_states(failed=1)


def test_a_batch_handler_gets_the_jobs_together():
    queue = filled({"n": 1}, {"n": 2})
    sizes = []

    def work(jobs: Any) -> list[None]:
        sizes.append(len(jobs))
        return [None] * len(jobs)

    assert queue.drain(batch_handler=work) == {"done": 2}
    assert sizes == [2]


def test_a_worker_that_dies_is_recovered_when_time_passes():
    queue = filled({"to": "ayse"})
    [job] = queue.claim("dead")
    queue.advance(timedelta(days=1))
    queue.assert_job(to="ayse", state="ready")
    with pytest.raises(StaleClaim):
        queue.move(job, "complete")


def test_queues_of_one_app_share_store_and_clock():
    orders = MemoryQueue("orders")
    mails = MemoryQueue("mails", sharing=orders)
    with orders.store.transaction():
        orders.enqueue({"n": 1})
        mails.enqueue({"order": 1})
    orders.advance(5)
    assert mails.now() == orders.now()
    mails.assert_job(order=1)
    orders.assert_no_job(order=1)


def test_an_assertion_returns_the_job_or_says_what_there_is():
    queue = filled({"to": "ayse", "tags": ["new"]}, {"to": "can"}, ["no object"])
    assert queue.assert_job(to="ayse", tags=["new"]).payload["to"] == "ayse"
    assert queue.assert_job({"to": "can"}, state="ready").payload == {"to": "can"}
    assert queue.drain(Flaky(1)) == {"ready": 1, "done": 2}
    assert refused(queue.assert_job, to="ayse", state="done") == (
        "expected one job of mails with {'to': 'ayse'} in state 'done', found 0; there are:\n"
        "  ready {'tags': ['new'], 'to': 'ayse'} (SMTP_DOWN: try later)"
    )
    assert "found 3" in refused(queue.assert_job)
    assert "there are:\n  done {'to': 'can'}" in refused(queue.assert_no_job, to="can")
    assert "{'done': 3}" in refused(queue.assert_states, done=3)
    assert "there are none" in refused(MemoryQueue().assert_job, to="ayse")
    with pytest.raises(ValueError, match="mails has no state 'gone'"):
        queue.assert_states(gone=1)
    MemoryQueue("orders", optiplan_lifecycle()).assert_states()
    many = filled(*({"n": n} for n in range(MAX_SHOWN + 101)))
    assert len(many.all_jobs()) == MAX_SHOWN + 101
    assert refused(many.assert_states).endswith("… 101 more"), "a message does not list everything"


@dataclass
class Greeting:
    to: str


def test_payloads_have_the_type_that_the_queue_declares():
    queue = MemoryQueue(payload=Greeting, max_payload_bytes=40)
    queue.enqueue(Greeting("ayse"))
    with pytest.raises(BadInput):
        queue.enqueue({"from": "ayse"})
    with pytest.raises(BadInput, match="bytes"):
        queue.enqueue(Greeting("a" * 40))
    seen: list[Any] = []
    queue.drain(lambda job: seen.append(job.payload))
    assert seen == [Greeting("ayse")]


def test_schedules_tick_as_time_passes():
    nightly = Schedule("nightly", "0 3 * * *", {"kind": "sales"})
    queue = MemoryQueue("reports", schedules=[nightly])
    queue.advance(timedelta(hours=2))
    queue.assert_no_job()
    for nights in (1, 2):
        queue.advance(timedelta(hours=24))
        queue.assert_states(ready=nights)
    queue.advance(timedelta(days=3))
    queue.assert_states(ready=3)
