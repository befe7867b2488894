"""Live counts for those who watch: one thread looks, everybody who waits is told.

A watcher holds no thread and no connection to the store. Changes are found in the counters, which
cost the same however many jobs there are; events of single jobs are not tailed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
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

LOOK_EVERY_S: Final = 0.5
MOST_WATCHERS: Final = 500
MOST_EACH: Final = 20  # of one person or key


@dataclass(slots=True, eq=False, weakref_slot=True)
class Watch:
    """Somebody who watches one queue, until it leaves or is forgotten."""

    queue: str
    loop: asyncio.AbstractEventLoop
    who: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    stats: QueueStats | None = None
    mark: object = None  # what it was last told, known to the looking thread alone
    over: bool = False

    def _tell(self, stats: QueueStats | None) -> None:
        if stats is None:
            self.over = True
        else:
            self.stats = stats
        self.changed.set()

    def tell(self, stats: QueueStats | None) -> None:
        """From the looking thread; None ends the watch."""
        try:
            self.loop.call_soon_threadsafe(self._tell, stats)
        except RuntimeError:  # the loop has ended, and the watcher with it
            self.over = True


class Live:
    """Looks at the queues that somebody watches."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        # Weakly: an answer that is dropped before it began never says that it leaves.
        self._watches: WeakSet[Watch] = WeakSet()
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def watch(self, queue: str, who: str = "") -> Watch:
        """Begin to watch; the first counts come with the next look."""
        watch = Watch(queue, asyncio.get_running_loop(), who)
        with self._lock:
            if self._stop.is_set():
                raise Unavailable("the service is stopping")
            if len(self._watches) >= MOST_WATCHERS:
                raise Unavailable(f"{MOST_WATCHERS} are watching already: try again later")
            if who and sum(one.who == who for one in self._watches) >= MOST_EACH:
                raise Unavailable(f"you have {MOST_EACH} watches already: end one first")
            self._watches.add(watch)
        return watch

    def leave(self, watch: Watch) -> None:
        """Watch no more."""
        with self._lock:
            self._watches.discard(watch)

    @property
    def watchers(self) -> int:
        """How many watch."""
        return len(self._watches)

    def run(self, store: Store | None = None) -> None:
        """Look until stopped; at the queues of one store, for another may take its time."""
        while not self._stop.wait(LOOK_EVERY_S):
            try:
                self.look(store)
            except Exception:  # the store is away: the next look tells
                log.exception("look_failed")

    def look(self, store: Store | None = None) -> None:
        """Tell whoever watches a queue that changed, of all or of this store."""
        with self._lock:
            watches = list(self._watches)
        for name in {watch.queue for watch in watches}:
            if store is not None and self._queues[name].store is not store:
                continue
            try:
                stats = self._queues[name].stats()
            except StoreUnreachable as problem:  # the others may live elsewhere
                log.warning("look_failed", queue=name, why=str(problem))
                continue
            mark = (stats.tenants, stats.moves, stats.lease_over)
            for watch in watches:
                if watch.queue == name and watch.mark != mark:
                    watch.mark = mark
                    watch.tell(stats)

    def stop(self) -> None:
        """End every watch."""
        self._stop.set()
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.tell(None)
