"""A producer, a worker and a sweeper in this process: none of them is started again."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from typing import Self

from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.lifecycle.model import Job
from kesin.store.contract import Store
from kesin.store.errors import StoreUnreachable
from tests.cli.programs import PATIENCE_S, wait_until
from tests.faults.cast import LEASE_S, Address, Ahead
from tests.faults.promise import PromiseReport, check_promise

OFTEN_S = 0.05


class Load:
    """Jobs come in and are worked on until it is enough, whatever happens meanwhile."""

    def __init__(self, address: Address, store: Store) -> None:
        self.queue = address.queue(store)
        self.answered_ids: list[str] = []
        self.unanswered = 0
        self.runs: Counter[str] = Counter()
        self.worker = Worker(self.queue, self._run, threads=2, batch=4, poll_s=OFTEN_S)
        often = {"cap": OFTEN_S, "recover": OFTEN_S, "revive": OFTEN_S, "timeout": OFTEN_S}
        self.sweeper = Sweeper([self.queue], every_s=often)  # type: ignore[arg-type]
        self._enough = threading.Event()
        self._given_up = threading.Event()
        self._failed: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._watched, args=(part,), daemon=True)
            for part in (self._produce, self.sweeper.run)
        ]

    def __enter__(self) -> Self:
        self.worker.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._given_up.set()
        self.sweeper.stop()
        self.worker.grace_s = 5.0
        self.worker.stop()
        self.worker.join()

    def go_on(self, jobs: int) -> None:
        """Return when so many more are worked on."""
        aim = len(self.runs) + jobs
        wait_until(lambda: self._failed or len(self.runs) >= aim)
        assert self._failed == []

    def bring_to_rest(self, *, may_lose: bool = False) -> PromiseReport:
        """Go on until everything is done; leases end, as they do in time.

        A server that ``may_lose`` its last second may have forgotten what it answered for.
        """
        self._enough.set()
        self._threads[0].join(PATIENCE_S)
        assert not self._threads[0].is_alive(), "the producer was not answered"
        assert isinstance(self.queue.clock, Ahead)
        self.queue.clock.seconds += 2 * LEASE_S
        wait_until(lambda: self._failed or self._at_rest())
        assert self._failed == []
        assert self.worker.alive
        self.end()
        queue = self.queue
        answered_ids = [] if may_lose else self.answered_ids
        report = check_promise(queue.store, queue.name, queue.lifecycle, answered_ids)
        assert report.jobs <= len(self.answered_ids) + self.unanswered
        assert report.states == {"done": report.jobs}
        return report

    def _at_rest(self) -> bool:
        try:
            states = self.queue.stats().states
        except StoreUnreachable:
            return False
        return states["ready"] == states["running"] == 0

    def _run(self, job: Job) -> None:
        self.runs[job.id] += 1

    def _produce(self) -> None:
        """A job is sent again until it is answered; its key makes it one while it waits."""
        numbers = itertools.count()
        while not (self._enough.is_set() or self._given_up.is_set()):
            number = next(numbers)
            while not self._given_up.is_set():
                try:
                    self.answered_ids.append(self.queue.enqueue({"n": number}, key=str(number)).id)
                    break
                except StoreUnreachable:
                    self.unanswered += 1
                    self._given_up.wait(OFTEN_S)

    def _watched(self, part: object) -> None:
        assert callable(part)
        try:
            part()
        except BaseException as problem:
            self._failed.append(problem)
            raise
