"""A private Redis for tests and bench, reached through a socket in its folder."""

import itertools
import shutil
from typing import Literal

from tests.private import OneProcess

DATABASES = 70
SHARED = 60  # `empty_url` hands out those below; from here on each belongs to one module
FAULTS, WIRES, STORE, STANDING, ALIKE = range(SHARED, SHARED + 5)


class RedisServer(OneProcess):
    """``durable``: every command is flushed to the append-only file before it is answered.

    With ``fsync="everysec"`` it is written before, and flushed within a second.
    """

    def __init__(self, *, durable: bool = False, fsync: Literal["always", "everysec"] = "always") -> None:
        self._durable = durable
        self._fsync = fsync
        self._databases = itertools.cycle(range(1, SHARED))

    def url(self, database: int = 0) -> str:
        return f"unix://{self.folder}/redis.sock?db={database}"

    def empty_url(self) -> str:
        """The next of the shared databases, emptied of what an earlier test left in it."""
        import redis

        url = self.url(next(self._databases))
        with redis.Redis.from_url(url) as client:
            client.flushdb()
        return url

    def start(self) -> None:
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
            "daemonize": "no",
            "logfile": str(self.folder / "log"),
        }
        args = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self.launch(program, *args)
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
