"""A private Redis for tests and bench: in a temporary folder, reached through a socket there.

It disappears with the process that started it, however that process ends.
"""

import os
import select
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

GUARD = 'read -r _; kill -9 "$(cat "$1/pid" 2>/dev/null)" 2>/dev/null; cd / && rm -rf "$1"'
DATABASES = 64
SHARED = 60  # those from here on belong to one folder or module of tests each


class RedisServer:
    """``durable``: every command is flushed to the append-only file before it is answered.

    With ``fsync="everysec"`` it is written before, and flushed within a second.
    """

    def __init__(
        self, *, durable: bool = False, fsync: Literal["always", "everysec"] = "always"
    ) -> None:
        self._durable = durable
        self._fsync = fsync
        self._folder: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="kesin-redis-"))
        self._guard = subprocess.Popen(
            ["sh", "-c", GUARD, "sh", str(self._folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
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

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise RuntimeError("the Redis server is not open; use `with RedisServer()`")
        return self._folder

    def url(self, database: int = 0) -> str:
        return f"unix://{self.folder}/redis.sock?db={database}"

    def start(self) -> None:
        """Start, or start again after `kill`; returns when it answers."""
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("redis-server is missing: run `make install`")
        (self.folder / "redis.sock").unlink(missing_ok=True)
        settings = {
            "port": "0",
            "unixsocket": str(self.folder / "redis.sock"),
            "dir": str(self.folder),
            "databases": str(DATABASES),
            "save": "",
            "appendonly": "yes" if self._durable else "no",
            "appendfsync": self._fsync,
            "pidfile": str(self.folder / "pid"),
            "daemonize": "no",
            "logfile": str(self.folder / "log"),
        }
        args = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen([program, *args], start_new_session=True)
        (self.folder / "pid").write_text(str(self._process.pid))
        self._until_it_answers()

    def _until_it_answers(self) -> None:
        """It opens its socket only when its data is loaded; the client tries until then."""
        import redis
        from redis.backoff import ConstantBackoff
        from redis.retry import Retry

        client = redis.Redis.from_url(
            self.url(),
            retry=Retry(ConstantBackoff(0.02), 1_000),
            retry_on_error=[redis.ConnectionError, redis.BusyLoadingError],
        )
        try:
            client.ping()
        finally:
            client.close()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the Redis server is not running")
        return self._process.pid

    def kill(self) -> None:
        """Crash: nothing more is written."""
        if self._process is not None:
            handle = os.pidfd_open(self._process.pid)
            self._process.send_signal(signal.SIGKILL)
            select.select([handle], [], [])
            os.close(handle)
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.kill()
        if self._guard is not None:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait()
            self._guard = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
