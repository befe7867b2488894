"""The operator's API: what is listed, shown, moved, paused and enqueued."""

import json
from dataclasses import replace
from typing import Any

import pytest

from kesin import Queue, task_lifecycle
from kesin.engine.queue import apply_changes
from kesin.foundation.clock import iso
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change
from kesin.lifecycle.moves import prioritize
from tests.tables import table
from tests.web.conftest import World, error_of

NO_JOB = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def admin(world: World) -> dict[str, str]:
    return world.key("admin")


def fail(world: World, code: str, category: Category) -> str:
    """Claim the oldest job that is due and let it fail."""
    [job] = world.task.claim("w1")
    message = "the order of Ayse" if code == "BAD_INPUT" else "no"
    change = Change(job.id, job.claim_seq, code, category.value, message)
    apply_changes(world.task, "fail", [change], actor="w1")
    return job.id


# Queues


def test_a_queue_is_listed_with_its_states_and_actions(world, admin):
    listed = world.client.get("/api/queues", headers=admin).json()
    queues = {queue["name"]: queue for queue in listed}
    assert queues.keys() == {*("oci", "oci_adjustments", "pdf", "pdf_batches", "pdf_webhooks", "optiplan", "task")}
    task = queues["task"]
    assert (task["lifecycle"], task["summary"], task["sited"]) == ("task", "Anything", True)
    assert [state["name"] for state in task["states"]] == ["ready", "running", "done", "failed"]
    assert task["actions"] == ["requeue", "dismiss", "cancel"]
    assert task["paused"] == []
    assert not queues["pdf"]["sited"]


def test_stats_count_by_state_and_site(world, admin):
    world.job("north"), world.job("south"), world.failed("south")
    stats = world.client.get("/api/queues/task/stats", headers=admin).json()
    assert stats["total"] == 3
    assert stats["states"] == {"ready": 2, "running": 0, "done": 0, "failed": 1}
    assert stats["sites"]["south"] == {"ready": 1, "running": 0, "done": 0, "failed": 1}
    assert stats["now"] == stats["oldest_due_at"] == iso(world.clock.time_us)
    of_south = world.client.get("/api/queues/task/stats?site=south", headers=admin).json()
    assert (of_south["total"], list(of_south["sites"])) == (2, ["south"])


def test_a_lifecycle_is_shown_as_data_and_as_a_diagram(shared_world):
    headers = shared_world.key("read")
    lifecycle = shared_world.client.get("/api/queues/task/lifecycle", headers=headers).json()
    assert lifecycle["name"] == "task"
    moves = {(move["action"], tuple(move["from"]), move["to"]) for move in lifecycle["moves"]}
    assert ("cancel", ("ready",), "failed") in moves
    assert all(move["call"] == move["action"] for move in lifecycle["moves"])  # the old key
    assert lifecycle["mermaid"].startswith("stateDiagram")
    assert lifecycle["bound"] is None or lifecycle["bound"] > 0


# Filters, one by one

T0_S = 1_700_000_000
FILTERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "none": ({}, {"first", "second", "bad", "auth", "south"}),
    "state": ({"state": "failed"}, {"bad", "auth"}),
    "states": ({"state": ["failed", "ready"]}, {"first", "second", "bad", "auth", "south"}),
    "site": ({"site": "south"}, {"south"}),
    "code": ({"code": "BAD_INPUT"}, {"bad"}),
    "category": ({"category": "AUTH"}, {"auth"}),
    "key": ({"key": "first"}, {"first"}),
    "text of the error": ({"text": "OF AYS"}, {"bad"}),
    "created from": ({"created_from": iso((T0_S + 30) * 1_000_000)}, {"second", "south"}),
    "created before": ({"created_before": iso((T0_S + 20) * 1_000_000)}, {"bad", "auth"}),
    "moved before": ({"moved_before": iso((T0_S + 40) * 1_000_000)}, {"bad", "auth", "first", "second"}),
    "all of them": ({"state": "failed", "category": "AUTH", "code": "NO_LOGIN"}, {"auth"}),
}


@pytest.fixture(scope="module")
def listed(shared_world: World) -> World:
    """The same, for tests that only read."""
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


