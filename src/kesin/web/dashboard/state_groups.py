"""Seven groups of states, as in the drawings of lifecycles: what a state means at a glance."""

from collections.abc import Callable
from typing import Final, Literal, get_args

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.drawing.shape import family

StateGroup = Literal["waiting", "working", "retrying", "person", "failed", "done", "expired"]

LABELS: Final[dict[StateGroup, str]] = {
    group: "on hold" if group == "person" else group for group in get_args(StateGroup)
}


def state_group(lifecycle: Lifecycle, name: str) -> StateGroup:
    """The group of a state; a state that the lifecycle no longer has is expired."""
    if name not in lifecycle.state:
        return "expired"
    group = family(lifecycle, name)
    return "person" if group == "resting" else group


def state_groups(lifecycle: Lifecycle) -> dict[str, StateGroup]:
    return {state.name: state_group(lifecycle, state.name) for state in lifecycle.states}


def glossed(gettext: Callable[[str], str], state: str) -> str:
    """The name of a state, with its meaning where the catalogue has one; English needs none."""
    said = gettext(key := f"state {state.lower()}")
    return state if said == key else f"{state} ({said})"


def states_in(lifecycle: Lifecycle, group: StateGroup) -> tuple[str, ...]:
    return tuple(name for name, of in state_groups(lifecycle).items() if of == group)
