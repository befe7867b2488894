"""Who acts in a simulation: workers, sweepers, producers and people on one store, in one thread.

Everybody is the real thing (``Queue``, ``Worker``, ``Sweeper``) on a way to the store of their
own, on which they can be held up, cut off or killed at any call. While somebody is held up, others
act: that is how they overlap without threads, and why a run is a pure function of its seed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, cast

from kesin.engine.leases import Leases
from kesin.engine.queue import Queue, StaleClaim
from kesin.engine.results import Act, Answer
from kesin.engine.simulation.checker import Conduct, Witness
from kesin.engine.simulation.dice import TENANTS, Dice, calls_of, lets_go, moments
from kesin.engine.simulation.faulty_store import Died, Way
from kesin.engine.simulation.schedule import ScheduledStep
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import STAGES, Role
from kesin.store.contract import Store
from kesin.store.errors import StoreUnreachable

WORKERS: Final = 3
MOST_JOBS: Final = 24  # at once: what goes wrong goes wrong among few
MOST_MOVES: Final = 12  # of one handler under one claim
REMEMBERED: Final = 30  # claims that somebody may still answer for
FARTHEST_BACK_US: Final = DAY_S * SECOND_US // 2  # sweeps by age allow for a day of skew
MOST_DESKS: Final = 1_000_000  # of one world: each makes ids of its own


class _Still(Leases):
    """Leases without their thread: the adversary says when they are renewed."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


class _Worker(Worker):
    """A worker that never waits: the clock is the simulation's."""

    def __init__(self, way: Way, queue: Queue, **how: Any) -> None:
        super().__init__(queue, **how)
        self.way = way
        self.conduct = Conduct()
        self.leases = _Still(queue, self.leases.lease_s)

    def pause(self, seconds: float) -> None:
        """The store was away; ask again at once."""


