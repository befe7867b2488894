"""Heartbeats of PDF workers: each writes one every few seconds; a silent worker is not counted."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kesin.engine.queue import Queue
from kesin.foundation.clock import wall_clock_us
from kesin.foundation.logs import Logger
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import HOUR_S, SECOND_US
from kesin.store.contract import Store
from kesin.store.directory import Directory, MetadataEntry
from kesin.store.errors import StoreError
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.store.sql.store import SqlStore
from kesin.workloads.pdf.jobs.store import WORKLOAD

if TYPE_CHECKING:
    from kesin.store.redis.store import RedisStore

HEARTBEAT_S: Final = 5.0
FRESH_S: Final = 15.0
RQ_FRESH_S: Final = 480  # an idle plain RQ worker sends a heartbeat every 405 s
PRUNE_AFTER_S: Final = HOUR_S
_PREFIX: Final = "worker:"
_WORKERS: Final = "pdf:workers"  # names, so that finding workers needs no scan over all keys
_KEY: Final = f"{WORKLOAD}:{_PREFIX}"  # of a heartbeat in Redis
_RQ: Final = "rq:worker:"
log = Logger("kesin.pdf")


class RecordedHeartbeat(NamedTuple):
    """The last heartbeat of a worker that has not signed off."""

    worker: str
    at: int
    is_fresh: bool
    state: Mapping[str, Any]

    @property
    def is_alive(self) -> bool:
        return self.is_fresh and not self.state.get("stuck")


def open_heartbeats(store: Store) -> "SqlHeartbeatStore | RedisHeartbeatStore":
    home = store.store_for(WORKLOAD)
    if isinstance(home, SqlStore):
        return SqlHeartbeatStore(Directory(home))
    return RedisHeartbeatStore(cast("RedisStore", home))


class SqlHeartbeatStore:
    """Heartbeats as metadata entries, with the time of their last change."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def record(self, worker: str, state: Mapping[str, Any], now: Callable[[], int]) -> None:
        text = canonical_json(dict(state))
        self._directory.put_metadata(MetadataEntry(WORKLOAD, "", _PREFIX + worker, text, now()))

    def remove(self, worker: str) -> None:
        self._directory.delete_metadata(WORKLOAD, "", _PREFIX + worker)

    def read(self, now: int) -> list[RecordedHeartbeat]:
        limit = round(FRESH_S * SECOND_US)  # also for a heartbeat from before a clock was set back
        return [
            RecordedHeartbeat(
                entry.name.removeprefix(_PREFIX),
                entry.changed_at,
                is_fresh=abs(now - entry.changed_at) <= limit,
                state=json.loads(entry.value) or {},
            )
            for entry in self._directory.metadata_entries(WORKLOAD, site="")
            if entry.name.startswith(_PREFIX)
        ]

    def prune(self, now: int) -> int:
        """Delete the heartbeats of workers that have long been silent; return how many."""
        before = now - PRUNE_AFTER_S * SECOND_US
        silent = [_PREFIX + beat.worker for beat in self.read(now) if beat.at < before]
        return sum(self._directory.delete_metadata(WORKLOAD, "", name) for name in silent)


