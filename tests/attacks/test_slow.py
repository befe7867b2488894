"""Clients that are slow, silent, large or many: others are answered meanwhile, and soon."""

from __future__ import annotations

import gzip
import socket
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.attacks.conftest import Record
from tests.attacks.target import Target
from tests.attacks.wire import Reply, Wire, read_reply, request_head

PER_ADDRESS = 40
SETTINGS = {
    "KESIN_HEADER_TIMEOUT_S": "1",
    "KESIN_BODY_TIMEOUT_S": "1",
    "KESIN_CONNECTIONS_PER_ADDRESS": str(PER_ADDRESS),
}
PROBES = 15
RATIO = 20  # between the median times of a probe, with and without the attack
FLOOR_S = 0.005  # a shorter time says more about the machine
LARGE = 10_000_000
JSON = {"content-type": "application/json"}
SAMPLED_CONNECTIONS = 30


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def median_s(target: Target) -> float:
    """How long a short request of somebody else takes."""
    with target.wire("127.0.0.9") as wire:
        replies = [wire.ask("GET", "/api/session", _key(target)) for _ in range(PROBES)]
    assert {reply.status for reply in replies} == {200}
    return max(statistics.median(reply.seconds for reply in replies), FLOOR_S)


def _key(target: Target) -> dict[str, str]:
    return {"x-api-key": target.served.key}


@pytest.fixture
def bounded(target: Target) -> Iterator[Callable[[], None]]:
    """Checks that others are still answered soon; once more at the end of the test."""
    before = median_s(target)

    def check() -> None:
        after = median_s(target)
        assert after <= RATIO * before, f"{after * 1000:.1f} ms, {before * 1000:.1f} ms without"

    yield check
    check()


def connect(target: Target, stack: ExitStack, sent: bytes, source: str) -> socket.socket:
    opened = stack.enter_context(target.wire(source).connect())
    opened.sendall(sent)
    return opened


# Slow


BEGUN = {
    "nothing": b"",
    "a letter": b"G",
    "a line": b"GET / HTTP/1.1\r\n",
    "half a head": b"GET / HTTP/1.1\r\nhost: k\r\nx-a: b",
    "half a body": b"POST /sign-in HTTP/1.1\r\nhost: k\r\n"
    b"content-type: application/x-www-form-urlencoded\r\ncontent-length: 100\r\n\r\nname=",
    "half a chunk": b"POST /sign-in HTTP/1.1\r\nhost: k\r\nsec-fetch-site: same-origin\r\n"
    b"content-type: application/x-www-form-urlencoded\r\ntransfer-encoding: chunked\r\n\r\n5\r\nna",
}


@pytest.mark.long  # in short: tests/web/test_connections.py
def test_half_sent_requests_hold_nobody_up_and_are_given_up(target, bounded, stack, record: Record):
    opened = {
        (name, n): connect(target, stack, sent, f"127.0.2.{n + 1}") for name, sent in BEGUN.items() for n in range(20)
    }
    bounded()
    answers: Counter[int] = Counter()
    for (name, _), connection in opened.items():
        status = read_reply(connection).status
        answers[status] += 1
        assert status == (0 if name == "nothing" else 408) or name == "half a body", name
        assert status in {0, 403, 408}
    record("half-sent requests", answers)


# Large


