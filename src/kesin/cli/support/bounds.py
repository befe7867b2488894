"""How long a job may wait by its lifecycle's own limits, in sentences."""

from collections.abc import Iterator

from kesin.engine.access.occupancy import rate_of
from kesin.engine.sweeper import STAGE_INTERVALS_S
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.vocabulary import duration


def limit_bounds(lifecycle: Lifecycle) -> list[str]:
    """What slots, a rate and jobs before others promise; nothing where there are none."""
    return [*_of_lines(lifecycle), *_of_parents(lifecycle)]


def _of_lines(lifecycle: Lifecycle) -> Iterator[str]:
    rate = rate_of(lifecycle)
    in_rate = f"⌈k/{rate.number}⌉ times {rate.per_s} s" if rate else ""
    limited = {lifecycle.state[move.to] for move in lifecycle.claims if lifecycle.capacity_of(move)}
    stay = " + ".join(
        (
            f"{duration(lifecycle.max_run_seconds)} (the longest run)",
            f"{duration(lifecycle.lease_seconds)} (a lease)",
            f"{duration(round(STAGE_INTERVALS_S['recover']))} (a sweep)",
        )
    )
    both = False
    for state in sorted(limited, key=lambda state: state.name):
        in_slots = f"⌈k/{state.capacity}⌉ stays in {state.name}"
        if state.per_tenant and in_rate:
            in_slots, both = f"{in_slots} and {in_rate}", True
        yield f"{_starts(tenant=state.per_tenant)} {in_slots}; a stay ends within {stay}"
    if in_rate and not both:
        too = "; its slots come on top" if limited else ""
        yield f"{_starts(tenant=True)} {in_rate}{too}"


def _starts(*, tenant: bool) -> str:
    line = "its tenant's" if tenant else "the queue's"
    return f"the k-th in {line} line starts after at most"


def _of_parents(lifecycle: Lifecycle) -> Iterator[str]:
    span = duration(round(STAGE_INTERVALS_S["settle"]))
    for state in sorted(lifecycle.waiting_states):
        yield f"{state} is left within a sweep ({span}) after the last parent rests"
