"""Folds the events of a history that repeat others into one line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kesin.store.records import Event

LONGEST_CYCLE: Final = 3  # moves: claim, fail, requeue


@dataclass(frozen=True, slots=True)
class FoldedEvents:
    """An event of a history, or so many that repeat it with the moves between them."""

    events: Sequence[Event]  # newest first
    count: int = 1

    @property
    def event(self) -> Event:
        """The newest of them."""
        return self.events[0]

    @property
    def since(self) -> int:
        return self.events[-1].at


def fold_events(events: Sequence[Event], *, messages: bool = True) -> list[FoldedEvents]:
    """Fold runs of the same cycle, in the order of the history; the store keeps all.

    A cycle begins with a wait or a failed attempt, and has the moves that led back to it. What a
    person did, and a move that replaced the payload, is never folded; nor is another error
    message, unless ``messages`` is false.
    """
    events = events[::-1]
    keys = [_cycle_key(event, messages=messages) for event in events]
    folded: list[FoldedEvents] = []
    at = 0
    while at < len(events):
        count, end = 1, at
        for length in range(1, LONGEST_CYCLE + 1) if events[at].worker is None else ():
            cycle = keys[at : at + length]
            while (
                None not in cycle
                and keys[end : end + length] == cycle
                and keys[end + length : end + length + 1] == cycle[:1]
            ):
                count, end = count + 1, end + length
            if count > 1:
                break
        folded.append(FoldedEvents(events[at : end + 1], count))
        at = end + 1
    return folded[::-1]


def _cycle_key(event: Event, *, messages: bool) -> tuple[object, ...] | None:
    """What two events of a repeated cycle share; None for one that stands alone."""
    if event.actor.startswith("user:") or event.old_payload is not None:
        return None
    message = event.error_message if messages else None
    return (event.move, event.from_state, event.to_state, event.error_code, event.flags, message)
