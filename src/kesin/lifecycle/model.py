"""The meaning of a move in plain Python: conformance tests compare every store with it."""

import json
import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from kesin.lifecycle.budget import SECOND_US, Backoff
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.vocabulary import GONE, OWNED, After, Fixed, Guard

_SOON = "; the next release removes the old name"


class Job(NamedTuple):
    """A job: the columns of its hot row, then those of its body row. Times are in µs since 1970.

    A claim builds hundreds of jobs, and a NamedTuple costs a tenth as much as a frozen dataclass.
    The payload and the result remain JSON text until they are read.
    """

    id: str
    queue: str
    tenant: str
    state: str
    phase: int
    move: str
    actor: str
    seq: int
    claim_seq: int
    payload_seq: int
    worker: str | None
    attempt_count: int
    attempt_base: int
    return_count: int
    max_attempts: int
    retry_count: int
    salt: int
    flags: int
    error_code: str | None
    error_category: str | None
    error_message: str | None
    note: str | None
    result_json: str | None
    new_payload: str | None
    created_at: int
    moved_at: int
    run_at: int | None
    timer_at: int | None
    claimed_at: int | None
    lease_until: int | None
    finished_at: int | None
    stamp_1: int | None
    stamp_2: int | None
    stamp_3: int | None
    stamp_4: int | None
    dedup_key: str | None
    payload_json: str
    once: int = 0  # 1: its key is held until it is pruned
    priority: int = 0  # -1 low, 1 high, 2 urgent: within its tenant

    @property
    def payload(self) -> Any:  # any JSON value
        """The payload, decoded."""
        return json.loads(self.payload_json)

    @property
    def result(self) -> Any:
        """The result, decoded; None if there is none yet."""
        return None if self.result_json is None else json.loads(self.result_json)

    @property
    def data(self) -> Any:
        """The old name of ``payload``."""
        warnings.warn(f"job.data is now job.payload{_SOON}", DeprecationWarning, stacklevel=2)
        return self.payload

    @property
    def outcome(self) -> Any:
        """The old name of ``result``."""
        warnings.warn(f"job.outcome is now job.result{_SOON}", DeprecationWarning, stacklevel=2)
        return self.result

    @property
    def attempts_left(self) -> int:
        """The attempts left in the budget."""
        return self.max_attempts - (self.attempt_count - self.attempt_base)

    @property
    def token(self) -> int:
        """The fence: a worker passes it to prove that it still holds the claim."""
        return self.claim_seq


JOB_COLUMNS = tuple(field.removesuffix("_json") for field in Job._fields)
HOT_COLUMNS = (*JOB_COLUMNS[: JOB_COLUMNS.index("dedup_key")], "priority")
STAMP_COLUMNS = ("stamp_1", "stamp_2", "stamp_3", "stamp_4")
NO_STAMPS: Mapping[str, int] = MappingProxyType({})
ParentMark = Literal["pending", "done", "failed"]
CLOCK_WENT_BACK_S = 3_600


class Change(NamedTuple):
    """What a caller says about one job when it asks for an action."""

    id: str
    token: int | None = None
    error_code: str | None = None
    error_category: str | None = None
    error_message: str | None = None
    result: str | None = None
    run_at: int | None = None
    payload: str | None = None
    max_attempts: int | None = None
    priority: int | None = None
    note: str | None = None
    stamps: Mapping[str, int] = NO_STAMPS


@dataclass(frozen=True, slots=True)
class MoveContext:
    """The context of an action: when, by whom, with which options and which slots taken."""

    now: int
    actor: str
    worker: str | None = None
    lease_us: int = 60 * SECOND_US
    options: frozenset[str] = frozenset()
    slots_taken: frozenset[str] = frozenset()  # the states that have no slot for this job
    rate_used: bool = False  # its tenant has no claim left for now
    parents: ParentMark = "pending"


