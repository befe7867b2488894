"""``run.transaction``: the effect, follow-up jobs and the end of a job are one."""

from __future__ import annotations

import pytest

from kesin import (
    Failed,
    ManualClock,
    Queue,
    StaleClaim,
    Sweeper,
    Worker,
    open_store,
    task_lifecycle,
)

PAYMENTS = "SELECT n FROM payment"


class Shop:
    """Two queues and a table of the application's own, in one file."""

    def __init__(self, path) -> None:
        self.store = open_store(path)
        self.clock = ManualClock()
        self.orders = Queue("orders", task_lifecycle(), self.store, clock=self.clock)
        self.mails = Queue("mails", task_lifecycle(), self.store)
        with self.store.transaction() as connection:
            connection.execute("CREATE TABLE payment (n integer)")

    def paid(self) -> list[int]:
        with self.store.transaction() as connection:
            return [row[0] for row in connection.execute(PAYMENTS)]

    def work(self, handler) -> None:
        Worker(self.orders, handler).drain()

    def order(self):
        [job] = self.orders.jobs().jobs
        return job


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path / "shop.db")
    shop.orders.enqueue({"price": 7})
    yield shop
    shop.store.close()


def charge(shop, job, run) -> None:
    with run.transaction() as transaction:
        transaction.connection.execute("INSERT INTO payment VALUES (?)", (job.payload["price"],))
        shop.mails.enqueue({"for": job.id})
        transaction.result = {"paid": True}


def test_effect_follow_up_and_result_are_committed_together(shop):
    def handler(job, run):
        charge(shop, job, run)

    shop.work(handler)
    assert shop.paid() == [7]
    assert (shop.order().state, shop.order().result) == ("done", {"paid": True})
    assert shop.mails.stats().states["ready"] == 1


def test_an_exception_inside_undoes_all_and_the_job_is_tried_again(shop):
    def handler(job, run):
        with run.transaction() as transaction:
            transaction.connection.execute("INSERT INTO payment VALUES (1)")
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


def test_what_the_handler_returns_afterwards_changes_nothing(shop, capsys):
    def handler(job, run):
        charge(shop, job, run)
        raise Failed("TOO_LATE")

    shop.work(handler)
    assert (shop.order().state, shop.order().error_code) == ("done", None)
    assert shop.order().attempt_count == 1


def test_another_action_than_complete(shop):
    def handler(job, run):
        with run.transaction("release"):
            shop.mails.enqueue({})
        run_again.append(job.id)
        worker.stop()

    run_again: list[str] = []
    worker = Worker(shop.orders, handler)
    worker.drain()
    assert shop.order().state == "ready"
    assert shop.mails.stats().total == len(run_again) == 1


def test_an_action_that_is_refused_undoes_all(shop):
    outcomes = []

    def handler(job, run):
        try:
            with run.transaction("nonsense"):
                shop.mails.enqueue({})
        except Exception as problem:  # noqa: BLE001
            outcomes.append(str(problem))

    shop.work(handler)
    assert "nonsense" in outcomes[0]
    assert shop.mails.stats().total == 0
    assert shop.order().state == "done"
