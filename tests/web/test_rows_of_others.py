"""Whoever has some sites sees and moves nothing of the others, at any door."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.client import Client
from tests.web.conftest import CRON_SECRET, MakeWorld, World, error_of
from tests.web.matrix import NO_JOB, OTHER, OWN

CANARY = "canary-of-the-south"


@pytest.fixture
def two_sites(either_world: World) -> World:
    """North and south, each with a job of every kind; the south's are full of canaries."""
    world = either_world
    for name in ("oci", "task"):
        world.job(OWN, queue=name, key="of-the-north")
        for n in range(3):
            world.job(OTHER, queue=name, key=f"{CANARY}-{n}", payload={"secret": CANARY})
    failed = world.job(OTHER, key=f"{CANARY}-failed")
    world.task.act("cancel", actor=CANARY, ids=[failed], reason=CANARY)
    world.job(CANARY, queue="pdf", key=CANARY)
    world.task.pause(actor=CANARY, tenant=OTHER, reason=CANARY)
    world.person("nur", "operator", sites=[OWN])
    return world


def asked_by_the_north(client: Client, headers: dict[str, str]) -> Iterator[Any]:
    """Every answer with rows in it that somebody of the north can get."""
    for path in ("/api/queues", "/api/sites", "/api/session", "/sign-in"):
        yield client.get(path, headers=headers)
    for queue in ("oci", "task", "pdf", "optiplan"):
        for what in ("stats", "jobs", "lifecycle", f"stats?site={OTHER}", f"jobs?site={OTHER}"):
            yield client.get(f"/api/queues/{queue}/{what}", headers=headers)
        for text in ("text", "key"):
            yield client.get(
                f"/api/queues/{queue}/jobs", params={text: f"{CANARY}-0"}, headers=headers
            )
        for sent in ({"filter": {}, "dry_run": True}, {"filter": {"sites": [OTHER]}}):
            act = {"action": "cancel", **sent}
            yield client.post(f"/api/queues/{queue}/actions", json=act, headers=headers)
        for what in ("pause", "resume"):
            for site in ({"site": OTHER}, {}):
                yield client.post(f"/api/queues/{queue}/{what}", json=site, headers=headers)
    yield from asked_of_oci(client, headers)


def asked_of_oci(client: Client, headers: dict[str, str]) -> Iterator[Any]:
    """The same of the doors for conversions."""
    yield client.get("/api/oci/queue-stats?scope=multi", headers=headers)
    for site in (OWN, OTHER):
        for what in ("queue-stats", "queue-rows", "dead-letter.csv", "google-ads-export"):
            yield client.get(f"/api/oci/{what}?siteId={site}", headers=headers)
        search = {"siteId": site, "q": f"{CANARY}-0"}
        yield client.get("/api/oci/queue-rows", params=search, headers=headers)
        act = {"siteId": site, "action": "MARK_FAILED", "filter": {}}
        yield client.post("/api/oci/queue-actions", json=act, headers=headers)


def test_rows_of_other_sites_appear_in_no_answer(two_sites):
    foreign = {job.id for queue in two_sites.service.queues.values() for job in queue.jobs().jobs}
    foreign -= {job.id for job in two_sites.task.jobs().jobs if job.tenant == OWN}
    foreign -= {job.id for job in two_sites.service.queues["oci"].jobs().jobs if job.tenant == OWN}
    assert len(foreign) == 8
    for answer in asked_by_the_north(two_sites.client, two_sites.cookie("nur")):
        asked = f"{answer.request.method} {answer.request.url}"
        assert answer.status_code in {200, 403, 404, 422}, asked
        seen = answer.text.replace(f"{CANARY}-0", "") if "error" in answer.text else answer.text
        assert CANARY not in seen, asked
        assert not [one for one in foreign if one in answer.text], asked
        assert OTHER not in answer.text, asked


def test_rows_of_other_sites_are_not_counted(two_sites):
    headers = two_sites.cookie("nur")
    stats = two_sites.client.get("/api/queues/task/stats", headers=headers).json()
    assert stats["total"] == 1
    assert stats["states"] == {"ready": 1, "running": 0, "done": 0, "failed": 0}
    assert stats["sites"] == {OWN: stats["states"]}
    assert (stats["oldest_due_at"], stats["lease_over"]) == (None, 0)


def test_a_dry_run_over_everything_counts_only_ones_own(two_sites):
    asked = {"action": "cancel", "filter": {}, "dry_run": True}
    answer = two_sites.client.post(
        "/api/queues/task/actions", json=asked, headers=two_sites.cookie("nur")
    ).json()
    assert (answer["matched"], answer["by_state"]) == (1, {"ready": 1})


def test_a_dry_run_over_another_sites_job_counts_none(two_sites):
    [job] = two_sites.task.jobs(limit=1).jobs
    assert job.tenant == OTHER
    asked = {"action": "requeue", "ids": [job.id], "dry_run": True}
    answer = two_sites.client.post(
        "/api/queues/task/actions", json=asked, headers=two_sites.cookie("nur")
    ).json()
    assert (answer["matched"], answer["moved"], answer["by_state"]) == (0, 0, {})