class RedisHeartbeatStore:
    """Heartbeats as keys that live for 15 s, ``pdf:worker:{id}``; plain RQ workers write RQ's."""

    def __init__(self, store: "RedisStore") -> None:
        self._store = store

    def record(self, worker: str, state: Mapping[str, Any], _: Callable[[], int]) -> None:
        """Record a heartbeat outside of any open transaction, with the time of Redis."""
        with self._pipeline() as pipeline:
            pipeline.time()
            [(seconds, microseconds)] = pipeline.execute()
            at = seconds * SECOND_US + microseconds
            value = canonical_json({**state, "at": at})
            pipeline.set(_KEY + worker, value, px=round(FRESH_S * 1_000))
            pipeline.zadd(_WORKERS, {worker: at})

    def remove(self, worker: str) -> None:
        """Remove the heartbeat; the name stays for a while, to recognise it among RQ's workers."""
        with self._pipeline() as pipeline:
            pipeline.zscore(_WORKERS, worker)
            [at] = pipeline.execute()
            pipeline.delete(_KEY + worker)
            pipeline.zadd(_WORKERS, {worker: -abs(at or 0)})  # below zero: it has signed off

    def read(self, now: int) -> list[RecordedHeartbeat]:  # noqa: ARG002  # Redis keeps time
        """Return the last heartbeat of every worker, RQ's own workers included."""
        with self._pipeline() as pipeline:
            pipeline.zrange(_WORKERS, 0, -1, withscores=True)
            pipeline.smembers("rq:workers:pdf")
            recorded, rq_keys = pipeline.execute()
            names = {name for name, _ in recorded}
            rq_names = sorted(key.removeprefix(_RQ) for key in rq_keys)
            plain = [name for name in rq_names if name.partition("/")[0] not in names]
            for name, _ in recorded:
                pipeline.get(_KEY + name)
            for name in plain:
                pipeline.hmget(_RQ + name, "last_heartbeat", "state", "death")
            pipeline.time()
            *replies, (seconds, _) = pipeline.execute()
        heartbeats: list[RecordedHeartbeat] = []
        for (name, at), text in zip(recorded, replies, strict=False):
            if at > 0:
                state = json.loads(text or "{}")
                state.pop("at", None)
                heartbeats.append(RecordedHeartbeat(name, int(at), text is not None, state))
        for name, (beat, rq_state, death) in zip(plain, replies[len(recorded) :], strict=True):
            at_s = 0.0 if beat is None else datetime.fromisoformat(beat).timestamp()
            if death is None and at_s >= seconds - RQ_FRESH_S:
                at, state = round(at_s * SECOND_US), {"rq": rq_state}
                heartbeats.append(RecordedHeartbeat(name, at, is_fresh=True, state=state))
        return heartbeats

    def prune(self, now: int) -> int:
        """Delete the names of workers that have long been silent; their heartbeats have expired."""
        before = now - PRUNE_AFTER_S * SECOND_US
        with self._pipeline() as pipeline:
            pipeline.zremrangebyscore(_WORKERS, -before, before)
            return int(pipeline.execute()[0])

    @contextmanager
    def _pipeline(self) -> Iterator[Any]:
        """Send commands together, at the end of the block at the latest."""
        from kesin.store.redis.reader import redis_errors_translated

        with redis_errors_translated(), self._store.client.pipeline(transaction=False) as pipeline:
            yield pipeline
            pipeline.execute()


class Heartbeat:
    """Writes a worker's heartbeat from a thread; ``now``: the store's, if machines share it."""

    def __init__(
        self,
        store: Store,
        worker: str,
        state: Callable[[], Mapping[str, Any]] = dict,
        *,
        alive: Callable[[], bool] = lambda: True,
        now: Callable[[], int] = wall_clock_us,
    ) -> None:
        self._alive = alive  # asked before every heartbeat but the first
        self._heartbeats = open_heartbeats(store)
        self._name = worker
        self._state = state
        self._now = now
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def beat(self) -> None:
        self._heartbeats.record(self._name, self._state(), self._now)

    def start(self) -> None:
        """Write a heartbeat now and every few seconds; delete those of long silent workers."""
        self._try(self.beat)
        self._try(lambda: self._heartbeats.prune(self._now()))
        self._thread = threading.Thread(target=self._run, name="kesin-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(HEARTBEAT_S)
        self._try(lambda: self._heartbeats.remove(self._name))

    def _run(self) -> None:
        while not self._stopped.wait(HEARTBEAT_S):
            if self._alive():
                self._try(self.beat)

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as problem:  # noqa: BLE001  # the next beat tries again
            log.warning("no_heartbeat", why=type(problem).__name__)


def workers_alive(store: Store, now: int | None = None) -> dict[str, Mapping[str, Any]]:
    """Return the states of the workers with a heartbeat in the last 15 s that are not stuck."""
    recorded = open_heartbeats(store).read(wall_clock_us() if now is None else now)
    return {heartbeat.worker: heartbeat.state for heartbeat in recorded if heartbeat.is_alive}


def find_stuck_workers(queue: Queue) -> list[str]:
    """Return workers that report it, or fell silent while they exist here or jobs need them."""
    stats = queue.stats()
    recorded = open_heartbeats(queue.store).read(stats.now)
    stuck = [beat.worker for beat in recorded if beat.is_fresh and not beat.is_alive]
    exists = {beat.worker: _exists_here(beat.worker) for beat in recorded if not beat.is_fresh}
    frozen = {worker for worker, here in exists.items() if here}
    silent = {worker for worker, here in exists.items() if here is None}
    if silent and (any(beat.is_alive for beat in recorded) or not stats.states["queued"]):
        running = queue.jobs(Filter(states=("running",)), limit=MAX_PAGE).jobs
        silent &= {job.worker for job in running}
    return sorted({*stuck, *frozen, *silent})


def _exists_here(worker: str) -> bool | None:
    """Whether this process of this machine exists; if not, its jobs are recovered. Else None."""
    host, _, pid = worker.rpartition("-")[0].rpartition("-")
    if host != socket.gethostname() or not pid.isdigit():
        return None
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        pass
    return True


def check_worker_health(store: Store, now: int | None = None) -> bool:
    """Whether a worker is alive; False while the store does not respond."""
    try:
        return bool(workers_alive(store, now))
    except StoreError as problem:
        log.warning("worker_health_unknown", why=str(problem))
        return False
