"""The worker of webhooks: what a scan costs, who scans, and what a stop releases."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from kesin.engine.new_job import NewJob
from kesin.lifecycle.budget import SECOND_US
from kesin.store.records import Filter, Outcome
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.pdf.lifecycle import MAX_WAIT_S, WEBHOOK_ATTEMPTS
from kesin.workloads.pdf.webhooks.worker import MAX_SCANNED, WebhookSender
from tests.cli.programs import wait_until
from tests.workloads.pdf.webhook_queues import AYSE, OMER, WebhookQueues
from tests.workloads.receiver import silence

# Many


def test_thousands_of_waiting_deliveries_cost_a_few_statements_a_scan(tmp_path, monkeypatch):
    with closing(SqliteStore(":memory:")) as store:
        office = WebhookQueues(store, tmp_path)
        jobs = [office.new_job() for _ in range(10)]
        far = office.clock.time_us + MAX_WAIT_S * SECOND_US
        promise = {"kind": "job", "url": "https://hooks.example.com/x"}
        news = [NewJob({**promise, "subject": jobs[number % 10]}, tenant=AYSE, run_at=far) for number in range(4_000)]
        first, second = office.queue.enqueue_many(news)[:2]
        assert isinstance(first, Outcome)
        assert isinstance(second, Outcome)
        office.end(jobs[0])
        calls = counted(store, monkeypatch)
        sender = office.sender()
        due = [sender.scan() for _ in range(4_000 // MAX_SCANNED)]
        assert sum(due) == 400
        assert calls == Counter(_read=8, apply=4)  # a page and its jobs, a thousand each
        assert office.seen(first.id).state == "pending"
        assert [event.move for event in office.queue.events(second.id)] == ["enqueue"]


def counted(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the store reads and moves from now on."""
    calls: Counter[str] = Counter()
    for name in ("_read", "apply"):
        made = getattr(store, name)

        def call(*args, name=name, made=made, **how):
            calls[name] += 1
            return made(*args, **how)

        monkeypatch.setattr(store, name, call)
    return calls


def test_a_scan_goes_on_where_the_last_one_ended_and_then_begins_anew(small, receiver, monkeypatch):
    monkeypatch.setattr("kesin.workloads.pdf.webhooks.worker.MAX_PAGE", 2)
    monkeypatch.setattr("kesin.workloads.pdf.webhooks.worker.MAX_SCANNED", 4)
    jobs = [small.new_job() for _ in range(6)]
    for job_id in jobs:
        small.subscribe(receiver, job_id)
    sender = small.sender()
    small.end(jobs[0])  # the oldest comes last
    assert [sender.scan() for _ in range(2)] == [0, 1]
    small.end(jobs[5])
    assert sender.scan() == 1


def test_worker_threads_share_the_scans(small, receiver, monkeypatch):
    sender = small.sender()
    scanned: list[int] = []
    monkeypatch.setattr(sender, "scan", lambda: scanned.append(threading.get_ident()))
    for _ in range(5):
        list(sender.plan_claims())
    assert len(scanned) == 1
    small.clock.advance(2)
    list(sender.plan_claims())
    assert len(scanned) == 2


# Workers


def test_a_worker_that_stops_releases_what_it_is_sending(office, receiver):
    delivery = office.ready(receiver)
    receiver.script = [silence]
    worker = WebhookSender(office.context)
    worker.threads, worker.grace_s = 1, 0.0
    worker.start()
    wait_until(lambda: receiver.came)
    worker.stop()
    worker.join()
    job = office.seen(delivery)
    assert (job.state, job.attempts_left) == ("pending", WEBHOOK_ATTEMPTS)
    receiver.over.set()
    for thread in worker._threads:
        thread.join()
    assert office.after(delivery) == ("delivered", None)
    assert {request.headers["webhook-id"] for request in receiver.came} == {delivery}


def test_several_workers_send_each_delivery_once(office, receiver):
    deliveries = {office.ready(receiver, owner) for owner in (AYSE, OMER) for _ in range(10)}
    workers = [WebhookSender(office.context) for _ in range(2)]
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda worker: worker.drain(), workers))
    office.work()
    ends = {(job.state, job.error_code) for job in office.queue.jobs(Filter()).jobs}
    assert ends == {("delivered", None)}
    assert sorted(request.headers["webhook-id"] for request in receiver.came) == sorted(deliveries)
