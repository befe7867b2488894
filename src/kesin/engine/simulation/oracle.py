"""What a call to the store should have changed by the model, or which promise it breaks."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kesin.engine.simulation import oracle_moves
from kesin.engine.simulation.oracle_moves import NO_CHANGE, MoveOracle, Moves, break_promise
from kesin.foundation.ids import first_id_at
from kesin.lifecycle import model
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change, Job, MoveContext, ParentMark
from kesin.lifecycle.vocabulary import OWNED, READY, Role
from kesin.store.records import Event, NewJobRow, Outcome


class Oracle(MoveOracle):
    """What each call of a store should have done."""

    # Enqueue

    def enqueue(
        self, _queue: str, jobs: Sequence[NewJobRow], returned: list[Outcome], **kwargs: Any
    ) -> dict[str, Job | None]:
        """Each job is created as it was sent, or its key was held and the holder is returned."""
        created: dict[str, Job | None] = {}
        holders = {self._key(job): job.id for job in self.rows.values() if self._holds_key(job)}
        for new, outcome in zip(jobs, returned, strict=True):
            key = (new.tenant, new.dedup_key)
            holder = holders.get(key) if new.dedup_key is not None else None
            if outcome.result == "duplicate":
                if holder is None or outcome.id != holder:
                    why = f"{outcome.id} is named as holder of {key}; it is {holder}"
                    break_promise("key", why)
            elif outcome.result != "inserted" or outcome.id != new.id:
                break_promise("answer", f"an enqueue returned {outcome}")
            elif holder is not None:
                break_promise("key", f"{new.id} was created though {holder} holds {key}")
            else:
                job = created[new.id] = created_job(self.queue, self.lifecycle, new, kwargs["actor"], kwargs["now"])
                if self._holds_key(job):
                    holders[key] = new.id
                if new.after:
                    rows = {name: self._row(name) for name in new.after}
                    marks = {name: model.marked(self.lifecycle, row) for name, row in rows.items()}
                    self.parents[new.id] = marks
        return created

    def settle(self, _queue: str, returned: int, **kwargs: Any) -> dict[str, Job | None]:
        """Every job that waits for others moved if they let it, and none that they do not let."""
        context = MoveContext(kwargs["now"], "clock")
        moved: dict[str, Job | None] = {}
        moves = self.lifecycle.actions["settle"]
        for job_id, events in self.new_events.items():
            job = self._row(job_id)
            matching = [move for move in moves if events and move.name == events[0].move]
            if len(events) != 1 or not matching or job.state not in matching[0].sources:
                break_promise("settle", f"{job_id} in {job.state} was settled by {events}")
            wanted = "done" if matching[0].guard("parents_done") else "failed"
            if self._parents_after(job_id) != wanted:
                break_promise("settle", f"{job_id} moved on though its parents are not {wanted}")
            moved[job_id] = model.apply_move(self.lifecycle, matching[0], job, NO_CHANGE, context)
        if len(moved) != returned:
            break_promise("answer", f"settle returned {returned} and moved {len(moved)} jobs")
        for job in self.rows.values() if returned < kwargs["limit"] else ():
            waits = job.state in self.lifecycle.waiting_states and job.id not in moved
            if waits and self._parents_after(job.id) != "pending":
                break_promise("settle", f"{job.id} still waits, though its parents are at rest")
        return moved

    def _parents_after(self, job_id: str) -> ParentMark:
        """How its parents are after the call, which may have moved some of them."""
        marks = []
        for parent, mark in self.parents.get(job_id, {}).items():
            row, events = self.rows.get(parent), self.new_events.get(parent)
            after = row._replace(state=events[-1].to_state) if row and events else row
            marks.append(model.marked(self.lifecycle, after, mark) if after else mark)
        return model.parents_mark(marks)

    # Claims

    def claim(self, _queue: str, returned: list[Job], **kwargs: Any) -> dict[str, Job | None]:
        """A job was due, unclaimed, at its tenant's turn; an empty result means that none was."""
        worker, now, limit = kwargs["worker"], kwargs["now"], kwargs["limit"]
        if len(returned) > limit:
            break_promise("claim", f"{len(returned)} jobs were claimed, the limit was {limit}")
        context = MoveContext(now, worker, worker, kwargs["lease_us"])
        claimed: dict[str, Job | None] = {}
        for job in returned:
            old = self._row(job.id)
            if self.paused & {"", job.tenant}:
                break_promise("pause", f"{job.id} was claimed while {job.tenant} was paused")
            if not self._was_requested(old, kwargs):
                break_promise("claim", f"{job.id} was claimed and not requested")
            claimed[job.id] = new = self._row_after(old, self.lifecycle.claims, NO_CHANGE, context)
            if job != new:
                break_promise("answer", f"a claim returned {oracle_moves.mismatch(job, new)}")
        if not returned:
            self._check_nothing_due(kwargs, context)
        limited = self.lifecycle.limited_claim
        slots = any(map(self.lifecycle.capacity_of, self.lifecycle.claims))
        if limited or not slots:
            self._check_order(returned, kwargs, context)  # else jobs wait for a slot
        if not limited and not slots:
            self._check_turns(returned, kwargs, context)
        self._check_rate(returned, now)
        return claimed

    def _was_due(self, job: Job, kwargs: dict[str, Any], context: MoveContext) -> bool:
        """Whether this claim could have taken the job."""
        if job.phase != READY or self.paused & {"", job.tenant}:
            return False
        moves = self.lifecycle.claims
        return self._was_requested(job, kwargs) and any(
            self._is_possible(move, job, NO_CHANGE, context) for move in moves
        )

    def _check_rate(self, returned: list[Job], now: int) -> None:
        meter = model.meter_of(self.lifecycle.claims[0])
        for tenant, taken in Counter(job.tenant for job in returned).items() if meter else ():
            free_at = self.meters.get(tenant, 0)
            if meter and taken > meter.left(free_at, now):
                break_promise("rate", f"{tenant} took {taken} of {meter.left(free_at, now)} jobs")
            if meter:
                self.meters[tenant] = meter.after(free_at, now, taken)

    def _check_turns(self, jobs: list[Job], kwargs: dict[str, Any], context: MoveContext) -> None:
        """No tenant gets more than its share, and none is skipped for one whose turn is later."""
        if kwargs.get("ids") is not None or not jobs:
            return
        given = Counter(job.tenant for job in jobs)
        waiting = {
            job.tenant
            for job in self.rows.values()
            if job.phase == READY and not self.paused & {"", job.tenant}
            if self._was_requested(job, kwargs) and job.run_at is not None
            if job.run_at <= context.now
        }
        share, more = divmod(kwargs["limit"], min(len(waiting), kwargs["limit"]))
        if max(given.values()) > share + bool(more):
            break_promise("turn", f"a tenant got {max(given.values())} jobs, its share was {share}")
        after = kwargs.get("after", "")
        last = max((tenant <= after, tenant) for tenant in given)
        for job in self.rows.values():
            earlier = (job.tenant <= after, job.tenant) < last
            passed_by = job.tenant not in given and job.tenant in waiting and earlier
            if passed_by and self._was_due(job, kwargs, context):
                break_promise("turn", f"{job.tenant} was passed over: {job.id} was due")

    def _check_order(self, jobs: list[Job], kwargs: dict[str, Any], context: MoveContext) -> None:
        """Within a tenant older jobs are claimed first."""
        newest: dict[str, tuple[int, int, str]] = {}
        for job in jobs:
            order = claim_order(self._row(job.id))
            newest[job.tenant] = max(newest.get(job.tenant, order), order)
        for job in self.rows.values():
            last = newest.get(job.tenant)
            passed_by = last and job.id not in self.new_events and claim_order(job) < last
            if passed_by and self._was_due(job, kwargs, context):
                break_promise("claim", f"{job.id} was passed over for a younger one")

    def _check_nothing_due(self, kwargs: dict[str, Any], context: MoveContext) -> None:
        for job in self.rows.values():
            if self._was_due(job, kwargs, context):
                break_promise("claim", f"{job.id} was due and no worker got it")

    @staticmethod
    def _was_requested(job: Job, kwargs: dict[str, Any]) -> bool:
        tenants, ids = kwargs.get("tenants"), kwargs.get("ids")
        return (tenants is None or job.tenant in tenants) and (ids is None or job.id in ids)

    def renew(
        self, _queue: str, claims: Sequence[tuple[str, int]], returned: set[str], **kwargs: Any
    ) -> dict[str, Job | None]:
        """Only live claims are extended, and none beyond the longest run."""
        longest, now = self.lifecycle.max_run_seconds * SECOND_US, kwargs["now"]
        renewed: dict[str, Job | None] = {}
        for job_id, token in claims:
            job = self.rows.get(job_id)
            if job is None or job.phase != OWNED or job.claim_seq != token:
                continue
            claimed_at, until = job.claimed_at or 0, job.lease_until or 0
            if claimed_at + longest > now:
                until = max(until, min(now + kwargs["lease_us"], claimed_at + longest))
                renewed[job_id] = job._replace(lease_until=until)
        if returned != set(renewed):
            break_promise("lease", f"a renewal kept {sorted(returned)}, not {sorted(renewed)}")
        return renewed

    # Actions

    def apply(
        self, _queue: str, action: str, changes: list[Change], returned: list[Outcome], **kwargs: Any
    ) -> dict[str, Job | None]:
        """A job with the outcome ``moved`` made a declared move; a refused job could not."""
        role: Role = kwargs["role"]
        moves = tuple(
            move for move in self.lifecycle.actions[action] if role in move.by and not move.chained and not move.creates
        )
        options = kwargs.get("options", frozenset())
        context = MoveContext(kwargs["now"], kwargs["actor"], options=options)
        moved: dict[str, Job | None] = {}
        handled: set[str] = set()
        for change, outcome in zip(changes, returned, strict=True):
            if change.id in handled:
                continue
            handled.add(change.id)
            job = self.rows.get(change.id)
            if outcome.result == "moved":
                moved[change.id] = self._row_after(self._row(change.id), moves, change, context)
            elif job is not None and outcome.result != "unknown":
                self._check_refusal(moves, job, change, context, outcome)
        return moved

    def _check_refusal(self, moves: Moves, job: Job, change: Change, context: MoveContext, outcome: Outcome) -> None:
        action = moves[0].action if moves else ""
        if any(self._is_possible(move, job, change, context) for move in moves):
            break_promise("refusal", f"{job.id} in {job.state} could make {action}: {outcome}")
        fenced = any(move.guard("holds_claim") for move in moves)
        names = {move.name for move in moves}
        repeated = was_made(self.history.get(change.id, ()), names, change.token)
        if change.token is None and not fenced:
            left = {state for move in moves for state in move.sources}
            repeated = job.state in {move.to for move in moves} - left
        if repeated != (outcome.result == "already"):
            break_promise("already", f"{job.id} was asked for {action}: {outcome}")

    # Scheduled moves

    def _is_awaited(self, job_id: str) -> bool:
        """Whether a job that is not over comes after this one."""
        return any(
            job_id in marks and child in self.rows and model.marked(self.lifecycle, self.rows[child]) == "pending"
            for child, marks in self.parents.items()
        )

    def sweep(self, _queue: str, move: Move, returned: int, **kwargs: Any) -> dict[str, Job | None]:
        """Every moved job was due; below the limit, no due job is left."""
        context = MoveContext(kwargs["now"], "clock")
        moved: dict[str, Job | None] = {}
        for job_id, events in self.new_events.items():
            job = self._row(job_id)
            if move.prunes and not events:
                if self._is_awaited(job_id):
                    break_promise("parents", f"{job_id} was pruned while another job waits for it")
                self._allowed_move((move,), job, NO_CHANGE, context)
                moved[job_id] = None
            else:
                moved[job_id] = self._row_after(job, (move,), NO_CHANGE, context)
        if len(moved) != returned or returned > kwargs["limit"]:
            break_promise("answer", f"{move.name} reported {returned} jobs and moved {len(moved)}")
        if returned < kwargs["limit"]:
            for job in self.rows.values():
                is_ahead = job.id >= first_id_at(job.created_at + SECOND_US)  # it is pruned late
                kept = move.prunes and (is_ahead or self._is_awaited(job.id))
                possible = job.id not in moved and self._is_possible(move, job, NO_CHANGE, context)
                if possible and not kept:
                    break_promise("sweep", f"{move.name} passed over {job.id} in {job.state}")
        return moved


