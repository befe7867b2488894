"""The service as a browser meets it: the tests' own world behind a real port of this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn

from tests.web.conftest import World

PATIENCE_S = 120


class _Server(uvicorn.Server):
    """Says when it listens: nobody has to look again and again."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


class Served:
    """A world that listens, and can be stopped and started again at the same address."""

    def __init__(self, make: Callable[[], World], port: int) -> None:
        self._make = make
        self._port = port
        self.world = make()
        self._start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def cookie(self, who: str) -> dict[str, str]:
        """Of a new session, made without the form."""
        return {"name": "kesin_session", "value": self.world.token(who), "url": self.address}

    def _start(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", self._port))
        config = uvicorn.Config(
            self.world.app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
        )
        self._server = _Server(config)
        run: Any = self._server.run
        self._thread = threading.Thread(target=run, args=([self._socket],), daemon=True)
        self._thread.start()
        assert self._server.ready.wait(PATIENCE_S), "the service did not start"

    def stop(self) -> None:
        """As after SIGTERM: live answers end, the rest is waited for."""
        self.world.service.begin_stop()
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the service did not stop"
        self._socket.close()

    def start_again(self) -> World:
        """Another process on the same folder would find the same."""
        time_us = self.world.clock.time_us
        self.world = self._make()
        self.world.clock.time_us = time_us
        self._start()
        return self.world
