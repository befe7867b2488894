"""``run.transaction``: the effect, follow-up jobs and the end of a job are one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kesin import Failed, ManualClock, Queue, StaleClaim, Store, StoreError, Sweeper, Worker, task_lifecycle
from tests.store.conftest import opened

_numbers = itertools.count(1)


class Shop:
    """Two queues, and what the application writes beside them: in Redis, jobs of a third."""

    def __init__(self, store: Store, kind: str) -> None:
        self.store, self.kind, number = store, kind, next(_numbers)
        self.clock = ManualClock()
        self.orders = Queue(f"orders{number}", task_lifecycle(), store, clock=self.clock)
        self.mails = Queue(f"mails{number}", task_lifecycle(), store)
        self.payments = Queue(f"payments{number}", task_lifecycle(), store)
        if kind != "redis":
            with store.transaction() as connection:
                connection.execute("DROP TABLE IF EXISTS payment")
                connection.execute("CREATE TABLE payment (n integer)")

    def pay(self, connection: Any, n: int) -> None:
        if self.kind == "redis":
            self.payments.enqueue(n)
        else:
            connection.execute(f"INSERT INTO payment VALUES ({n:d})")

    def paid(self) -> list[int]:
        if self.kind == "redis":
            return [job.payload for job in self.payments.jobs().jobs]
        with self.store.transaction() as connection:
            return [row[0] for row in connection.execute("SELECT n FROM payment")]

    def work(self, handler) -> None:
        Worker(self.orders, handler).drain()

    def order(self):
        [job] = self.orders.jobs().jobs
        return job


@pytest.fixture(scope="module", params=["sqlite-file", "postgres", "redis"])
def kept(request: pytest.FixtureRequest) -> Iterator[tuple[Store, str]]:
    with opened(request.param, request) as store:
        yield store, request.param


@pytest.fixture
def shop(kept: tuple[Store, str]) -> Shop:
    shop = Shop(*kept)
    shop.orders.enqueue({"price": 7})
    return shop


def charge(shop, job, run) -> None:
    with run.transaction() as transaction:
        shop.pay(transaction.connection, job.payload["price"])
        shop.mails.enqueue({"for": job.id})
        transaction.result = {"paid": True}


def test_effect_follow_up_and_result_are_committed_together(shop):
    """And what the handler does afterwards changes nothing."""

    def handler(job, run):
        charge(shop, job, run)
        raise Failed("TOO_LATE")

    shop.work(handler)
    assert shop.paid() == [7]
    assert (shop.order().state, shop.order().result) == ("done", {"paid": True})
    assert (shop.order().error_code, shop.order().attempt_count) == (None, 1)
    assert shop.mails.stats().states["ready"] == 1


def test_an_exception_inside_undoes_all_and_the_job_is_tried_again(shop):
    def handler(job, run):
        with run.transaction() as transaction:
            shop.pay(transaction.connection, 1)
            shop.mails.enqueue({})
            raise Failed("CARD_DECLINED", category="TRANSIENT")

    shop.work(handler)
    assert shop.paid() == []
    assert shop.mails.stats().total == 0
    assert (shop.order().state, shop.order().error_code) == ("ready", "CARD_DECLINED")


def test_a_job_that_was_finished_meanwhile_undoes_all(shop):
    seen = []

    def handler(job, run):
        shop.orders.move(job, "complete", result={"paid": "elsewhere"})
        try:
            charge(shop, job, run)
        except StaleClaim as problem:
            seen.append(str(problem))
            raise

    shop.work(handler)
    assert len(seen) == 1
    assert shop.paid() == []
    assert shop.mails.stats().total == 0
    assert shop.order().result == {"paid": "elsewhere"}


@pytest.mark.parametrize("kept", ["postgres"], indirect=True)
def test_a_job_that_is_finished_from_elsewhere_inside_the_block_undoes_all(shop):
    """One transaction at a time would keep the other waiting: PostgreSQL has many."""

    def charged_twice(job, run):
        with run.transaction() as transaction:
            shop.pay(transaction.connection, 1)
            shop.mails.enqueue({})
            elsewhere = threading.Thread(target=shop.orders.move, args=(job, "complete"))
            elsewhere.start()
            elsewhere.join()

    def handler(job, run):
        with pytest.raises(StaleClaim):
            charged_twice(job, run)

    shop.work(handler)
    assert shop.paid() == []
    assert shop.mails.stats().total == 0
    assert (shop.order().state, shop.order().result) == ("done", None)


def test_a_lost_claim_undoes_all(shop):
    """The lease ended, the job was recovered, and another worker has it."""

    def handler(job, run):
        shop.clock.advance(seconds=3_600)
        Sweeper([shop.orders]).sweep()
        assert shop.orders.claim("another")
        with pytest.raises(StaleClaim):
            charge(shop, job, run)

    shop.work(handler)
    assert shop.paid() == []
    assert shop.mails.stats().total == 0
    assert (shop.order().state, shop.order().worker) == ("running", "another")


def test_another_action_than_complete_and_one_that_is_refused(shop):
    def handler(job, run):
        with pytest.raises(StoreError, match="nonsense"), run.transaction("nonsense"):
            shop.mails.enqueue({})
        with run.transaction("release"):
            shop.mails.enqueue({})
        run_again.append(job.id)
        worker.stop()

    run_again: list[str] = []
    worker = Worker(shop.orders, handler)
    worker.drain()
    assert shop.order().state == "ready"
    assert shop.mails.stats().total == len(run_again) == 1
