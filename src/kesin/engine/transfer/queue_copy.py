"""The copy of one queue: passes until nothing differs, the proof, the hand-over.

A copy changes no counters and every other write does: while the counters of the target are empty,
all its jobs came from copies, and an interrupted copy may go on. They are written at the end. Jobs
that reached the target by other means are never overwritten or deleted: the copy stops. The pause
of the target tells which copy writes: of two, the one that paused it last goes on.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from kesin.engine.replay import counter_differences, differences
from kesin.lifecycle.declare import Lifecycle
from kesin.store.contract import Store
from kesin.store.errors import StoreError
from kesin.store.metadata import metadata_for
from kesin.store.records import JobHistory, JobVersion, Listing, MoveCount, Pause
from kesin.store.transfer import Copier, copier_for

ACTOR: Final = "store copy"  # of its pauses, which show that a copy runs and outlive its process
BATCH: Final = 500  # jobs read and written at a time
MAX_PASSES: Final = 50
_MODULUS: Final = 1 << 256

CopyStage = Literal["copied", "proved"]
Progress = Callable[[CopyStage, int], None]


class CopyRefused(StoreError):
    """The queue was not moved; the message says why and what to do."""


class _TargetChanged(Exception):
    """Jobs were moved on the target of a copy."""


@dataclass(slots=True)
class CopyResult:
    """The counts and the digest of a proven copy."""

    queue: str
    jobs: int = 0
    events: int = 0
    notes: int = 0
    passes: int = 0
    digest: str = ""  # over every row, event and note: the same in both stores


class NamedStore(NamedTuple):
    """A store and its name in messages."""

    store: Store
    name: str


class QueueCopy:
    """Copies one queue between two stores."""

    def __init__(
        self, source: NamedStore, target: NamedStore, queue: str, lifecycle: Lifecycle, progress: Progress
    ) -> None:
        self.source, self.target = source, target
        self.queue, self.lifecycle, self.progress = queue, lifecycle, progress
        self.result = CopyResult(queue)
        self._source_copier = copier_for(source.store, queue)
        self._target_copier = copier_for(target.store, queue)
        self._target_pause: Pause | None = None  # as read or set by this copy
        self._target_counters: list[MoveCount] = []
        self._source_reason = f"being copied to {target.name}; if no copy is under way, resume it"
        self._target_reason = f"being filled from {source.name}"
        self._previous_pause: Pause | None = None  # of an operator, on the source
        self._counters: list[MoveCount] | None = None  # of the source, as copied
        self._resumable = False
        self._reported: Counter[CopyStage] = Counter()

    # Pauses

    def begin(self) -> None:
        """Open the queue in both stores, and pause the source."""
        source, target = self.source.store, self.target.store
        source.open(self.queue, self.lifecycle)
        if not target.rules(self.queue):
            self._target_copier.put_rules(self.queue, source.rules(self.queue))
        target.open(self.queue, self.lifecycle)
        if (listing := source.listing(self.queue)) != Listing():
            target.write_listing(self.queue, listing)  # first: it says what copies are found by
        self._target_counters = sorted_counters(target, self.queue)
        self._target_pause = pause_of(target, self.queue)
        pause = pause_of(source, self.queue)
        reason = (pause and pause.reason) or ""
        if was_moved_elsewhere(source, self.queue, self.target.name):
            raise CopyRefused(
                f"the queue {self.queue} was {reason}: copy it from there, or resume it on "
                f"{self.source.name} if that one is current"
            )
        if pause is not None and pause.actor != ACTOR:
            self._previous_pause = pause
        self._resumable = pause is None  # else another copy may run, until this one takes over
        source.pause(self.queue, actor=ACTOR, reason=self._source_reason)
        if pause_of(source, self.queue) == pause_of(target, self.queue):
            raise CopyRefused("both addresses name the same store: nothing was copied")

    def count_claimed(self) -> int:
        return self._source_copier.count_claimed(self.queue)

    def refuse_claims(self) -> None:
        """Raise CopyRefused if jobs are claimed, or wait for others: they cannot be moved."""
        waiting = self._source_copier.count_waiting(self.queue)
        if waiting:
            raise CopyRefused(
                f"jobs of {self.queue} that wait for others, or that others wait for: {waiting};"
                " they cannot be copied: let them finish first"
            )
        claimed = self.count_claimed()
        if claimed:
            raise CopyRefused(
                f"claimed jobs of {self.queue}: {claimed}; let them finish (--wait SECONDS"
                " waits for them); if their worker is dead, run `kesin sweep`"
            )

    def prepare_target(self) -> None:
        """Check that all jobs of the target are copies or outdated; then pause it for this copy."""
        target, pause = self.target.store, self._target_pause
        reason = pause.reason if pause is not None and pause.actor == ACTOR else None
        if reason != self._target_reason or self._target_counters:
            self._refuse_foreign_jobs(pause if reason == _moved_reason(self.source.name) else None)
        with self._undisturbed():
            self._write_counters([])
            if reason is not None:
                target.resume(self.queue)
            target.pause(self.queue, actor=ACTOR, reason=self._target_reason)
            pause = self._target_pause = pause_of(target, self.queue)
            if pause is None or pause.reason != self._target_reason:
                raise CopyRefused(
                    f"the queue {self.queue} is paused on {self.target.name}"
                    f" ({pause.reason if pause else ''}): resume it there first"
                )
        self._resumable = True
        definition = target.definition(self.queue)
        if definition is not None:
            declared = self.source.store.declared(self.queue)
            self._target_copier.declare(self.queue, declared, definition)
            target.open(self.queue, self.lifecycle)

    def _refuse_foreign_jobs(self, moved: Pause | None = None) -> None:
        """Refuse jobs that the source lacks or has older; old ones may stay if it ``moved``."""
        foreign_count, example = 0, ""
        for versions in _version_pages(self._target_copier, self.queue):
            known = self._source_copier.versions_of(self.queue, [job.id for job in versions])
            foreign = [job.id for job in versions if job.id not in known]
            if moved is not None and foreign:
                rows = self.target.store.find(self.queue, foreign)
                foreign = [job_id for job_id, job in rows.items() if job.created_at >= moved.at]
            foreign_count += len(foreign)
            example = example or next(iter(foreign), "")
            ahead = [job.id for job in versions if job.id in known and job.seq > known[job.id].seq]
            if ahead:
                raise CopyRefused(
                    f"{self.target.name} is ahead of {self.source.name}: the job {ahead[0]} of "
                    f"{self.queue} was processed there and is not overwritten"
                )
        if foreign_count:
            raise CopyRefused(
                f"{self.target.name} has jobs of {self.queue} that {self.source.name} does not"
                f" have: {foreign_count}, such as {example}. They are left there: stop the "
                "programs that enqueue there, and copy into an empty store"
            )

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Write to the target, one copy at a time; undone and refused if anything else wrote."""
        target = self.target.store.store_for(self.queue)
        try:
            with target.transaction():
                metadata_for(target).lock_metadata(ACTOR, "", self.queue, 0)
                if pause_of(target, self.queue) != self._target_pause:
                    raise CopyRefused(
                        f"another copy into {self.queue} on {self.target.name} has begun in the"
                        " meantime, or it was resumed there: this copy stops"
                    )
                yield
                self._require_counters()
        except _TargetChanged:
            self._refuse_foreign_jobs()
            raise CopyRefused(
                f"jobs of {self.queue} were moved on {self.target.name} in the meantime: stop the "
                "workers there, and run this again"
            ) from None

    def _require_counters(self) -> None:
        if sorted_counters(self.target.store, self.queue) != self._target_counters:
            raise _TargetChanged

    def _write_counters(self, counters: list[MoveCount]) -> None:
        expected, self._target_counters = self._target_counters, counters
        if not self._target_copier.replace_move_counts(self.queue, counters, expected=expected):
            raise _TargetChanged

    def refuse_other_writers(self) -> None:
        with self._undisturbed():
            pass

    # Passes

    def catch_up(self) -> None:
        """Run passes until no job differs."""
        for _ in range(MAX_PASSES):
            counters = sorted_counters(self.source.store, self.queue)
            self.result.passes += 1
            if not self._run_pass() and sorted_counters(self.source.store, self.queue) == counters:
                self._counters = counters
                self.refuse_claims()
                return
        raise CopyRefused(
            f"the queue {self.queue} is still changing after {MAX_PASSES} passes:"
            " stop the programs that enqueue into it, and run this again"
        )

    def has_source_moved(self) -> bool:
        """Whether a job moved on the source since its counters were read."""
        return sorted_counters(self.source.store, self.queue) != self._counters

    def _run_pass(self) -> int:
        """Compare all jobs once and copy those that differ; return how many differed."""
        differing = compared = 0
        for versions in _version_pages(self._source_copier, self.queue):
            ids = [job.id for job in versions]
            copied = self._target_copier.versions_of(self.queue, ids)
            stale = [job.id for job in versions if copied.get(job.id) != job]
            if stale:
                self._copy_jobs(stale, [job_id for job_id in stale if job_id in copied])
            differing += len(stale)
            compared += len(versions)
            self._report_progress("copied", compared)
        for versions in _version_pages(self._target_copier, self.queue):
            ids = [job.id for job in versions]
            known = self._source_copier.versions_of(self.queue, ids)
            gone = [job_id for job_id in ids if job_id not in known]
            if gone:
                with self._undisturbed():
                    self._target_copier.drop(self.queue, gone)
            differing += len(gone)
        return differing

    def _report_progress(self, stage: CopyStage, done: int) -> None:
        """Report the jobs done beyond the furthest earlier pass."""
        more = max(done - self._reported[stage], 0)
        self._reported[stage] += more
        self.progress(stage, more)

    def _copy_jobs(self, ids: Sequence[str], existing: Sequence[str]) -> None:
        histories = self._complete_histories(self._source_copier.histories(self.queue, ids))
        older = self._target_copier.histories(self.queue, existing) if existing else []
        events_before = {history.job.id: history.events for history in older}
        for history in histories:
            before = events_before.get(history.job.id, [])
            if before != history.events[: len(before)]:
                raise CopyRefused(
                    f"the job {history.job.id} of {self.queue} has different histories on "
                    f"{self.source.name} and {self.target.name}: it is not overwritten"
                )
        with self._undisturbed():
            self._target_copier.put(self.queue, histories)

    def _complete_histories(self, histories: list[JobHistory]) -> list[JobHistory]:
        """The histories with all events: a job pruned while it was read has lost some."""
        incomplete = [each.job.id for each in histories if len(each.events) != each.job.seq]
        if incomplete and self._source_copier.versions_of(self.queue, incomplete):
            raise self._damaged(f"the job {incomplete[0]} of {self.queue} lacks events")
        return [each for each in histories if each.job.id not in incomplete]

    # Proof

    def prove(self) -> bool:
        """Compare both stores whole; False if the source moved. Equal histories replay equally."""
        result, total, compared = CopyResult(self.queue, passes=self.result.passes), 0, 0
        counts: Counter[tuple[str, str]] = Counter()
        for versions in _version_pages(self._source_copier, self.queue):
            ids = [job.id for job in versions]
            copies = {copy.job.id: copy for copy in self._target_copier.histories(self.queue, ids)}
            for original in self._source_copier.histories(self.queue, ids):
                job, content = original.job, _comparable(original)
                copy = copies.get(job.id)
                if copy is None or _comparable(copy) != content:
                    if self.has_source_moved() or self._has_new_note(job.id):
                        return False
                    raise CopyRefused(f"the copy of the job {job.id} differs from the original")
                for difference in differences(copy.job, copy.events):
                    raise self._damaged(str(difference))
                digest = hashlib.sha256(json.dumps(content).encode()).digest()
                total = (total + int.from_bytes(digest, "big")) % _MODULUS
                counts[job.tenant, job.state] += 1
                result.jobs += 1
                result.events += len(original.events)
                result.notes += len(original.notes)
            compared += len(versions)
            self._report_progress("proved", compared)
        if self.has_source_moved():
            return False
        self.refuse_other_writers()
        self._compare_counts(result.jobs, counts)
        result.digest = f"{total:064x}"
        self.result = result
        return True

    def _damaged(self, detail: str) -> CopyRefused:
        return CopyRefused(
            f"{self.source.name} cannot be replayed, so it was not moved: {detail} (`kesin audit verify` shows all)"
        )

    def _has_new_note(self, job_id: str) -> bool:
        """Whether a note was added to the job since it was copied: notes are no moves."""
        original = self._source_copier.versions_of(self.queue, [job_id]).get(job_id)
        return original != self._target_copier.versions_of(self.queue, [job_id]).get(job_id)

    def _compare_counts(self, jobs: int, counts: Counter[tuple[str, str]]) -> None:
        copied = sum(len(versions) for versions in _version_pages(self._target_copier, self.queue))
        if copied != jobs:
            raise CopyRefused(f"{self.target.name} has {copied} jobs of {self.queue}, not {jobs}")
        for difference in counter_differences(self.queue, self._counters or [], counts):
            raise CopyRefused(f"the counters do not match the rows: {difference}")

    # Hand-over

    def hand_over(self, *, keep_source_running: bool) -> None:
        """Pause the source for good, then resume the target: the two never run at once."""
        source, target = self.source.store, self.target.store
        with self._undisturbed():
            self._write_counters(self._counters or [])
            for state in source.retired_states(self.queue):
                target.retire(self.queue, state)
            for pause in target.paused(self.queue):
                if pause.tenant:
                    target.resume(self.queue, tenant=pause.tenant)
            for pause in source.paused(self.queue):
                if pause.tenant:
                    _copy_pause(target, pause)
            if keep_source_running:
                _replace_pause(target, self.queue, f"a copy of {self.source.name}")
            else:
                _replace_pause(source, self.queue, _moved_reason(self.target.name))
                self._resumable = False
                target.resume(self.queue)
                if self._previous_pause is not None:
                    _copy_pause(target, self._previous_pause)
            metadata_for(target.store_for(self.queue)).delete_metadata(ACTOR, "", self.queue)
        self.give_up()

    def give_up(self) -> None:
        """Resume the source, unless another copy of it runs; the next run goes on from here."""
        pause = pause_of(self.source.store, self.queue) if self._resumable else None
        if pause is None or (pause.actor, pause.reason) != (ACTOR, self._source_reason):
            return  # the pause was changed meanwhile, by a finished move or an operator
        try:
            now = pause_of(self.target.store, self.queue)
            filled = now is not None and (now.actor, now.reason) == (ACTOR, self._target_reason)
            continued = filled and now != self._target_pause
        except StoreError:  # no copy runs to a store that is unreachable
            continued = False
        if not continued:
            self.source.store.resume(self.queue)


