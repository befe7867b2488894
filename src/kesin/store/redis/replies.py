"""Translates replies and errors of Redis to those of the Store interface; the listener."""

from collections.abc import Generator, Sequence
from typing import Any, Final

import redis

from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.notify import LIVENESS_CHECK_S, POLL_S, RESPONSE_TIMEOUT_S, Notifier, QueueListener
from kesin.store.records import Outcome, refusal

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
    if version is not None and not (
        version.isdecimal() and int(version[:9]) <= int(SCHEMA_VERSION)
    ):
        raise StoreError(
            f"the keys in Redis have version {version[:40]}, this Kesin reads {SCHEMA_VERSION}:"
            " install a newer Kesin"
        )


def _unavailable(message: str) -> StoreUnreachable:
    return StoreUnreachable(f"Redis refuses calls at the moment: {message}")


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