def test_an_action_on_another_sites_job_finds_it_unknown_and_changes_nothing(two_sites):
    foreign = two_sites.job(OTHER)
    before = two_sites.found(foreign)
    asked = {"action": "cancel", "ids": [foreign, NO_JOB]}
    answer = two_sites.client.post(
        "/api/queues/task/actions", json=asked, headers=two_sites.cookie("nur")
    ).json()
    there, nowhere = answer["outcomes"]
    assert there == {**nowhere, "id": foreign}
    assert there["result"] == "unknown"
    assert two_sites.found(foreign) == before
    assert [event.move for event in two_sites.task.events(foreign)] == ["enqueue"]
    assert two_sites.task.notes(foreign) == []


def test_an_action_over_everything_moves_only_ones_own(two_sites):
    asked = {"action": "cancel", "filter": {}}
    answer = two_sites.client.post(
        "/api/queues/task/actions", json=asked, headers=two_sites.cookie("nur")
    ).json()
    assert (answer["matched"], answer["moved"]) == (1, 1)
    tenants = two_sites.task.stats().tenants
    assert tenants[OTHER]["ready"] == 3


def test_an_action_on_a_job_of_another_queue_finds_it_unknown(two_sites):
    job = two_sites.job(OWN, queue="oci")
    asked = {"action": "cancel", "ids": [job]}
    answer = two_sites.client.post(
        "/api/queues/task/actions", json=asked, headers=two_sites.cookie("nur")
    ).json()
    assert answer["outcomes"][0]["result"] == "unknown"
    assert two_sites.state(job) == "QUEUED"


@pytest.mark.parametrize("method", ["GET stats", "GET jobs", "POST actions", "POST pause"])
def test_a_foreign_site_and_one_that_is_not_there_are_refused_alike(method, world):
    world.person("nur", "operator", sites=[OWN])
    headers = world.cookie("nur")
    verb, what = method.split()

    def ask(site: str) -> Any:
        path = f"/api/queues/task/{what}"
        if verb == "GET":
            return world.client.get(path, params={"site": site}, headers=headers)
        acting = {"action": "cancel", "filter": {"sites": [site]}}
        sent = acting if what == "actions" else {"site": site}
        return world.client.post(path, json=sent, headers=headers)

    foreign, missing = ask(OTHER), ask("nowhere")
    assert foreign.status_code == missing.status_code == 403
    assert foreign.content == missing.content


def test_a_foreign_job_and_one_that_is_not_there_are_told_alike(world):
    world.person("nur", "operator", sites=[OWN])
    headers = world.cookie("nur")
    foreign = world.job(OTHER)
    one = world.client.get(f"/api/jobs/{foreign}", headers=headers)
    other = world.client.get(f"/api/jobs/{NO_JOB}", headers=headers)
    assert one.status_code == other.status_code == 404
    assert one.text.replace(foreign, NO_JOB) == other.text


def test_a_hidden_queue_and_one_that_is_not_there_are_told_alike(world):
    world.person("nur", "operator", sites=[OWN])
    headers = world.cookie("nur")
    hidden = world.client.get("/api/queues/pdf/stats", headers=headers)
    missing = world.client.get("/api/queues/nope/stats", headers=headers)
    assert hidden.status_code == missing.status_code == 404
    assert hidden.text.replace("pdf", "nope") == missing.text


def test_a_person_with_queues_sees_no_other_queue(world):
    world.person("nur", "operator", all_sites=True, queues=["task"])
    answer = world.client.get("/api/queues", headers=world.cookie("nur"))
    assert [one["name"] for one in answer.json()] == ["task"]


def test_a_person_knows_only_their_sites(world):
    world.person("nur", sites=[OWN])
    answer = world.client.get("/api/sites", headers=world.cookie("nur"))
    assert [one["id"] for one in answer.json()] == [OWN]


@pytest.mark.parametrize("scope", ["pdf", "optiplan", "metrics"])
def test_a_key_that_is_not_about_sites_knows_none(scope, world):
    answer = world.client.get("/api/sites", headers=world.key(scope))
    assert (answer.status_code, answer.json()) == (200, [])


def test_without_a_cron_secret_nobody_is_the_cron_caller(make_world: MakeWorld):
    world = make_world(cron_secret=None)
    for headers in ({}, {"authorization": "Bearer "}, {"authorization": f"Bearer {CRON_SECRET}"}):
        answer = world.client.post("/api/cron/sweep", headers=headers)
        assert (answer.status_code, error_of(answer)["code"]) == (403, "forbidden")


def test_the_cron_caller_is_told_when_there_is_no_such_queue(world):
    headers = {"authorization": f"Bearer {CRON_SECRET}"}
    answer = world.client.post("/api/cron/sweep?queue=nope", headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")


def test_a_key_is_taken_as_a_bearer_too(world):
    headers = {"authorization": f"Bearer {world.raw_key('read')}"}
    assert world.client.get("/api/queues", headers=headers).status_code == 200


def test_a_wrong_key_is_refused_even_beside_a_good_session(world):
    world.person("nur", "admin")
    headers = world.cookie("nur") | {"x-api-key": f"kesin_abcdefgh_{'x' * 43}"}
    answer = world.client.get("/api/session", headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (401, "wrong_key")


def test_a_key_whose_secret_is_another_ones_is_refused(world):
    one, other = world.raw_key("admin"), world.raw_key("admin")
    mixed = one[:15] + other[15:]
    assert world.client.get("/api/session", headers={"x-api-key": mixed}).status_code == 401
    assert world.client.get("/api/session", headers={"x-api-key": one}).status_code == 200