def keys(response: Any) -> list[str]:
    assert response.status_code == 200, response.text
    return [job["key"] for job in response.json()["jobs"]]


LISTS = {"state": "states", "site": "sites", "code": "codes", "category": "categories"}


@table("name", FILTERS)
def test_a_filter_lists_what_matches_and_an_action_by_it_matches_the_same(name, listed):
    params, expected = FILTERS[name]
    headers = listed.key("operate")
    response = listed.client.get("/api/queues/task/jobs", params=params, headers=headers)
    assert set(keys(response)) == expected
    chosen = {
        LISTS.get(field, field): [value] if field in LISTS and isinstance(value, str) else value
        for field, value in params.items()
    }
    dry_run = act(listed, headers, action="cancel", filter=chosen, dry_run=True).json()
    assert dry_run["matched"] == len(expected)


def test_jobs_are_listed_newest_first_without_what_they_carry(five, admin):
    answer = five.client.get("/api/queues/task/jobs", headers=admin)
    assert keys(answer) == ["south", "second", "first", "auth", "bad"]
    assert not {"payload", "result"} & answer.json()["jobs"][0].keys()


# Pages


def test_pages_visit_each_job_once(world):
    ids = [world.job() for _ in range(5)]
    headers, seen, cursor = world.key("read"), [], None
    for _ in range(len(ids) + 1):
        params = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = world.client.get("/api/queues/task/jobs", params=params, headers=headers)
        assert len(page.json()["jobs"]) <= 3
        seen += [job["id"] for job in page.json()["jobs"]]
        cursor = page.json()["cursor"]
        if cursor is None:
            break
        world.job()  # a new job shifts no page
    assert seen == ids[::-1]


# Actions


def act(world: World, headers: dict[str, str], queue: str = "task", **sent: Any) -> Any:
    return world.client.post(f"/api/queues/{queue}/actions", json=sent, headers=headers)


def test_an_action_by_ids_reports_each_in_order(world):
    failed, ready = world.failed(), world.job()
    [claimed] = world.task.claim("w1")
    assert claimed.id == ready
    other = world.failed("south")
    ids = [NO_JOB, failed, ready, "nonsense", other]
    answer = act(world, world.key("operate"), action="requeue", ids=ids).json()
    outcomes = [(outcome["id"], outcome["result"], outcome["state"]) for outcome in answer["outcomes"]]
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


def test_an_action_by_filter_moves_all_that_match(five, admin):
    answer = act(five, admin, action="requeue", filter={"states": ["failed"]}).json()
    assert (answer["matched"], answer["moved"], answer["refused"]) == (2, 2, {})
    assert five.task.stats().states["ready"] == 5


def test_a_dry_run_changes_nothing(five, admin):
    before = five.task.jobs().jobs
    answer = act(five, admin, action="requeue", filter={}, dry_run=True).json()
    assert answer["by_state"] == {"ready": 3, "failed": 2}
    assert (answer["dry_run"], answer["matched"], answer["moved"]) == (True, 5, 2)
    assert (answer["already"], answer["refused"], answer["more"]) == (3, {}, False)
    assert answer["outcomes"] == []
    assert five.task.jobs().jobs == before


def test_a_dry_run_by_ids_counts_each_job_once(five, admin):
    ids = [job.id for job in five.task.jobs().jobs] * 2
    answer = act(five, admin, action="requeue", ids=[*ids, NO_JOB], dry_run=True).json()
    assert (answer["matched"], answer["moved"]) == (5, 2)


def test_the_reason_of_an_action_is_in_the_jobs_history(world, admin):
    job = world.job()
    act(world, admin, action="cancel", ids=[job], reason="the customer called")
    events = world.client.get(f"/api/jobs/{job}", headers=admin).json()["events"]
    assert events[-1]["note"] == {"reason": "the customer called"}
    assert events[-1]["actor"].startswith("key:")


@table(
    ("sent", "code"),
    [
        ({"action": "cancel"}, "bad_selection"),
        ({"action": "cancel", "ids": [], "filter": {}}, "bad_selection"),
        ({"action": "claim", "ids": []}, "unknown_call"),
        ({"action": "complete", "ids": []}, "unknown_call"),
        ({"action": "explode", "filter": {}}, "unknown_call"),
    ],
)
def test_an_invalid_action_is_refused_with_a_code(sent, code, shared_world):
    for dry_run in (False, True):
        answer = act(shared_world, shared_world.key("admin"), dry_run=dry_run, **sent)
        assert (answer.status_code, error_of(answer)["code"]) == (422, code)