def guard_holds(  # noqa: C901, PLR0911, PLR0912  # a table: one line a guard
    guard: Guard, job: Job, lifecycle: Lifecycle, context: MoveContext, token: int | None
) -> bool:
    used, now = job.attempt_count - job.attempt_base, context.now
    match guard.kind:
        case "due":
            return job.run_at is not None and job.run_at <= now
        case "unclaimed":
            return job.phase != OWNED
        case "holds_claim":
            return job.phase == OWNED and job.claim_seq == token
        case "lease_over":
            return job.phase == OWNED and job.lease_until is not None and job.lease_until <= now
        case "timer_over":
            return job.timer_at is not None and job.timer_at <= now
        case "timer_not_over":
            return job.timer_at is None or job.timer_at > now
        case "budget_left":
            return used < job.max_attempts
        case "budget_spent":
            return used >= job.max_attempts
        case "retries_left":
            return job.retry_count < guard.number
        case "code_in":
            return job.error_code in guard.names
        case "code_not_in":
            return job.error_code not in guard.names
        case "category_in":
            return job.error_category in guard.names
        case "returns_left":
            return job.return_count < lifecycle.max_returns
        case "was_claimed":
            return job.claim_seq > job.payload_seq
        case "option":
            return (guard.names[0] in context.options) == bool(guard.number)
        case "flag_set":
            return bool(job.flags & lifecycle.flag_bit(guard.names[0]))
        case "flag_not_set":
            return not job.flags & lifecycle.flag_bit(guard.names[0])
        case "age_over":
            stamp: int | None = getattr(job, lifecycle.stamp_column(guard.names[0]))
            return stamp is not None and stamp <= now - guard.number * SECOND_US
        case "slot_free":
            return guard.names[0] not in context.slots_taken
        case "rate":
            return not context.rate_used
        case "parents_done":
            return context.parents == "done"
        case "parents_failed":
            return context.parents == "failed"


def failing_guard(move: Move, job: Job, lifecycle: Lifecycle, context: MoveContext, token: int | None) -> Guard | None:
    """The first guard that does not hold; None when all do."""
    for guard in move.when:
        if not guard_holds(guard, job, lifecycle, context, token):
            return guard
    return None


def apply_move(lifecycle: Lifecycle, move: Move, job: Job, change: Change, context: MoveContext) -> Job:
    """The job after the move. Guards are not checked."""
    at = max(context.now, job.moved_at)
    to = move.target(job.state)
    columns: dict[str, Any] = {"state": to, "move": move.name, "actor": context.actor}
    columns |= {"seq": job.seq + 1, "moved_at": at, "note": change.note}
    owned = _set_claim(move, job, context, at, columns)
    columns["phase"] = OWNED if owned else lifecycle.unowned_phase(to)
    _set_counters(move, job, change, columns)
    _set_error(move, change, columns)
    columns.update(_time_columns(lifecycle, move, job, change, at))
    if move.result == "record":
        columns["result_json"] = change.result
    columns["new_payload"] = None
    if move.payload == "replace":
        columns["payload_json"] = columns["new_payload"] = change.payload
        columns["payload_seq"] = job.seq + 1
    if move.priority == "input":
        columns["priority"] = change.priority
    for flag in move.flag:
        columns["flags"] = columns.get("flags", job.flags) | lifecycle.flag_bit(flag)
    return job._replace(**columns)


def _set_claim(move: Move, job: Job, context: MoveContext, at: int, columns: dict[str, Any]) -> bool:
    if move.claim == "take":
        columns.update(worker=context.worker, claimed_at=at, claim_seq=job.seq + 1)
        columns["lease_until"] = at + context.lease_us
        return True
    if move.claim == "drop":
        columns.update(worker=None, claimed_at=None, lease_until=None)
        return False
    return job.phase == OWNED


def _set_counters(move: Move, job: Job, change: Change, columns: dict[str, Any]) -> None:
    match move.attempt:
        case "count":
            columns["attempt_count"] = job.attempt_count + 1
        case "return":
            columns["attempt_base"] = job.attempt_base + 1
            if move.guard("returns_left"):
                columns["return_count"] = job.return_count + 1
        case "renew":
            columns["attempt_base"] = job.attempt_count
            columns["return_count"] = 0
            columns["max_attempts"] = change.max_attempts or job.max_attempts
        case "keep":
            pass
    if move.retry == "count":
        columns["retry_count"] = job.retry_count + 1


