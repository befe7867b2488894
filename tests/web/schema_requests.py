"""Requests generated from `/openapi.json` and sent to a running service, and their responses."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.cli.programs import PATIENCE_S
from tests.web.matrix import ROWS

if TYPE_CHECKING:  # it takes long to import, and the tests of one module use it
    from schemathesis.engine import events

SEED = 20_270_101
QUEUES = ("oci", "pdf", "optiplan")
BY_ANYONE = ("pdf", "optiplan")  # queues whose jobs need nothing but a payload
STREAM = "/api/queues/{queue}/events"  # does not end: has a test of its own
APART = [STREAM, "/plans/try"]  # which plans for seconds whatever `POST /jobs` would take
PASSWORD = "a long enough password"
CRON_SECRET = "a secret of the cron caller"
HOOK_SECRET = "a secret of the webhooks"
SECRET_KEY = "A" * 43
SITE = "north"

SEQUENCES = {"mode": "positive", "max-examples": 5}
# What no response may contain: our code, our statements, our secrets.
INTERNAL = (
    *("Traceback (most recent", "site-packages", "sqlite3.", "psycopg", "pydantic_core"),
    *("SELECT ", "INSERT INTO ", "redis.exceptions"),
    *(PASSWORD, CRON_SECRET, HOOK_SECRET, SECRET_KEY),
)
# Where the short form tries every boundary value; elsewhere it tries random values only.
BOUNDARIES = ("/api/queues/{queue}/pause", "/api/jobs/{job_id}", "/customers")


@dataclass(frozen=True)
class Effort:
    """How many requests are generated."""

    examples: int  # random ones for each operation; boundary values of its schema come on top
    thorough: bool  # boundary values of all operations, and sequences of requests
    methods: Sequence[str]  # that no operation has


SHORT = Effort(1, thorough=False, methods=["patch"])
LONG = Effort(20, thorough=True, methods=["get", "put", "post", "delete", "options", "patch", "trace", "query"])
BY_OTHERS = Effort(10, thorough=True, methods=["patch"])  # by each caller who is not an admin


def often(dictionary: str) -> dict[str, Any]:
    return {"dictionary": dictionary, "probability": 0.7}


# A site must exist, an id be sealed, a word be known: no schema says so.
TRUSTING = {"positive_data_acceptance": {"enabled": False}}
# A bad row is reported beside the good ones, not refused.
NO_BOUNDARIES = {"phases": {"coverage": {"enabled": False}}}
LENIENT = {**TRUSTING, "negative_data_rejection": {"enabled": False}}


def operations(effort: Effort, cron: dict[str, str]) -> list[dict[str, Any]]:
    """Exceptions for some operations; all entries that name an operation apply."""
    some = {"generation": {"max-examples": 5 * effort.examples}}  # few are valid as a whole
    return [
        {"include-path-regex": "^/api/cron/", "headers": cron, "checks": TRUSTING},
        {"include-path": "/api/queues/{queue}/jobs", "parameters": {"path.queue": often("by anyone")}},
        # Each queue has its own actions: a valid name may be refused.
        {
            "include-path": "/api/queues/{queue}/actions",
            "parameters": {"path.queue": often("one queue")},
            "checks": TRUSTING,
            **some,
        },
        {"include-path": "/api/oci/conversions", "checks": LENIENT},
        {"include-path": ["/api/session", "/pdf/jobs/{job_id}"], **some},
        {
            "include-path": "/api/oci/queue-actions",
            "parameters": {"body.action": often("acts")},
            "checks": TRUSTING,
            **some,
        },
        # It takes the options of a job, whose boundaries are tried there.
        {"include-path": "/pdf/batches", "checks": TRUSTING, **NO_BOUNDARIES},
        # What fits a template, whose job it is, which phone is valid: no schema says so.
        {"include-path-regex": "^/(api/oci/|api/sites/|pdf/|jobs|orders|customers|config)", "checks": TRUSTING},
        *([] if effort.thorough else [{"exclude-path": list(BOUNDARIES), **NO_BOUNDARIES}]),
    ]


def load_schema(
    address: str,
    headers: dict[str, str],
    words: dict[str, list[Any]],
    *,
    effort: Effort = SHORT,
    cron: dict[str, str] | None = None,
    by_admin: bool = True,
) -> Any:
    """The schema, ready to be run by the caller with these headers."""
    import schemathesis

    config = schemathesis.Config.from_dict(
        {
            "seed": SEED,
            "request-timeout": PATIENCE_S,
            "headers": headers,
            "generation": {
                "max-examples": effort.examples,
                "deterministic": True,
                "database": "none",
                "allow-x00": False,  # no text holds it: has a test of its own
            },
            # Sequences are of valid requests: nothing follows a refused one.
            "phases": {
                "examples": {"enabled": effort.thorough},  # there are hardly any
                "coverage": {"unexpected-methods": list(effort.methods)},
                "stateful": {"max-steps": 4, "generation": SEQUENCES, "enabled": by_admin and effort.thorough},
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
                # Needs two owners; permissions are the matrix's own test.
                "object_level_authorization": {"enabled": False},
                "positive_data_acceptance": {"enabled": by_admin},
                "ignored_auth": {"enabled": by_admin},  # it knows keys, not cookies
            },
        }
    )
    url = f"{address}/openapi.json"
    return schemathesis.openapi.from_url(url, config=config, timeout=PATIENCE_S)


@dataclass
class Sent:
    """A request and the status of its response."""

    method: str
    uri: str
    body: bytes | None
    status: int


@dataclass
class SchemaRun:
    """The requests of all phases, and what is wrong with their responses."""

    sent: dict[str, list[Sent]] = field(default_factory=dict)  # by operation
    wrong: list[str] = field(default_factory=list)

    def succeeded(self, label: str) -> bool:
        """Whether any request to this operation was answered with success."""
        return any(request.status < 300 for request in self.sent.get(label, []))


Judge = Callable[[str, Sent, str], str | None]  # operation, request, text of the response


def run_schema(schema: Any, judge: Judge) -> SchemaRun:
    """Boundary values, random values and sequences, by the engine behind `schemathesis run`.

    ``judge`` says what else is wrong with a response. The engine's pytest plugin (4.32) does not
    work with pytest 9.2: a test has no ``_nodeid``.
    """
    from schemathesis import engine
    from schemathesis.engine import events

    run = SchemaRun()
    for event in engine.from_schema(schema.exclude(path=APART)).execute():
        match event:
            case events.ScenarioFinished():
                _record(run, event, judge)
            case events.NonFatalError():
                run.wrong.append(f"{event.label}: {event.info.format()}")
            case events.FatalError():
                raise event.exception
            case events.Interrupted():  # which the engine swallows: the run is incomplete
                raise KeyboardInterrupt
    return run


def _record(run: SchemaRun, event: "events.ScenarioFinished", judge: Judge) -> None:
    recorder = event.recorder
    for case_id, interaction in recorder.interactions.items():
        label = recorder.cases[case_id].value.operation.label
        request, response = interaction.request, interaction.response
        if response is None or request.method != label.partition(" ")[0]:
            continue  # the method is one that the operation does not have
        sent = Sent(request.method, request.uri, request.body, response.status_code)
        run.sent.setdefault(label, []).append(sent)
        if problem := judge(label, sent, response.text_lossy()):
            run.wrong.append(f"{problem}\n{request.method} {request.uri} {request.body!r:.300}")
    for case_id, nodes in recorder.checks.items():
        for node in nodes:
            info = node.failure_info
            if info is None or (node.name == "negative_data_rejection" and _repeats(event, case_id)):
                continue
            reason = f"{info.failure.title}: {info.failure.message}"
            check = f"{event.phase.name} {event.label} {node.name}"
            run.wrong.append(f"{check}: {reason}\n{info.code_sample}")


def _repeats(event: "events.ScenarioFinished", case_id: str) -> bool:
    """Whether a query repeats a name: of a single value the last one counts."""
    query = urlsplit(event.recorder.interactions[case_id].request.uri).query
    return any(len(values) > 1 for values in parse_qs(query, keep_blank_values=True).values())


# What every response is checked for


def leak(text: str) -> str | None:
    """The internal detail that a response shows, if any."""
    return next((detail for detail in INTERNAL if detail in text), None)


def malformed(label: str, sent: Sent, text: str) -> str | None:
    """Why a response is wrong: refusals have one shape, and none shows internal details."""
    if detail := leak(text):
        return f"{label} shows {detail!r}"
    if sent.status < 400 or sent.method == "HEAD":
        return None
    try:
        error = json.loads(text)["error"]
        fits = isinstance(error["code"], str) and isinstance(error["message"], str)
    except (ValueError, KeyError, TypeError):
        fits = False
    return None if fits and sent.status != 500 else f"{label} answers {sent.status}: {text[:300]}"


def trespass(column: str, label: str, sent: Sent) -> str | None:
    """Whether a caller succeeded where the matrix has only refusals."""
    method, _, path = label.partition(" ")
    statuses = {row.expected[column] for row in ROWS if (row.method, row.path) == (method, path)}
    elsewhere = column.endswith(".oth") and SITE not in f"{sent.uri}{sent.body!r}"
    if label.endswith("/api/session") or elsewhere or not statuses <= {"401", "403", "404", "-"}:
        return None  # a password signs in; without a site, a key means its own
    if sent.status < 300:
        return f"{label} lets {column} in with {sent.status}: the matrix says {sorted(statuses)}"
    return None
