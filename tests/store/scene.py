"""The helper of the conformance tests: a queue on a store with a manual clock.

Every time is injected: a scene has a clock that stands still until the test advances it, and passes
its time to each call. The scene checks nothing; the tests do.
"""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from kesin.foundation.clock import ManualClock
from kesin.foundation.ids import IdMaker, salt_of
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change, Job, MoveContext, apply_move
from kesin.lifecycle.vocabulary import Role
from kesin.store.contract import Store
from kesin.store.records import Event, NewJobRow, Note, Outcome
from kesin.store.redis.store import RedisStore

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NOW = 1_700_000_000_000_000
LEASE_S = 60
OPERATOR = {"role": "operator", "actor": "op"}
PRODUCER = {"role": "producer", "actor": "p"}
UNKNOWN_ID = "00000000-0000-7000-8000-000000000000"  # the id of no job
NO_IDS = ["", "nope", "0" * 32, "' OR 1=1 --", "ü", "\x00"]


class Scene:
    """One queue, its lifecycle and a clock."""

    def __init__(self, store: Store, queue: str, lifecycle: Lifecycle) -> None:
        self.store = store
        self.queue = queue
        self.lifecycle = lifecycle
        self.clock = ManualClock(NOW)
        self._ids = IdMaker(self.clock, seed=zlib.crc32(queue.encode()))
        store.open(queue, lifecycle, virtual_time=True)

    @property
    def now(self) -> int:
        return self.clock.time_us

    # Enqueueing

    def new(self, payload: str = "{}", **details: Any) -> NewJobRow:
        """A job to enqueue; ``key`` is its dedup key."""
        job_id = self._ids.make(1)[0]
        return NewJobRow(
            id=job_id,
            payload=payload,
            max_attempts=details.pop("max_attempts", self.lifecycle.max_attempts),
            salt=salt_of(job_id),
            dedup_key=details.pop("key", None),
            **details,
        )

    def enqueue(self, *jobs: NewJobRow, actor: str = "producer") -> list[Outcome]:
        return self.store.enqueue(self.queue, jobs, actor=actor, now=self.now)

    def create_jobs(self, count: int = 1, **details: Any) -> list[str]:
        """Enqueue ``count`` jobs with the same details; return their ids."""
        jobs = [self.new(**details) for _ in range(count)]
        assert {outcome.result for outcome in self.enqueue(*jobs)} == {"inserted"}
        return [job.id for job in jobs]

    def create_job(self, **details: Any) -> str:
        return self.create_jobs(1, **details)[0]

    # Workers

    def claim(
        self,
        limit: int = 1,
        *,
        worker: str = "w1",
        lease_s: int = LEASE_S,
        tenants: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        after: str = "",
    ) -> list[Job]:
        return self.store.claim(
            self.queue,
            worker=worker,
            limit=limit,
            lease_us=lease_s * SECOND,
            tenants=tenants,
            ids=ids,
            after=after,
            now=self.now,
        )

    def peek(self, limit: int = 1, *, tenants: Sequence[str] | None = None) -> list[Job]:
        return self.store.peek(self.queue, limit=limit, tenants=tenants, now=self.now)

    def claim_new_jobs(self, count: int = 1, *, worker: str = "w1", **details: Any) -> list[Job]:
        """Enqueue ``count`` jobs and claim them at once; return them in the order of creation."""
        ids = self.create_jobs(count, **details)
        jobs = {job.id: job for job in self.claim(count, worker=worker)}
        assert sorted(jobs) == ids
        return [jobs[job_id] for job_id in ids]

    def claim_new_job(self, **details: Any) -> Job:
        return self.claim_new_jobs(1, **details)[0]

    # Moves

    def apply(
        self,
        call: str,
        targets: Iterable[Job | Change | str],
        *,
        role: Role = "worker",
        actor: str = "w1",
        options: Iterable[str] = (),
        tenants: Sequence[str] | None = None,
        **fields: Any,
    ) -> list[Outcome]:
        """Apply an action. A job passes its claim token, a bare id passes none."""
        return self.store.apply(
            self.queue,
            call,
            [change_of(target, **fields) for target in targets],
            role=role,
            actor=actor,
            options=frozenset(options),
            tenants=tenants,
            now=self.now,
        )

    def apply_one(self, call: str, target: Job | Change | str, **how: Any) -> Outcome:
        return self.apply(call, [target], **how)[0]

    def move(self, call: str, target: Job | Change | str, **how: Any) -> Job:
        """Apply an action that must succeed; return the job afterwards."""
        outcome = self.apply_one(call, target, **how)
        assert outcome.result == "moved", outcome
        return self.job(outcome.id)

    def sweep(self, name: str, *, source: str = "", to: str = "", limit: int = 1_000, **how: Any) -> int:
        """Make a scheduled move."""
        move = self.declared(name, source=source, to=to, by="clock")
        return self.store.sweep(self.queue, move, limit=limit, now=self.now, **how)

    def declared(self, name: str, *, source: str = "", to: str = "", by: str = "") -> Move:
        """The only move of this name or action, optionally with this source, target or role."""
        matches = [
            move
            for move in self.lifecycle.moves
            if name in (move.name, move.action)
            and (not source or source in move.sources)
            and (not to or to == move.to)
            and (not by or by in move.by)
        ]
        matches = [move for move in matches if move.name == move.action] or matches
        assert len(matches) == 1, matches
        return matches[0]

    def modelled(self, move: Move, before: Job, change: Change | None = None, **how: Any) -> Job:
        """The job after the move, according to the Python model."""
        circumstances = {"now": self.now, "actor": "w1", "lease_us": LEASE_S * SECOND, **how}
        return apply_move(self.lifecycle, move, before, change or Change(before.id), MoveContext(**circumstances))

    # Reading

    def job(self, job: Job | str) -> Job:
        stored = self.store.job(id_of(job))
        assert stored is not None
        return stored

    def all(self) -> dict[str, Job]:
        """Every job of the queue, by id."""
        return {job.id: job for job, _ in self.store.scan(self.queue)}

    def snapshot(self) -> list[tuple[Job, list[Event]]]:
        """All jobs and events of the queue, to compare before and after."""
        return list(self.store.scan(self.queue))

    def state(self, job: Job | str) -> str:
        return self.job(job).state

    def events(self, job: Job | str) -> list[Event]:
        return self.store.events(id_of(job))

    def history(self, job: Job | str) -> list[str]:
        """The names of the moves a job has made."""
        return [event.move for event in self.events(job)]

    def notes(self, job: Job | str) -> list[Note]:
        return self.store.notes(id_of(job))

    def counts(self) -> dict[str, int]:
        """States that hold jobs, from the counters."""
        states = self.store.stats(self.queue, now=self.now).states
        return {state: n for state, n in states.items() if n}


