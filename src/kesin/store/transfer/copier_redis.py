"""The copier for Redis."""

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import JOB_COLUMNS
from kesin.store.declarations import DeclaredMoves, new_moves
from kesin.store.limits import check_batch_size
from kesin.store.records import Definition, JobHistory, JobVersion, MoveCount, RulesVersion
from kesin.store.redis.connection import SCHEMA_VERSION
from kesin.store.redis.program import SEPARATOR
from kesin.store.redis.reader import parse_event, parse_job, parse_note
from kesin.store.redis.store import RedisStore

JOBS_PER_SCRIPT: Final = 100  # while a script runs, Redis blocks all other clients


class RedisCopier:
    """Writes a hundred jobs at a time: a larger call is not atomic, but each job is complete."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def _execute(self, op: str, queue: str, items: Any = None, **params: Any) -> Any:
        store, given = self._store, {"queue": queue, **params}
        return store._execute(op, given, store.program(queue), items=items)  # noqa: SLF001

    def job_versions(self, queue: str, cursor: str | None, limit: int) -> tuple[list[JobVersion], str | None]:
        """A page of job versions: state by state, each in the order of creation."""
        states = sorted({edge[3] for edge in self._store.declared(queue)} - {""})
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
        check_batch_size(ids)
        return {row[0]: JobVersion(*row) for row in self._execute("heads", queue, list(ids))}

    def histories(self, queue: str, ids: Sequence[str]) -> list[JobHistory]:
        """These jobs from one snapshot: no two of them hold the same key."""
        histories = []
        for row, entries, texts, parents in self._execute("histories", queue, list(ids)):
            job = parse_job(row)
            events = [parse_event(job.id, entry) for entry in entries]
            notes = [parse_note(job.id, text) for text in texts]
            histories.append(JobHistory(job, events, notes, None, sorted(parents)))
        return histories

    def count_waiting(self, queue: str) -> int:
        return int(self._execute("count_waiting", queue))

    def count_claimed(self, queue: str) -> int:
        return int(self._execute("claimed", queue))

    def put(self, queue: str, histories: Sequence[JobHistory]) -> None:
        check_batch_size(histories)
        for start in range(0, len(histories), JOBS_PER_SCRIPT):
            batch = histories[start : start + JOBS_PER_SCRIPT]
            self._execute("put_jobs", queue, [_encode_history(history) for history in batch])

    def drop(self, queue: str, ids: Sequence[str]) -> None:
        check_batch_size(ids)
        self._execute("drop_jobs", queue, list(ids))

    def replace_move_counts(self, queue: str, counts: Sequence[MoveCount], *, expected: list[MoveCount]) -> bool:
        edges = ((count.move, count.from_state, count.to_state, count.tenant) for count in counts)
        numbers = ((str(count.n), str(count.at)) for count in counts)
        items = [(SEPARATOR.join(edge), *pair) for edge, pair in zip(edges, numbers, strict=True)]
        with self._store.transaction():
            if sorted(self._store.move_counts(queue)) != expected:
                return False
            self._execute("put_flows", queue, items)
        return True

    def put_rules(self, queue: str, versions: Sequence[RulesVersion]) -> None:
        items = [json.dumps(version) for version in versions]
        self._store._execute("put_rules", {"queue": queue}, items=items)  # noqa: SLF001

    def declare(self, queue: str, rows: DeclaredMoves, definition: Definition) -> None:
        new = new_moves(rows, self._store.declared(queue))
        items = [(SEPARATOR.join(edge[1:]), canonical_json(row)) for edge, row in new.items()]
        if items:
            definition_json = canonical_json(definition._asdict())
            params = {"definition": definition_json, "ages": [], "version": SCHEMA_VERSION}
            self._execute("declare", queue, items, **params)


def _encode_history(history: JobHistory) -> dict[str, Any]:
    values = dict(zip(JOB_COLUMNS, history.job, strict=True))
    return {
        "id": history.job.id,
        "fields": _flatten({**values, "once": int(history.job.once) or None}),
        "parents": list(history.parents),
        # The name of the stream and the id of the entry hold the rest of an event.
        "events": [(str(event.seq), _flatten(event._asdict(), without=("job_id", "seq"))) for event in history.events],
        "notes": [json.dumps([str(note.at), *note[2:]], ensure_ascii=False) for note in history.notes],
    }


def _flatten(values: dict[str, Any], without: Sequence[str] = ()) -> list[str]:
    present = {name: str(value) for name, value in values.items() if value is not None}
    return list(chain.from_iterable(pair for pair in present.items() if pair[0] not in without))
