"""A job's history as a person reads it: the newest on top, each line with how long it lasted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kesin.engine.access.commands import History
from kesin.foundation.text import decoded
from kesin.lifecycle.declare import Lifecycle
from kesin.store.declarations import MASK
from kesin.store.records import Event, Note
from kesin.web.dashboard.frame.masking import masked, masked_text, pretty
from kesin.web.dashboard.frame.page import PageContext
from kesin.web.dashboard.state_groups import Family, family_of

MOST_LINES: Final = 200  # of a history; whoever wants all of it has the API
WHO: Final = {
    "you": "You",
    "producer": "Whoever sent it",
    "google_admin": "Whoever runs the Google account",
    "receiver": "Whoever receives it",
    "nobody": "Nobody",
    "us": "Whoever runs this service",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """What an error means, who must act, and what happens next."""

    means: str
    act: str
    next: str
    who: str


@dataclass(frozen=True, slots=True)
class Failing:
    """An error that a move recorded."""

    code: str
    category: str
    message: str
    advice: Advice | None


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened, or a remark beside it."""

    at: int
    name: str
    actor: str
    family: Family
    kind: str = "move"  # or note
    seq: int = 0
    before: str = ""
    state: str = ""
    worker: str = ""
    attempt: int = 0
    lasted_us: int | None = None
    lasts: bool = False  # it is still so
    failing: Failing | None = None
    reason: str = ""
    details: str = ""
    doc: str = ""


def story(looking: PageContext, history: History, lifecycle: Lifecycle, now: int) -> list[Line]:
    """Every line, the newest first."""
    lines: list[Line] = []
    events = history.events
    advised: set[str] = set()
    for at in range(len(events) - 1, -1, -1):
        event = events[at]
        following = events[at + 1].at if at + 1 < len(events) else None
        lines.append(_event(looking, history, lifecycle, event, following, now, advised))
    lines += [_note(one) for one in history.notes]
    lines.sort(key=lambda line: (line.at, line.seq), reverse=True)
    return lines


def path_of(history: History) -> frozenset[tuple[str, str]]:
    """The edges it has travelled."""
    return frozenset((one.from_state, one.to_state) for one in history.events)


def _event(  # noqa: PLR0917  # a line needs what is around it
    looking: PageContext,
    history: History,
    lifecycle: Lifecycle,
    event: Event,
    following: int | None,
    now: int,
    advised: set[str],
) -> Line:
    state = lifecycle.state.get(event.to_state)
    over = following is None and bool(state and (state.terminal or state.success))
    until = following if following is not None else now
    reason, details = _said(event.note)
    move = next(
        (
            one
            for one in lifecycle.moves
            if one.name == event.move and (not one.sources or event.from_state in one.sources)
        ),
        None,
    )
    return Line(
        at=event.at,
        name=event.move,
        actor=event.actor,
        family=family_of(lifecycle, event.to_state),
        seq=event.seq,
        before=event.from_state if event.from_state != event.to_state else "",
        state=event.to_state,
        worker=event.worker or "",
        attempt=event.attempt - event.attempt_base,
        lasted_us=None if over else until - event.at,
        lasts=following is None and not over,
        failing=_failing(looking, history, event, advised),
        reason=reason,
        details=details,
        doc=move.doc if move else "",
    )


def _note(note: Note) -> Line:
    reason, details = _said(note.details)
    return Line(note.at, note.kind, note.actor, "expired", "note", reason=reason, details=details)


def _said(text: str | None) -> tuple[str, str]:
    """A note's reason, and the rest of it as JSON."""
    if not text:
        return "", ""
    told = decoded(text)
    if isinstance(told, str):
        return masked_text(told) or "", ""
    reason = ""
    if isinstance(told, dict) and isinstance(told.get("reason"), str):
        reason = masked_text(told["reason"]) or ""
        told = {name: one for name, one in told.items() if name != "reason"}
    return reason, pretty(masked(told)) if told else ""


def _failing(
    looking: PageContext, history: History, event: Event, advised: set[str]
) -> Failing | None:
    """The error this move recorded; the advice is told once, at the newest line that has it."""
    code = event.error_code
    if not code or not event.mask & MASK["error"]:
        return None
    told = None if code in advised else advice_on(looking, history.job.queue, code)
    advised.add(code)
    return Failing(code, event.error_category or "", masked_text(event.error_message) or "", told)


def advice_on(looking: PageContext, queue: str, code: str) -> Advice | None:
    """What the workload has to say about a code, in the looker's language."""
    workload = looking.service.workloads.get(queue)
    if workload is None or workload.advice is None:
        return None
    told = workload.advice(code)
    words: Mapping[str, Any] = told.get(looking.language) or told.get("en") or {}
    who = str(told.get("who", ""))
    return Advice(
        str(words.get("means", "")),
        str(words.get("act", "")),
        str(words.get("next", "")),
        looking.say(WHO[who]) if who in WHO else "",
    )
