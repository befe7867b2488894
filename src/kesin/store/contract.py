"""The Store interface, without handlers, threads and retries. One conformance suite tests it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.failures import failure_states, ready_states
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import Role
from kesin.store.declarations import DeclaredMoves
from kesin.store.errors import StoreError
from kesin.store.limits import FIRST_ID, LAST_ID, MAX_BATCH, moves_for, prepare_changes, valid_ids
from kesin.store.notify import Notified
from kesin.store.records import (
    AgedSince,
    Backlog,
    Definition,
    Event,
    FailureCount,
    Filter,
    HeldClaim,
    JobCount,
    Listing,
    MoveCount,
    NewJobRow,
    Note,
    Outcome,
    Page,
    Pause,
    Progress,
    QueueStats,
    RulesVersion,
    ScheduleRow,
)

Moves = tuple[Move, ...]


class Store(Notified, ABC):
    """Durable jobs; safe to use from many threads."""

    def store_for(self, queue: str) -> "Store":  # noqa: ARG002  # a single store holds every queue
        """The store that holds this queue: this store itself, unless this is a routed store."""
        return self

    @abstractmethod
    def migrate(self) -> list[str]:
        """Bring the schema up to date; return the names of the migrations that were applied."""

    @abstractmethod
    def open(self, queue: str, lifecycle: Lifecycle, *, virtual_time: bool = False) -> None:
        """Declare a queue's rules to the database; declarations are never removed.

        Raises UpgradeRefused if jobs under the newest stored rules would not fit these rules. With
        ``virtual_time``, the caller supplies the times, and the database does not check them.
        """

    @abstractmethod
    def declared(self, queue: str) -> DeclaredMoves:
        """Every move that has ever been declared for the queue, with its effects."""

    @abstractmethod
    def rules(self, queue: str) -> list[RulesVersion]:
        """Every version of the queue's rules, oldest first."""

    @abstractmethod
    def retired_states(self, queue: str) -> frozenset[str]:
        """The states that no job may enter any more."""

    @abstractmethod
    def retire(self, queue: str, state: str, *, now: int | None = None) -> None:
        """Retire an empty state permanently; raises StoreError if jobs are in it."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]:
        """Commit all calls that the caller's task makes inside the block, or none of them.

        Only the thread and asyncio task that opened the transaction can use it: calls from a child
        task, or from a thread started inside the block, raise StoreError. SQLite and Redis allow
        only one transaction at a time, so calls from other tasks in the same thread raise it too.
        The block receives the database connection, so a program can write its own rows in the same
        transaction. If a nested block raises, only that block is rolled back.
        """

    def joining(self, connection: Any) -> AbstractContextManager[None]:  # noqa: ARG002
        """Run the block's calls in the open transaction of the caller's own connection.

        Raises StoreError for a connection in autocommit mode or to another database. The caller
        controls the transaction: the store does not commit or retry, and does not translate errors.
        """
        raise StoreError("within: only a queue in an SQL database can join a transaction")

    async def enqueue_within(
        self, queue: str, job: NewJobRow, connection: Any, *, actor: str, now: int | None = None
    ) -> Outcome:
        """Like ``joining`` with ``enqueue``, for an asynchronous connection.

        The payload may be at most ``MAX_SQL_PAYLOAD_BYTES`` bytes long.
        """
        del queue, job, connection, actor, now  # they are for PostgreSQL
        raise StoreError("within: only a queue in PostgreSQL accepts an asynchronous connection")

    @abstractmethod
    def enqueue(self, queue: str, jobs: Sequence[NewJobRow], *, actor: str, now: int | None = None) -> list[Outcome]:
        """Create jobs; if a key is taken, the outcome is ``duplicate`` with the holder's id.

        Raises UnknownParents and creates none if a job names a parent that is not in this store.
        """

    def claim(
        self,
        queue: str,
        *,
        worker: str,
        limit: int,
        lease_us: int,
        tenants: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        after: str = "",
        now: int | None = None,
    ) -> list[Job]:
        """Claim up to ``limit`` due jobs for ``worker``, each tenant's oldest due jobs first.

        Tenants take turns by name, starting after ``after``; by default, all that have due jobs
        take part. Each gets an equal share of the limit; the first ones get the remainder. ``ids``
        limits the claim to these jobs, of any tenant, for a worker that was started for one job.
        """
        params: dict[str, Any] = {"queue": queue, "worker": worker, "actor": worker, "now": now}
        params |= {"limit": min(limit, MAX_BATCH), "after": after, "lease_us": lease_us}
        if ids is not None:
            params["ids"] = valid_ids(ids)
        elif tenants is not None:
            params["tenants"] = list(tenants)
        return self._due_jobs(queue, "claim", params)

    def peek(
        self, queue: str, *, limit: int, tenants: Sequence[str] | None = None, after: str = "", now: int | None = None
    ) -> list[Job]:
        """The jobs that ``claim`` would return, in the same order; nothing is claimed."""
        params: dict[str, Any] = {"queue": queue, "after": after, "now": now}
        params["limit"] = min(limit, MAX_BATCH)
        if tenants is not None:
            params["tenants"] = list(tenants)
        return self._due_jobs(queue, "peek", params)

    @abstractmethod
    def _due_jobs(self, queue: str, what: Literal["claim", "peek"], params: dict[str, Any]) -> list[Job]:
        """Claim due jobs, or only read them, with these parameters of the statement or script."""

    @abstractmethod
    def ready_tenants(self, queue: str, limit: int) -> list[str]:
        """The first ``limit`` tenants, by name, that have jobs to claim now or later."""

    @abstractmethod
    def renew(self, queue: str, claims: Sequence[HeldClaim], *, lease_us: int, now: int | None = None) -> set[str]:
        """Extend leases; return the ids of the jobs that are still claimed.

        A lease never extends beyond ``max_run_seconds`` after the claim.
        """

    def apply(
        self,
        queue: str,
        action: str,
        changes: Sequence[Change],
        *,
        role: Role,
        actor: str,
        options: frozenset[str] = frozenset(),
        tenants: Sequence[str] | None = None,
        now: int | None = None,
    ) -> list[Outcome]:
        """Apply an action to many jobs; return one outcome for each, in order."""
        moves = moves_for(self._lifecycle(queue), action, role, queue)
        params = {"queue": queue, "actor": actor, "options": options, "tenants": tenants, "now": now}
        outcomes = self._apply(queue, moves, prepare_changes(action, moves, changes), params)
        return [outcomes.get(change.id) or Outcome("unknown", change.id) for change in changes]

    @abstractmethod
    def _lifecycle(self, queue: str) -> Lifecycle:
        """The rules with which the queue was opened."""

    @abstractmethod
    def _apply(self, queue: str, moves: Moves, changes: list[Change], params: dict[str, Any]) -> dict[str, Outcome]:
        """Make these changes, each of another job, and return the outcomes by job."""

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
        """Make a scheduled move for up to ``limit`` jobs; return how many moved."""
        params = {"queue": queue, "actor": "clock", "now": now, "limit": min(limit, MAX_BATCH)}
        params |= {"min_age_us": min_age_us, "max_attempts": max_attempts}
        return self._sweep(queue, move, params)

    @abstractmethod
    def _sweep(self, queue: str, move: Move, params: dict[str, Any]) -> int:
        """Make the move with these parameters of its statement or script."""

    @abstractmethod
    def settle(self, queue: str, *, limit: int, now: int | None = None) -> int:
        """Move jobs whose parents have all come to rest; return how many moved."""

    def parents(self, queue: str, job_id: str, *, limit: int, after: str = FIRST_ID, undone: bool = False) -> list[Job]:
        """A job's first parents by id, from any queue; ``undone`` omits those that succeeded."""
        params = {"id": job_id, "limit": min(limit, MAX_BATCH), "after": after, "undone": undone}
        return self._related(queue, "parents", params)

    @abstractmethod
    def meters(self, queue: str) -> dict[str, int]:
        """When each rate-limited tenant has its full rate again; at most the latest 10,000."""

    def children(self, queue: str, job_id: str, *, limit: int) -> list[Job]:
        """The first jobs, from any queue, that wait for this job of the queue, up to ``limit``."""
        params = {"id": job_id, "limit": min(limit, MAX_BATCH), "after": FIRST_ID, "undone": False}
        return self._related(queue, "children", params)

    @abstractmethod
    def _related(self, queue: str, what: str, params: dict[str, Any]) -> list[Job]: ...

    def report_progress(
        self, queue: str, claim: HeldClaim, fraction: float | None, message: str | None, *, now: int | None = None
    ) -> bool:
        """Store the progress of a claimed job, without an event; False if the claim was lost."""
        said = {"fraction": fraction, "message": message, "now": now}
        return self._write_progress(queue, claim, said)

    @abstractmethod
    def _write_progress(self, queue: str, claim: HeldClaim, said: dict[str, Any]) -> bool: ...

    @abstractmethod
    def progress(self, queue: str, ids: Sequence[str]) -> dict[str, Progress]:
        """The progress of these jobs; jobs that are unclaimed or have no report are absent."""

    @abstractmethod
    def job(self, job_id: str) -> Job | None:
        """One job with its payload; None for an unknown id."""

    @abstractmethod
    def find(self, queue: str, ids: Sequence[str]) -> dict[str, Job]:
        """The queue's jobs with these ids, by id; malformed and unknown ids are absent."""

    @abstractmethod
    def states(self, queue: str, ids: Sequence[str]) -> dict[str, str]:
        """The states of the queue's jobs with these ids; like ``find``, without payloads."""

    @abstractmethod
    def ids_by_key(self, queue: str, tenant: str, keys: Sequence[str]) -> dict[str, str]:
        """For each dedup key, the id of the job that holds it now; free keys are absent."""

    def key_holders(self, queue: str, tenants: Sequence[str], key: str) -> list[str]:
        """The ids of these tenants' jobs that hold this key now."""
        return [one for name in tenants for one in self.ids_by_key(queue, name, [key]).values()]

    @abstractmethod
    def jobs(self, queue: str, where: Filter, *, limit: int = 100, cursor: str | None = None) -> Page:
        """A page of jobs, newest first unless the filter says otherwise."""

    @abstractmethod
    def count_matching(
        self, queue: str, where: Filter, *, limit: int, above: str = FIRST_ID, below: str = LAST_ID
    ) -> JobCount:
        """How many jobs between two ids match the filter; at most ``limit`` jobs are examined."""

    def preview(
        self,
        queue: str,
        action: str,
        where: Filter,
        *,
        role: Role,
        ids: Sequence[str] | None = None,
        options: frozenset[str] = frozenset(),
        now: int | None = None,
    ) -> dict[tuple[str, str], int]:
        """How many matching jobs have each (state, reason); the reason '' means that they move.

        Predicts what ``apply`` would return for these jobs now, without a token. The other reasons
        are ``already``, ``busy`` and the reasons for refusals. If several jobs need the same key or
        slot, the oldest job gets it. With ``ids``, only matching jobs with these ids are counted.
        """
        moves = moves_for(self._lifecycle(queue), action, role, queue)
        return self._preview(queue, moves, where, ids, {"queue": queue, "options": options, "now": now})

    @abstractmethod
    def _preview(
        self, queue: str, moves: Moves, where: Filter, ids: Sequence[str] | None, params: dict[str, Any]
    ) -> dict[tuple[str, str], int]:
        """Count the jobs as ``preview`` says, with these parameters of its statement or script."""

    @abstractmethod
    def events(self, job_id: str) -> list[Event]:
        """A job's complete history."""

    @abstractmethod
    def notes(self, *job_ids: str) -> list[Note]:
        """The notes on these jobs; the notes on each job are in order, oldest first."""

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
        """Add a note to a job, or to the queue."""
        row = {"tenant": tenant, "job_id": job_id, "now": now, "kind": kind}
        self._write(queue, "add_note", {**row, "actor": actor, "details": details})

    @abstractmethod
    def _write(self, queue: str, what: str, row: dict[str, Any]) -> bool:
        """Run ``add_note``, ``pause`` or ``resume`` with these values; a pause stays as it is."""

    @abstractmethod
    def stats(self, queue: str, *, now: int | None = None) -> QueueStats:
        """Job counts by state and tenant, the oldest due time and expired leases."""

    def totals(self, queue: str, *, now: int | None = None, oldest: bool = False) -> QueueStats:
        """Like `stats`, but cheaper and without tenants; the oldest due time only on request."""
        stats = self.stats(queue, now=now)
        return replace(stats, tenants={}, oldest_due_at=stats.oldest_due_at if oldest else None)

    def failures(
        self,
        queue: str,
        *,
        tenants: Sequence[str] | None = None,
        states: Sequence[str] | None = None,
        recent_from: int = 0,
    ) -> list[FailureCount]:
        """Count jobs with an error code that stopped without success or are waiting for a retry.

        Jobs that entered their state since ``recent_from`` are also counted per half hour. At most
        ``MAX_FAILURES_READ`` resting jobs and as many waiting jobs are counted; the cost depends on
        the number of jobs that have an error, not on the total number of jobs.
        """
        lifecycle = self._lifecycle(queue)
        every = (*ready_states(lifecycle), *failure_states(lifecycle))
        chosen = tuple(state for state in every if states is None or state in states)
        where = Filter(states=chosen, tenants=None if tenants is None else tuple(tenants))
        return self._failures(queue, where, recent_from) if chosen else []

    @abstractmethod
    def _failures(self, queue: str, where: Filter, recent_from: int) -> list[FailureCount]:
        """Count these jobs as ``failures`` says."""

    @abstractmethod
    def backlog(self, queue: str, tenant: str, *, aged: AgedSince | None = None, now: int | None = None) -> Backlog:
        """What a tenant's jobs are waiting for; also counts ready jobs stamped before ``aged[1]``.

        The cost depends only on the claimed or aged jobs; ``aged`` is the first stamp and a time.
        """

    def aging(self, queue: str, aged: AgedSince) -> dict[str, int]:
        """The number of ``aging`` jobs by tenant; in SQL, ``aged`` may name the fourth stamp."""
        counts = {t: self.backlog(queue, t, aged=aged).aging for t in self.stats(queue).tenants}
        return {tenant: n for tenant, n in counts.items() if n}

    @abstractmethod
    def count_ahead(self, queue: str, job_id: str, *, limit: int) -> int | None:
        """How many ready jobs are due before this one, counted up to ``limit``.

        None if the job is not ready. Claims alternate between tenants, so the number is the job's
        position in the queue only if a single tenant has ready jobs.
        """

    @abstractmethod
    def move_counts(self, queue: str) -> list[MoveCount]:
        """Every counter of the queue: how often each move was made, per tenant."""

    @abstractmethod
    def compact(self, queue: str) -> int:
        """Merge counter rows; return how many were merged."""

    def pause(
        self, queue: str, *, tenant: str = "", actor: str, reason: str | None = None, now: int | None = None
    ) -> None:
        """Stop the queue's jobs, or one tenant's jobs in it, from being claimed."""
        row = {"tenant": tenant, "now": now, "actor": actor, "reason": reason}
        self._write(queue, "pause", row)

    def resume(self, queue: str, *, tenant: str = "") -> bool:
        """End a pause; return whether there was one."""
        resumed = self._write(queue, "resume", {"tenant": tenant})
        self._notifier.notify(queue)
        return resumed

    @abstractmethod
    def paused(self, queue: str) -> list[Pause]:
        """The queue's pauses."""

    @abstractmethod
    def schedules(self, queue: str, *, lock: Sequence[str] = ()) -> list[ScheduleRow]:
        """The queue's schedules, ordered by name.

        With ``lock``, locks and returns those named, except those locked by another transaction.
        """

    @abstractmethod
    def write_schedules(self, queue: str, rows: Sequence[ScheduleRow], *, gone: Sequence[str] = ()) -> None:
        """Store schedules and their next ticks; delete those in ``gone``."""

    @abstractmethod
    def listing(self, queue: str) -> Listing:
        """How the queue's jobs are listed; an empty listing if no program declared one."""

    @abstractmethod
    def write_listing(self, queue: str, listing: Listing) -> None:
        """Store how jobs are listed; the newest existing jobs become searchable too."""

    @abstractmethod
    def scan(self, queue: str) -> Iterator[tuple[Job, list[Event]]]:
        """Every job with its events, ordered by id, from one snapshot."""

    @abstractmethod
    def ping(self) -> None:
        """Check that the store responds; raise StoreError if it does not."""

    @abstractmethod
    def definition(self, queue: str) -> Definition | None:
        """The names that the queue was declared with; None if it was never opened."""

    @abstractmethod
    def queues(self) -> list[str]:
        """The queues that have ever been opened on this store."""

    @abstractmethod
    def health(self) -> dict[str, str | int]:
        """Facts for operators: version, size, oldest snapshot and journal."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection."""
