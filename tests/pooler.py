"""Debian's PgBouncer in transaction mode, before a private PostgreSQL."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest

from tests.servers import PORT, PostgresServer

POOLER_PORT = 6432  # names its socket file, in the server's folder
CONFIG = """
[databases]
* = host={folder} port=5432 user=postgres
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 500
"""
PATIENCE_S = 30


def through_pooler(url: str) -> str:
    """The address of the same database through the pooler."""
    return url.replace(f"port={PORT}", f"port={POOLER_PORT}")


@contextmanager
def pooler(server: PostgresServer, *, size: int, probe: str) -> Iterator[None]:
    """Run it with so many connections for each database; ``probe`` is the URL of one."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    assert program, "PgBouncer is missing; run: make install"
    config = server.folder / "pgbouncer.ini"
    config.write_text(CONFIG.format(folder=server.folder, port=POOLER_PORT, size=size))
    config.chmod(0o644)
    running = subprocess.Popen([program, "-q", config], stderr=subprocess.DEVNULL, **server.somebody)
    try:
        _await_pooler(through_pooler(probe), running)
        yield
    finally:
        running.terminate()
        running.wait(PATIENCE_S)


def _await_pooler(url: str, running: subprocess.Popen[bytes]) -> None:
    """Until it answers: each failed look waits for the process a moment."""
    for _ in range(PATIENCE_S * 10):
        with suppress(psycopg.OperationalError), psycopg.connect(url):
            return
        with suppress(subprocess.TimeoutExpired):
            pytest.fail(f"PgBouncer ended: {running.wait(0.1)}")
    pytest.fail("PgBouncer did not answer")