def chunks(size: int) -> bytes:
    piece = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    return piece * (size // 65_536) + b"0\r\n\r\n"


BODIES: dict[str, tuple[dict[str, str], Callable[[], bytes]]] = {
    "numbers": (JSON, lambda: b"[" + b"1," * (LARGE // 2 - 1) + b"1]"),
    "brackets": (JSON, lambda: b"[" * LARGE),
    "objects": (JSON, lambda: b'{"a":' * (LARGE // 5)),
    "a string": (JSON, lambda: b'"' + b"x" * (LARGE - 2) + b'"'),
    "chunked": (JSON | {"transfer-encoding": "chunked"}, lambda: chunks(LARGE)),
    "gzip": (JSON | {"content-encoding": "gzip"}, lambda: gzip.compress(b" " * 30_000_000)),
    "gzip transfer": (JSON | {"transfer-encoding": "gzip, chunked"}, lambda: chunks(LARGE)),
    "a form": ({"content-type": "application/x-www-form-urlencoded"}, lambda: b"a=b&" * 2_500_000),
}
PATHS = ("/api/queues/oci/jobs", "/api/session", "/api/oci/conversions", "/jobs", "/nowhere")


@pytest.mark.long  # in short: tests/web/test_bodies.py and test_connections.py
@pytest.mark.parametrize("signed_in", [False, True], ids=["nobody", "a key"])
def test_large_bodies_are_refused_and_cost_others_nothing(signed_in, target, bounded, record: Record):
    answers: Counter[int] = Counter()
    wrong = []
    for name, (headers, make) in BODIES.items():
        body = make()
        for path in PATHS:
            credential = _key(target) if signed_in else {}
            with target.wire("127.0.0.3") as wire:
                reply = wire.ask("POST", path, headers | credential, body)
            answers[reply.status] += 1
            if not _refused(reply, path, signed_in=signed_in):
                wrong.append((name, path, reply.status, reply.text[:200]))
        bounded()
    record(f"large bodies of {'a key' if signed_in else 'nobody'}", answers)
    assert wrong == []


def _refused(reply: Reply, path: str, *, signed_in: bool) -> bool:
    if not signed_in and path not in {"/api/session", "/nowhere"}:
        return reply.status in {400, 401, 413}  # by the parser, for the caller, for the length
    return reply.status in {400, 404, 408, 413, 415, 422, 501}  # 408: this machine is slow


# Many


@pytest.mark.long  # in short: tests/web/test_connections.py
def test_an_address_has_a_bounded_number_of_connections(target, bounded, stack, record: Record):
    held = [connect(target, stack, b"GET / HT", "127.0.0.5") for _ in range(PER_ADDRESS)]
    replies = [read_reply(connect(target, stack, b"", "127.0.0.5")) for _ in range(SAMPLED_CONNECTIONS)]
    assert {reply.status for reply in replies} == {429}
    assert {reply.header("retry-after") for reply in replies} == {"1"}
    bounded()
    assert {read_reply(connection).status for connection in held} == {408}
    record("connections of one address", Counter({429: len(replies), 408: len(held)}))


# Malformed

HOST = ("host", "k")
MALFORMED = {
    "two lengths": request_head("POST", "/sign-in", [HOST, *([("content-length", "1")] * 2)]) + b"x",
    "different lengths": request_head("POST", "/sign-in", [HOST, ("content-length", "1"), ("content-length", "9")]),
    "a length and chunks": request_head(
        "POST", "/sign-in", [HOST, ("content-length", "5"), ("transfer-encoding", "chunked")]
    )
    + b"0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n",
    "a negative length": request_head("POST", "/sign-in", [HOST, ("content-length", "-1")]),
    "a huge length": request_head("POST", "/sign-in", [HOST, ("content-length", "9" * 30)]),
    "a huge chunk": request_head("POST", "/sign-in", [HOST, ("transfer-encoding", "chunked")]) + b"f" * 40 + b"\r\n",
    "no chunk": request_head("POST", "/sign-in", [HOST, ("transfer-encoding", "chunked")]) + b"zz\r\n",
    "an unknown coding": request_head("POST", "/sign-in", [HOST, ("transfer-encoding", "xchunked")]) + b"0\r\n\r\n",
    "a long head": request_head("GET", "/", [HOST, ("x", "y" * 200_000)]),
    "many headers": request_head("GET", "/", [HOST, *((f"x{n}", "y") for n in range(20_000))]),
    "a long path": request_head("GET", "/" + "a" * 100_000, [HOST]),
    "no host": request_head("GET", "/health/live", []),
    "two hosts": request_head("GET", "/health/live", [HOST, HOST]),
    "a folded header": b"GET / HTTP/1.1\r\nhost: k\r\nx: y\r\n z: w\r\n : q\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nhost: k\r\nx : y\r\n\r\n",
    "a method of 5 000 letters": request_head("G" * 5_000, "/", [HOST]),
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no protocol": b"GET /\r\n\r\n",
    "an old protocol": b"GET / HTTP/0.9\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500 + b"\r\n\r\n",
    "an absolute address": request_head("GET", "http://evil.test/", [HOST]),
    "a proxy's tunnel": request_head("CONNECT", "evil.test:443", [HOST]),
    "an expectation": request_head("POST", "/sign-in", [HOST, ("expect", "200-maybe"), ("content-length", "0")]),
    "an upgrade": request_head("GET", "/", [HOST, ("connection", "upgrade"), ("upgrade", "websocket")]),
}


def test_malformed_requests_are_refused(target, bounded, record: Record):
    answers: Counter[int] = Counter()
    wrong = []
    for name, request in MALFORMED.items():
        with target.wire("127.0.0.6") as wire:
            reply = wire.send(request)
        answers[reply.status] += 1
        if reply.status >= 500 or b"Traceback" in reply.body or b"kesin_jobs" in reply.body:
            wrong.append((name, reply.status, reply.text[:200]))
    bounded()
    record("malformed requests", answers)
    assert wrong == []
    assert answers[400] > 8


@pytest.mark.parametrize("name", ["different lengths", "a length and chunks"])
def test_what_follows_a_request_with_two_lengths_is_not_another_request(name, target):
    with Wire(target.address) as wire, wire.connect() as opened:
        opened.sendall(MALFORMED[name])
        received = b""
        while more := opened.recv(65_536):
            received += more
    assert received.count(b"HTTP/1.1 ") == 1