def sorted_counters(store: Store, queue: str) -> list[MoveCount]:
    """The counters of a queue, in an order that two stores share."""
    return sorted(store.move_counts(queue))


def pause_of(store: Store, queue: str) -> Pause | None:
    """The pause of the whole queue, if there is one."""
    return next((pause for pause in store.paused(queue) if not pause.tenant), None)


def was_moved_elsewhere(store: Store, queue: str, target: str) -> bool:
    """Whether this queue was moved to another store than the target, so it is out of date."""
    pause = pause_of(store, queue)
    reason = (pause.reason if pause is not None and pause.actor == ACTOR else None) or ""
    return reason.startswith(_moved_reason("")) and reason != _moved_reason(target)


def _moved_reason(name: str) -> str:
    return f"moved to {name}"


def _replace_pause(store: Store, queue: str, reason: str) -> None:
    """Change the reason for a pause in one transaction: the queue never runs in between."""
    with store.store_for(queue).transaction():
        store.resume(queue)
        store.pause(queue, actor=ACTOR, reason=reason)


def _copy_pause(store: Store, pause: Pause) -> None:
    actor, reason = pause.actor, pause.reason
    store.pause(pause.queue, tenant=pause.tenant, actor=actor, reason=reason, now=pause.at)


def _version_pages(copier: Copier, queue: str) -> Iterator[list[JobVersion]]:
    cursor: str | None = ""
    while cursor is not None:
        versions, cursor = copier.job_versions(queue, cursor or None, BATCH)
        if versions:
            yield versions


def _comparable(history: JobHistory) -> tuple[object, ...]:
    """A job with events and notes, without its lease, which is no part of its history."""
    notes = [note[1:] for note in history.notes]
    return history.job._replace(lease_until=None), history.events, notes
