"""Everything that runs in one process of Kesin: store, queues, workers, sweeper."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from kesin.engine.access.accounts import IDLE_S, Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.clock import Clock, SystemClock
from kesin.foundation.logs import Logger
from kesin.foundation.settings import Settings
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.codec import lifecycle_from_json
from kesin.lifecycle.vocabulary import STAGES
from kesin.store.audit_log import PRUNE_BATCH, AuditChainBroken, kept_since
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.history import note_history
from kesin.store.routed import RoutedStore
from kesin.web.failures import FailureReader
from kesin.web.health import HealthCheck, check_workload, find_disk_problems
from kesin.web.live import Live
from kesin.web.metrics import Metrics
from kesin.web.pools import Gatherer, GroupCommit, WorkPool
from kesin.web.rate_limit import RateLimiter, network_of

log = Logger("kesin.service")

HOUSEKEEPING_S: Final = 600.0
MINUTE_S: Final = 60.0
NAMES: Final = 3  # how many times the attempts for one name an address has in all
PING_S: Final = 2.0  # probes wait shorter than the store's own timeout
WORKER_SILENT_S: Final = 60.0  # a worker without a success for longer is unhealthy
SWEEPS_MISSED: Final = 3  # then the sweeper is unhealthy


class Supervisor(Protocol):
    """The worker processes of workloads that need processes of their own."""

    @property
    def alive(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...  # gracefully; the second call ends the grace period
    def join(self, grace_s: float) -> None: ...  # then they are killed


class Service:
    """One process of Kesin."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        workloads: Mapping[str, Workload],
        *,
        work: bool = True,
        supervisor: Supervisor | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.workloads = dict(workloads)
        self.clock = clock or SystemClock()
        self.accounts = Accounts(Directory(store), self.clock)
        self.queues = {workload.name: workload.open_queue(store, self.clock) for workload in self.workloads.values()}
        self._left_out: set[str] = set()
        self.open_stored_queues()
        self.commands = Commands(self.queues, self.accounts, self.workloads)
        self.commands.open_new_queues = self.open_stored_queues
        self.failures = FailureReader(self.workloads)
        self.metrics = Metrics(self.commands, self.clock, self.failures)
        for workload in self.workloads.values():
            if workload.metrics is not None:
                self.metrics.add(partial(workload.metrics, self.workload_context(workload.name)))
        self.live = Live(self.queues)
        self.workers: list[Worker] = []
        self.sweeper: Sweeper | None = None  # of the main store
        self._sweepers: list[Sweeper] = []
        self.every_minute: list[Callable[[], None]] = [
            self.accounts.write_counted_refusals,
            self._note_history,
            self.open_stored_queues,
        ]
        self.writes = GroupCommit(store, self.accounts.directory)
        self.identities = None if settings.database_file is None else Gatherer("identity")
        self.accounts.run_later = self.writes.run_later
        self.imports = WorkPool("import", "imports", threads=2, waiting=8)
        self.sign_ins = WorkPool("sign-in", "sign-in attempts", threads=2, waiting=8)
        self._work = work
        self._supervisor = supervisor
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._pings: dict[str, Future[None]] = {}
        self._started = self._stop_began = self.clock.monotonic()
        self.requests = RateLimiter(settings.rate_per_s, settings.rate_per_s, self.clock.monotonic, "requests")
        self._sign_ins_of_name = self._sign_in_limiter(settings.sign_in_per_min)
        self._sign_ins_of_address = self._sign_in_limiter(NAMES * settings.sign_in_per_min)

    def open_stored_queues(self) -> None:
        """Open the other queues of the store by their stored rules; at any time, for new ones."""
        for name in sorted(set(self.store.queues()) - self.queues.keys() - self._left_out):
            try:
                lifecycle = lifecycle_from_json(self.store.rules(name)[-1].definition)
                self.queues[name] = Queue(name, lifecycle, self.store, clock=self.clock)
            except StoreUnreachable as problem:  # the next page tries again
                log.warning("queue_unreachable", queue=name, why=str(problem))
            except (ValueError, IndexError, StoreError) as problem:  # rules of another version
                self._left_out.add(name)
                log.warning("queue_left_out", queue=name, why=str(problem))

    @property
    def _stores(self) -> list[Store]:
        """The stores of the queues, each once."""
        return list({id(queue.store): queue.store for queue in self.queues.values()}.values())

    def workload_context(self, name: str) -> WorkloadContext:
        queue = self.queues[name]
        return WorkloadContext(self.settings, self.commands, queue, lambda: self.stopping)

    @property
    def _installed(self) -> list[Workload]:
        """Workloads whose libraries are installed; the jobs of the others wait."""
        return [workload for workload in self.workloads.values() if not workload.missing_libraries]

    def sweeper_of(self, queues: Sequence[Queue], **options: Any) -> Sweeper:
        """A sweeper of these queues, which also calls their workloads."""
        sweeper = Sweeper(queues, **options)
        for workload in self._installed:
            sweeper.add_calls(workload, self.workload_context(workload.name))
        return sweeper

    def _sign_in_limiter(self, per_min: int) -> RateLimiter:
        return RateLimiter(per_min / 60, per_min, self.clock.monotonic, "sign-in attempts")

    def limit_sign_in(self, name: str, address: str) -> None:
        """Count a sign-in attempt by its address: others must not be able to lock the user out."""
        network = network_of(address)
        self._sign_ins_of_address.take(network)
        self._sign_ins_of_name.take(f"{network} {name.casefold()}")

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def supervised_alive(self) -> bool | None:
        """Whether the processes beside this one run; None where it has none."""
        return self._supervisor.alive if self._supervisor else None

    def start(self) -> None:
        self._started = self.clock.monotonic()
        for store in self._stores:
            self.run_thread("kesin-live", partial(self.live.run, store))
        self.run_thread("kesin-tidy", self._housekeeping)
        self._run_minutely()  # before the workers start: the first minute counts too
        self.run_thread("kesin-minute", self._minutely_loop)
        if not self._work:
            return
        for workload in self.workloads.values():
            missing = workload.missing_libraries
            if missing and self.workload_context(workload.name).queue.stats().total:
                log.warning("no_work_here", workload=workload.name, lacking=missing)
        for workload in self._installed:
            if workload.worker is not None and not workload.needs_own_process:
                self.workers.append(workload.worker(self.workload_context(workload.name)))
        for worker in self.workers:
            worker.sweep = False  # the sweepers below do
            worker.on_claim = self.metrics.record_claims
            worker.start()
        if self._supervisor:
            self._supervisor.start()
        self._start_sweepers()
        log.info("started", queues=len(self.queues), workers=len(self.workers))

    def _start_sweepers(self) -> None:
        """One sweeper a store: while a store is unreachable, the others are swept."""
        main, slow = self.store.store_for(""), ("expire", "prune")
        tidy_s, often_s = self.settings.tidy_s, self.settings.sweep_s
        every_s = {stage: tidy_s if stage in slow else often_s for stage in STAGES}
        for store in self._stores:
            queues = [queue for queue in self.queues.values() if queue.store is store]
            sweeper = self.sweeper_of(queues, every_s=every_s)
            if store is main:
                self.sweeper = sweeper
                self.metrics.start_sweeping()
                sweeper.on_swept = self.metrics.record_sweep
            else:
                sweeper.on_swept = self.metrics.record_moves
            self._sweepers.append(sweeper)
            self.run_thread("kesin-sweeper", sweeper.run)

    def run_thread(self, name: str, loop: Callable[[], None]) -> threading.Thread:
        """Start a thread that ends when the service stops: the store is closed after it."""
        thread = threading.Thread(target=loop, name=name, daemon=True)
        self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
        thread.start()
        return thread

    def begin_stop(self) -> None:
        """Stop claiming and end live responses; safe in a signal handler."""
        first = not self.stopping
        if first:
            self._stop_began = self.clock.monotonic()
        self._stopping.set()
        for worker in self.workers:
            worker.stop()
        if self._supervisor and first:  # a second call would end its grace period
            self._supervisor.stop()
        for sweeper in self._sweepers:
            sweeper.stop()
        self.live.stop()

    def stop(self) -> None:
        """Wait for running jobs within the grace period, return the others, close the store."""
        self.begin_stop()
        spent_s = self.clock.monotonic() - self._stop_began
        left_s = max(self.settings.grace_s - spent_s, 0)
        joins = []
        for worker in self.workers:
            worker.grace_s = min(worker.grace_s, left_s)
            joins.append(threading.Thread(target=worker.join, name="kesin-join"))
            joins[-1].start()
        if self._supervisor:
            self._supervisor.join(left_s)
        for join in joins:
            join.join()
        for thread in self._threads:
            thread.join(5)
        try:
            self.accounts.write_counted_refusals(unfinished=True)
        except Exception:  # it stops all the same
            log.exception("refusals_not_written")
        self.store.close()
        log.info("stopped")

    def hurry(self) -> None:
        """End the grace period now."""
        for worker in self.workers:
            worker.grace_s = 0
        if self._supervisor:
            self._supervisor.stop()

    def _housekeeping(self) -> None:
        while not self._stopping.wait(HOUSEKEEPING_S):
            try:
                now = self.accounts.now()
                directory = self.accounts.directory
                directory.end_old_sessions(now, now - IDLE_S * SECOND_US)
                old = kept_since(self.settings.audit_days, now)
                while directory.prune_audit(old, now) == PRUNE_BATCH and not self.stopping:
                    pass
            except AuditChainBroken as problem:
                log.warning("audit_log_broken", why=str(problem), remedy="kesin audit verify")
            except Exception:  # the next round tries again
                log.exception("tidying_failed")

    def _note_history(self) -> None:
        """Where this process sweeps a queue or not: workers elsewhere may be older."""
        for queue in list(self.queues.values()):
            with suppress(StoreUnreachable):  # other queues may live elsewhere
                note_history(queue.store, queue.name, queue.lifecycle, queue.now())

    def _run_minutely(self) -> None:
        for call in self.every_minute:
            try:
                call()
            except Exception:  # the next minute tries again
                log.exception("note_failed")

    def _minutely_loop(self) -> None:
        while not self._stopping.wait(MINUTE_S):
            self._run_minutely()

    def checks(self) -> dict[str, HealthCheck]:
        _, full = next(find_disk_problems(self.settings, self._installed), (None, ""))
        disk = HealthCheck(ok=not full, detail=full or "has free space")
        answers = self._ping("store", self.store.ping, "the store is not responding")
        checks = {"store": answers, "disk": disk}
        if isinstance(self.store, RoutedStore):  # only the queues that live in Redis need it
            why, ping = "is not responding: PDFs will wait for it", self.store.ping_secondary_stores
            checks["redis"] = self._ping("redis", ping, why, needed=False)
        if all(check.ok for name, check in checks.items() if name != "disk"):
            for name, workload in self.workloads.items():  # they read the stores
                if check := check_workload(workload, self.workload_context(name)):
                    checks[name] = check
        if self._work:
            checks["workers"] = self._workers_check()
            last = (self.sweeper.last_success if self.sweeper else None) or self._started
            missed = self.clock.monotonic() - last > SWEEPS_MISSED * self.settings.sweep_s
            detail = "has missed its most recent sweeps" if missed else "sweeps"
            checks["sweeper"] = HealthCheck(ok=not missed, detail=detail)
        if self.stopping:
            checks["running"] = HealthCheck(ok=False, detail="the service is stopping")
        return checks

    def _ping(self, part: str, ping: Callable[[], None], away: str, *, needed: bool = True) -> HealthCheck:
        """Whether a store answers: asked in a thread, one at a time, so that waiting can stop."""
        if part not in self._pings or self._pings[part].done():
            self._pings[part] = Future()
            run = partial(_set_result, self._pings[part], ping)
            # A daemon: the end of the process does not wait for a store that hangs.
            threading.Thread(target=run, name="kesin-ping", daemon=True).start()
        try:
            self._pings[part].result(PING_S)
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is not ready
            log.warning("store_not_ready", part=part, why=type(problem).__name__)
            return HealthCheck(ok=False, detail=away, needed=needed)
        return HealthCheck(ok=True, detail="responds", needed=needed)

    def _workers_check(self) -> HealthCheck:
        now = self.clock.monotonic()
        silent = [
            worker.queue.name
            for worker in self.workers
            if not worker.alive
            or (
                now - (worker.last_success or self._started) > WORKER_SILENT_S
                and not worker.leases.held()  # a long job keeps its lease
            )
        ]
        if silent:
            return HealthCheck(ok=False, detail=f"{len(silent)} of {len(self.workers)} are silent")
        if self._supervisor and not self._supervisor.alive:
            return HealthCheck(ok=False, detail="a worker process is down")
        return HealthCheck(ok=True, detail=f"{len(self.workers)} running")


def _set_result(result: Future[None], ping: Callable[[], None]) -> None:
    try:
        ping()
        result.set_result(None)
    except Exception as problem:  # noqa: BLE001  # raised where the result is read
        result.set_exception(problem)
