"""Connections of a real server: deadlines for a request to arrive, and how many there may be."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from kesin.foundation.settings import Settings
from kesin.web import server as web_server
from kesin.web.server import Server, bind_sockets, build_server
from tests.cli.programs import wait_until
from tests.web.conftest import MakeWorld, World

GET = b"GET /health/live HTTP/1.1\r\nhost: kesin.test\r\n\r\n"
HALF = b"GET /health/live HTTP/1.1\r\nhost: kes"
PATIENCE_S = 20


class Running:
    """A server in a thread, and raw connections to it."""

    def __init__(self, server: Server, address: tuple[str, int], stack: ExitStack) -> None:
        self.server = server
        self.address = address
        self._stack = stack

    def connect(self, sent: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
        opened = socket.create_connection(self.address, PATIENCE_S, source_address=(source, 0))
        self._stack.enter_context(opened)
        opened.sendall(sent)
        return opened

    def status(self, source: str = "127.0.0.1") -> int:
        with self.connect(GET, source) as opened:
            return status_of(read_head(opened))

    def wait_for_connections(self, n: int) -> None:
        wait_until(lambda: len(self.server.server_state.connections) == n)


def read_head(opened: socket.socket) -> bytes:
    """What comes until the end of a response's head."""
    received = b""
    while b"\r\n\r\n" not in received and (more := opened.recv(65_536)):
        received += more
    return received


def read_to_end(opened: socket.socket) -> bytes:
    """Everything that comes until the server closes the connection."""
    received = b""
    try:
        while more := opened.recv(65_536):
            received += more
    except ConnectionResetError:
        pass
    return received


