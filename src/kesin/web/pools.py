"""Small pools of threads for work that takes long, so that it does not hold up other requests."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Final, ParamSpec, TypeVar

from kesin.foundation.problems import TooManyRequests

RETRY_AFTER_S: Final = 2

P = ParamSpec("P")
T = TypeVar("T")


class WorkPool:
    """Runs calls in threads of its own. A call waits for a thread, but only so many calls wait."""

    def __init__(self, name: str, what: str, *, threads: int, waiting: int) -> None:
        self._what = what
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
        run_in_context = partial(copy_context().run, call, *args, **kwargs)
        future = self._executor.submit(run_in_context)
        future.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(future)
