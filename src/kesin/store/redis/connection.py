"""The connection to Redis: calls of the Lua script, their replies and errors, transactions."""

import threading
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from kesin.foundation.clock import monotonic
from kesin.foundation.forks import ForkAware, keep_for_ever
from kesin.foundation.text import wire_json
from kesin.lifecycle.budget import SECOND_US
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.notify import LIVENESS_CHECK_S, POLL_S, RESPONSE_TIMEOUT_S, Notifier, QueueListener
from kesin.store.ownership import Ownership
from kesin.store.records import Outcome, refusal
from kesin.store.redis.program import script

SCHEMA_VERSION: Final = "1"  # of the key layout


class TransactionBusy(Exception):  # not an error for the caller: it is tried again
    """Another transaction is active."""


class QueueUndeclared(Exception):  # not an error for the caller either
    """Redis has lost its data, and the queue is no longer declared."""


class RulesOutdated(Exception):  # nor is this
    """Another process declared a version of the rules meanwhile."""


_ERRORS: Final[dict[str, type[Exception]]] = {  # by the code that the script writes
    "KESINLOST": StoreUnreachable,
    "KESINBUSY": TransactionBusy,
    "KESINUNDECLARED": QueueUndeclared,
    "KESINRULES": RulesOutdated,
    "KESINEXISTS": StoreError,
    "KESINGUARD": StoreError,
}


