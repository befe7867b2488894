"""Who watches a simulated queue: after every call to the store, the promise is checked.

The witness reads the rows and the new events, and holds them against three things: the events
against the rows (replay), the change against what the call could do (``expected``), and the rows
against what must always be true. It remembers the past itself, so a history that was rewritten or
a job that vanished is seen too.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kesin.engine.replay import differences, verify
from kesin.engine.simulation.oracle import Before, BrokenPromise, broken
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import OWNED
from kesin.store.contract import Store
from kesin.store.records import Event, Filter, Outcome

MOST_ROWS = 1_000
COUNT_EVERY = 16  # calls between two looks at the counters


class Witness:
    """Sees one queue of one store, and every call that is made to it."""

    def __init__(self, queue: str, lifecycle: Lifecycle, store: Store, bound: int | None) -> None:
        self.queue = queue
        self.lifecycle = lifecycle
        self.rows: dict[str, Job] = {}
        self.history: dict[str, list[Event]] = {}
        self.names: dict[str, str] = {}  # id → #1, #2 …, in the order of birth
        self.moves: Counter[str] = Counter()
        self.calls = 0
        self.broken: BrokenPromise | None = None
        self._store = store
        self._bound = bound
        self._paused: set[str] = set()
        self._pruned: set[str] = set()
        self._steps: dict[str, _Steps] = {}
        self._notes: dict[str, int] = {}
        self._digest = hashlib.sha256()

    @property
    def hash(self) -> str:
        """Over everything that was told and everything that was seen, in order."""
        return self._digest.hexdigest()

    def by_name(self, text: str) -> str:
        """The text with #1, #2 … for ids."""
        for job_id, name in self.names.items():
            text = text.replace(job_id, name)
        return text

    def tell(self, line: str) -> None:
        """Something happened that left no event."""
        self._digest.update(f"{line}\n".encode())

    def look(self, call: str, args: tuple[Any, ...], told: Mapping[str, Any], answer: Any) -> None:
        """Say whether what the call changed and answered is as it should be."""
        with self.hearing():
            self._look(call, args, told, answer)

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Remember what breaks inside: whoever is in between may take it for their own."""
        try:
            yield
        except BrokenPromise as problem:
            self.broken = problem
            raise

    def _look(self, call: str, args: tuple[Any, ...], told: Mapping[str, Any], answer: Any) -> None:
        rows, came = self._seen()
        expects: Callable[..., dict[str, Job | None]] | None
        before = Before(
            self.queue, self.lifecycle, self.rows, came, frozenset(self._paused), self.history
        )
        expects = getattr(before, call, None)
        expected = expects(*args, answer=answer, **told) if expects else {}
        self._compare(rows, came, expected)
        if call in ("enqueue", "apply"):
            self._told(rows, answer)
        self._remember(rows, came)
        if call == "pause":
            self._paused.add(told["tenant"])
        elif call == "resume":
            self._paused.discard(told["tenant"])
        self._always()

    def look_for_nothing(self) -> None:
        """The call did not come to its commit: nothing may have changed."""
        rows, came = self._seen()
        self._compare(rows, came, {})

    def _seen(self) -> tuple[dict[str, Job], dict[str, list[Event]]]:
        """All rows, and of each that changed its new events; a job that is gone has none."""
        self.calls += 1
        page = self._store.jobs(self.queue, Filter(), limit=MOST_ROWS)
        rows = {job.id: job for job in page.jobs}
        came: dict[str, list[Event]] = {}
        for job_id, job in rows.items():
            old = self.rows.get(job_id)
            if job == old:
                continue
            events = self._store.events(job_id)
            for difference in differences(job, events):
                broken("replay", str(difference))
            known = self.history.get(job_id, [])
            if events[: len(known)] != known:
                broken("history", f"the past of {job_id} was changed")
            if len(events) > len(known):
                came[job_id] = events[len(known) :]
        for job_id in sorted(self.rows.keys() - rows.keys()):
            came[job_id] = []
        return rows, came

    def _compare(
        self,
        rows: dict[str, Job],
        came: Mapping[str, list[Event]],
        expected: Mapping[str, Job | None],
    ) -> None:
        for job_id in sorted(came.keys() - expected.keys()):
            what = "is lost" if job_id not in rows else f"changed: {rows[job_id].move}"
            broken("lost" if job_id not in rows else "change", f"{job_id} {what}")
        for job_id, job in expected.items():
            if job != rows.get(job_id):
                broken("effect", _difference(rows.get(job_id), job))
        for job_id, row in rows.items():
            if job_id not in expected and row != self.rows.get(job_id):
                broken("change", _difference(row, self.rows.get(job_id)))

    def _told(self, rows: Mapping[str, Job], outcomes: Sequence[Outcome]) -> None:
        """An answer says how its job is now; a key that was held and a lost claim are noted."""
        noted: Counter[str] = Counter()
        for one in outcomes:
            job = rows.get(one.id)
            if (one.result == "unknown") != (job is None):
                broken("answer", f"{one.id} {'is not' if job is None else 'is'} there: {one}")
            if job and (one.state, one.seq) != (job.state, job.seq):
                broken("answer", f"{one.id} is in {job.state} at {job.seq}: {one}")
            if one.result == "duplicate" or one.reason == "stale":
                noted[one.id] += 1
        for job_id, n in noted.items():
            known, there = self._notes.get(job_id, 0), len(self._store.notes(job_id))
            if there != known + n:
                broken("note", f"{job_id} has {there} notes, and should have {known + n}")
            self._notes[job_id] = there

    def _remember(self, rows: dict[str, Job], came: Mapping[str, list[Event]]) -> None:
        for job_id in sorted(came):
            for event in came[job_id]:
                self.moves[event.move] += 1
                self._digest.update(repr(event).encode())
            if job_id not in self.names:
                self.names[job_id] = f"#{len(self.names) + 1}"
            if job_id in rows:
                self.history.setdefault(job_id, []).extend(came[job_id])
                steps = self._steps.setdefault(job_id, _Steps(self.lifecycle, self._bound))
                for event in came[job_id]:
                    steps.take(event)
            else:
                self.moves["prune"] += 1
                self._pruned.add(job_id)
                del self.history[job_id], self._steps[job_id]
        if revived := self._pruned & rows.keys():
            broken("lost", f"{min(revived)} was pruned and is there again")
        self.rows = rows

    # What is always true

    def _always(self) -> None:
        slots: Counter[str] = Counter()
        keys: Counter[tuple[str, str]] = Counter()
        for job in self.rows.values():
            self._sound(job)
            state = self.lifecycle.state[job.state]
            if state.exclusive:
                slots[job.state] += 1
            if state.holds_key and job.dedup_key is not None:
                keys[job.tenant, job.dedup_key] += 1
        for name, jobs in slots.items():
            if jobs > 1:
                broken("slot", f"{jobs} jobs are in {name}")
        for key, jobs in keys.items():
            if jobs > 1:
                broken("key", f"{jobs} jobs hold the key {key}")
        if self.calls % COUNT_EVERY == 0:
            self._count()

    def _sound(self, job: Job) -> None:
        used = job.attempt_count - job.attempt_base
        if not 0 <= used <= job.max_attempts:
            broken("budget", f"{job.id} used {used} attempts of {job.max_attempts}")
        if job.return_count > self.lifecycle.max_returns:
            broken("budget", f"{job.id} gave an attempt back {job.return_count} times")
        if (job.phase == OWNED) != (job.worker is not None):
            broken("claim", f"{job.id} has phase {job.phase} and worker {job.worker}")
        if job.phase == OWNED and not self.lifecycle.state[job.state].working:
            broken("claim", f"{job.id} rests in {job.state} and is claimed")

    def _count(self) -> None:
        counted = {name: n for name, n in self._store.stats(self.queue).states.items() if n}
        there = Counter(job.state for job in self.rows.values())
        if counted != there:
            broken("counters", f"the counters say {counted}, the rows {dict(there)}")

    def at_work(self) -> list[Job]:
        """The jobs that are on their way."""
        state = self.lifecycle.state
        return [job for job in self.rows.values() if state[job.state].working]

    def close(self) -> None:
        """The last look: the whole queue replayed, and all counters."""
        self._count()
        for difference in verify(self._store, self.queue).differences:
            broken("replay", str(difference))


class _Steps:
    """How far one job has come: into its end once, and within the proved bound.

    A wake-up that leaves the job where it stood takes its own steps back: waits are cut by a
    timer, not by counting. Once a person has moved a job, or given it more attempts than the
    lifecycle does, the proved bound says nothing of it.
    """

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
            broken("terminal", f"{event.job_id} left {event.from_state} by {event.move}")
        if lifecycle.state[event.to_state].success and event.to_state != event.from_state:
            if self._succeeded:
                broken("twice", f"{event.job_id} came to {event.to_state} again")
            self._succeeded = True
        moves = [
            move
            for move in lifecycle.moves
            if move.name == event.move and event.from_state in (move.sources or ("",))
        ]
        people = not any(move.automatic or move.births or move.chained for move in moves)
        if people or event.max_attempts > lifecycle.max_attempts:
            self._unbounded = True
        self._automatic += 1
        if event.claim == 1 and not any(move.attempt == "count" for move in moves):
            self._woken = (event.from_state, self._automatic - 1)
        elif event.phase != OWNED and self._woken and self._woken[0] == event.to_state:
            self._automatic = self._woken[1]
            self._woken = None
        if not self._unbounded and self._bound and self._automatic > self._bound:
            broken(
                "bound", f"{event.job_id} made {self._automatic} moves, {self._bound} are proved"
            )


def _difference(row: Job | None, expected: Job | None) -> str:
    if row is None or expected is None:
        there = row or expected
        is_there = "is there" if row else "is not there"
        return f"{there.id if there else ''} {is_there}, and should {'not be' if row else 'be'}"
    for column, one, other in zip(Job._fields, row, expected, strict=True):
        if one != other:
            return f"{row.id} after {row.move}: {column} is {one!r}, and should be {other!r}"
    return row.id


_OF: Final = "of"  # the job a handler worked on, in what it answers

_Claim = tuple[str, int]


def signed(job: Job, n: int) -> dict[str, str | int]:
    """A result that tells whose it is."""
    return {_OF: job.id, "n": n}


class Conduct:
    """One worker's claims, from the moment they are given to it."""

    def __init__(self) -> None:
        self._open: dict[_Claim, str | None] = {}  # the call that a handler answered with, if any
        self._worked: set[_Claim] = set()
        self._kept: set[_Claim] = set()  # could not be given back: worked on, or left to run out
        self._at_hand: _Claim | None = None

    def given(self, jobs: Sequence[Job]) -> None:
        """It has these claims."""
        self._open.update(((job.id, job.claim_seq), None) for job in jobs)

    def begin(self, job: Job) -> None:
        """Its handler is called."""
        claim = (job.id, job.claim_seq)
        if claim in self._worked:
            broken("conduct", f"{job.id} was worked on twice under one claim")
        if claim not in self._open:
            broken("conduct", f"{job.id} was worked on after its claim was given up")
        self._worked.add(claim)
        self._at_hand = claim

    def end(self, *, releases: bool) -> None:
        """Its handler answered, or threw."""
        if self._at_hand in self._open:
            self._open[self._at_hand] = "release" if releases else "an answer"
        self._at_hand = None

    def sent(self, call: str, changes: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        """It asked for these moves; those of a handler at work are not its answer."""
        for change, outcome in zip(changes, outcomes, strict=True):
            if change.result and f'"{_OF}"' in change.result and change.id not in change.result:
                broken("conduct", f"{change.id} was given the result of another: {change.result}")
            claims = [one for one in self._open if one[0] == change.id]
            if self._at_hand in claims:
                continue
            for claim in claims:
                if call == "release" and self._open[claim] == "an answer":
                    broken("conduct", f"{change.id} was given back after it was worked on")
                if call == "release" and not outcome.done:
                    self._kept.add(claim)
                else:
                    del self._open[claim]

    def rest(self, held: Sequence[Job]) -> None:
        """Its turn is over, and nothing came in between."""
        if left := self._open.keys() - self._kept:
            broken("conduct", f"{min(left)[0]} was claimed and never answered for")
        if held:
            broken("conduct", f"the lease of {held[0].id} is renewed after its answer")
