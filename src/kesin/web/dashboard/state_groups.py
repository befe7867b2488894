"""What a state means at a glance: seven families, whatever a lifecycle calls its states."""

from __future__ import annotations

from typing import Final, Literal

from kesin.lifecycle.declare import Lifecycle, State

Family = Literal["waiting", "working", "retrying", "person", "done", "failed", "expired"]

ORDER: Final[tuple[Family, ...]] = (
    "waiting",
    "working",
    "retrying",
    "person",
    "failed",
    "done",
    "expired",
)
SHOWN: Final[dict[Family, str]] = {
    "waiting": "waiting",
    "working": "working",
    "retrying": "retrying",
    "person": "on hold",
    "failed": "failed",
    "done": "done",
    "expired": "expired",
}
_NAMED: Final[dict[str, Family]] = {
    "RETRY": "retrying",
    "HOLD": "person",
    "FAILED": "failed",
    "failed": "failed",
    "partial": "person",
    "expired": "expired",
    "OPTI_IMPORTED": "working",
    "waiting": "waiting",
    "pending": "waiting",
}


def family_of(lifecycle: Lifecycle, name: str) -> Family:
    """The family of a state; a state nobody knows any more is expired."""
    state = lifecycle.state.get(name)
    if state is None:
        return "expired"
    return _NAMED.get(name) or _by_marks(state)


def _by_marks(state: State) -> Family:
    if state.success:
        return "done"
    if state.initial:
        return "waiting"
    if state.working:
        return "working"
    return "failed" if state.resting else "expired"


def families(lifecycle: Lifecycle) -> dict[str, Family]:
    """Every state's."""
    return {state.name: family_of(lifecycle, state.name) for state in lifecycle.states}


def needs_person(lifecycle: Lifecycle) -> tuple[str, ...]:
    """States in which a job waits for somebody."""
    return _of_families(lifecycle, "person", "failed")


def waits_for_person(lifecycle: Lifecycle) -> tuple[str, ...]:
    """States that nothing but a person ends."""
    return _of_families(lifecycle, "person")


def ended_badly(lifecycle: Lifecycle) -> tuple[str, ...]:
    """States of those that failed."""
    return _of_families(lifecycle, "failed")


def _of_families(lifecycle: Lifecycle, *wanted: Family) -> tuple[str, ...]:
    return tuple(name for name, family in families(lifecycle).items() if family in wanted)