def _set_error(move: Move, change: Change, columns: dict[str, Any]) -> None:
    error: tuple[str | None, ...] = (None, None, None)
    if isinstance(move.error, Fixed):
        error = (move.error.code, move.error.category.value, move.error.message)
    elif move.error == "record":
        error = (change.error_code, change.error_category, change.error_message)
    if move.error != "keep":
        columns.update(zip(("error_code", "error_category", "error_message"), error, strict=True))


def _time_columns(lifecycle: Lifecycle, move: Move, job: Job, change: Change, at: int) -> dict[str, int | None]:
    columns: dict[str, int | None] = {}
    requested = {"now": at, "input": at if change.run_at is None else change.run_at, "clear": None}
    if isinstance(move.run_at, Backoff):
        columns["run_at"] = at + wait_us(move.run_at, job)
    elif move.run_at != "keep":
        columns["run_at"] = requested[move.run_at]
    if isinstance(move.timer, Backoff | After):
        armed = not move.timer_for or change.error_category in move.timer_for
        columns["timer_at"] = at + wait_us(move.timer, job) if armed else None
    elif move.timer == "clear":
        columns["timer_at"] = None
    column = lifecycle.stamp_column
    columns |= {column(stamp): at for stamp in move.stamp}
    columns |= {column(stamp): None for stamp in move.unstamp}
    return columns | {column(stamp): change.stamps.get(stamp) for stamp in move.stamp_input}


class Meter(NamedTuple):
    """A rate of claims: ``claims`` in ``per_us``, counted by when the last of them is paid off."""

    claims: int
    per_us: int

    def left(self, free_at: int, now: int) -> int:
        """How many claims a tenant has left."""
        return (now + self.per_us - self._since(free_at, now)) * self.claims // self.per_us

    def after(self, free_at: int, now: int, taken: int) -> int:
        """``free_at`` after this many claims."""
        return self._since(free_at, now) + -(-taken * self.per_us // self.claims)

    def opens_at(self, free_at: int) -> int:
        """When a tenant that has none left has one again."""
        return free_at - self.per_us + -(-self.per_us // self.claims)

    def _since(self, free_at: int, now: int) -> int:
        # Clocks of transactions differ a little; far ahead, it was written before one went back.
        if free_at > now + self.per_us + CLOCK_WENT_BACK_S * SECOND_US:
            return now
        return min(max(free_at, now), now + self.per_us)


def meter_of(move: Move) -> Meter | None:
    guard = move.guard("rate")
    return Meter(guard.number, guard.per_s * SECOND_US) if guard else None


def marked(lifecycle: Lifecycle, parent: Job, before: ParentMark = "pending") -> ParentMark:
    """How a parent is for the jobs that come after it; one that has succeeded stays so."""
    state = lifecycle.state[parent.state]
    if before == "done" or (state.success and not state.working):
        return "done"
    return "pending" if state.working or parent.state in lifecycle.waiting_states else "failed"


def parents_mark(marks: Collection[ParentMark]) -> ParentMark:
    if "failed" in marks:
        return "failed"
    return "pending" if "pending" in marks else "done"


def full_states(lifecycle: Lifecycle, job: Job, others: Collection[Job]) -> frozenset[str]:
    limited = [state for state in lifecycle.states if state.capacity]
    used = Counter(
        state.name
        for state in limited
        for other in others
        if other.state == state.name and other.id != job.id
        if other.tenant == job.tenant or not state.per_tenant
    )
    return frozenset(state.name for state in limited if used[state.name] >= state.capacity)


def slot_name(state: str, number: int, tenant: str = "") -> str:
    """A slot as the stores spell it; the first of a queue has the name of its state."""
    return state if number == 1 and not tenant else f"{state}/{tenant}/{number}"


def wait_us(wait: Backoff | After, job: Job) -> int:
    """How long a move of this job waits, in microseconds."""
    if isinstance(wait, After):
        return wait.seconds * SECOND_US
    attempts = job.attempt_count - job.attempt_base - 1
    return wait.delay_us(job.retry_count if wait.counts == "retries" else attempts, job.salt)


def declared_edges(lifecycle: Lifecycle) -> list[tuple[Move, str, str]]:
    """Every declared (move, from, to), with STAY resolved; enqueue and prune have '' at one end."""
    return [(move, source, move.target(source)) for move in lifecycle.moves for source in move.sources or (GONE,)]
