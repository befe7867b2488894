"""Live counts: one thread polls the counters of watched queues, and watchers hold no thread."""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakSet

from kesin.engine.queue import Queue
from kesin.foundation.logs import Logger
from kesin.foundation.problems import Unavailable
from kesin.store.contract import Store
from kesin.store.errors import StoreUnreachable
from kesin.store.records import QueueStats

log = Logger("kesin.live")

POLL_S: Final = 0.5
MAX_WATCHERS: Final = 500
MAX_WATCHES_PER_ACTOR: Final = 20  # of one person or key


@dataclass(slots=True, eq=False, weakref_slot=True)
class Watch:
    """A watcher of one queue."""

    queue: str
    loop: asyncio.AbstractEventLoop
    actor_name: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    stats: QueueStats | None = None
    mark: object = None  # of the last notification; used by the polling thread alone
    over: bool = False

    def notify(self, stats: QueueStats | None) -> None:
        """Notify the watcher from the polling thread; None ends the watch."""
        self.stats, self.over = stats or self.stats, stats is None
        with suppress(RuntimeError):  # the event loop has ended
            self.loop.call_soon_threadsafe(self.changed.set)


class Live:
    """Polls the queues that are watched."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        # Weak references: a response that is dropped before it began never leaves.
        self._watches: WeakSet[Watch] = WeakSet()
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def watch(self, queue: str, who: str = "") -> Watch:
        """Start a watch; the first counts come with the next poll."""
        watch = Watch(queue, asyncio.get_running_loop(), who)
        with self._lock:
            if self._stop.is_set():
                raise Unavailable("the service is stopping")
            if len(self._watches) >= MAX_WATCHERS:
                raise Unavailable("%(n)s event streams are open: try again later", n=MAX_WATCHERS)
            own = sum(watch.actor_name == who for watch in self._watches)
            if who and own >= MAX_WATCHES_PER_ACTOR:
                raise Unavailable("you already have %(n)s event streams: close one first", n=MAX_WATCHES_PER_ACTOR)
            self._watches.add(watch)
        return watch

    def leave(self, watch: Watch) -> None:
        with self._lock:
            self._watches.discard(watch)

    def run(self, store: Store | None = None) -> None:
        """Poll until stopped; one thread a store, so that a slow store delays no other."""
        while not self._stop.wait(POLL_S):
            try:
                self.poll(store)
            except Exception:  # the next poll tries again
                log.exception("look_failed")

    def poll(self, store: Store | None = None) -> None:
        """Notify the watchers of queues that changed, of all stores or of this one."""
        with self._lock:
            watches = list(self._watches)
        for name in {watch.queue for watch in watches}:
            if store is not None and self._queues[name].store is not store:
                continue
            try:
                totals = self._queues[name].totals()
                mark = (totals.moved, totals.lease_over)
                if all(watch.mark == mark for watch in watches if watch.queue == name):
                    continue
                stats = self._queues[name].stats()
                mark = (stats.moved, stats.lease_over)
            except StoreUnreachable as problem:  # other queues may live elsewhere
                log.warning("look_failed", queue=name, why=str(problem))
                continue
            for watch in watches:
                if watch.queue == name and watch.mark != mark:
                    watch.mark = mark
                    watch.notify(stats)

    def stop(self) -> None:
        self._stop.set()
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.notify(None)
