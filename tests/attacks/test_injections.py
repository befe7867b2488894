"""Injection patterns in every place of every GET route that takes a text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts

from kesin.foundation.settings import Settings
from kesin.store.open import open_store
from kesin.web.app import create_app
from kesin.web.service import Service
from kesin.workloads import built_in
from tests.attacks.conftest import Record
from tests.attacks.patterns import EVIDENCE, PATTERNS
from tests.attacks.target import CANARY, OWN, USERS, Target, fill
from tests.attacks.wire import Reply, Wire

# Query parameters that pages read without declaring them.
UNDECLARED = {
    "/dashboard/queues/": ("state", "code", "category", "site", "age", "text", "ids", "cursor"),
    "/sign-in": ("next",),
    "/dashboard": ("site",),
}
HEADERS = (
    *("accept", "accept-language", "user-agent", "referer", "x-request-id", "if-none-match"),
    *("if-range", "range", "origin", "hx-request", "hx-target", "hx-trigger", "hx-current-url"),
    *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-real-ip"),
)
COOKIES = "kesin_language={0}; kesin_theme={0}; kesin_zone={0}"
SLOW_AT_FIRST = {"/openapi.json", "/docs"}  # and without parameters: left to the long form
ALL_HEADERS, CREDENTIAL = "all headers", "the credential"
OPEN = "!$&'()*+,/:;=@%~[]{}|\\^`\"<>"  # what a path may hold as it is written


@dataclass(frozen=True)
class Place:
    """Where a pattern is put: a parameter of a route, or headers."""

    path: str
    kind: str
    name: str


def places(app: FastAPI) -> list[Place]:
    """Every place of every GET route."""
    found = []
    for context in iter_route_contexts(app.routes):
        if context.methods and "GET" not in context.methods:
            continue
        path = context.path or ""
        if not context.methods:  # a folder of files
            path += "/{file}"
        in_path = re.findall(r"{(\w+)(?::path)?}", path)
        queries = dict.fromkeys(_queries(getattr(context.original_route, "dependant", None)))
        for prefix, names in UNDECLARED.items():
            queries |= dict.fromkeys(names if path.startswith(prefix) else ())
        found += [Place(path, "path", name) for name in in_path]
        found += [Place(path, "query", name) for name in queries or ("unknown",)]
        found += [Place(path, "header", name) for name in (ALL_HEADERS, CREDENTIAL)]
    return found


def _queries(dependant: Dependant | None) -> Iterator[str]:
    if dependant is not None:
        yield from (parameter.alias for parameter in dependant.query_params)
        for inner in dependant.dependencies:
            yield from _queries(inner)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """The app that the service runs, for its route table."""
    folder: Path = tmp_path_factory.mktemp("routes")
    store = open_store(folder / "kesin.db")
    workloads = {workload.name: workload for workload in built_in()}
    app = create_app(Service(Settings(data_dir=folder), store, workloads, work=False))
    store.close()
    return app


@pytest.fixture(scope="module")
def filled(target: Target) -> Target:
    fill(target)
    return target


class Attacker:
    """Sends patterns as one caller and judges the responses."""

    def __init__(self, target: Target, wire: Wire, user: str) -> None:
        self._target = target
        self._wire = wire
        self._headers = target.cookie(user)
        self._is_foreign = user != "admin"  # an admin sees every site
        ids = target.ids
        self._values = {
            "queue": "oci",
            "site_id": OWN,
            "name": "operator",
            "key_id": ids["key"],
            "code": "UNPARSEABLE_GCLID",
            "action": "approve",
            "file": "app.css",
        }

    def try_at(self, place: Place, text: str) -> tuple[Reply, list[str]]:
        """Put a text there; the response, and what is wrong with it."""
        reply = self._ask(place, text)
        return reply, [f"{problem}: {place} {text!r:.80}" for problem in self._judge(reply, text)]

    def _ask(self, place: Place, text: str) -> Reply:
        values = {**self._values, "job_id": self._job_of(place.path)}
        headers: dict[str, str | bytes] = dict(self._headers)
        query = ""
        raw = text.encode("utf-8", "surrogatepass")
        written = quote(raw, safe=OPEN)
        if place.kind == "path":
            values[place.name] = written
        elif place.kind == "query":
            query = f"?{place.name}={quote(raw, safe='')}&{place.name}={quote(raw, safe='%')}"
        elif place.name == CREDENTIAL:
            headers = {"cookie": b"kesin_session=" + raw, "authorization": b"Bearer " + raw}
            headers |= {"x-api-key": raw}
        else:
            headers |= dict.fromkeys(HEADERS, raw)
            chosen = COOKIES.format(quote(raw, safe=""))
            headers["cookie"] = f"{self._headers['cookie']}; {chosen}"
        path = re.sub(r"{(\w+)(?::path)?}", lambda name: values.get(name[1], "none"), place.path)
        return self._wire.ask("GET", path + query, headers)

    def _job_of(self, path: str) -> str:
        """A job of the workload that the route belongs to."""
        if path.startswith(("/jobs", "/dashboard/optiplan")):
            return self._target.ids["order"]
        return self._target.ids["document" if "/pdf" in path else "conversion of north"]

    def _judge(self, reply: Reply, text: str) -> Iterator[str]:
        body = reply.text
        if reply.status >= 500:
            yield f"it answered {reply.status}"
        for secret in (*self._target.secrets, *EVIDENCE):
            if secret in body and secret not in text:
                yield f"it shows {secret!r}"
        if self._is_foreign and CANARY in body:
            yield "it shows a row of another site"
        yield from _markup_problems(reply, text)
        yield from _header_problems(reply)


def _markup_problems(reply: Reply, text: str) -> Iterator[str]:
    if reply.kind not in {"text/html", "image/svg+xml"}:
        return
    if re.search("[<>\"']", text) and text in reply.text:
        yield "it repeats the markup unescaped"
    if "script-src" not in reply.header("content-security-policy"):
        yield "its policy says nothing about scripts"


def _header_problems(reply: Reply) -> Iterator[str]:
    if reply.header("x-injected") or "fixed" in reply.header("set-cookie"):
        yield "it has a header of the attacker"
    if re.match(r"[/\\]{2}|[a-z]+:", reply.header("location"), re.IGNORECASE):
        yield f"it redirects to {reply.header('location')}"
    by_parser = reply.body == b"Invalid HTTP request received."  # as plain text
    if reply.status and not by_parser and reply.header("x-content-type-options") != "nosniff":
        yield "its type may be guessed"


@pytest.mark.parametrize("user", ["operator", pytest.param("admin", marks=pytest.mark.long)])
def test_no_pattern_gets_through_anywhere(user, app, filled, record: Record, *, is_long):
    answers: Counter[int] = Counter()
    wrong: list[str] = []
    tries = _product(places(app)) if is_long else _sample(places(app), user)
    with filled.wire() as wire:
        attacker = Attacker(filled, wire, user)
        for place, text in tries:
            reply, problems = attacker.try_at(place, text)
            answers[reply.status] += 1
            wrong += problems
        assert wire.ask("GET", "/health/live").status == 200
    record(f"injections by an {user}", answers)
    assert wrong == []
    assert {200, 401, 404, 422} <= answers.keys()


def _product(every: list[Place]) -> Iterator[tuple[Place, str]]:
    return ((place, text) for place in every for _, text in PATTERNS)


def _sample(every: list[Place], user: str) -> Iterator[tuple[Place, str]]:
    """One place of each route, with a pattern of its own; the two users have different ones."""
    routes = sorted({place.path for place in every} - SLOW_AT_FIRST)
    shift = list(USERS).index(user)
    for number, path in enumerate(routes):
        of_route = [place for place in every if place.path == path]
        at = of_route[(number + shift) % len(of_route)]
        yield at, PATTERNS[(5 * number + 17 * shift) % len(PATTERNS)][1]


def test_every_get_route_has_places(app):
    every = places(app)
    assert {"/api/jobs/{job_id}", "/dashboard/audit", "/static/{file}"} <= {p.path for p in every}
    assert len(every) > 300
