"""The copy of one queue: passes until nothing differs, the proof, the hand-over.

What came to the target by itself is never written over nor removed
(``engine/transfer/copy_lock.py`` tells): the copy is given up.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from kesin.engine.replay import differences, miscounts
from kesin.engine.transfer.copy_lock import Disturbed, Ground, TakenOver
from kesin.engine.transfer.copy_pauses import (
    ACTOR,
    left_behind,
    moved_to,
    pause_of,
    repeat_pause,
    replace_pause,
)
from kesin.lifecycle.declare import Lifecycle
from kesin.store.contract import Store
from kesin.store.errors import StoreError
from kesin.store.records import Flow, Pause
from kesin.store.transfer import copier_for
from kesin.store.transfer.copier import Copier, Head, History

BATCH: Final = 500  # jobs read and written at a time
MOST_PASSES: Final = 50
_MODULUS: Final = 1 << 256

Stage = Literal["copied", "proved"]
Progress = Callable[[Stage, int], None]


class NotCopied(StoreError):
    """The queue was not moved; the message says why and what to do."""


@dataclass(slots=True)
class Copied:
    """What was copied and proved."""

    queue: str
    jobs: int = 0
    events: int = 0
    notes: int = 0
    passes: int = 0
    digest: str = ""  # over every row, event and remark: the same on both sides


@dataclass(frozen=True, slots=True)
class Side:
    """A store, and what people call it."""

    store: Store
    name: str


@dataclass(slots=True)
class QueueCopy:
    """One queue between two stores."""

    source: Side
    target: Side
    queue: str
    lifecycle: Lifecycle
    progress: Progress
    copied: Copied = field(init=False)
    _from: Copier = field(init=False)
    _to: Copier = field(init=False)
    _ground: Ground = field(init=False)
    _before: Pause | None = field(init=False, default=None)  # somebody else's, on the source
    _flows: list[Flow] | None = field(init=False, default=None)  # the source's, as copied
    _resumable: bool = field(init=False, default=False)
    _furthest: Counter[Stage] = field(init=False, default_factory=Counter)  # of all passes

    def __post_init__(self) -> None:
        self.copied = Copied(self.queue)
        self._from = copier_for(self.source.store, self.queue)
        self._to = copier_for(self.target.store, self.queue)
        self._ground = Ground(self.target.store, self.queue)

    # Pauses

    @property
    def _leaving(self) -> str:
        return f"being copied to {self.target.name}; if no copy is under way, resume it"

    @property
    def _filling(self) -> str:
        return f"being filled from {self.source.name}"

    def begin(self) -> None:
        """Open the queue on both sides, and hand out nothing."""
        source, target = self.source.store, self.target.store
        source.open(self.queue, self.lifecycle)
        target.open(self.queue, self.lifecycle)
        self._ground.look()
        held = pause_of(source, self.queue)
        reason = (held and held.reason) or ""
        if left_behind(source, self.queue, self.target.name):
            raise NotCopied(
                f"the queue {self.queue} was {reason}: copy it from there, or resume it on"
                f" {self.source.name} if that is the one to go by"
            )
        if held is not None and held.actor != ACTOR:
            self._before = held
        self._resumable = held is None  # else a copy may be under way, until this one takes over
        source.pause(self.queue, actor=ACTOR, reason=self._leaving)
        if pause_of(source, self.queue) == pause_of(target, self.queue):
            raise NotCopied("both addresses lead to the same store: nothing was copied")

    def claimed(self) -> int:
        """Jobs that workers have in hand."""
        return self._from.claimed(self.queue)

    def refuse_claims(self) -> None:
        """What is in a worker's hands cannot be moved."""
        claimed = self.claimed()
        if claimed:
            raise NotCopied(
                f"{claimed} jobs of {self.queue} are with workers: let them finish (--wait SECONDS"
                " waits for them), and for those of a dead worker run `kesin sweep`"
            )

    def welcome(self) -> None:
        """Make sure that the target is empty, or holds an earlier copy of the same jobs."""
        target, leaving = self.target.store, pause_of(self.source.store, self.queue)
        held = pause_of(target, self.queue)
        reason = held.reason if held is not None and held.actor == ACTOR else None
        if reason != self._filling or not self._ground.is_as_left():
            self._refuse_strangers(held if reason == moved_to(self.source.name) else None)
        with self._told(), target.home(self.queue).transaction():
            self._ground.take(leaving.at if leaving is not None else 0)
            if reason is not None:
                target.resume(self.queue)
            target.pause(self.queue, actor=ACTOR, reason=self._filling)
            held = pause_of(target, self.queue)
            if held is None or held.reason != self._filling:
                raise NotCopied(
                    f"the queue {self.queue} is paused on {self.target.name}"
                    f" ({held.reason if held else ''}): resume it there first"
                )
        self._resumable = True
        definition = target.definition(self.queue)
        if definition is not None:
            self._to.declare(self.queue, self._from.declared(self.queue), definition)
            target.open(self.queue, self.lifecycle)

    def _refuse_strangers(self, moved: Pause | None = None) -> None:
        """Jobs that were here before must be the source's; a home left behind has older ones."""
        strangers, example = 0, ""
        for heads in _pages(self._to, self.queue):
            known = self._from.heads_of(self.queue, [head.id for head in heads])
            strange = [head.id for head in heads if head.id not in known]
            if moved is not None and strange:
                rows = self.target.store.find(self.queue, strange)
                strange = [one for one, job in rows.items() if job.created_at >= moved.at]
            strangers += len(strange)
            example = example or next(iter(strange), "")
            ahead = [
                head.id for head in heads if head.id in known and head.seq > known[head.id].seq
            ]
            if ahead:
                raise NotCopied(
                    f"{self.target.name} is further than {self.source.name} with the job {ahead[0]}"
                    f" of {self.queue}: it was worked on there, and is not overwritten"
                )
        if strangers:
            raise NotCopied(
                f"{self.target.name} has jobs of {self.queue} that {self.source.name} does not"
                f" have: {strangers}, like {example}. They are left there: stop what enqueues"
                " there, and copy into an empty store"
            )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say who else writes to the target."""
        try:
            yield
        except TakenOver:
            raise NotCopied(
                f"another copy into {self.queue} on {self.target.name} began meanwhile: this one"
                " is given up"
            ) from None
        except Disturbed:
            self._refuse_strangers()
            raise NotCopied(
                f"jobs of {self.queue} were moved on {self.target.name} meanwhile: stop what works"
                " there, and run this again"
            ) from None

    def refuse_company(self) -> None:
        """Nothing but this copy writes to the target until it opens."""
        with self._told(), self._ground.alone():
            pass

    # Passes

    def catch_up(self) -> None:
        """Copy what differs until nothing does, and the counters with it."""
        for _ in range(MOST_PASSES):
            flows = _flows(self.source.store, self.queue)
            self.copied.passes += 1
            found = self._pass()
            if not found and _flows(self.source.store, self.queue) == flows:
                with self._told():
                    self._ground.put_flows(self._to, flows)
                self._flows = flows
                self.refuse_claims()
                return
        raise NotCopied(
            f"the queue {self.queue} keeps changing after {MOST_PASSES} passes:"
            " stop what enqueues into it, and run this again"
        )

    def moved_since(self) -> bool:
        """Whether anything moved on the source after its counters were taken."""
        return self._flows is None or _flows(self.source.store, self.queue) != self._flows

    def _pass(self) -> int:
        """One look at everything; how many jobs differed."""
        found = seen = 0
        for heads in _pages(self._from, self.queue):
            ids = [head.id for head in heads]
            there = self._to.heads_of(self.queue, ids)
            stale = [head.id for head in heads if there.get(head.id) != head]
            if stale:
                self._copy(stale, [one for one in stale if one in there])
            found += len(stale)
            seen += len(heads)
            self._tell("copied", seen)
        for heads in _pages(self._to, self.queue):
            ids = [head.id for head in heads]
            known = self._from.heads_of(self.queue, ids)
            gone = [one for one in ids if one not in known]
            if gone:
                with self._told(), self._ground.alone():
                    self._to.drop(self.queue, gone)
            found += len(gone)
        return found

    def _tell(self, stage: Stage, seen: int) -> None:
        """How much further this is than any pass before it came."""
        more = max(seen - self._furthest[stage], 0)
        self._furthest[stage] += more
        self.progress(stage, more)

    def _copy(self, ids: Sequence[str], there: Sequence[str]) -> None:
        fresh = self._whole(self._from.histories(self.queue, ids))
        older = {one.job.id: one for one in self._to.histories(self.queue, there)} if there else {}
        for one in fresh:
            before = older.get(one.job.id)
            if before is not None and before.events != one.events[: len(before.events)]:
                raise NotCopied(
                    f"the job {one.job.id} of {self.queue} went different ways on"
                    f" {self.source.name} and {self.target.name}: it is not overwritten"
                )
        with self._told(), self._ground.alone():
            self._to.put(self.queue, fresh)

    def _whole(self, histories: list[History]) -> list[History]:
        """Those with all their events: a job that is pruned while it is read has lost some."""
        torn = [one.job.id for one in histories if len(one.events) != one.job.seq]
        if torn and self._from.heads_of(self.queue, torn):
            raise NotCopied(
                f"{self.source.name} does not replay, and is not moved: the job {torn[0]} of"
                f" {self.queue} lacks events (`kesin audit verify` tells all)"
            )
        return [one for one in histories if one.job.id not in torn]

    # The proof

    def prove(self) -> bool:
        """Read both sides whole and compare; False where the source moved meanwhile.

        What is equal replays alike, so the copy is replayed and the original need not be.
        """
        copied, total, seen = Copied(self.queue, passes=self.copied.passes), 0, 0
        counts: Counter[tuple[str, str]] = Counter()
        for heads in _pages(self._from, self.queue):
            ids = [head.id for head in heads]
            there = {one.job.id: one for one in self._to.histories(self.queue, ids)}
            for one in self._from.histories(self.queue, ids):
                said, twin = _said(one), there.get(one.job.id)
                if twin is None or _said(twin) != said:
                    if self.moved_since() or self._remarked(one):
                        return False
                    raise NotCopied(f"the copy of the job {one.job.id} differs from it")
                self._replay(twin)
                total = (total + _digest(said)) % _MODULUS
                counts[one.job.tenant, one.job.state] += 1
                copied.jobs += 1
                copied.events += len(one.events)
                copied.notes += len(one.notes)
            seen += len(heads)
            self._tell("proved", seen)
        if self.moved_since():
            return False
        self.refuse_company()
        self._compare_counts(copied.jobs, counts)
        copied.digest = f"{total:064x}"
        self.copied = copied
        return True

    def _replay(self, one: History) -> None:
        wrong = next(differences(one.job, one.events), None)
        if wrong is not None:
            raise NotCopied(
                f"{self.source.name} does not replay, and is not moved: {wrong}"
                " (`kesin audit verify` tells all)"
            )

    def _remarked(self, one: History) -> bool:
        """Whether a remark came beside the job since: remarks are no moves."""
        now = self._from.heads_of(self.queue, [one.job.id]).get(one.job.id)
        there = self._to.heads_of(self.queue, [one.job.id]).get(one.job.id)
        return now != there

    def _compare_counts(self, jobs: int, counts: Counter[tuple[str, str]]) -> None:
        there = sum(len(heads) for heads in _pages(self._to, self.queue))
        if there != jobs:
            raise NotCopied(f"{self.target.name} has {there} jobs of {self.queue}, not {jobs}")
        flows = _flows(self.target.store, self.queue)
        if flows != self._flows:
            raise NotCopied(f"the counters of {self.queue} differ on {self.target.name}")
        wrong = next(miscounts(self.queue, flows, counts), None)
        if wrong is not None:
            raise NotCopied(f"the counters do not fit the rows: {wrong}")

    # The end

    def hand_over(self, *, keep_source_running: bool) -> None:
        """The source is closed for good before the target opens: never do both hand out jobs."""
        source, target = self.source.store, self.target.store
        with self._told(), self._ground.held():
            for one in target.paused(self.queue):
                if one.tenant:
                    target.resume(self.queue, tenant=one.tenant)
            for one in source.paused(self.queue):
                if one.tenant:
                    repeat_pause(target, one)
            if keep_source_running:
                replace_pause(target, self.queue, f"a copy of {self.source.name}")
            else:
                replace_pause(source, self.queue, moved_to(self.target.name))
                self._resumable = False
                target.resume(self.queue)
                if self._before is not None:
                    repeat_pause(target, self._before)
            self._ground.leave()
        self.give_up()

    def give_up(self) -> None:
        """The source works on as before; what the target has is gone on with by the next run."""
        held = pause_of(self.source.store, self.queue) if self._resumable else None
        if held is None or (held.actor, held.reason) != (ACTOR, self._leaving):
            return  # somebody else finished this move meanwhile
        if not self._is_taken(held.at):
            self.source.store.resume(self.queue)

    def _is_taken(self, since: int) -> bool:
        """Whether another copy goes on: then the source stays paused for it."""
        try:
            return self._ground.is_taken(since)
        except StoreError:  # nobody copies to a store that is away
            return False


def _flows(store: Store, queue: str) -> list[Flow]:
    return sorted(store.flows(queue))


def _pages(copier: Copier, queue: str) -> Iterator[list[Head]]:
    cursor: str | None = None
    while True:
        heads, cursor = copier.heads(queue, cursor, BATCH)
        if heads:
            yield heads
        if cursor is None:
            return


def _said(history: History) -> tuple[object, ...]:
    """Everything about a job but its lease, which is no part of its history."""
    notes = [note[1:] for note in history.notes]
    return history.job._replace(lease_until=None), history.events, notes


def _digest(said: tuple[object, ...]) -> int:
    return int.from_bytes(hashlib.sha256(json.dumps(said).encode()).digest(), "big")
