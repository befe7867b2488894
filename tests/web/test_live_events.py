"""Live events: what watchers of a queue are sent, and how a stream ends."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request

from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Unavailable
from kesin.web import live as live_module
from kesin.web.routes import operator
from tests.web.conftest import ROOT, World, actor, by_cookie, error_of


class Stream:
    """The event stream of one watcher, read event by event."""

    def __init__(self, world: World, who: Actor = ROOT, headers: dict[str, str] | None = None) -> None:
        self.world = world
        self.watch = world.service.live.watch("task")
        raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
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
            self.request, world.service, replace(who, request_id="watching"), self.watch
        )

    async def next(self) -> str:
        return await asyncio.wait_for(anext(self.events), 20)

    async def poll(self) -> None:
        """Poll once, in this thread."""
        self.world.service.live.poll()
        await asyncio.sleep(0)

    async def stats(self) -> dict[str, Any]:
        """The counts after the next poll."""
        await self.poll()
        event = (await self.next()).splitlines()
        assert event[1] == "event: stats"
        stats: dict[str, Any] = json.loads(event[2].removeprefix("data: "))
        return stats

    async def ends(self) -> None:
        with pytest.raises(StopAsyncIteration):
            await self.next()
        assert len(self.world.service.live._watches) == 0


async def _never() -> Any:
    await asyncio.Event().wait()


def run(
    world: World, story: Callable[[Stream], Awaitable[None]], who: Actor = ROOT, headers: dict[str, str] | None = None
) -> None:
    """Run a story with a stream whose first line was read."""

    async def begin() -> None:
        stream = Stream(world, who, headers)
        assert await stream.next() == "retry: 2000\n\n"
        await story(stream)

    asyncio.run(begin())


def test_a_watcher_is_sent_the_counts_at_the_first_poll_and_after_a_change(world):
    world.job()

    async def story(stream: Stream) -> None:
        assert (await stream.stats())["states"]["ready"] == 1
        await stream.poll()
        assert not stream.watch.changed.is_set()
        world.job()
        assert (await stream.stats())["states"]["ready"] == 2
        later = Stream(world)  # is sent the counts though nothing changed
        await later.next()
        assert (await later.stats())["total"] == 2

    run(world, story)


def test_moves_that_leave_every_count_as_it_was_are_sent(world):
    failed, ready = world.failed(), world.job()

    async def story(stream: Stream) -> None:
        before = await stream.stats()
        world.task.act("requeue", actor="t", ids=[failed])
        world.task.act("cancel", actor="t", ids=[ready])
        assert (await stream.stats())["states"] == before["states"]

    run(world, story)


def test_a_watcher_learns_nothing_of_another_site(world):
    world.job("north"), world.job("south")

    async def story(stream: Stream) -> None:
        stats = await stream.stats()
        assert (stats["total"], list(stats["sites"])) == (1, ["north"])
        world.job("south")
        await stream.poll()
        waiting = asyncio.ensure_future(stream.next())
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        world.job("north")
        await stream.poll()
        assert (await waiting).startswith("id: 2\n")

    run(world, story, actor(sites=frozenset({"north"})))


def test_a_stop_ends_every_stream_and_no_new_one_begins(world):
    async def story(stream: Stream) -> None:
        world.service.begin_stop()
        await asyncio.sleep(0)
        await stream.ends()
        with pytest.raises(Unavailable, match="stopping"):
            world.service.live.watch("task")

    run(world, story)
    response = world.client.get("/api/queues/task/events", headers=world.key("read"))
    assert (response.status_code, error_of(response)["code"]) == (503, "unavailable")


def signed_in(world: World) -> tuple[Actor, dict[str, str], Callable[[], object]]:
    world.person("nur", "operator", sites=["north"])
    token = world.token("nur")
    who = world.accounts.session_actor(token, "")
    assert who is not None
    return who, by_cookie(token), lambda: world.accounts.sign_out(who, token)


def with_key(world: World) -> tuple[Actor, dict[str, str], Callable[[], object]]:
    key = world.raw_key("read")
    who = world.accounts.key_actor(key, "")
    assert who is not None
    return who, {"x-api-key": key}, lambda: world.revoke(key)


def test_a_quiet_stream_goes_on_while_its_session_lasts_and_ends_with_it(world, monkeypatch):
    monkeypatch.setattr(operator, "KEEPALIVE_S", 0.01)
    who, headers, end_session = signed_in(world)

    async def story(stream: Stream) -> None:
        assert await stream.next() == ": still here\n\n"
        end_session()
        assert await stream.next() == operator.OVER_EVENT
        await stream.ends()

    run(world, story, who, headers)


@pytest.mark.parametrize(
    ("enter", "wait_s"),
    [(signed_in, operator.SESSION_CHECK_S), (with_key, operator.KEEPALIVE_S)],
    ids=["session", "key"],
)
def test_a_busy_stream_ends_with_its_session_or_key(enter, wait_s, world):
    who, headers, end = enter(world)

    async def story(stream: Stream) -> None:
        world.job()
        assert (await stream.stats())["total"] == 1
        end()
        world.clock.advance(wait_s)
        world.job()
        await stream.poll()
        assert await stream.next() == operator.OVER_EVENT
        await stream.ends()

    run(world, story, who, headers)


def test_the_number_of_watchers_is_limited_and_an_unread_stream_is_forgotten(world, monkeypatch):
    monkeypatch.setattr(live_module, "MAX_WATCHERS", 2)
    live = world.service.live

    async def story(_first: Stream) -> None:
        unread = Stream(world)
        with pytest.raises(Unavailable, match="2 event streams are open"):
            live.watch("task")
        del unread
        gc.collect()
        assert len(live._watches) == 1
        live.leave(live.watch("task"))
        live.watch("task")

    run(world, story)
