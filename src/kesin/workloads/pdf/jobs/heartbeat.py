"""Whether anybody renders: workers say so every few seconds, and who is silent is not counted."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from kesin.foundation.clock import wall_clock_us
from kesin.foundation.logs import Logger
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import HOUR_S, SECOND_US
from kesin.store.contract import Store
from kesin.store.directory import Directory, Fact
from kesin.store.errors import StoreError
from kesin.store.sql.store import SqlStore
from kesin.workloads.pdf.jobs.stats import WORKLOAD

if TYPE_CHECKING:
    from kesin.store.redis.store import RedisStore

FRESH_S: Final = 15.0
RQ_FRESH_S: Final = 480  # a plain RQ worker that has nothing to do says so every 405 s
_PREFIX: Final = "worker:"
_WORKERS: Final = "pdf:workers"  # names: looking for them must not cost a walk over all keys
_RQ: Final = "rq:worker:"
_RQ_WORKERS: Final = "rq:workers:pdf"


class Signs(Protocol):
    """What workers said of themselves."""

    def leave(self, worker: str, told: Mapping[str, Any], now: Callable[[], int]) -> None:
        """Say that it lives."""

    def drop(self, worker: str) -> None:
        """Say that it is gone."""

    def known(self) -> dict[str, tuple[int, Mapping[str, Any]]]:
        """Everybody who is remembered: when they were heard of, and what they said."""

    def fresh(self, now: int) -> dict[str, Mapping[str, Any]]:
        """Who was heard of within 15 s, with what they said."""

    def forget(self, before: int) -> int:
        """Drop the signs of those who were silent since; how many."""


def signs_of(store: Store) -> Signs:
    """The signs beside the jobs of this store."""
    home = store.home(WORKLOAD)
    if isinstance(home, SqlStore):
        return FactSigns(Directory(home))
    from kesin.store.redis.store import RedisStore

    if not isinstance(home, RedisStore):
        raise TypeError("workers are heard of in SQLite, PostgreSQL or Redis")
    return RedisSigns(home)


class FactSigns:
    """As facts, with the time they were left."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def leave(self, worker: str, told: Mapping[str, Any], now: Callable[[], int]) -> None:
        """Say that it lives."""
        text = canonical_json(dict(told))
        self._directory.put_fact(Fact(WORKLOAD, "", _PREFIX + worker, text, now()))

    def drop(self, worker: str) -> None:
        """Say that it is gone."""
        self._directory.drop_fact(WORKLOAD, "", _PREFIX + worker)

    def fresh(self, now: int) -> dict[str, Mapping[str, Any]]:
        """Who was heard of within 15 s, with what they said."""
        near = round(FRESH_S * SECOND_US)  # one from the future is older than a clock set back
        return {name: told for name, (at, told) in self.known().items() if abs(now - at) <= near}

    def known(self) -> dict[str, tuple[int, Mapping[str, Any]]]:
        """Everybody who is remembered: when they were heard of, and what they said."""
        return {
            one.name.removeprefix(_PREFIX): (one.changed_at, json.loads(one.value) or {})
            for one in self._all()
        }

    def forget(self, before: int) -> int:
        """Drop the signs of those who were silent since; how many."""
        silent = [one.name for one in self._all() if one.changed_at < before]
        return sum(self._directory.drop_fact(WORKLOAD, "", name) for name in silent)

    def _all(self) -> list[Fact]:
        facts = self._directory.facts(WORKLOAD, site="")
        return [one for one in facts if one.name.startswith(_PREFIX)]


