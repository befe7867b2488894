"""The differences between payloads: what a move that replaced a job's payload changed."""

from collections.abc import Iterator
from typing import Any, Final

from kesin.engine.access.commands import JobDetails
from kesin.engine.queue import Queue
from kesin.foundation.text import canonical_json, decode_json
from kesin.store.records import Event
from kesin.web.serialize import json_depth_limited

MAX_FIELDS: Final = 100  # of one correction
MISSING: Final = object()


# A field, and its values as they are shown before and after; None where there was no such field.
FieldChange = tuple[str, str | None, str | None]
# The move that replaced the payload, what it changed, and how many fields are not shown.
PayloadCorrection = tuple[Event, list[FieldChange], int]


def corrections(queue: Queue, history: JobDetails) -> list[PayloadCorrection]:
    """What each correction changed, newest first.

    The stored payloads say which fields differ, and the history that the user may see says how
    their values are shown: two masked values may look the same.
    """
    shown = [event for event in history.events if event.old_payload is not None]
    if not shown:
        return []
    stored = {event.seq: event for event in queue.events(history.job.id)}
    return [_correction(event, stored.get(event.seq, event)) for event in reversed(shown)]


def _correction(shown: Event, stored: Event) -> PayloadCorrection:
    old, new = _fields(stored.old_payload), _fields(stored.payload)
    paths = [path for path in {**old, **new} if old.get(path, MISSING) != new.get(path, MISSING)]
    old_shown, new_shown = _fields(shown.old_payload), _fields(shown.payload)
    changes = [(path, old_shown.get(path), new_shown.get(path)) for path in paths[:MAX_FIELDS]]
    return shown, changes, len(paths[MAX_FIELDS:])


def _fields(document: str | None) -> dict[str, str]:
    """The fields of a stored payload by their paths, as text."""
    return dict(_flat("", json_depth_limited(decode_json(document))))


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(f"{path}.{name}" if path else str(name), inner)
    elif isinstance(value, list) and value:
        for at, inner in enumerate(value):
            yield from _flat(f"{path}[{at}]", inner)
    else:
        yield path, value if isinstance(value, str) else canonical_json(value)
