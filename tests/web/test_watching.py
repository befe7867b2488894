"""Live events: what those who watch a queue are sent, and how they are let go."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import Request

from kesin.engine.access.accounts import with_request_id
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Unavailable
from kesin.web import live as live_module
from kesin.web.routes import operator
from tests.web.conftest import ROOT, World, actor, by_cookie, error_of


class Watching:
    """Somebody's stream, read event by event."""

    def __init__(self, world: World, who: Actor, headers: dict[str, str]) -> None:
        self.world = world
        self.watch = world.service.live.watch("task")
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http",
            "app": world.app,
            "method": "GET",
            "path": "/api/queues/task/events",
            "client": ("192.0.2.7", 1),
            "headers": raw,
            "state": {"request_id": "watching"},
        }
        self.request = Request(scope, receive=_never)
        self.events: AsyncIterator[str] = operator.events(
            self.request, world.service, with_request_id(who, "watching"), self.watch
        )

    async def next(self) -> str:
        return await asyncio.wait_for(anext(self.events), 20)

    async def look(self) -> None:
        """Let the looking thread look once; here it is this one."""
        self.world.service.live.poll()
        await asyncio.sleep(0)

    async def stats(self) -> dict[str, Any]:
        event = await self.next()
        assert event.splitlines()[1] == "event: stats"
        told: dict[str, Any] = json.loads(event.splitlines()[2].removeprefix("data: "))
        return told

    async def ends(self) -> None:
        with pytest.raises(StopAsyncIteration):
            await self.next()
        assert self.world.service.live.watchers == 0


async def _never() -> Any:
    await asyncio.Event().wait()


def watching(
    world: World,
    story: Callable[[Watching], Awaitable[None]],
    *,
    who: Actor | None = None,
    headers: dict[str, str] | None = None,
) -> None:
    async def run() -> None:
        await story(Watching(world, who or ROOT, headers or {}))

    asyncio.run(run())


def test_a_watcher_is_sent_the_counts_at_the_first_look_and_after_a_change(world):
    world.job()

    async def story(watching: Watching) -> None:
        assert await watching.next() == "retry: 2000\n\n"
        await watching.look()
        assert (await watching.stats())["states"]["ready"] == 1
        world.job()
        await watching.look()
        assert (await watching.stats())["states"]["ready"] == 2

    watching(world, story)


def test_a_look_without_a_change_tells_nobody(world):
    async def story(watching: Watching) -> None:
        await watching.next()
        await watching.look()
        await watching.stats()
        await watching.look()
        assert not watching.watch.changed.is_set()

    watching(world, story)


def test_moves_that_leave_every_count_as_it_was_are_told(world):
    back, over = world.failed(), world.job()

    async def story(watching: Watching) -> None:
        await watching.next()
        await watching.look()
        before = await watching.stats()
        world.task.act("requeue", actor="t", ids=[back])
        world.task.act("cancel", actor="t", ids=[over])
        await watching.look()
        assert (await watching.stats())["states"] == before["states"]

    watching(world, story)


def test_whoever_comes_later_is_told_at_once_though_nothing_changed(world):
    async def story(first: Watching) -> None:
        await first.look()
        later = Watching(world, ROOT, {})
        await later.next()
        await later.look()
        assert (await later.stats())["total"] == 0

    watching(world, story)


def test_a_watcher_is_sent_the_counts_of_its_sites_alone(world):
    world.job("north"), world.job("south")

    async def story(watching: Watching) -> None:
        await watching.next()
        await watching.look()
        stats = await watching.stats()
        assert (stats["total"], list(stats["sites"])) == (1, ["north"])

    watching(world, story, who=actor(sites=frozenset({"north"})))


def test_a_watcher_does_not_learn_that_another_site_is_busy(world):
    async def story(watching: Watching) -> None:
        await watching.next()
        await watching.look()
        await watching.stats()
        world.job("south")
        await watching.look()
        waiting = asyncio.ensure_future(watching.next())
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        world.job("north")
        await watching.look()
        assert (await waiting).startswith("id: 2\n")

    watching(world, story, who=actor(sites=frozenset({"north"})))


def test_a_stop_ends_every_watch(world):
    async def story(watching: Watching) -> None:
        await watching.next()
        world.service.begin_stop()
        await asyncio.sleep(0)
        await watching.ends()
        with pytest.raises(Unavailable, match="stopping"):
            world.service.live.watch("task")

    watching(world, story)


def signed_in(world: World) -> tuple[Actor, dict[str, str], str]:
    world.person("nur", "operator", sites=["north"])
    token = world.token("nur")
    who = world.accounts.session_actor(token, "")
    assert who is not None
    return who, by_cookie(token), token


def test_a_quiet_watch_goes_on_while_its_session_lasts_and_ends_with_it(world, monkeypatch):
    monkeypatch.setattr(operator, "KEEPALIVE_S", 0.01)
    who, headers, token = signed_in(world)

    async def story(watching: Watching) -> None:
        await watching.next()
        assert await watching.next() == ": still here\n\n"
        world.accounts.sign_out(who, token)
        assert await watching.next() == operator.OVER_EVENT
        await watching.ends()

    watching(world, story, who=who, headers=headers)


def test_a_busy_watch_ends_with_its_session_too(world):
    who, headers, token = signed_in(world)

    async def story(watching: Watching) -> None:
        await watching.next()
        world.job()
        await watching.look()
        assert (await watching.stats())["total"] == 1
        world.accounts.sign_out(who, token)
        world.clock.advance(operator.SESSION_CHECK_S)
        world.job()
        await watching.look()
        assert await watching.next() == operator.OVER_EVENT
        await watching.ends()

    watching(world, story, who=who, headers=headers)


def test_a_busy_watch_ends_when_its_key_is_revoked(world):
    key = world.raw_key("read")
    who = world.accounts.key_actor(key, "")
    assert who is not None

    async def story(watching: Watching) -> None:
        await watching.next()
        world.revoke(key)
        world.clock.advance(operator.KEEPALIVE_S)
        world.job()
        await watching.look()
        assert await watching.next() == operator.OVER_EVENT
        await watching.ends()

    watching(world, story, who=who, headers={"x-api-key": key})


def test_there_are_only_so_many_watchers(world, monkeypatch):
    monkeypatch.setattr(live_module, "MAX_WATCHERS", 2)

    async def story(_first: Watching) -> None:
        second = world.service.live.watch("task")
        with pytest.raises(Unavailable, match="2 are watching"):
            world.service.live.watch("task")
        world.service.live.leave(second)
        world.service.live.watch("task")

    watching(world, story)


def test_a_watch_whose_answer_never_began_is_forgotten(world):
    async def story(watching: Watching) -> None:
        never_read = Watching(world, ROOT, {})
        assert world.service.live.watchers == 2
        del never_read
        gc.collect()
        assert world.service.live.watchers == 1
        assert watching.watch.queue == "task"

    watching(world, story)


def test_while_stopping_nobody_begins_to_watch(world):
    world.service.begin_stop()
    answer = world.client.get("/api/queues/task/events", headers=world.key("read"))
    assert (answer.status_code, error_of(answer)["code"]) == (503, "unavailable")
