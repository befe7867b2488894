"""A queue: a lifecycle over a store, which relies on what `validation.py` has checked once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from kesin.engine import validation
from kesin.engine.aio import AioQueue
from kesin.engine.bulk import BulkResult, id_batches
from kesin.engine.new_job import NewJob, unknown_parent
from kesin.engine.proof_cache import proof_of
from kesin.engine.queue_reader import QueueReader
from kesin.engine.turns import Turns
from kesin.foundation.clock import Clock, Duration, SystemClock, Time
from kesin.foundation.ids import IdMaker
from kesin.foundation.text import canonical_json, storable, storable_names
from kesin.foundation.version import warn_renamed
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job, meter_of
from kesin.lifecycle.proof.rules import Unproved
from kesin.lifecycle.vocabulary import Role
from kesin.store.contract import Store
from kesin.store.errors import UnknownParents
from kesin.store.limits import MAX_BATCH, MAX_CODE, MAX_MESSAGE
from kesin.store.records import Filter, NewJobRow, Outcome

if TYPE_CHECKING:
    from kesin.engine.schedules import Schedule

MAX_PAYLOAD_BYTES = 256 * 1024


class StaleClaim(RuntimeError):
    """The claim was lost: another worker may have the job. Stop working on it."""


class Queue(QueueReader):
    """A durable queue with one lifecycle; a lifecycle that does not pass ``prove`` is refused.

    ``title`` names jobs in lists. It is a format string of payload fields, such as ``"{to}"`` or,
    for nested fields, ``"{order.number} · {order.city}"``. ``search`` lists up to 8 payload fields
    whose words can be searched. Both are stored with the queue until a program declares other
    values. New values apply immediately: in lists, to all jobs; in searches, to new jobs and the
    newest 10,000 existing jobs. A masked field, such as an email address, is refused in ``search``
    and masked in titles.
    """

    def __init__(
        self,
        name: str,
        lifecycle: Lifecycle,
        store: Store,
        *,
        clock: Clock | None = None,
        seed: int | None = None,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        payload: Any = None,
        schedules: "Sequence[Schedule] | None" = None,  # None: those that are stored, if any
        title: str | None = None,
        search: Sequence[str] | None = None,
    ) -> None:
        proof = proof_of(lifecycle)
        if not proof:
            raise Unproved(proof)
        self.name = name
        self.lifecycle = lifecycle
        self.store = store = store.store_for(name)
        self.clock = clock or SystemClock()
        self.max_payload_bytes = max_payload_bytes
        self._payloads = None
        if payload is not None:
            from kesin.engine.payload_type import PayloadType  # pydantic takes time to import

            self._payloads = PayloadType(payload)
        self.aio = AioQueue(self)  # its calls for coroutines
        self._ids = IdMaker(self.clock, seed)
        self._turns = Turns(store, name, seed)
        store.open(name, lifecycle, virtual_time=self.clock.now() is not None)
        self.ticks = bool(schedules)  # whether this process sees to its schedules
        if schedules is not None:
            from kesin.engine.schedules import declare_schedules  # few queues have any

            declare_schedules(self, schedules)
        if title is not None or search is not None:
            from kesin.engine.access.listing import declare_listing  # nor are all listed in their own way

            declare_listing(store, name, title, search)

    # Enqueue

    def enqueue(
        self,
        payload: Any,  # any JSON value
        *,
        key: str | None = None,
        once: bool = False,
        tenant: str = "default",
        priority: int = 0,
        after: Sequence[str] = (),
        delay_s: Duration = 0,
        run_at: Time | None = None,
        max_attempts: int | None = None,
        stamps: Mapping[str, Time] | None = None,
        actor: str = "producer",
        within: Any = None,
    ) -> Outcome:
        """Enqueue one job: ``inserted``, or ``duplicate`` with the id of the job that has the key.

        ``priority`` is -1, 0, 1 or 2; a tenant's due jobs with a higher priority run first. With
        ``once``, the key stays taken until the job is pruned. ``after`` names jobs in the same
        store: this job runs after all of them have succeeded, and fails if one of them fails.

        ``within`` is your own session or connection from psycopg, sqlite3, SQLAlchemy or Django:
        the job is created in its transaction and exists once you commit.

        Raises BadInput for an invalid value, and then writes nothing.
        """
        stamps = stamps or {}
        new = NewJob(*(payload, key, tenant, run_at, max_attempts, stamps, None, once, delay_s, priority), after=after)
        job = self.row_of(new)
        with nullcontext() if within is None else self.store.joining(within):
            return self._insert([job], actor)[0]

    def enqueue_many(
        self, news: Iterable[NewJob], *, actor: str = "producer", within: Any = None
    ) -> list[Outcome | validation.BadInput]:
        """Enqueue a batch in one transaction; the outcome for an invalid job is a BadInput.

        If a job names a parent that does not exist, the whole batch is refused.
        """
        waiting, rows = iter(news), list[NewJobRow | validation.BadInput]()
        while batch := list(islice(waiting, MAX_BATCH)):  # a generator holds few at once
            for new, job_id in zip(batch, self._ids.make(len(batch)), strict=True):
                try:
                    rows.append(new.row(self, job_id))
                except validation.BadInput as problem:
                    rows.append(problem)
        jobs = [row for row in rows if isinstance(row, NewJobRow)]
        alone = nullcontext() if len(jobs) <= 1 else self.store.transaction()  # as it is already
        with alone if within is None else self.store.joining(within):
            outcomes = iter(self._insert(jobs, actor))
        return [row if isinstance(row, validation.BadInput) else next(outcomes) for row in rows]

    def _insert(self, jobs: list[NewJobRow], actor: str) -> list[Outcome]:
        now, outcomes = self.clock.now(), []
        try:
            for start in range(0, len(jobs), MAX_BATCH):
                batch = jobs[start : start + MAX_BATCH]
                outcomes += self.store.enqueue(self.name, batch, actor=storable(actor), now=now)
        except UnknownParents as problem:
            raise unknown_parent(problem) from None
        return outcomes

    def row_of(self, new: NewJob) -> NewJobRow:
        """The new job in the form that a store expects; raises BadInput for an invalid value."""
        return new.row(self, self._ids.make(1)[0])

    def payload_text(self, payload: Any) -> str:
        """The payload as it is stored; raises BadInput if it is not JSON or is too large."""
        plain = self._payloads.plain(payload) if self._payloads else payload
        return validation.bounded_json(plain, "payload", self.max_payload_bytes)

    # Workers

    def claim(
        self,
        worker: str,
        *,
        limit: int = 1,
        lease_seconds: Duration | None = None,
        tenants: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
    ) -> list[Job]:
        """Claim up to ``limit`` due jobs; with ``ids``, only jobs with these ids.

        The worker holds the claimed jobs until the lease ends.
        """
        validation.require_positive_limit(limit)
        lease = self.lifecycle.lease_seconds if lease_seconds is None else lease_seconds
        how: dict[str, Any] = {"worker": storable(worker), "lease_us": validation.lease_us(lease), "ids": ids}
        claim = partial(self._claim, how | {"tenants": storable_names(tenants)})
        jobs = claim(limit)
        if len(jobs) < limit and self.lifecycle.waiting_states and self.settle():
            jobs += claim(limit - len(jobs))
        return self._typed(jobs)

    def _claim(self, how: dict[str, Any], limit: int) -> list[Job]:
        takes_turns = how["ids"] is None and (how["tenants"] is None or len(how["tenants"]) > 1)
        after, now = self._turns.after() if takes_turns else "", self.clock.now()
        jobs = self.store.claim(self.name, limit=limit, after=after, now=now, **how)
        if takes_turns:
            self._turns.advance(jobs)
        return jobs

    def peek(self, *, limit: int = 1, tenants: Sequence[str] | None = None) -> list[Job]:
        """The jobs that ``claim`` would return now; nothing is claimed."""
        validation.require_positive_limit(limit)
        names, after = storable_names(tenants), self._turns.after()
        now = self.clock.now()
        jobs = self.store.peek(self.name, limit=limit, tenants=names, after=after, now=now)
        return self._typed(jobs)

    def rate_opens_at(self, tenants: Sequence[str] | None = None) -> int | None:
        """When a used-up rate first allows a claim again, in µs; None if no tenant is waiting."""
        meter = meter_of(self.lifecycle.claims[0])
        if meter is None:
            return None
        now, paid = self.now(), self.store.meters(self.name)
        names = self.store.ready_tenants(self.name, MAX_BATCH) if tenants is None else tenants
        used = [paid[name] for name in names if name in paid and not meter.left(paid[name], now)]
        return min(map(meter.opens_at, used), default=None)

    def renew(self, jobs: Sequence[Job], *, lease_seconds: Duration | None = None) -> set[str]:
        """Extend the leases of these jobs; return the ids of the jobs that are still held."""
        lease = self.lifecycle.lease_seconds if lease_seconds is None else lease_seconds
        claims, now = [(job.id, job.claim_seq) for job in jobs], self.clock.now()
        return self.store.renew(self.name, claims, lease_us=validation.lease_us(lease), now=now)

    def move(
        self,
        job: Job,
        action: str,
        *,
        actor: str | None = None,
        result: Any = None,
        note: Any = None,
        run_in_s: Duration | None = None,
    ) -> Outcome:
        """Take an action on a job that is being handled, under its claim.

        Raises StaleClaim if the claim was lost. If the slot is taken, the outcome is ``busy``.
        """
        limit = self.max_payload_bytes
        change = Change(
            job.id,
            job.claim_seq,
            result=None if result is None else validation.bounded_json(result, "result", limit),
            note=None if note is None else canonical_json(note),
            run_at=None if run_in_s is None else self.now() + validation.delay_us(run_in_s, "run_in_s"),
        )
        [outcome] = apply_changes(self, action, [change], actor=actor or job.worker or "worker")
        if outcome.reason == "stale" or outcome.result == "unknown":
            raise StaleClaim(f"job {job.id} is no longer held: {action} was refused")
        return outcome

    def apply(self, action: str, changes: Sequence[Change], **how: Any) -> list[Outcome]:
        """The old name of ``act`` and ``move``."""
        warn_renamed("queue.apply", "queue.act or queue.move")
        return apply_changes(self, action, changes, **how)

    # Operators

    def act(
        self,
        action: str,
        *,
        actor: str,
        ids: Sequence[str] | None = None,
        where: Filter | None = None,
        role: Role = "operator",
        options: frozenset[str] = frozenset(),
        reason: str | None = None,
        code: str | None = None,
        category: Category | str | None = None,
        max_attempts: int | None = None,
        priority: int | None = None,
        tenants: Sequence[str] | None = None,
        limit: int | None = None,
        in_transaction: Callable[[BulkResult], None] | None = None,
    ) -> BulkResult:
        """Apply an operator's action to chosen jobs, or to jobs matching a filter, up to ``limit``.

        ``max_attempts`` is stored by moves that renew the budget; ``priority``, which is -1, 0, 1
        or 2, is stored by actions that are declared to set the priority.

        ``in_transaction`` runs in each batch's transaction: both take effect, or neither does.
        """
        if (ids is None) == (where is None):
            raise validation.BadInput("bad_selection", "ids", "specify the jobs by id or by filter, not both")
        if not self.lifecycle.allows(action, role):
            why = "%(call)s is not an action that the %(role)s can take on %(queue)s: the actions are %(may)s"
            may = ", ".join(self.lifecycle.actions_of(role)) or "none"
            named = {"call": repr(action), "role": role, "queue": self.name}
            raise validation.BadInput("unknown_call", "call", why, **named, may=may)
        sets_priority = self.lifecycle.sets_priority(action)
        if priority is not None and not sets_priority:
            raise validation.bad_field("priority", "%(call)s cannot set priority", call=action)
        default_error = self.lifecycle.default_error(action)
        if default_error is not None:
            code, category = code or default_error.code, category or default_error.category
        message = reason or (default_error.message if default_error else None)
        template = Change(
            "",
            error_code=None if code is None else validation.checked_name(code, "code", MAX_CODE),
            error_category=None if category is None else validation.checked_category(category).value,
            error_message=None if message is None else storable(message)[:MAX_MESSAGE],
            max_attempts=None if max_attempts is None else validation.checked_attempts(max_attempts),
            priority=validation.checked_priority(priority) if sets_priority else None,
            note=None if reason is None else canonical_json({"reason": reason}),
        )
        outcomes: list[Outcome] = []
        for batch in id_batches(self, ids, where):
            changes = [template._replace(id=job_id) for job_id in batch]
            with self.store.transaction() if in_transaction else nullcontext():
                moved = apply_changes(self, action, changes, role=role, actor=actor, options=options, tenants=tenants)
                if in_transaction:
                    in_transaction(BulkResult.of(moved))
            outcomes += moved
            if limit is not None and len(outcomes) >= limit:
                break
        return BulkResult.of(outcomes)

    def preview(
        self, action: str, where: Filter, ids: Sequence[str] | None, options: frozenset[str]
    ) -> dict[tuple[str, str], int]:
        """How many jobs ``act`` would move or refuse, by (state, reason); '' means moved."""
        how: dict[str, Any] = {"role": "operator", "ids": ids, "options": options}
        return self.store.preview(self.name, action, where, **how, now=self.clock.now())

    def pause(self, *, actor: str, tenant: str = "", reason: str | None = None) -> None:
        """Stop the queue's jobs, or one tenant's, from being claimed until ``resume`` is called."""
        who, now = storable(actor), self.clock.now()
        why = None if reason is None else storable(reason)
        self.store.pause(self.name, tenant=storable(tenant), actor=who, reason=why, now=now)

    def resume(self, *, tenant: str = "") -> bool:
        """End a pause; return whether there was one."""
        return self.store.resume(self.name, tenant=storable(tenant))

    def retire(self, state: str) -> None:
        """Retire an empty ``retiring`` state: the next version of the rules may omit it."""
        declared = self.lifecycle.state.get(state)
        if declared is None or not declared.retiring:
            raise validation.BadInput("not_retiring", "state", f"{state} is not declared with retiring=True")
        self.store.retire(self.name, state, now=self.clock.now())

    # The clock

    def sweep(self, move: Move, *, limit: int = 1_000) -> int:
        """Run one batch of a scheduled move; return how many jobs moved."""
        return self.store.sweep(self.name, move, limit=limit, now=self.clock.now())

    def settle(self, *, limit: int = 1_000) -> int:
        """Move jobs whose parents have all come to rest; return how many moved."""
        return self.store.settle(self.name, limit=limit, now=self.clock.now())

    def tick(self) -> int:
        """Enqueue the due jobs of this process's schedules; return how many were enqueued."""
        if not self.ticks:
            return 0
        from kesin.engine.schedules import tick

        return tick(self)


def apply_changes(
    queue: Queue,
    action: str,
    changes: Sequence[Change],
    *,
    role: Role = "worker",
    actor: str,
    options: frozenset[str] = frozenset(),
    tenants: Sequence[str] | None = None,
) -> list[Outcome]:
    """Ask for an action on many jobs; return one outcome for each, in order."""
    for change in changes:
        if change.result is not None:
            validation.require_fits(change.result, "result", queue.max_payload_bytes)
    how: dict[str, Any] = {"role": role, "options": options, "tenants": storable_names(tenants)}
    who, now = storable(actor), queue.clock.now()
    return queue.store.apply(queue.name, action, changes, actor=who, now=now, **how)
