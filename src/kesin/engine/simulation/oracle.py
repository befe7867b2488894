"""What a call to the store should have changed, worked out from the lifecycle's model alone.

Given the rows before a call, what was asked and what was answered, ``expected`` says which rows
must have changed and how, or which promise the answer itself breaks. No SQL, no store: the same
pure functions that the stores' statements are generated from, read the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Asked, Change, Job, failing_guard, step
from kesin.lifecycle.vocabulary import OWNED, READY, Role
from kesin.store.records import Event, NewJob, Outcome

Rows = Mapping[str, Job]
NO_CHANGE = Change("")


class BrokenPromise(BaseException):
    """A promise that did not hold; ``rule`` names it in a word or two.

    No ``Exception``: a worker takes whatever a handler throws for the handler's own trouble.
    """

    def __init__(self, rule: str, why: str) -> None:
        super().__init__(f"{rule}: {why}")
        self.rule = rule


def broken(rule: str, why: str) -> NoReturn:
    """Say which promise does not hold."""
    raise BrokenPromise(rule, why)


@dataclass(frozen=True)
class Before:
    """The queue as it stood when a call was made, and the events that came since."""

    queue: str
    lifecycle: Lifecycle
    rows: Rows
    came: Mapping[str, Sequence[Event]]  # job → its new events
    paused: frozenset[str]
    history: Mapping[str, Sequence[Event]]  # job → its events before the call

    # Births

    def enqueue(
        self, _queue: str, jobs: Sequence[NewJob], answer: list[Outcome], **told: Any
    ) -> dict[str, Job | None]:
        """Each job is born as it was sent, or its key was held and the holder is named."""
        born: dict[str, Job | None] = {}
        holders = {self._key(job): job.id for job in self.rows.values() if self._held(job)}
        for new, outcome in zip(jobs, answer, strict=True):
            key = (new.tenant, new.dedup_key)
            holder = holders.get(key) if new.dedup_key is not None else None
            if outcome.result == "duplicate":
                if holder is None or outcome.id != holder:
                    broken("key", f"{outcome.id} is named as holder of {key}; it is {holder}")
            elif outcome.result != "inserted" or outcome.id != new.id:
                broken("answer", f"an enqueue answered {outcome}")
            elif holder is not None:
                broken("key", f"{new.id} was born though {holder} holds {key}")
            else:
                job = born[new.id] = self._born(new, told["actor"], told["now"])
                if self._held(job):
                    holders[key] = new.id
        return born

    def _born(self, new: NewJob, actor: str, now: int) -> Job:
        lifecycle = self.lifecycle
        initial = lifecycle.initial.name
        zero = ("claim_seq", "attempt_count", "attempt_base", "return_count", "retry_count")
        row: dict[str, Any] = {**dict.fromkeys(Job._fields), **dict.fromkeys((*zero, "flags"), 0)}
        row |= {"queue": self.queue, "state": initial, "phase": lifecycle.unowned_phase(initial)}
        row |= {"move": "enqueue", "actor": actor, "seq": 1, "payload_seq": 1}
        row |= {"created_at": now, "moved_at": now}
        row |= {"run_at": now if new.run_at is None else new.run_at}
        for column in ("id", "tenant", "max_attempts", "salt", "note", "dedup_key", "payload"):
            row[column] = getattr(new, column)
        for name, at in new.stamps.items():
            row[lifecycle.stamp_column(name)] = at
        return Job(**row)

    # Claims

    def claim(self, _queue: str, answer: list[Job], **told: Any) -> dict[str, Job | None]:
        """Each job was due, unclaimed and not paused; nothing that could be claimed was passed by.

        A tenant's equal share may leave jobs of others waiting, so only an empty answer says that
        there was nothing.
        """
        if len(answer) > told["limit"]:
            broken("claim", f"{len(answer)} jobs were given where {told['limit']} were asked for")
        worker, now = told["worker"], told["now"]
        asked = Asked(now, worker, worker, told["lease_us"], slots_taken=self._slots())
        taken: dict[str, Job | None] = {}
        for job in answer:
            old = self._known(job.id)
            if self.paused & {"", job.tenant}:
                broken("pause", f"{job.id} was claimed while {job.tenant} was paused")
            if not self._wanted(old, told):
                broken("claim", f"{job.id} was claimed and not asked for")
            taken[job.id] = new = self._followed(old, self.lifecycle.claims, NO_CHANGE, asked)
            if job != new:
                broken("answer", f"a claim gave {_part(job, new)}")
        if not answer:
            self._nothing_to_claim(told, asked)
        self._oldest_first(answer, told, asked)
        return taken

    def _oldest_first(self, answer: list[Job], told: dict[str, Any], asked: Asked) -> None:
        """Within a tenant nobody was passed by; who waits for a slot is, and says nothing."""
        slots = {state.name for state in self.lifecycle.states if state.exclusive}
        if slots & {move.to for move in self.lifecycle.claims}:
            return
        newest: dict[str, tuple[int, str]] = {}
        for job in answer:
            turn = _turn(self._known(job.id))
            newest[job.tenant] = max(newest.get(job.tenant, turn), turn)
        for job in self.rows.values():
            last = newest.get(job.tenant)
            if last is None or job.id in self.came or not self._wanted(job, told):
                continue
            for move in self.lifecycle.claims:
                waited = job.phase == READY and self._could(move, job, NO_CHANGE, asked)
                if waited and _turn(job) < last:
                    broken("claim", f"{job.id} was passed by for a younger one")

    def _nothing_to_claim(self, told: dict[str, Any], asked: Asked) -> None:
        for job in self.rows.values():
            waits = job.phase == READY and not self.paused & {"", job.tenant}
            if waits and self._wanted(job, told):
                for move in self.lifecycle.claims:
                    if self._could(move, job, NO_CHANGE, asked):
                        broken("claim", f"{job.id} was due and nobody got it")

    @staticmethod
    def _wanted(job: Job, told: dict[str, Any]) -> bool:
        tenants, ids = told.get("tenants"), told.get("ids")
        return (tenants is None or job.tenant in tenants) and (ids is None or job.id in ids)

    def renew(
        self, _queue: str, claims: Sequence[tuple[str, int]], answer: set[str], **told: Any
    ) -> dict[str, Job | None]:
        """Only live claims are prolonged, and none beyond the longest run."""
        longest, now = self.lifecycle.max_run_seconds * SECOND_US, told["now"]
        kept: dict[str, Job | None] = {}
        for job_id, token in claims:
            job = self.rows.get(job_id)
            if job is None or job.phase != OWNED or job.claim_seq != token:
                continue
            claimed_at, until = job.claimed_at or 0, job.lease_until or 0
            if claimed_at + longest > now:
                until = max(until, min(now + told["lease_us"], claimed_at + longest))
                kept[job_id] = job._replace(lease_until=until)
        if answer != set(kept):
            broken("lease", f"a renewal kept {sorted(answer)}; held are {sorted(kept)}")
        return kept

    # Moves somebody asks for

    def apply(
        self,
        _queue: str,
        call: str,
        changes: Sequence[Change],
        answer: list[Outcome],
        **told: Any,
    ) -> dict[str, Job | None]:
        """Whoever was told ``moved`` made a declared move; whoever was refused could not."""
        role: Role = told["role"]
        moves = tuple(
            move
            for move in self.lifecycle.calls[call]
            if role in move.by and not move.chained and not move.births
        )
        made: dict[str, Job | None] = {}
        asked_for: set[str] = set()
        for change, outcome in zip(changes, answer, strict=True):
            if change.id in asked_for:
                continue
            asked_for.add(change.id)
            asked = Asked(
                told["now"],
                told["actor"],
                options=told.get("options", frozenset()),
                slots_taken=self._slots(change.id),
            )
            job = self.rows.get(change.id)
            if outcome.result == "moved":
                made[change.id] = self._followed(self._known(change.id), moves, change, asked)
            elif job is not None and outcome.result != "unknown":
                self._rightly_refused(moves, job, change, asked, outcome)
        return made

    def _rightly_refused(
        self,
        moves: tuple[Move, ...],
        job: Job,
        change: Change,
        asked: Asked,
        outcome: Outcome,
    ) -> None:
        if any(self._could(move, job, change, asked) for move in moves):
            broken("refusal", f"{job.id} in {job.state} could make {moves[0].call}: {outcome}")
        fenced = any(move.guard("holds_claim") for move in moves)
        repeated = self._repeated(moves, change)
        if change.token is None and not fenced:
            left = {state for move in moves for state in move.sources}
            repeated = job.state in {move.to for move in moves} - left
        if repeated != (outcome.result == "already"):
            broken("already", f"{job.id} was asked for {moves[0].call}: {outcome}")

    def _repeated(self, moves: tuple[Move, ...], change: Change) -> bool:
        """Whether the claim of this token has made one of these moves, and nobody claimed since."""
        names = {move.name for move in moves}
        for event in self.history.get(change.id, ()):
            if change.token is not None and event.seq > change.token:
                if event.move in names:
                    return True
                if event.claim == 1:
                    return False
        return False

    # The clock's moves

    def sweep(self, _queue: str, move: Move, answer: int, **told: Any) -> dict[str, Job | None]:
        """Every job taken was due for it, and none that was due is left below the limit."""
        asked = Asked(told["now"], "clock", slots_taken=self._slots())
        gone = {one for one in self.rows if one in self.came and not self.came[one]}
        moved: dict[str, Job | None] = {}
        for job_id in self.came:
            job = self._known(job_id)
            if move.prunes and job_id in gone:
                self._allowed((move,), job, NO_CHANGE, asked)
                moved[job_id] = None
            else:
                moved[job_id] = self._followed(job, (move,), NO_CHANGE, asked)
        if len(moved) != answer or answer > told["limit"]:
            broken("answer", f"{move.name} told of {answer} jobs and moved {len(moved)}")
        if answer < told["limit"]:
            for job in self.rows.values():
                if job.id not in moved and self._could(move, job, NO_CHANGE, asked):
                    broken("sweep", f"{move.name} passed {job.id} by, in {job.state}")
        return moved

    # What a move may do

    def _known(self, job_id: str) -> Job:
        return self.rows.get(job_id) or broken("answer", f"{job_id} was not there")

    def _followed(self, job: Job, moves: tuple[Move, ...], change: Change, asked: Asked) -> Job:
        """The row that the job's new events should have led to."""
        events = self.came.get(job.id) or broken("event", f"{job.id} moved without an event")
        fitting = [one for one in moves if _is(one, job, events[0])]
        if not fitting:
            line = f"{events[0].from_state} → {events[0].to_state}"
            broken("declared", f"{events[0].move} ({line}) is no move that was asked for")
        move = self._allowed(tuple(fitting), job, change, asked)
        new = step(self.lifecycle, move, job, change, asked)
        links = self.lifecycle.chained(move)
        if move.stage:
            links = tuple(one for one in links if "clock" in one.by)
        second = [one for one in links if len(events) > 1 and _is(one, new, events[1])]
        if second:
            link = self._allowed(tuple(second), new, NO_CHANGE, asked)
            new = step(self.lifecycle, link, new, NO_CHANGE, asked)
        elif any(self._could(one, new, NO_CHANGE, asked) for one in links):
            broken("chain", f"{job.id} made {move.name}, and not what follows it")
        if len(events) != new.seq - job.seq:
            broken("event", f"{job.id} left {len(events)} events, not {new.seq - job.seq}")
        return new

    def _allowed(self, moves: tuple[Move, ...], job: Job, change: Change, asked: Asked) -> Move:
        """The one move among these whose guards hold."""
        if change.token is not None and _lost(job, change.token):
            broken("fence", f"{job.id} made {moves[0].name} for a claim that was lost")
        stopped = {
            one: failing_guard(one, job, self.lifecycle, asked, change.token) for one in moves
        }
        for move, guard in stopped.items():
            if guard is None and job.state in move.sources:
                return move
        broken("guard", f"{job.id} made {moves[0].name} though {stopped[moves[0]]} did not hold")

    def _could(self, move: Move, job: Job, change: Change, asked: Asked) -> bool:
        """Whether nothing stood in the move's way, before the call and after it."""
        stale = change.token is not None and _lost(job, change.token)
        if job.state not in move.sources or stale:
            return False
        if failing_guard(move, job, self.lifecycle, asked, change.token) is not None:
            return False
        to, here = self.lifecycle.state.get(move.to), self.lifecycle.state[job.state]
        if to is None:
            return True
        others = [one for one in self.rows.values() if one.id != job.id]
        reached = {event.to_state for events in self.came.values() for event in events}
        if to.exclusive and (to.name in reached or any(one.state == to.name for one in others)):
            return False
        if not to.holds_key or here.holds_key or job.dedup_key is None:
            return True
        mine = self._key(job)
        return not any(
            self._key(one) == mine and (one.id in self.came or self._held(one)) for one in others
        )

    def _slots(self, besides: str = "") -> frozenset[str]:
        """The exclusive states that are taken and were not left in this very call."""
        return frozenset(
            job.state
            for job in self.rows.values()
            if self.lifecycle.state[job.state].exclusive
            and job.id != besides
            and not self._left(job)
        )

    def _left(self, job: Job) -> bool:
        """Whether the call took the job out of its state; a wake-up may leave it where it is."""
        came = self.came.get(job.id)
        return came is not None and (not came or came[-1].to_state != job.state)

    def _held(self, job: Job) -> bool:
        return job.dedup_key is not None and self.lifecycle.state[job.state].holds_key

    @staticmethod
    def _key(job: Job) -> tuple[str, str | None]:
        return (job.tenant, job.dedup_key)


def _is(move: Move, job: Job, event: Event) -> bool:
    fits = job.state in move.sources and move.target(job.state) == event.to_state
    return fits and move.name == event.move


def _turn(job: Job) -> tuple[int, str]:
    return (job.run_at or 0, job.id)


def _lost(job: Job, token: int) -> bool:
    return job.phase != OWNED or job.claim_seq != token


def _part(row: Job, other: Job) -> str:
    """The first column in which two rows differ."""
    for column, one, two in zip(Job._fields, row, other, strict=True):
        if one != two:
            return f"{row.id} with {column} {one!r}, not {two!r}"
    return row.id
