"""The audit log: every action leaves one line, permitted or refused; a permitted read none."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kesin.store.audit_log import AuditLine
from kesin.store.records import Filter
from tests.tables import table
from tests.web.client import ADDRESS
from tests.web.conftest import CRON_SECRET, PASSWORD, SAME_ORIGIN, World, by_cookie

REQUEST_ID = {"x-request-id": "the-request"}
CRON = {"authorization": f"Bearer {CRON_SECRET}", **REQUEST_ID}


@pytest.fixture
def world(shared_world: World) -> World:
    """One service for all tests: each counts the lines of its own request."""
    shared_world.task.act("cancel", actor="tests", where=Filter())
    return shared_world


@pytest.fixture
def nur(world: World) -> dict[str, str]:
    """An operator of the north."""
    world.known("nur", "operator", sites=["north"])
    return world.cookie("nur") | REQUEST_ID


@pytest.fixture
def admin(world: World) -> dict[str, str]:
    world.known("boss", "admin")
    return world.cookie("boss") | REQUEST_ID


@pytest.fixture
def viewer(world: World) -> dict[str, str]:
    world.known("can", "viewer", sites=["north"])
    return world.cookie("can") | REQUEST_ID


def line_of(world: World, method: str, path: str, headers: dict[str, str], **sent: Any) -> AuditLine:
    """The one line that a request leaves; it has the time, the request's id and its address."""
    lines = world.said(lambda: world.client.request(method, path, headers=headers, **sent))
    assert len(lines) == 1, lines
    [line] = lines
    assert line.at == world.clock.time_us
    assert (line.request_id, line.address) == ("the-request", ADDRESS)
    return line


def post(world: World, what: str, headers: dict[str, str], queue: str = "task", **sent: Any) -> AuditLine:
    return line_of(world, "POST", f"/api/queues/{queue}/{what}", headers, json=sent)


def fields(line: AuditLine) -> tuple[Any, ...]:
    """Actor, action, permitted, queue, site, target, details."""
    return (*line[2:8], details(line))


def details(line: AuditLine) -> Any:
    return json.loads(line.details) if line.details else None


# Permitted


def test_an_action_on_one_job_names_it(world, nur):
    job = world.job()
    line = post(world, "actions", nur, action="cancel", ids=[job], reason="requested")
    expected = {"moved": 1, "already": 0, "reason": "requested"}
    assert fields(line) == ("user:nur", "queue.cancel", True, "task", None, job, expected)


def test_an_action_on_many_jobs_has_the_totals(world, nur):
    jobs = [world.job(), world.failed(), world.job("south")]
    line = post(world, "actions", nur, action="cancel", ids=jobs)
    assert line.target is None
    assert details(line) == {"moved": 1, "already": 1, "refused": {"unknown": 1}}


def test_an_action_by_filter_has_the_filter(world, nur):
    world.job()
    chosen = {"states": ["ready"], "sites": ["north"]}
    line = post(world, "actions", nur, action="cancel", filter=chosen)
    stored = {"states": ["ready"], "tenants": ["north"]}
    expected = {"moved": 1, "already": 0, "filter": stored}
    assert fields(line) == ("user:nur", "queue.cancel", True, "task", None, None, expected)


@table("what", ["pause", "resume"])
def test_pausing_and_resuming_name_the_site_and_the_reason(what, world, nur, admin):
    line = post(world, what, nur, site="north")
    assert fields(line) == ("user:nur", f"queue.{what}", True, "task", "north", None, None)
    line = post(world, what, admin)
    assert fields(line) == ("user:boss", f"queue.{what}", True, "task", None, None, None)
    if what == "pause":
        line = post(world, what, nur, site="north", reason="a fire")
        assert details(line) == {"reason": "a fire"}


def test_enqueueing_by_hand_has_the_number_of_jobs(world, admin):
    jobs = [{"payload": 1, "key": "a"}, {"payload": 2, "key": "a"}]
    line = post(world, "jobs", admin, jobs=jobs)
    expected = ("user:boss", "queue.enqueue", True, "task", None, None, {"inserted": 1})
    assert fields(line) == expected


def test_a_key_is_named_by_its_id(world):
    key = world.raw_key("operate")
    line = post(world, "actions", {"x-api-key": key, **REQUEST_ID}, action="cancel", ids=[])
    assert line.actor == f"key:{key[6:14]}"


