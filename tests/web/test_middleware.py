"""What every response has: request id, security headers, limits, errors without internals."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from itertools import chain, repeat
from typing import Any
from unittest.mock import AsyncMock

import pytest
from starlette.responses import StreamingResponse

from kesin.foundation.logs import set_up_logs
from kesin.store.errors import StoreUnreachable
from kesin.web import middleware
from kesin.web.rate_limit import RateLimiter
from tests.tables import table
from tests.web.client import PROXY, Client
from tests.web.conftest import MakeWorld, World, error_of, opened

JSON = {"content-type": "application/json"}
GONE = {"type": "http.disconnect"}
SECURITY = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class SecretFault(Exception):
    """What no answer may show."""


@pytest.fixture
def strict(make_world: MakeWorld) -> World:
    """Small limits, and routes that fail."""
    return failing(make_world(body_limit=1_000, rate_per_s=2))


def failing(world: World) -> World:
    @world.app.get("/fails")
    def fails() -> None:
        raise SecretFault("SELECT secret FROM person")

    @world.app.get("/times-out")
    def times_out() -> None:
        raise TimeoutError("SELECT secret FROM person")

    return world


TOO_LONG = {"content-length": "20000001"}  # no route takes as much


def by_status(world: World) -> dict[str, Any]:
    """One response of each kind."""
    client, key = world.client, world.key("admin")
    answers = {
        "200 json": client.get("/api/session", headers=world.key("read")),
        "200 page": client.get("/sign-in", headers=world.key("read")),
        "200 static": client.get("/static/docs.js"),
        "200 docs": client.get("/docs", headers=world.key("read")),
        "200 openapi": client.get("/openapi.json"),
        "303": client.post("/sign-out", headers={"sec-fetch-site": "same-origin", **key}),
        "401": client.get("/api/queues"),
        "401 key": client.get("/api/queues", headers={"x-api-key": "kesin_no"}),
        "403": client.get("/api/queues", headers=world.key("metrics")),
        "404": client.get("/nowhere"),
        "404 static": client.get("/static/nowhere.js"),
        "405": client.delete("/api/queues"),
        "405 static": client.post("/static/docs.js"),
        "413": client.post("/api/session", content=b"x", headers=TOO_LONG),
        "422": client.get("/api/queues/task/jobs?limit=0", headers=key),
        "500": client.get("/fails", headers=world.key("read")),
    }
    throttled = [client.get("/api/session", headers=key) for _ in range(3)]
    return answers | {"429": throttled[-1]}


# Names of what by_status asks.
KINDS = (
    *("200 json", "200 page", "200 static", "200 docs", "200 openapi", "303", "401", "401 key"),
    *("403", "404", "404 static", "405", "405 static", "413", "422", "429", "500"),
)


@pytest.fixture(scope="module")
def answers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _quick_hashes: None
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("manners")
    with ExitStack() as stack:
        store = opened("sqlite", folder, request, stack)
        return by_status(failing(World(store, folder, body_limit=1_000, rate_per_s=2)))


@table("kind", KINDS)
def test_every_kind_of_response_has_the_security_headers(kind, answers):
    answer = answers[kind]
    assert str(answer.status_code) == kind[:3]
    assert {name: answer.headers.get(name) for name in SECURITY} == SECURITY
    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["x-request-id"])
    assert "strict-transport-security" not in answer.headers
    assert not {"server", "x-powered-by"} & answer.headers.keys()
    assert all(len(answer.headers.get_list(name)) == 1 for name in (*SECURITY, "x-request-id"))
    if not answer.request.url.path.startswith("/static/") and answer.request.url.path != "/docs":
        assert answer.headers["cache-control"] == "no-store"
    if answer.status_code >= 400:
        error = error_of(answer)
        assert re.fullmatch(r"[a-z_]+", error["code"])
        assert error["message"]


def test_an_error_of_a_page_is_shown_as_a_page(make_world):
    world = make_world(body_limit=1_000)

    @world.app.get("/dashboard/fails")
    def fails() -> None:
        raise RuntimeError("an inner matter")

    world.app.router.routes.insert(0, world.app.router.routes.pop())
    headers = world.cookie(world.person("ayse", "admin", all_sites=True))
    failed = world.client.get("/dashboard/fails", headers=headers)
    too_large = world.client.post("/dashboard/optiplan", content=b"x", headers=headers | TOO_LONG)
    for answer, status in ((failed, 500), (too_large, 413)):
        assert answer.status_code == status
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "<h1" in answer.text
    assert "an inner matter" not in failed.text
    assert "an internal error occurred" in failed.text
    turkish = world.client.get("/dashboard/fails", headers={**headers, "accept-language": "tr"})
    assert "an internal error occurred" not in turkish.text


# Request ids


@table("given", ["abc", "A.b-c_9", "x" * 64])
def test_a_request_id_that_is_given_comes_back(given, shared_world):
    response = shared_world.client.get("/health/live", headers={"x-request-id": given})
    assert response.headers.get_list("x-request-id") == [given]


@table("given", ["", "x" * 65, "a b", "a/b", "a\tb", "é".encode("latin-1")])
def test_a_request_id_that_could_spoil_a_log_is_replaced_by_a_new_one(given, shared_world):
    headers = {"x-request-id": given}
    ids = {shared_world.client.get("/health/live", headers=headers).headers["x-request-id"] for _ in range(2)}
    assert len(ids) == 2
    assert all(re.fullmatch(r"[0-9a-f]{32}", request_id) for request_id in ids)


# TLS


@pytest.mark.parametrize(
    ("scheme", "peer", "secure"), [("https", "192.0.2.7", True), ("http", PROXY, True), ("http", "198.51.100.2", False)]
)
def test_browsers_stay_with_tls_and_only_a_trusted_proxy_says_that_there_is_tls(scheme, peer, secure, make_world):
    client = Client(make_world(trusted_proxies=PROXY).app, address=peer, scheme=scheme)
    response = client.get("/health/live", headers={"x-forwarded-proto": "https"})
    lasting = response.headers.get("strict-transport-security")
    assert lasting == ("max-age=31536000; includeSubDomains" if secure else None)


# Faults


@table("path", ["/fails", "/times-out"])
def test_a_fault_shows_only_the_request_id(path, strict):
    answer = strict.client.get(path, headers={"x-request-id": "my-id"})
    assert answer.status_code == 500
    assert error_of(answer) == {
        "code": "internal",
        "message": "an internal error occurred; search the log for this request id",
        "details": {"request_id": "my-id"},
    }


def test_a_fault_is_logged_with_its_traceback_under_the_request_id(strict, capsys):
    set_up_logs("json", "info")
    strict.client.get("/fails", headers={"x-request-id": "my-id"})
    [line] = [one for one in capsys.readouterr().err.splitlines() if "request_failed" in one]
    assert '"request_id": "my-id"' in line
    assert "SecretFault" in line


def test_a_caller_who_leaves_in_the_middle_is_no_fault(shared_world, capsys):
    set_up_logs("json", "info")
    parts = chain([{"type": "http.request", "body": b"{", "more_body": True}], repeat(GONE))
    headers = shared_world.key("admin") | JSON
    lines = ((name.lower().encode(), value.encode()) for name, value in headers.items())
    scope = post_scope("9", *lines) | {"path": "/api/queues/task/jobs"}
    answered = AsyncMock()
    asyncio.run(shared_world.app(scope, AsyncMock(side_effect=parts), answered))
    assert "request_failed" not in capsys.readouterr().err
    assert answered.await_args_list[0].args[0]["status"] == 400


def test_an_unreachable_store_is_reported_as_such(world, monkeypatch):
    def away() -> None:
        raise StoreUnreachable("connection to 10.0.0.5 port 5432 failed: SELECT 1")

    monkeypatch.setattr(world.task, "stats", away)
    answer = world.client.get("/api/queues/task/stats", headers=world.key("read"))
    assert answer.status_code == 503
    assert error_of(answer) == {"code": "store_away", "message": "the store is not responding: try again"}


def test_a_caller_without_credentials_learns_how_to_sign_in(shared_world):
    answer = shared_world.client.get("/api/queues")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "x-api-key" in error_of(answer)["message"]


# Sizes


def test_a_body_that_says_it_is_too_large_is_answered_at_once_and_then_dropped(strict):
    """Whoever still sends when the line is cut never sees the answer; a proxy makes a 502 of it."""
    messages: list[Any] = []
    rest = chain([{"type": "http.request", "body": b"x", "more_body": True}], repeat(GONE))

    async def send(message):
        messages.append(message)

    async def receive():
        messages.append("read")
        return next(rest)

    asyncio.run(strict.app(post_scope("1001"), receive, send))
    start, body, *reads, end = messages
    assert (start["status"], json.loads(body["body"])["error"]["code"]) == (413, "too_large")
    assert (body["more_body"], reads, end["body"]) == (True, ["read", "read"], b"")


def test_a_body_that_is_dropped_is_read_for_a_while_only(strict, monkeypatch):
    monkeypatch.setattr(middleware, "DRAIN_BYTES", 3_000)
    pieces = []

    async def receive():
        pieces.append(b"x" * 1_000)
        return {"type": "http.request", "body": pieces[-1], "more_body": True}

    asyncio.run(strict.app(post_scope("9" * 12), receive, AsyncMock()))
    assert len(pieces) == 3

    async def silent():
        await asyncio.Event().wait()

    monkeypatch.setattr(middleware, "DRAIN_S", 0)
    asyncio.run(strict.app(post_scope("9" * 12), silent, AsyncMock()))


def test_a_client_that_expects_100_continue_is_not_waited_for(strict):
    receive = AsyncMock()
    asyncio.run(strict.app(post_scope("1001", (b"expect", b"100-continue")), receive, AsyncMock()))
    assert not receive.called


def post_scope(length: str, *more: tuple[bytes, bytes]) -> dict[str, Any]:
    headers = [(b"content-length", length.encode()), (b"host", b"kesin"), *more]
    return {"type": "http", "method": "POST", "path": "/api/session", "query_string": b"", "headers": headers}


def test_a_length_of_very_many_digits_is_too_large(strict):
    answer = strict.client.post("/api/session", content=b"{}", headers={"content-length": "9" * 5_000, **JSON})
    assert answer.status_code == 413


@pytest.mark.parametrize("path", ["/api/session", "/sign-in", "/sign-out"])
def test_a_body_in_chunks_is_read_no_further_than_the_limit(path, strict):
    def chunks() -> Iterator[bytes]:
        yield b'{"name": "a", "password": "'
        for _ in range(11):
            yield b"x" * 100
        yield b'"}'

    headers = {"sec-fetch-site": "same-origin", **JSON}
    answer = strict.client.post(path, content=chunks(), headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")


def test_a_body_of_exactly_the_limit_is_taken(strict):
    body = b'{"name": "a", "password": "%s"}'
    body %= b"x" * (1_000 - len(body) + 2)
    assert len(body) == 1_000
    answer = strict.client.post("/api/session", content=iter([body[:500], body[500:]]), headers=JSON)
    assert answer.status_code == 401


# Rates


def test_a_key_has_a_rate_of_its_own(make_world):
    world = make_world(rate_per_s=2)
    mine, others = world.key("read"), world.key("read")
    statuses = [world.client.get("/api/session", headers=mine).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    last = world.client.get("/api/session", headers=mine)
    assert (last.headers["retry-after"], error_of(last)["code"]) == ("1", "too_many_requests")
    assert world.client.get("/api/session", headers=others).status_code == 200
    world.clock.advance(1)
    assert world.client.get("/api/session", headers=mine).status_code == 200


def test_an_address_has_a_rate_of_its_own_and_wrong_keys_count_for_it(make_world):
    world = make_world(rate_per_s=2)
    client, other = (Client(world.app, address=f"192.0.2.{n}") for n in (200, 201))
    assert [client.get("/health/live").status_code for _ in range(3)] == [200, 200, 429]
    wrong = [{"x-api-key": f"kesin_{n:0>8}_{'x' * 43}"} for n in range(3)]
    statuses = [other.get("/api/session", headers=headers).status_code for headers in wrong]
    assert statuses == [401, 401, 429]


def test_a_limiter_forgets_those_it_saw_longest_ago(monkeypatch):
    monkeypatch.setattr("kesin.web.rate_limit.MAX_BUCKETS", 3)
    limiter = RateLimiter(1, 1, lambda: 0.0, "tries")
    for name in "abcd":
        limiter.take(name)
    assert list(limiter._buckets) == ["b", "c", "d"]


# Time


def test_a_response_that_takes_too_long_is_a_timeout_with_and_without_a_thread(make_world):
    world = make_world(request_timeout_s=0.05)
    done = threading.Event()

    @world.app.get("/hangs")
    def hangs() -> None:
        done.wait(20)

    @world.app.get("/waits")
    async def waits() -> None:
        await asyncio.Event().wait()

    try:
        responses = [world.client.get(path) for path in ("/waits", "/hangs")]
    finally:
        done.set()
    for response in responses:
        assert response.status_code == 503
        assert error_of(response) == {"code": "timeout", "message": "no response within 0.05 s"}
        assert {name: response.headers.get(name) for name in SECURITY} == SECURITY


@pytest.mark.parametrize("pieces", [1, 5])
def test_a_long_answer_has_its_time_for_each_piece(make_world, monkeypatch, pieces):
    """Else a large file could not be fetched over a slow line; one that is stuck is cut."""
    world, gone, wait = make_world(request_timeout_s=12.5), [], asyncio.wait

    @world.app.get("/long")
    async def long() -> StreamingResponse:
        async def content() -> AsyncIterator[bytes]:
            for n in range(pieces):
                yield b"x"
                gone.append(n)
                await asyncio.sleep(0)
            if pieces == 1:
                await asyncio.Event().wait()

        return StreamingResponse(content())

    async def wait_for_a_piece(tasks, **how):
        """The time is over whenever one more piece has gone, or no more will."""
        if how.get("timeout") != 12.5:
            return await wait(tasks, **how)
        before = len(gone)
        for _ in range(1_000):
            if len(gone) > before or all(one.done() for one in tasks):
                break
            await asyncio.sleep(0)
        return None

    monkeypatch.setattr(asyncio, "wait", wait_for_a_piece)
    assert world.client.get("/long").content == b"x" * pieces
    assert len(gone) == pieces


# Validation


def test_every_field_that_is_wrong_is_named(shared_world):
    answer = shared_world.client.get(
        "/api/queues/task/jobs",
        params={"limit": "0", "category": "NOPE", "created_from": "yesterday", "cursor": "1"},
        headers=shared_world.key("read"),
    )
    assert answer.status_code == 422
    error = error_of(answer)
    assert error["code"] == "invalid"
    fields = {field["field"] for field in error["details"]["fields"]}
    assert fields == {"limit", "category.0", "created_from", "cursor"}
    assert all(field["message"] for field in error["details"]["fields"])


@table("body", [b"", b"{", b"\xff", b"[]", b"null", b"[" * 60_000])
def test_a_body_that_is_no_json_object_is_the_callers_fault(body, shared_world):
    answer = shared_world.client.post("/api/session", content=body, headers=JSON)
    assert answer.status_code in {400, 422}
    error_of(answer)
