"""The lock of a copy on its target queue: which copy writes, and the counters it left.

A copy does not change counters; every other write does. Counters that are as the copy left them
therefore prove that all jobs came from copies. The record stays when a copy is interrupted, so that
the next copy may continue. Of two copies, the one that took the lock last continues.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from kesin.store.contract import Store
from kesin.store.directory import MetadataEntry
from kesin.store.metadata import metadata_for
from kesin.store.records import MoveCount
from kesin.store.transfer.copier import Copier

WORKLOAD: Final = "store copy"


class TargetChanged(Exception):
    """Jobs were moved on the target of a copy."""


class LockTakenOver(Exception):
    """Another copy holds the lock now."""


class LockRecord(NamedTuple):
    """The stored record of a lock."""

    token: str
    counters: str  # their digest
    since: int  # when the source was paused; identifies the source


class CopyLock:
    """The lock on the target queue; writes of the copy are undone if others wrote there."""

    def __init__(self, store: Store, queue: str) -> None:
        self._store, self._queue = store.store_for(queue), queue
        self._metadata = metadata_for(self._store)
        self._token = uuid.uuid4().hex
        self._last_record: LockRecord | None = None  # read or written by this copy
        self._counters: list[MoveCount] = []
        self._since = 0

    def read(self) -> None:
        """Read the counters and the lock record."""
        self._counters = sorted_counters(self._store, self._queue)
        self._last_record = self._read_record()

    def is_unchanged(self) -> bool:
        """Whether an earlier copy held the lock and no job moved since."""
        record = self._last_record
        return record is not None and record.counters == _counters_digest(self._counters)

    def is_taken(self, since: int) -> bool:
        """Whether another copy of the same source took the lock since ``read``."""
        now, last = self._read_record(), self._last_record
        return now is not None and now.since == since and (last is None or now.token != last.token)

    def acquire(self, since: int) -> None:
        """Take the lock, in a transaction, unless others wrote since ``read``."""
        if self._lock_record() != self._last_record:
            raise LockTakenOver
        if sorted_counters(self._store, self._queue) != self._counters:
            raise TargetChanged
        self._since = since
        self._write_record(self._counters)

    def release(self) -> None:
        """Delete the lock record."""
        self._metadata.delete_metadata(WORKLOAD, "", self._queue)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock in a transaction: no other copy writes meanwhile."""
        with self._store.transaction():
            record = self._lock_record()
            if record is None or record.token != self._token:
                raise LockTakenOver
            yield

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Commit the writes inside only if no job moved on the target."""
        with self.held():
            yield
            if sorted_counters(self._store, self._queue) != self._counters:
                raise TargetChanged

    def write_counters(self, copier: Copier, counters: Sequence[MoveCount]) -> None:
        """Write the counters, and store their digest in the lock record."""
        with self.held():
            if not copier.replace_move_counts(self._queue, counters, expected=self._counters):
                raise TargetChanged
            self._counters = list(counters)
            self._write_record(counters)

    def _read_record(self) -> LockRecord | None:
        return _parse_lock_record(self._metadata.metadata_entry(WORKLOAD, "", self._queue))

    def _lock_record(self) -> LockRecord | None:
        return _parse_lock_record(self._metadata.lock_metadata(WORKLOAD, "", self._queue, 0))

    def _write_record(self, counters: Sequence[MoveCount]) -> None:
        record = LockRecord(self._token, _counters_digest(counters), self._since)
        self._metadata.put_metadata(MetadataEntry(WORKLOAD, "", self._queue, json.dumps(record), 0))
        self._last_record = record


def _parse_lock_record(entry: MetadataEntry | None) -> LockRecord | None:
    """The lock record; any other value counts as none, so that no copy continues from it."""
    try:
        values = json.loads(entry.value) if entry is not None else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, list) or [type(value) for value in values] != [str, str, int]:
        return None
    return LockRecord(*values)


def sorted_counters(store: Store, queue: str) -> list[MoveCount]:
    """The counters of a queue, in an order that two stores share."""
    return sorted(store.move_counts(queue))


def _counters_digest(counters: Sequence[MoveCount]) -> str:
    return hashlib.sha256(json.dumps(list(counters)).encode()).hexdigest()
