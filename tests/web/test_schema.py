"""What `/openapi.json` says is what the running service does, tried as everybody who may knock.

An admin tries it with hundreds of requests that are made up; what succeeded is then sent by all the
others. The long form has each of them make up their own.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from kesin.engine.access.accounts import Accounts
from kesin.foundation.clock import wall_clock_us
from kesin.foundation.permissions import SCOPES, SITE_SCOPES, system_actor
from kesin.store.directory import Directory
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from tests.cli.programs import PATIENCE_S, Programs
from tests.web import asked
from tests.web.asked import (
    BY_ANYONE,
    BY_OTHERS,
    CRON_SECRET,
    HOOK_SECRET,
    LONG,
    PASSWORD,
    QUEUES,
    SECRET_KEY,
    SHORT,
    SITE,
    STREAM,
    Sent,
    Tried,
    misshapen,
    trespass,
)
from tests.web.serving import Served, opened, own_settings, serve

# What is valid in them a schema cannot tell: the matrix or their own tests have each succeed.
BY_HAND = {
    *(f"POST /jobs/{{job_id}}/{call}" for call in ("approve", "retry", "reissue", "cancel")),
    *(f"GET /jobs/{{job_id}}/{file}" for file in ("xml", "import-files", "plan.svg", "plan.pdf")),
    "PUT /config/rules",
    "POST /customers",
    "GET /customers/lookup",
    "GET /jobs/{job_id}",
    "POST /api/oci/queue-actions",
    "POST /api/queues/{queue}/actions",
    "PUT /api/oci/credentials",
    "DELETE /api/oci/credentials",
    "POST /pdf/webhooks/{webhook_id}/resend",
    *(
        f"{method} /pdf/{path}/download"  # all of them may have been cancelled by then
        for method in ("GET", "HEAD")
        for path in ("jobs/{job_id}", "batches/{batch_id}")
    ),
}

# A template that takes whatever is sent.
GREETING = {
    "template.html": "<!doctype html><html><head><title>x</title></head><body>Hi</body></html>",
    "schema.json": '{"type": "object"}',
    "sample.json": "{}",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("schema")


@pytest.fixture(scope="module")
def served(folder) -> Iterator[Served]:
    """One service for the whole file, without limits on how often it is asked."""
    with pytest.MonkeyPatch.context() as monkeypatch, Programs(folder) as programs:
        own_settings(monkeypatch, folder)
        env = {"KESIN_RATE_PER_S": "1000000", "KESIN_SIGN_IN_PER_MIN": "10000"}
        env |= {"KESIN_CRON_SECRET": CRON_SECRET, "KESIN_SECRET_KEYS": f"first:{SECRET_KEY}"}
        greeting = folder / "templates" / "greeting"
        greeting.mkdir(parents=True)
        for name, text in GREETING.items():
            (greeting / name).write_text(text)
        env |= {"KESIN_PDF_TEMPLATES": str(greeting.parent)}
        env |= {"KESIN_PDF_ALLOWED_TEMPLATES": greeting.name}
        env |= {"KESIN_PDF_WEBHOOKS": "https://hooks[.]example[.]com/.*"}
        env |= {"KESIN_PDF_WEBHOOK_SECRET": HOOK_SECRET}
        with serve(programs, folder, **env) as served:
            yield served


@pytest.fixture(scope="module")
def jobs(served, folder) -> Iterator[list[str]]:
    """Something to find: jobs of each queue, a person, sites; and somebody who seems to render."""
    with opened(folder) as store:
        accounts = Accounts(Directory(store))
        accounts.add_user(system_actor("test"), "ada", PASSWORD, role="admin")
        for site in (SITE, "south"):
            accounts.add_site(system_actor("test"), site)
        heartbeat = Heartbeat(store, "one")
        heartbeat.start()
        yield _enqueued(served)
        heartbeat.stop()


def _enqueued(served: Served) -> list[str]:
    at = datetime.fromtimestamp(wall_clock_us() / 1_000_000 - 86_400, UTC).isoformat()
    row = {"externalId": "1", "gclid": "Cj0KCQiA_x", "conversionName": "Sale", "conversionTime": at}
    answer = served.client.post(
        "/api/oci/conversions?siteId=north", json={**row, "conversionValue": 1}
    )
    sold = [one["id"] for one in answer.json()["results"]]
    made = [job for queue in BY_ANYONE for job in served.enqueue(queue, {"n": 1}, [], "text", None)]
    return [*sold, *made]


# Who knocks: how the matrix calls them, and what they show.
KEYS = {"read": "v", "operate": "o", "oci:ingest": "i", "oci:script": "s"}
COLUMNS = {"pdf": "pdf", "optiplan": "trade", "metrics": "metr", "admin": "admin"}
PEOPLE = {
    "viewer": ("v.all", {"all_sites": True}),
    "viewer of nothing": ("v.no", {}),
    "operator": ("o.own", {"sites": [SITE]}),
    "operator of a queue": ("o.que", {"queues": ["pdf"]}),
}
ACTORS = [
    "nobody",
    "a key made up",
    "cron",
    *(f"{scope} {SITE}" for scope in SCOPES if scope in KEYS),
    *(f"{scope} south" for scope in SCOPES if scope in KEYS),
    *(scope for scope in SCOPES if scope not in SITE_SCOPES and scope != "admin"),
    *PEOPLE,
]


SOME = ["nobody", "a key made up", "cron", f"oci:ingest {SITE}", "oci:script south", "pdf"]
SOME += ["optiplan", "read south", "operate", "metrics", "viewer of nothing", "operator"]


@pytest.fixture(scope="module")
def actors(served, jobs, folder) -> dict[str, tuple[str, dict[str, str]]]:
    """Everybody's column in the matrix, and headers."""
    found = {
        "nobody": ("nobody", {}),
        "a key made up": ("dead", {"x-api-key": f"kesin_abcdefgh_{'x' * 43}"}),
        "cron": ("cron", {"authorization": f"Bearer {CRON_SECRET}"}),
    }
    with opened(folder) as store:
        accounts, by = Accounts(Directory(store)), system_actor("test")
        for scope in SCOPES:
            for site in (SITE, "south", None):
                if site is None and scope in SITE_SCOPES:
                    continue
                key, _ = accounts.create_key(by, "test", [scope], site=site)
                where = {SITE: "own", "south": "oth", None: "all"}[site]
                column = COLUMNS.get(scope) or f"{KEYS[scope]}.{where}"
                found[" ".join(filter(None, (scope, site)))] = (column, {"x-api-key": key})
        for name, (column, may) in PEOPLE.items():
            person = name.replace(" ", "-")
            accounts.add_user(by, person, PASSWORD, role=name.split()[0], **may)
            token, _ = accounts.sign_in(person, PASSWORD, "127.0.0.1")
            cookie = {"cookie": f"kesin_session={token}", "sec-fetch-site": "same-origin"}
            found[name] = (column, cookie)
    return found


