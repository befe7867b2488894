"""`kesin stats`: queues at a glance, once or until Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kesin.cli.support.arguments import AsJson, QueueNames

if TYPE_CHECKING:
    from kesin.cli.support.context import Desk
    from kesin.store.contract import Store

COLUMNS = ("queue", "jobs", "states", "oldest due", "lease over", "paused")


def stats(
    queues: QueueNames = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Redraw until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.01, metavar="SECONDS", help="The pause between two looks.")
    ] = 2.0,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --watch: stop after N looks.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count jobs by queue and state.

    Also shows how long the oldest due job waits, leases that are over, and what is paused.
    """
    from kesin.cli.support.context import open_desk

    ending = suppress(KeyboardInterrupt) if watch else nullcontext()
    with open_desk() as desk, ending:
        looks = _looks(desk, queues, interval, (count or 0) if watch else 1)
        if as_json:
            _as_json(looks, lines=watch)
        else:
            _as_tables(looks, live=watch)


def queue_record(store: Store, name: str) -> dict[str, Any]:
    """A queue's numbers."""
    from kesin.foundation.clock import iso
    from kesin.store.errors import StoreUnreachable

    try:
        seen, pauses = store.stats(name), store.paused(name)
    except StoreUnreachable:
        if store.home(name) is store.home(""):
            raise
        return _away(name)
    waited_us = None if seen.oldest_due_at is None else max(seen.now - seen.oldest_due_at, 0)
    return {
        "queue": name,
        "jobs": seen.total,
        "states": seen.states,
        "tenants": seen.tenants,
        "oldest_due_at": iso(seen.oldest_due_at),
        "oldest_due_s": None if waited_us is None else waited_us / 1_000_000,
        "lease_over": seen.lease_over,
        "paused": [
            {"tenant": one.tenant or None, "reason": one.reason, "actor": one.actor}
            for one in pauses
        ],
        "reachable": True,
    }


def _away(name: str) -> dict[str, Any]:
    """A queue whose store does not answer; the others may live elsewhere."""
    nothing = dict.fromkeys(("jobs", "oldest_due_at", "oldest_due_s", "lease_over"))
    empty: dict[str, Any] = {"states": {}, "tenants": {}, "paused": []}
    return {"queue": name, **nothing, **empty, "reachable": False}


def _looks(
    desk: Desk, queues: list[str] | None, interval: float, count: int
) -> Iterator[list[dict[str, Any]]]:
    """What the queues look like, again and again; ``count`` 0 is for ever."""
    pause = threading.Event()
    done = 0
    while True:
        yield [queue_record(desk.store, name) for name in desk.all_or(queues)]
        done += 1
        if done == count:
            return
        pause.wait(interval)


def _as_json(looks: Iterator[list[dict[str, Any]]], *, lines: bool) -> None:
    from kesin.cli.support.output import say_json

    for look in looks:
        say_json(look, line=lines)


def _as_tables(looks: Iterator[list[dict[str, Any]]], *, live: bool) -> None:
    from kesin.cli.support.output import console, on_terminal, print_table, rich_table

    if not (live and on_terminal()):
        for look in looks:
            print_table(COLUMNS, rows(look), empty="no queue has been opened yet")
        return
    from rich.live import Live

    with Live(console=console(), auto_refresh=False, screen=False) as screen:
        for look in looks:
            screen.update(rich_table(COLUMNS, rows(look)), refresh=True)


def rows(look: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The lines of the table."""
    from kesin.cli.support.output import lasting, tally

    return [
        (
            one["queue"],
            one["jobs"],
            tally(one["states"]) if one["reachable"] else "not reachable",
            None if one["oldest_due_s"] is None else lasting(one["oldest_due_s"]),
            one["lease_over"],
            ", ".join(_paused(pause) for pause in one["paused"]),
        )
        for one in look
    ]


def _paused(pause: dict[str, Any]) -> str:
    what = pause["tenant"] or "all"
    return f"{what} ({pause['reason']})" if pause["reason"] else what
