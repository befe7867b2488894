"""Whatever goes down under a batch, every row is made, and made once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kesin.store.records import Filter
from kesin.store.redis.store import RedisStore
from kesin.workloads.pdf.batches import worker as module
from kesin.workloads.pdf.jobs.rq_queue import DISPATCHED_KEY
from tests.web.conftest import error_of
from tests.workloads.pdf.batching import LEASE_S, Bindery, names, opened_bindery, order_of

# Storage


def test_nothing_is_taken_while_the_storage_is_down(bindery):
    with bindery.storage_down():
        answer = bindery.post([{"name": "a"}])
    assert (answer.status_code, error_of(answer)["code"]) == (503, "STORAGE_DOWN")
    assert bindery.client.get("/pdf/batches", headers=bindery.headers).json()["batches"] == []


def test_a_batch_waits_for_a_storage_that_is_down(bindery):
    batch_id = bindery.order("a")
    with bindery.storage_down():
        bindery.work()
        assert bindery.get(batch_id)["status"] == "queued"
        assert bindery.get(batch_id)["error_code"] == "STORAGE_DOWN"
    bindery.clock.advance(LEASE_S)
    bindery.work()
    with bindery.storage_down():
        told = bindery.get(batch_id)
        assert (told["status"], told["results"]) == ("succeeded", None)
        assert bindery.download(batch_id).status_code == 503
    assert bindery.download(batch_id).status_code == 200


def test_a_batch_whose_storage_stays_down_fails_and_takes_its_rows_along(bindery):
    batch_id = bindery.order("a", "b")

    def wait(_seconds: float) -> None:
        raise module.StorageDown("gone in the middle")

    for _ in range(5):
        bindery.work(wait)
        bindery.clock.advance(150)
    told = bindery.get(batch_id)
    assert (told["status"], told["error_code"]) == ("failed", "STORAGE_DOWN")
    assert told["error_message"] == "The storage does not answer, so nobody knows what it holds."
    assert "in the middle" not in bindery.download(batch_id).text  # it may name folders or hosts
    assert bindery.pdf.peek(limit=10) == []
    assert not bindery.metadata_names()


def test_a_batch_whose_rows_are_lost_fails(bindery):
    batch_id = bindery.order("a")
    bindery.batches.storage.delete(bindery.batch(batch_id).input_key)
    bindery.work()
    assert bindery.get(batch_id)["error_code"] == "ROWS_MISSING"


def test_a_job_put_into_the_queue_by_hand_harms_nobody(bindery):
    for payload in (None, [], "text", {"input_key": "batches/../x", "rows": "many"}):
        job_id = bindery.queue.enqueue(payload).id
        bindery.work()
        assert bindery.get(job_id, headers=bindery.key("admin"))["error_code"] == "ROWS_MISSING"


# Death


class Died(BaseException):
    """The process is gone."""


class Fate:
    """Counts the steps of a worker, before and after each, and ends it at one of them."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.steps = 0

    def tick(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            raise Died

    def haunt(self, patch: pytest.MonkeyPatch, bindery: Bindery) -> None:
        feeder, storage = bindery.batches.feeder, bindery.batches.storage
        steps: dict[Any, tuple[str, ...]] = {
            feeder: ("feed", "_save_row_jobs", "save_progress"),
            feeder._facts: ("delete_metadata",),
            bindery.pdf: ("enqueue_many",),
            bindery.queue: ("apply",),
            storage: ("put_bytes", "get_bytes"),
        }
        for owner, calls in steps.items():
            for name in calls:
                patch.setattr(owner, name, self._told(getattr(owner, name)))

    def _told(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def told(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            answer = call(*args, **kwargs)
            self.tick()
            return answer

        return told


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_whoever_dies_wherever_every_row_is_made_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "MAX_ROWS_IN_QUEUE", 2)
    monkeypatch.setattr(module, "REFILL_BELOW_BELOW", 0)
    with opened_bindery(kind, tmp_path, request) as bindery:
        expected: bytes | None = None
        at = 0
        died = True
        while died:
            at += 1
            bindery.engine.printed.clear()
            batch = bindery.batches.submit(order_of(4), owner=f"owner {at}").batch
            fate = Fate(at)
            with monkeypatch.context() as patch, suppress(Died):
                fate.haunt(patch, bindery)
                bindery.work()
            died = fate.steps >= at
            if not bindery.batch(batch.batch_id).is_over:
                fed = bindery.batches.feeder.row_jobs(batch.batch_id)
                jobs = bindery.pdf.jobs(Filter(tenants=(batch.owner,))).jobs
                assert {row_job.job_id for row_job in fed if row_job.own} == {
                    job.id for job in jobs
                }, at
                bindery.recover()
                bindery.work()
            ended = bindery.batch(batch.batch_id)
            assert ended.status == "succeeded", at
            assert sorted(bindery.engine.printed) == names(4), at
            made = bindery.batches.storage.get_bytes(ended.artifact_key or "")
            expected = expected or made
            assert made == expected, at
            assert not bindery.metadata_names(), at
        assert at > 30


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_a_worker_that_lost_its_batch_feeds_nothing_any_more(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "MAX_ROWS_IN_QUEUE", 2)
    monkeypatch.setattr(module, "REFILL_BELOW_BELOW", 1)
    with opened_bindery(kind, tmp_path, request) as bindery:
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
        if isinstance(bindery.pdf.store, RedisStore):  # and somebody was sent for
            assert set(bindery.pdf.store.client.zrange(DISPATCHED_KEY, 0, -1)) == jobs


def test_a_store_that_is_away_for_a_moment_is_waited_for(bindery, monkeypatch):
    batch_id = bindery.order(*names(3))
    away: list[bool] = []
    feed = bindery.batches.feeder.feed

    def broken(*given: Any) -> Any:
        fed = feed(*given)
        if not away:
            away.append(True)
            raise module.StoreUnreachable("nobody knows whether it was written")
        return fed

    monkeypatch.setattr(bindery.batches.feeder, "feed", broken)
    bindery.work()
    assert bindery.get(batch_id)["status"] == "succeeded"
    assert bindery.engine.printed == names(3)
