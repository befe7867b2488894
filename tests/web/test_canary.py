"""Secrets and payloads, each with a value of its own that must appear nowhere else."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kesin.engine.queue import apply_changes
from kesin.foundation.logs import set_up_logs
from kesin.foundation.settings import describe_settings
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change
from tests.web.client import Client
from tests.web.conftest import EITHER, ROOT, MakeWorld, World, by_cookie

PASSWORD = "canary-password-7f3a"
CRON = "canary-cron-secret-91bc"
RING = "first:Y2FuYXJ5LXNlY3JldC1yaW5nLTMyLWJ5dGVzLWxvbmc="
PAYLOAD = "canary-payload-value-55e0"
PHONE = "+905321234567"
CLICK_ID = "canary-gclid-Cj0KCQ"
CANARIES = {
    "password": PASSWORD,
    "cron secret": CRON,
    "key ring": RING.partition(":")[2],
    "payload": PAYLOAD,
    "phone": PHONE,
    "click id": CLICK_ID,
}


class Canaries:
    """A service full of secrets, and responses of every kind."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.accounts.add_user(ROOT, "ayse", PASSWORD, role="admin")
        self.token = world.accounts.sign_in("ayse", PASSWORD, "")[0]
        self.key = world.raw_key("admin")
        self.secrets = {**CANARIES, "session token": self.token, "api key": self.key}
        payload = {"value": PAYLOAD, "phone": PHONE, "gclid": CLICK_ID}
        self.job = world.job(payload=payload, key="the-job")

    def responses(self) -> Iterator[Any]:
        """Right and wrong requests of every kind but the job itself."""
        world, client = self.world, self.world.client
        for headers in (by_cookie(self.token), {"x-api-key": self.key}, {}):
            yield from self.reads(client, headers)
            yield from self.writes(client, headers)
        wrong = {"name": "ayse", "password": PASSWORD + "x"}
        same = {"sec-fetch-site": "same-origin"}
        yield client.post("/api/session", json=wrong)
        yield client.post("/api/session", json={"name": "ayse", "password": [PASSWORD]})
        yield client.post("/api/session", json={"name": PASSWORD, "passwort": PASSWORD})
        yield client.post("/api/session", content=json.dumps(wrong)[:-1])
        yield client.post("/sign-in", data=wrong, headers=same)
        yield client.post("/sign-in", data={"name": "ayse", "password": PASSWORD}, headers=same)
        for given in (self.key + "x", self.key[:-1], CRON + "x", f"kesin_{CRON}"):
            for header in ({"x-api-key": given}, {"authorization": f"Bearer {given}"}):
                yield client.get("/api/queues", headers=header)
                yield client.post("/api/cron/sweep", headers=header)
        yield client.post("/api/cron/sweep", headers={"authorization": f"Bearer {CRON}"})
        yield client.post("/api/session", json={"name": "ayse", "password": PASSWORD})
        world.task.act("cancel", actor="tests", ids=[self.job])

    def reads(self, client: Client, headers: dict[str, str]) -> Iterator[Any]:
        for path in (
            *("/openapi.json", "/docs", "/metrics", "/health/ready", "/sign-in", "/api/session"),
            *("/api/queues", "/api/sites", f"/nowhere/{PHONE}?gclid={CLICK_ID}"),
            *(f"/api/queues/task/{one}" for one in ("stats", "jobs", "lifecycle")),
            f"/api/queues/task/jobs?text={PAYLOAD[:5]}&limit=0",
            f"/api/queues/task/jobs?cursor={CLICK_ID}",
        ):
            yield client.get(path, headers=headers)

    def writes(self, client: Client, headers: dict[str, str]) -> Iterator[Any]:
        new = {"payload": {"phone": PHONE, "value": PAYLOAD, "gclid": CLICK_ID}}
        for jobs in ([new], [{**new, "max_attempts": 0}], [{**new, "run_at": "never"}], "no"):
            yield client.post("/api/queues/task/jobs", json={"jobs": jobs}, headers=headers)
        act = {"action": "cancel", "ids": [self.job], "dry_run": True}
        yield client.post("/api/queues/task/actions", json=act, headers=headers)
        yield client.post("/api/queues/task/actions", json={"action": PAYLOAD}, headers=headers)


@pytest.fixture
def canaries(request: pytest.FixtureRequest, make_world: MakeWorld) -> Canaries:
    kind = getattr(request, "param", "sqlite")
    return Canaries(make_world(kind, cron_secret=CRON, secret_keys=RING))


either = pytest.mark.parametrize("canaries", ["sqlite", "postgres"], indirect=True)


def leaks(text: str, secrets: dict[str, str]) -> list[str]:
    return [name for name, value in secrets.items() if value in text]


