"""An event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as TooLate
from typing import Any, Final, TypeVar

from kesin.foundation.logs import Logger

_T = TypeVar("_T")
_STOP_S: Final = 2.0
_LAST_S: Final = 1.0
_log: Final = Logger(__name__)


class LoopStuck(Exception):
    """The loop did not answer in time: it cannot be trusted any more."""


class LoopThread:
    """Runs coroutines for other threads, one loop for all of them."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_note)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _T], *, limit_s: float) -> _T:
        """What the coroutine returns or raises; raises LoopStuck when it does neither in time."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(limit_s)
        except TooLate:
            if future.done():
                raise
            future.cancel()
            raise LoopStuck(f"no answer within {limit_s:g} s") from None

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start a coroutine that deals with its own troubles, and do not wait for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """End the loop and its thread; whatever still runs on it is cancelled."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_finished())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


def _note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody waited for: mostly the last words of a driver that was ended."""
    problem = context.get("exception") or context.get("message")
    _log.info("pdf.loop_note", problem=str(problem))


async def _finished() -> None:
    """Let tasks end by themselves, as those do whose process is gone; cancel the others."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=_LAST_S)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