@table(
    ("method", "path", "action", "queue"),
    [
        ("POST", "sweep?queue=task", "cron.sweep", "task"),
        ("GET", "oci/recover-processing", "cron.recover", "oci"),
        ("GET", "oci/attempt-cap", "cron.attempt_cap", "oci"),
        ("GET", "oci/process-offline-conversions", "cron.process", "oci"),
    ],
)
def test_a_run_of_the_cron_caller_has_the_number_of_moves(method, path, action, queue, world):
    line = line_of(world, method, f"/api/cron/{path}", CRON)
    assert fields(line)[:6] == ("cron", action, True, queue, None, None)
    assert details(line)["moved"] == 0


def test_actions_on_conversions_name_the_site(world, nur):
    sent = {"siteId": "north", "action": "MARK_FAILED", "filter": {"status": ["FAILED"]}}
    line = line_of(world, "POST", "/api/oci/queue-actions", nur, json=sent)
    assert fields(line)[:5] == ("user:nur", "queue.MARK_FAILED", True, "oci", "north")
    line = line_of(world, "POST", "/api/oci/credentials/check?siteId=north", nur)
    assert fields(line) == ("user:nur", "oci.check", True, "oci", "north", None, None)


# Refused


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "action by id": ("actions", {"action": "cancel", "ids": []}, "queue.cancel"),
    "action by filter": ("actions", {"action": "requeue", "filter": {}}, "queue.requeue"),
    "dry run": ("actions", {"action": "cancel", "ids": [], "dry_run": True}, "queue.cancel"),
    "pause": ("pause", {}, "queue.pause"),
    "pause a site": ("pause", {"site": "north"}, "queue.pause"),
    "resume": ("resume", {}, "queue.resume"),
    "enqueue": ("jobs", {"jobs": [{"payload": 1}]}, "queue.enqueue"),
}


@table("name", REFUSED)
def test_an_action_without_permission_leaves_one_line(name, world, viewer, nur):
    path, sent, action = REFUSED[name]
    line = post(world, path, viewer, **sent)
    assert fields(line) == ("user:can", action, False, "task", None, None, None)
    for queue in ("pdf", "nope") if name != "enqueue" else ():  # hidden, and not there
        line = post(world, path, nur, queue, **sent)
        assert fields(line) == ("user:nur", action, False, queue, None, None, None)


OF_SITE: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "queue.cancel": ("actions", lambda site: {"action": "cancel", "filter": {"sites": [site]}}),
    "queue.pause": ("pause", lambda site: {"site": site}),
    "queue.resume": ("resume", lambda site: {"site": site}),
}


@table("action", OF_SITE)
def test_an_action_on_another_site_leaves_one_line_with_the_site(action, world, nur):
    path, sent = OF_SITE[action]
    for site in ("south", "nowhere"):
        line = post(world, path, nur, **sent(site))
        assert fields(line) == ("user:nur", action, False, "task", site, None, None)
    if path != "actions":  # a whole queue, with the permission for one site
        line = post(world, path, nur)
        assert fields(line) == ("user:nur", action, False, "task", None, None, None)


@table(
    ("scope", "method", "path", "expected"),
    [
        ("pdf", "GET", "/api/queues/task/stats", ("queue.read", False, "task", None)),
        ("read", "GET", "/metrics", ("metrics.read", False, None, None)),
        ("admin", "POST", "/api/cron/sweep?queue=task", ("cron.sweep", False, "task", None)),
    ],
)
def test_a_key_without_the_scope_leaves_one_line(scope, method, path, expected, world):
    line = line_of(world, method, path, world.key(scope) | REQUEST_ID)
    assert fields(line)[1:5] == expected


OF_OCI: dict[str, tuple[str, str, dict[str, Any]]] = {
    "oci.ingest": ("POST", "conversions?siteId=north", {"json": []}),
    "oci.export": ("GET", "google-ads-export?siteId=north&markAsExported=true", {}),
    "oci.ack": ("POST", "ack", {"json": {"siteId": "north", "queueIds": []}}),
    "oci.ack_failed": ("POST", "ack-failed", {"json": {"siteId": "north", "queueIds": []}}),
    "oci.heartbeat": ("POST", "script-heartbeat", {"json": {"siteId": "north"}}),
    "oci.actions": ("POST", "actions", {"json": {"siteId": "north", "actions": []}}),
    "oci.reconciliation": (
        "POST",
        "reconciliation",
        {"json": {"siteId": "north", "zone": "UTC", "uploads": [], "attributed": []}},
    ),
    "oci.verify": ("POST", "v2/verify", {"json": {"siteId": "north"}}),
    "oci.credentials": ("PUT", "credentials", {"json": {"siteId": "north", "credentials": {}}}),
}