def test_no_secret_and_no_payload_is_in_a_log_a_response_a_metric_or_the_audit_log(canaries, capsys):
    set_up_logs("json", "info")
    statuses = _check_responses(canaries)
    written = "".join(capsys.readouterr())
    assert {200, 201, 303, 401, 403, 404, 422} <= statuses
    assert written.count("/api/queues/{queue}/jobs") > 10
    assert leaks(written, canaries.secrets) == []

    world = canaries.world
    metrics = world.client.get("/metrics", headers={"x-api-key": canaries.key}).text
    assert 'kesin_jobs{queue="task",state="ready"}' in metrics
    assert leaks(metrics, canaries.secrets) == []
    private = ("north", "the-job", canaries.job, "ayse")
    assert not [name for name in private if name in metrics]

    lines = world.audit()
    assert {"queue.enqueue", "session.start", "cron.sweep"} <= {line.action for line in lines}
    assert leaks(repr(lines), canaries.secrets) == []


@pytest.mark.parametrize("canaries", EITHER, indirect=True)
def test_the_console_log_holds_none_either(canaries, capsys):
    """It is written from the same records: requests of one caller have each kind of them."""
    set_up_logs("console", "info")
    key = {"x-api-key": canaries.key}
    for response in (*canaries.reads(canaries.world.client, key), *canaries.writes(canaries.world.client, key)):
        assert leaks(response.text, canaries.secrets) == []
    written = "".join(capsys.readouterr())
    assert written.count("/api/queues/{queue}/jobs") > 5
    assert leaks(written, canaries.secrets) == []


def _check_responses(canaries: Canaries) -> set[int]:
    """Look for secrets in every response; the statuses there were."""
    statuses = set()
    no_cookie = {name: one for name, one in canaries.secrets.items() if name != "session token"}
    for response in canaries.responses():
        request = f"{response.request.method} {response.request.url.path}"
        assert leaks(response.text, canaries.secrets) == [], request
        assert leaks(str(response.headers), no_cookie) == [], request
        statuses.add(response.status_code)
    return statuses


def test_a_session_token_is_sent_to_its_owner_in_a_cookie_and_nowhere_else(canaries):
    credentials = {"name": "ayse", "password": PASSWORD}
    response = canaries.world.client.post("/api/session", json=credentials)
    token = response.headers["set-cookie"].partition("=")[2].partition(";")[0]
    headers = {name: value for name, value in response.headers.items() if name != "set-cookie"}
    assert len(token) == 43
    assert token not in response.text + str(headers)


@either
def test_a_fault_shows_and_logs_no_payload_no_key_and_no_statement(canaries, capsys, monkeypatch):
    world, headers = canaries.world, {"x-api-key": canaries.key}

    def broken(*_args: Any, **_kwargs: Any) -> None:
        secret = world.found(canaries.job).payload  # a local that the traceback must not show
        raise RuntimeError(f"it has {len(secret)} values")

    monkeypatch.setattr(world.task, "stats", broken)
    set_up_logs("json", "info")
    response = world.client.get("/api/queues/task/stats", headers=headers)
    written = "".join(capsys.readouterr())
    assert response.status_code == 500
    assert "it has 3 values" in written
    assert leaks(written + response.text, canaries.secrets) == []

    store: Any = world.store  # the driver's own message would repeat the statement
    monkeypatch.setattr(world.task, "stats", lambda: store._rows("SELECT no_such_column", {}))
    response = world.client.get("/api/queues/task/stats", headers=headers)
    assert response.status_code >= 500
    assert "no_such_column" not in response.text
    assert "SELECT" not in response.text


def test_settings_service_and_tables_do_not_show_secrets(canaries):
    world, directory = canaries.world, canaries.world.accounts.directory
    shown = [repr(part) for part in (world.settings, world.service, world.accounts, world.app)]
    shown += [str(world.settings), str(world.settings.model_dump())]
    shown += [str(describe_settings(world.settings))]
    assert "cron_secret" in shown[0]
    stored = [directory.users(), directory.api_keys(), directory.sessions_of("ayse")]
    assert all(stored)
    assert leaks("".join(shown) + repr(stored), canaries.secrets) == []


def test_the_error_of_a_worker_is_shown_with_the_job_and_never_logged(canaries, capsys):
    world = canaries.world
    set_up_logs("json", "info")
    [job] = world.task.claim("w1")
    change = Change(
        job.id,
        job.claim_seq,
        error_code="BROKEN",
        error_category=Category.PERMANENT.value,
        error_message=f"could not call {PHONE}",
    )
    apply_changes(world.task, "fail", [change], actor="w1")
    response = world.client.get(f"/api/jobs/{job.id}", headers={"x-api-key": canaries.key})
    assert response.json()["job"]["error_message"] == f"could not call {PHONE}"
    assert leaks("".join(capsys.readouterr()), canaries.secrets) == []
