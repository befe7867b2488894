"""The API of what stands beside a job, and of what limits a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kesin.engine.access import companions
from kesin.engine.queue import Queue, apply_changes
from kesin.foundation.clock import iso
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import OWNED
from kesin.store import counters
from tests.tables import table
from tests.web.conftest import EITHER, World, error_of

NO_JOB = "00000000-0000-7000-8000-000000000000"
Open = Callable[[str, Lifecycle], Queue]


def opener(world: World) -> Open:
    def open_queue(name: str, lifecycle: Lifecycle) -> Queue:
        queue = Queue(name, lifecycle, world.store, clock=world.clock)
        world.service.queues[name] = queue
        return queue

    return open_queue


@pytest.fixture
def open_queue(world: World) -> Open:
    return opener(world)


@pytest.fixture
def steps(open_queue: Open) -> Queue:
    return open_queue("steps", task_lifecycle("steps", parents=True))


def shown(world: World, job_id: str, headers: dict[str, str]) -> dict[str, Any]:
    answer = world.client.get(f"/api/jobs/{job_id}", headers=headers)
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


def complete(queue: Queue, job: Job, result: str | None = None) -> None:
    apply_changes(queue, "complete", [Change(job.id, job.claim_seq, result=result)], actor="one")


# Enqueue


def test_a_job_is_enqueued_after_others(world, steps):
    admin, first = world.key("admin"), steps.enqueue(1, tenant="north").id
    new = {"payload": 2, "site": "north", "after": [first]}
    answer = world.client.post("/api/queues/steps/jobs", json={"jobs": [new]}, headers=admin)
    [made] = answer.json()["jobs"]
    assert made["result"] == "inserted"
    assert world.state(made["id"]) == "blocked"
    assert shown(world, made["id"], admin)["parents"] == [{"id": first, "queue": "steps", "state": "ready"}]
    [child] = shown(world, first, admin)["children"]
    assert child == {"id": made["id"], "queue": "steps", "state": "blocked"}


def test_a_batch_after_a_job_that_does_not_exist_is_refused_whole(world, steps):
    jobs = [{"payload": 1}, {"payload": 2, "after": [NO_JOB]}]
    answer = world.client.post("/api/queues/steps/jobs", json={"jobs": jobs}, headers=world.key("admin"))
    assert answer.status_code == 422
    error = error_of(answer)
    assert (error["code"], error["details"]) == ("unknown_parent", {"field": "after"})
    assert NO_JOB in error["message"]
    assert steps.stats().total == 0


@table(("queue", "after", "code"), [("task", [NO_JOB], "bad_after"), ("steps", ["no id"], "unknown_parent")])
def test_a_job_that_cannot_come_after_others_is_rejected(queue, after, code, world, steps):
    jobs = [{"payload": 1, "after": after}, {"payload": 2}]
    answer = world.client.post(f"/api/queues/{queue}/jobs", json={"jobs": jobs}, headers=world.key("admin"))
    refused, inserted = answer.json()["jobs"]
    assert (refused["result"], refused["code"]) == ("rejected", code)
    assert inserted["result"] == "inserted"


# Before and after


@pytest.mark.parametrize("kind", EITHER)
def test_what_a_caller_may_not_see_is_counted_and_not_named(kind, make_world):
    world = make_world(kind)
    open_queue = opener(world)
    steps = open_queue("steps", task_lifecycle("steps", parents=True))
    other = open_queue("other", task_lifecycle("other"))
    world.person("ece", "viewer", sites=["north"], queues=["steps"])
    seen = steps.enqueue(1, tenant="north").id
    hidden = [steps.enqueue(1, tenant="south").id, other.enqueue(1, tenant="north").id]
    child = steps.enqueue(2, tenant="north", after=[seen, *hidden]).id
    after_it = steps.enqueue(3, tenant="south", after=[child]).id
    ece = world.cookie("ece")
    body = shown(world, child, ece)
    assert [parent["id"] for parent in body["parents"]] == [seen]
    assert (body["hidden_parents"], body["hidden_children"], body["children"]) == (2, 1, [])
    assert not any(job_id in str(body) for job_id in (*hidden, after_it))
    whole = shown(world, child, world.key("admin"))
    assert {parent["id"] for parent in whole["parents"]} == {seen, *hidden}
    assert (whole["hidden_parents"], whole["hidden_children"]) == (0, 0)


def test_no_more_than_a_hundred_are_listed_and_those_it_waits_for_come_first(world, steps, monkeypatch):
    monkeypatch.setattr(companions, "MAX_RELATIVES", 2)
    first = [steps.enqueue(n).id for n in range(3)]
    for job in steps.claim("one", limit=2):
        complete(steps, job)
    child = steps.enqueue("child", after=first).id
    children = [steps.enqueue(n, after=[first[0]]).id for n in range(3)]
    admin = world.key("admin")
    body = shown(world, child, admin)
    assert [parent["state"] for parent in body["parents"]] == ["ready", "done"]
    assert body["more_parents"]
    body = shown(world, first[0], admin)
    assert [one["id"] for one in body["children"]] == sorted([child, *children])[:2]
    assert body["more_children"]
    assert not body["more_parents"]


def test_a_job_after_thousands_reads_no_more_of_them_than_it_may_list(world, steps, monkeypatch):
    monkeypatch.setattr(companions, "MAX_RELATIVES", 2)
    first = [steps.enqueue(n).id for n in range(9)]
    for job in steps.claim("one", limit=8):
        complete(steps, job)
    child = steps.enqueue("child", after=first).id
    read: list[Job] = []
    parents = world.store.parents

    def spied(*values: Any, **named: Any) -> list[Job]:
        found = parents(*values, **named)
        read.extend(found)
        return found

    monkeypatch.setattr(world.store, "parents", spied)
    body = shown(world, child, world.key("admin"))
    assert [parent["id"] for parent in body["parents"]] == [first[8], min(first[:8])]
    assert len(read) == 4


# Progress


@pytest.mark.parametrize("kind", EITHER)
def test_progress_is_shown_while_the_job_is_claimed(kind, make_world):
    world = make_world(kind)
    admin, job_id = world.key("admin"), world.job()
    assert shown(world, job_id, admin)["progress"] is None
    [job] = world.task.claim("one")
    assert job.phase == OWNED
    assert shown(world, job_id, admin)["progress"] is None
    now = world.task.now()
    world.store.report_progress("task", (job.id, job.token), 0.4, "page 12", now=now)
    said = shown(world, job_id, admin)["progress"]
    assert said == {"fraction": 0.4, "message": "page 12", "at": iso(now)}
    complete(world.task, job)
    assert shown(world, job_id, admin)["progress"] is None


def test_what_a_handler_says_of_its_progress_is_masked_like_an_error(world):
    world.person("ece", "viewer", all_sites=True)
    job_id = world.job(payload={"email": "ada@example.org"})
    [job] = world.task.claim("one")
    said = "writing to ada@example.org"
    world.store.report_progress("task", (job.id, job.token), None, said, now=world.task.now())
    assert "ada@" not in str(shown(world, job_id, world.cookie("ece"))["progress"])
    assert shown(world, job_id, world.key("admin"))["progress"]["message"] == said


# Limits


def limits(world: World, queue: str, headers: dict[str, str]) -> dict[str, Any]:
    stats = world.client.get(f"/api/queues/{queue}/stats", headers=headers).json()
    found: dict[str, Any] = stats["limits"]
    return found


def test_a_queue_without_limits_says_so(world):
    assert limits(world, "task", world.key("read")) == {"slots": [], "rate": None}


def test_slots_of_a_queue_and_its_rate(world, open_queue):
    queue = open_queue("mails", task_lifecycle("mails", concurrency=2, rate=(100, 60)))
    for site in ("north", "north", "south"):
        queue.enqueue(1, tenant=site)
    queue.claim("one", limit=3)
    found = limits(world, "mails", world.key("read"))
    assert found == {
        "slots": [{"state": "running", "slots": 2, "per": "queue", "used": 2, "fullest": [], "more_sites": 0}],
        "rate": {"jobs": 100, "per_s": 60},
    }
    states = world.client.get("/api/queues/mails/lifecycle", headers=world.key("read")).json()
    running = next(state for state in states["states"] if state["name"] == "running")
    assert (running["slots"], running["slots_per"]) == (2, "queue")


def test_of_slots_per_tenant_the_fullest_are_listed(world, open_queue, monkeypatch):
    monkeypatch.setattr(counters, "MAX_FULLEST", 1)
    queue = open_queue("mails", task_lifecycle("mails", concurrency=2, per="tenant"))
    for site in ("north", "south", "south", "south"):
        queue.enqueue(1, tenant=site)
    queue.claim("one", limit=4)
    [use] = limits(world, "mails", world.key("read"))["slots"]
    assert (use["slots"], use["per"], use["used"]) == (2, "tenant", 3)
    assert (use["fullest"], use["more_sites"]) == ([{"site": "south", "used": 2}], 1)


def test_slots_that_others_use_are_not_told(world, open_queue):
    queue = open_queue("mails", task_lifecycle("mails", concurrency=2, per="tenant"))
    world.person("ece", "viewer", sites=["north"])
    for site in ("north", "south"):
        queue.enqueue(1, tenant=site)
    queue.claim("one", limit=2)
    [use] = limits(world, "mails", world.cookie("ece"))["slots"]
    assert (use["used"], use["fullest"]) == (1, [{"site": "north", "used": 1}])
