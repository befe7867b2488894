"""Bodies: none is read before the caller is known, and only some routes take large ones."""

import asyncio
import json
import re
import threading
from itertools import product
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts

from kesin.store.errors import StoreUnreachable
from kesin.web.bodies import MAX_CONTAINERS, MAX_VALUES, SMALL_BODY_BYTES, LargeBodyRoute, body_limit_of
from tests.tables import table
from tests.web.client import HOST
from tests.web.conftest import SAME_ORIGIN, MakeWorld, World, error_of

JSON = {"content-type": "application/json"}
FILES = 10_000_000  # KESIN_BODY_LIMIT
LARGE = {
    "POST /api/queues/{queue}/jobs": FILES,
    "POST /api/queues/{queue}/actions": FILES,
    "POST /api/oci/conversions": FILES,
    "POST /api/oci/ack": FILES,
    "POST /api/oci/adjustments": FILES,
    "POST /api/oci/ack-failed": FILES,
    "POST /api/oci/reconciliation": FILES,
    "POST /api/oci/queue-actions": FILES,
    "POST /dashboard/site/{site_id}/oci-control/fixes": FILES,
    "POST /dashboard/site/{site_id}/oci-control/import": FILES,
    "POST /pdf/batches": FILES,
    "POST /pdf/jobs": 1_048_576,  # KESIN_PDF_HTML_KB
    "POST /pdf/uploads": 20_000_000,  # KESIN_PDF_UPLOAD_MB
    "POST /pdf/templates/{name}/preview": 262_144,
    "POST /jobs": FILES,
    "POST /orders/{order_id}/import/xlsx": FILES,
    "POST /plans/try": FILES,
    "PUT /config/rules": FILES,
    "POST /dashboard/optiplan/import": FILES,
    "POST /dashboard/optiplan/new": 1_048_576,
    "POST /dashboard/optiplan/new/rows": 1_048_576,
    "POST /dashboard/optiplan/new/try": 1_048_576,
    "POST /dashboard/optiplan/rules": 1_048_576,
    "POST /dashboard/optiplan/rules/form": 1_048_576,
    "POST /dashboard/pdf/form": 1_048_576,
    "POST /dashboard/pdf/document": 1_048_576,
    "POST /dashboard/pdf/preview": 1_048_576,
    "POST /dashboard/pdf/jobs": 1_048_576,
    "POST /dashboard/pdf/templates": FILES,
    "PUT /pdf/templates/{name}": FILES,
    "POST /dashboard/queues/{queue}/fix": 4_000_000,
}


def ask(world: World, path: str, headers: dict[str, str], length: int = 9_600_000, begun: bytes = b"") -> Any:
    """The response to a request that announces so many bytes; nobody may read them.

    Unless it has begun to arrive: then the rest never comes.
    """
    messages: list[Any] = []
    parts = [{"type": "http.request", "body": begun, "more_body": True}] if begun else []

    async def receive() -> dict[str, Any]:
        if parts:
            return parts.pop()
        if begun:
            await asyncio.Event().wait()
        assert messages, "the body was read before there was an answer"
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        messages.append(message)

    lines = {"host": HOST, "content-length": str(length), **JSON, **headers}
    scope = {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "query_string": b"",
        "client": ("192.0.2.7", 50_000),
        "headers": [(name.encode(), value.encode()) for name, value in lines.items()],
    }
    asyncio.run(world.app(scope, receive, send))
    start, body, *_ = messages
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], found, body["body"]


@table("path", ["/api/queues/task/jobs", "/api/oci/conversions", "/pdf/jobs"])
def test_a_caller_without_credentials_is_refused_before_the_body_is_read(path, shared_world):
    status, headers, body = ask(shared_world, path, {})
    assert (status, json.loads(body)["error"]["code"]) == (401, "not_signed_in")
    assert headers["www-authenticate"] == "Bearer"


