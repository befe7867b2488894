"""Who asked for what: every action leaves one line, let or refused; a read leaves none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kesin.store.directory import AuditLine
from kesin.store.records import Filter
from tests.web.client import ADDRESS
from tests.web.conftest import CRON_SECRET, PASSWORD, SAME_ORIGIN, World, by_cookie

MINE = {"x-request-id": "the-request"}


@pytest.fixture
def world(shared_world: World) -> World:
    """Whatever others left there: a test counts the lines of its own request."""
    shared_world.task.act("cancel", actor="tests", where=Filter())
    return shared_world


@pytest.fixture
def nur(world: World) -> dict[str, str]:
    """An operator of the north."""
    world.known("nur", "operator", sites=["north"])
    return world.cookie("nur") | MINE


@pytest.fixture
def boss(world: World) -> dict[str, str]:
    world.known("boss", "admin")
    return world.cookie("boss") | MINE


def left(world: World, method: str, path: str, headers: dict[str, str], **sent: Any) -> AuditLine:
    """The one line that a request leaves."""
    lines = world.said(lambda: world.client.request(method, path, headers=headers, **sent))
    assert len(lines) == 1, lines
    return lines[0]


def told(line: AuditLine) -> tuple[Any, ...]:
    """The line without its id and time, its details read."""
    details = json.loads(line.details) if line.details else None
    return (*line[2:8], details)


def act(world: World, headers: dict[str, str], queue: str = "task", **sent: Any) -> AuditLine:
    return left(world, "POST", f"/api/queues/{queue}/actions", headers, json=sent)


def steer(
    world: World, what: str, headers: dict[str, str], queue: str = "task", **sent: Any
) -> AuditLine:
    return left(world, "POST", f"/api/queues/{queue}/{what}", headers, json=sent)


def test_a_line_says_when_which_request_and_from_where(world, nur):
    line = act(world, nur, action="cancel", ids=[])
    assert line.at == world.clock.time_us
    assert (line.request_id, line.address) == ("the-request", ADDRESS)


# Let


def test_an_action_on_one_job_names_it(world, nur):
    job = world.job()
    line = act(world, nur, action="cancel", ids=[job], reason="asked for")
    details = {"moved": 1, "already": 0, "reason": "asked for"}
    assert told(line) == ("user:nur", "queue.cancel", True, "task", None, job, details)


def test_an_action_on_many_jobs_tells_the_sums(world, nur):
    jobs = [world.job(), world.failed(), world.job("south")]
    line = act(world, nur, action="cancel", ids=jobs)
    assert line.target is None
    sums = {"moved": 1, "already": 1, "refused": {"unknown": 1}}
    assert json.loads(line.details or "") == sums


def test_an_action_by_filter_keeps_the_filter(world, nur):
    world.job()
    chosen = {"states": ["ready"], "sites": ["north"]}
    line = act(world, nur, action="cancel", filter=chosen)
    details = {
        "moved": 1,
        "already": 0,
        "filter": {"states": ["ready"], "tenants": ["north"]},
    }
    assert told(line) == ("user:nur", "queue.cancel", True, "task", None, None, details)


@pytest.mark.parametrize("what", ["pause", "resume"])
def test_steering_a_site_names_it(what, world, nur):
    line = steer(world, what, nur, site="north")
    assert told(line) == ("user:nur", f"queue.{what}", True, "task", "north", None, None)


@pytest.mark.parametrize("what", ["pause", "resume"])
def test_steering_a_whole_queue_names_no_site(what, world, boss):
    line = steer(world, what, boss)
    assert told(line) == ("user:boss", f"queue.{what}", True, "task", None, None, None)


def test_a_pause_keeps_its_reason(world, nur):
    line = steer(world, "pause", nur, site="north", reason="a fire")
    assert json.loads(line.details or "") == {"reason": "a fire"}


def test_enqueueing_by_hand_tells_how_many(world, boss):
    jobs = [{"payload": 1, "key": "a"}, {"payload": 2, "key": "a"}]
    line = left(world, "POST", "/api/queues/task/jobs", boss, json={"jobs": jobs})
    assert told(line) == (
        *("user:boss", "queue.enqueue", True, "task", None, None),
        {"inserted": 1},
    )


def test_a_key_is_named_by_its_id(world):
    key = world.raw_key("operate")
    line = act(world, {"x-api-key": key, **MINE}, action="cancel", ids=[])
    assert (line.actor, line.request_id) == (f"key:{key[6:14]}", "the-request")


def test_a_sweep_tells_how_many_moved(world):
    headers = {"authorization": f"Bearer {CRON_SECRET}", **MINE}
    line = left(world, "POST", "/api/cron/sweep?queue=task", headers)
    assert told(line) == ("cron", "cron.sweep", True, "task", None, None, {"moved": 0})
    assert (line.request_id, line.address) == ("the-request", ADDRESS)


# Refused


@pytest.fixture
def viewer(world: World) -> dict[str, str]:
    world.known("can", "viewer", sites=["north"])
    return world.cookie("can") | MINE


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "action by id": ("actions", {"action": "cancel", "ids": []}, "queue.cancel"),
    "action by filter": ("actions", {"action": "requeue", "filter": {}}, "queue.requeue"),
    "dry run": ("actions", {"action": "cancel", "ids": [], "dry_run": True}, "queue.cancel"),
    "pause": ("pause", {}, "queue.pause"),
    "pause a site": ("pause", {"site": "north"}, "queue.pause"),
    "resume": ("resume", {}, "queue.resume"),
    "enqueue": ("jobs", {"jobs": [{"payload": 1}]}, "queue.enqueue"),
}


@pytest.mark.parametrize("asked", REFUSED)
def test_what_a_viewer_may_not_do_is_noted_once(asked, world, viewer):
    path, sent, action = REFUSED[asked]
    line = left(world, "POST", f"/api/queues/task/{path}", viewer, json=sent)
    assert told(line) == ("user:can", action, False, "task", None, None, None)
    assert (line.request_id, line.address) == ("the-request", ADDRESS)


@pytest.mark.parametrize("asked", [one for one in REFUSED if one != "enqueue"])
@pytest.mark.parametrize("queue", ["pdf", "nope"])
def test_an_action_on_a_queue_that_is_hidden_or_not_there_is_noted_once(asked, queue, world, nur):
    path, sent, action = REFUSED[asked]
    line = left(world, "POST", f"/api/queues/{queue}/{path}", nur, json=sent)
    assert told(line) == ("user:nur", action, False, queue, None, None, None)


OF_SITE: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "queue.cancel": ("actions", lambda site: {"action": "cancel", "filter": {"sites": [site]}}),
    "queue.pause": ("pause", lambda site: {"site": site}),
    "queue.resume": ("resume", lambda site: {"site": site}),
}


@pytest.mark.parametrize("site", ["south", "nowhere"])
@pytest.mark.parametrize("action", OF_SITE)
def test_an_action_on_a_site_of_others_is_noted_once_under_its_own_name(action, site, world, nur):
    path, sent = OF_SITE[action]
    line = left(world, "POST", f"/api/queues/task/{path}", nur, json=sent(site))
    assert told(line) == ("user:nur", action, False, "task", site, None, None)


@pytest.mark.parametrize("what", ["pause", "resume"])
def test_steering_a_whole_queue_with_one_site_is_noted_once(what, world, nur):
    line = steer(world, what, nur)
    assert told(line) == ("user:nur", f"queue.{what}", False, "task", None, None, None)


def test_a_read_that_is_refused_is_noted_once(world):
    key = world.key("pdf") | MINE
    line = left(world, "GET", "/api/queues/task/stats", key)
    assert told(line)[1:5] == ("queue.read", False, "task", None)
    assert line.request_id == "the-request"


def test_a_read_of_a_site_of_others_is_noted_once(world, nur):
    line = left(world, "GET", "/api/queues/task/jobs?site=south", nur)
    assert told(line)[1:5] == ("queue.read", False, "task", "south")


def test_a_key_that_asks_for_the_numbers_without_the_right_is_noted(world):
    line = left(world, "GET", "/metrics", world.key("read") | MINE)
    assert told(line)[1:3] == ("metrics.read", False)


def test_a_sweep_without_the_secret_is_noted(world):
    line = left(world, "POST", "/api/cron/sweep?queue=task", world.key("admin") | MINE)
    assert told(line)[1:4] == ("cron.sweep", False, "task")


# Conversions


OF_OCI: dict[str, tuple[str, str, dict[str, Any]]] = {
    "oci.ingest": ("POST", "conversions?siteId={site}", {"json": []}),
    "oci.export": ("GET", "google-ads-export?siteId={site}&markAsExported=true", {}),
    "oci.ack": ("POST", "ack", {"json": {"queueIds": []}}),
    "oci.ack_failed": ("POST", "ack-failed", {"json": {"queueIds": []}}),
    "oci.heartbeat": ("POST", "script-heartbeat", {"json": {}}),
    "oci.verify": ("POST", "v2/verify", {"json": {}}),
    "oci.credentials": ("PUT", "credentials", {"json": {"credentials": {}}}),
}


@pytest.mark.parametrize("action", OF_OCI)
def test_a_door_for_conversions_that_stays_shut_is_noted_once(action, world, nur):
    method, path, sent = OF_OCI[action]
    if isinstance(sent.get("json"), dict):
        sent = {"json": {**sent["json"], "siteId": "north"}}
    line = left(world, method, f"/api/oci/{path.format(site='north')}", nur, **sent)
    assert told(line) == ("user:nur", action, False, "oci", "north", None, None)


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("queue-stats", "oci.stats"),
        ("queue-rows", "oci.rows"),
        ("dead-letter.csv", "oci.dead_letters"),
        ("google-ads-export", "oci.preview"),
    ],
)
@pytest.mark.parametrize("site", ["south", "nowhere"])
def test_a_look_at_conversions_of_others_is_noted_once(path, action, site, world, nur):
    line = left(world, "GET", f"/api/oci/{path}?siteId={site}", nur)
    assert told(line) == ("user:nur", action, False, "oci", site, None, None)


def test_an_action_on_conversions_names_the_site(world, nur):
    sent = {"siteId": "north", "action": "MARK_FAILED", "filter": {"status": ["FAILED"]}}
    line = left(world, "POST", "/api/oci/queue-actions", nur, json=sent)
    assert told(line)[:5] == ("user:nur", "queue.MARK_FAILED", True, "oci", "north")


def test_a_check_of_credentials_is_noted(world, nur):
    line = left(world, "POST", "/api/oci/credentials/check?siteId=north", nur)
    assert told(line) == ("user:nur", "oci.check", True, "oci", "north", None, None)


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("recover-processing", "cron.recover"),
        ("attempt-cap", "cron.attempt_cap"),
        ("process-offline-conversions", "cron.process"),
    ],
)
def test_a_run_of_the_cron_caller_tells_how_many_moved(path, action, world):
    headers = {"authorization": f"Bearer {CRON_SECRET}", **MINE}
    line = left(world, "GET", f"/api/cron/oci/{path}", headers)
    assert told(line)[:6] == ("cron", action, True, "oci", None, None)
    assert json.loads(line.details or "")["moved"] == 0


# Sessions


def test_a_sign_in_is_noted_with_its_request(world, nur):
    sent = {"name": "nur", "password": PASSWORD}
    line = left(world, "POST", "/api/session", MINE, json=sent)
    assert told(line) == ("user:nur", "session.start", True, None, None, None, None)
    assert (line.request_id, line.address) == ("the-request", ADDRESS)


def test_a_wrong_sign_in_is_noted_with_its_request(world, nur):
    sent = {"name": "nur", "password": "wrong"}
    line = left(world, "POST", "/sign-in", MINE | SAME_ORIGIN, data=sent)
    assert told(line) == ("user:nur", "session.start", False, None, None, None, None)
    assert (line.request_id, line.address) == ("the-request", ADDRESS)


def test_a_name_that_nobody_has_is_not_kept_for_it_may_be_a_password(world):
    sent = {"name": "my-secret-password", "password": "wrong"}
    line = left(world, "POST", "/api/session", MINE, json=sent)
    assert told(line) == ("user:?", "session.start", False, None, None, None, None)


def test_a_sign_out_is_noted(world, nur):
    line = left(world, "DELETE", "/api/session", nur)
    assert told(line)[:3] == ("user:nur", "session.end", True)
    assert json.loads(line.details or "") == {"sessions_ended": 1}


def test_a_sign_in_over_an_old_session_notes_both(world, nur):
    sent = {"name": "nur", "password": PASSWORD}
    lines = world.said(lambda: world.client.post("/api/session", json=sent, headers=nur))
    assert [one.action for one in lines] == ["session.start", "session.end"]
    assert {one.request_id for one in lines} == {"the-request"}


# Nothing to note


@pytest.mark.parametrize(
    "path",
    [
        "/api/queues",
        "/api/sites",
        "/api/session",
        "/api/queues/task/stats",
        "/api/queues/task/jobs",
        "/api/queues/task/jobs?site=north",
        "/api/queues/task/lifecycle",
        "/api/jobs/{job}",
        "/api/oci/queue-stats?siteId=north",
        "/api/oci/queue-stats?scope=multi",
        "/api/oci/queue-rows?siteId=north",
        "/api/oci/dead-letter.csv?siteId=north",
        "/api/oci/google-ads-export?siteId=north",
        "/api/oci/codes/EXPIRED",
        "/sign-in",
        "/docs",
    ],
)
def test_a_read_that_is_let_leaves_no_line(path, world, nur):
    path = path.replace("{job}", world.job())
    assert world.client.get(path, headers=nur).status_code == 200
    assert world.said(lambda: world.client.get(path, headers=nur)) == []


def test_a_dry_run_that_is_let_leaves_no_line(world, nur):
    sent = {"action": "cancel", "filter": {}, "dry_run": True}
    path = "/api/queues/task/actions"
    assert world.said(lambda: world.client.post(path, json=sent, headers=nur)) == []


@pytest.mark.parametrize("sent", [{"action": "explode", "ids": []}, {"action": "cancel"}, {}])
def test_an_action_that_makes_no_sense_is_none(sent, world, nur):
    path = "/api/queues/task/actions"
    assert world.said(lambda: world.client.post(path, json=sent, headers=nur)) == []


def test_a_request_from_another_page_is_nobodys_action(world, nur):
    headers = by_cookie(world.token("nur"), **{"sec-fetch-site": "cross-site"})
    path = "/api/queues/task/pause"
    lines = world.said(lambda: world.client.post(path, json={"site": "north"}, headers=headers))
    assert lines == []
