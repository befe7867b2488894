"""A job's history in the seed's words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from kesin.engine.queue import Queue
from kesin.foundation.clock import iso
from kesin.foundation.text import decoded
from kesin.lifecycle.budget import MINUTE_S, SECOND_US
from kesin.store.records import Event, Note
from kesin.workloads.optiplan.lifecycle import APPROVED

_NAMES: Final = {
    "enqueue": "JOB_CREATED",
    "approve": "HOLD_APPROVED",
    "retry": "JOB_RETRY_SCHEDULED",
    "recover": "JOB_RECOVERED",
    "release": "JOB_RELEASED",
    "request_cancel": "CANCEL_REQUESTED",
    "reissue": "JOB_REISSUED",
}
_NOTES: Final = {"duplicate": "JOB_DEDUP", "REISSUED": "JOB_REISSUED"}
_NOTE_WORDS: Final = {
    "duplicate": "the same order came again",
    "REISSUED": "a new revision was made",
    "BACKING_EDGE_RESET": "backs have no bands: those ordered were left out",
}
_LOOKS: Final = frozenset({"claim", "wait"})  # wake-ups: the engine's history has them


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One line, newest last."""

    id: int
    job_id: str
    event_type: str
    message: str
    details_json: str | None
    created_at: str


def audit_of(queue: Queue, job_id: str) -> list[AuditEvent]:
    """What happened to a job that somebody wants to know; wake-ups are left out."""
    approved = queue.lifecycle.flag_bit(APPROVED)
    told: list[tuple[int, str, str, Any]] = [
        (one.at, _name(one), _message(one), _details(one, approved))
        for one in queue.events(job_id)
        if one.move not in _LOOKS
    ]
    for note in queue.notes(job_id):
        kind = _NOTES.get(note.kind, note.kind)
        if kind != "stale":
            told.append((note.at, kind, _note_message(note), _decoded(note.details)))
    told.sort(key=lambda line: line[0])
    return [
        AuditEvent(
            number,
            job_id,
            kind,
            message,
            json.dumps(details, ensure_ascii=False) if details else None,
            iso(at) or "",
        )
        for number, (at, kind, message, details) in enumerate(told, 1)
    ]


def _name(event: Event) -> str:
    known = _NAMES.get(event.move)
    return known or f"STATE_{event.to_state}"


def _message(event: Event) -> str:
    if event.error_message and event.to_state in {"HOLD", "FAILED"}:
        return event.error_message
    if event.from_state == event.to_state or not event.from_state:
        return event.to_state
    return f"{event.from_state} → {event.to_state}"


def _note_message(note: Note) -> str:
    return _NOTE_WORDS.get(note.kind, note.kind)


def _details(event: Event, approved: int) -> dict[str, Any]:
    details = _decoded(event.note)
    if event.to_state in {"HOLD", "FAILED"} and event.error_code:
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


def _decoded(text: str | None) -> dict[str, Any]:
    value = decoded(text)
    return value if isinstance(value, dict) else {}
