"""``once``: a key is taken for good, through every state of its job, until the job is pruned."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from kesin import ManualClock, Queue, Store, Sweeper, task_lifecycle
from tests.store.conftest import STORES, opened

KEPT = timedelta(days=30)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with opened(request.param, request) as store:
        yield store


@pytest.mark.parametrize("action", ["complete", pytest.param("fail", marks=pytest.mark.long)])
def test_a_key_is_taken_until_its_job_is_pruned_and_free_then(store: Store, action: str):
    clock = ManualClock()
    orders = Queue("orders", task_lifecycle(keep_days=KEPT.days), store, clock=clock)
    first = orders.enqueue({"n": 1}, key="order-7", once=True)
    orders.enqueue({"n": 1}, key="order-8")
    for job in orders.claim("w", limit=2):
        orders.move(job, action)
    assert orders.enqueue({"n": 2}, key="order-8").result == "inserted"  # it is no key for good
    for once in (True, False):
        again = orders.enqueue({"n": 2}, key="order-7", once=once)
        assert (again.result, again.id) == ("duplicate", first.id)
    clock.advance(KEPT - timedelta(days=1))
    Sweeper([orders]).sweep()
    assert orders.enqueue({"n": 2}, key="order-7", once=True).id == first.id
    clock.advance(timedelta(days=3))
    Sweeper([orders]).sweep()
    assert orders.job(first.id) is None
    second = orders.enqueue({"n": 3}, key="order-7", once=True)
    assert (second.result, second.id != first.id) == ("inserted", True)
    assert orders.enqueue({"n": 4}, key="order-7", once=True).id == second.id
