"""What a script of Redis answered or why it did not, in the words of the contract."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

import redis

from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.notify import ANSWER_S, CHECK_S, POLL_S, Hearing, Pulses
from kesin.store.records import Outcome, refusal

SCHEMA: Final = "1"  # of the layout of the keys
_BUSY, _LOST, _UNDECLARED = "KESINBUSY", "KESINLOST", "KESINUNDECLARED"


class Busy(Exception):  # not an error for the caller: it is tried again
    """Another transaction is under way."""


class Undeclared(Exception):  # the same
    """Redis came back without what it had."""


def trouble(problem: redis.RedisError) -> Exception:
    """What a failed call means."""
    said = str(problem)
    if isinstance(problem, redis.OutOfMemoryError | redis.ReadOnlyError):
        return _not_now(said)
    if not isinstance(problem, redis.ResponseError):
        return StoreUnreachable(f"Redis is not reachable: {problem}")
    if _LOST in said:
        return StoreUnreachable(_plain(said, _LOST))
    if _BUSY in said:
        return Busy(_plain(said, _BUSY))
    if _UNDECLARED in said:
        return Undeclared(_plain(said, _UNDECLARED))
    return _refused(said)


def outcome_of(answer: Sequence[Any]) -> Outcome:
    """What a job answers: moved, or the reason why not."""
    word, job_id, *rest = answer
    if word == "moved":
        return Outcome("moved", job_id, rest[0], rest[1])
    if word == "unknown":
        return Outcome("unknown", job_id)
    said = refusal(word, job_id, rest[0], rest[1])
    return said._replace(holder=rest[2]) if word == "duplicate" else said


def _plain(said: str, word: str) -> str:
    return said.partition(word)[2].split(" script:")[0].strip() or said


def check_version(found: str | None) -> None:
    """Raise StoreError for keys that only a newer program can read."""
    if found is not None and not (found.isdecimal() and int(found[:9]) <= int(SCHEMA)):
        raise StoreError(
            f"the keys in Redis are of version {found[:40]}, this program knows {SCHEMA}:"
            " install a newer Kesin"
        )


def _not_now(said: str) -> StoreUnreachable:
    return StoreUnreachable(f"Redis does not take it for the moment: {said}")


def _refused(said: str) -> StoreError:
    for word in ("KESINEXISTS", "KESINGUARD"):
        if word in said:
            return StoreError(_plain(said, word))
    if said.startswith(("BUSY", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS")):
        return _not_now(said)
    return StoreError(f"Redis refused a call: {said}")


CHANNEL = "kesin:pulse"


class RedisListener(Hearing):
    """Listens on one channel; the message is the queue's name."""

    troubles = (redis.RedisError, OSError)

    def __init__(self, client: redis.Redis, pulses: Pulses) -> None:
        super().__init__(pulses)
        self._client = client

    def _heard(self) -> Generator[str | None, None, None]:
        client: Any = self._client  # its types leave this call out
        with client.pubsub() as heard:
            heard.subscribe(CHANNEL)
            if heard.get_message(timeout=ANSWER_S) is None:  # it says so once it listens
                raise redis.TimeoutError(f"no answer within {ANSWER_S:g} s")
            heard.connection.health_check_interval = CHECK_S  # then it asks at every poll
            while True:
                yield None
                message = heard.get_message(ignore_subscribe_messages=True, timeout=POLL_S)
                if heard.health_check_response_counter * POLL_S > ANSWER_S:
                    raise redis.TimeoutError(f"no answer within {ANSWER_S:g} s")
                if message is not None:
                    yield message["data"]
