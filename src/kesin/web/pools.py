"""Threads for calls: many that commit together, and pools for work that takes long.

Group commit: a commit waits for the disk, and a database writes one after the other. So one thread
takes the calls that gathered during the last commit, in their order, into one transaction. Results
are given after the commit: a crash before it answers no call. What a refused call (a Problem or
BadInput) wrote in transactions of its own is undone alone. Any other error undoes the group, and
then each call runs by itself: so every caller gets the result that its call has alone.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool

from kesin.engine.queue import Queue
from kesin.engine.validation import BadInput
from kesin.foundation.messages import Message
from kesin.foundation.problems import Problem, TooManyRequests
from kesin.store.contract import Store
from kesin.store.directory import Directory

MAX_CALLS: Final = 100  # of one commit: other writers wait for it
MAX_BYTES: Final = 1 << 20  # of the requests of one commit
RETRY_AFTER_S: Final = 2

P = ParamSpec("P")
T = TypeVar("T")


class _Call(NamedTuple):
    run: Callable[[], Any]
    size: int
    future: asyncio.Future[Any] | None


class Gatherer:
    """Runs waiting calls together in one thread: one for each costs more than a short call."""

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Call] = deque()  # no more than there are connections
        self._running = False
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"kesin-{name}")

    async def gather(self, size: int, call: Callable[P, T], /, *args: P.args, **kw: P.kwargs) -> T:
        """Run the call, of a request of this many bytes, with others."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._add(_Call(partial(call, *args, **kw), size, future))
        return await future

    def run_later(self, call: Callable[[], object]) -> None:
        """Run a small call with those that come next; its result is dropped."""
        self._add(_Call(call, 0, None))

    def _add(self, call: _Call) -> None:
        with self._lock:
            self._waiting.append(call)
            idle, self._running = not self._running, True
        if idle:
            self._executor.submit(self._work)

    def _work(self) -> None:
        while calls := self._take():
            results = _run_alone(calls) if len(calls) == 1 else self._run_together(calls)
            answers = [(a.future, b) for a, b in zip(calls, results, strict=True) if a.future]
            for loop in {future.get_loop() for future, _ in answers}:
                with suppress(RuntimeError):  # it is closed: the service was stopped at once
                    loop.call_soon_threadsafe(_deliver, loop, answers)

    def _take(self) -> list[_Call]:
        calls, size = list[_Call](), 0
        with self._lock:
            while self._waiting and len(calls) < MAX_CALLS:
                size += self._waiting[0].size
                if calls and size > MAX_BYTES:
                    break
                calls.append(self._waiting.popleft())
            self._running = bool(calls)
        return calls

    def _run_together(self, calls: Sequence[_Call]) -> list[Any]:
        return _run_alone(calls)


class GroupCommit(Gatherer):
    """Runs calls on the service's database."""

    def __init__(self, store: Store, directory: Directory) -> None:
        super().__init__("commit")
        self._store = store.store_for("")
        self._directory = directory

    async def run(self, queue: Queue, size: int, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return when the call's work is committed; a queue in another store commits by itself."""
        if queue.store is not self._store:
            return await run_in_threadpool(call, *args, **kwargs)
        return await self.gather(size, call, *args, **kwargs)

    def _run_together(self, calls: Sequence[_Call]) -> list[Any]:
        complete = False
        try:
            with self._directory.transaction():
                with self._directory.gathered_audit():
                    results = [_result_of(call, Problem, BadInput) for call in calls]
                complete = True
        except Exception as problem:  # noqa: BLE001  # each call gets its own, or this one
            if not complete:  # nothing was committed
                return _run_alone(calls)
            return [problem] * len(calls)  # whether it was committed is not known
        return results


def _run_alone(calls: Sequence[_Call]) -> list[Any]:
    return [_result_of(call, Exception) for call in calls]


def _result_of(call: _Call, *caught: type[Exception]) -> Any:
    """What the call returns, or the error: it is raised where the call was made."""
    try:
        return call.run()
    except caught as problem:
        return problem


def _deliver(loop: asyncio.AbstractEventLoop, answers: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in answers:
        if future.done() or future.get_loop() is not loop:  # done: the request was given up
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


class WorkPool:
    """Runs calls in threads of its own. Only a limited number of calls wait for one."""

    def __init__(self, name: str, what: str, *, threads: int, waiting: int) -> None:
        self._what = Message(what)
        self._places = threading.BoundedSemaphore(threads + waiting)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"kesin-{name}")

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the call in the pool; raises TooManyRequests if too many calls wait already."""
        if not self._places.acquire(blocking=False):
            raise TooManyRequests(
                "too many %(what)s at once: wait %(n)s s",
                retry_after_s=RETRY_AFTER_S,
                code="busy",
                what=self._what,
                n=RETRY_AFTER_S,
            )
        future = self._executor.submit(partial(copy_context().run, call, *args, **kwargs))
        future.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(future)
