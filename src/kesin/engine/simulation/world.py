"""The processes of a simulation, in one thread: while one is delayed in a call, others run."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, cast

from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue, StaleClaim, apply_changes
from kesin.engine.results import Act, HandlerResult
from kesin.engine.schedules import Schedule
from kesin.engine.simulation.checker import StoreCall, StoreChecker, WorkerChecker, signed_result
from kesin.engine.simulation.dice import Dice, actions_of, drops_claim, due_times, earlier_rules
from kesin.engine.simulation.faulty_store import FaultyStore, ProcessKilled
from kesin.engine.simulation.oracle_moves import break_promise
from kesin.engine.simulation.schedule import Fault, ScheduledStep
from kesin.engine.simulation.workers import Application, SimulatedWorker, without_loop
from kesin.engine.sweeper import Sweeper
from kesin.foundation.clock import ManualClock, datetime_of
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.errors import Category, Verdict
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import PRIORITIES, READY, STAGES, Role
from kesin.store.contract import Store
from kesin.store.errors import StoreUnreachable
from kesin.store.sql.store import SqlStore

WORKERS: Final = 3
MAX_JOBS: Final = 24  # at once: errors show among few jobs
MAX_HANDLER_MOVES: Final = 12  # under one claim
MAX_REMEMBERED_CLAIMS: Final = 30  # for late results and renewals
MAX_CLOCK_SKEW_US: Final = DAY_S * SECOND_US // 2  # sweeps by age tolerate a day of skew
MINUTE_US: Final = 60 * SECOND_US
EACH_MINUTE: Final = Schedule("each-minute", "* * * * *", {"n": 1}, catch_up=2)
MAX_QUEUE_HANDLES: Final = 1_000_000  # of one world: each has its own seed for ids


class World:
    """One queue, one clock, and all processes that use them."""

    def __init__(self, lifecycle: Lifecycle, store: Store, seed: int, bound: int | None, *, traced: bool) -> None:
        self.lifecycle = lifecycle
        self.store = store
        self.clock = ManualClock()
        self.trace: list[str] = []
        self.faults: Counter[str] = Counter()
        self._traced = traced
        self._seed = seed
        self._queue_handles = 0
        self._idle_handles: dict[str, list[tuple[FaultyStore, Queue]]] = {}
        self.checker = StoreChecker(lifecycle.name, lifecycle, store, bound)
        self._latest_us = self.clock.time_us
        # Every other history begins under earlier rules, and is upgraded on the way.
        self._rules = (earlier_rules(lifecycle) if seed % 2 else None) or lifecycle
        self._workers_started = 0
        self._workers = [self._start_worker() for _ in range(WORKERS)]
        self._busy: set[str] = set()
        self._claims: deque[Job] = deque(maxlen=MAX_REMEMBERED_CLAIMS)
        self._application = Application(store)
        self._dice = Dice(lifecycle, seed)
        self._completion = lifecycle.errors.move_for(Verdict.COMPLETE) or ""
        self._ending = False  # no more jobs are enqueued

    # Trace

    def record(self, line: str) -> None:
        self.checker.record(line)
        if self._traced:
            self.trace.append(f"{self._timestamp()} {line}")

    def _timestamp(self) -> str:
        seconds = (self.clock.time_us - ManualClock().time_us) / SECOND_US
        return f"{seconds:>14.6f} s"

    def record_calls(self, process: str, *calls: StoreCall) -> None:
        """Check calls to the store that were committed together, and add them to the trace."""
        self._claims.extend(job for call in calls if call[0] == "claim" for job in call[3])
        try:
            with self.checker.recording():
                self.checker.check(*calls)
                for worker in self._workers:
                    if worker.name == process:
                        worker.checker.check_calls(calls)
        finally:
            for call in calls if self._traced else ():
                line = self.checker.with_names(_format_call(*call))
                self.trace.append(f"{self._timestamp()} {process}: {line}")

    # Steps

    def run_step(self, step: ScheduledStep) -> None:
        with suppress(ProcessKilled, StoreUnreachable), self._dice.seeded(step.dice):
            getattr(self, f"_{step.kind}")(step)

    @contextmanager
    def _process(self, name: str, step: ScheduledStep) -> Iterator[Queue]:
        """Run a step in a process of that name; a delayed process keeps its own queue handle."""
        idle = self._idle_handles.setdefault(name, [])
        store, queue = idle.pop() if idle else self._open_queue(name)
        with store.running(step):
            try:
                yield queue
            finally:
                store.dead = False
                idle.append((store, queue))

    def _open_queue(self, name: str) -> tuple[FaultyStore, Queue]:
        self._queue_handles += 1
        faulty_store, rules = FaultyStore(self, name), self._rules
        options: dict[str, Any] = {"clock": self.clock}
        options["seed"] = self._seed * MAX_QUEUE_HANDLES + self._queue_handles
        options["schedules"] = (EACH_MINUTE,) if name == "scheduler" else None
        return faulty_store, Queue(rules.name, rules, cast("Store", faulty_store), **options)

    def _enqueue(self, step: ScheduledStep) -> None:
        if len(self.checker.rows) >= MAX_JOBS:
            return
        with self._process("producer", step) as queue:
            news = self._dice.new_jobs(queue, self.checker.rows)
            if step.dice % 4 == 0 and isinstance(self.store, SqlStore):
                self._order(queue, news)
            else:
                queue.enqueue_many(news)

    def _order(self, queue: Queue, news: Sequence[NewJob]) -> None:
        """In a transaction of the caller, who commits, rolls back or dies."""
        process, application = cast("FaultyStore", queue.store), self._application
        try:
            application.order(process, queue, news, commits=self._dice.maybe(0.7))
        finally:
            with self.checker.recording():
                application.check(self.checker)

    def _tick(self, step: ScheduledStep) -> None:
        """A process with a schedule enqueues what is due, and what it missed last."""
        if not self.lifecycle.initial.holds_key or len(self.checker.rows) >= MAX_JOBS:
            return
        with self._process("scheduler", step) as queue, self._ticks_checked():
            queue.tick()

    @contextmanager
    def _ticks_checked(self) -> Iterator[None]:
        """The latest missed minutes have a job each and the next is awaited, or nothing changed."""
        known, read = set(self.checker.rows), partial(self.store.schedules, self.lifecycle.name)
        [before], died = read(), True
        try:
            yield
            died = False
        finally:
            [after], jobs = read(), self.checker.rows.values()
            next_at = (self.clock.time_us // MINUTE_US + 1) * MINUTE_US
            first = max(before.next_at, next_at - EACH_MINUTE.catch_up * MINUTE_US)
            missed = map(datetime_of, range(first, next_at, MINUTE_US))
            wanted = {f"each-minute@{at:%Y-%m-%dT%H:%M}:00Z" for at in missed}
            added = {job.dedup_key or "" for job in jobs if job.id not in known}
            held = {job.dedup_key for job in jobs if job.once}
            ticked = after.next_at == next_at and added <= wanted <= held
            if not ticked and (not died or added or after != before):
                with self.checker.recording():
                    break_promise("tick", f"{sorted(added)} came from the ticks {sorted(wanted)}")

    # Workers

    def _start_worker(self) -> SimulatedWorker:
        self._workers_started += 1
        name = f"worker-{self._workers_started}"
        store, queue = self._open_queue(name)
        options: dict[str, Any] = {"name": name, "batch": 4}
        match self._workers_started % 6:
            case 0 | 3:
                options["batch_handler"] = partial(self._handle_batch, store)
            case 2:
                options = {"name": name, "handler": partial(self._handle, store), "concurrency": 4}
            case _:
                options["handler"] = lambda job: without_loop(self._handle(store, job))
        return SimulatedWorker(store, queue, **options)

    def _work(self, step: ScheduledStep) -> None:
        idle = [n for n, worker in enumerate(self._workers) if worker.name not in self._busy]
        if not idle:
            return
        index = self._dice.choice(idle)
        worker = self._workers[index]
        self._busy.add(worker.name)
        try:
            with worker.store.running(step):
                if worker.awaits:
                    worker.serve()
                elif self.checker.rows and self._dice.maybe(0.5):
                    worker.work_on(self._sample_ids(4))
                else:
                    worker.run_once()
            can_release = self.lifecycle.allows("release", "worker")
            if step.fault is None and (can_release or not worker.stopping):
                with self.checker.recording():
                    worker.checker.check_idle(worker.leases.held())
        finally:
            worker.checker = WorkerChecker()
            self._busy.discard(worker.name)
            if worker.store.dead or worker.stopping:
                self._workers[index] = self._start_worker()

    def _handle_batch(self, store: FaultyStore, jobs: Sequence[Job]) -> list[HandlerResult]:
        return [without_loop(self._handle(store, job)) for job in jobs]

    async def _handle(self, store: FaultyStore, job: Job) -> HandlerResult:
        """The handler of every worker; others run between its moves where handlers await."""
        worker = next(worker for worker in self._workers if worker.store is store)
        with self.checker.recording():
            worker.checker.begin_handler(job)
        answer: str | None = "a result"
        try:
            result = await self._run_handler(worker, job)
            answer = "release" if isinstance(result, Act) and result.action == "release" else answer
        except asyncio.CancelledError:
            answer = None
            raise
        finally:
            worker.checker.end_handler(job, answer, lost=worker.leases.is_lost(job))
        return result

    async def _run_handler(self, worker: SimulatedWorker, job: Job) -> HandlerResult:
        """Make some moves under the claim, then return some result."""
        step, store = worker.store.next_call(), worker.store
        if step and step.fault and step.fault.startswith("dies"):
            store.kill("while it works")
        dice = self._dice
        if self._dice.maybe(0.06):
            worker.stop()
            if worker.awaits and dice.maybe(0.5):
                worker.grace_over.set()
        state, diligence = job.state, dice.choice((0.1, 0.9))
        for _ in range(MAX_HANDLER_MOVES):
            await asyncio.sleep(0)
            actions = actions_of(self.lifecycle, "worker", state, fenced=True)
            onward = [action for action in actions if not drops_claim(self.lifecycle, action)]
            if not actions or self._dice.maybe(0.1):
                break
            if self._completion in actions and dice.maybe(0.3):
                self._complete(worker, job)  # what is returned then is refused
                break
            action = dice.choice(onward if onward and dice.maybe(diligence) else actions)
            if drops_claim(self.lifecycle, action):
                return dice.action(action, job)
            try:
                state = worker.queue.move(job, action).state or state
            except StaleClaim:
                break
        return dice.result(job)

    def _complete(self, worker: SimulatedWorker, job: Job) -> None:
        """An effect (a note), follow-up jobs and the end of the job: all, or none of them."""
        with worker.run_of(job).transaction(self._completion) as transaction:
            worker.store.add_note(job.queue, kind="effect", actor=worker.name, job_id=job.id)
            if len(self.checker.rows) < MAX_JOBS and not self._ending:
                worker.queue.enqueue_many(self._dice.new_jobs(worker.queue, self.checker.rows))
            transaction.result = signed_result(job, 0)

    def _renew(self, step: ScheduledStep) -> None:
        """A worker's heartbeat, or a late one for claims of any age."""
        if self._claims and self._dice.maybe(0.5):
            late = self._dice.some(self._claims, 3)
            held = [job for job in self.checker.rows.values() if job.claimed_at and job.worker]
            if held and self._dice.maybe(0.3):  # near the end of the longest run allowed
                late.append(self._dice.choice(held))
                end = (late[-1].claimed_at or 0) + self.lifecycle.max_run_seconds * SECOND_US
                self._set_clock(max(self.clock.time_us, end - self._dice.choice((1, SECOND_US))))
            with self._process("a late heartbeat", step) as queue:
                queue.renew(late)
            return
        worker = self._dice.choice(self._workers)
        with worker.store.running(step):
            worker.leases.renew()

    def _late_result(self, step: ScheduledStep) -> None:
        """A result for a claim of any age or worker, or for a job that waits for a word."""
        dice, first, known = self._dice, self.lifecycle.initial.name, list(self._claims)
        if self.lifecycle.unowned_phase(first) != READY and dice.maybe(0.7):
            known = [job for job in self.checker.rows.values() if job.state == first] or known
        if not known:
            return
        claim = dice.choice(known)
        job = self.checker.rows.get(claim.id, claim)
        all_actions = actions_of(self.lifecycle, "worker")
        actions = actions_of(self.lifecycle, "worker", job.state) or all_actions
        action = dice.choice(actions if dice.maybe(0.8) else all_actions)
        change = Change(
            claim.id,
            dice.choice((claim.claim_seq, claim.claim_seq, claim.claim_seq + 1, None)),
            error_code=dice.code(),
            error_category=dice.choice(list(Category)).value,
            error_message="late",
            result="1",
            run_at=self.clock.time_us + dice.choice((0, SECOND_US)),
        )
        options = dice.options(action)
        actor = dice.choice((claim.worker or "worker", "another worker"))
        with self._process("a late result", step) as queue:
            for _ in range(dice.choice((1, 1, 2))):
                apply_changes(queue, action, [change], actor=actor, options=options)

    # Sweeper and operators

    def _sweep(self, step: ScheduledStep) -> None:
        stages = STAGES if self._dice.maybe(0.6) else tuple(self._dice.some(STAGES, 2))
        batch = self._dice.choice((1, 3, 1_000))
        with self._process("sweeper", step) as queue:
            Sweeper([queue], batch=batch).sweep(stages)

    def _action(self, step: ScheduledStep) -> None:
        """Any action on any jobs, usually one that applies to their state."""
        dice = self._dice
        role: Role = dice.choice(("operator", "operator", "producer"))
        all_actions = actions_of(self.lifecycle, role)
        if not self.checker.rows or not all_actions:
            return
        ids = self._sample_ids(3)
        fitting = actions_of(self.lifecycle, role, self.checker.rows[ids[0]].state)
        action = dice.choice(fitting if fitting and dice.maybe(0.85) else all_actions)
        options = dice.options(action)
        attempts = dice.choice((None, 2))
        with self._process("operator", step) as queue:
            if not queue.lifecycle.allows(action, role):
                return  # this process has the earlier rules
            if any(move.payload == "replace" for move in self.lifecycle.actions[action]):
                payload = f'{{"n":{dice.randrange(1_000)}}}'
                changes = [Change(job_id, payload=payload, error_code="PRESSED") for job_id in ids]
                apply_changes(queue, action, changes, role=role, actor=role, options=options)
            else:
                kwargs: dict[str, Any] = {"actor": role, "role": role, "options": options}
                if queue.lifecycle.sets_priority(action):
                    kwargs["priority"] = dice.choice(PRIORITIES)
                queue.act(action, ids=ids, max_attempts=attempts, **kwargs)

    def _sample_ids(self, limit: int) -> list[str]:
        return self._dice.some(sorted(self.checker.rows), self._dice.randint(1, limit))

    def _pause(self, step: ScheduledStep) -> None:
        tenant, is_pause = self._dice.choice(("", *self._dice.tenants)), self._dice.maybe(0.4)
        with self._process("operator", step) as queue:
            if is_pause:
                queue.pause(actor="operator", tenant=tenant)
            else:
                queue.resume(tenant=tenant)

    def _upgrade(self, _step: ScheduledStep) -> None:
        """Processes that run go on under the earlier rules; the next ones have the newest."""
        if self._rules is not self.lifecycle:
            self._rules = self.lifecycle
            self.record("the rules are upgraded")

    # Time

    def _wait(self, _step: ScheduledStep) -> None:
        dice = self._dice
        if self._dice.maybe(0.4) and self.lifecycle.scheduled_moves:
            move = dice.choice(self.lifecycle.scheduled_moves)
            jobs = self.checker.rows.values()
            nearby = list(due_times(self.lifecycle, move, jobs, self.clock.time_us))
            if nearby:
                self._set_clock(dice.choice(nearby) - dice.randint(0, 1))
                return
        self._set_clock(self.clock.time_us + round(dice.seconds() * SECOND_US))

    def _set_clock(self, time_us: int) -> None:
        self._latest_us = max(self._latest_us, time_us)
        self.clock.time_us = max(time_us, self._latest_us - MAX_CLOCK_SKEW_US)
        self.record("time passes")

    # The end

    def bring_to_rest(self, rounds: int) -> bool:
        """Advance time, sweep and work; return whether every job came to rest."""
        faultless, self._ending = ScheduledStep("work", 0), True
        self._upgrade(faultless)
        self._idle_handles.clear()
        self._workers = [self._start_worker() for _ in self._workers]
        with self._process("operator", faultless) as queue:
            for tenant in ("", *self._dice.tenants):
                queue.resume(tenant=tenant)
        for number in range(rounds):
            if not self.checker.working_jobs():
                return True
            self._set_clock(self._latest_us + DAY_S * SECOND_US)
            with self._process("sweeper", faultless) as queue:
                Sweeper([queue]).sweep()
            for _ in range(WORKERS):
                fault: Fault | None = "dies after" if number % 4 == 0 else None
                self.run_step(ScheduledStep("work", number, fault))
        return not self.checker.working_jobs()


def _format_call(method: str, args: Sequence[Any], _kwargs: dict[str, Any], result: Any) -> str:
    match method:
        case "enqueue":
            return f"enqueue → {', '.join(f'{each.id} {each.result}' for each in result)}"
        case "claim":
            shown = ", ".join(f"{job.id} ({job.state})" for job in result)
            return f"claim → {shown or 'nothing'}"
        case "apply":
            parts = ((each.id, each.result, each.reason or each.state or "") for each in result)
            return f"{args[1]} → {', '.join(' '.join(filter(None, part)) for part in parts)}"
        case "sweep" | "settle":
            return f"{' '.join([method, *(move.name for move in args[1:])])} → {result}"
        case "renew":
            return f"renew → {', '.join(sorted(result)) or 'none'}"
        case _:
            return method
