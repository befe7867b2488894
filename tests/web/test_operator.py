"""The operator's API: what is listed, shown and moved, and what those who watch are sent."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import Request

from kesin.engine.accounts import at_request
from kesin.foundation.access import Actor
from kesin.foundation.clock import iso
from kesin.foundation.problems import Unavailable
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change
from kesin.web import live as live_module
from kesin.web import stream
from tests.web.conftest import ROOT, World, actor, by_cookie, error_of

NO_JOB = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def boss(world: World) -> dict[str, str]:
    return world.key("admin")


def fail(world: World, code: str, category: Category) -> str:
    """Claim the oldest job that is due and let it fail."""
    [job] = world.task.claim("w1")
    change = Change(
        job.id,
        job.claim_seq,
        error_code=code,
        error_category=category.value,
        error_message="the order of Ayse" if code == "BAD_INPUT" else "no",
    )
    world.task.apply("fail", [change], actor="w1")
    return job.id


# Queues


def test_a_queue_tells_its_states_and_what_an_operator_can_ask(world, boss):
    queues = {one["name"]: one for one in world.client.get("/api/queues", headers=boss).json()}
    ours = {"oci", "pdf", "pdf_batches", "pdf_webhooks", "optiplan"}
    assert queues.keys() == {*ours, "task"}
    task = queues["task"]
    assert (task["lifecycle"], task["summary"], task["sited"]) == ("task", "Anything", True)
    assert [one["name"] for one in task["states"]] == ["ready", "running", "done", "failed"]
    assert task["actions"] == ["requeue", "cancel"]
    assert task["paused"] == []
    assert not queues["pdf"]["sited"]


def test_stats_count_by_state_and_site(world, boss):
    world.job("north"), world.job("south"), world.failed("south")
    stats = world.client.get("/api/queues/task/stats", headers=boss).json()
    assert stats["total"] == 3
    assert stats["states"] == {"ready": 2, "running": 0, "done": 0, "failed": 1}
    assert stats["sites"]["south"] == {"ready": 1, "running": 0, "done": 0, "failed": 1}
    assert stats["now"] == stats["oldest_due_at"] == iso(world.clock.time_us)


def test_stats_of_one_site_count_that_site(world, boss):
    world.job("north"), world.job("south"), world.job("south")
    stats = world.client.get("/api/queues/task/stats?site=south", headers=boss).json()
    assert (stats["total"], list(stats["sites"])) == (2, ["south"])


def test_a_lifecycle_is_told_as_data_and_as_a_picture(world, boss):
    told = world.client.get("/api/queues/task/lifecycle", headers=boss).json()
    assert told["name"] == "task"
    moves = {(one["call"], tuple(one["from"]), one["to"]) for one in told["moves"]}
    assert ("cancel", ("ready",), "failed") in moves
    assert told["mermaid"].startswith("stateDiagram")
    assert told["bound"] is None or told["bound"] > 0


# Filters, one by one

T0_S = 1_700_000_000
FILTERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "none": ({}, {"first", "second", "bad", "auth", "south"}),
    "state": ({"state": "failed"}, {"bad", "auth"}),
    "states": ({"state": ["failed", "ready"]}, {"first", "second", "bad", "auth", "south"}),
    "state nobody is in": ({"state": "done"}, set()),
    "site": ({"site": "south"}, {"south"}),
    "sites": ({"site": ["south", "nowhere"]}, {"south"}),
    "code": ({"code": "BAD_INPUT"}, {"bad"}),
    "codes": ({"code": ["BAD_INPUT", "NO_LOGIN"]}, {"bad", "auth"}),
    "category": ({"category": "AUTH"}, {"auth"}),
    "categories": ({"category": ["AUTH", "VALIDATION"]}, {"bad", "auth"}),
    "key": ({"key": "first"}, {"first"}),
    "part of a key": ({"key": "firs"}, set()),
    "text of the error": ({"text": "OF AYS"}, {"bad"}),
    "text that is no pattern": ({"text": "%"}, set()),
    "created from": (
        {"created_from": iso((T0_S + 30) * 1_000_000)},
        {"second", "south"},
    ),
    "created before": (
        {"created_before": iso((T0_S + 20) * 1_000_000)},
        {"bad", "auth"},
    ),
    "moved before": (
        {"moved_before": iso((T0_S + 40) * 1_000_000)},
        {"bad", "auth", "first", "second"},
    ),
    "all of them": ({"state": "failed", "category": "AUTH", "code": "NO_LOGIN"}, {"auth"}),
    "none of them": ({"state": "failed", "category": "AUTH", "code": "BAD_INPUT"}, set()),
}


@pytest.fixture(scope="module")
def listed(shared_world: World) -> World:
    """The same, for those who only read."""
    return filled(shared_world)


@pytest.fixture
def five(world: World) -> World:
    return filled(world)


def filled(world: World) -> World:
    """Two failed at 0 s and 10 s, three ready at 20, 30 and 40 s, the last one of the south."""
    codes = {"bad": ("BAD_INPUT", Category.VALIDATION), "auth": ("NO_LOGIN", Category.AUTH)}
    for key in ("bad", "auth", "first", "second", "south"):
        world.job("south" if key == "south" else "north", key=key)
        if key in codes:
            fail(world, *codes[key])
        world.clock.advance(10)
    return world


def keys(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [one["key"] for one in answer.json()["jobs"]]


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_lists_what_fits(name, listed):
    params, expected = FILTERS[name]
    answer = listed.client.get("/api/queues/task/jobs", params=params, headers=listed.key("read"))
    assert set(keys(answer)) == expected


BODY_NAMES = {"state": "states", "site": "sites", "code": "codes", "category": "categories"}


@pytest.mark.parametrize("name", FILTERS)
def test_an_action_by_filter_meets_what_the_same_filter_lists(name, listed):
    params, expected = FILTERS[name]
    chosen = {
        BODY_NAMES.get(one, one): [value] if one in BODY_NAMES and isinstance(value, str) else value
        for one, value in params.items()
    }
    asked = {"action": "cancel", "filter": chosen, "dry_run": True}
    answer = listed.client.post(
        "/api/queues/task/actions", json=asked, headers=listed.key("operate")
    ).json()
    assert answer["matched"] == len(expected)


def test_jobs_are_listed_newest_first_without_what_they_carry(five, boss):
    answer = five.client.get("/api/queues/task/jobs", headers=boss)
    assert keys(answer) == ["south", "second", "first", "auth", "bad"]
    assert not {"payload", "result"} & answer.json()["jobs"][0].keys()


# Pages


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_pages_visit_each_job_once(limit, either_world):
    ids = [either_world.job() for _ in range(5)]
    headers, seen, cursor = either_world.key("read"), [], None
    for _ in range(len(ids) + 1):
        params = {"limit": limit} | ({"cursor": cursor} if cursor else {})
        page = either_world.client.get("/api/queues/task/jobs", params=params, headers=headers)
        assert len(page.json()["jobs"]) <= limit
        seen += [one["id"] for one in page.json()["jobs"]]
        cursor = page.json()["cursor"]
        if cursor is None:
            break
        either_world.job()  # a newcomer shifts no page
    assert seen == ids[::-1]


# Actions


def act(world: World, headers: dict[str, str], queue: str = "task", **sent: Any) -> Any:
    return world.client.post(f"/api/queues/{queue}/actions", json=sent, headers=headers)


def test_an_action_by_ids_tells_what_became_of_each_in_order(either_world):
    world = either_world
    failed, ready = world.failed(), world.job()
    [claimed] = world.task.claim("w1")
    assert claimed.id == ready
    other = world.failed("south")
    ids = [NO_JOB, failed, ready, "nonsense", other]
    answer = act(world, world.key("operate"), action="requeue", ids=ids).json()
    outcomes = [(one["id"], one["result"], one["state"]) for one in answer["outcomes"]]
    assert outcomes == [
        (NO_JOB, "unknown", None),
        (failed, "moved", "ready"),
        (ready, "refused", "running"),
        ("nonsense", "unknown", None),
        (other, "moved", "ready"),
    ]
    assert (answer["dry_run"], answer["matched"], answer["moved"]) == (False, 5, 2)
    assert sum(answer["refused"].values()) == 3
    assert world.state(failed) == world.state(other) == "ready"


def test_an_action_by_filter_moves_all_that_match(five, boss):
    answer = act(five, boss, action="requeue", filter={"states": ["failed"]}).json()
    assert (answer["matched"], answer["moved"], answer["refused"]) == (2, 2, {})
    assert five.task.stats().states["ready"] == 5


def test_a_dry_run_changes_nothing(five, boss):
    before = five.task.jobs().jobs
    answer = act(five, boss, action="requeue", filter={}, dry_run=True).json()
    assert answer["by_state"] == {"ready": 3, "failed": 2}
    assert (answer["dry_run"], answer["matched"], answer["moved"]) == (True, 5, 2)
    assert (answer["already"], answer["refused"], answer["more"]) == (3, {}, False)
    assert answer["outcomes"] == []
    assert five.task.jobs().jobs == before


def test_a_dry_run_by_ids_counts_each_job_once(five, boss):
    ids = [one.id for one in five.task.jobs().jobs] * 2
    answer = act(five, boss, action="requeue", ids=[*ids, NO_JOB], dry_run=True).json()
    assert (answer["matched"], answer["moved"]) == (5, 2)


def test_the_reason_of_an_action_is_in_the_jobs_history(world, boss):
    job = world.job()
    act(world, boss, action="cancel", ids=[job], reason="the customer called")
    events = world.client.get(f"/api/jobs/{job}", headers=boss).json()["events"]
    assert events[-1]["note"] == {"reason": "the customer called"}
    assert events[-1]["actor"].startswith("key:")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"action": "cancel"}, "bad_selection"),
        ({"action": "cancel", "ids": [], "filter": {}}, "bad_selection"),
        ({"action": "claim", "ids": []}, "unknown_call"),
        ({"action": "complete", "ids": []}, "unknown_call"),
        ({"action": "explode", "filter": {}}, "unknown_call"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_an_action_that_makes_no_sense_is_told_so(sent, code, dry_run, world, boss):
    answer = act(world, boss, dry_run=dry_run, **sent)
    assert (answer.status_code, error_of(answer)["code"]) == (422, code)


def test_one_action_takes_a_thousand_ids_and_no_more(world, boss):
    assert act(world, boss, action="cancel", ids=[NO_JOB] * 1_000).json()["matched"] == 1_000
    assert act(world, boss, action="cancel", ids=[NO_JOB] * 1_001).status_code == 422


def test_an_operators_option_reaches_the_move(world, boss):
    answer = act(world, boss, "oci", action="RESET_TO_QUEUED", ids=[NO_JOB], options=["nonsense"])
    assert answer.status_code == 422
    assert "nonsense" in error_of(answer)["message"]


# Pauses


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(world, boss):
    world.job()
    paused = world.client.post("/api/queues/task/pause", json={}, headers=boss)
    assert paused.json() == {"paused": [""]}
    assert world.task.claim("w1") == []
    resumed = world.client.post("/api/queues/task/resume", json={}, headers=boss)
    assert resumed.json() == {"paused": []}
    assert len(world.task.claim("w1")) == 1


def test_a_paused_site_leaves_the_others_at_work(world):
    world.job("north"), world.job("south")
    headers = world.key("operate", site="north")
    paused = world.client.post("/api/queues/task/pause", json={"site": "north"}, headers=headers)
    assert paused.json() == {"paused": ["north"]}
    assert [one.tenant for one in world.task.claim("w1", limit=5)] == ["south"]
    world.client.post("/api/queues/task/resume", json={"site": "north"}, headers=headers)
    assert [one.tenant for one in world.task.claim("w1", limit=5)] == ["north"]


def test_whoever_has_one_site_sees_the_pause_of_the_whole_and_none_of_others(world):
    world.task.pause(actor="x")
    world.task.pause(actor="x", tenant="south")
    [queue] = [
        one
        for one in world.client.get("/api/queues", headers=world.key("read", site="north")).json()
        if one["name"] == "task"
    ]
    assert queue["paused"] == [""]


# A job


def test_a_job_is_shown_with_its_history_and_what_can_be_done(world, boss):
    job = world.job(payload={"a": [1, None, "ş"]}, key="k")
    world.clock.advance(1)
    fail(world, "BROKEN", Category.PERMANENT)
    told = world.client.get(f"/api/jobs/{job}", headers=boss).json()
    assert told["payload"] == {"a": [1, None, "ş"]}
    assert told["result"] is None
    assert told["actions"] == ["requeue"]
    assert [(one["move"], one["from_state"], one["to_state"]) for one in told["events"]] == [
        ("enqueue", "", "ready"),
        ("claim", "ready", "running"),
        ("fail", "running", "failed"),
    ]
    assert told["events"][-1]["error_code"] == "BROKEN"
    shown = told["job"]
    assert (shown["id"], shown["queue"], shown["site"], shown["key"]) == (job, "task", "north", "k")
    assert (shown["state"], shown["claimed"], shown["attempts"]) == ("failed", False, 1)
    assert shown["created_at"] == "2023-11-14T22:13:20.000000Z"
    assert shown["moved_at"] == "2023-11-14T22:13:21.000000Z"


def test_a_claimed_job_shows_its_worker_and_lease(world, boss):
    job = world.job()
    world.task.claim("w1")
    shown = world.client.get(f"/api/jobs/{job}", headers=boss).json()["job"]
    assert (shown["claimed"], shown["worker"]) == (True, "w1")
    assert shown["lease_until"] == "2023-11-14T22:14:20.000000Z"


def test_a_payload_nested_deeper_than_an_answer_can_be_is_shown_as_text(world, boss):
    deep: Any = "bottom"
    for _ in range(400):
        deep = [deep]
    job = world.job(payload=deep)
    answer = world.client.get(f"/api/jobs/{job}", headers=boss)
    assert answer.status_code == 200
    assert json.loads(answer.json()["payload"]) == deep


@pytest.mark.parametrize("name", ["nonsense", "-" * 36, NO_JOB])
def test_a_job_that_is_not_there_is_not_found(name, either_world):
    answer = either_world.client.get(f"/api/jobs/{name}", headers=either_world.key("read"))
    assert answer.status_code in ({404} if len(name) == 36 else {422})


# By hand


def enqueue(world: World, headers: dict[str, str], *jobs: dict[str, Any]) -> Any:
    path = "/api/queues/task/jobs"
    return world.client.post(path, json={"jobs": list(jobs)}, headers=headers)


def test_each_job_of_a_batch_is_inserted_a_duplicate_or_rejected(either_world):
    world = either_world
    there = world.job("north", key="there")
    answer = enqueue(
        world,
        world.key("admin"),
        {"payload": {"n": 1}, "key": "new", "site": "north"},
        {"payload": {"n": 2}, "key": "there", "site": "north"},
        {"payload": "x" * 300_000, "site": "north"},
        {"payload": {"n": 3}, "key": "new", "site": "north"},
        {"payload": {"n": 4}, "key": "there", "site": "south"},
    )
    assert answer.status_code == 201
    first, second, third, fourth, fifth = answer.json()["jobs"]
    assert first["result"] == fifth["result"] == "inserted"
    assert (second["result"], second["id"]) == ("duplicate", there)
    assert (third["result"], third["id"], third["code"]) == ("rejected", None, "payload_too_large")
    assert (fourth["result"], fourth["id"]) == ("duplicate", first["id"])
    assert world.found(first["id"]).data == {"n": 1}
    assert world.found(fifth["id"]).tenant == "south"


def test_a_job_by_hand_can_wait_and_have_a_budget_of_its_own(world, boss):
    answer = enqueue(
        world, boss, {"payload": 1, "run_at": "2030-01-01T00:00:00+03:00", "max_attempts": 2}
    )
    job = world.found(answer.json()["jobs"][0]["id"])
    assert iso(job.run_at) == "2029-12-31T21:00:00.000000Z"
    assert job.attempts_left == 2


@pytest.mark.parametrize(
    "job",
    [{}, {"payload": 1, "key": ""}, {"payload": 1, "max_attempts": 0}, {"payload": 1, "x": 1}],
)
def test_a_batch_with_a_wrong_field_enqueues_nothing(job, world, boss):
    assert enqueue(world, boss, {"payload": 1}, job).status_code == 422
    assert world.task.stats().total == 0


# Watching


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
        self.events: AsyncIterator[str] = stream.events(
            self.request, world.service, at_request(who, "watching"), self.watch
        )

    async def next(self) -> str:
        return await asyncio.wait_for(anext(self.events), 20)

    async def look(self) -> None:
        """Let the looking thread look once; here it is this one."""
        self.world.service.live.look()
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
    monkeypatch.setattr(stream, "QUIET_S", 0.01)
    who, headers, token = signed_in(world)

    async def story(watching: Watching) -> None:
        await watching.next()
        assert await watching.next() == ": still here\n\n"
        world.accounts.sign_out(who, token)
        assert await watching.next() == stream.OVER
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
        world.clock.advance(stream.ASKED_S)
        world.job()
        await watching.look()
        assert await watching.next() == stream.OVER
        await watching.ends()

    watching(world, story, who=who, headers=headers)


def test_a_busy_watch_ends_when_its_key_is_revoked(world):
    key = world.raw_key("read")
    who = world.accounts.key_actor(key, "")
    assert who is not None

    async def story(watching: Watching) -> None:
        await watching.next()
        world.revoke(key)
        world.clock.advance(stream.QUIET_S)
        world.job()
        await watching.look()
        assert await watching.next() == stream.OVER
        await watching.ends()

    watching(world, story, who=who, headers={"x-api-key": key})


def test_there_are_only_so_many_watchers(world, monkeypatch):
    monkeypatch.setattr(live_module, "MOST_WATCHERS", 2)

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
