"""The connection to Redis: calls of the one script, and transactions of several calls."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from kesin.foundation.clock import SystemClock
from kesin.foundation.text import wire_json
from kesin.lifecycle.budget import SECOND_US
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.redis.program import script
from kesin.store.redis.replies import Busy, Undeclared, trouble

HOLD_S: Final = 5  # a transaction that says nothing for so long is undone by the next caller
LOCK_WAIT_S: Final = 30.0
ANSWER_S: Final = 10.0  # a batch of ten thousand jobs takes Redis about a second
CONNECT_S: Final = 5.0
SILENT_S: Final = 5.0  # who waited in vain spares the others the same
MOST_LEFT: Final = 100
_CLOCK: Final = SystemClock()


class RedisConnection:
    """Calls of the script, alone or in a transaction; safe to use from many threads.

    ``declare_again`` declares a queue that an emptied Redis no longer knows.
    """

    def __init__(self, url: str, declare_again: Callable[[str, Undeclared], None]) -> None:
        self._declare_again = declare_again
        self._local = threading.local()
        self._silent_until = 0.0  # monotonic seconds
        self._left: deque[str] = deque(maxlen=MOST_LEFT)  # transactions that could not be ended
        self._turn = threading.RLock()  # threads of one process do not race for the lock
        try:
            self.client = redis.Redis.from_url(
                url,
                decode_responses=True,
                socket_timeout=ANSWER_S,
                socket_connect_timeout=CONNECT_S,
                retry=Retry(NoBackoff(), 0),  # whether a call arrived is for the caller to find out
            )
        except ValueError as problem:
            raise StoreError(f"no address of a Redis server: {problem}") from None
        self.script = self.client.register_script(script())

    def close(self) -> None:
        """Close every connection."""
        self.client.close()

    def ask(
        self,
        op: str,
        ask: Mapping[str, Any],
        *,
        life: str = "",
        moves: str = "",
        items: Any = None,
    ) -> Any:
        """Run one call; wait while another transaction is under way."""
        token = getattr(self._local, "token", None)
        header = {"hold_us": HOLD_S * SECOND_US, **ask}
        if token is not None:
            header["tx"] = token
        spelled = wire_json({name: value for name, value in header.items() if value is not None})
        args = [op, spelled, life, moves, "" if items is None else wire_json(items)]
        waited, pause_s = 0.0, 0.001
        while True:
            try:
                return self._run(args)
            except Undeclared as forgotten:
                self._declare_again(str(ask["queue"]), forgotten)
                continue
            except Busy as busy:
                if waited >= LOCK_WAIT_S:
                    raise StoreUnreachable(str(busy)) from None
            self._abandon_left()
            self._idle.wait(pause_s)
            waited += pause_s
            pause_s = min(pause_s * 2, 0.02)

    def _run(self, args: list[str]) -> Any:
        if self._silent_until > _CLOCK.monotonic():
            raise StoreUnreachable("Redis did not answer a moment ago")
        try:
            return self.script(args=args)
        except redis.RedisError as problem:
            if isinstance(problem, redis.TimeoutError):
                self._silent_until = _CLOCK.monotonic() + SILENT_S
            raise trouble(problem) from problem

    _idle = threading.Event()  # never set: a pause is a wait for it

    @contextmanager
    def transaction(self) -> Iterator[redis.Redis]:
        """All calls of this thread inside the block take effect together, or none does."""
        if getattr(self._local, "token", None) is not None:
            yield from self._nested()
            return
        with self._turn:
            token = uuid.uuid4().hex
            try:
                self.ask("begin", {"queue": "", "token": token})
                self._local.token = token
                yield self.client
                self.ask("commit", {"queue": ""})
            except BaseException:
                self._local.token = token  # it may have begun without an answer
                try:
                    self.ask("abandon", {"queue": ""})
                except StoreError:  # undone when Redis is back, or when its time is over
                    self._left.append(token)
                raise
            finally:
                self._local.token = None

    def _abandon_left(self) -> None:
        """Undo transactions of ours that Redis went away under, so that nobody waits for them."""
        with suppress(IndexError):
            while True:
                asked = {"queue": "", "hold_us": HOLD_S * SECOND_US, "tx": self._left.popleft()}
                with suppress(StoreError):  # there is nothing of it any more
                    self._run(["abandon", wire_json(asked), "", "", ""])

    def _nested(self) -> Iterator[redis.Redis]:
        mark = self.ask("mark", {"queue": ""})
        try:
            yield self.client
        except BaseException:
            with suppress(StoreError):
                self.ask("undo", {"queue": "", "to": mark})
            raise