def id_of(job: Job | str) -> str:
    return job if isinstance(job, str) else job.id


def change_of(target: Job | Change | str, **fields: Any) -> Change:
    if isinstance(target, Change):
        return target
    if isinstance(target, Job):
        return Change(target.id, target.claim_seq, **fields)
    return Change(target, **fields)


def results(outcomes: Iterable[Outcome]) -> list[str]:
    """The reason of each refusal, or the result."""
    return [outcome.reason or outcome.result for outcome in outcomes]


def error(code: str = "BOOM", category: str = "TRANSIENT", message: str = "it broke") -> dict[str, Any]:
    """What a failure reports."""
    return {"error_code": code, "error_category": category, "error_message": message}


def rows(store: Any, sql: str) -> list[tuple[Any, ...]]:
    """Query the database directly; ``{job}`` stands for that table's full name."""
    tables = ("job", "job_body", "event", "note", "flow", "schema_migration")
    return store._read(sql.format(**{name: store.dialect.table(name) for name in tables}), {})


def count_rows(store: Any) -> dict[str, int]:
    """How many rows there are of jobs, their events, notes and counters."""
    if not isinstance(store, RedisStore):
        tables = ("job", "job_body", "event", "note", "flow")
        counts = {name: rows(store, f"SELECT count(*) FROM {{{name}}}")[0][0] for name in tables}
        counts["note"] -= rows(store, "SELECT count(*) FROM {note} WHERE kind = 'declared'")[0][0]
        return {name: n for name, n in counts.items() if n}
    keys = map(str, store.client.keys("*"))
    kinds = (key.split(":")[1] for key in keys if not key.startswith("kesin:"))
    ours = {"declared", "lifecycle", "ages", "rules", "success", "waits", "slots"}
    ours |= {"notes"}  # notes of jobs have their id too
    return dict(Counter(kind for kind in kinds if kind not in ours))


def sent_by(statements: list[str], call: Callable[[], object]) -> int:
    """How many statements a call sends."""
    statements.clear()
    call()
    return len(statements)


class _RollBack(Exception):
    """Ends a transaction whose changes are not wanted."""


@contextmanager
def rolled_back(store: Store) -> Iterator[None]:
    """A transaction that leaves nothing behind: the next case starts from the same jobs."""
    with suppress(_RollBack), store.transaction():
        yield
        raise _RollBack


def tenants(jobs: Iterable[Job]) -> Counter[str]:
    return Counter(job.tenant for job in jobs)


def until_held(thread: threading.Thread, postgres_url: str) -> None:
    """Wait until the thread waits for a lock of PostgreSQL, or has ended."""
    with psycopg.connect(postgres_url, autocommit=True, prepare_threshold=None) as looker:
        held = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while thread.is_alive() and not looker.execute(held).fetchall():
            pass
