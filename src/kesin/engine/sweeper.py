"""The clock's moves: cap, recover, expire, revive, time out, prune, in that order.

Each is one set-based statement in limited batches. Many sweepers may run at once, on one machine
or several: they skip each other's rows.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kesin.engine.queue import Queue
from kesin.foundation.logs import Logger
from kesin.lifecycle.declare import Move
from kesin.lifecycle.vocabulary import STAGES, Stage
from kesin.store.errors import StoreUnreachable

log = Logger("kesin.sweeper")

BATCH = 1_000
MOST_BATCHES = 1_000  # a pass makes at most a million moves of one kind, then others get a turn
ERRANDS_S = 5.0
CHORE_S = 4.0  # at a stop, that a chore may go on: whatever it leaves, the next one finds
EVERY_S: Mapping[Stage, float] = {
    "cap": 60,
    "recover": 60,
    "expire": 3_600,
    "revive": 60,
    "timeout": 60,
    "prune": 3_600,
}


@dataclass(slots=True)
class Swept:
    """What a pass did: (queue, move) → jobs, and which queues could not be reached."""

    moved: dict[tuple[str, str], int] = field(default_factory=dict)
    away: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All jobs moved."""
        return sum(self.moved.values())


class Sweeper:
    """Makes the clock's moves for some queues, once or for ever."""

    def __init__(
        self,
        queues: Sequence[Queue],
        *,
        every_s: Mapping[Stage, float] | None = None,
        batch: int = BATCH,
        chores: Mapping[str, Callable[[], object]] | None = None,
        errands: Mapping[str, Callable[[], object]] | None = None,
    ) -> None:
        self.queues = list(queues)
        self.every_s = {**EVERY_S, **(every_s or {})}
        self.batch = batch
        self.chores = dict(chores or {})  # queue → what is to be done once its jobs have expired
        self.errands = dict(errands or {})  # queue → what is to be done every few seconds
        self.last_success: float | None = None  # monotonic seconds
        self.on_swept: Callable[[Swept], None] | None = None  # for measuring
        self._stop = threading.Event()
        self._for_ever = False
        self._tidying: threading.Thread | None = None
        self._due: dict[Stage, float] = {}
        self._random = random.Random()

    def sweep(self, stages: Sequence[Stage] = STAGES) -> Swept:
        """One pass over all queues, their errands and their chores.

        Queues may live in several stores: one that is away, or that fails, keeps nobody from the
        others. Raises StoreUnreachable if none of them could be reached, and at the end whatever
        else went wrong first.
        """
        swept = Swept()
        failed: list[Exception] = []
        for queue in self.queues:
            try:
                self._sweep(queue, stages, swept)
            except StoreUnreachable as problem:
                swept.away.append(queue.name)
                if len(swept.away) == len(self.queues):
                    raise
                log.warning("queue_away", queue=queue.name, why=str(problem))
            except Exception as problem:
                failed.append(problem)
                log.exception("queue_not_swept", queue=queue.name)
        self._run_errands()
        if "expire" in stages and self.chores:
            if self._for_ever:
                self._tidy_beside()
            else:
                self._tidy()
        if self.on_swept:
            self.on_swept(swept)
        if failed:
            raise failed[0]
        return swept

    def _sweep(self, queue: Queue, stages: Sequence[Stage], swept: Swept) -> None:
        for move in queue.lifecycle.clock_moves:
            if move.stage in stages:
                moved = self._exhaust(queue, move)
                key = (queue.name, move.name)
                swept.moved[key] = swept.moved.get(key, 0) + moved
        queue.store.compact(queue.name)

    def _run_errands(self) -> None:
        """What cannot wait for a stage; the next turn tries again."""
        for name in [one.name for one in self.queues if one.name in self.errands]:
            try:
                self.errands[name]()
            except StoreUnreachable as problem:
                log.warning("errand_failed", queue=name, why=str(problem))
            except Exception:
                log.exception("errand_failed", queue=name)

    def _tidy(self) -> None:
        """The workloads' own tidying; what goes wrong with one is no reason to leave the others."""
        for name in [one.name for one in self.queues if one.name in self.chores]:
            if self._stop.is_set():
                return
            try:
                self.chores[name]()
            except Exception:
                log.exception("chore_failed", queue=name)

    def _tidy_beside(self) -> None:
        """Tidy in a thread: a storage far away takes minutes, and leases run out meanwhile."""
        if self._tidying is None or not self._tidying.is_alive():
            self._tidying = threading.Thread(target=self._tidy, name="kesin-chores", daemon=True)
            self._tidying.start()

    def _exhaust(self, queue: Queue, move: Move) -> int:
        moved = 0
        for _ in range(MOST_BATCHES):
            batch = queue.sweep(move, limit=self.batch)
            moved += batch
            if batch < self.batch or self._stop.is_set():
                break
        if moved:
            log.info("swept", queue=queue.name, move=move.name, jobs=moved)
        return moved

    def run(self) -> None:
        """Sweep each stage when it is due, until stopped. Survives every error of the store."""
        pause_s, self._for_ever = 1.0, True
        while not self._stop.is_set():
            now = self._monotonic()
            due = [stage for stage in STAGES if self._due.get(stage, now) <= now]
            try:
                if due:
                    self.sweep(due)
                    self.last_success = self._monotonic()
                else:
                    self._run_errands()
                pause_s = 1.0
            except Exception:  # whatever it was, the next pass tries again
                log.exception("sweep_failed", again_in_s=pause_s)
                self._stop.wait(pause_s * (0.5 + self._random.random()))
                pause_s = min(pause_s * 2, 60.0)
                continue
            for stage in due:
                self._due[stage] = now + self.every_s[stage]
            next_due = min(self._due.values(), default=now + 1)
            if self.errands:
                next_due = min(next_due, now + ERRANDS_S)
            self._stop.wait(max(0.05, next_due - self._monotonic()))
        if self._tidying is not None:
            self._tidying.join(CHORE_S)

    def due_in_s(self) -> dict[Stage, float]:
        """In how many seconds each stage is swept again; a stage never swept yet is absent."""
        now = self._monotonic()
        return {stage: at - now for stage, at in dict(self._due).items()}

    def stop(self) -> None:
        """End ``run`` after the batch at hand."""
        self._stop.set()

    def _monotonic(self) -> float:
        return self.queues[0].clock.monotonic() if self.queues else 0.0
