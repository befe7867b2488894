"""Server-sent events: what a watcher is sent, and when the sending ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from fastapi import Request

from kesin.foundation.access import Actor
from kesin.foundation.problems import Problem
from kesin.store.contract import QueueStats
from kesin.web import bodies
from kesin.web.auth import identify
from kesin.web.live import Watch
from kesin.web.service import Service

QUIET_S: Final = 15.0  # proxies cut what is silent for longer


async def events(
    request: Request, service: Service, actor: Actor, watch: Watch
) -> AsyncIterator[str]:
    """Counts whenever they change; ends when the watcher leaves, signs out or the service stops."""
    number = 0
    last: QueueStats | None = None
    sent = service.clock.monotonic()
    try:
        yield "retry: 2000\n\n"
        while not watch.over:
            try:
                spent = service.clock.monotonic() - sent
                await asyncio.wait_for(watch.changed.wait(), max(QUIET_S - spent, 0.01))
                quiet = False
            except TimeoutError:
                quiet = True
            # Told by what was sent to this one: other sites' moves must not show in the pauses.
            if quiet or service.clock.monotonic() - sent >= QUIET_S:
                if await request.is_disconnected() or not await _still(request, actor):
                    return
                sent = service.clock.monotonic()
                yield ": still here\n\n"
            if quiet:
                continue
            watch.changed.clear()
            if watch.stats is None:
                continue
            shown = service.commands.seen(actor, watch.stats)
            if last is not None and replace(last, now=shown.now) == shown:
                continue  # another site's rows moved, which is none of this watcher's business
            last = shown
            number += 1
            sent = service.clock.monotonic()
            data = bodies.stats_body(shown).model_dump()
            yield f"id: {number}\nevent: stats\ndata: {json.dumps(data)}\n\n"
    finally:
        service.live.leave(watch)


async def _still(request: Request, actor: Actor) -> bool:
    """Whether the session or key that began this is still good."""
    try:
        await identify(request)
    except Problem:
        return False
    return bool(request.state.actor.name == actor.name)
