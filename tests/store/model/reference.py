"""A store of dictionaries: it predicts the exact answer of every store, in plain Python.

Moves and guards are those of ``kesin.lifecycle.model``; what a claim and a repeated call are is
defined in the oracle of the simulation. The oracle accepts every answer that the contract allows;
this module adds what the stores agree on beyond it: which jobs are picked, how a refusal is worded,
and what an event, a count, a note and a page contain. It uses no SQL and no generated text.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from kesin.engine.simulation.oracle import claim_order, created_job, was_made
from kesin.engine.simulation.oracle_moves import has_lost_claim
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change, Job, MoveContext, ParentMark, apply_move, failing_guard
from kesin.lifecycle.vocabulary import OWNED, READY, STAY, Role
from kesin.store.records import Event, NewJobRow, Note, Outcome, ScheduleRow
from tests.store.model.limits import ReferenceLimits
from tests.store.model.reads import ReferenceReads

NO_CHANGE = Change("")


class Reference(ReferenceLimits, ReferenceReads):
    """One queue in memory."""

    def __init__(self, queue: str, lifecycle: Lifecycle) -> None:
        self.queue = queue
        self.lifecycle = lifecycle
        self.jobs: dict[str, Job] = {}
        self.history: dict[str, list[Event]] = {}
        self.notes_by_job: dict[str, list[Note]] = {}
        self.counts: Counter[tuple[str, str, str, str]] = Counter()
        self.counted_at: dict[tuple[str, str, str, str], int] = {}
        self.paused: set[str] = set()
        self.schedules: dict[str, ScheduleRow] = {}
        self.meters: dict[str, int] = {}  # by tenant
        self.parents: dict[str, dict[str, ParentMark]] = {}  # of each job that comes after others
        self.news: set[str] = set()  # those of them whose parents came to rest
        self.successes: Counter[str] = Counter()

    def fork(self) -> "Reference":
        """A copy for what may not stay."""
        twin = Reference(self.queue, self.lifecycle)
        twin.jobs, twin.paused = dict(self.jobs), set(self.paused)
        twin.history = {job_id: list(events) for job_id, events in self.history.items()}
        twin.notes_by_job = {job_id: list(notes) for job_id, notes in self.notes_by_job.items()}
        twin.meters, twin.news = dict(self.meters), set(self.news)
        twin.schedules = dict(self.schedules)
        twin.parents = {job_id: dict(marks) for job_id, marks in self.parents.items()}
        twin.counts, twin.counted_at = Counter(self.counts), dict(self.counted_at)
        return twin

    # What the operations share

    def holder(self, tenant: str, key: str | None, besides: str = "") -> Job | None:
        """The job that owns a dedup key."""
        for job in self.jobs.values() if key is not None else ():
            if (
                (job.tenant, job.dedup_key) == (tenant, key)
                and job.id != besides
                and (job.once or self.lifecycle.state[job.state].holds_key)
            ):
                return job
        return None

    def target_taken(self, move: Move, job: Job) -> str:
        """'busy' or 'duplicate' when the target's slot or the job's key belongs to another."""
        to, here = self.lifecycle.state.get(move.to), self.lifecycle.state[job.state]
        if to is None:
            return ""
        if to.capacity and move.to in self.slots(job):
            return "busy"
        if to.holds_key and not here.holds_key:
            return "duplicate" if self.holder(job.tenant, job.dedup_key, job.id) else ""
        return ""

    def write(self, move: Move, old: Job | None, new: Job) -> None:
        """Store a row with its event and its count."""
        self.jobs[new.id] = new
        self.tell(new)
        self.history.setdefault(new.id, []).append(self.event(move, old, new))
        self.count(move, old, new.state, new)
        state = self.lifecycle.state[new.state]
        if state.success and (old is None or old.state != new.state):
            self.successes[new.id] += 1

    def settle(self, *, limit: int, now: int) -> int:
        """Those with news, until none has any: one that fails is news for others."""
        moved = 0
        while self.news:
            job_id = min(self.news)
            self.news.discard(job_id)
            outcome = self.judge("settle", "clock", self.jobs[job_id], Change(job_id), MoveContext(now, "clock"))
            moved += outcome.result == "moved"
        return moved

    def count(self, move: Move, old: Job | None, to: str, job: Job) -> None:
        edge = (job.tenant, move.name, old.state if old else "", to)
        self.counts[edge] += 1
        self.counted_at[edge] = max(self.counted_at.get(edge, 0), job.moved_at)

    def event(self, move: Move, old: Job | None, new: Job) -> Event:
        """The line a move leaves: what every move says, and the columns this one may set."""
        source = old.state if old else ""
        bits = self.mask(move.name, source, new.state)
        shown: dict[str, Any] = {
            column.removesuffix("_json"): getattr(new, column) if bits & bit else None
            for bit, columns in FREE.items()
            for column in columns
        }
        return Event(
            job_id=new.id,
            seq=new.seq,
            at=new.moved_at,
            move=move.name,
            from_state=source,
            to_state=new.state,
            phase=new.phase,
            claim={"take": 1, "drop": 0, "keep": -1}[move.claim],
            actor=new.actor,
            worker=new.worker,
            attempt=new.attempt_count,
            attempt_base=new.attempt_base,
            return_count=new.return_count,
            max_attempts=new.max_attempts,
            retry_count=new.retry_count,
            flags=new.flags,
            mask=bits,
            note=new.note,
            payload=new.new_payload,
            old_payload=old.payload_json if old and bits & 32 else None,
            **shown,
            priority=new.priority if bits & 8192 else 0,
        )

    def mask(self, name: str, source: str, target: str) -> int:
        """The columns that moves of this name between these states may set, as bits."""
        bits = 0
        for move in self.lifecycle.moves:
            goes = target if move.prunes else (source if move.to == STAY else move.to)
            if move.name == name and source in (move.sources or ("",)) and goes == target:
                bits |= 1 * (move.error != "keep") | 2 * (move.run_at != "keep")
                bits |= 4 * (move.timer != "keep") | 8 * (move.result == "record")
                bits |= 16 * bool(move.flag) | 32 * (move.payload == "replace")
                bits |= 8192 * (move.priority == "input")
                for stamp in (*move.stamp, *move.stamp_input, *move.unstamp):
                    place = (*self.lifecycle.stamps, "finished_at").index(stamp)
                    bits |= 64 if stamp == "finished_at" else 128 << place
        held = bool(source) and self.lifecycle.state[source].holds_key
        holds = self.lifecycle.state[target].holds_key
        if source and holds != held:
            bits |= 2048 if holds else 4096
        return bits

    def add_note(self, job_id: str, kind: str, actor: str, now: int, details: str | None) -> None:
        note = Note(job_id, now, kind, actor, details)
        self.notes_by_job.setdefault(job_id, []).append(note)

    # Enqueue

    def enqueue(self, news: Sequence[NewJobRow], *, actor: str, now: int) -> list[Outcome]:
        outcomes = []
        for new in news:
            holder = self.holder(new.tenant, new.dedup_key)
            if holder is None:
                job = created_job(self.queue, self.lifecycle, new, actor, now)
                after = self.lifecycle.enqueue_after_move if new.after else None
                if new.after:
                    self.parents[job.id] = dict.fromkeys(new.after, "pending")
                self.write(after or self.lifecycle.enqueue_move, None, job)
                for parent in new.after:
                    self.tell(self.jobs[parent])
                outcomes.append(Outcome("inserted", job.id, job.state, 1))
            else:
                outcomes.append(Outcome("duplicate", holder.id, holder.state, holder.seq))
                self.add_note(holder.id, "duplicate", actor, now, None)
        return outcomes

    # Claim

    def claim(
        self, *, worker: str, limit: int, lease_us: int, tenants: Sequence[str] | None = None, after: str = "", now: int
    ) -> list[Job]:
        """Tenants with due jobs take turns by name behind ``after``, each with its oldest jobs.

        No tenant gets more than its share, though others have nothing to claim.
        """
        due: dict[str, list[Job]] = {}
        for job in sorted(self.jobs.values(), key=claim_order):
            wanted = tenants is None or job.tenant in tenants
            waits = job.phase == READY and job.run_at is not None and job.run_at <= now
            if wanted and waits and not self.paused & {"", job.tenant}:
                due.setdefault(job.tenant, []).append(job)
        limited = self.lifecycle.limited_claim
        if limited:
            limit = min(limit, 100, self.free_slots(limited, ""))
            due = {tenant: jobs for tenant, jobs in due.items() if self.left(tenant, now)}
        elif any(map(self.lifecycle.capacity_of, self.lifecycle.claims)):
            limit = min(limit, 1)
        share, more = divmod(limit, max(min(len(due), limit), 1))
        context = MoveContext(now, worker, worker, lease_us)
        picked: list[tuple[Job, Move]] = []
        for nth, tenant in enumerate(sorted(due, key=lambda name: (name <= after, name))):
            able = [(job, move) for job in due[tenant] if (move := self.claim_of(job, context))]
            picked += able[: min(share + (nth < more), self.left(tenant, now))]
        self.spend(Counter(job.tenant for job, _ in picked[:limit]), now)
        claimed = []
        for old, move in sorted(picked[:limit], key=lambda pick: claim_order(pick[0])):
            if not self.target_taken(move, old):
                new = apply_move(self.lifecycle, move, old, NO_CHANGE, context)
                self.write(move, old, new)
                claimed.append(new)
        return sorted(claimed, key=claim_order)

    def claim_of(self, job: Job, context: MoveContext) -> Move | None:
        seen = replace(context, slots_taken=self.slots(job))
        for move in self.lifecycle.claims:
            fits = job.state in move.sources and not self.target_taken(move, job)
            if fits and failing_guard(move, job, self.lifecycle, seen, None) is None:
                return move
        return None

    def renew(self, claims: Iterable[tuple[str, int]], *, lease_us: int, now: int) -> set[str]:
        renewed = set()
        longest = self.lifecycle.max_run_seconds * SECOND_US
        for job_id, token in claims:
            job = self.jobs.get(job_id)
            if not job or job.phase != OWNED or job.claim_seq != token:
                continue
            assert job.claimed_at is not None
            assert job.lease_until is not None
            if job.claimed_at + longest > now:
                until = min(now + lease_us, job.claimed_at + longest)
                self.jobs[job_id] = job._replace(lease_until=max(job.lease_until, until))
                renewed.add(job_id)
        return renewed

    # Apply

    def apply(
        self,
        action: str,
        changes: Sequence[Change],
        *,
        role: Role,
        actor: str,
        options: frozenset[str] = frozenset(),
        tenants: Sequence[str] | None = None,
        now: int,
    ) -> list[Outcome]:
        """Jobs are judged in the order of their ids; an id named twice is judged once."""
        first: dict[str, Change] = {}
        for change in changes:
            first.setdefault(change.id, change)
        context = MoveContext(now, actor, options=options)
        answers: dict[str, Outcome] = {}
        for job_id in sorted(first):
            job = self.jobs.get(job_id)
            if job is None or (tenants is not None and job.tenant not in tenants):
                answers[job_id] = Outcome("unknown", job_id)
            else:
                answers[job_id] = self.judge(action, role, job, first[job_id], context)
        return [answers[change.id] for change in changes]

    def judge(self, action: str, role: Role, job: Job, change: Change, context: MoveContext) -> Outcome:
        moves = [
            move for move in self.lifecycle.actions[action] if role in move.by and not move.chained and not move.creates
        ]
        for move in moves:
            if self.stopped_by(move, job, change, context) == "":
                new = self.make(move, job, change, context)
                return Outcome("moved", job.id, new.state, new.seq)
        why = self.reason(moves, job, change, context)
        if why == "stale":
            self.add_note(job.id, "stale", context.actor, context.now, action)
        if why in ("already", "busy"):
            return Outcome(why, job.id, job.state, job.seq)  # type: ignore[arg-type]
        holder = self.holder(job.tenant, job.dedup_key, job.id) if why == "duplicate" else None
        return Outcome("refused", job.id, job.state, job.seq, why, holder and holder.id)

    def make(self, move: Move, job: Job, change: Change, context: MoveContext, by: Role | None = None) -> Job:
        """The move and, where this role may make one, the second link of its chain."""
        new = apply_move(self.lifecycle, move, job, change, context)
        self.write(move, job, new)
        for link in self.lifecycle.chained_moves(move):
            may = by is None or by in link.by
            if may and self.stopped_by(link, new, NO_CHANGE, context) == "":
                last = apply_move(self.lifecycle, link, new, NO_CHANGE, context)
                self.write(link, new, last)
                return last
        return new

    def stopped_by(self, move: Move, job: Job, change: Change, context: MoveContext) -> str:
        """What stops the move: its state, a lost claim, a guard, its slot or its key."""
        if job.state not in move.sources:
            return "state"
        if change.token is not None and has_lost_claim(job, change.token):
            return "stale"
        seen = MoveContext(
            context.now,
            context.actor,
            options=context.options,
            slots_taken=self.slots(job),
            parents=self.waits_for(job),
        )
        guard = failing_guard(move, job, self.lifecycle, seen, change.token)
        return guard.kind if guard else self.target_taken(move, job)

    def reason(self, moves: list[Move], job: Job, change: Change, context: MoveContext) -> str:
        sources = {state for move in moves for state in move.sources}
        targets = {move.to for move in moves}
        fenced = any(move.guard("holds_claim") for move in moves)
        token = change.token
        if was_made(self.history[job.id], {move.name for move in moves}, token):
            return "already"
        if token is None and not fenced and job.state in targets - sources:
            return "already"
        if (fenced or token is not None) and has_lost_claim(job, token):
            return "stale"
        reasons = [self.stopped_by(move, job, change, context) for move in moves]
        return next((why for why in reasons if why != "state"), "state")

    # Sweep

    def sweep(self, move: Move, *, limit: int, now: int, **chosen: Any) -> int:
        picked = self.sweep_candidates(move, now=now, **chosen)[:limit]
        context = MoveContext(now, "clock")
        for job in picked:
            if move.prunes:
                self.count(move, job, "", job)
                for table in (self.jobs, self.history, self.notes_by_job, self.parents):
                    table.pop(job.id, None)
                for marks in self.parents.values():
                    marks.pop(job.id, None)
                self.news.discard(job.id)
            else:
                self.make(move, job, NO_CHANGE, context, by="clock")
        return len(picked)

    def sweep_candidates(
        self, move: Move, *, now: int, min_age_us: int = 0, max_attempts: int | None = None
    ) -> list[Job]:
        """The jobs that the scheduled move is due for, the most overdue first."""
        candidates = []
        for job in self.jobs.values():
            if job.state not in move.sources:
                continue
            capped = job if max_attempts is None else job._replace(max_attempts=max_attempts)
            context = MoveContext(now, "clock", slots_taken=self.slots(job), parents=self.waits_for(job))
            if (
                (not min_age_us or job.moved_at <= now - min_age_us)
                and failing_guard(move, capped, self.lifecycle, context, None) is None
                and not self.target_taken(move, job)
                and not (move.prunes and self.is_awaited(job.id))
            ):
                candidates.append(job)
        return sorted(candidates, key=lambda job: (_overdue_since(self.lifecycle, move, job), job.id))

    def same_order_everywhere(self, move: Move, due: list[Job]) -> bool:
        """Whether every store would take these in the same order, if it may not take all.

        Within a tenant and a state, some go by the id and some by the stamp that tells the age:
        two orders once a clock has gone back.
        """
        if move.guard("lease_over") or move.guard("timer_over"):
            return True
        aged = move.guard("age_over")
        name = self.lifecycle.stamp_column(aged.names[0]) if aged else "id"
        by_stamp = sorted(due, key=lambda job: (getattr(job, name), job.id))
        one_place = len({(job.tenant, job.state) for job in due}) <= 1
        return one_place and by_stamp == sorted(due, key=lambda job: job.id)


FREE = {
    1: ("error_code", "error_category", "error_message"),
    2: ("run_at",),
    4: ("timer_at",),
    8: ("result_json",),
    64: ("finished_at",),
    **{128 << number: (f"stamp_{number + 1}",) for number in range(4)},
}


def _overdue_since(lifecycle: Lifecycle, move: Move, job: Job) -> int:
    """What a limited sweep goes by before the id: the timer, the end or the first named stamp."""
    if move.guard("lease_over"):
        return 0
    if move.guard("timer_over"):
        return job.timer_at or 0
    aged = move.guard("age_over")
    if aged and aged.names[0] in (*lifecycle.stamps, "finished_at"):
        return int(getattr(job, lifecycle.stamp_column(aged.names[0])) or 0)
    return 0
