"""The app under uvicorn: sockets, start and signals."""

import asyncio
import errno
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from kesin.foundation.logs import Logger
from kesin.foundation.problems import Unavailable
from kesin.web.connections import MAX_CONNECTIONS, BoundedProtocol, Connections
from kesin.web.routing import load_routes
from kesin.web.service import Service

log = Logger("kesin.service")

BACKLOG: Final = 2_048
KEEP_ALIVE_S: Final = 15
TICKS_PER_S: Final = 10  # uvicorn's


class Server(uvicorn.Server):
    """Stops the service at the first signal: live responses would keep the server waiting."""

    def __init__(
        self, config: uvicorn.Config, app: FastAPI, service: Service, leave: Callable[[int], None]
    ) -> None:
        super().__init__(config)
        self.server_state = self._connections = Connections(service.settings)
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
            self._connections.abort_stuck()
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
        why = "no machine has this address"
        try:
            stream, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
            addresses = socket.getaddrinfo(host, port, type=stream, flags=passive)
            for family, kind, number, _, address in dict.fromkeys(addresses):
                listener = stack.enter_context(socket.socket(family, kind, number))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    listener.bind(address)
                    listener.listen(BACKLOG)  # until then another process could take the address
                except OSError as problem:
                    if problem.errno != errno.EADDRNOTAVAIL:
                        raise
                    why = _reason(problem)  # the host may have another address
                else:
                    listeners.append(listener)
        except OSError as problem:
            why, listeners = _reason(problem), []
        if not listeners:
            remedy = "choose another one, or stop the program that uses it"
            raise Unavailable(f"cannot listen on port {port} of {host}: {why}; {remedy}")
        yield listeners


def _reason(problem: OSError) -> str:
    return (problem.strerror or str(problem)).lower()


def run(app: FastAPI, service: Service, sockets: list[socket.socket]) -> None:
    """Serve until a signal; the first one drains, the second one stops at once."""
    server = build_server(app, service)
    server.run(sockets)
    if server.failure is not None:
        raise server.failure


def build_server(
    app: FastAPI, service: Service, leave: Callable[[int], None] = _exit_process
) -> Server:
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
