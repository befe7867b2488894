"""Secrets and payloads, each with a value of its own that is then looked for everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kesin.foundation.logs import set_up_logs
from kesin.foundation.settings import describe_settings
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change
from tests.web.client import Client
from tests.web.conftest import ROOT, MakeWorld, World, by_cookie

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


class Everything:
    """A service full of canaries, and every answer anybody could get out of it."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.accounts.add_user(ROOT, "ayse", PASSWORD, role="admin")
        self.token = world.accounts.sign_in("ayse", PASSWORD, "")[0]
        self.key = world.raw_key("admin")
        self.secrets = {**CANARIES, "session token": self.token, "api key": self.key}
        payload = {"value": PAYLOAD, "phone": PHONE, "gclid": CLICK_ID}
        self.job = world.job(payload=payload, key="the-job")

    def answers(self) -> Iterator[Any]:
        """Right and wrong requests of every kind but the job itself."""
        world, client = self.world, self.world.client
        for headers in (by_cookie(self.token), {"x-api-key": self.key}, {}):
            yield from self._reads(client, headers)
            yield from self._writes(client, headers)
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

    def _reads(self, client: Client, headers: dict[str, str]) -> Iterator[Any]:
        for path in (
            *("/openapi.json", "/docs", "/metrics", "/health/ready", "/sign-in", "/api/session"),
            *("/api/queues", "/api/sites", f"/nowhere/{PHONE}?gclid={CLICK_ID}"),
            *(f"/api/queues/task/{one}" for one in ("stats", "jobs", "lifecycle")),
            f"/api/queues/task/jobs?text={PAYLOAD[:5]}&limit=0",
            f"/api/queues/task/jobs?cursor={CLICK_ID}",
        ):
            yield client.get(path, headers=headers)

    def _writes(self, client: Client, headers: dict[str, str]) -> Iterator[Any]:
        new = {"payload": {"phone": PHONE, "value": PAYLOAD, "gclid": CLICK_ID}}
        for jobs in ([new], [{**new, "max_attempts": 0}], [{**new, "run_at": "never"}], "no"):
            yield client.post("/api/queues/task/jobs", json={"jobs": jobs}, headers=headers)
        act = {"action": "cancel", "ids": [self.job], "dry_run": True}
        yield client.post("/api/queues/task/actions", json=act, headers=headers)
        yield client.post("/api/queues/task/actions", json={"action": PAYLOAD}, headers=headers)


@pytest.fixture
def everything(request: pytest.FixtureRequest, make_world: MakeWorld) -> Everything:
    kind = getattr(request, "param", "sqlite")
    return Everything(make_world(kind, cron_secret=CRON, secret_keys=RING))


either = pytest.mark.parametrize("everything", ["sqlite", "postgres"], indirect=True)


def leaks(text: str, secrets: dict[str, str]) -> list[str]:
    return [name for name, value in secrets.items() if value in text]


@pytest.mark.parametrize("style", ["json", "console"])
def test_no_secret_and_no_payload_is_in_any_log_line(style, everything, capsys):
    set_up_logs(style, "info")
    statuses = {one.status_code for one in everything.answers()}
    written = "".join(capsys.readouterr())
    assert {200, 201, 303, 401, 403, 404, 422} <= statuses
    assert written.count("/api/queues/{queue}/jobs") > 10
    assert leaks(written, everything.secrets) == []


@either
def test_no_secret_and_no_payload_is_in_an_answer_that_was_not_about_it(everything):
    cookies = {name: value for name, value in everything.secrets.items() if name != "session token"}
    for answer in everything.answers():
        asked = f"{answer.request.method} {answer.request.url.path}"
        assert leaks(answer.text, everything.secrets) == [], asked
        assert leaks(str(answer.headers), cookies) == [], asked