def test_one_action_takes_a_thousand_ids_and_no_more(shared_world):
    world, admin = shared_world, shared_world.key("admin")
    assert act(world, admin, action="cancel", ids=[NO_JOB] * 1_000).json()["matched"] == 1_000
    assert act(world, admin, action="cancel", ids=[NO_JOB] * 1_001).status_code == 422


def test_an_operators_option_reaches_the_move(shared_world):
    world, admin = shared_world, shared_world.key("admin")
    answer = act(world, admin, "oci", action="RESET_TO_QUEUED", ids=[NO_JOB], options=["nonsense"])
    assert answer.status_code == 422
    assert "nonsense" in error_of(answer)["message"]


# Pauses


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(world, admin):
    world.job()
    paused = world.client.post("/api/queues/task/pause", json={}, headers=admin)
    assert paused.json() == {"paused": [""]}
    assert world.task.claim("w1") == []
    resumed = world.client.post("/api/queues/task/resume", json={}, headers=admin)
    assert resumed.json() == {"paused": []}
    assert len(world.task.claim("w1")) == 1


def test_a_caller_of_one_site_sees_the_pause_of_the_queue_and_not_of_other_sites(world):
    world.task.pause(actor="x")
    world.task.pause(actor="x", tenant="south")
    queues = world.client.get("/api/queues", headers=world.key("read", site="north")).json()
    assert [queue["paused"] for queue in queues if queue["name"] == "task"] == [[""]]


# A job


def test_a_job_is_shown_with_its_history_and_what_can_be_done(world, admin):
    job = world.job(payload={"a": [1, None, "ş"]}, key="k")
    world.clock.advance(1)
    fail(world, "BROKEN", Category.PERMANENT)
    body = world.client.get(f"/api/jobs/{job}", headers=admin).json()
    assert body["payload"] == {"a": [1, None, "ş"]}
    assert body["result"] is None
    assert body["actions"] == ["requeue", "dismiss"]
    assert [(event["move"], event["from_state"], event["to_state"]) for event in body["events"]] == [
        ("enqueue", "", "ready"),
        ("claim", "ready", "running"),
        ("fail", "running", "failed"),
    ]
    assert body["events"][-1]["error_code"] == "BROKEN"
    shown = body["job"]
    assert (shown["id"], shown["queue"], shown["site"], shown["key"]) == (job, "task", "north", "k")
    assert (shown["state"], shown["claimed"], shown["attempts"]) == ("failed", False, 1)
    assert shown["created_at"] == "2023-11-14T22:13:20.000000Z"
    assert shown["moved_at"] == "2023-11-14T22:13:21.000000Z"


def test_a_claimed_job_shows_its_worker_and_lease(world, admin):
    job = world.job()
    world.task.claim("w1")
    shown = world.client.get(f"/api/jobs/{job}", headers=admin).json()["job"]
    assert (shown["claimed"], shown["worker"]) == (True, "w1")
    assert shown["lease_until"] == "2023-11-14T22:14:20.000000Z"


def test_a_payload_nested_too_deeply_for_a_response_is_shown_as_text(world, admin):
    deep: Any = "bottom"
    for _ in range(400):
        deep = [deep]
    job = world.job(payload=deep)
    answer = world.client.get(f"/api/jobs/{job}", headers=admin)
    assert answer.status_code == 200
    assert json.loads(answer.json()["payload"]) == deep


def test_a_job_that_does_not_exist_is_not_found(shared_world):
    headers = shared_world.key("read")
    for job_id, status in (("nonsense", 422), ("-" * 36, 404), (NO_JOB, 404)):
        response = shared_world.client.get(f"/api/jobs/{job_id}", headers=headers)
        assert response.status_code == status


# By hand


def enqueue(world: World, headers: dict[str, str], *jobs: dict[str, Any]) -> Any:
    path = "/api/queues/task/jobs"
    return world.client.post(path, json={"jobs": list(jobs)}, headers=headers)