@table("action", OF_OCI)
def test_a_refused_request_for_conversions_leaves_one_line(action, world, nur):
    method, path, sent = OF_OCI[action]
    line = line_of(world, method, f"/api/oci/{path}", nur, **sent)
    assert fields(line) == ("user:nur", action, False, "oci", "north", None, None)


@table(
    ("path", "action", "queue"),
    [
        ("queues/task/jobs?site={site}", "queue.read", "task"),
        ("oci/queue-stats?siteId={site}", "oci.stats", "oci"),
        ("oci/queue-rows?siteId={site}", "oci.rows", "oci"),
        ("oci/dead-letter.csv?siteId={site}", "oci.dead_letters", "oci"),
        ("oci/google-ads-export?siteId={site}", "oci.preview", "oci"),
    ],
)
def test_a_read_of_another_site_leaves_one_line(path, action, queue, world, nur):
    for site in ("south", "nowhere"):
        line = line_of(world, "GET", f"/api/{path.format(site=site)}", nur)
        assert fields(line) == ("user:nur", action, False, queue, site, None, None)


# Sessions


@table(
    ("name", "password", "actor"),
    [
        ("nur", PASSWORD, "user:nur"),
        ("nur", "wrong", "user:nur"),
        ("my-secret-password", "wrong", "user:?"),  # an unknown name may be a password
    ],
)
def test_a_sign_in_leaves_one_line(name, password, actor, world):
    world.known("nur", "operator", sites=["north"])
    permitted = password == PASSWORD
    for path, kind in (("/api/session", "json"), ("/sign-in", "data")):
        sent: dict[str, Any] = {kind: {"name": name, "password": password}}
        line = line_of(world, "POST", path, REQUEST_ID | SAME_ORIGIN, **sent)
        assert fields(line) == (actor, "session.start", permitted, None, None, None, None)


def test_a_sign_out_and_a_sign_in_over_an_old_session_leave_the_end(world, nur):
    line = line_of(world, "DELETE", "/api/session", nur)
    assert fields(line)[:3] == ("user:nur", "session.end", True)
    assert details(line) == {"sessions_ended": 1}
    headers = world.cookie("nur") | REQUEST_ID
    sent = {"name": "nur", "password": PASSWORD}
    lines = world.said(lambda: world.client.post("/api/session", json=sent, headers=headers))
    assert [line.action for line in lines] == ["session.start", "session.end"]
    assert {line.request_id for line in lines} == {"the-request"}


# No line


@table(
    "path",
    [
        *("/sign-in", "/docs", "/api/queues", "/api/sites", "/api/session", "/api/jobs/{job}"),
        *(f"/api/queues/task/{what}" for what in ("stats", "jobs", "jobs?site=north", "lifecycle")),
        *("/api/oci/queue-stats?siteId=north", "/api/oci/queue-stats?scope=multi"),
        *("/api/oci/queue-rows?siteId=north", "/api/oci/google-ads-export?siteId=north"),
    ],
)
def test_a_permitted_read_leaves_no_line(path, world, nur):
    path = path.replace("{job}", world.job())
    statuses: list[int] = []
    read = lambda: statuses.append(world.client.get(path, headers=nur).status_code)  # noqa: E731
    assert world.said(read) == []
    assert statuses == [200]


@table(
    "sent",
    [{"action": "cancel", "filter": {}, "dry_run": True}, {"action": "explode", "ids": []}, {"action": "cancel"}, {}],
)
def test_a_dry_run_and_an_invalid_action_leave_no_line(sent, world, nur):
    path = "/api/queues/task/actions"
    assert world.said(lambda: world.client.post(path, json=sent, headers=nur)) == []


def test_a_request_from_the_page_of_another_site_leaves_no_line(world, nur):
    headers = by_cookie(world.token("nur"), **{"sec-fetch-site": "cross-site"})
    path, sent = "/api/queues/task/pause", {"site": "north"}
    assert world.said(lambda: world.client.post(path, json=sent, headers=headers)) == []
