"""A private PostgreSQL for tests and bench, reached through a socket in its folder."""

import fcntl
import os
import pwd
import select
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from tests.private import PrivateServer

PORT = 5432  # names the socket file; no TCP port is opened


class PostgresServer(PrivateServer):
    """A PostgreSQL cluster of its own.

    `fsync=False` gives up durability for speed. `settings` go to postgresql.conf. `like` is the
    place of a cluster to copy, which takes a tenth of making one; the first server puts it there.
    As root, the server runs as the user `postgres` or else `nobody`, since it refuses root.
    """

    def __init__(
        self, *, fsync: bool = True, settings: Mapping[str, str | int] | None = None, like: Path | None = None
    ) -> None:
        self._like = like
        self._settings: dict[str, str | int] = {"listen_addresses": "", "max_connections": 100, "port": PORT}
        if not fsync:
            self._settings |= {"fsync": "off", "full_page_writes": "off"}
            self._settings |= {"synchronous_commit": "off"}
        self._settings |= settings or {}
        self._bin = _postgres_programs()
        self.end = f'"{self._bin}/pg_ctl" -D "$1/data" -m immediate stop'
        self.user = _unprivileged_user()

    @property
    def pid(self) -> int | None:
        """The server's process, or None while it is stopped."""
        with suppress(FileNotFoundError):
            return int((self.folder / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
        return None

    def url(self, dbname: str = "postgres") -> str:
        folder = quote(str(self.folder), safe="/")
        return f"postgresql://postgres@/{quote(dbname)}?host={folder}&port={PORT}"

    def create_database(self, name: str, *, like: str = "template1") -> str:
        """Create a database, empty or a copy of one nobody is connected to; return its URL."""
        where = ("-h", self.folder, "-p", str(PORT), "-U", "postgres")
        self._run("createdb", *where, "-T", like, name)
        return self.url(name)

    def start(self) -> None:
        """Start, or start again after `stop` or `kill`; returns when connections are accepted."""
        data, log = self.folder / "data", self.folder / "server.log"
        if not data.exists():
            self._initialise()
        self._run("pg_ctl", "-D", data, "-l", log, "-t", "60", "-w", "start")

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        if self.pid is not None:
            self._run("pg_ctl", "-D", self.folder / "data", "-m", mode, "-w", "stop")

    def kill(self) -> None:
        """Crash: every process of the server dies at once and nothing is flushed."""
        if (pid := self.pid) is None:
            return
        os.kill(pid, signal.SIGSTOP)  # no new children while they are listed
        processes = [pid, *_children(pid)]
        handles = [os.pidfd_open(each) for each in processes]
        for each in processes:
            os.kill(each, signal.SIGKILL)
        for handle in handles:
            select.select([handle], [], [])
            os.close(handle)
        # Until something reaps it, a dead postmaster looks alive to the next start.
        (self.folder / "data" / "postmaster.pid").unlink()
        (self.folder / f".s.PGSQL.{PORT}.lock").unlink()

    def _initialise(self) -> None:
        data = self.folder / "data"
        if self._like is None:
            self._make_cluster(data)
        else:
            with self._like.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not self._like.exists():
                    self._make_cluster(data)
                    _copy(data, self._like)
                else:
                    _copy(self._like, data)
        socket = {"unix_socket_directories": str(self.folder)}
        with (data / "postgresql.conf").open("a") as conf:
            for name, value in (self._settings | socket).items():
                conf.write(f"{name} = '{value}'\n")

    def _make_cluster(self, data: Path) -> None:
        options = ("--locale=C.UTF-8", "-E", "UTF8", "-U", "postgres", "-A", "trust", "--no-sync")
        self._run("initdb", "-D", data, *options)

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [self._bin / program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
            **self.somebody,
        )
        if done.returncode:
            log = self.folder / "server.log"
            tail = log.read_text()[-2000:] if log.exists() else ""
            raise RuntimeError(f"{program} failed ({done.returncode}):\n{done.stdout}{tail}")


def _copy(source: Path, target: Path) -> None:
    """With owners and modes; it is whole or not there."""
    part = target.with_suffix(".part")
    subprocess.run(["cp", "-a", source, part], check=True)
    part.rename(target)


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, parent = stat.read_text().rsplit(")", 1)[1].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(stat.parent.name))
    return found


def _postgres_programs() -> Path:
    """Return the folder of the newest installed server."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    installed = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb") if path.parts[-3].isdigit()]
    if not installed:
        raise RuntimeError("PostgreSQL's server programs are missing; run: make install")
    return max(installed, key=lambda folder: int(folder.parts[-2]))


def _unprivileged_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")
