"""Requests made up from `/openapi.json` and sent to a running service, and what came of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import schemathesis
from schemathesis import engine
from schemathesis.engine import events

from tests.cli.programs import PATIENCE_S
from tests.web.matrix import ROWS

SEED = 20_270_101
QUEUES = ("oci", "pdf", "optiplan")
BY_ANYONE = ("pdf", "optiplan")  # queues whose jobs need nothing but a payload
STREAM = "/api/queues/{queue}/events"  # goes on for ever: tried by hand
PASSWORD = "a long enough password"
CRON_SECRET = "a secret of the cron caller"
HOOK_SECRET = "a secret of the webhooks"
SECRET_KEY = "A" * 43
SITE = "north"

SEQUENCES = {"mode": "positive", "max-examples": 5}
# What nobody outside may read: our code, our statements, our secrets.
INSIDE = (
    *("Traceback (most recent", "site-packages", "sqlite3.", "psycopg", "pydantic_core"),
    *(
        "SELECT ",
        "INSERT INTO ",
        "redis.exceptions",
        PASSWORD,
        CRON_SECRET,
        HOOK_SECRET,
        SECRET_KEY,
    ),
)
# Where the short form tries every corner; of all the others it tries what comes by chance.
CORNERS = (
    *(
        "/api/queues/{queue}/pause",
        "/api/queues/{queue}/stats",
        "/api/jobs/{job_id}",
        "/api/session",
    ),
    *("/api/oci/ack", "/api/oci/dead-letter.csv", "/api/oci/credentials", "/api/cron/sweep"),
    *("/pdf/jobs/{job_id}", "/pdf/templates/{name}/preview", "/jobs/{job_id}", "/customers"),
)


@dataclass(frozen=True)
class Effort:
    """How much is tried."""

    examples: int  # by chance, for each operation; the corners of its schema come on top
    corners_of_all: bool
    methods: Sequence[str]  # that no operation has


SHORT = Effort(2, corners_of_all=False, methods=["patch"])
LONG = Effort(
    20,
    corners_of_all=True,
    methods=["get", "put", "post", "delete", "options", "patch", "trace", "query"],
)
# By each of nineteen others: methods that no operation has are refused before anybody is known.
BY_OTHERS = Effort(10, corners_of_all=True, methods=["patch"])


def often(dictionary: str) -> dict[str, Any]:
    return {"dictionary": dictionary, "probability": 0.7}


# A site must be there, an id sealed, a word known: that is more than a schema tells.
TRUSTING = {"positive_data_acceptance": {"enabled": False}}
# A bad row is answered beside the good ones, not refused.
NO_CORNERS = {"phases": {"coverage": {"enabled": False}}}
LENIENT = {**TRUSTING, "negative_data_rejection": {"enabled": False}}


def operations(effort: Effort, cron: dict[str, str]) -> list[dict[str, Any]]:
    """What is special about some operations; of one that several entries name, all count."""
    some = {"generation": {"max-examples": 5 * effort.examples}}  # few of them fit together
    return [
        {"include-path-regex": "^/api/cron/", "headers": cron, "checks": TRUSTING},
        {
            "include-path": "/api/queues/{queue}/jobs",
            "parameters": {"path.queue": often("by anyone")},
        },
        # Which actions there are, each queue says itself: valid ones may be refused.
        {
            "include-path": "/api/queues/{queue}/actions",
            "parameters": {"path.queue": often("one queue")},
            "checks": TRUSTING,
            **some,
        },
        {"include-path": "/api/oci/conversions", "checks": LENIENT},
        {
            "include-path": "/api/oci/queue-actions",
            "parameters": {"body.action": often("acts")},
            "checks": TRUSTING,
            **some,
        },
        # It takes the options of a job: their corners are tried once.
        {"include-path": "/pdf/batches", "checks": TRUSTING, **NO_CORNERS},
        # What fits a template, whose job it is, which phone is one: no schema tells.
        {
            "include-path-regex": "^/(api/oci/|pdf/|jobs|orders|customers|config)",
            "checks": TRUSTING,
        },
        *([] if effort.corners_of_all else [{"exclude-path": list(CORNERS), **NO_CORNERS}]),
    ]


def made_up(
    address: str,
    headers: dict[str, str],
    words: dict[str, list[Any]],
    *,
    effort: Effort = SHORT,
    cron: dict[str, str] | None = None,
    by_admin: bool = True,
) -> Any:
    """The schema, ready to be tried by whoever has these headers."""
    config = schemathesis.Config.from_dict(
        {
            "seed": SEED,
            "request-timeout": PATIENCE_S,
            "headers": headers,
            "generation": {
                "max-examples": effort.examples,
                "deterministic": True,
                "database": "none",
                "allow-x00": False,  # no text holds it: tried by hand
            },
            # Sequences are of valid requests: what is refused leads nowhere.
            "phases": {
                "examples": {"enabled": effort.corners_of_all},  # there are hardly any
                "coverage": {"unexpected-methods": list(effort.methods)},
                "stateful": {"max-steps": 4, "generation": SEQUENCES, "enabled": by_admin},
            },
            "dictionaries": {name: {"values": values} for name, values in words.items()},
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
            "operations": operations(effort, cron or headers),
            "checks": {
                # Needs two identities that own things; who may what is the matrix's own test.
                "object_level_authorization": {"enabled": False},
                "positive_data_acceptance": {"enabled": by_admin},
                "ignored_auth": {"enabled": by_admin},  # it knows of keys, others show cookies
            },
        }
    )
    where = f"{address}/openapi.json"
    return schemathesis.openapi.from_url(where, config=config, timeout=PATIENCE_S)


@dataclass
class Sent:
    """A request that was answered, to be sent again by somebody else."""

    method: str
    uri: str
    body: bytes | None
    kind: str | None  # of the body
    status: int


@dataclass
class Tried:
    """What all phases of a run came to."""

    sent: dict[str, list[Sent]] = field(default_factory=dict)  # by operation
    wrong: list[str] = field(default_factory=list)

    def succeeded(self, label: str) -> Sent | None:
        """The last request to this operation that was answered well."""
        return next((one for one in reversed(self.sent.get(label, [])) if one.status < 300), None)


Judge = Callable[[str, Sent, str], str | None]  # operation, request and the answer's text


def tried(schema: Any, judge: Judge) -> Tried:
    """Corners, chance and sequences of requests, by the engine behind `schemathesis run`.

    ``judge`` says what else is wrong with an answer. The engine's pytest plugin (4.32) does not go
    with pytest 9.2: a test has no ``_nodeid``.
    """
    found = Tried()
    for event in engine.from_schema(schema.exclude(path=STREAM)).execute():
        match event:
            case events.ScenarioFinished():
                _note(found, event, judge)
            case events.NonFatalError():
                found.wrong.append(f"{event.label}: {event.info.format()}")
            case events.FatalError():
                raise event.exception
            case events.Interrupted():  # which it keeps to itself: what was tried is not all
                raise KeyboardInterrupt
    return found


def _note(found: Tried, event: events.ScenarioFinished, judge: Judge) -> None:
    recorder = event.recorder
    for case_id, interaction in recorder.interactions.items():
        label = recorder.cases[case_id].value.operation.label
        request, response = interaction.request, interaction.response
        if response is None:
            continue
        kind = next(iter(request.headers.get("Content-Type", [])), None)
        sent = Sent(request.method, request.uri, request.body, kind, response.status_code)
        if request.method != label.partition(" ")[0]:  # which the operation does not have
            continue
        found.sent.setdefault(label, []).append(sent)
        if problem := judge(label, sent, response.text_lossy()):
            found.wrong.append(f"{problem}\n{request.method} {request.uri} {request.body!r:.300}")
    for case_id, nodes in recorder.checks.items():
        for node in nodes:
            info = node.failure_info
            if info is None or (
                node.name == "negative_data_rejection" and _repeats(event, case_id)
            ):
                continue
            said = f"{info.failure.title}: {info.failure.message}"
            where = f"{event.phase.name} {event.label} {node.name}"
            found.wrong.append(f"{where}: {said}\n{info.code_sample}")


def _repeats(event: events.ScenarioFinished, case_id: str) -> bool:
    """Whether a query names something twice: of a single value the last one counts, as ever."""
    query = urlsplit(event.recorder.interactions[case_id].request.uri).query
    return any(len(values) > 1 for values in parse_qs(query, keep_blank_values=True).values())


# What is asked of every answer


def leaks(text: str) -> str | None:
    """What stands in an answer that belongs to the inside."""
    return next((one for one in INSIDE if one in text), None)


def misshapen(label: str, sent: Sent, text: str) -> str | None:
    """Why an answer is not as all are: refusals have one shape, and none tells of the inside."""
    if found := leaks(text):
        return f"{label} tells {found!r}"
    if sent.status < 400 or sent.method == "HEAD":
        return None
    try:
        told = json.loads(text)["error"]
        fits = isinstance(told["code"], str) and isinstance(told["message"], str)
    except (ValueError, KeyError, TypeError):
        fits = False
    return None if fits and sent.status != 500 else f"{label} answers {sent.status}: {text[:300]}"


def expected(column: str, label: str) -> set[int]:
    """What the matrix says that somebody of this column is answered at an operation."""
    method, _, path = label.partition(" ")
    rows = [row for row in ROWS if (row.method, row.path) == (method, path)]
    return {int(row.expected[column]) for row in rows if row.expected[column] != "-"}


def trespass(column: str, label: str, sent: Sent) -> str | None:
    """Whether somebody was let in where the matrix has only refusals."""
    allowed = expected(column, label)
    elsewhere = column.endswith(".oth") and SITE not in f"{sent.uri}{sent.body!r}"
    if label.endswith("/api/session") or elsewhere or not allowed <= {401, 403, 404}:
        return None  # whoever knows a password signs in; without a site, a key means its own
    if sent.status < 300:
        return f"{label} lets {column} in with {sent.status}: the matrix says {sorted(allowed)}"
    return None
