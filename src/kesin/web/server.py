"""Running the app under uvicorn: what a signal means, and when it is up."""

from __future__ import annotations

import asyncio
import errno
import math
import os
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
from kesin.web.service import Service

log = Logger("kesin.service")

BACKLOG: Final = 2_048
KEEP_ALIVE_S: Final = 15
MOST_CONNECTIONS: Final = 2_000


class Server(uvicorn.Server):
    """Tells the service at once that it is to stop: live answers would hold the server up."""

    def __init__(self, config: uvicorn.Config, service: Service, leave: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._leave = leave

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            for one in server.sockets:
                host, port = one.getsockname()[:2]
                shown = f"[{host}]" if ":" in str(host) else host
                log.info("listening", address=f"http://{shown}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:  # uvicorn has left the app as it was
            await asyncio.to_thread(self._service.stop)
        if self.server_state.tasks:
            # They sit in threads that nothing can end, and the loop would wait for them.
            log.warning("requests_abandoned", requests=len(self.server_state.tasks))
            self._leave()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn's
        if self.should_exit:
            self.force_exit = True
            self._service.hurry()
        self.should_exit = True
        # Not here: the loop this signal interrupts may hold the very lock the stop needs.
        threading.Thread(target=self._service.begin_stop, name="kesin-stop").start()


def _leave() -> None:
    """End the process now: everything is written and closed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@contextmanager
def bound(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Take the address, before anything is started that a taken one would have to stop again."""
    with ExitStack() as stack:
        taken: list[socket.socket] = []
        why = "it is the address of no machine"
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, number, _, where in dict.fromkeys(found):
                one = stack.enter_context(socket.socket(family, kind, number))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    one.bind(where)
                    one.listen(BACKLOG)  # before that, another could take the same address
                except OSError as problem:
                    if problem.errno != errno.EADDRNOTAVAIL:
                        raise
                    why = _lower(problem)  # a name may have another that can be had
                else:
                    taken.append(one)
        except OSError as problem:
            why, taken = _lower(problem), []
        if not taken:
            remedy = "choose another one, or end the program that has it"
            raise Unavailable(f"cannot listen on port {port} of {host}: {why}; {remedy}")
        yield taken


def _lower(problem: OSError) -> str:
    return (problem.strerror or str(problem)).lower()


def run(app: FastAPI, service: Service, sockets: list[socket.socket]) -> None:
    """Serve until a signal; the first one drains, the second one ends."""
    server_of(app, service).run(sockets)


def server_of(app: FastAPI, service: Service, leave: Callable[[], None] = _leave) -> Server:
    """The server, not yet running; in another thread than the main one it hears no signal."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(service.settings.grace_s),
        h11_max_incomplete_event_size=65_536,
    )
    return Server(config, service, leave)
