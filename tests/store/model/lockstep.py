"""Every store and the reference, doing the same thing at the same time."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from kesin.engine.replay import verify
from kesin.engine.turns import next_turn
from kesin.foundation.clock import ManualClock
from kesin.foundation.ids import IdMaker, salt_of
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import OWNED, Role
from kesin.store.contract import Store
from kesin.store.records import Filter, NewJobRow, Outcome, ScheduleRow
from tests.store.model.reference import Reference

Answer = TypeVar("Answer")
MOST_JOBS = 1_000  # a page holds no more


class Abandoned(Exception):
    """Raised inside a transaction so that nothing of it stays."""


class Lockstep:
    """One queue on several stores, compared with the reference after every call."""

    def __init__(self, queue: str, lifecycle: Lifecycle, stores: Mapping[str, Store], seed: int = 0) -> None:
        self.queue = queue
        self.lifecycle = lifecycle
        self.stores = stores
        self.clock = ManualClock()
        self.reference = Reference(queue, lifecycle)
        self._seeds = count(seed)
        self._ids = IdMaker(self.clock, next(self._seeds))
        self._served_last = ""
        for store in stores.values():
            store.open(queue, lifecycle, virtual_time=True)

    def restart_producer(self) -> None:
        """One whose clock went back: from before, its ids are ahead, and SQL prunes such jobs late.

        Redis does not.
        """
        self._ids = IdMaker(self.clock, next(self._seeds))

    @property
    def now(self) -> int:
        return self.clock.time_us

    @property
    def jobs(self) -> dict[str, Job]:
        return self.reference.jobs

    def owned(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.phase == OWNED]

    def _agree(self, expected: Answer, ask: Callable[[Store], Answer], *, commit: bool = True) -> Answer:
        """Ask every store; all answer what the reference answered."""
        for name, store in self.stores.items():
            answer = ask(store) if commit else _ask_and_die(store, ask)
            assert answer == expected, f"{name}: {_difference(answer, expected)}"
        return expected

    # Calls

    def new_job(self, payload: str = "{}", **fields: Any) -> NewJobRow:
        job_id = self._ids.make(1)[0]
        attempts = fields.pop("max_attempts", self.lifecycle.max_attempts)
        return NewJobRow(job_id, payload, attempts, salt_of(job_id), **fields)

    def enqueue(self, news: Sequence[NewJobRow], *, actor: str = "producer") -> list[Outcome]:
        return self._agree(
            self.reference.enqueue(news, actor=actor, now=self.now),
            lambda store: store.enqueue(self.queue, news, actor=actor, now=self.now),
        )

    def claim(
        self, worker: str, *, limit: int = 1, lease_s: float = 60, tenants: Sequence[str] | None = None
    ) -> list[Job]:
        turn: dict[str, Any] = {"limit": limit, "tenants": tenants, "after": self._served_last}
        turn["now"] = self.now
        arguments = {"worker": worker, "lease_us": round(lease_s * 1_000_000), **turn}
        before = dict(self.jobs)
        claimed = self.reference.claim(**arguments)
        self._agree([before[job.id] for job in claimed], lambda store: store.peek(self.queue, **turn))
        if claimed:
            self._served_last = next_turn(self._served_last, claimed)
        return self._agree(claimed, lambda store: store.claim(self.queue, **arguments))

    def renew(self, claims: Sequence[tuple[str, int]], *, lease_s: float = 60) -> set[str]:
        arguments: dict[str, Any] = {"lease_us": round(lease_s * 1_000_000), "now": self.now}
        return self._agree(
            self.reference.renew(claims, **arguments), lambda store: store.renew(self.queue, claims, **arguments)
        )

    def apply(
        self,
        action: str,
        changes: Sequence[Change],
        *,
        role: Role = "worker",
        actor: str = "worker-1",
        options: frozenset[str] = frozenset(),
        tenants: Sequence[str] | None = None,
        commit: bool = True,
    ) -> list[Outcome]:
        """With ``commit=False`` the caller dies before the commit, and nothing has happened."""
        arguments: dict[str, Any] = {"role": role, "actor": actor, "options": options}
        arguments |= {"tenants": tenants, "now": self.now}
        reference = self.reference if commit else self.reference.fork()
        return self._agree(
            reference.apply(action, changes, **arguments),
            lambda store: store.apply(self.queue, action, changes, **arguments),
            commit=commit,
        )

    def sweep(self, move: Move, *, limit: int = 1_000, min_age_us: int = 0, max_attempts: int | None = None) -> int:
        arguments: dict[str, Any] = {"limit": limit, "min_age_us": min_age_us}
        arguments |= {"max_attempts": max_attempts, "now": self.now}
        return self._agree(
            self.reference.sweep(move, **arguments), lambda store: store.sweep(self.queue, move, **arguments)
        )

    def settle(self, *, limit: int = 1_000) -> int:
        return self._agree(
            self.reference.settle(limit=limit, now=self.now),
            lambda store: store.settle(self.queue, limit=limit, now=self.now),
        )

    def pause(self, tenant: str = "") -> None:
        self.reference.paused.add(tenant)
        for store in self.stores.values():
            store.pause(self.queue, tenant=tenant, actor="operator", now=self.now)

    def resume(self, tenant: str = "") -> None:
        was = tenant in self.reference.paused
        self.reference.paused.discard(tenant)
        for store in self.stores.values():
            assert store.resume(self.queue, tenant=tenant) is was

    def write_schedules(self, rows: Sequence[ScheduleRow], gone: Sequence[str] = ()) -> None:
        """Also inside a transaction that is undone, which changes nothing."""
        held = self.reference.schedules
        kept = {name: row for name, row in held.items() if name not in gone}
        for commit, expected in ((False, held), (True, kept | {row.name: row for row in rows})):
            self.reference.schedules = expected
            for store in self.stores.values():
                with suppress(Abandoned), store.transaction():
                    store.write_schedules(self.queue, rows, gone=gone)
                    if not commit:
                        raise Abandoned
            self.compare_schedules()

    # Comparisons

    def compare_schedules(self) -> None:
        """All of them by name, and those that a tick would hold."""
        rows = sorted(self.reference.schedules.values())
        self._agree(rows, lambda store: store.schedules(self.queue))
        names = [row.name for row in rows[:1]]
        self._agree(rows[:1], lambda store: _held_schedules(store, self.queue, names))

    def compare_page(self, where: Filter, *, limit: int, cursor: str | None = None) -> None:
        expected = self.reference.list_jobs(where, limit=limit, cursor=cursor)

        def ask(store: Store) -> tuple[list[Job], str | None]:
            page = store.jobs(self.queue, where, limit=limit, cursor=cursor)
            return page.jobs, page.cursor

        self._agree(expected, ask)

    def compare_rows(self) -> None:
        """Every column of every job."""
        self.compare_page(Filter(), limit=MOST_JOBS)

    def compare_counts(self) -> None:
        self._agree(self.reference.move_counts(), lambda store: store.move_counts(self.queue))
        stats = self.reference.stats(self.now)
        for some in (None, list(stats.tenants)[:1]):
            asked: dict[str, Any] = {"tenants": some, "recent_from": self.now - 60_000_000}
            failures = self.reference.failures(**asked)
            self._agree(
                failures,
                lambda store, asked=asked: store.failures(self.queue, **asked),  # type: ignore[misc]
            )
        self._agree(stats, lambda store: store.stats(self.queue, now=self.now))
        stamp = self.lifecycle.stamps[:1]
        aged = (stamp[0], self.now) if stamp else None
        if aged:
            waiting = {t: self.reference.backlog(t, self.now, self.now) for t in stats.tenants}
            aging = {tenant: one.aging for tenant, one in waiting.items() if one.aging}
            self._agree(aging, lambda store: store.aging(self.queue, aged))
        for tenant in (*stats.tenants, "nobody"):
            self._agree(
                self.reference.backlog(tenant, self.now, self.now if aged else 0),
                lambda store, tenant=tenant: store.backlog(  # type: ignore[misc]
                    self.queue, tenant, aged=aged, now=self.now
                ),
            )
        self._agree(dict(self.jobs), lambda store: store.find(self.queue, [*self.jobs, "nobody"]))

    def compare_histories(self) -> None:
        """Every job with every event, in order of id."""
        jobs = sorted(self.jobs.values(), key=lambda job: job.id)
        expected = [(job, self.reference.history[job.id]) for job in jobs]
        self._agree(expected, lambda store: list(store.scan(self.queue)))

    def compare_notes(self) -> None:
        for job_id in self.jobs:
            expected = self.reference.notes_by_job.get(job_id, [])
            self._agree(expected, lambda store, job_id=job_id: store.notes(job_id))  # type: ignore[misc]

    def compare_all(self) -> None:
        self.compare_counts()
        self.compare_histories()
        self.compare_notes()
        self.compare_schedules()
        for job_id in self.reference.parents:
            parents = sorted(self.reference.parents[job_id])
            expected = [self.jobs[parent] for parent in parents]
            given = {"queue": self.queue, "job_id": job_id, "limit": 99}
            self._agree(expected, lambda store, given=given: store.parents(**given))  # type: ignore[misc]
        for store in self.stores.values():
            assert verify(store, self.queue).differences == []


def _held_schedules(store: Store, queue: str, names: list[str]) -> list[ScheduleRow]:
    with store.transaction():
        return store.schedules(queue, lock=[*names, "none of this name"])


def _ask_and_die(store: Store, ask: Callable[[Store], Answer]) -> Answer:
    answers: list[Answer] = []
    with suppress(Abandoned), store.transaction():
        answers.append(ask(store))
        raise Abandoned
    return answers[0]


def _difference(answer: object, expected: object) -> str:
    """The first place where two answers part, in one line."""
    if isinstance(answer, list | tuple) and isinstance(expected, list | tuple):
        names = getattr(expected, "_fields", range(len(expected)))
        for name, one, other in zip(names, answer, expected, strict=False):
            if one != other:
                return f"[{name}] {_difference(one, other)}"
        if len(answer) != len(expected):
            return f"{len(answer)} rows, the reference has {len(expected)}"
    return f"{answer!r}, the reference says {expected!r}"
