"""Checks promises after every call; keeps its own history, so a rewritten one is detected."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, Final

from kesin.engine.replay import differences, verify
from kesin.engine.simulation.oracle import Oracle
from kesin.engine.simulation.oracle_moves import BrokenPromise, Parents, break_promise, mismatch
from kesin.foundation.messages import recorded_traceback
from kesin.lifecycle.declare import Lifecycle, State
from kesin.lifecycle.model import Change, Job, marked
from kesin.lifecycle.vocabulary import OWNED
from kesin.store.contract import Store
from kesin.store.records import Event, Filter, Outcome

Histories = Mapping[str, list[Event]]  # by job
StoreCall = tuple[str, Sequence[Any], dict[str, Any], Any]  # and what it returned

MAX_ROWS = 1_000
FULL_CHECK_EVERY = 16  # calls between two checks of the counters and for jobs nobody enqueued
# If these say that nothing changed, the next read tells.
READ_LATER = ("claim", "renew", "sweep", "settle")


class StoreChecker:
    """Checks one queue of one store after every call."""

    def __init__(self, queue: str, lifecycle: Lifecycle, store: Store, bound: int | None) -> None:
        self.queue = queue
        self.lifecycle = lifecycle
        self.rows: dict[str, Job] = {}
        self.history: dict[str, list[Event]] = {}
        self.names: dict[str, str] = {}  # id → #1, #2 …, in the order of creation
        self.moves: Counter[str] = Counter()
        self.calls = 0
        self.violation: BrokenPromise | None = None
        self._store = store
        self._bound = bound
        self._paused: set[str] = set()
        self._meters: dict[str, int] = {}
        self._parents: Parents = {}
        self._pruned: set[str] = set()
        self._progress: dict[str, _JobProgress] = {}
        self._notes: dict[str, int] = {}
        self._digest = hashlib.sha256()

    @property
    def hash(self) -> str:
        """A hash over every recorded line and every event, in order."""
        return self._digest.hexdigest()

    def with_names(self, text: str) -> str:
        """The text with #1, #2 … for ids."""
        for job_id, name in self.names.items():
            text = text.replace(job_id, name)
        return text

    def record(self, line: str) -> None:
        """Add to the hash something that left no event."""
        self._digest.update(f"{line}\n".encode())

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Remember a broken promise, since code in between may swallow the exception."""
        try:
            yield
        except BrokenPromise as problem:
            self.violation = problem
            raise

    def check(self, *calls: StoreCall) -> None:
        """Check what calls that were committed together changed and returned."""
        self.calls += 1
        full = self.calls % FULL_CHECK_EVERY == 0 or any(call[0] == "enqueue" for call in calls)
        unchanged = not full and all(not call[3] and call[0] in READ_LATER for call in calls)
        rows, new_events = (self.rows, {}) if unchanged else self._read(full=full)
        before = (frozenset(self._paused), self.history, self._meters, self._parents)
        expected: dict[str, Job | None] = {}
        rows_after = [self.rows]  # each call
        for method, args, kwargs, result in calls:
            oracle = Oracle(self.queue, self.lifecycle, rows_after[-1], new_events, *before)
            predict: Callable[..., dict[str, Job | None]] | None = getattr(oracle, method, None)
            expected |= predict(*args, returned=result, **kwargs) if predict else {}
            rows_after.append({each: job for each, job in (self.rows | expected).items() if job})
        if unchanged and not expected:
            return
        self._compare(rows, new_events, expected)
        noted: Counter[str] = Counter()
        for (method, _, kwargs, result), then_rows in zip(calls, rows_after[1:], strict=True):
            if method in ("enqueue", "apply"):
                noted.update(self._check_outcomes(then_rows, result))
            elif method == "add_note":
                noted[kwargs["job_id"]] += 1
            elif method == "pause":
                self._paused.add(kwargs["tenant"])
            elif method == "resume":
                self._paused.discard(kwargs["tenant"])
        self._check_notes(noted)
        self._remember(rows, new_events)
        self._check_invariants()

    def check_unchanged(self, *calls: StoreCall) -> None:
        """Check that calls without a commit changed nothing."""
        self.calls += 1
        rows, new_events = self._read(full=True)
        self._compare(rows, new_events, {})
        self._check_notes({call[2]["job_id"]: 0 for call in calls if call[0] == "add_note"})

    def _read(self, *, full: bool) -> tuple[dict[str, Job], dict[str, list[Event]]]:
        """The rows, and new events of changed jobs; a full reading costs several times as much."""
        if full:
            page = self._store.jobs(self.queue, Filter(), limit=MAX_ROWS)
            rows = {job.id: job for job in reversed(page.jobs)}
        else:
            rows = self._store.find(self.queue, list(self.rows))
        new_events: dict[str, list[Event]] = {}
        for job_id, job in rows.items():
            if job == self.rows.get(job_id):
                continue
            events = self._store.events(job_id)
            for difference in differences(job, events):
                break_promise("replay", str(difference))
            past = self.history.get(job_id, [])
            if events[: len(past)] != past:
                break_promise("history", f"the history of {job_id} was changed")
            if len(events) > len(past):
                new_events[job_id] = events[len(past) :]
        for job_id in sorted(self.rows.keys() - rows.keys()):
            new_events[job_id] = []
        return rows, new_events

    def _compare(self, rows: dict[str, Job], new_events: Histories, expected: Mapping[str, Job | None]) -> None:
        for job_id in sorted(new_events.keys() - expected.keys()):
            change = "is lost" if job_id not in rows else f"changed: {rows[job_id].move}"
            break_promise("lost" if job_id not in rows else "change", f"{job_id} {change}")
        for job_id, job in expected.items():
            if job != rows.get(job_id):
                break_promise("effect", mismatch(rows.get(job_id), job))
        for job_id, row in rows.items():
            if job_id not in expected and row != self.rows.get(job_id):
                break_promise("change", mismatch(row, self.rows.get(job_id)))

    def _check_outcomes(self, rows: Mapping[str, Job], outcomes: list[Outcome]) -> Iterator[str]:
        """An outcome matches its job; yields the jobs in which it leaves a note."""
        for outcome in outcomes:
            job = rows.get(outcome.id)
            if (outcome.result == "unknown") != (job is None):
                presence = "is not" if job is None else "is"
                break_promise("answer", f"{outcome.id} {presence} there: {outcome}")
            if job and (outcome.state, outcome.seq) != (job.state, job.seq):
                break_promise("answer", f"{outcome.id} is in {job.state} at {job.seq}: {outcome}")
            if outcome.result == "duplicate" or outcome.reason == "stale":
                yield outcome.id

    def _check_notes(self, noted: Mapping[str, int]) -> None:
        """Jobs have this many more notes than before: duplicates and lost claims leave one."""
        for job_id, n in noted.items():
            before, after = self._notes.get(job_id, 0), len(self._store.notes(job_id))
            if after != before + n:
                break_promise("note", f"{job_id} has {after} notes, and should have {before + n}")
            self._notes[job_id] = after

    def _remember(self, rows: dict[str, Job], new_events: Histories) -> None:
        for job_id in sorted(new_events):
            for event in new_events[job_id]:
                self.moves[event.move] += 1
                # Python versions print tracebacks differently, and any edit moves their lines.
                traceback = recorded_traceback(event.note)
                hashed = event._replace(note="traceback") if traceback else event
                self._digest.update(repr(hashed).encode())
            if job_id not in self.names:
                self.names[job_id] = f"#{len(self.names) + 1}"
            if job_id in rows:
                self.history.setdefault(job_id, []).extend(new_events[job_id])
                new = _JobProgress(self.lifecycle, self._bound)
                progress = self._progress.setdefault(job_id, new)
                for event in new_events[job_id]:
                    progress.take(event)
            else:
                self.moves["prune"] += 1
                self._pruned.add(job_id)
                del self.history[job_id], self._progress[job_id]
        if revived := self._pruned & rows.keys():
            break_promise("lost", f"{min(revived)} was pruned and exists again")
        self._mark_parents(rows, new_events.keys())
        self.rows = rows

    def _mark_parents(self, rows: dict[str, Job], moved: AbstractSet[str]) -> None:
        """Remember how the parents of waiting jobs are now."""
        for child in self._parents.keys() & self._pruned:
            del self._parents[child]
        for marks in self._parents.values():
            for parent in marks.keys() & moved:
                if parent in rows:
                    marks[parent] = marked(self.lifecycle, rows[parent], marks[parent])
                else:
                    del marks[parent]

    # Invariants

    def _check_invariants(self) -> None:
        slots: Counter[tuple[State, str]] = Counter()
        keys: Counter[tuple[str, str]] = Counter()
        for job in self.rows.values():
            self._check_job(job)
            state = self.lifecycle.state[job.state]
            if state.capacity:
                slots[state, job.tenant if state.per_tenant else ""] += 1
            if job.dedup_key is not None and (job.once or state.holds_key):
                keys[job.tenant, job.dedup_key] += 1
        for (state, tenant), jobs in slots.items():
            if jobs > state.capacity:
                where = f"{state.name} {tenant}".strip()
                break_promise("slot", f"{jobs} jobs are in {where}, which has {state.capacity}")
        for key, jobs in keys.items():
            if jobs > 1:
                break_promise("key", f"{jobs} jobs hold the key {key}")
        if self.calls % FULL_CHECK_EVERY == 0:
            self._check_counters()

    def _check_job(self, job: Job) -> None:
        used = job.attempt_count - job.attempt_base
        if not 0 <= used <= job.max_attempts:
            break_promise("budget", f"{job.id} used {used} attempts of {job.max_attempts}")
        if job.return_count > self.lifecycle.max_returns:
            break_promise("budget", f"{job.id} gave an attempt back {job.return_count} times")
        if (job.phase == OWNED) != (job.worker is not None):
            break_promise("claim", f"{job.id} has phase {job.phase} and worker {job.worker}")
        if job.phase == OWNED and not self.lifecycle.state[job.state].working:
            break_promise("claim", f"{job.id} rests in {job.state} and is claimed")

    def _check_counters(self) -> None:
        counted = {name: n for name, n in self._store.stats(self.queue).states.items() if n}
        actual = Counter(job.state for job in self.rows.values())
        if counted != actual:
            break_promise("counters", f"the counters say {counted}, the rows {dict(actual)}")

    def working_jobs(self) -> list[Job]:
        state = self.lifecycle.state
        return [job for job in self.rows.values() if state[job.state].working]

    def finish(self) -> None:
        """Make the final check: replay the whole queue and compare all counters."""
        self._check_counters()
        for difference in verify(self._store, self.queue).differences:
            break_promise("replay", str(difference))


class _JobProgress:
    """A job succeeds at most once, and within the proven bound unless an operator moved it."""

    def __init__(self, lifecycle: Lifecycle, bound: int | None) -> None:
        self._lifecycle = lifecycle
        self._bound = bound
        self._automatic = 0
        self._woken: tuple[str, int] | None = None
        self._unbounded = False
        self._succeeded = False

    def take(self, event: Event) -> None:
        lifecycle = self._lifecycle
        if event.from_state and lifecycle.state[event.from_state].terminal:
            break_promise("terminal", f"{event.job_id} left {event.from_state} by {event.move}")
        if lifecycle.state[event.to_state].success and event.to_state != event.from_state:
            if self._succeeded:
                break_promise("twice", f"{event.job_id} came to {event.to_state} again")
            self._succeeded = True
        moves = [
            move for move in lifecycle.moves if move.name == event.move and event.from_state in (move.sources or ("",))
        ]
        by_operator = not any(move.automatic or move.creates or move.chained for move in moves)
        if by_operator or event.max_attempts > lifecycle.max_attempts:
            self._unbounded = True
        self._automatic += 1
        # A wake-up that leaves the job in its state is not counted: a timer ends waits, no count.
        if event.claim == 1 and not any(move.attempt == "count" for move in moves):
            self._woken = (event.from_state, self._automatic - 1)
        elif event.phase != OWNED and self._woken and self._woken[0] == event.to_state:
            self._automatic = self._woken[1]
            self._woken = None
        made, bound = self._automatic, self._bound
        if not self._unbounded and bound and made > bound:
            break_promise("bound", f"{event.job_id} made {made} moves, the proven bound is {bound}")


_SIGNATURE_KEY: Final = "of"  # in a handler's result: the id of its job

_Claim = tuple[str, int]


def signed_result(job: Job, n: int) -> dict[str, str | int]:
    return {_SIGNATURE_KEY: job.id, "n": n}


class WorkerChecker:
    """Checks what one worker does with its claims."""

    def __init__(self) -> None:
        self._open: dict[_Claim, str | None] = {}  # claim → the handler's result, if any
        self._handled: set[_Claim] = set()
        self._unreleased: set[_Claim] = set()  # release refused: handled, or left to run out
        self._running: set[_Claim] = set()  # whose handler has begun and not ended

    def record_claims(self, jobs: Sequence[Job]) -> None:
        self._open.update(((job.id, job.claim_seq), None) for job in jobs)

    def begin_handler(self, job: Job) -> None:
        claim = (job.id, job.claim_seq)
        if claim in self._handled:
            break_promise("conduct", f"{job.id} was worked on twice under one claim")
        if claim not in self._open:
            break_promise("conduct", f"{job.id} was worked on after its claim was given up")
        self._handled.add(claim)
        self._running.add(claim)

    def end_handler(self, job: Job, answer: str | None, *, lost: bool = False) -> None:
        """None: it was cancelled, as the worker stops or lost the claim to another."""
        claim = (job.id, job.claim_seq)
        self._running.discard(claim)
        if answer and claim in self._open:
            self._open[claim] = answer
        elif lost:
            self._open.pop(claim, None)

    def check_calls(self, calls: Sequence[StoreCall]) -> None:
        """Calls were committed together: what a handler writes, with the end of its job."""
        for method, args, _, result in calls:
            if method == "claim":
                self.record_claims(result)
            elif method == "apply":
                self.check_outcomes(args[1], args[2], result)
        moved = any(call[0] == "apply" and call[3][0].result == "moved" for call in calls)
        if not moved and any(call[0] in ("enqueue", "add_note") for call in calls):
            break_promise("together", "a handler's effect was committed without its job's result")

    def check_outcomes(self, action: str, changes: list[Change], outcomes: list[Outcome]) -> None:
        """The worker asked for an action; an action of a running handler is not its result."""
        for change, outcome in zip(changes, outcomes, strict=True):
            result = change.result or ""
            if f'"{_SIGNATURE_KEY}"' in result and change.id not in result:
                break_promise("conduct", f"{change.id} was given the result of another: {result}")
            claims = [claim for claim in self._open if claim[0] == change.id]
            if not self._running.isdisjoint(claims):
                continue
            for claim in claims:
                if action == "release" and self._open[claim] == "a result":
                    break_promise("conduct", f"{change.id} was released after it was worked on")
                if action == "release" and not outcome.done:
                    self._unreleased.add(claim)
                else:
                    del self._open[claim]

    def check_idle(self, held: Sequence[Job]) -> None:
        """The worker finished its batch without a fault."""
        if left := self._open.keys() - self._unreleased:
            break_promise("conduct", f"{min(left)[0]} was claimed and got no result")
        if held:
            break_promise("conduct", f"the lease of {held[0].id} was renewed after its result")
