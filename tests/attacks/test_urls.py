"""URLs that would lead elsewhere than an allow-list says, for pictures of PDFs and for webhooks."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kesin.workloads import pdf
from kesin.workloads.pdf.safe_fetch import FetchRefused, GuardedConnection, fetch
from kesin.workloads.pdf.security import validate_url
from tests.attacks.conftest import Record
from tests.attacks.target import Target
from tests.attacks.urls import HARMLESS, HOSTILE, INWARD, LEGAL, PATTERNS

SETTINGS = {"KESIN_PDF_WEBHOOKS": " ".join(PATTERNS.values())}
SAMPLED = slice(0, None, 4)  # of the URLs that are sent to the service in the short form
TEMPLATES = Path(pdf.__file__).parent / "templates"
SAMPLE = json.loads((TEMPLATES / "invoice" / "sample.json").read_text())
ROUTES: dict[str, dict[str, Any]] = {
    "/pdf/jobs": {"template_name": "invoice", "variables": SAMPLE},
    "/pdf/batches": {"template_name": "invoice", "rows": [SAMPLE]},
}


def test_no_hostile_url_passes_the_allow_list_and_every_harmless_one(record: Record):
    passed = {(name, url) for name, pattern in PATTERNS.items() for url in HOSTILE if validate_url(url, [pattern])}
    tried = len(PATTERNS) * len(HOSTILE)
    record("URLs × patterns", Counter({"refused": tried - len(passed), "legal": len(passed)}))
    assert passed == LEGAL
    assert [name for name in PATTERNS if not validate_url(HARMLESS[name], [PATTERNS[name]])] == []


@pytest.mark.parametrize("path", ROUTES)
def test_the_service_takes_no_hostile_webhook(path, target: Target, record: Record, *, is_long):
    answers: Counter[int] = Counter()
    wrong = []
    body = {**ROUTES[path], "webhook_url": HARMLESS["a host"]}
    allowed = target.served.client.post(path, json=body)
    assert allowed.status_code in {202, 503}, allowed.text  # there is no worker
    before = target.served.client.get("/api/queues/pdf_webhooks/jobs").json()["jobs"]
    for url in HOSTILE if is_long else HOSTILE[SAMPLED]:
        response = target.served.client.post(path, json={**ROUTES[path], "webhook_url": url})
        answers[response.status_code] += 1
        if response.status_code != 422 or "Traceback" in response.text:
            wrong.append((url, response.status_code, response.text[:200]))
    assert wrong == []
    assert target.served.client.get("/api/queues/pdf_webhooks/jobs").json()["jobs"] == before
    record(f"webhooks of {path}", answers)


# The second guard: the address that a name leads to


class _Counting(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.requests += 1  # type: ignore[attr-defined]
        self.send_response(302)
        self.send_header("location", f"http://127.0.0.1:{self.server.server_port}/inside")  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def inside() -> Iterator[HTTPServer]:
    """A server of this machine, which redirects to itself and counts requests."""
    server = HTTPServer(("127.0.0.1", 0), _Counting)
    server.requests = 0  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_address_inside_is_not_connected_to(inside, monkeypatch):
    """Nor a public name that leads inside."""
    resolve = socket.getaddrinfo

    def lead_inside(host: str, *rest: object, **options: object) -> object:
        name = "127.0.0.1" if host == "cdn.example.com" else host
        return resolve(name, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", lead_inside)
    before = inside.requests
    for host in (*INWARD, "cdn.example.com"):
        with pytest.raises(FetchRefused, match="public"):
            fetch(f"http://{host}:{inside.server_port}/")
        with pytest.raises(FetchRefused, match="public"):
            GuardedConnection(f"http://{host}:{inside.server_port}/", 5.0, public_only=True)
        assert inside.requests == before, host


def test_a_redirect_is_not_followed(inside):
    before = inside.requests
    with pytest.raises(FetchRefused, match="302"):
        fetch(f"http://127.0.0.1:{inside.server_port}/", public_only=False)
    assert inside.requests == before + 1