def claim_order(job: Job) -> tuple[int, int, str]:
    """The order in which jobs of one tenant are claimed."""
    return (-job.priority, job.run_at or 0, job.id)


def created_job(queue: str, lifecycle: Lifecycle, new: NewJobRow, actor: str, now: int) -> Job:
    after = lifecycle.enqueue_after_move if new.after else None
    move = after or lifecycle.enqueue_move
    zero = ("claim_seq", "attempt_count", "attempt_base", "return_count", "retry_count", "flags")
    row: dict[str, Any] = {**dict.fromkeys(Job._fields), **dict.fromkeys(zero, 0)}
    row |= {"queue": queue, "state": move.to, "phase": lifecycle.unowned_phase(move.to)}
    row |= {"move": move.name, "actor": actor, "seq": 1, "payload_seq": 1}
    row |= {"created_at": now, "moved_at": now}
    row |= {"run_at": now if new.run_at is None else new.run_at}
    for column in ("id", "tenant", "max_attempts", "salt", "note", "dedup_key", "once", "priority"):
        row[column] = getattr(new, column)
    row["payload_json"] = new.payload
    for name, at in new.stamps.items():
        row[lifecycle.stamp_column(name)] = at
    return Job(**row)


def was_made(events: Sequence[Event], names: set[str], token: int | None) -> bool:
    """Whether the claim of this token made one of these moves, and no claim followed."""
    for event in events:
        if token is not None and event.seq > token:
            if event.move in names:
                return True
            if event.claim == 1:
                return False
    return False
