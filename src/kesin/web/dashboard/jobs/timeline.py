"""A job's timeline, newest first, repeats folded; and what moves changed in its payload."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from kesin.engine.access.commands import JobDetails
from kesin.engine.access.companions import fold_events
from kesin.engine.queue import Queue
from kesin.foundation.messages import decode_note, recorded_message, recorded_traceback
from kesin.foundation.text import canonical_json, decode_json
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.store.declarations import COLUMN_BITS
from kesin.store.records import Event
from kesin.web.dashboard.frame.formatting import pretty
from kesin.web.dashboard.frame.page import PageContext
from kesin.web.dashboard.queues.failures import advice_on
from kesin.web.dashboard.state_groups import StateGroup, state_group
from kesin.web.serialize import json_depth_limited

MAX_LINES: Final = 200  # shown; the API has all of them
MAX_FOLDED: Final = 50  # of the lines that are folded into one
MAX_FIELDS: Final = 100  # of one correction
MISSING: Final = object()

# A field, and its values as they are shown before and after; None where there was no such field.
FieldChange = tuple[str, str | None, str | None]
# The move that replaced the payload, what it changed, and how many fields are not shown.
PayloadCorrection = tuple[Event, list[FieldChange], int]


class RecordedError(NamedTuple):
    """An error that a move recorded."""

    code: str
    category: str
    message: str
    advice: Mapping[str, str] | None  # what it means, who must act, how, and what is next
    traceback: str = ""
    is_last: bool = False  # no attempt is left
    others: Sequence[tuple[str, int]] = ()  # other codes that attempts ended with, and how often


@dataclass(frozen=True, slots=True)
class TimelineLine:
    """An event or a note."""

    at: int
    name: str
    actor: str
    family: StateGroup
    kind: str = "move"  # or note
    seq: int = 0
    before: str = ""
    state: str = ""
    attempt: int = 0
    lasted_us: int | None = None
    lasts: bool = False  # the state lasts until now
    failing: RecordedError | None = None
    reason: str = ""
    details: str = ""
    move: Move | None = None
    count: int = 1  # how often the same happened in a row
    first_seq: int = 0  # of the oldest that is folded in: it stays while more are added
    folded: tuple["TimelineLine", ...] = ()  # newest first
    unlisted: int = 0  # lines that are folded in and not listed


def timeline(
    ctx: PageContext, history: JobDetails, lifecycle: Lifecycle, now: int, explained: str | None
) -> list[TimelineLine]:
    """Every line, newest first; the code ``explained`` has its advice elsewhere on the page."""
    lines: list[TimelineLine] = []
    advised = {explained or ""}
    following: int | None = None
    for run in reversed(fold_events(history.events, messages=False)):
        folded = []
        for event in run.events:
            line = _event_line(ctx, history, lifecycle, event, advised)
            state = lifecycle.state.get(event.to_state)
            if following or not (state and (state.terminal or state.success)):
                lasted_us = (following or now) - event.at
                line = replace(line, lasted_us=lasted_us, lasts=following is None)
            folded.append(line)
            following = event.at
        newest, oldest = folded[0], folded[-1]
        if run.count > 1:
            stayed = all(line.state == newest.state for line in folded)
            lasted = None if newest.lasted_us is None or not stayed else newest.at - oldest.at
            newest = replace(
                newest,
                count=run.count,
                first_seq=oldest.seq,
                folded=tuple(folded[:MAX_FOLDED]),
                unlisted=len(folded[MAX_FOLDED:]),
                lasted_us=newest.lasted_us if lasted is None else (newest.lasted_us or 0) + lasted,
            )
        lines.append(newest)
    for note in history.notes:
        reason, details = _reason_and_details(decode_json(note.details))
        line = TimelineLine(note.at, note.kind, note.actor, "expired", "note")
        lines.append(replace(line, reason=reason, details=details))
    lines.sort(key=lambda line: (line.at, line.seq), reverse=True)
    return lines


def _event_line(
    ctx: PageContext, history: JobDetails, lifecycle: Lifecycle, event: Event, advised: set[str]
) -> TimelineLine:
    reason, details = _reason_and_details(decode_note(event.note))
    return TimelineLine(
        at=event.at,
        name=event.move,
        actor=event.actor,
        family=state_group(lifecycle, event.to_state),
        seq=event.seq,
        before=event.from_state if event.from_state != event.to_state else "",
        state=event.to_state,
        attempt=event.attempt - event.attempt_base,
        failing=_failing(ctx, history, event, advised),
        reason=reason,
        details=details,
        move=_move_of(lifecycle, event),
    )


def _move_of(lifecycle: Lifecycle, event: Event) -> Move | None:
    """The declared move of an event, if the lifecycle still has it."""
    for move in lifecycle.moves:
        leaves = not move.sources or event.from_state in move.sources
        if leaves and (move.name, move.target(event.from_state)) == (event.move, event.to_state):
            return move
    return None


def _reason_and_details(details: Any) -> tuple[str, str]:
    """A note's reason, and the rest of it as JSON."""
    if isinstance(details, str):
        return details, ""
    reason = ""
    if isinstance(details, dict) and isinstance(details.get("reason"), str):
        reason = details["reason"]
        details = {name: value for name, value in details.items() if name != "reason"}
    return reason, pretty(json_depth_limited(details)) if details else ""


def _failing(ctx: PageContext, history: JobDetails, event: Event, advised: set[str]) -> RecordedError | None:
    """The error this move recorded; advice is shown once, on the newest line with the code."""
    code = event.error_code
    if not code or not event.mask & COLUMN_BITS["error"]:
        return None
    category = event.error_category or ""
    advice = None if code in advised else advice_on(ctx, history.job.queue, code, category)
    advised.add(code)
    message = recorded_message(event.error_message, event.note)
    traceback = recorded_traceback(event.note)
    return RecordedError(code, category, message, advice, traceback)


def current_error(ctx: PageContext, history: JobDetails) -> RecordedError | None:
    """The error that the job has now, with its advice, and the other errors of its attempts."""
    job = history.job
    if not job.error_code:
        return None
    message = recorded_message(job.error_message, job.note)
    error = job.error_code, job.error_category or ""
    found = RecordedError(*error, message, advice_on(ctx, job.queue, *error))
    lifecycle = ctx.service.queues[job.queue].lifecycle
    moves = [(event, _move_of(lifecycle, event)) for event in history.events]
    is_last = any(move and move.guard("budget_spent") for _, move in moves[-1:])
    codes = Counter(event.error_code for event, move in moves if move and move.error == "record")
    others = [(code, n) for code, n in codes.items() if code and code != job.error_code]
    return found._replace(is_last=is_last, others=others)


def corrections(queue: Queue, history: JobDetails) -> list[PayloadCorrection]:
    """What each correction changed, newest first."""
    shown = [event for event in history.events if event.old_payload is not None]
    if not shown:
        return []
    # Two masked values may look the same: the stored payloads say which fields differ.
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
