"""`kesin stats`: queues at a glance, once or until Ctrl-C."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Annotated, Any

from kesin.cli.support.arguments import AsJson, QueueNames, flag, option
from kesin.cli.support.context import CommandContext, open_context, stored_lifecycle
from kesin.foundation import terminal
from kesin.foundation.clock import iso
from kesin.store.contract import Store
from kesin.store.counters import rate_left, slots_in_use
from kesin.store.errors import StoreUnreachable

COLUMNS = ("queue", "jobs", "states", "oldest due", "expired leases", "paused")
MAX_TENANTS_SHOWN = 3  # with the slots they use


def stats(
    queues: QueueNames = None,
    *,
    watch: Annotated[bool, flag("--watch", "Update the display until Ctrl-C.")] = False,
    interval: Annotated[float, option("SECONDS", "Seconds between updates.", min=0.01)] = 2.0,
    count: Annotated[int | None, option("N", "With --watch: stop after N updates.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Count jobs by queue and state.

    Also shows expired leases, pauses, slots in use, how long the oldest due job has been waiting,
    and how many claims the rate limits still allow.
    """
    ending = suppress(KeyboardInterrupt) if watch else nullcontext()
    with open_context() as context, ending:
        snapshots = _snapshots(context, queues, interval, (count or 0) if watch else 1)
        if as_json:
            for snapshot in snapshots:
                terminal.say_json(snapshot, line=watch)
        else:
            _print_tables(snapshots, live=watch)


def queue_record(store: Store, name: str) -> dict[str, Any]:
    try:
        stats, pauses = store.stats(name), store.paused(name)
    except StoreUnreachable:  # other queues may live elsewhere
        if store.store_for(name) is store.store_for(""):
            raise
        nothing = dict.fromkeys(("jobs", "oldest_due_at", "oldest_due_s", "lease_over", "rate"))
        empty: dict[str, Any] = {"states": {}, "tenants": {}, "slots": [], "paused": []}
        return {"queue": name, **nothing, **empty, "reachable": False}
    lifecycle = stored_lifecycle(store, name)
    rate = None
    if lifecycle and (limit := lifecycle.claims[0].guard("rate")):
        left = rate_left(lifecycle, store, stats)
        rate = {"jobs": limit.number, "per_s": limit.per_s, "left": left}
    waited_us = None if stats.oldest_due_at is None else max(stats.now - stats.oldest_due_at, 0)
    return {
        "queue": name,
        "jobs": stats.total,
        "states": stats.states,
        "tenants": stats.tenants,
        "oldest_due_at": iso(stats.oldest_due_at),
        "oldest_due_s": None if waited_us is None else waited_us / 1_000_000,
        "lease_over": stats.lease_over,
        "slots": [
            {
                "state": use.state,
                "slots": use.slots,
                "per": "tenant" if use.per_tenant else "queue",
                "used": use.used,
                "fullest": dict(use.fullest),
            }
            for use in (slots_in_use(lifecycle, stats) if lifecycle else ())
        ],
        "rate": rate,
        "paused": [{"tenant": pause.tenant or None, "reason": pause.reason, "actor": pause.actor} for pause in pauses],
        "reachable": True,
    }


def _snapshots(
    context: CommandContext, queues: list[str] | None, interval: float, count: int
) -> Iterator[list[dict[str, Any]]]:
    """Records of the queues, ``count`` times; 0 is forever."""
    pause = threading.Event()
    for done in itertools.count(1):
        yield [queue_record(context.store, name) for name in context.readable_queues(queues)]
        if done == count:
            return
        pause.wait(interval)


def _print_tables(snapshots: Iterator[list[dict[str, Any]]], *, live: bool) -> None:
    if not (live and terminal.on_terminal()):
        for snapshot in snapshots:
            columns, lines = table(snapshot)
            terminal.print_table(columns, lines, empty="no queue has been opened yet")
        return
    from rich.live import Live

    with Live(console=terminal.console(), auto_refresh=False, screen=False) as screen:
        for snapshot in snapshots:
            screen.update(terminal.rich_table(*table(snapshot)), refresh=True)


def table(snapshot: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Columns and rows; there are some for slots and for a rate where a queue uses any."""
    columns: tuple[str, ...] = COLUMNS
    lines = [_row(record) for record in snapshot]
    slots = ["; ".join(filter(None, map(_slots, record["slots"]))) for record in snapshot]
    for name, cells in (("slots", slots), ("rate left", list(map(_rate, snapshot)))):
        if any(cells):
            columns = (*columns, name)
            lines = [(*line, cell) for line, cell in zip(lines, cells, strict=True)]
    return columns, lines


def _rate(record: dict[str, Any]) -> str:
    rate = record["rate"] or {"left": {}}
    left = [f"{tenant} {n} of {rate['jobs']}" for tenant, n in rate["left"].items()]
    return ", ".join([*left[:MAX_TENANTS_SHOWN], *["…"][: len(left) > MAX_TENANTS_SHOWN]])


def _slots(record: dict[str, Any]) -> str:
    state, slots = record["state"], record["slots"]
    if not record["used"]:
        return ""
    if record["per"] == "queue":
        return f"{state} {record['used']} of {slots}"
    fullest = list(record["fullest"].items())
    tenants = [f"{tenant} {used} of {slots}" for tenant, used in fullest[:MAX_TENANTS_SHOWN]]
    return f"{state} {', '.join(tenants)}{', …' if len(fullest) > MAX_TENANTS_SHOWN else ''}"


def _row(record: dict[str, Any]) -> tuple[Any, ...]:
    waited = record["oldest_due_s"]
    oldest = None if waited is None else terminal.format_duration(waited)
    states = terminal.format_counts(record["states"]) if record["reachable"] else "not reachable"
    paused = ", ".join(
        (pause["tenant"] or "all") + (f" ({pause['reason']})" if pause["reason"] else "") for pause in record["paused"]
    )
    return record["queue"], record["jobs"], states, oldest, record["lease_over"], paused
