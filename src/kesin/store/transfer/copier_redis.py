"""Copies from and to Redis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from kesin.foundation.text import canonical_json
from kesin.store.declarations import only_added
from kesin.store.limits import bounded
from kesin.store.records import Definition, Event, Flow, Note
from kesin.store.redis.program import SEPARATOR
from kesin.store.redis.reader import event_of, job_of, note_of
from kesin.store.redis.store import RedisStore
from kesin.store.transfer.copier import Declared, Head, History

AT_ONCE: Final = 100  # jobs one script writes: Redis serves nobody meanwhile


class RedisCopier:
    """Written a hundred at a time; a call of more is not one change, but each job is whole."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def _ask(self, op: str, queue: str, items: Any = None, **ask: Any) -> Any:
        program = self._store.program(queue)
        return self._store._ask(  # noqa: SLF001
            op, {"queue": queue, **ask}, life=program.life, items=items
        )

    def heads(self, queue: str, cursor: str | None, limit: int) -> tuple[list[Head], str | None]:
        """State after state, each in the order of births."""
        states = sorted({edge[3] for edge in self.declared(queue)} - {""})
        place, _, first = (cursor or "0:0").partition(":")
        state, start = int(place), int(first)
        found: list[Head] = []
        while state < len(states) and not found:
            ask = {"state": states[state], "first": start, "last": start + limit - 1}
            found = [Head(*one) for one in self._ask("heads", queue, **ask)]
            start += limit
            if len(found) < limit:
                state, start = state + 1, 0
        return found, f"{state}:{start}" if state < len(states) else None

    def heads_of(self, queue: str, ids: Sequence[str]) -> dict[str, Head]:
        """Those of these jobs."""
        bounded(ids)
        return {one[0]: Head(*one) for one in self._ask("heads", queue, list(ids))}

    def histories(self, queue: str, ids: Sequence[str]) -> list[History]:
        """These jobs at one moment: no two of them have the same key."""
        found = []
        for row, entries, texts in self._ask("histories", queue, list(ids)):
            job = job_of(row)
            events = [event_of(job.id, entry) for entry in entries]
            found.append(History(job, events, [note_of(job.id, text) for text in texts]))
        return found

    def claimed(self, queue: str) -> int:
        """How many jobs a worker has in hand."""
        return int(self._ask("claimed", queue))

    def put(self, queue: str, histories: Sequence[History]) -> None:
        """Write these in place of what is there of them."""
        bounded(histories)
        for start in range(0, len(histories), AT_ONCE):
            items = [_item(one) for one in histories[start : start + AT_ONCE]]
            self._ask("put_jobs", queue, items)

    def drop(self, queue: str, ids: Sequence[str]) -> None:
        """Remove these copies, as if they had never come."""
        bounded(ids)
        self._ask("drop_jobs", queue, list(ids))

    def put_flows(self, queue: str, flows: Sequence[Flow], *, instead_of: list[Flow]) -> bool:
        """Write the counters in place of these; False where others are there, which stay."""
        items = [
            (
                SEPARATOR.join((one.move, one.from_state, one.to_state, one.tenant)),
                str(one.n),
                str(one.at),
            )
            for one in flows
        ]
        with self._store.transaction():
            if sorted(self._store.flows(queue)) != instead_of:
                return False
            self._ask("put_flows", queue, items)
        return True

    def declared(self, queue: str) -> Declared:
        """Every move that the queue was ever declared with."""
        return self._store._declared(queue)  # noqa: SLF001

    def declare(self, queue: str, rows: Declared, definition: Definition) -> None:
        """Add moves that only the history knows."""
        known = self.declared(queue)
        new = {edge: rest for edge, rest in rows.items() if known.get(edge) != rest}
        for edge, rest in new.items():
            only_added((*edge, *rest), known.get(edge))
        items = [(SEPARATOR.join(edge[1:]), canonical_json(rest)) for edge, rest in new.items()]
        if items:
            told = canonical_json(definition._asdict())
            self._ask("declare", queue, items, definition=told, ages=[])


def _item(history: History) -> dict[str, Any]:
    return {
        "id": history.job.id,
        "fields": _flat(history.job._asdict()),
        "events": [(str(event.seq), _flat(_told(event))) for event in history.events],
        "notes": [_said(note) for note in history.notes],
    }


def _told(event: Event) -> dict[str, Any]:
    """What the stream says; the job and the number are its name and the entry's."""
    told = event._asdict()
    del told["job_id"], told["seq"]
    return told


def _flat(values: dict[str, Any]) -> list[str]:
    return [text for k, v in values.items() if v is not None for text in (k, str(v))]


def _said(note: Note) -> str:
    return json.dumps([str(note.at), note.kind, note.actor, note.details], ensure_ascii=False)
