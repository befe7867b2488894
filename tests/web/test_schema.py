"""`/openapi.json` describes what the running service does, tried with generated requests.

The long form tries every path instead of each twelfth, with more requests, and as every kind of
caller.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.foundation.clock import wall_clock_us
from kesin.foundation.permissions import SCOPES, SITE_SCOPES, SITELESS_SCOPES, system_actor
from kesin.store.directory import Directory
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from tests.cli.programs import Programs
from tests.web.schema_requests import (
    APART,
    BOUNDARIES,
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
    SchemaRun,
    Sent,
    load_schema,
    malformed,
    run_schema,
    trespass,
)
from tests.web.serving import Served, opened, own_settings, serve

ROOT = system_actor("test")
# Operations whose valid requests no schema describes: the matrix or their own tests send some.
BY_HAND = {
    *(f"POST /jobs/{{job_id}}/{action}" for action in ("approve", "retry", "reissue", "cancel")),
    *(f"GET /jobs/{{job_id}}/{file}" for file in ("xml", "import-files", "plan.svg", "plan.pdf")),
    *(f"GET /jobs/{{job_id}}/{file}" for file in ("labels.pdf", "ptx", "cut-list.csv", "parts.csv")),
    *("PUT /config/rules", "POST /customers", "GET /customers/lookup", "GET /jobs/{job_id}"),
    *("POST /api/oci/queue-actions", "POST /api/queues/{queue}/actions"),
    *("PUT /api/oci/credentials", "DELETE /api/oci/credentials"),
    *("POST /api/oci/reconciliation", "POST /pdf/webhooks/{webhook_id}/resend"),
    *("PUT /api/oci/sites/{site_id}/credentials", "DELETE /api/sites/{site_id}"),
    *("PUT /pdf/templates/{name}", "GET /pdf/templates/{name}/versions"),
    "POST /pdf/templates/{name}/versions/{version}/activate",
    "DELETE /pdf/templates/{name}/versions/{version}",
    *("POST /api/sites/{site_id}/keys", "DELETE /api/sites/{site_id}/keys/{key_id}"),
    *(
        f"{method} /pdf/{path}/download"  # all of them may have been cancelled by then
        for method in ("GET", "HEAD")
        for path in ("jobs/{job_id}", "batches/{batch_id}")
    ),
    "POST /pdf/jobs/{job_id}/links",  # likewise
    "GET /rack/labels.pdf",
}

# A template that takes any variables.
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
    """One service for the whole module, without rate limits."""
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
    """Jobs of each queue, a user, sites, and the heartbeat of a renderer."""
    with opened(folder) as store:
        accounts = Accounts(Directory(store))
        accounts.add_user(ROOT, "ada", PASSWORD, role="admin")
        for site in (SITE, "south"):
            accounts.add_site(ROOT, site)
        heartbeat = Heartbeat(store, "one")
        heartbeat.start()
        yield _enqueued(served)
        heartbeat.stop()


def _enqueued(served: Served) -> list[str]:
    at = datetime.fromtimestamp(wall_clock_us() / 1_000_000 - 86_400, UTC).isoformat()
    row = {"externalId": "1", "gclid": "Cj0KCQiA_x", "conversionName": "Sale", "conversionTime": at}
    response = served.client.post("/api/oci/conversions?siteId=north", json={**row, "conversionValue": 1})
    conversions = [result["id"] for result in response.json()["results"]]
    others = [served.enqueue(queue, {"n": 1}, [], "text", None) for queue in BY_ANYONE]
    return sum(others, conversions)


# Callers: their columns in the matrix, and their headers.
BY_SITE = {"read": "v", "operate": "o", "oci:ingest": "i", "oci:script": "s"}
COLUMNS = {"pdf": "pdf", "optiplan": "opti", "metrics": "metr"}
USERS: dict[str, tuple[str, dict[str, Any]]] = {
    "viewer": ("v.all", {"all_sites": True}),
    "viewer of nothing": ("v.no", {}),
    "operator": ("o.own", {"sites": [SITE]}),
    "operator of a queue": ("o.que", {"queues": ["pdf"]}),
}
CALLERS = [
    *("nobody", "a key made up", "cron", *COLUMNS, *USERS),
    *(f"{scope} {site}" for scope in BY_SITE for site in (SITE, "south")),
    *(scope for scope in BY_SITE if scope not in SITE_SCOPES),
]


@pytest.fixture(scope="module")
def callers(served, jobs, folder) -> dict[str, tuple[str, dict[str, str]]]:
    """Every caller's column in the matrix, and headers."""
    callers = {
        "nobody": ("nobody", {}),
        "a key made up": ("dead", {"x-api-key": f"kesin_abcdefgh_{'x' * 43}"}),
        "cron": ("cron", {"authorization": f"Bearer {CRON_SECRET}"}),
    }
    with opened(folder) as store:
        accounts = Accounts(Directory(store))
        for scope in {*SCOPES} - {"admin"}:
            for site, where in {SITE: "own", "south": "oth", None: "all"}.items():
                if scope in (SITE_SCOPES if site is None else SITELESS_SCOPES):
                    continue
                key, _ = accounts.create_key(ROOT, "test", [scope], site=site)
                column = COLUMNS.get(scope) or f"{BY_SITE[scope]}.{where}"
                callers[" ".join(filter(None, (scope, site)))] = (column, {"x-api-key": key})
        for name, (column, permissions) in USERS.items():
            user = name.replace(" ", "-")
            accounts.add_user(ROOT, user, PASSWORD, role=name.split()[0], **permissions)
            token, _ = accounts.sign_in(user, PASSWORD, "127.0.0.1")
            cookie = {"cookie": f"kesin_session={token}", "sec-fetch-site": "same-origin"}
            callers[name] = (column, cookie)
    return callers


