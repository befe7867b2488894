"""A caller with some sites sees and moves nothing of the others, at any route."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.tables import table
from tests.web.client import Client
from tests.web.conftest import CRON_SECRET, MakeWorld, World, error_of
from tests.web.matrix import NO_JOB, OTHER, OWN

CANARY = "canary-of-the-south"


@pytest.fixture
def two_sites(either_world: World) -> World:
    """North and south, each with jobs; a canary is in all that belongs to the south."""
    world = either_world
    for name in ("oci", "task"):
        world.job(OWN, queue=name, key="of-the-north")
        for n in range(3):
            world.job(OTHER, queue=name, key=f"{CANARY}-{n}", payload={"secret": CANARY})
    cancelled = world.job(OTHER, key=f"{CANARY}-failed")
    world.task.act("cancel", actor=CANARY, ids=[cancelled], reason=CANARY)
    world.job(CANARY, queue="pdf", key=CANARY)
    world.task.pause(actor=CANARY, tenant=OTHER, reason=CANARY)
    world.person("nur", "operator", sites=[OWN])
    return world


def responses_to_the_north(client: Client, headers: dict[str, str]) -> Iterator[Any]:
    """Every response with jobs in it that a caller of the north can get."""
    for path in ("/api/queues", "/api/sites", "/api/session", "/sign-in"):
        yield client.get(path, headers=headers)
    for queue in ("oci", "task", "pdf", "optiplan"):
        for what in ("stats", "jobs", "lifecycle", f"stats?site={OTHER}", f"jobs?site={OTHER}"):
            yield client.get(f"/api/queues/{queue}/{what}", headers=headers)
        for field in ("text", "key"):
            params = {field: f"{CANARY}-0"}
            yield client.get(f"/api/queues/{queue}/jobs", params=params, headers=headers)
        for sent in ({"filter": {}, "dry_run": True}, {"filter": {"sites": [OTHER]}}):
            body = {"action": "cancel", **sent}
            yield client.post(f"/api/queues/{queue}/actions", json=body, headers=headers)
        for what in ("pause", "resume"):
            for site in ({"site": OTHER}, {}):
                yield client.post(f"/api/queues/{queue}/{what}", json=site, headers=headers)
    yield client.get("/api/oci/queue-stats?scope=multi", headers=headers)
    for site_id in (OWN, OTHER):
        for what in ("queue-stats", "queue-rows", "dead-letter.csv", "google-ads-export"):
            yield client.get(f"/api/oci/{what}?siteId={site_id}", headers=headers)
        search = {"siteId": site_id, "q": f"{CANARY}-0"}
        yield client.get("/api/oci/queue-rows", params=search, headers=headers)
        body = {"siteId": site_id, "action": "MARK_FAILED", "filter": {}, "all": True}
        yield client.post("/api/oci/queue-actions", json=body, headers=headers)


def act(world: World, **sent: Any) -> Any:
    """What Nur, an operator of the north, is answered."""
    path, headers = "/api/queues/task/actions", world.cookie("nur")
    return world.client.post(path, json=sent, headers=headers).json()


def test_jobs_of_other_sites_appear_in_no_response(two_sites):
    jobs = [job for queue in two_sites.service.queues.values() for job in queue.jobs().jobs]
    foreign = {job.id for job in jobs if job.tenant != OWN}
    assert len(foreign) == 8
    for response in responses_to_the_north(two_sites.client, two_sites.cookie("nur")):
        text, request = response.text, f"{response.request.method} {response.request.url}"
        assert response.status_code in {200, 403, 404, 422}, request
        repeated = f"{CANARY}-0" if "error" in text else CANARY * 2  # an error names what was sent
        assert CANARY not in text.replace(repeated, ""), request
        assert not [job_id for job_id in foreign if job_id in text], request
        assert OTHER not in text, request


def test_jobs_of_other_sites_are_not_counted(two_sites):
    headers = two_sites.cookie("nur")
    stats = two_sites.client.get("/api/queues/task/stats", headers=headers).json()
    assert stats["total"] == 1
    assert stats["states"] == {"ready": 1, "running": 0, "done": 0, "failed": 0}
    assert stats["sites"] == {OWN: stats["states"]}
    assert (stats["oldest_due_at"], stats["lease_over"]) == (None, 0)
    dry_run = act(two_sites, action="cancel", filter={}, dry_run=True)
    assert (dry_run["matched"], dry_run["by_state"]) == (1, {"ready": 1})
    [job] = two_sites.task.jobs(limit=1).jobs
    assert job.tenant == OTHER
    dry_run = act(two_sites, action="requeue", ids=[job.id], dry_run=True)
    assert (dry_run["matched"], dry_run["moved"], dry_run["by_state"]) == (0, 0, {})


def test_to_an_action_jobs_of_another_site_or_queue_are_unknown_and_do_not_change(two_sites):
    foreign, of_oci = two_sites.job(OTHER), two_sites.job(OWN, queue="oci")
    before = two_sites.found(foreign)
    outcomes = act(two_sites, action="cancel", ids=[foreign, of_oci, NO_JOB])["outcomes"]
    *others, missing = outcomes
    assert others == [{**missing, "id": foreign}, {**missing, "id": of_oci}]
    assert missing["result"] == "unknown"
    assert two_sites.found(foreign) == before
    assert [event.move for event in two_sites.task.events(foreign)] == ["enqueue"]
    assert two_sites.task.notes(foreign) == []
    assert two_sites.state(of_oci) == "QUEUED"


def test_an_action_over_everything_moves_only_jobs_of_permitted_sites(two_sites):
    answer = act(two_sites, action="cancel", filter={})
    assert (answer["matched"], answer["moved"]) == (1, 1)
    assert two_sites.task.stats().tenants[OTHER]["ready"] == 3


@pytest.fixture
def nur(shared_world: World) -> dict[str, str]:
    shared_world.known("nur", "operator", sites=[OWN])
    return shared_world.cookie("nur")


@table(
    ("method", "what", "sent"),
    [
        ("GET", "stats", {"params": {"site": "{site}"}}),
        ("GET", "jobs", {"params": {"site": "{site}"}}),
        ("POST", "actions", {"json": {"action": "cancel", "filter": {"sites": ["{site}"]}}}),
        ("POST", "pause", {"json": {"site": "{site}"}}),
    ],
)
def test_another_site_and_a_missing_one_are_refused_alike(method, what, sent, shared_world, nur):
    foreign, missing = (
        shared_world.client.request(
            method,
            f"/api/queues/task/{what}",
            headers={**nur, "x-request-id": "same"},
            **json.loads(json.dumps(sent).replace("{site}", site)),
        )
        for site in (OTHER, "nowhere")
    )
    assert foreign.status_code == missing.status_code == 403
    assert foreign.content == missing.content


def test_a_job_of_another_site_and_a_hidden_queue_look_as_if_missing(shared_world, nur):
    foreign = shared_world.job(OTHER)
    for path, hidden, missing in (("/api/jobs/{}", foreign, NO_JOB), ("/api/queues/{}/stats", "pdf", "nope")):
        first, second = (shared_world.client.get(path.format(name), headers=nur) for name in (hidden, missing))
        assert first.status_code == second.status_code == 404
        assert first.text.replace(hidden, missing) == second.text


def test_users_and_keys_are_shown_only_their_queues_and_sites(shared_world, nur):
    client = shared_world.client
    shared_world.known("can", "operator", all_sites=True, queues=["task"])
    queues = client.get("/api/queues", headers=shared_world.cookie("can")).json()
    assert [queue["name"] for queue in queues] == ["task"]
    assert [site["id"] for site in client.get("/api/sites", headers=nur).json()] == [OWN]
    for scope in ("pdf", "optiplan", "metrics"):
        response = client.get("/api/sites", headers=shared_world.key(scope))
        assert (response.status_code, response.json()) == (200, [])


# Who calls


def test_without_a_cron_secret_nobody_is_the_cron_caller(make_world: MakeWorld):
    world = make_world(cron_secret=None)
    for headers in ({}, {"authorization": "Bearer "}, {"authorization": f"Bearer {CRON_SECRET}"}):
        response = world.client.post("/api/cron/sweep", headers=headers)
        assert (response.status_code, error_of(response)["code"]) == (403, "forbidden")


def test_the_cron_caller_gets_404_for_an_unknown_queue(shared_world):
    headers = {"authorization": f"Bearer {CRON_SECRET}"}
    response = shared_world.client.post("/api/cron/sweep?queue=nope", headers=headers)
    assert (response.status_code, error_of(response)["code"]) == (404, "not_found")


def test_a_key_may_be_a_bearer_and_a_wrong_one_is_refused_beside_a_session(shared_world, nur):
    def caller(headers: dict[str, str]) -> Any:
        return shared_world.client.get("/api/session", headers=headers)

    keys = [shared_world.raw_key("admin") for _ in range(2)]
    assert caller({"authorization": f"Bearer {keys[0]}"}).status_code == 200
    assert caller({"x-api-key": keys[0]}).status_code == 200
    mixed = keys[0][:15] + keys[1][15:]  # the id of one with the secret of the other
    for wrong in (mixed, f"kesin_abcdefgh_{'x' * 43}"):
        response = caller({**nur, "x-api-key": wrong})
        assert (response.status_code, error_of(response)["code"]) == (401, "wrong_key")
