"""Whether a PostgreSQL answers, and what it says if it lets nobody in."""

from __future__ import annotations

from kesin.foundation.settings import Settings
from kesin.store.contract import StoreError

CONNECT_TIMEOUT_S = 5


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

    try:
        psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT_S).close()
    except psycopg.Error as problem:
        words = " ".join(str(problem).split()) or type(problem).__name__
        if "no password" in words:
            return f"{words}; put the password into PGPASSWORD or ~/.pgpass"
        return f"{words}; check {told_by} and the server"
    return None
