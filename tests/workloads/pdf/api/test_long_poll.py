"""A request that waits gets the PDF in its response and blocks no other."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.lifecycle.model import Job
from kesin.store.errors import StoreUnreachable
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.pdf.api import jobs as routes
from kesin.workloads.pdf.api.jobs import LongPoll
from kesin.workloads.pdf.jobs import submit
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.web.conftest import error_of
from tests.workloads.pdf.front import NO_JOB, order


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when somebody has begun to wait."""
    event = threading.Event()
    wait = routes.LongPoll.wait_for_end

    async def noted(self: Any, job_id: str, seconds: float) -> None:
        waits = asyncio.ensure_future(wait(self, job_id, seconds))
        await asyncio.sleep(0)  # it has joined
        event.set()
        await waits

    monkeypatch.setattr(routes.LongPoll, "wait_for_end", noted)
    return event


def meanwhile(joined: threading.Event, monkeypatch: pytest.MonkeyPatch, work: Callable[[str], object]) -> None:
    """Do this with the new job, once its request waits."""

    def run(job_id: str) -> None:
        joined.wait()
        work(job_id)

    monkeypatch.setattr(
        submit, "enqueue_pdf_job", lambda job_id, **_: threading.Thread(target=run, args=(job_id,)).start()
    )


def test_a_request_that_waits_gets_the_pdf(each_front, joined, monkeypatch):
    front, me, body = each_front, each_front.owner(), order(file_name="now.pdf")
    meanwhile(joined, monkeypatch, front.worker.process_job)
    response = front.post(me, body, wait=25)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/pdf")
    job = front.get(me, response.headers["location"].rpartition("/")[2]).json()
    assert response.headers["etag"] == f'"{job["sha256"]}"'
    assert "now.pdf" in response.headers["content-disposition"]
    joined.clear()
    again = front.post(me, body, wait=25)
    assert (again.status_code, again.content) == (200, response.content)
    assert not joined.is_set()  # what is there is not waited for


def test_a_wait_ends_when_the_job_fails_or_is_cancelled(front, me, joined, monkeypatch):
    front.engine.fails("TEMPLATE_ERROR", "line 3: no such filter")
    meanwhile(joined, monkeypatch, front.worker.process_job)
    response = front.post(me, wait=25)
    assert (response.status_code, error_of(response)["code"]) == (409, "TEMPLATE_ERROR")
    assert error_of(response)["message"] == "line 3: no such filter"
    assert response.headers["location"].startswith("/pdf/jobs/")
    joined.clear()
    meanwhile(joined, monkeypatch, lambda job_id: front.cancel(me, job_id))
    assert front.post(me, wait=25).status_code == 410


def test_a_job_that_is_not_ready_in_time_is_202(front, me):
    body = order()
    response = front.post(me, body, wait=0.01)
    assert (response.status_code, response.json()["status"]) == (202, "queued")
    assert response.headers["location"] == f"/pdf/jobs/{response.json()['job_id']}"
    assert front.post(me, body, wait=0.01).status_code == 202  # of one that was there too


def test_a_wait_ends_when_the_service_stops(own_front, joined, monkeypatch):
    meanwhile(joined, monkeypatch, lambda _: own_front.service.begin_stop())
    response = own_front.post(own_front.owner(), wait=25)
    assert (response.status_code, response.json()["status"]) == (202, "queued")
    joined.clear()
    assert own_front.post(own_front.owner(), wait=25).status_code == 202  # and nobody begins


def test_a_wait_has_limits(front, me):
    for seconds in ("0", "-1", "61", "nan", "inf", "x"):
        response = front.post(me, wait=seconds)
        assert response.status_code == 422
        assert error_of(response)["details"]["fields"][0]["field"] == "wait"


# One task for all waits


class Counted(Queue):
    """Counts how often it is looked at; payloads are not read for that."""

    looks = 0

    def states(self, ids: Sequence[str]) -> dict[str, str]:
        self.looks += 1
        return super().states(ids)

    def find(self, ids: Sequence[str]) -> dict[str, Job]:
        raise AssertionError(f"whole jobs are read: {ids}")


@pytest.fixture
def queue() -> Iterator[Counted]:
    store = SqliteStore(":memory:")
    yield Counted("pdf", pdf_lifecycle(), store)
    store.close()


def test_one_task_polls_for_all_waits_and_ends_with_the_last(queue):
    ids = [queue.enqueue({}).id for _ in range(5)]
    polls = LongPoll(queue, bool)

    async def wait() -> None:
        tasks = [asyncio.create_task(polls.wait_for_end(job_id, 30)) for job_id in ids * 3]
        await asyncio.sleep(0)  # each has joined
        polling = polls._polling
        assert polling is not None
        assert len(polls._waiters) == len(tasks)
        queue.act("cancel", actor="test", ids=ids)
        await asyncio.gather(*tasks)
        assert (len(polls._waiters), polls._polling) == (0, polling)
        await polling

    asyncio.run(wait())
    assert queue.looks >= 1

    async def again() -> None:
        await asyncio.gather(*(polls.wait_for_end(job_id, 30) for job_id in ids))

    asyncio.run(again())  # it starts again, and the first poll finds what has ended


def test_beyond_the_limit_a_request_does_not_wait(queue, monkeypatch):
    job_id = queue.enqueue({}).id
    polls = LongPoll(queue, bool)
    monkeypatch.setattr(routes, "MAX_WAITING", 1)

    async def wait() -> None:
        first = asyncio.create_task(polls.wait_for_end(job_id, 30))
        await asyncio.sleep(0)
        await polls.wait_for_end(job_id, 30)
        assert len(polls._waiters) == 1
        queue.act("cancel", actor="test", ids=[job_id])
        await first

    asyncio.run(wait())


def test_a_job_that_is_gone_is_not_waited_for(queue):
    asyncio.run(LongPoll(queue, bool).wait_for_end(NO_JOB, 30))


def test_a_wait_survives_a_store_that_is_unreachable_for_a_moment(queue, monkeypatch):
    job_id = queue.enqueue({}).id
    queue.act("cancel", actor="test", ids=[job_id])
    states, away = queue.states, [StoreUnreachable("once"), StoreUnreachable("twice")]

    def sometimes(ids: Sequence[str]) -> dict[str, str]:
        if away:
            raise away.pop()
        return states(ids)

    monkeypatch.setattr(queue, "states", sometimes)
    asyncio.run(LongPoll(queue, bool).wait_for_end(job_id, 30))
    assert away == []


def test_a_cancelled_wait_is_forgotten(queue):
    job_id = queue.enqueue({}).id
    polls = LongPoll(queue, bool)

    async def wait() -> None:
        task = asyncio.create_task(polls.wait_for_end(job_id, 30))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(wait())
    assert len(polls._waiters) == 0
