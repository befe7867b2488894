"""A queue's calls for coroutines: each runs in a thread, so that the event loop goes on."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kesin.engine.new_job import NewJob
from kesin.engine.queue_reader import Looks
from kesin.engine.validation import BadInput, bad_field, require_fits
from kesin.foundation.clock import Duration
from kesin.foundation.text import storable
from kesin.lifecycle.model import Job
from kesin.store.limits import MAX_SQL_PAYLOAD_BYTES
from kesin.store.records import Outcome

if TYPE_CHECKING:
    from kesin.engine.queue import Queue

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def _in_thread(call: Callable[_P, _T], *args: _P.args, **how: _P.kwargs) -> _T:
    import asyncio  # it takes time, and who gets here has it

    return await asyncio.to_thread(call, *args, **how)


class AioQueue:
    """``queue.aio``. Refused inside ``store.transaction()``: call the queue itself there."""

    def __init__(self, queue: "Queue") -> None:
        self._queue = queue

    async def enqueue(self, payload: Any, *, within: Any = None, **how: Any) -> Outcome:
        """As ``queue.enqueue``; ``within`` is of psycopg, asyncpg or SQLAlchemy, for coroutines.

        With ``within``, the payload has at most 256 KiB whatever the queue's limit is, and a queue
        with a clock of its own is refused: use ``queue.enqueue(within=…)``.
        """
        if within is None:
            return await _in_thread(self._queue.enqueue, payload, **how)
        actor = how.pop("actor", "producer")
        new = NewJob(payload, **{**how, "stamps": how.get("stamps") or {}})
        return await self._enqueue_within(new, within, actor)

    async def _enqueue_within(self, new: NewJob, within: Any, actor: str) -> Outcome:
        queue = self._queue
        if new.after:
            why = "within: an asynchronous connection does not support after; use queue.enqueue(within=…)"
            raise bad_field("after", why)
        row = queue.row_of(new)
        require_fits(  # the SQL function has a limit of its own
            row.payload,
            "payload",
            MAX_SQL_PAYLOAD_BYTES,
            "the payload is %(n)s bytes; within an asynchronous connection the limit is %(most)s,"
            " whatever the queue's limit is: use queue.enqueue(…, within=…) with a synchronous"
            " connection, or store the data elsewhere and enqueue a reference",
        )
        outcome = await queue.store.enqueue_within(
            queue.name, row, within, actor=storable(actor), now=queue.clock.now()
        )
        if outcome.result == "inserted":
            return outcome._replace(state=queue.lifecycle.initial.name, seq=1)
        return outcome

    async def enqueue_many(
        self, news: Iterable[NewJob], *, actor: str = "producer", within: Any = None
    ) -> list[Outcome | BadInput]:
        """As ``queue.enqueue_many``; ``within`` is as in ``enqueue``, and takes job after job."""
        if within is None:
            return await _in_thread(self._queue.enqueue_many, news, actor=actor)
        results: list[Outcome | BadInput] = []
        for new in news:
            try:
                results.append(await self._enqueue_within(new, within, actor))
            except BadInput as problem:
                results.append(problem)
        return results

    async def wait(self, job_id: str, timeout: Duration) -> Job:  # noqa: ASYNC109
        """As ``queue.wait``; holds no thread meanwhile."""
        import asyncio

        looks = Looks(self._queue, job_id, timeout)
        while (job := looks.ended(await self.job(job_id))) is None:  # noqa: ASYNC110
            await asyncio.sleep(looks.pause_s())  # nothing tells of the end of a job elsewhere
        return job

    async def job(self, job_id: str) -> Job | None:
        """As ``queue.job``."""
        return await _in_thread(self._queue.job, job_id)
