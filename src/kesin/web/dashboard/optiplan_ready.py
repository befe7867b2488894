"""Which held orders have their XML already: the export folder is listed once for many questions.

Every open page of orders asks every few seconds, for each order that waits. The folder may be a
share with thousands of files in it: whoever asks soon after somebody else gets the same list.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI

from kesin.lifecycle.model import Job
from kesin.web.dashboard.of_app import once

if TYPE_CHECKING:
    from kesin.workloads.optiplan.folders import Entry
    from kesin.workloads.optiplan.order_desk import OrderDesk

LOOK_EVERY_S: Final = 3.0


class ReadyOrders:
    """One for an app."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._seen: Sequence[Entry] = ()
        self._until = 0.0

    def is_ready(self, desk: OrderDesk, job: Job) -> bool:
        """Whether the order waits for an operator who has done the work already."""
        from kesin.workloads.optiplan.job_bodies import is_ready

        return is_ready(desk, job, lambda: self._listed(desk))

    def _listed(self, desk: OrderDesk) -> Sequence[Entry]:
        """The folder as it was a moment ago; one that is away looks empty."""
        from kesin.workloads.optiplan.codes import OrderProblem
        from kesin.workloads.optiplan.folders import plain_files

        with self._lock:
            if self._now() >= self._until:
                try:
                    self._seen = plain_files(desk.workshop.paths().export_folder)
                except (OrderProblem, OSError):
                    self._seen = ()
                self._until = self._now() + LOOK_EVERY_S
            return self._seen


def ready_orders(app: FastAPI) -> ReadyOrders:
    """The app's own."""
    return once(app, "ready_orders", ReadyOrders)