class RedisSigns:
    """As keys that live for 15 s: ``pdf:worker:{id}``. RQ's own workers tell RQ, more rarely."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def leave(
        self,
        worker: str,
        told: Mapping[str, Any],
        now: Callable[[], int],  # noqa: ARG002
    ) -> None:
        """Say that it lives, whatever transaction is under way: so the time is Redis' own."""
        with self._pipeline() as pipeline:
            pipeline.time()
            [(seconds, rest)] = pipeline.execute()
            at = seconds * SECOND_US + rest
            said = canonical_json({**told, "at": at})
            pipeline.set(self._key(worker), said, px=round(FRESH_S * 1_000))
            pipeline.zadd(_WORKERS, {worker: at})

    def drop(self, worker: str) -> None:
        """Say that it is gone; its name is kept for a while, to know it in RQ's books."""
        with self._pipeline() as pipeline:
            pipeline.delete(self._key(worker))

    def fresh(self, now: int) -> dict[str, Mapping[str, Any]]:  # noqa: ARG002  # Redis keeps time
        """Who was heard of within 15 s, or is alive as RQ sees it, with what they said."""
        return {name: told for name, (_, told) in self.known().items()}

    def known(self) -> dict[str, tuple[int, Mapping[str, Any]]]:
        """Everybody who is remembered: when they were heard of, and what they said."""
        with self._pipeline() as pipeline:
            pipeline.zrange(_WORKERS, 0, -1)
            pipeline.smembers(_RQ_WORKERS)
            names, theirs = pipeline.execute()
            plain = [
                one
                for one in sorted(theirs)
                if one.removeprefix(_RQ).partition("/")[0] not in names
            ]
            for name in names:
                pipeline.get(self._key(name))
            for one in plain:
                pipeline.hmget(one, "last_heartbeat", "state", "death")
            pipeline.time()
            *answers, (seconds, _) = pipeline.execute()
        found: dict[str, tuple[int, Mapping[str, Any]]] = {}
        for name, text in zip(names, answers, strict=False):
            if text is not None:
                told = json.loads(text)
                found[name] = (told.pop("at"), told)
        for one, (beat, state, death) in zip(plain, answers[len(names) :], strict=True):
            at = 0 if beat is None else _microseconds(beat)
            if death is None and at >= (seconds - RQ_FRESH_S) * SECOND_US:
                found[one.removeprefix(_RQ)] = (at, {"rq": state})
        return found

    def forget(self, before: int) -> int:
        """Drop the names of those who were silent since; their signs have ended by themselves."""
        with self._pipeline() as pipeline:
            pipeline.zremrangebyscore(_WORKERS, "-inf", before)
            return int(pipeline.execute()[0])

    @contextmanager
    def _pipeline(self) -> Iterator[Any]:
        """Commands sent together, at the end of the block at the latest."""
        from kesin.store.redis.reader import reached

        with reached(), self._store.client.pipeline(transaction=False) as pipeline:
            yield pipeline
            pipeline.execute()

    def _key(self, worker: str) -> str:
        return f"{WORKLOAD}:{_PREFIX}{worker}"


def _microseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * SECOND_US)


EVERY_S: Final = 5.0
FORGET_S: Final = HOUR_S
__all__ = ["FORGET_S", "FRESH_S", "Heartbeat", "check_worker_health", "workers_alive"]
log = Logger("kesin.pdf")


class Heartbeat:
    """One worker's sign of life, from a thread of its own.

    ``now`` should be the store's own time where machines share it: their clocks may differ.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        state: Callable[[], Mapping[str, Any]] = dict,
        *,
        alive: Callable[[], bool] = lambda: True,
        now: Callable[[], int] = wall_clock_us,
    ) -> None:
        self._alive = alive  # asked before every sign but the first
        self._signs = signs_of(store)
        self._name = worker
        self._state = state
        self._now = now
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def beat(self) -> None:
        """Say once that it lives."""
        self._signs.leave(self._name, self._state(), self._now)

    def start(self) -> None:
        """Say it now and every few seconds; forget who has long been silent."""
        self._try(self.beat)
        self._try(self._forget)
        self._thread = threading.Thread(target=self._run, name="kesin-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Say that it is gone."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(EVERY_S)
        self._try(lambda: self._signs.drop(self._name))

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            if self._alive():
                self._try(self.beat)

    def _forget(self) -> None:
        self._signs.forget(self._now() - FORGET_S * SECOND_US)

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as problem:  # noqa: BLE001  # the next beat tries again
            log.warning("no_heartbeat", why=type(problem).__name__)


def workers_alive(store: Store, now: int | None = None) -> dict[str, Mapping[str, Any]]:
    """Workers heard of within 15 s, with what they said."""
    return signs_of(store).fresh(wall_clock_us() if now is None else now)


def check_worker_health(store: Store, now: int | None = None) -> bool:
    """Whether somebody renders; a store that does not answer knows of nobody."""
    try:
        return bool(workers_alive(store, now))
    except StoreError as problem:
        log.warning("workers_unknown", why=str(problem))
        return False
