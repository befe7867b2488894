"""Seven groups of states, the same for every lifecycle: what a state means at a glance."""

from collections.abc import Callable
from typing import Final, Literal, get_args

from kesin.lifecycle.declare import Lifecycle, State

StateGroup = Literal["waiting", "working", "retrying", "person", "failed", "done", "expired"]

LABELS: Final[dict[StateGroup, str]] = {
    group: "on hold" if group == "person" else group for group in get_args(StateGroup)
}
_BY_NAME: Final[dict[str, StateGroup]] = {
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


def state_group(lifecycle: Lifecycle, name: str) -> StateGroup:
    """The group of a state; a state that the lifecycle no longer has is expired."""
    state = lifecycle.state.get(name)
    if state is None:
        return "expired"
    if name in lifecycle.waiting_states:  # it rests, but the clock moves it on
        return "waiting"
    return _BY_NAME.get(name) or _by_properties(state)


def _by_properties(state: State) -> StateGroup:
    if state.success:
        return "done"
    if state.initial:
        return "waiting"
    if state.working:
        return "working"
    return "failed" if state.resting else "expired"


def state_groups(lifecycle: Lifecycle) -> dict[str, StateGroup]:
    return {state.name: state_group(lifecycle, state.name) for state in lifecycle.states}


def glossed(gettext: Callable[[str], str], state: str) -> str:
    """The name of a state, with its meaning where the catalogue has one; English needs none."""
    said = gettext(key := f"state {state.lower()}")
    return state if said == key else f"{state} ({said})"


def states_in(lifecycle: Lifecycle, group: StateGroup) -> tuple[str, ...]:
    return tuple(name for name, of in state_groups(lifecycle).items() if of == group)