@pytest.fixture(scope="module")
def words(served, jobs) -> dict[str, list[Any]]:
    """What schemas cannot know."""
    queues = served.client.get("/api/queues").json()
    return {
        "queues": list(QUEUES),
        "one queue": ["oci"],
        "by anyone": list(BY_ANYONE),
        "jobs": jobs,
        "calls": [
            call for one in queues if one["name"] in {"oci", "pdf"} for call in one["actions"]
        ],
        "names": ["ada"],
        "passwords": [PASSWORD],
        "sites": [SITE],
        "acts": ["RETRY_SELECTED", "RESET_TO_QUEUED", "MARK_FAILED"],
        "templates": ["greeting"],
        "batches": served.enqueue("pdf_batches", {}),
        "hooks": ["https://hooks.example.com/pdf"],
        "moments": [0.01],
    }


@pytest.fixture(scope="module")
def schema(served, words, request) -> Any:
    effort = LONG if request.config.getoption("--long") else SHORT
    headers, cron = {"x-api-key": served.key}, {"x-api-key": CRON_SECRET}
    return asked.made_up(served.address, headers, words, effort=effort, cron=cron)


@pytest.fixture(scope="module")
def tried(schema) -> Tried:
    return asked.tried(schema, misshapen)


def test_every_answer_is_as_the_schema_says(tried):
    assert not tried.wrong, "\n\n".join(tried.wrong)


def test_every_operation_succeeded_at_least_once(tried, schema):
    labels = {one.ok().label for one in schema.exclude(path=STREAM).get_all_operations()}
    well = {label for label in labels if tried.succeeded(label)}
    assert labels - well == BY_HAND - well


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "actor" in metafunc.fixturenames:
        metafunc.parametrize("actor", ACTORS if metafunc.config.getoption("--long") else SOME)