@pytest.fixture(scope="module")
def words(served, jobs) -> dict[str, list[Any]]:
    """Values that schemas do not know."""
    queues = served.client.get("/api/queues").json()
    return {
        "queues": list(QUEUES),
        "one queue": ["oci"],
        "by anyone": list(BY_ANYONE),
        "jobs": jobs,
        "calls": [action for queue in queues if queue["name"] in {"oci", "pdf"} for action in queue["actions"]],
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
    is_long = request.config.getoption("--long")
    headers, cron = {"x-api-key": served.key}, {"x-api-key": CRON_SECRET}
    effort = LONG if is_long else SHORT
    whole = load_schema(served.address, headers, words, effort=effort, cron=cron)
    paths = sorted(whole.raw_schema["paths"])
    rest = [path for n, path in enumerate(paths) if n % 12 and path not in BOUNDARIES]
    return whole if is_long else whole.exclude(path=rest)


@pytest.fixture(scope="module")
def run(schema) -> SchemaRun:
    return run_schema(schema, malformed)


def test_every_response_is_as_the_schema_says(run):
    assert not run.wrong, "\n\n".join(run.wrong)


def test_every_operation_succeeded_at_least_once(run, schema):
    labels = {operation.ok().label for operation in schema.exclude(path=APART).get_all_operations()}
    assert labels
    assert {label for label in labels if not run.succeeded(label)} <= BY_HAND


def test_the_list_of_operations_tried_by_hand_holds_nothing_else(schema):
    paths = schema.raw_schema["paths"]
    assert {f"{method.upper()} {path}" for path in paths for method in paths[path]} >= BY_HAND


@pytest.mark.long  # minutes for each
@pytest.mark.parametrize("caller", CALLERS)
def test_generated_requests_of_every_caller_are_refused_as_the_matrix_says(served, words, callers, caller):
    column, headers = callers[caller]

    def judge(label: str, sent: Sent, text: str) -> str | None:
        return malformed(label, sent, text) or trespass(column, label, sent)

    schema = load_schema(served.address, headers, words, effort=BY_OTHERS, by_admin=False)
    run = run_schema(schema.exclude(path="/api/session", method="DELETE"), judge)
    assert not run.wrong, "\n\n".join(run.wrong)


def test_text_that_cannot_be_stored_is_refused_by_name(served):
    response = served.client.post("/api/queues/pdf/pause", json={"reason": "a\0b"})
    assert response.status_code == 422
    assert response.json()["error"]["details"]["fields"][0]["field"] == "reason"


def test_a_time_that_is_ambiguous_or_cannot_be_stored_is_refused(served):
    for time in (
        *("0", "1767225600", "2026-12-31", "2026-12-31T00:00:00", "1969-12-31T23:59:59Z"),
        *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "٢026-12-31T00:00:00Z"),
    ):
        response = served.client.get("/api/queues/pdf/jobs", params={"created_before": time})
        assert response.status_code == 422, time
        assert response.json()["error"]["details"]["fields"][0]["field"] == "created_before"


def test_a_time_is_stored_to_the_microsecond(served):
    at = "9999-12-31T23:59:58.123457Z"
    new = {"jobs": [{"payload": None, "run_at": at}]}
    [job] = served.client.post("/api/queues/optiplan/jobs", json=new).json()["jobs"]
    assert served.client.get(f"/api/jobs/{job['id']}").json()["job"]["due_at"] == at


def test_a_wrong_method_is_answered_with_the_right_ones(served):
    for path, methods in {
        "/api/session": "GET, POST, DELETE",
        "/api/queues/oci/jobs": "GET, POST",
        "/health/live": "GET",
        "/openapi.json": "GET, HEAD",
    }.items():
        response = served.client.patch(path)
        assert (response.status_code, response.headers["allow"]) == (405, methods)
        assert response.json()["error"]["code"] == "method_not_allowed"


def test_the_stream_is_as_described_and_sends_what_changed_in_the_shape_of_stats(served, schema):
    described = schema.raw_schema["paths"][STREAM]["get"]["responses"]["200"]["content"]
    stats = served.client.get("/api/queues/optiplan/stats").json()
    with served.client.stream("GET", "/api/queues/optiplan/events") as response:
        assert response.status_code == 200
        assert list(described) == [response.headers["content-type"].split(";")[0]]
        lines = response.iter_lines()
        assert next(lines) == "retry: 2000"
        before = _next_stats(lines)
        assert before.keys() == stats.keys()
        served.enqueue("optiplan", {}, {})
        assert _next_stats(lines)["total"] == before["total"] + 2
    assert served.client.get("/api/queues/No%20Name/events").status_code == 422


def _next_stats(lines: Iterator[str]) -> dict[str, Any]:
    data = next(line for line in lines if line.startswith("data: "))
    stats: dict[str, Any] = json.loads(data.removeprefix("data: "))
    return stats