def as_store_error(problem: redis.RedisError) -> Exception:
    message = str(problem)
    if isinstance(problem, redis.OutOfMemoryError | redis.ReadOnlyError):
        return _unavailable(message)
    if not isinstance(problem, redis.ResponseError):
        return StoreUnreachable(f"Redis is not reachable: {problem}")
    for code, error in _ERRORS.items():
        if code in message:
            return error(message.partition(code)[2].split(" script:")[0].strip() or message)
    if message.startswith(("BUSY", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS")):
        return _unavailable(message)
    return StoreError(f"Redis refused a call: {message}")


def parse_outcome(reply: Sequence[Any]) -> Outcome:
    code, job_id, *values = reply
    if code == "moved":
        return Outcome("moved", job_id, values[0], values[1])
    if code == "unknown":
        return Outcome("unknown", job_id)
    outcome = refusal(code, job_id, values[0], values[1])
    return outcome._replace(holder=values[2]) if code == "duplicate" else outcome


def check_version(version: str | None) -> None:
    """Raise StoreError for a key layout that only a newer version can read."""
    if version is not None and not (version.isdecimal() and int(version[:9]) <= int(SCHEMA_VERSION)):
        raise StoreError(
            f"the keys in Redis have version {version[:40]}, but this Kesin reads up to {SCHEMA_VERSION}: upgrade Kesin"
        )


def _unavailable(message: str) -> StoreUnreachable:
    return StoreUnreachable(f"Redis is refusing calls at the moment: {message}")


CHANNEL = "kesin:pulse"


class RedisListener(QueueListener):
    """Listens on one channel; the message is the queue's name."""

    reconnect_errors = (redis.RedisError, OSError)

    def __init__(self, client: redis.Redis, notifier: Notifier) -> None:
        super().__init__(notifier)
        self._client = client

    def _messages(self) -> Generator[str | None, None, None]:
        client: Any = self._client  # its type stubs lack pubsub
        with client.pubsub() as pubsub:
            pubsub.subscribe(CHANNEL)
            if pubsub.get_message(timeout=RESPONSE_TIMEOUT_S) is None:
                raise redis.TimeoutError(f"no response within {RESPONSE_TIMEOUT_S:g} s")
            # So polls check the connection.
            pubsub.connection.health_check_interval = LIVENESS_CHECK_S
            while True:
                yield None
                message = pubsub.get_message(ignore_subscribe_messages=True, timeout=POLL_S)
                if pubsub.health_check_response_counter * POLL_S > RESPONSE_TIMEOUT_S:
                    raise redis.TimeoutError(f"no response within {RESPONSE_TIMEOUT_S:g} s")
                if message is not None:
                    yield message["data"]


TRANSACTION_TIMEOUT_S: Final = 5  # the next caller rolls back a transaction that was idle longer
_HOLD_US: Final = TRANSACTION_TIMEOUT_S * SECOND_US
LOCK_WAIT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 5.0
UNRESPONSIVE_PAUSE_S: Final = 5.0  # how long other calls fail at once after a timeout
MAX_ABANDONED_TRANSACTIONS: Final = 100

Params = Mapping[str, Any]  # of an operation of the script; None is left out


class RedisConnection(ForkAware):
    """Runs the script, from any thread; ``declare_again`` is for queues an emptied Redis lost."""

    def __init__(self, url: str, declare_again: Callable[[str, QueueUndeclared], None]) -> None:
        self._declare_again = declare_again
        self._ownership = Ownership[str]()  # of transactions, by their tokens
        self._unresponsive_until = 0.0  # monotonic seconds
        # Tokens of transactions that could not be ended.
        self._abandoned: deque[str] = deque(maxlen=MAX_ABANDONED_TRANSACTIONS)
        # Threads of one process do not compete for the lock in Redis.
        self._transaction_lock = threading.RLock()
        self._url = url
        self.client = self._make_client()
        self.script = self.client.register_script(script())
        self._forks = 0  # of which this process is the outcome
        self.watch_forks()

    def _make_client(self) -> redis.Redis:
        try:
            return redis.Redis.from_url(
                self._url,
                decode_responses=True,
                socket_timeout=RESPONSE_TIMEOUT_S,  # ten thousand jobs take about a second
                socket_connect_timeout=CONNECT_TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),  # the caller decides whether to repeat a call
            )
        except ValueError as problem:
            raise StoreError(f"not the address of a Redis server: {problem}") from None

    def after_fork_in_child(self) -> None:
        """Leave connections to the parent; their pool would be emptied under its copy of a lock."""
        self._forks += 1
        self._transaction_lock = threading.RLock()
        self._abandoned = deque(maxlen=MAX_ABANDONED_TRANSACTIONS)
        keep_for_ever(self.client.connection_pool)
        self.client.connection_pool = self._make_client().connection_pool

    def close(self) -> None:
        self.client.close()

    def execute(self, op: str, params: Params, *, rules: str = "", moves: str = "", items: Any = None) -> Any:
        """Run one operation of the script; wait while another transaction is active."""
        token = self._ownership.joined()
        if token is None:
            self._ownership.require_free()
        header = {"hold_us": _HOLD_US, **params}
        if token is not None:
            header["tx"] = token
        given = {name: value for name, value in header.items() if value is not None}
        args = [op, wire_json(given), rules, moves, "" if items is None else wire_json(items)]
        waited_s, pause_s = 0.0, 0.001
        while True:
            try:
                return self._run(args)
            except QueueUndeclared as undeclared:
                self._declare_again(str(params["queue"]), undeclared)
                continue
            except TransactionBusy as busy:
                if waited_s >= LOCK_WAIT_S:
                    raise StoreUnreachable(str(busy)) from None
            self._roll_back_abandoned()
            threading.Event().wait(pause_s)
            waited_s += pause_s
            pause_s = min(pause_s * 2, 0.02)

    def _run(self, args: list[str]) -> Any:
        if self._unresponsive_until > monotonic():
            raise StoreUnreachable("Redis did not respond a moment ago")
        try:
            return self.script(args=args)
        except redis.RedisError as problem:
            if isinstance(problem, redis.TimeoutError):
                self._unresponsive_until = monotonic() + UNRESPONSIVE_PAUSE_S
            raise as_store_error(problem) from problem

    @contextmanager
    def transaction(self) -> Iterator[redis.Redis]:
        """Apply all calls of the caller's task inside the block together, or none of them."""
        if self._ownership.joined() is not None:
            yield from self._nested()
            return
        self._ownership.require_free()  # before the lock, which lets in every task of a thread
        with self._transaction_lock:
            token, forks = uuid.uuid4().hex, self._forks
            try:
                self.execute("begin", {"queue": "", "token": token})
                with self._ownership.held(token):
                    yield self.client
                self._require_unforked(forks)
                with self._ownership.held(token):  # the block may have ended in another context
                    self.execute("commit", {"queue": ""})
            except BaseException:
                if forks != self._forks:
                    raise  # it is the parent's
                with self._ownership.held(token):  # it may have begun although no answer came
                    try:
                        self.execute("abandon", {"queue": ""})
                    except StoreError:  # rolled back when Redis is back, or after its timeout
                        self._abandoned.append(token)
                raise

    def _require_unforked(self, forks: int) -> None:
        if forks != self._forks:
            raise StoreError("a transaction must end in the process that began it")

    def _roll_back_abandoned(self) -> None:
        """Roll back own transactions that Redis failed under, so that no caller waits for them."""
        with suppress(IndexError):
            while True:
                params = {"queue": "", "hold_us": _HOLD_US, "tx": self._abandoned.popleft()}
                with suppress(StoreError):  # it no longer exists
                    self._run(["abandon", wire_json(params), "", "", ""])

    def _nested(self) -> Iterator[redis.Redis]:
        savepoint = self.execute("mark", {"queue": ""})
        try:
            yield self.client
        except BaseException:
            with suppress(StoreError):
                self.execute("undo", {"queue": "", "to": savepoint})
            raise
