"""A server that answers deliveries as it is told, and remembers what came."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Came(NamedTuple):
    """A request."""

    path: str
    headers: dict[str, str]
    body: Any
    raw: bytes = b""


class Receiver(ThreadingHTTPServer):
    """Answers with what stands next in ``script``, and with 200 when nothing does."""

    daemon_threads = True
    request_queue_size = 64  # connections at once, however late it takes them

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.came: list[Came] = []
        self.script: list[Any] = []  # a status, (status, headers), or what to do with the answer
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?of=orders"


class _Answers(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        raw = self.rfile.read(size)
        self.server.came.append(Came(self.path, dict(self.headers), json.loads(raw), raw))
        next_one = self.server.script.pop(0) if self.server.script else 200
        if callable(next_one):
            self.close_connection = True
            next_one(self)
            return
        status, headers = next_one if isinstance(next_one, tuple) else (next_one, {})
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"what the receiver says\0" * 1_000)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()


def silence(request: _Answers) -> None:
    """Take the request and never answer."""
    request.server.over.wait(20)


def trickle(request: _Answers) -> None:
    """Answer a byte at a time, without end: each one comes in time."""
    try:
        request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not request.server.over.wait(0.02):
            request.wfile.write(b"x")
    except OSError:
        pass


def nonsense(request: _Answers) -> None:
    """Answer in another language."""
    request.wfile.write(b"220 mail.example.com ESMTP\r\n")


def hang_up(request: _Answers) -> None:
    """Say nothing and go."""
