"""The copier for Redis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from kesin.foundation.text import canonical_json
from kesin.store.declarations import check_compatible
from kesin.store.limits import check_batch_size
from kesin.store.records import Definition, Event, MoveCount, Note
from kesin.store.redis.program import SEPARATOR
from kesin.store.redis.reader import parse_event, parse_job, parse_note
from kesin.store.redis.store import RedisStore
from kesin.store.transfer.copier import DeclaredMoves, JobHistory, JobVersion

JOBS_PER_SCRIPT: Final = 100  # while a script runs, Redis blocks all other clients


class RedisCopier:
    """Writes a hundred jobs at a time: a larger call is not atomic, but each job is complete."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def _execute(self, op: str, queue: str, items: Any = None, **params: Any) -> Any:
        program = self._store.program(queue)
        return self._store._execute(  # noqa: SLF001
            op, {"queue": queue, **params}, lifecycle_json=program.lifecycle_json, items=items
        )

    def job_versions(
        self, queue: str, cursor: str | None, limit: int
    ) -> tuple[list[JobVersion], str | None]:
        """A page of job versions: state by state, each in the order of creation."""
        states = sorted({edge[3] for edge in self.declared(queue)} - {""})
        state_index, _, first = (cursor or "0:0").partition(":")
        state, start = int(state_index), int(first)
        versions: list[JobVersion] = []
        while state < len(states) and not versions:
            params = {"state": states[state], "first": start, "last": start + limit - 1}
            versions = [JobVersion(*row) for row in self._execute("heads", queue, **params)]
            start += limit
            if len(versions) < limit:
                state, start = state + 1, 0
        return versions, f"{state}:{start}" if state < len(states) else None

    def versions_of(self, queue: str, ids: Sequence[str]) -> dict[str, JobVersion]:
        """Job id → version; unknown ids are absent."""
        check_batch_size(ids)
        return {row[0]: JobVersion(*row) for row in self._execute("heads", queue, list(ids))}

    def histories(self, queue: str, ids: Sequence[str]) -> list[JobHistory]:
        """These jobs from one snapshot: no two of them hold the same key."""
        histories = []
        for row, entries, texts in self._execute("histories", queue, list(ids)):
            job = parse_job(row)
            events = [parse_event(job.id, entry) for entry in entries]
            histories.append(JobHistory(job, events, [parse_note(job.id, text) for text in texts]))
        return histories

    def count_claimed(self, queue: str) -> int:
        """How many jobs are claimed."""
        return int(self._execute("claimed", queue))

    def put(self, queue: str, histories: Sequence[JobHistory]) -> None:
        """Write these jobs, replacing existing copies."""
        check_batch_size(histories)
        for start in range(0, len(histories), JOBS_PER_SCRIPT):
            batch = histories[start : start + JOBS_PER_SCRIPT]
            items = [_encode_history(history) for history in batch]
            self._execute("put_jobs", queue, items)

    def drop(self, queue: str, ids: Sequence[str]) -> None:
        """Delete these copies without a trace."""
        check_batch_size(ids)
        self._execute("drop_jobs", queue, list(ids))

    def replace_move_counts(
        self, queue: str, counts: Sequence[MoveCount], *, expected: list[MoveCount]
    ) -> bool:
        """Replace the counters if they equal ``expected``; return False otherwise."""
        items = [
            (
                SEPARATOR.join((count.move, count.from_state, count.to_state, count.tenant)),
                str(count.n),
                str(count.at),
            )
            for count in counts
        ]
        with self._store.transaction():
            if sorted(self._store.move_counts(queue)) != expected:
                return False
            self._execute("put_flows", queue, items)
        return True

    def declared(self, queue: str) -> DeclaredMoves:
        """Every move that was ever declared for the queue."""
        return self._store._declared(queue)  # noqa: SLF001

    def declare(self, queue: str, rows: DeclaredMoves, definition: Definition) -> None:
        """Add moves that only the history contains."""
        declared = self.declared(queue)
        new = {edge: effects for edge, effects in rows.items() if declared.get(edge) != effects}
        for edge, effects in new.items():
            check_compatible((*edge, *effects), declared.get(edge))
        items = [
            (SEPARATOR.join(edge[1:]), canonical_json(effects)) for edge, effects in new.items()
        ]
        if items:
            definition_json = canonical_json(definition._asdict())
            self._execute("declare", queue, items, definition=definition_json, ages=[])


def _encode_history(history: JobHistory) -> dict[str, Any]:
    return {
        "id": history.job.id,
        "fields": _flatten(history.job._asdict()),
        "events": [(str(event.seq), _flatten(_event_fields(event))) for event in history.events],
        "notes": [_encode_note(note) for note in history.notes],
    }


def _event_fields(event: Event) -> dict[str, Any]:
    """The fields of a stream entry; the stream's name and the entry's id hold the rest."""
    fields = event._asdict()
    del fields["job_id"], fields["seq"]
    return fields


def _flatten(values: dict[str, Any]) -> list[str]:
    return [text for k, v in values.items() if v is not None for text in (k, str(v))]


def _encode_note(note: Note) -> str:
    return json.dumps([str(note.at), note.kind, note.actor, note.details], ensure_ascii=False)
