"""`kesin stats`: queues at a glance, once or until Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Annotated, Any

from kesin.cli.support.arguments import AsJson, QueueNames, flag, option
from kesin.cli.support.context import CommandContext, open_context
from kesin.foundation import terminal
from kesin.foundation.clock import iso
from kesin.store.contract import Store
from kesin.store.errors import StoreUnreachable

COLUMNS = ("queue", "jobs", "states", "oldest due", "lease over", "paused")


def stats(
    queues: QueueNames = None,
    *,
    watch: Annotated[bool, flag("--watch", "Redraw until Ctrl-C.")] = False,
    interval: Annotated[float, option("SECONDS", "The pause between two looks.", min=0.01)] = 2.0,
    count: Annotated[int | None, option("N", "With --watch: stop after N looks.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Count jobs by queue and state.

    Also shows how long the oldest due job waits, leases that are over, and what is paused.
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
        nothing = dict.fromkeys(("jobs", "oldest_due_at", "oldest_due_s", "lease_over"))
        empty: dict[str, Any] = {"states": {}, "tenants": {}, "paused": []}
        return {"queue": name, **nothing, **empty, "reachable": False}
    waited_us = None if stats.oldest_due_at is None else max(stats.now - stats.oldest_due_at, 0)
    return {
        "queue": name,
        "jobs": stats.total,
        "states": stats.states,
        "tenants": stats.tenants,
        "oldest_due_at": iso(stats.oldest_due_at),
        "oldest_due_s": None if waited_us is None else waited_us / 1_000_000,
        "lease_over": stats.lease_over,
        "paused": [
            {"tenant": pause.tenant or None, "reason": pause.reason, "actor": pause.actor}
            for pause in pauses
        ],
        "reachable": True,
    }


def _snapshots(
    context: CommandContext, queues: list[str] | None, interval: float, count: int
) -> Iterator[list[dict[str, Any]]]:
    """Records of the queues, ``count`` times; 0 is for ever."""
    pause = threading.Event()
    done = 0
    while True:
        yield [queue_record(context.store, name) for name in context.readable_queues(queues)]
        done += 1
        if done == count:
            return
        pause.wait(interval)


def _print_tables(snapshots: Iterator[list[dict[str, Any]]], *, live: bool) -> None:
    if not (live and terminal.on_terminal()):
        for snapshot in snapshots:
            terminal.print_table(COLUMNS, rows(snapshot), empty="no queue has been opened yet")
        return
    from rich.live import Live

    with Live(console=terminal.console(), auto_refresh=False, screen=False) as screen:
        for snapshot in snapshots:
            screen.update(terminal.rich_table(COLUMNS, rows(snapshot)), refresh=True)


def rows(snapshot: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [_row(record) for record in snapshot]


def _row(record: dict[str, Any]) -> tuple[Any, ...]:
    waited = record["oldest_due_s"]
    oldest = None if waited is None else terminal.format_duration(waited)
    states = terminal.format_counts(record["states"]) if record["reachable"] else "not reachable"
    paused = ", ".join(map(_paused, record["paused"]))
    return record["queue"], record["jobs"], states, oldest, record["lease_over"], paused


def _paused(pause: dict[str, Any]) -> str:
    scope = pause["tenant"] or "all"
    return f"{scope} ({pause['reason']})" if pause["reason"] else scope
