"""How many slots of a queue's states are in use, and what a rate leaves: without the jobs."""

from typing import Final, NamedTuple

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import meter_of
from kesin.lifecycle.vocabulary import Guard
from kesin.store.contract import Store
from kesin.store.records import QueueStats

MAX_FULLEST: Final = 10  # tenants that are listed with the slots they use


class SlotUse(NamedTuple):
    """The slots of a state, and how many jobs are in it."""

    state: str
    slots: int
    per_tenant: bool
    used: int  # of all tenants together
    fullest: tuple[tuple[str, int], ...] = ()  # with slots per tenant: those that use most
    tenants: int = 0  # that use any


def slots_in_use(lifecycle: Lifecycle, stats: QueueStats) -> list[SlotUse]:
    """The states with slots, in the order of declaration."""
    return [
        SlotUse(
            state.name,
            state.capacity,
            state.per_tenant,
            stats.states.get(state.name, 0),
            *(_fullest(state.name, stats) if state.per_tenant else ()),
        )
        for state in lifecycle.states
        if state.capacity
    ]


def _fullest(state: str, stats: QueueStats) -> tuple[tuple[tuple[str, int], ...], int]:
    used = [(tenant, n) for tenant, counts in stats.tenants.items() if (n := counts.get(state, 0))]
    used.sort(key=lambda pair: (-pair[1], pair[0]))
    return tuple(used[:MAX_FULLEST]), len(used)


def states_without_slot(lifecycle: Lifecycle, stats: QueueStats, tenant: str) -> frozenset[str]:
    """The states that have no slot left for a job of this tenant."""
    own = stats.tenants.get(tenant, {})
    return frozenset(
        state.name
        for state in lifecycle.states
        if state.capacity
        and (own if state.per_tenant else stats.states).get(state.name, 0) >= state.capacity
    )


def rate_of(lifecycle: Lifecycle) -> Guard | None:
    """The rate at which jobs of a tenant start, where there is one."""
    return next((guard for move in lifecycle.claims if (guard := move.guard("rate"))), None)


def rate_left(lifecycle: Lifecycle, store: Store, stats: QueueStats) -> dict[str, int]:
    """How many jobs of these tenants may start now, where some of a rate is used: fewest first."""
    meter = meter_of(lifecycle.claims[0])  # a lifecycle with a rate has one claim
    if meter is None:
        return {}
    left = [(meter.left(at, stats.now), tenant) for tenant, at in store.meters(stats.queue).items()]
    used = sorted((n, tenant) for n, tenant in left if n < meter.claims and tenant in stats.tenants)
    return {tenant: n for n, tenant in used[:MAX_FULLEST]}
