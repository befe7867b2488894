"""Whether a PostgreSQL server can be reached, without a driver."""

from __future__ import annotations

from kesin.foundation.settings import Settings
from kesin.store.errors import StoreError

CONNECT_TIMEOUT_S = 5


UNREADABLE = (
    "no address of a PostgreSQL server: expected postgresql://user:password@host/database,"
    " with @ : / % of a password as %40 %3A %2F %25"
)


def check_reachable(settings: Settings) -> None:
    """Fail within seconds, and with the server's own words, where the pool would wait in vain."""
    if settings.database_file is not None:
        return
    try:
        why = why_not(settings.database, told_by="KESIN_DATABASE_URL")
    except ImportError:
        return  # the store says what to install
    if why is not None:
        raise StoreError(f"PostgreSQL is not reachable: {why}")


def why_not(url: str, *, told_by: str = "the address") -> str | None:
    """Why nobody can connect, in the server's words and with what to do; None where one can."""
    import psycopg

    if not is_readable(url):  # and its words would repeat a part of it, which may be a password
        return UNREADABLE
    try:
        psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT_S).close()
    except psycopg.Error as problem:
        words = " ".join(str(problem).split()) or type(problem).__name__
        if "no password" in words:
            return f"{words}; put the password into PGPASSWORD or ~/.pgpass"
        return f"{words}; check {told_by} and the server"
    return None


def is_readable(url: str) -> bool:
    """Whether it is an address of a server, and not one with a stray sign in its password."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        host = conninfo_to_dict(url).get("host")
    except ProgrammingError:
        return False
    return "@" not in str(host)
