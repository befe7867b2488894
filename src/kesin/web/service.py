"""Everything that runs behind the doors of one process: store, queues, workers, sweeper.

Made from settings, started once, stopped once. Whether it is well is asked of the parts
themselves: each loop says when it last succeeded.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from kesin.engine.access.accounts import IDLE_S, Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.foundation.clock import Clock, SystemClock
from kesin.foundation.logs import Logger
from kesin.foundation.settings import Settings
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.vocabulary import STAGES, Stage
from kesin.store.contract import Store
from kesin.store.directory import PRUNE_BATCH, Directory
from kesin.store.routed import Stores
from kesin.web.live import Live
from kesin.web.metrics import Metrics
from kesin.web.rate_limit import Limiter, network_of
from kesin.workloads import LIFECYCLES, Workload, WorkloadContext

log = Logger("kesin.service")

TIDY_EVERY_S: Final = 600.0
NOTE_EVERY_S: Final = 60.0
PING_S: Final = 2.0  # who probes is in a hurry; the store's own patience is longer
WORKER_SILENT_S: Final = 60.0  # a lane that has not reached the store for so long is not well
SWEEPS_MISSED: Final = 3  # and the sweeper is not well


@dataclass(frozen=True, slots=True)
class Check:
    """One part's health. Without one that is not ``needed``, the rest is ready all the same."""

    ok: bool
    detail: str
    needed: bool = True


class Crew(Protocol):
    """The processes beside this one, for workloads whose work must not be done in it."""

    def start(self) -> None:
        """Start them, and start them again when they die."""

    def stop(self) -> None:
        """Ask them to stop; asked again, they hurry."""

    def join(self, grace_s: float) -> None:
        """Wait for them so long, then end them."""

    @property
    def alive(self) -> bool:
        """Whether all of them run."""