@table("path", ["/api/queues/task/jobs", "/api/session", "/jobs"])
def test_a_wrong_key_is_refused_before_the_body_is_read(path, shared_world):
    status, _, body = ask(shared_world, path, {"x-api-key": f"kesin_{'a' * 8}_{'b' * 43}"})
    assert (status, json.loads(body)["error"]["code"]) == (401, "wrong_key")


def test_a_page_sends_a_stranger_to_the_sign_in_before_the_body_is_read(shared_world):
    status, headers, _ = ask(shared_world, "/dashboard/optiplan/import", {})
    assert (status, headers["location"]) == (303, "/sign-in?next=/dashboard/optiplan/import")


def test_another_sites_page_is_refused_before_the_body_is_read(shared_world):
    cookie = shared_world.cookie(shared_world.known("operator", "operator", all_sites=True))
    headers = cookie | {"sec-fetch-site": "cross-site"}
    status, _, _ = ask(shared_world, "/dashboard/optiplan/import", headers)
    assert status == 403


@pytest.mark.parametrize("with_key", [False, True])
def test_a_caller_over_its_rate_is_refused_before_the_body_is_read(with_key, make_world):
    world = make_world(rate_per_s=2)
    headers = world.key("admin") if with_key else {}
    for _ in range(2):
        world.client.get("/health/live" if not with_key else "/api/session", headers=headers)
    status, found, _ = ask(world, "/api/queues/task/jobs", headers)
    assert (status, found["retry-after"]) == (429, "1")


def test_a_store_that_is_away_is_told_as_that_to_a_caller_with_a_body(shared_world, monkeypatch):
    def away(*_: Any) -> None:
        raise StoreUnreachable("connection to 10.0.0.5 port 5432 failed")

    monkeypatch.setattr(shared_world.accounts.directory, "api_key", away)
    headers = {"x-api-key": f"kesin_{'a' * 8}_{'b' * 43}"}
    status, _, body = ask(shared_world, "/api/queues/task/jobs", headers)
    assert (status, json.loads(body)["error"]["code"]) == (503, "store_away")


def test_the_routes_that_take_more_than_a_small_body_are_these(shared_world):
    large = {}
    for context in iter_route_contexts(shared_world.app.routes):
        limit = body_limit_of(context.original_route, FILES)
        for method in context.methods or ():
            if limit != SMALL_BODY_BYTES and method in {"POST", "PUT", "PATCH"}:
                large[f"{method} {context.path}"] = limit
    assert large == LARGE


@table("path", ["/api/queues/task/pause", "/api/session", "/customers"])
def test_other_routes_take_small_bodies(path, shared_world):
    headers = shared_world.key("admin")
    status, _, body = ask(shared_world, path, headers, length=SMALL_BODY_BYTES + 1)
    assert status == 413
    assert str(SMALL_BODY_BYTES) in json.loads(body)["error"]["message"]

    def chunks() -> Any:
        for _ in range(17):
            yield b" " * 4_096

    answer = shared_world.client.post(path, content=chunks(), headers=headers | JSON)
    assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")


def jobs(size: int, **more: Any) -> bytes:
    return json.dumps({"jobs": [{"payload": {"text": "x" * size}}], **more}).encode()


def test_a_large_batch_is_parsed_in_a_thread_of_its_own(shared_world, monkeypatch):
    threads = []
    parse = LargeBodyRoute._parse

    def noted(route: LargeBodyRoute, body: bytes) -> Any:
        threads.append(threading.current_thread().name)
        return parse(route, body)

    monkeypatch.setattr(LargeBodyRoute, "_parse", noted)
    headers = shared_world.key("admin") | JSON
    for size in (10, 2 * SMALL_BODY_BYTES):
        content = jobs(size)
        answer = shared_world.client.post("/api/queues/task/jobs", content=content, headers=headers)
        assert answer.status_code == 201, answer.text
        [job] = answer.json()["jobs"]
        assert len(shared_world.found(job["id"]).payload["text"]) == size
    assert len(threads) == 1
    assert threads[0].startswith("kesin-import")


