"""What every store promises. One conformance suite holds all of them to it.

A store keeps jobs and moves them, in sets, exactly as their lifecycle declares. It knows nothing
of handlers, threads or retries; those live one floor up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import Role
from kesin.store.records import (
    Definition,
    Event,
    Filter,
    Flow,
    NewJob,
    Note,
    Outcome,
    Page,
    Pause,
    QueueStats,
    Waiting,
)


class Store(ABC):
    """Durable jobs. Safe to use from many threads."""

    def home(self, queue: str) -> Store:  # noqa: ARG002  # of a single store, whichever it is
        """The store that this queue lives in: this one, unless it is several."""
        return self

    @abstractmethod
    def migrate(self) -> list[str]:
        """Bring the schema up to date; the names of the migrations applied."""

    @abstractmethod
    def open(self, queue: str, lifecycle: Lifecycle) -> None:
        """Declare a queue's moves to the database. Moves are only ever added."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]:
        """All calls of this thread inside the block commit together, or none does.

        The block is given the database connection, so that a program's own rows can join. A block
        inside a block is undone alone when an exception leaves it.
        """

    @abstractmethod
    def enqueue(
        self, queue: str, jobs: Sequence[NewJob], *, actor: str, now: int | None = None
    ) -> list[Outcome]:
        """Births; a job whose key is held answers ``duplicate`` with the holder's id."""

    @abstractmethod
    def claim(
        self,
        queue: str,
        *,
        worker: str,
        limit: int,
        lease_us: int,
        tenants: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        now: int | None = None,
    ) -> list[Job]:
        """Give up to ``limit`` due jobs to ``worker``, oldest due first within a tenant.

        Without ``tenants`` the limit is shared between all that have due jobs. With ``ids`` only
        these are given, whosever they are: for a worker that was sent for a certain job.
        """

    @abstractmethod
    def peek(
        self,
        queue: str,
        *,
        limit: int,
        tenants: Sequence[str] | None = None,
        now: int | None = None,
    ) -> list[Job]:
        """The jobs that ``claim`` would give, in its order, as they are: nothing is touched."""

    @abstractmethod
    def renew(
        self,
        queue: str,
        claims: Sequence[tuple[str, int]],
        *,
        lease_us: int,
        now: int | None = None,
    ) -> set[str]:
        """Extend leases; the ids still held. Never beyond ``max_run_seconds`` from the claim."""

    @abstractmethod
    def apply(
        self,
        queue: str,
        call: str,
        changes: Sequence[Change],
        *,
        role: Role,
        actor: str,
        options: frozenset[str] = frozenset(),
        tenants: Sequence[str] | None = None,
        now: int | None = None,
    ) -> list[Outcome]:
        """Ask for a move of many jobs; one outcome each, in order."""

    @abstractmethod
    def sweep(
        self,
        queue: str,
        move: Move,
        *,
        limit: int,
        now: int | None = None,
        min_age_us: int = 0,
        max_attempts: int | None = None,
    ) -> int:
        """Make one of the clock's moves for up to ``limit`` jobs; how many moved."""

    @abstractmethod
    def job(self, job_id: str) -> Job | None:
        """One job, whole."""

    @abstractmethod
    def find(self, queue: str, ids: Sequence[str]) -> dict[str, Job]:
        """The queue's jobs among these ids; what is no id, or of no job, is absent."""

    @abstractmethod
    def states(self, queue: str, ids: Sequence[str]) -> dict[str, str]:
        """As ``find``, but only where each job is: no payload is read."""

    @abstractmethod
    def holders(self, queue: str, tenant: str, keys: Sequence[str]) -> dict[str, str]:
        """Dedup key → id of the job that holds it now; a free key is absent."""

    @abstractmethod
    def jobs(
        self, queue: str, where: Filter, *, limit: int = 100, cursor: str | None = None
    ) -> Page:
        """A page of jobs, newest first."""

    @abstractmethod
    def foresee(
        self,
        queue: str,
        call: str,
        where: Filter,
        *,
        role: Role,
        ids: Sequence[str] | None = None,
        options: frozenset[str] = frozenset(),
        now: int | None = None,
    ) -> dict[tuple[str, str], int]:
        """(state, reason) → how many of the matching jobs; '' is the reason of those that move.

        What ``apply`` would answer if it were asked of all of them now, without a token: the other
        reasons are its refusals', or ``already`` and ``busy``. Of jobs that want the same key or
        slot the oldest gets it. With ``ids`` only these are looked at, as far as they match.
        """

    @abstractmethod
    def events(self, job_id: str) -> list[Event]:
        """A job's whole history."""

    @abstractmethod
    def notes(self, job_id: str) -> list[Note]:
        """The remarks beside it."""

    @abstractmethod
    def add_note(  # a row of six columns
        self,
        queue: str,
        *,
        kind: str,
        actor: str,
        tenant: str = "default",
        job_id: str | None = None,
        details: str | None = None,
        now: int | None = None,
    ) -> None:
        """Leave a remark."""

    @abstractmethod
    def stats(self, queue: str, *, now: int | None = None) -> QueueStats:
        """Counts by state and tenant, and what is overdue."""

    @abstractmethod
    def waiting(
        self,
        queue: str,
        tenant: str,
        *,
        aged: tuple[str, int] | None = None,
        now: int | None = None,
    ) -> Waiting:
        """What one tenant waits for; ``aged`` is the lifecycle's first stamp and a time.

        Read through indexes: the cost grows with the jobs that are claimed or aged, not with all.
        """

    @abstractmethod
    def ahead(self, queue: str, job_id: str, *, most: int) -> int | None:
        """How many ready jobs are due before this one, counted up to ``most``.

        None for a job that is not ready itself. Claims take turns between tenants, so this is the
        place in line only where one tenant waits.
        """

    @abstractmethod
    def flows(self, queue: str) -> list[Flow]:
        """Every counter of the queue, summed."""

    @abstractmethod
    def compact(self, queue: str) -> int:
        """Fold counter rows together; how many were folded."""

    @abstractmethod
    def pause(
        self,
        queue: str,
        *,
        tenant: str = "",
        actor: str,
        reason: str | None = None,
        now: int | None = None,
    ) -> None:
        """Hand out no more jobs of the queue, or of one tenant."""

    @abstractmethod
    def resume(self, queue: str, *, tenant: str = "") -> bool:
        """Undo a pause; whether there was one."""

    @abstractmethod
    def paused(self, queue: str) -> list[Pause]:
        """What is paused."""

    @abstractmethod
    def scan(self, queue: str) -> Iterator[tuple[Job, list[Event]]]:
        """Every job with its events, in order of id, from one snapshot."""

    @abstractmethod
    def ping(self) -> None:
        """Make sure that the store answers; raises when it does not."""

    @abstractmethod
    def definition(self, queue: str) -> Definition | None:
        """The names a queue was declared with; None for a queue never opened."""

    @abstractmethod
    def queues(self) -> list[str]:
        """The queues ever opened on this store."""

    @abstractmethod
    def health(self) -> dict[str, str | int]:
        """What an operator should know: version, size, oldest snapshot, journal."""

    @abstractmethod
    def pulse(self, queue: str) -> int:
        """A number that changes when a job of the queue may have become ready."""

    @abstractmethod
    def wait(self, queue: str, since: int, timeout_s: float) -> None:
        """Return when ``pulse`` is no longer ``since``, or after the timeout."""

    @abstractmethod
    def wake(self, queue: str) -> None:
        """End the waits of this process, whatever became ready; from a signal handler too."""

    @abstractmethod
    def close(self) -> None:
        """Let go of every connection."""