class World:
    """One queue, one clock, and everybody who has to do with it."""

    def __init__(
        self, lifecycle: Lifecycle, store: Store, seed: int, bound: int | None, *, tells: bool
    ) -> None:
        self.lifecycle = lifecycle
        self.store = store
        self.clock = ManualClock()
        self.trace: list[str] = []
        self.fates: Counter[str] = Counter()
        self._tells = tells
        self._seed = seed
        self._desks = 0
        self._free: dict[str, list[tuple[Way, Queue]]] = {}
        self.witness = Witness(lifecycle.name, lifecycle, store, bound)
        self._latest_us = self.clock.time_us
        self._hired = 0
        self._workers = [self._hire() for _ in range(WORKERS)]
        self._busy: set[str] = set()
        self._claims: deque[Job] = deque(maxlen=REMEMBERED)
        self._dice = Dice(lifecycle, seed)

    # Telling

    def say(self, line: str) -> None:
        """A line of the trace."""
        self.witness.tell(line)
        if self._tells:
            self.trace.append(f"{self._since()} {line}")

    def _since(self) -> str:
        seconds = (self.clock.time_us - ManualClock().time_us) / SECOND_US
        return f"{seconds:>14.6f} s"

    def saw(
        self, who: str, call: str, args: tuple[Any, ...], told: dict[str, Any], answer: Any
    ) -> None:
        """A call was answered: it is told, and the witness looks."""
        if call == "claim":
            self._claims.extend(answer)
        try:
            self.witness.look(call, args, told, answer)
            for worker in self._workers:
                if worker.name == who and call == "claim":
                    worker.conduct.given(answer)
                elif worker.name == who and call == "apply":
                    with self.witness.hearing():
                        worker.conduct.sent(args[1], args[2], answer)
        finally:
            if self._tells:
                shown = _told(call, args, answer, self.witness.names)
                self.trace.append(f"{self._since()} {who}: {shown}")

    # Acting

    def happen(self, act: ScheduledStep) -> None:
        """Let somebody do something."""
        with suppress(Died, StoreUnreachable), self._dice.seeded(act.dice):
            getattr(self, f"_{act.kind}")(act)

    def meanwhile(self, act: ScheduledStep) -> None:
        """Somebody is held up: the others go on."""
        for one in act.meanwhile:
            self.happen(one)

    @contextmanager
    def _at(self, name: str, act: ScheduledStep) -> Iterator[Queue]:
        """A process of that name does this; whoever is held up there keeps a desk of their own."""
        free = self._free.setdefault(name, [])
        way, queue = free.pop() if free else self._desk(name)
        with way.doing(act):
            try:
                yield queue
            finally:
                way.dead = False
                free.append((way, queue))

    def _desk(self, name: str) -> tuple[Way, Queue]:
        """A way to the store, and the queue as it is seen from there."""
        self._desks += 1
        way, lifecycle = Way(self, name), self.lifecycle
        store = cast("Store", way)
        seed = self._seed * MOST_DESKS + self._desks
        return way, Queue(lifecycle.name, lifecycle, store, clock=self.clock, seed=seed)

    def _enqueue(self, act: ScheduledStep) -> None:
        if len(self.witness.rows) >= MOST_JOBS:
            return
        news = self._dice.new_jobs(self.clock.time_us)
        with self._at("producer", act) as queue:
            queue.enqueue_many(news)

    # Workers

    def _hire(self) -> _Worker:
        self._hired += 1
        name = f"worker-{self._hired}"
        way, queue = self._desk(name)
        how: dict[str, Any] = {"name": name, "batch": 4}
        if self._hired % 3 == 0:
            how["batch_handler"] = partial(self._together, way)
        else:
            how["handler"] = partial(self._handle, way)
        return _Worker(way, queue, **how)

    def _idle(self) -> int | None:
        idle = [n for n, one in enumerate(self._workers) if one.name not in self._busy]
        return self._dice.choice(idle) if idle else None

    def _work(self, act: ScheduledStep) -> None:
        place = self._idle()
        if place is None:
            return
        worker = self._workers[place]
        self._busy.add(worker.name)
        try:
            with worker.way.doing(act):
                if self.witness.rows and self._dice.maybe(0.5):
                    worker.work_on(self._some(4))
                else:
                    worker.turn()
            gives_back = self.lifecycle.allows("release", "worker")
            if act.fate is None and (gives_back or not worker.stopping):
                with self.witness.hearing():
                    worker.conduct.rest(worker.leases.held())
        finally:
            worker.conduct = Conduct()
            self._busy.discard(worker.name)
            if worker.way.dead or worker.stopping:
                self._workers[place] = self._hire()

    def _together(self, way: Way, jobs: Sequence[Job]) -> list[Answer]:
        return [self._handle(way, job) for job in jobs]

    def _handle(self, way: Way, job: Job) -> Answer:
        worker = next(one for one in self._workers if one.way is way)
        with self.witness.hearing():
            worker.conduct.begin(job)
        answer: Answer = None
        try:
            answer = self._work_on(worker, job)
            return answer
        finally:
            worker.conduct.end(releases=isinstance(answer, Act) and answer.call == "release")

    def _work_on(self, worker: _Worker, job: Job) -> Answer:
        """Move a job on under its claim for a while, then answer somehow."""
        act, way = worker.way.moment(), worker.way
        if act and act.fate and act.fate.startswith("dies"):
            way.die("while it works")
        dice = self._dice
        if self._dice.maybe(0.06):
            worker.stop()
        state, diligence = job.state, dice.choice((0.1, 0.9))
        for _ in range(MOST_MOVES):
            calls = calls_of(self.lifecycle, "worker", state, fenced=True)
            onward = [call for call in calls if not lets_go(self.lifecycle, call)]
            if not calls or self._dice.maybe(0.1):
                break
            call = dice.choice(onward if onward and dice.maybe(diligence) else calls)
            if lets_go(self.lifecycle, call):
                return dice.action(call, job)
            try:
                state = worker.queue.move(job, call).state or state
            except StaleClaim:
                break
        return dice.result(job)

    def _renew(self, act: ScheduledStep) -> None:
        """A worker's heartbeat; or one that comes late, for claims of any age."""
        if self._claims and self._dice.maybe(0.5):
            late = self._dice.sample(self._claims, 3)
            held = [job for job in self.witness.rows.values() if job.claimed_at and job.worker]
            if held and self._dice.maybe(0.3):  # near the end of its longest run
                late.append(self._dice.choice(held))
                longest_us = self.lifecycle.max_run_seconds * SECOND_US
                end = (late[-1].claimed_at or 0) + longest_us
                self._set_clock(max(self.clock.time_us, end - self._dice.choice((1, SECOND_US))))
            with self._at("a late heartbeat", act) as queue:
                queue.renew(late)
            return
        worker = self._dice.choice(self._workers)
        with worker.way.doing(act):
            worker.leases.renew()

    def _answer(self, act: ScheduledStep) -> None:
        """An answer to a claim of any age: late, twice, by the wrong worker, with a wrong token."""
        if not self._claims:
            return
        dice = self._dice
        claim = dice.choice(self._claims)
        job = self.witness.rows.get(claim.id, claim)
        all_calls = calls_of(self.lifecycle, "worker")
        calls = calls_of(self.lifecycle, "worker", job.state) or all_calls
        call = dice.choice(calls if dice.maybe(0.8) else all_calls)
        token = dice.choice((claim.claim_seq, claim.claim_seq, claim.claim_seq + 1, None))
        change = Change(
            claim.id,
            token,
            error_code=dice.code(),
            error_category=dice.choice(list(Category)).value,
            error_message="late",
            result="1",
            run_at=self.clock.time_us + dice.choice((0, SECOND_US)),
        )
        options = dice.options(call)
        who = dice.choice((claim.worker or "worker", "somebody else"))
        with self._at("a late answer", act) as queue:
            for _ in range(dice.choice((1, 1, 2))):
                queue.apply(call, [change], actor=who, options=options)

    # The clock and people

    def _sweep(self, act: ScheduledStep) -> None:
        stages = STAGES if self._dice.maybe(0.6) else tuple(self._dice.sample(STAGES, 2))
        batch = self._dice.choice((1, 3, 1_000))
        with self._at("sweeper", act) as queue:
            Sweeper([queue], batch=batch).sweep(stages)

    def _press(self, act: ScheduledStep) -> None:
        """Any button on any jobs, most often one that fits."""
        dice = self._dice
        role: Role = dice.choice(("operator", "operator", "producer"))
        all_calls = calls_of(self.lifecycle, role)
        if not self.witness.rows or not all_calls:
            return
        ids = self._some(3)
        fitting = calls_of(self.lifecycle, role, self.witness.rows[ids[0]].state)
        call = dice.choice(fitting if fitting and dice.maybe(0.85) else all_calls)
        options = dice.options(call)
        attempts = dice.choice((None, 2))
        with self._at("operator", act) as queue:
            if any(move.payload == "replace" for move in self.lifecycle.calls[call]):
                payload = dice.payload()
                changes = [Change(one, payload=payload, error_code="PRESSED") for one in ids]
                queue.apply(call, changes, role=role, actor=role, options=options)
            else:
                told: dict[str, Any] = {"actor": role, "role": role, "options": options}
                queue.act(call, ids=ids, max_attempts=attempts, **told)

    def _some(self, most: int) -> list[str]:
        ids = sorted(self.witness.rows)
        return self._dice.sample(ids, self._dice.randint(1, most))

    def _pause(self, act: ScheduledStep) -> None:
        tenant, pauses = self._dice.choice(("", *TENANTS)), self._dice.maybe(0.4)
        with self._at("operator", act) as queue:
            if pauses:
                queue.pause(actor="operator", tenant=tenant)
            else:
                queue.resume(tenant=tenant)

    # Time

    def _wait(self, _act: ScheduledStep) -> None:
        dice = self._dice
        if self._dice.maybe(0.4) and self.lifecycle.clock_moves:
            move = dice.choice(self.lifecycle.clock_moves)
            near = list(
                moments(self.lifecycle, move, self.witness.rows.values(), self.clock.time_us)
            )
            if near:
                self._set_clock(dice.choice(near) - dice.randint(0, 1))
                return
        self._set_clock(self.clock.time_us + round(dice.seconds() * SECOND_US))

    def _set_clock(self, time_us: int) -> None:
        self._latest_us = max(self._latest_us, time_us)
        self.clock.time_us = max(time_us, self._latest_us - FARTHEST_BACK_US)
        self.say("time passes")

    # The end

    def bring_to_rest(self, rounds: int) -> bool:
        """Let time pass, the sweeper run and workers claim; whether everything came to rest."""
        quiet = ScheduledStep("work", 0)
        with self._at("operator", quiet) as queue:
            for tenant in ("", *TENANTS):
                queue.resume(tenant=tenant)
        for number in range(rounds):
            if not self.witness.at_work():
                return True
            self._set_clock(self._latest_us + DAY_S * SECOND_US)
            with self._at("sweeper", quiet) as queue:
                Sweeper([queue]).sweep()
            for _ in range(WORKERS):
                self.happen(
                    ScheduledStep("work", number, "dies after" if number % 4 == 0 else None)
                )
        return not self.witness.at_work()


def _told(call: str, args: tuple[Any, ...], answer: Any, names: dict[str, str]) -> str:
    """A call and its answer in a line."""
    match call:
        case "enqueue":
            shown = ", ".join(f"{names.get(one.id, one.id)} {one.result}" for one in answer)
            return f"enqueue → {shown}"
        case "claim":
            shown = ", ".join(f"{names.get(job.id, job.id)} ({job.state})" for job in answer)
            return f"claim → {shown or 'nothing'}"
        case "apply":
            shown = ", ".join(
                f"{names.get(one.id, one.id)} {one.result} {one.reason or one.state or ''}".rstrip()
                for one in answer
            )
            return f"{args[1]} → {shown}"
        case "sweep":
            return f"sweep {args[1].name} → {answer}"
        case "renew":
            return f"renew → {', '.join(sorted(names.get(one, one) for one in answer)) or 'none'}"
        case _:
            return call