def test_what_an_admin_may_is_answered_to_others_as_the_matrix_says(served, tried, actors, actor):
    column, headers = actors[actor]
    wrong = []
    with httpx.Client(timeout=PATIENCE_S, trust_env=False) as client:
        for label in sorted(tried.sent):
            sent = tried.succeeded(label)
            if sent is None or label.endswith("/api/session"):
                continue
            kind = {"content-type": sent.kind} if sent.kind else {}
            answer = client.request(
                sent.method, sent.uri, content=sent.body, headers={**headers, **kind}
            )
            again = replace(sent, status=answer.status_code)
            wrong += filter(
                None,
                [
                    misshapen(label, again, answer.text),
                    trespass(column, label, again),
                    let_down(column, label, again),
                ],
            )
    assert not wrong, "\n".join(wrong)


def let_down(column: str, label: str, sent: Sent) -> str | None:
    """Whether somebody whom the matrix refuses at once is told anything else."""
    allowed = asked.expected(column, label)
    if allowed <= {401, 403} and sent.status >= 300 and sent.status not in allowed:
        return f"{label} answers {sent.status}, the matrix says {sorted(allowed)}"
    return None


@pytest.mark.long  # minutes for each
def test_everybody_meets_the_schema(served, words, actors, actor):
    column, headers = actors[actor]

    def judge(label: str, sent: Sent, text: str) -> str | None:
        return misshapen(label, sent, text) or trespass(column, label, sent)

    schema = asked.made_up(served.address, headers, words, effort=BY_OTHERS, by_admin=False)
    found = asked.tried(schema.exclude(path="/api/session", method="DELETE"), judge)
    assert not found.wrong, "\n\n".join(found.wrong)


def test_text_that_cannot_be_stored_is_refused_by_name(served):
    answer = served.client.post("/api/queues/pdf/pause", json={"reason": "a\0b"})
    assert answer.status_code == 422
    assert answer.json()["error"]["details"]["fields"][0]["field"] == "reason"


@pytest.mark.parametrize(
    "time",
    [
        "0",
        "1767225600",
        "2026-12-31",
        "2026-12-31T00:00:00",
        "1969-12-31T23:59:59Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "٢026-12-31T00:00:00Z",
    ],
)
def test_a_time_that_could_be_read_in_two_ways_or_cannot_be_kept_is_refused(served, time):
    answer = served.client.get("/api/queues/pdf/jobs", params={"created_before": time})
    assert answer.status_code == 422
    assert answer.json()["error"]["details"]["fields"][0]["field"] == "created_before"


def test_a_time_is_kept_to_the_microsecond(served):
    at = "9999-12-31T23:59:58.123457Z"
    job = {"payload": None, "run_at": at}
    born = served.client.post("/api/queues/optiplan/jobs", json={"jobs": [job]}).json()["jobs"][0]
    assert served.client.get(f"/api/jobs/{born['id']}").json()["job"]["due_at"] == at


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/api/session", "GET, POST, DELETE"),
        ("/api/queues/oci/jobs", "GET, POST"),
        ("/health/live", "GET"),
        ("/openapi.json", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_told_all_the_right_ones(served, path, methods):
    answer = served.client.patch(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)


def test_the_stream_is_described_and_speaks_as_described(served, schema):
    told = schema.raw_schema["paths"][STREAM]["get"]["responses"]["200"]["content"]
    with served.client.stream("GET", "/api/queues/oci/events") as answer:
        assert answer.status_code == 200
        assert list(told) == [answer.headers["content-type"].split(";")[0]]
        assert next(answer.iter_lines()) == "retry: 2000"


def test_the_stream_sends_counts_in_the_shape_of_stats(served):
    with served.client.stream("GET", "/api/queues/pdf/events") as answer:
        lines = answer.iter_lines()
        data = next(line for line in lines if line.startswith("data: "))
    stats = served.client.get("/api/queues/pdf/stats").json()
    assert json.loads(data.removeprefix("data: ")).keys() == stats.keys()


def test_the_stream_tells_what_changed(served):
    with served.client.stream("GET", "/api/queues/optiplan/events") as answer:
        lines = answer.iter_lines()
        before = _total(lines)
        served.enqueue("optiplan", {}, {})
        assert _total(lines) == before + 2


def _total(lines: Iterator[str]) -> int:
    data = next(line for line in lines if line.startswith("data: "))
    total: int = json.loads(data.removeprefix("data: "))["total"]
    return total


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/api/queues/oci/events", {"x-api-key": ""}, 401),
        ("/api/queues/nothing/events", {}, 404),
        ("/api/queues/No%20Name/events", {}, 422),
    ],
)
def test_the_stream_refuses_like_every_other_route(served, path, headers, status):
    answer = served.client.get(path, headers=headers)
    assert answer.status_code == status
    assert answer.json().keys() == {"error"}
