"""Whatever fails under a batch, every row is rendered, and rendered once."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kesin.store.errors import StoreUnreachable
from kesin.store.records import Filter
from kesin.store.redis.store import RedisStore
from kesin.workloads.pdf.batches import worker as module
from kesin.workloads.pdf.jobs.rq_queue import DISPATCHED_KEY
from kesin.workloads.pdf.storage.base import StorageDown
from tests.web.conftest import error_of
from tests.workloads.pdf.batching import LEASE_S, BatchWorld, names, opened_batches, order_of

# Storage


def test_no_batch_is_accepted_while_the_storage_is_down(bindery):
    with bindery.storage_down():
        response = bindery.post([{"name": "a"}])
    assert (response.status_code, error_of(response)["code"]) == (503, "STORAGE_DOWN")
    assert bindery.batches.queue.stats().total == 0


def test_a_batch_waits_for_a_storage_that_is_down(bindery):
    batch_id = bindery.order("a")
    with bindery.storage_down():
        bindery.work()
        assert bindery.get(batch_id)["status"] == "queued"
        assert bindery.get(batch_id)["error_code"] == "STORAGE_DOWN"
    bindery.clock.advance(LEASE_S)
    bindery.work()
    with bindery.storage_down():
        batch = bindery.get(batch_id)
        assert (batch["status"], batch["results"]) == ("succeeded", None)
        assert bindery.download(batch_id).status_code == 503
    assert bindery.download(batch_id).status_code == 200


def test_a_batch_whose_storage_stays_down_fails_and_cancels_its_rows(bindery):
    batch_id = bindery.order("a", "b")

    def wait(_seconds: float) -> None:
        raise StorageDown("gone in the middle")

    for _ in range(5):
        bindery.work(wait)
        bindery.clock.advance(150)
    batch = bindery.get(batch_id)
    assert (batch["status"], batch["error_code"]) == ("failed", "STORAGE_DOWN")
    assert batch["error_message"] == "The storage is not responding, so its contents are unknown."
    assert "in the middle" not in bindery.download(batch_id).text  # it may name folders or hosts
    assert bindery.pdf.peek(limit=10) == []
    assert not bindery.metadata_names()


def test_a_job_enqueued_by_hand_fails_alone(bindery):
    payloads: tuple[Any, ...] = (None, [], "text", {"input_key": "batches/../x", "rows": "many"})
    for payload in payloads:
        job_id = bindery.queue.enqueue(payload).id
        bindery.work()
        assert bindery.get(job_id, headers=bindery.key("admin"))["error_code"] == "ROWS_MISSING"


# Death


class Died(BaseException):
    """The process has died."""


class Fate:
    """Counts the steps of a worker, before and after each, and ends it at one of them."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.steps = 0

    def tick(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            raise Died

    def haunt(self, patch: pytest.MonkeyPatch, bindery: BatchWorld) -> None:
        feeder, storage = bindery.batches.feeder, bindery.batches.storage
        steps: dict[Any, tuple[str, ...]] = {
            feeder: ("feed", "_save_row_jobs"),
            feeder._facts: ("delete_metadata",),
            bindery.pdf: ("enqueue_many",),
            bindery.store: ("apply",),
            storage: ("put_bytes", "get_bytes"),
        }
        for owner, calls in steps.items():
            for name in calls:
                patch.setattr(owner, name, self._counted(name, getattr(owner, name)))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if name == "apply" and args[0] == "pdf":  # a move of the renderer, not of the worker
                return call(*args, **kwargs)
            self.tick()
            returned = call(*args, **kwargs)
            self.tick()
            return returned

        return counted


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def test_wherever_a_worker_dies_every_row_is_rendered_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "MAX_ROWS_IN_QUEUE", 2)
    monkeypatch.setattr(module, "REFILL_BELOW", 0)
    with opened_batches(kind, tmp_path, request) as bindery:
        expected: bytes | None = None
        at = 0
        died = True
        while died:
            at += 1
            bindery.engine.printed.clear()
            batch, _ = bindery.batches.submit(order_of(4), owner=f"owner {at}")
            fate = Fate(at)
            with monkeypatch.context() as patch, suppress(Died):
                fate.haunt(patch, bindery)
                bindery.work()
            died = fate.steps >= at
            if not bindery.batch(batch.batch_id).is_over:
                fed = bindery.batches.feeder.row_jobs(batch.batch_id)
                jobs = bindery.pdf.jobs(Filter(tenants=(batch.owner,))).jobs
                assert {row_job.job_id for row_job in fed if row_job.own} == {job.id for job in jobs}, at
                bindery.recover()
                bindery.work()
            ended = bindery.batch(batch.batch_id)
            assert ended.status == "succeeded", at
            assert sorted(bindery.engine.printed) == names(4), at
            made = bindery.batches.storage.get_bytes(ended.result["artifact_key"])
            expected = expected or made
            assert made == expected, at
            assert not bindery.metadata_names(), at
        assert at > 30


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.long), "redis"])
def test_a_worker_that_lost_its_claim_enqueues_no_more_rows(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "MAX_ROWS_IN_QUEUE", 2)
    monkeypatch.setattr(module, "REFILL_BELOW", 1)
    with opened_batches(kind, tmp_path, request) as bindery:
        batch_id = bindery.order(*names(6))
        second: list[bool] = []
        feed = bindery.batches.feeder.feed

        def slow(*given: Any) -> Any:
            if given[1] == 2 and not second:  # so long that another has finished meanwhile
                second.append(True)
                bindery.recover()
                bindery.work()
                assert bindery.get(batch_id)["status"] == "succeeded"
            return feed(*given)

        monkeypatch.setattr(bindery.batches.feeder, "feed", slow)
        bindery.work()
        assert second
        assert sorted(bindery.engine.printed) == names(6)
        jobs = {job.id for job in bindery.pdf.jobs().jobs}
        assert len(jobs) == 6
        assert not bindery.metadata_names()
        if isinstance(bindery.pdf.store, RedisStore):  # and each has a message
            assert set(bindery.pdf.store.client.zrange(DISPATCHED_KEY, 0, -1)) == jobs


def test_a_batch_survives_a_store_that_is_unreachable_for_a_moment(bindery, monkeypatch):
    batch_id = bindery.order(*names(3))
    away: list[bool] = []
    feed = bindery.batches.feeder.feed

    def broken(*given: Any) -> Any:
        fed = feed(*given)
        if not away:
            away.append(True)
            raise StoreUnreachable("nobody knows whether it was written")
        return fed

    monkeypatch.setattr(bindery.batches.feeder, "feed", broken)
    bindery.work()
    assert bindery.get(batch_id)["status"] == "succeeded"
    assert bindery.engine.printed == names(3)
