"""What `/openapi.json` says is what the running service does, tried with a thousand requests."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import schemathesis
from schemathesis import engine
from schemathesis.engine import events

from kesin.engine.accounts import Accounts
from kesin.foundation.access import system
from kesin.foundation.clock import wall_clock_us
from kesin.store.directory import Directory
from kesin.workloads.pdf.heartbeat import Heartbeat
from tests.cli.programs import Programs
from tests.web.serving import Served, opened, own_settings, serve

SEED = 20_270_101
EXAMPLES = 8  # by chance, for each operation; the corners of its schema come on top
QUEUES = ("oci", "pdf", "optiplan")
BY_ANYONE = ("pdf", "optiplan")  # queues whose jobs need nothing but a payload
STREAM = "/api/queues/{queue}/events"  # goes on for ever: tried by hand below
PASSWORD = "a long enough password"
CRON_SECRET = "a secret of the cron caller"
# What is valid in them a schema cannot tell: the matrix or their own tests have each succeed.
BY_HAND = {
    *(f"POST /jobs/{{job_id}}/{call}" for call in ("approve", "retry", "reissue", "cancel")),
    *(f"GET /jobs/{{job_id}}/{file}" for file in ("xml", "import-files", "plan.svg", "plan.pdf")),
    "PUT /config/rules",
    "PUT /api/oci/credentials",
    "DELETE /api/oci/credentials",
    "POST /pdf/webhooks/{webhook_id}/resend",
    *(
        f"{method} /pdf/{path}/download"  # all of them may have been cancelled by then
        for method in ("GET", "HEAD")
        for path in ("jobs/{job_id}", "batches/{batch_id}")
    ),
}

DAY_US = 86_400_000_000
# A template that takes whatever is sent.
GREETING = {
    "template.html": "<!doctype html><html><head><title>x</title></head><body>Hi</body></html>",
    "schema.json": '{"type": "object"}',
    "sample.json": "{}",
}

SEQUENCES = {"mode": "positive", "max-examples": 5}

# What is not checked, each for a reason.
NOT_CHECKED = (
    # Needs two identities that own things; the authorization matrix is a test of its own.
    "object_level_authorization",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("schema")


@pytest.fixture(scope="module")
def served(folder) -> Iterator[Served]:
    """One service for the whole file, without limits on how often it is asked."""
    with pytest.MonkeyPatch.context() as monkeypatch, Programs(folder) as programs:
        own_settings(monkeypatch, folder)
        env = {"KESIN_RATE_PER_S": "1000000", "KESIN_SIGN_IN_PER_MIN": "10000"}
        env |= {"KESIN_CRON_SECRET": CRON_SECRET, "KESIN_SECRET_KEYS": f"first:{'A' * 43}"}
        greeting = folder / "templates" / "greeting"
        greeting.mkdir(parents=True)
        for name, text in GREETING.items():
            (greeting / name).write_text(text)
        env |= {"KESIN_PDF_TEMPLATES": str(greeting.parent)}
        env |= {"KESIN_PDF_ALLOWED_TEMPLATES": greeting.name}
        env |= {"KESIN_PDF_WEBHOOKS": "https://hooks[.]example[.]com/.*"}
        env |= {"KESIN_PDF_WEBHOOK_SECRET": "a secret of the webhooks"}
        with serve(programs, folder, **env) as served:
            yield served


@pytest.fixture(scope="module")
def jobs(served, folder) -> list[str]:
    """Something to find: jobs of each queue, a person, a site."""
    with opened(folder) as store:
        accounts = Accounts(Directory(store))
        accounts.add_person(system("test"), "ada", PASSWORD, role="admin")
        accounts.add_site(system("test"), "north")
        Heartbeat(store, "one", now=lambda: wall_clock_us() + DAY_US).beat()  # lives to the end
    at = datetime.fromtimestamp(wall_clock_us() / 1_000_000 - 86_400, UTC).isoformat()
    row = {"externalId": "1", "gclid": "Cj0KCQiA_x", "conversionName": "Sale", "conversionTime": at}
    answer = served.client.post(
        "/api/oci/conversions?siteId=north", json={**row, "conversionValue": 1}
    )
    sold = [one["id"] for one in answer.json()["results"]]
    made = [job for queue in BY_ANYONE for job in served.enqueue(queue, {"n": 1}, [], "text", None)]
    return [*sold, *made]


def often(dictionary: str) -> dict[str, Any]:
    return {"dictionary": dictionary, "probability": 0.7}


# A site must be there, an id sealed, a word known: that is more than a schema tells.
TRUSTING = {"positive_data_acceptance": {"enabled": False}}
OF_OCI = [
    # A bad row is answered beside the good ones, not refused.
    {
        "include-path": "/api/oci/conversions",
        "checks": {**TRUSTING, "negative_data_rejection": {"enabled": False}},
    },
    {
        "include-path": "/api/oci/queue-actions",
        "parameters": {"body.action": often("acts")},
        "generation": {"max-examples": 5 * EXAMPLES},
        "checks": TRUSTING,
    },
    {
        "include-path-regex": "^/api/oci/(?!conversions$|queue-actions$)",
        "checks": TRUSTING,
    },
]
# What fits a template, and whose job it is, no schema tells either.
OF_PDF = [
    {"include-path-regex": "^/pdf/(?!batches$)", "checks": TRUSTING},
    # It takes the options of a job: their corners are tried once.
    {
        "include-path": "/pdf/batches",
        "checks": TRUSTING,
        "phases": {"coverage": {"enabled": False}},
    },
]

# Nor does it tell which lists can be read, which phone is one, or where a job stands.
OF_OPTIPLAN = [{"include-path-regex": "^/(jobs|orders|customers|config)", "checks": TRUSTING}]


@pytest.fixture(scope="module")
def schema(served, jobs) -> Any:
    queues = served.client.get("/api/queues").json()
    calls = [
        call for queue in queues if queue["name"] in {"oci", "pdf"} for call in queue["actions"]
    ]
    config = schemathesis.Config.from_dict(
        {
            "seed": SEED,
            "headers": {"x-api-key": served.key},
            "generation": {
                "max-examples": EXAMPLES,
                "deterministic": True,
                "database": "none",
                "allow-x00": False,  # no text holds it: tried by hand below
            },
            # Sequences are of valid requests: what is refused leads nowhere.
            "phases": {"stateful": {"max-steps": 4, "generation": SEQUENCES}},
            "dictionaries": {
                "queues": {"values": list(QUEUES)},
                "one queue": {"values": ["oci"]},
                "by anyone": {"values": list(BY_ANYONE)},
                "jobs": {"values": jobs},
                "calls": {"values": calls},
                "names": {"values": ["ada"]},
                "passwords": {"values": [PASSWORD]},
                "sites": {"values": ["north"]},
                "acts": {"values": ["RETRY_SELECTED", "RESET_TO_QUEUED", "MARK_FAILED"]},
                "templates": {"values": ["greeting"]},
                "batches": {"values": served.enqueue("pdf_batches", {})},
                "hooks": {"values": ["https://hooks.example.com/pdf"]},
                "moments": {"values": [0.01]},
            },
            "parameters": {
                "path.queue": often("queues"),
                "path.job_id": often("jobs"),
                "body.action": often("calls"),
                "body.name": often("names"),
                "body.password": often("passwords"),
                "query.siteId": often("sites"),
                "body.siteId": often("sites"),
                "path.name": often("templates"),
                "path.batch_id": often("batches"),
                "body.template_name": often("templates"),
                "body.webhook_url": often("hooks"),
                "query.wait": {"dictionary": "moments", "probability": 1.0},
            },
            "operations": [
                {"include-path-regex": "^/api/cron/", "headers": {"x-api-key": CRON_SECRET}},
                {
                    "include-path": "/api/queues/{queue}/jobs",
                    "include-method": "POST",
                    "parameters": {"path.queue": often("by anyone")},
                },
                # Which actions there are, each queue says itself: valid ones may be refused.
                {
                    "include-path": "/api/queues/{queue}/actions",
                    "parameters": {"path.queue": often("one queue")},
                    "generation": {"max-examples": 5 * EXAMPLES},  # few of them fit together
                    "checks": {"positive_data_acceptance": {"enabled": False}},
                },
                *OF_OCI,
                *OF_PDF,
                *OF_OPTIPLAN,
            ],
            "checks": {name: {"enabled": False} for name in NOT_CHECKED},
        }
    )
    return schemathesis.openapi.from_url(f"{served.address}/openapi.json", config=config)


@dataclass
class Tried:
    """What all phases of a run came to."""

    statuses: dict[str, set[int]] = field(default_factory=dict)  # by operation
    wrong: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def tried(schema) -> Tried:
    """Corners, chance and sequences of requests, by the engine behind `schemathesis run`.

    Its pytest plugin (4.32) does not go with pytest 9.2: a test has no ``_nodeid`` to write to.
    """
    tried = Tried()
    for event in engine.from_schema(schema.exclude(path=STREAM)).execute():
        match event:
            case events.ScenarioFinished():
                _note(tried, event)
            case events.NonFatalError():
                tried.wrong.append(f"{event.label}: {event.info.format()}")
            case events.FatalError():
                raise event.exception
    return tried


def _note(tried: Tried, event: events.ScenarioFinished) -> None:
    recorder = event.recorder
    for case_id, interaction in recorder.interactions.items():
        label = recorder.cases[case_id].value.operation.label
        if interaction.response is not None:
            tried.statuses.setdefault(label, set()).add(interaction.response.status_code)
    for case_id, nodes in recorder.checks.items():
        for node in nodes:
            info = node.failure_info
            if info is None or (
                node.name == "negative_data_rejection" and _repeats(event, case_id)
            ):
                continue
            told = f"{info.failure.title}: {info.failure.message}"
            where = f"{event.phase.name} {event.label} {node.name}"
            tried.wrong.append(f"{where}: {told}\n{info.code_sample}")


def _repeats(event: events.ScenarioFinished, case_id: str) -> bool:
    """Whether a query names something twice: of a single value the last one counts, as ever."""
    query = urlsplit(event.recorder.interactions[case_id].request.uri).query
    return any(len(values) > 1 for values in parse_qs(query, keep_blank_values=True).values())


def test_every_answer_is_as_the_schema_says(tried):
    assert not tried.wrong, "\n\n".join(tried.wrong)


def test_every_operation_succeeded_at_least_once(tried, schema):
    labels = {one.ok().label for one in schema.exclude(path=STREAM).get_all_operations()}
    well = {label for label, codes in tried.statuses.items() if codes & {200, 201, 202}}
    assert labels - well == BY_HAND - well


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
