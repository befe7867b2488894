"""Server-sent events: what a watcher is sent, and when the sending ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from fastapi import Request

from kesin.foundation.access import Actor
from kesin.store.records import QueueStats
from kesin.web import bodies
from kesin.web.auth import still
from kesin.web.live import Watch
from kesin.web.service import Service

QUIET_S: Final = 15.0  # proxies cut what is silent for longer
ASKED_S: Final = 3.0  # a session that was ended elsewhere is noticed after so long
OVER: Final = "event: over\ndata: {}\n\n"  # who comes back would be refused


async def events(
    request: Request, service: Service, actor: Actor, watch: Watch
) -> AsyncIterator[str]:
    """Counts whenever they change; ends when the watcher leaves, signs out or the service stops."""
    number = 0
    last: QueueStats | None = None
    sent = asked = service.clock.monotonic()
    try:
        yield "retry: 2000\n\n"
        while not watch.over:
            now = service.clock.monotonic()
            quiet_in, ask_in = sent + QUIET_S - now, asked + ASKED_S - now
            woken = await _changes(watch, min(quiet_in, ask_in))
            now = service.clock.monotonic()
            # Told by what was sent to this one: other sites' moves must not show in the pauses.
            quiet = now - sent >= QUIET_S or not (woken or ask_in < quiet_in)
            if quiet or not woken or now - asked >= ASKED_S:
                if await request.is_disconnected():
                    return
                if not await still(request, actor):
                    yield OVER
                    return
                asked = now
            if quiet:
                sent = now
                yield ": still here\n\n"
            if not woken:
                continue
            watch.changed.clear()
            if watch.stats is None:
                continue
            shown = service.commands.seen(actor, watch.stats)
            if last is not None and _same(last, shown):
                continue  # another site's rows moved, which is none of this watcher's business
            last = shown
            number += 1
            sent = service.clock.monotonic()
            data = bodies.stats_body(shown).model_dump()
            yield f"id: {number}\nevent: stats\ndata: {json.dumps(data)}\n\n"
    finally:
        service.live.leave(watch)


def _same(before: QueueStats, after: QueueStats) -> bool:
    return replace(before, now=after.now) == after and before.moves == after.moves


async def _changes(watch: Watch, within_s: float) -> bool:
    """Whether the watcher is told something in time."""
    try:
        await asyncio.wait_for(watch.changed.wait(), max(within_s, 0.01))
    except TimeoutError:
        return False
    return True