class Service:
    """One process of Kesin."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        workloads: Mapping[str, Workload],
        *,
        work: bool = True,
        crew: Crew | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.workloads = dict(workloads)
        self.clock = clock or SystemClock()
        self.accounts = Accounts(Directory(store), self.clock)
        self.queues = self._open_queues()
        self.commands = Commands(
            self.queues,
            self.accounts,
            frozenset(one.name for one in workloads.values() if not one.has_sites),
            {one.name: one.restricted_actions for one in workloads.values()},
        )
        self.metrics = Metrics(self.commands, self.clock)
        for one in self.workloads.values():
            if one.metrics is not None:
                self.metrics.add(partial(one.metrics, self.house(one)))
        self.live = Live(self.queues)
        self.workers: list[Worker] = []
        self.sweeper: Sweeper | None = None  # of the main store
        self._sweepers: list[Sweeper] = []
        self.every_minute: list[Callable[[], None]] = []  # what the doors want done beside
        self._work = work
        self._crew = crew
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._ping: Future[None] = Future()
        self._ping.set_result(None)
        self._ping_beside = self._ping
        self._started = self._stop_began = self.clock.monotonic()
        self._requests = Limiter(
            settings.rate_per_s, settings.rate_per_s, self.clock.monotonic, "requests"
        )
        tries = settings.sign_in_per_min
        self._sign_ins = Limiter(tries / 60, tries, self.clock.monotonic, "tries to sign in")

    def _open_queues(self) -> dict[str, Queue]:
        """A queue for each workload, and those of the store that run under rules we know."""
        queues = {
            one.name: Queue(one.name, one.lifecycle(), self.store, clock=self.clock)
            for one in self.workloads.values()
        }
        rules = LIFECYCLES | {one.name: one.lifecycle for one in self.workloads.values()}
        for name in set(self.store.queues()) - queues.keys():
            known = self.store.definition(name)
            lifecycle = rules[known.lifecycle]() if known and known.lifecycle in rules else None
            if known and lifecycle and tuple(lifecycle.state) == known.states:
                queues[name] = Queue(name, lifecycle, self.store, clock=self.clock)
            else:  # no workload here brings its rules
                log.info("queue_left_out", queue=name, lifecycle=known and known.lifecycle)
        return queues

    @property
    def _stores(self) -> list[Store]:
        """Where the queues live."""
        return list({id(one.store): one.store for one in self.queues.values()}.values())

    def house(self, workload: Workload) -> WorkloadContext:
        """What a workload gets to work with."""
        queue = self.queues[workload.name]
        return WorkloadContext(self.settings, self.commands, queue, lambda: self.stopping)

    @property
    def _able(self) -> list[Workload]:
        """Those whose libraries are installed: the others are shown, and their jobs wait."""
        return [one for one in self.workloads.values() if not one.missing_libraries]

    @property
    def chores(self) -> dict[str, Callable[[], object]]:
        """What the workloads tidy up behind their jobs once these have expired."""
        return {
            one.name: partial(one.after_sweep, self.house(one))
            for one in self._able
            if one.after_sweep is not None
        }

    @property
    def errands(self) -> dict[str, Callable[[], object]]:
        """What the workloads want done every few seconds."""
        return {
            one.name: partial(one.periodic, self.house(one))
            for one in self._able
            if one.periodic is not None
        }

    # Limits

    def limit(self, name: str) -> None:
        """Count a request; raises TooMany."""
        self._requests.take(name)

    def limit_sign_in(self, name: str, address: str) -> None:
        """Count a try to sign in, by where it comes from and by whom it names."""
        self._sign_ins.take(f"address:{network_of(address)}")
        self._sign_ins.take(f"name:{name.casefold()}")

    # Running

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopping.is_set()

    @property
    def beside(self) -> bool | None:
        """Whether the processes beside this one run; None where it has none."""
        return self._crew.alive if self._crew else None

    def start(self) -> None:
        """Start the workers, the sweeper and the small chores."""
        self._started = self.clock.monotonic()
        for store in self._stores:
            self._run("kesin-live", partial(self.live.run, store))
        self._run("kesin-tidy", self._tidy)
        self._note()  # before anybody works: the first minute counts too
        self._run("kesin-minute", self._note_again)
        if not self._work:
            return
        for one in self.workloads.values():
            if lacking := one.missing_libraries:
                log.warning("no_work_here", workload=one.name, lacking=lacking)
        for one in self._able:
            if one.worker is not None and not one.needs_own_process:
                self.workers.append(one.worker(self.house(one)))
        for worker in self.workers:
            worker.on_claim = self.metrics.claimed
            worker.start()
        if self._crew:
            self._crew.start()
        self._start_sweepers()
        log.info("started", queues=len(self.queues), workers=len(self.workers))

    def _start_sweepers(self) -> None:
        """One for each store: while one of them is away, the queues of the others are swept."""
        main = self.store.home("")
        chores, errands = self.chores, self.errands
        for store in self._stores:
            queues = [one for one in self.queues.values() if one.store is store]
            sweeper = Sweeper(queues, every_s=self._every_s(), chores=chores)
            if store is main:
                self.sweeper = sweeper
                self.metrics.sweeping()
                sweeper.on_swept = self.metrics.swept
            else:
                sweeper.errands = errands
                sweeper.on_swept = self.metrics.moved
            self._sweepers.append(sweeper)
            self._run("kesin-sweeper", sweeper.run)

    def _every_s(self) -> dict[Stage, float]:
        slow: tuple[Stage, ...] = ("expire", "prune")
        often = self.settings.sweep_s
        return {stage: self.settings.tidy_s if stage in slow else often for stage in STAGES}

    def _run(self, name: str, loop: Callable[[], None]) -> None:
        thread = threading.Thread(target=loop, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def begin_stop(self) -> None:
        """Claim no more and let long answers end; from a signal handler too."""
        first = not self.stopping
        if first:
            self._stop_began = self.clock.monotonic()
        self._stopping.set()
        for worker in self.workers:
            worker.stop()
        if self._crew and first:  # asked again it would hurry
            self._crew.stop()
        for sweeper in self._sweepers:
            sweeper.stop()
        self.live.stop()

    def stop(self) -> None:
        """Wait for what runs, within the grace period; give the rest back; close the store."""
        self.begin_stop()
        spent_s = self.clock.monotonic() - self._stop_began
        left_s = max(self.settings.grace_s - spent_s, 0)
        joins = []
        for worker in self.workers:
            worker.grace_s = min(worker.grace_s, left_s)
            joins.append(threading.Thread(target=worker.join, name="kesin-join"))
            joins[-1].start()
        if self._crew:
            self._crew.join(left_s)
        for join in joins:
            join.join()
        for thread in self._threads:
            thread.join(5)
        self.store.close()
        log.info("stopped")

    def hurry(self) -> None:
        """End the grace period now."""
        for worker in self.workers:
            worker.grace_s = 0
        if self._crew:
            self._crew.stop()

    def _tidy(self) -> None:
        """End old sessions and drop old audit lines."""
        while not self._stopping.wait(TIDY_EVERY_S):
            try:
                now = self.accounts.now()
                directory = self.accounts.directory
                directory.end_old_sessions(now, now - IDLE_S * SECOND_US)
                old = now - self.settings.audit_days * DAY_S * SECOND_US
                while directory.prune_audit(old) == PRUNE_BATCH and not self.stopping:
                    pass
            except Exception:  # the next turn tries again
                log.exception("tidying_failed")

    def _note(self) -> None:
        """What the doors asked for once a minute: the dashboard notes its counters."""
        for call in self.every_minute:
            try:
                call()
            except Exception:  # the next minute tries again
                log.exception("note_failed")

    def _note_again(self) -> None:
        while not self._stopping.wait(NOTE_EVERY_S):
            self._note()

    # Health

    def checks(self) -> dict[str, Check]:
        """How each part is."""
        checks = {"store": self._store_check(), "disk": self._disk_check()}
        if isinstance(self.store, Stores):
            checks["redis"] = self._beside_check(self.store)
        if self._work:
            checks["workers"] = self._workers_check()
            checks["sweeper"] = self._sweeper_check()
        if self.stopping:
            checks["running"] = Check(ok=False, detail="it is stopping")
        return checks

    def _store_check(self) -> Check:
        if self._ping.done():
            self._ping = _started(self.store.ping)
        if _answered(self._ping, "store"):
            return Check(ok=True, detail="answers")
        return Check(ok=False, detail="the store does not answer")

    def _beside_check(self, stores: Stores) -> Check:
        """The store of the PDFs: nothing else waits for it."""
        if self._ping_beside.done():
            self._ping_beside = _started(stores.ping_others)
        if _answered(self._ping_beside, "redis"):
            return Check(ok=True, detail="answers", needed=False)
        return Check(ok=False, detail="does not answer: PDFs wait for it", needed=False)

    def _disk_check(self) -> Check:
        """The disks of the data directory and of the database, which may lie elsewhere."""
        file = self.settings.database_file
        for wanted in (self.settings.data_dir, *([] if file is None else [file.parent])):
            folder = next(one for one in (wanted, *wanted.absolute().parents) if one.exists())
            if shutil.disk_usage(folder).free // 1_000_000 < self.settings.min_free_mb:
                return Check(ok=False, detail="is nearly full")
            if not os.access(folder, os.W_OK | os.X_OK):
                return Check(ok=False, detail="cannot be written")
        if file is not None and file.exists() and not os.access(file, os.W_OK):
            return Check(ok=False, detail="cannot be written")
        return Check(ok=True, detail="has room")

    def _workers_check(self) -> Check:
        now = self.clock.monotonic()
        silent = [
            worker.queue.name
            for worker in self.workers
            if not worker.alive
            or (
                now - (worker.last_success or self._started) > WORKER_SILENT_S
                and not worker.leases.held()  # one job may take longer, its lease renewed meanwhile
            )
        ]
        if silent:
            return Check(ok=False, detail=f"{len(silent)} of {len(self.workers)} are silent")
        if self._crew and not self._crew.alive:
            return Check(ok=False, detail="a process beside this one is down")
        return Check(ok=True, detail=f"{len(self.workers)} at work")

    def _sweeper_check(self) -> Check:
        last = self.sweeper.last_success if self.sweeper else None
        age_s = self.clock.monotonic() - (last or self._started)
        if age_s > SWEEPS_MISSED * self.settings.sweep_s:
            return Check(ok=False, detail="has missed its last turns")
        return Check(ok=True, detail="sweeps")


def _answered(ping: Future[None], part: str) -> bool:
    try:
        ping.result(PING_S)
    except Exception as problem:  # noqa: BLE001  # whatever it is, it is not ready
        log.warning("store_not_ready", part=part, why=type(problem).__name__)
        return False
    return True


def _started(ask: Callable[[], None]) -> Future[None]:
    """Ask in a thread of its own: who waits for the answer need not wait for ever."""
    answer: Future[None] = Future()

    def run() -> None:
        try:
            ask()
        except Exception as problem:  # noqa: BLE001  # told to whoever waits
            answer.set_exception(problem)
        else:
            answer.set_result(None)

    threading.Thread(target=run, name="kesin-ping", daemon=True).start()
    return answer