def test_a_session_token_is_sent_to_its_owner_in_a_cookie_and_nowhere_else(everything):
    told = {"name": "ayse", "password": PASSWORD}
    answer = everything.world.client.post("/api/session", json=told)
    token = answer.headers["set-cookie"].partition("=")[2].partition(";")[0]
    headers = {name: one for name, one in answer.headers.items() if name != "set-cookie"}
    assert len(token) == 43
    assert token not in answer.text + str(headers)


@either
def test_a_fault_logs_no_payload_and_no_key(everything, capsys, monkeypatch):
    def broken(*_args: Any, **_kwargs: Any) -> None:
        secret = everything.world.found(everything.job).data  # a local the traceback must not show
        raise RuntimeError(f"it has {len(secret)} values")

    monkeypatch.setattr(everything.world.task, "stats", broken)
    set_up_logs("json", "info")
    headers = {"x-api-key": everything.key}
    answer = everything.world.client.get("/api/queues/task/stats", headers=headers)
    written = "".join(capsys.readouterr())
    assert answer.status_code == 500
    assert "it has 3 values" in written
    assert leaks(written + answer.text, everything.secrets) == []


@either
def test_a_fault_of_the_database_shows_no_statement(everything, monkeypatch):
    """A value the driver chokes on: its own message would repeat the statement."""
    world = everything.world
    monkeypatch.setattr(world.task, "stats", lambda: world.store._rows("SELECT no_such_column", {}))  # type: ignore[attr-defined]
    answer = world.client.get("/api/queues/task/stats", headers={"x-api-key": everything.key})
    assert answer.status_code >= 500
    assert "no_such_column" not in answer.text
    assert "SELECT" not in answer.text


def test_the_numbers_name_no_site_no_job_and_no_key(everything):
    world = everything.world
    list(everything.answers())
    page = world.client.get("/metrics", headers={"x-api-key": everything.key}).text
    assert 'kesin_jobs{queue="task",state="ready"}' in page
    assert leaks(page, everything.secrets) == []
    assert not [one for one in ("north", "the-job", everything.job, "ayse") if one in page]


def test_settings_and_service_do_not_show_their_secrets(everything):
    world = everything.world
    shown = [repr(one) for one in (world.settings, world.service, world.accounts, world.app)]
    shown += [
        str(world.settings),
        str(world.settings.model_dump()),
        str(describe_settings(world.settings)),
    ]
    assert leaks("".join(shown), everything.secrets) == []
    assert "cron_secret" in shown[0]


def test_the_audit_log_has_no_secret_and_no_payload(everything):
    list(everything.answers())
    lines = everything.world.audit()
    assert {"queue.enqueue", "session.start", "cron.sweep"} <= {one.action for one in lines}
    assert leaks(repr(lines), everything.secrets) == []


def test_the_tables_keep_no_password_token_or_key(everything):
    directory = everything.world.accounts.directory
    kept = [directory.users(), directory.api_keys(), directory.sessions_of("ayse")]
    assert all(kept)
    assert leaks(repr(kept), everything.secrets) == []


def test_only_who_may_read_a_job_sees_its_payload(everything):
    client, path = everything.world.client, f"/api/jobs/{everything.job}"
    assert PAYLOAD in client.get(path, headers={"x-api-key": everything.key}).text
    for scope in ("metrics", "pdf", "optiplan"):
        assert PAYLOAD not in client.get(path, headers=everything.world.key(scope)).text
    assert PAYLOAD not in client.get(path, headers=everything.world.key("read", site="south")).text


def test_a_workers_error_is_told_with_the_job_and_never_logged(everything, capsys):
    world = everything.world
    set_up_logs("json", "info")
    [job] = world.task.claim("w1")
    change = Change(
        job.id,
        job.claim_seq,
        error_code="BROKEN",
        error_category=Category.PERMANENT.value,
        error_message=f"could not call {PHONE}",
    )
    world.task.apply("fail", [change], actor="w1")
    answer = world.client.get(f"/api/jobs/{job.id}", headers={"x-api-key": everything.key})
    assert answer.json()["job"]["error_message"] == f"could not call {PHONE}"
    assert leaks("".join(capsys.readouterr()), everything.secrets) == []
