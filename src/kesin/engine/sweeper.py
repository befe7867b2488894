"""Runs the scheduled moves stage by stage, in limited batches; many sweepers may run at once."""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from kesin.engine.queue import Queue
from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.forks import ForkAware
from kesin.foundation.logs import Logger
from kesin.lifecycle.vocabulary import STAGES, Stage
from kesin.store.errors import StoreUnreachable
from kesin.store.history import note_history
from kesin.store.rules import jobs_by_state

log = Logger("kesin.sweeper")

BATCH = 1_000
MAX_BATCHES_PER_MOVE = 1_000  # at most a million jobs for each move in a pass
PERIODIC_INTERVAL_S = 5.0
TICK_INTERVAL_S = 1.0
AFTER_SWEEP_GRACE_S = 4.0  # a stop waits this long for it; the next run does what is left
_SELDOM_S: Mapping[Stage, float] = {"expire": 3_600, "prune": 3_600}
STAGE_INTERVALS_S: Mapping[Stage, float] = {**dict.fromkeys(STAGES, 60), **_SELDOM_S}


@dataclass(slots=True)
class SweepResult:
    """The result of a pass: (queue, move) → jobs moved, and the queues it could not reach."""

    moved: dict[tuple[str, str], int] = field(default_factory=dict)
    unreachable: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many jobs moved."""
        return sum(self.moved.values())


class Sweeper(ForkAware):
    """Runs the scheduled moves of the given queues, once or in a loop."""

    def __init__(
        self,
        queues: Sequence[Queue],
        *,
        every_s: Mapping[Stage, float] | None = None,
        batch: int = BATCH,
        after_sweep: Mapping[str, Callable[[], object]] | None = None,
        periodic: Mapping[str, Callable[[], object]] | None = None,
        jitter: float = 0.0,  # the part by which pauses may be shorter, at random
    ) -> None:
        self.queues = list(queues)
        self.every_s = {**STAGE_INTERVALS_S, **(every_s or {})}
        self.batch = batch
        self.jitter = jitter
        self.after_sweep = dict(after_sweep or {})  # queue → called once its jobs have expired
        self.periodic = dict(periodic or {})  # queue → called every few seconds
        self.last_success: float | None = None  # monotonic seconds
        self.on_swept: Callable[[SweepResult], None] | None = None  # for measuring
        self._stop = threading.Event()
        self._looping = False
        self._after_sweep_thread: threading.Thread | None = None
        self._due: dict[Stage, float] = {}
        self._random = random.Random()
        self.watch_forks()

    def after_fork_in_child(self) -> None:
        """Forget the threads, which exist only in the parent process."""
        self._stop, self._after_sweep_thread = threading.Event(), None

    def add_calls(self, workload: Workload, context: WorkloadContext) -> None:
        """Also run the workload's own functions: after its jobs expire, and every few seconds."""
        for calls, call in ((self.after_sweep, workload.after_sweep), (self.periodic, workload.periodic)):
            if call is not None:
                calls[workload.name] = partial(call, context)

    def sweep(self, stages: Sequence[Stage] = STAGES) -> SweepResult:
        """Run one pass over all queues, then their periodic work and after-sweep work.

        Queues may be in several stores; if a store is unreachable or fails, the others are not
        affected. Raises StoreUnreachable if no queue was reached. If other errors occurred, raises
        the first one at the end.
        """
        swept = SweepResult()
        errors: list[Exception] = []
        for queue in self.queues:
            try:
                self._sweep(queue, stages, swept)
            except StoreUnreachable as problem:
                swept.unreachable.append(queue.name)
                if len(swept.unreachable) == len(self.queues):
                    raise
                log.warning("queue_unreachable", queue=queue.name, why=str(problem))
            except Exception as problem:
                errors.append(problem)
                log.exception("queue_not_swept", queue=queue.name)
        self._for_each(self._tick, "tick_failed")
        self._for_each(self._run_periodic, "periodic_failed")
        if "expire" in stages and self.after_sweep:
            if self._looping:
                self._start_after_sweep()
            else:
                self._run_after_sweep()
        if self.on_swept:
            self.on_swept(swept)
        if errors:
            raise errors[0]
        return swept

    def _sweep(self, queue: Queue, stages: Sequence[Stage], swept: SweepResult) -> None:
        for move in queue.lifecycle.scheduled_moves:
            if move.stage in stages:
                moved = self._in_batches(partial(queue.sweep, move, limit=self.batch))
                if moved:
                    log.info("swept", queue=queue.name, move=move.name, jobs=moved)
                key = (queue.name, move.name)
                swept.moved[key] = swept.moved.get(key, 0) + moved
        if "prune" in stages:  # of what its rules do not know, nothing moves
            jobs = jobs_by_state(queue.store.move_counts(queue.name))
            unknown = {state: n for state, n in jobs.items() if state not in queue.lifecycle.state}
            if unknown:
                log.warning("jobs_in_unknown_states", queue=queue.name, jobs=unknown)
        queue.store.compact(queue.name)

    def _for_each(self, call: Callable[[Queue], object], failed: str) -> None:
        """Call this for each queue; a failure is logged as ``failed``, and ends no other."""
        for queue in self.queues:
            try:
                call(queue)
            except StoreUnreachable as problem:
                log.warning(failed, queue=queue.name, why=str(problem))
            except Exception:
                log.exception(failed, queue=queue.name)

    def _tick(self, queue: Queue) -> None:
        """What is due every second: schedules, and jobs that waited for others."""
        queue.tick()
        if queue.lifecycle.waiting_states:
            queue.settle(limit=self.batch)

    def _run_periodic(self, queue: Queue) -> None:
        """Run the work that does not wait for a stage."""
        self.periodic.get(queue.name, bool)()

    def _note_history(self, queue: Queue) -> None:
        """Note how many jobs ended, for charts; a failure loses nothing but a minute of them."""
        note_history(queue.store, queue.name, queue.lifecycle, queue.now())

    def _run_after_sweep(self) -> None:
        """Run the after-sweep work of each workload, until the sweeper stops."""
        work = self.after_sweep
        self._for_each(lambda queue: self._stop.is_set() or work.get(queue.name, bool)(), "after_sweep_failed")

    def _start_after_sweep(self) -> None:
        """Run it in a thread: remote storage may take minutes, and leases end meanwhile."""
        if self._after_sweep_thread is None or not self._after_sweep_thread.is_alive():
            self._after_sweep_thread = threading.Thread(
                target=self._run_after_sweep, name="kesin-after-sweep", daemon=True
            )
            self._after_sweep_thread.start()

    def _in_batches(self, make: Callable[[], int]) -> int:
        moved = 0
        for _ in range(MAX_BATCHES_PER_MOVE):
            batch = make()
            moved += batch
            if batch < self.batch or self._stop.is_set():
                break
        return moved

    def run(self) -> None:
        """Sweep each stage when it is due, until stopped. Every error is logged and retried."""
        pause_s, self._looping, periodic_due = 1.0, True, 0.0
        while not self._stop.is_set():
            now = self._monotonic()
            due = [stage for stage in STAGES if self._due.get(stage, now) <= now]
            try:
                if due:
                    self.sweep(due)
                    self.last_success = self._monotonic()
                    self._for_each(self._note_history, "history_not_noted")
                else:
                    self._for_each(self._tick, "tick_failed")
                    if now >= periodic_due:
                        self._for_each(self._run_periodic, "periodic_failed")
                        periodic_due = now + PERIODIC_INTERVAL_S
                pause_s = 1.0
            except Exception:  # the next pass tries again
                log.exception("sweep_failed", again_in_s=pause_s)
                self._stop.wait(pause_s * (0.5 + self._random.random()))
                pause_s = min(pause_s * 2, 60.0)
                continue
            for stage in due:
                early = 1 - self.jitter * self._random.random()
                self._due[stage] = now + self.every_s[stage] * early
            next_due = min(self._due.values(), default=now + 1)
            if any(queue.ticks or queue.lifecycle.waiting_states for queue in self.queues):
                next_due = min(next_due, now + TICK_INTERVAL_S)
            if self.periodic:
                next_due = min(next_due, now + PERIODIC_INTERVAL_S)
            self._stop.wait(max(0.05, next_due - self._monotonic()))
        if self._after_sweep_thread is not None:
            self._after_sweep_thread.join(AFTER_SWEEP_GRACE_S)

    def due_in_s(self) -> dict[Stage, float]:
        """The seconds until each stage is due; a stage that has never run is absent."""
        now = self._monotonic()
        return {stage: at - now for stage, at in dict(self._due).items()}

    def stop(self) -> None:
        """Stop ``run`` after the current batch."""
        self._stop.set()

    def _monotonic(self) -> float:
        return self.queues[0].clock.monotonic() if self.queues else 0.0
