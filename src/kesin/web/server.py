"""The app under uvicorn: sockets, signals, and limits against slow and silent clients."""

import asyncio
import errno
import json
import math
import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Final, Literal

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from kesin.foundation.logs import Logger
from kesin.foundation.problems import Problem, RequestTimeout, TooManyRequests, Unavailable
from kesin.foundation.settings import Settings
from kesin.web.auth import is_in_networks
from kesin.web.rate_limit import network_of
from kesin.web.routing import load_routes
from kesin.web.service import Service

log = Logger("kesin.service")

BACKLOG: Final = 2_048
KEEP_ALIVE_S: Final = 15
TICKS_PER_S: Final = 10  # uvicorn's
MAX_CONNECTIONS: Final = 2_000
RETRY_AFTER_S: Final = 1
# A body that a route reads has a deadline there, with an answer; this is for those that none reads.
UNREAD_BODY_S: Final = 15.0
CLOSING_TICKS: Final = 10  # seconds that the last response may take to be fetched
MAX_HEADER_BYTES: Final = 65_536

Phase = Literal["header", "body", "idle", "busy"]


class Connections(ServerState):
    """The open connections, counted for each address."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.header_s = settings.header_timeout_s
        self.body_s = max(settings.body_timeout_s, settings.request_timeout_s) + UNREAD_BODY_S
        self._per_address = settings.connections_per_address
        self._trusted_proxies = settings.trusted_proxies
        self._open: Counter[str] = Counter()
        self._without_request: dict[BoundedProtocol, None] = {}  # the longest waiting first

    def add(self, connection: "BoundedProtocol") -> bool:
        """Count a new connection; False if its address has too many."""
        if len(self.connections) >= MAX_CONNECTIONS and self._without_request:
            oldest = next(iter(self._without_request))
            del self._without_request[oldest]
            self.connections.discard(oldest)  # at once: some event loops report its end later
            oldest.transport.abort()
        network = self._network(connection)
        if network is None:
            return True
        self._open[network] += 1
        return self._open[network] <= self._per_address

    def remove(self, connection: "BoundedProtocol") -> None:
        self._without_request.pop(connection, None)
        network = self._network(connection)
        if network is not None:
            self._open[network] -= 1
            if not self._open[network]:
                del self._open[network]

    def note(self, connection: "BoundedProtocol", *, has_request: bool) -> None:
        """Note whether a request is under way; a connection without one may be given up."""
        if has_request:
            self._without_request.pop(connection, None)
        else:
            self._without_request.setdefault(connection)

    def _network(self, connection: "BoundedProtocol") -> str | None:
        """What the connection counts for; a trusted proxy has as many as it needs."""
        if connection.client is None or is_in_networks(connection.client[0], self._trusted_proxies):
            return None
        return network_of(connection.client[0])


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose requests must arrive in time, with headers of a limited size."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(server_state, Connections)  # noqa: S101  # our server brings it
        self._limits = server_state
        self._phase: tuple[Phase, object] = ("busy", None)
        self._has_served = False  # a first request was begun
        self._arriving: Literal["header", "body"] | None = None  # of the newest request
        self._header_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._closing_ticks = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._limits.add(self):
            self._follow()
            return
        problem = TooManyRequests("this address has too many open connections", retry_after_s=RETRY_AFTER_S)
        self._answer(problem)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._limits.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():  # it was refused
            return
        super().data_received(data)
        if self._arriving == "header":  # a header without an end is kept by the parser
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
                self.send_400_response("Invalid HTTP request received.")
        self._follow()

    def on_message_begin(self) -> None:
        self._arriving, self._header_bytes = "header", 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_BYTES:
            raise ValueError("the header is too large")  # the parser answers 400
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._arriving = "body"
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arriving = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    def abort_if_stuck(self) -> None:
        """Abort a connection that was closed long ago and whose client reads nothing."""
        self._closing_ticks += self.transport.is_closing()
        if self._closing_ticks > CLOSING_TICKS:
            self.transport.abort()

    def _follow(self) -> None:
        """Start the deadline of what the connection waits for now, unless it runs already."""
        phase = self._current_phase()
        if self._phase == phase:
            return
        self._phase = phase
        self._cancel_deadline()
        has_request = phase[0] in {"body", "busy"}
        self._has_served |= has_request
        self._limits.note(self, has_request=has_request)
        if phase[0] == "header":
            self._deadline = self.loop.call_later(self._limits.header_s, self._end_header)
        elif phase[0] == "body":
            self._deadline = self.loop.call_later(self._limits.body_s, self.transport.abort)

    def _current_phase(self) -> tuple[Phase, object]:
        if self._arriving == "body":
            return "body", self.cycle
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        if cycle is not None and not cycle.response_complete:
            return "busy", cycle
        begun = not self._has_served or self._arriving == "header"
        return ("header" if begun else "idle"), self.cycle  # uvicorn closes idle ones

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_header(self) -> None:
        if self.transport.is_closing():
            return
        if self._arriving is None:  # nothing was asked
            self.transport.close()
            return
        within = f"{self._limits.header_s:g}"
        self._answer(RequestTimeout("the request did not arrive within %(n)s s", n=within))

    def _answer(self, problem: Problem) -> None:
        """Answer without a request, and close."""
        body = json.dumps(problem.body()).encode()
        fields = {"content-type": "application/json", "content-length": str(len(body))}
        headers = {**fields, "connection": "close", **problem.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.transport.write(STATUS_LINE[problem.status] + lines.encode() + b"\r\n" + body)
        self.transport.close()


class Server(uvicorn.Server):
    """Stops the service at the first signal: live responses would keep the server waiting."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, service: Service, leave: Callable[[int], None]) -> None:
        super().__init__(config)
        self.server_state = Connections(service.settings)
        self._service = service
        self._leave = leave
        self._app = app
        self.failure: BaseException | None = None  # of what is loaded after the start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            for listener in server.sockets:
                host, port = listener.getsockname()[:2]
                shown = f"[{host}]" if ":" in str(host) else host
                log.info("listening", address=f"http://{shown}:{port}")
        self._loading = asyncio.ensure_future(load_routes(self._app.routes))
        self._loading.add_done_callback(self._stop_unless_loaded)

    def _stop_unless_loaded(self, loading: asyncio.Future[None]) -> None:
        if not loading.cancelled() and (failure := loading.exception()) is not None:
            self.failure = failure
            log.error("not_loaded", why=repr(failure))
            self.handle_exit(signal.SIGTERM, None)

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_S == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, BoundedProtocol):
                    connection.abort_if_stuck()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:  # uvicorn has left the app as it was
            await asyncio.to_thread(self._service.stop)
        if self.server_state.tasks:
            # They run in threads that cannot be stopped, and the loop would wait for them.
            log.warning("requests_abandoned", requests=len(self.server_state.tasks))
            self._leave(0 if self.failure is None else 1)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn's
        if self.should_exit:
            self.force_exit = True
            self._service.hurry()
        self.should_exit = True
        # In a thread: the interrupted loop may hold the lock that stopping needs.
        threading.Thread(target=self._service.begin_stop, name="kesin-stop").start()


