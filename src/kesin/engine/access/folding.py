"""Folds the looks at a waiting job that found nothing new into one line of its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kesin.store.records import Event


@dataclass(frozen=True, slots=True)
class FoldedEvent:
    """An event of a history, or the last of so many that say the same."""

    event: Event
    since: int  # of the first of them
    count: int = 1


def fold_events(events: Sequence[Event]) -> list[FoldedEvent]:
    """Fold a claim, and the wait that ends it, into an equal wait before; the store keeps all."""
    folded: list[FoldedEvent] = []
    for event in events:
        line = FoldedEvent(event, event.at)
        if len(folded) > 1 and _is_same_wait(folded[-2].event, folded[-1].event, event):
            folded.pop()
            last = folded.pop()
            line = FoldedEvent(event, last.since, last.count + 1)
        folded.append(line)
    return folded


def _is_same_wait(before: Event, claim: Event, event: Event) -> bool:
    """Whether an event ends its claim as the one before did, without a change of state."""
    if claim.worker is None or event.worker is not None or claim.actor != event.actor:
        return False
    return event.from_state == event.to_state and _content(before) == _content(event)


def _content(event: Event) -> tuple[object, ...]:
    why = (event.error_code, event.error_message, event.attempt, event.retry_count, event.flags)
    return (event.move, event.from_state, event.to_state, event.worker, *why)
