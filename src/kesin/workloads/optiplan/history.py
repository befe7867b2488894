"""A job's history as audit events, with the event types of the seed."""

import json
from collections.abc import Sequence
from typing import Any, Final

from kesin.engine.access.companions import fold_events
from kesin.engine.queue import Queue
from kesin.foundation.clock import iso
from kesin.foundation.messages import decode_note
from kesin.foundation.text import as_object
from kesin.lifecycle.budget import MINUTE_S, SECOND_US
from kesin.store.records import Event, Note
from kesin.workloads.optiplan.api.schemas import OrderEventBody
from kesin.workloads.optiplan.lifecycle import APPROVED

_EVENT_TYPES: Final = {
    "enqueue": "JOB_CREATED",
    "approve": "HOLD_APPROVED",
    "retry": "JOB_RETRY_SCHEDULED",
    "recover": "JOB_RECOVERED",
    "release": "JOB_RELEASED",
    "block": "JOB_BLOCKED",
    "request_cancel": "CANCEL_REQUESTED",
    "reissue": "JOB_REISSUED",
}
_NOTE_TYPES: Final = {"duplicate": "JOB_DEDUP", "REISSUED": "JOB_REISSUED"}
_NOTE_MESSAGES: Final = {
    "duplicate": "the same order was sent again",
    "REISSUED": "a new revision was created",
    "BACKING_EDGE_RESET": "backs have no bands: the bands in the order were ignored",
}
_WAKE_UPS: Final = frozenset({"claim", "wait"})  # the engine's history has them


def audit_events(queue: Queue, job_id: str, events: Sequence[Event], notes: Sequence[Note]) -> list[OrderEventBody]:
    """Return a job's history, oldest first; wake-ups that change nothing become one line."""
    approved = queue.lifecycle.flag_bit(APPROVED)
    lines: list[tuple[int, str, str, Any]] = [
        (
            event.at,
            _EVENT_TYPES.get(event.move) or f"STATE_{event.to_state}",
            _event_message(event),
            _event_details(event, approved)
            | ({"count": folded.count, "since": iso(folded.since)} if folded.count > 1 else {}),
        )
        for folded in fold_events(events)
        if (event := folded.event).move not in _WAKE_UPS
    ]
    for note in notes:
        event_type = _NOTE_TYPES.get(note.kind, note.kind)
        if event_type != "stale":
            message = _NOTE_MESSAGES.get(note.kind, note.kind)
            lines.append((note.at, event_type, message, as_object(decode_note(note.details))))
    lines.sort(key=lambda line: line[0])
    return [
        OrderEventBody.model_construct(
            id=number,
            job_id=job_id,
            event_type=kind,
            message=message,
            details_json=json.dumps(details, ensure_ascii=False) if details else None,
            created_at=iso(at) or "",
        )
        for number, (at, kind, message, details) in enumerate(lines, 1)
    ]


def _tells_error(event: Event) -> bool:
    return event.move == "block" or event.to_state in {"HOLD", "FAILED"}


def _event_message(event: Event) -> str:
    if event.error_message and _tells_error(event):
        return event.error_message
    if event.from_state == event.to_state or not event.from_state:
        return event.to_state
    return f"{event.from_state} → {event.to_state}"


def _event_details(event: Event, approved: int) -> dict[str, Any]:
    details = as_object(decode_note(event.note))
    if event.error_code and _tells_error(event):
        details["errorCode"] = event.error_code
    if event.move == "approve":
        details["mode_c_approved"] = bool(event.flags & approved)
    if event.move == "retry" and event.run_at is not None:
        details |= {
            "retry_count": event.retry_count,
            "backoff_minutes": round((event.run_at - event.at) / (MINUTE_S * SECOND_US), 2),
            "next_run_at": iso(event.run_at),
        }
    return details
