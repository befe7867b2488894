"""What no handler can mean is refused early, or fails the job with what to return instead."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from kesin import Act, BadInput, Done, Job, Queue, Worker
from kesin.engine.queue import apply_changes
from kesin.lifecycle.model import Change
from tests.engine.conftest import fill, job_of, states


async def send(_job: Job) -> None: ...


async def pages(_job: Job) -> AsyncIterator[int]:
    yield 1


def lines(_job: Job) -> Iterator[int]:
    yield 1


class Sender:
    async def __call__(self, _job: Job) -> None: ...


def is_in(queue: Queue, state: str, jobs: int = 1) -> bool:
    return states(queue) == {state: jobs}


BAD_HANDLERS: list[tuple[Any, str]] = [
    (pages, "is an async generator"),
    (lines, "is a generator, .* replace `yield` with `return`"),
    ("work", "the handler 'work' is not a function"),
    (lambda: None, "has the wrong number of parameters: write `def handler"),
    (lambda _job, _run, _more: None, "has the wrong number of parameters"),
]


def test_a_handler_that_does_nothing_when_called_is_refused(queue: Queue):
    worker = Worker(queue, lambda _job: None)
    for handler, why in BAD_HANDLERS:
        with pytest.raises(ValueError, match=why):
            Worker(queue, handler)
        with pytest.raises(ValueError, match=why):
            worker.handler = handler


def test_a_batch_handler_may_be_a_generator_but_not_async(queue: Queue):
    fill(queue, 2)

    def one_by_one(jobs: Any) -> Iterator[Done]:
        yield from (Done() for _ in jobs)

    Worker(queue, batch_handler=one_by_one).drain()  # type: ignore[arg-type]
    assert is_in(queue, "done", 2)
    with pytest.raises(ValueError, match=r"is async but .* asyncio.run"):
        Worker(queue, batch_handler=send)  # type: ignore[arg-type]


def coroutine(_job: Job) -> Any:
    return send(_job)


def future(_job: Job) -> Any:
    loop = asyncio.new_event_loop()
    loop.close()
    return asyncio.Future(loop=loop)


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (coroutine, "returned a coroutine that nothing awaits: return the result of asyncio.run"),
        (future, "returned a Future that nothing awaits"),
        (lambda _job: (n for n in range(3)), "its code has not run: return a list"),
        (lambda _job: object(), "a handler must return None, a JSON value, Done, Failed, Wait or Act"),
        (lambda _job: Done({1, 2}), "the result is not a JSON value"),
        (lambda _job: Act("fly"), "'fly' is not a worker action"),
    ],
)
def test_an_unusable_result_fails_its_job_and_is_logged_as_an_error(
    queue: Queue, caplog: pytest.LogCaptureFixture, handler: Any, why: str
):
    [job_id] = fill(queue, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a coroutine that was never awaited, somewhere else
        Worker(queue, handler).drain()
    job = job_of(queue, job_id)
    assert (job.state, job.error_code) == ("failed", "BAD_ANSWER")
    assert why in (job.error_message or "")
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "bad_result" in record.getMessage()
    assert job_id in record.getMessage()
    assert why in record.getMessage()


def test_a_batch_that_nothing_awaits_fails_as_well(queue: Queue, caplog: pytest.LogCaptureFixture):
    fill(queue, 2)
    batch: Any = lambda jobs: send(jobs[0])  # noqa: E731
    Worker(queue, batch_handler=batch).drain()
    assert is_in(queue, "failed", 2)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.fixture
def small(queue: Queue) -> Queue:
    queue.max_payload_bytes = 100
    return queue


def test_a_result_may_be_as_large_as_a_payload_and_a_larger_one_is_refused_with_its_size_and_the_limit(small: Queue):
    fits: list[Any] = ["x" * 98, ["ğ" * 48], Done("x" * 98)]
    larger: list[Any] = ["x" * 99, ["ğ" * 49], Done("x" * 99), Act("complete", result="x" * 99)]
    results = fits + larger
    ids = fill(small, len(results))
    Worker(small, lambda job: results[job.payload["n"]]).drain()
    assert [job_of(small, job_id).state for job_id in ids] == ["done"] * len(fits) + ["failed"] * len(larger)
    for job in map(partial(job_of, small), ids[len(fits) :]):
        assert (job.error_code, job.result_json) == ("BAD_ANSWER", None)
        assert "bytes; the limit is 100: store the data elsewhere" in (job.error_message or "")


def test_a_large_result_is_refused_whichever_way_it_comes(small: Queue):
    fill(small, 1)
    [job] = small.claim("w")
    with pytest.raises(BadInput, match="the result is 101 bytes; the limit is 100"):
        small.move(job, "complete", result="x" * 99)
    with pytest.raises(BadInput) as refused:
        apply_changes(small, "complete", [Change(job.id, job.claim_seq, result=f'"{"x" * 99}"')], actor="w")
    assert refused.value.code == "result_too_large"
    assert is_in(small, "running")