def status_of(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


@contextmanager
def serving(world: World) -> Iterator[Running]:
    with ExitStack() as stack:
        sockets = stack.enter_context(bind_sockets("127.0.0.1", 0))
        address = sockets[0].getsockname()
        server = build_server(world.app, world.service, leave=lambda _: None)
        thread = threading.Thread(target=server.run, args=(sockets,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(lambda: setattr(server, "should_exit", True))
        wait_until(lambda: server.started)
        yield Running(server, address, stack)


@pytest.fixture
def start(make_world: MakeWorld) -> Iterator[Any]:
    with ExitStack() as stack:

        def begin(**settings: Any) -> Running:
            return stack.enter_context(serving(make_world(**settings)))

        yield begin


# Deadlines


@pytest.mark.parametrize("before", [b"", GET])
def test_half_a_request_is_answered_with_a_timeout_also_on_a_used_connection(before, start):
    running = start(header_timeout_s=0.2)
    opened = running.connect(before)
    if before:
        assert status_of(read_head(opened)) == 200
    opened.sendall(HALF)
    response = read_to_end(opened).split(b'"ok"}')[-1]
    assert status_of(response) == 408
    head, body = response.split(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["error"]["code"] == "request_timeout"


def test_a_connection_on_which_nothing_is_asked_is_closed(start):
    assert read_to_end(start(header_timeout_s=0.1).connect()) == b""


def test_bytes_that_trickle_in_do_not_extend_the_deadline(start):
    running = start(header_timeout_s=0.3)
    opened = running.connect(b"GET / HTTP/1.1\r\n")
    opened.settimeout(0.02)
    received = b""
    for _ in range(1_000):  # until it is answered
        try:
            opened.sendall(b"x: y\r\n")
            received += opened.recv(65_536)
        except TimeoutError:
            continue
        except ConnectionError:
            break
        if received:
            break
    assert status_of(received) == 408


def test_a_body_that_no_route_reads_is_cut_off(start, monkeypatch):
    monkeypatch.setattr(web_server, "UNREAD_BODY_S", 0.1)
    running = start(body_timeout_s=0.1, request_timeout_s=0.1)
    opened = running.connect(b"POST /nowhere HTTP/1.1\r\nhost: kesin.test\r\ncontent-length: 1000000\r\n\r\nx")
    assert status_of(read_to_end(opened)) == 404
    running.wait_for_connections(0)


def test_a_request_in_time_is_answered_and_its_connection_used_again(start):
    running = start(header_timeout_s=0.5)
    opened = running.connect(HALF)
    opened.sendall(GET.removeprefix(HALF))
    for _ in range(2):
        assert status_of(read_head(opened)) == 200
        opened.sendall(GET)


def test_a_client_that_does_not_fetch_the_last_response_is_cut_off(start, monkeypatch):
    monkeypatch.setattr(web_server, "CLOSING_TICKS", 0)
    running = start()
    opened = running.connect(GET)
    read_head(opened)
    [connection] = running.server.server_state.connections
    closing = threading.Event()

    def close_with_more_to_send() -> None:
        connection.transport.write(b"x" * 50_000_000)
        connection.transport.close()
        closing.set()

    connection.loop.call_soon_threadsafe(close_with_more_to_send)
    assert closing.wait(PATIENCE_S)
    running.wait_for_connections(0)


# Numbers


def test_an_address_with_too_many_connections_is_refused_and_the_others_are_not(start):
    running = start(connections_per_address=3)
    held = [running.connect(HALF) for _ in range(3)]
    running.wait_for_connections(3)
    refused = read_to_end(running.connect())
    assert status_of(refused) == 429
    assert b"\r\nretry-after: 1\r\n" in refused.lower()
    assert json.loads(refused.split(b"\r\n\r\n")[1])["error"]["code"] == "too_many_requests"
    assert running.status(source="127.0.0.2") == 200
    held[0].close()
    running.wait_for_connections(2)
    assert running.status() == 200


def test_a_trusted_proxy_has_as_many_connections_as_it_needs(start):
    running = start(connections_per_address=1, trusted_proxies="127.0.0.0/30")
    for _ in range(3):
        running.connect(HALF, source="127.0.0.2")
    running.wait_for_connections(3)
    assert running.status(source="127.0.0.2") == 200


def test_half_sent_requests_of_many_addresses_keep_nobody_out(start, monkeypatch):
    monkeypatch.setattr(web_server, "MAX_CONNECTIONS", 10)
    running = start()
    held = [running.connect(HALF, source=f"127.0.1.{n + 1}") for n in range(9)]
    running.wait_for_connections(9)
    assert [running.status() for _ in range(3)] == [200] * 3
    assert read_to_end(held[0]) == b""  # the one that waited longest went first


def test_a_connection_that_is_given_up_makes_room_before_the_loop_reports_its_end(monkeypatch):
    monkeypatch.setattr(web_server, "MAX_CONNECTIONS", 3)
    state = web_server.Connections(Settings())
    old, older, new = (Mock(client=None) for _ in range(3))
    for connection in (older, old):
        state.connections.add(connection)
        assert state.add(connection)
        state.note(connection, has_request=False)
    state.connections.add(new)
    assert state.add(new)
    assert state.connections == {old, new}
    assert older.transport.abort.called
    assert not old.transport.abort.called


def test_a_request_under_way_is_not_given_up_for_new_connections(start, monkeypatch):
    monkeypatch.setattr(web_server, "MAX_CONNECTIONS", 4)
    running = start()
    post = b"POST /api/session HTTP/1.1\r\nhost: k\r\ncontent-type: application/json\r\n"
    busy = running.connect(post + b"content-length: 2\r\n\r\n{")
    wait_until(lambda: bool(running.server.server_state.tasks))
    for n in range(8):
        running.connect(HALF, source=f"127.0.1.{n + 1}")
    wait_until(lambda: len(running.server.server_state.connections) <= 4)
    busy.sendall(b"}")
    assert status_of(read_head(busy)) == 422


# Together


def test_others_are_served_while_large_bodies_of_strangers_arrive(start):
    """The 401 comes at once; nothing of nine megabytes is parsed."""
    running = start()
    base_url = f"http://127.0.0.1:{running.address[1]}"
    body = b"[" + b"[]," * 3_200_000 + b"[]]"

    async def everybody() -> list[int]:
        async with httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S) as client:
            headers = {"content-type": "application/json"}
            strangers = [client.post("/api/queues/task/jobs", content=body, headers=headers) for _ in range(3)]
            probes = [client.get("/health/live") for _ in range(3)]
            answers = await asyncio.gather(*strangers, *probes)
        return [answer.status_code for answer in answers]

    assert asyncio.run(everybody()) == [401] * 3 + [200] * 3
