"""Checks whether a PostgreSQL server can be reached; importable without the driver."""

import threading

from kesin.foundation.clock import monotonic
from kesin.foundation.settings import Settings
from kesin.store.errors import StoreError

CONNECT_TIMEOUT_S = 5
RETRY_S = 1.0
# The server, or the driver, has answered: asking again gives the same answer.
_FINAL = ("authentication failed", "does not exist", "no password supplied", "no pg_hba.conf entry")

INVALID_ADDRESS = (
    "not the address of a PostgreSQL server: expected postgresql://user:password@host/database,"
    " with @ : / % in the password written as %40 %3A %2F %25"
)


def check_reachable(settings: Settings, *, wait_s: float = 0) -> None:
    """Fail within seconds, or after ``wait_s``, with the server's message: a pool keeps waiting."""
    if settings.database_file is not None:
        return
    try:
        why = lasting_failure(settings.database, wait_s, source="KESIN_DATABASE_URL")
    except ImportError:
        return  # the store says what to install
    if why is not None:
        raise StoreError(f"PostgreSQL is not reachable: {why}")


def lasting_failure(url: str, wait_s: float, *, source: str = "the address") -> str | None:
    """Connect every second for this long; return the last failure, and a lasting one at once."""
    deadline, pause = monotonic() + wait_s, threading.Event()
    while True:
        why = connection_failure(url, source=source)
        left_s = deadline - monotonic()
        if why is None or is_final(why) or left_s <= 0:
            return why
        pause.wait(min(RETRY_S, left_s))


def is_final(why: str) -> bool:
    """Whether waiting does not help."""
    return why == INVALID_ADDRESS or any(text in why for text in _FINAL)


def connection_failure(url: str, *, source: str = "the address") -> str | None:
    """Why no connection can be made, with the server's message and a remedy; None if one can."""
    import psycopg

    if not is_valid_address(url):  # the driver's message could repeat a password
        return INVALID_ADDRESS
    try:
        psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT_S).close()
    except psycopg.Error as problem:
        message = " ".join(str(problem).split()) or type(problem).__name__
        if "no password" in message:
            return f"{message}; put the password in PGPASSWORD or ~/.pgpass"
        return f"{message}; check {source} and the server"
    return None


def is_valid_address(url: str) -> bool:
    """Whether this is a valid server address, without an unescaped character in its password."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        host = conninfo_to_dict(url).get("host")
    except ProgrammingError:
        return False
    return "@" not in str(host)
