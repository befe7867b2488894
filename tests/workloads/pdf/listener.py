"""A server that counts every connection, whatever is sent on it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63d8"
    "c0f01f0004000180f4ad5eb90000000049454e44ae426082"
)


class Listener(ThreadingHTTPServer):
    """Serves an image under every path but a few."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.connections = 0
        self.paths: list[str] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def get_request(self) -> tuple[socket.socket, Any]:
        accepted = super().get_request()
        self.connections += 1
        return accepted

    def handle_error(self, *_: object) -> None:
        """Ignore errors: a browser that is killed closes its connections."""


class _Handler(BaseHTTPRequestHandler):
    server: Listener

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        if self.path.startswith("/silence"):
            self.server.over.wait(30)
            return
        if self.path.startswith("/elsewhere"):
            self.send_response(302)
            self.send_header("Location", "/pixel.png")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "image/png")
        self.send_header("Content-Length", str(len(PIXEL)))
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        self.wfile.write(PIXEL)

    do_POST = do_GET  # noqa: N815 - the names that http.server looks for

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def listening() -> Iterator[Listener]:
    with Listener() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