@table(
    "spoil",
    [
        lambda body: body[:-1],
        lambda body: body.replace(b'"jobs"', b'"job"'),
        lambda body: body[:-1] + b', "colour": "red"}',
        lambda body: b"[" + body + b"]",
    ],
)
def test_a_large_invalid_body_is_answered_as_a_small_one(spoil, shared_world):
    headers = shared_world.key("admin") | JSON
    messages = [
        error_of(shared_world.client.post("/api/queues/task/jobs", content=spoil(jobs(size)), headers=headers))[
            "message"
        ]
        for size in (10, 2 * SMALL_BODY_BYTES)
    ]
    small, large = (re.sub(r"^\d+", "N", message) for message in messages)
    assert small == large


@table(
    ("body", "path"),
    product(
        [
            b"[" + b"[]," * MAX_CONTAINERS + b"[]]",
            b"[" + b"{}," * MAX_CONTAINERS + b"{}]",
            b"[" + b"1," * (MAX_VALUES + 1) + b"1]",
        ],
        ["/api/queues/task/jobs", "/api/oci/conversions", "/jobs"],
    ),
)
def test_a_body_with_very_many_values_is_not_parsed(path, body, shared_world, monkeypatch):
    headers = shared_world.key("admin") | JSON
    loads = json.loads

    def small_only(text: Any, **options: Any) -> Any:
        assert len(text) < SMALL_BODY_BYTES, "parsed"
        return loads(text, **options)

    monkeypatch.setattr(json, "loads", small_only)
    response = shared_world.client.post(path, content=body, headers=headers)
    assert response.status_code == 413


def test_a_body_that_does_not_arrive_is_a_timeout(make_world: MakeWorld):
    world = make_world(body_timeout_s=0.01)
    status, headers, body = ask(world, "/api/session", {}, length=100, begun=b'{"name": ')
    assert (status, headers["connection"]) == (408, "close")
    assert json.loads(body)["error"] == {"code": "request_timeout", "message": "the body did not arrive within 0.01 s"}


def test_a_form_with_a_file_is_parsed_outside_the_event_loop(shared_world, monkeypatch):
    threads = []

    def parse(*_: Any) -> Any:
        threads.append(threading.current_thread())
        raise AssertionError

    monkeypatch.setattr("kesin.web.dashboard.forms.uploads.parse_upload", parse)
    headers = shared_world.cookie(shared_world.known("operator", "operator", all_sites=True))
    shared_world.client.post("/dashboard/optiplan/import", content=b"x", headers=headers)
    assert threads
    assert "worker thread" in threads[0].name.lower()
    assert SAME_ORIGIN.items() <= headers.items()


@table(
    ("queue", "content", "kind", "status"),
    [
        ("task", jobs(1), "application/json; charset=utf-8", 201),
        ("task", jobs(1).decode().encode("utf-16"), "application/json", 201),
        ("task", jobs(1), "text/plain", 422),
        ("task", jobs(1, colour="red"), "application/json", 422),
        ("task", b'{"jobs": [', "application/json", 422),
        ("task", b"\xff\xfe\xfd", "application/json", 400),
        ("task", b"", "application/json", 422),
        ("none", jobs(1), "application/json", 404),
        ("Task", jobs(1), "application/json", 422),
    ],
)
def test_a_small_enqueue_is_answered_as_the_framework_answers(
    shared_world, queue: str, content: bytes, kind: str, status: int
):
    headers = shared_world.key("admin") | {"content-type": kind}
    path = f"/api/queues/{queue}/jobs"
    answer = shared_world.client.post(path, content=content, headers=headers)
    assert answer.status_code == status, answer.text
    anonymous = shared_world.client.post(path, content=content, headers={"content-type": kind})
    assert anonymous.status_code == 401
