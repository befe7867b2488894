"""The operator's API: what is listed, shown and moved, and what those who watch are sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kesin.foundation.clock import iso
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change
from tests.web.conftest import World, error_of

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
    moves = {(move["action"], tuple(move["from"]), move["to"]) for move in told["moves"]}
    assert ("cancel", ("ready",), "failed") in moves
    assert told["mermaid"].startswith("stateDiagram")
    assert told["bound"] is None or told["bound"] > 0


def test_a_lifecycle_names_each_action_under_its_old_key_too(world, boss):
    moves = world.client.get("/api/queues/task/lifecycle", headers=boss).json()["moves"]
    assert moves
    assert all(move["call"] == move["action"] for move in moves)


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