def _exit_process(code: int) -> None:
    """End the process at once; everything is written and closed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextmanager
def bind_sockets(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Bind the address before anything else starts, so that a taken one stops the start."""
    with ExitStack() as stack:
        listeners: list[socket.socket] = []
        why = "this machine does not have this address"
        try:
            stream, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
            addresses = socket.getaddrinfo(host, port, type=stream, flags=passive)
            for family, _, _, _, address in dict.fromkeys(addresses):
                try:  # it listens: until then another process could take the address
                    listener = socket.create_server(address, family=family, backlog=BACKLOG)
                except OSError as problem:
                    if problem.errno != errno.EADDRNOTAVAIL:
                        raise
                    why = _reason(problem)  # the host may have another address
                else:
                    listeners.append(stack.enter_context(listener))
        except OSError as problem:
            why, listeners = _reason(problem), []
        if not listeners:
            remedy = "choose another one, or stop the program that uses it"
            raise Unavailable(f"cannot listen on port {port} of {host}: {why}; {remedy}")
        yield listeners


def _reason(problem: OSError) -> str:
    return (problem.strerror or str(problem)).partition(" (while")[0].lower()


def run(app: FastAPI, service: Service, sockets: list[socket.socket]) -> None:
    """Serve until a signal; the first one drains, the second one stops at once."""
    server = build_server(app, service)
    server.run(sockets)
    if server.failure is not None:
        raise server.failure


def build_server(app: FastAPI, service: Service, leave: Callable[[int], None] = _exit_process) -> Server:
    """The server, not yet running. Outside the main thread it receives no signals."""
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(service.settings.grace_s),
    )
    return Server(config, app, service, leave)
