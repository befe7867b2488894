"""Whether anybody renders: workers say so every few seconds, and who is silent is not counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from kesin.foundation.clock import wall_clock_us
from kesin.foundation.logs import Logger
from kesin.lifecycle.budget import HOUR_S, SECOND_US
from kesin.store.contract import Store
from kesin.store.errors import StoreError
from kesin.workloads.pdf.signs import FRESH_S, signs_of

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