def test_each_job_of_a_batch_is_inserted_a_duplicate_or_rejected(world):
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
    assert world.found(first["id"]).payload == {"n": 1}
    assert world.found(fifth["id"]).tenant == "south"


def test_a_job_by_hand_can_wait_and_have_a_budget_of_its_own(world, admin):
    answer = enqueue(world, admin, {"payload": 1, "run_at": "2030-01-01T00:00:00+03:00", "max_attempts": 2})
    job = world.found(answer.json()["jobs"][0]["id"])
    assert iso(job.run_at) == "2029-12-31T21:00:00.000000Z"
    assert job.attempts_left == 2


@table(
    ("job", "field"),
    [
        ({}, "payload"),
        ({"payload": 1, "key": ""}, "key"),
        ({"payload": 1, "max_attempts": 0}, "max_attempts"),
        ({"payload": 1, "x": 1}, "x"),
        ({"payload": 1, "key": "k", "once": "always"}, "once"),
        ({"payload": 1, "key": "k", "once": None}, "once"),
        ({"payload": 1, "priority": 3}, "priority"),
        ({"payload": 1, "priority": -2}, "priority"),
        ({"payload": 1, "priority": "high"}, "priority"),
    ],
)
def test_a_batch_with_a_wrong_field_enqueues_nothing(job, field, world, admin):
    answer = enqueue(world, admin, {"payload": 1}, job)
    assert answer.status_code == 422
    assert f"jobs.1.{field}" in error_of(answer)["message"]
    assert world.task.stats().total == 0


def test_a_job_by_hand_of_a_higher_priority_is_claimed_first(world, admin):
    answer = enqueue(world, admin, *({"payload": n, "priority": n} for n in (-1, 1, 2)))
    assert [job.payload for job in world.task.claim("w1", limit=3)] == [2, 1, -1]
    urgent = answer.json()["jobs"][2]["id"]
    assert world.client.get(f"/api/jobs/{urgent}", headers=admin).json()["job"]["priority"] == 2
    listed = world.client.get("/api/queues/task/jobs", headers=admin).json()["jobs"]
    assert [job["priority"] for job in listed] == [2, 1, -1]


def test_the_key_of_a_job_by_hand_can_be_held_when_the_job_is_over(world, admin):
    once, plain = ({"payload": 1, "key": key, "once": key == "once"} for key in ("once", "plain"))
    first, second = (job["id"] for job in enqueue(world, admin, once, plain).json()["jobs"])
    for job in world.task.claim("w1", limit=2):
        apply_changes(world.task, "complete", [Change(job.id, job.claim_seq)], actor="w1")
    again = enqueue(world, admin, once, plain).json()["jobs"]
    assert [job["result"] for job in again] == ["duplicate", "inserted"]
    shown = [world.client.get(f"/api/jobs/{job}", headers=admin).json() for job in (first, second)]
    assert [whole["job"]["once"] for whole in shown] == [True, False]


def test_a_job_by_hand_that_holds_no_key_for_good_is_rejected_with_the_reason(world, admin):
    [job] = enqueue(world, admin, {"payload": 1, "once": True}).json()["jobs"]
    assert (job["result"], job["code"]) == ("rejected", "bad_once")
    assert job["message"].startswith("once needs a key")


def test_an_action_that_sets_the_priority_takes_it_from_the_request(world, admin):
    rules = task_lifecycle()
    rules = replace(rules, moves=(*rules.moves, prioritize("ready")))
    queue = world.service.queues["prior"] = Queue("prior", rules, world.store, clock=world.clock)
    job = queue.enqueue({}, tenant="north").id
    for priority, code in ((None, "bad_priority"), (3, "invalid")):
        answer = act(world, admin, "prior", action="prioritize", ids=[job], priority=priority)
        assert (answer.status_code, error_of(answer)["code"]) == (422, code)
    answer = act(world, admin, "prior", action="prioritize", ids=[job], priority=2)
    assert (answer.json()["moved"], queue.job(job).priority) == (1, 2)
    answer = act(world, admin, "prior", action="cancel", ids=[job], priority=2)
    assert error_of(answer)["message"] == "cancel cannot set priority"
