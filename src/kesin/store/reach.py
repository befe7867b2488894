"""Whether a database answers, asked before a pool begins to wait for it."""

from __future__ import annotations

from kesin.foundation.settings import Settings
from kesin.store.contract import StoreError

CONNECT_TIMEOUT_S = 5


def check_reachable(settings: Settings) -> None:
    """Fail within seconds, and with the server's own words, where the pool would wait in vain."""
    if settings.database_file is not None:
        return
    try:
        import psycopg
    except ImportError:
        return  # the store says what to install
    try:
        psycopg.connect(settings.database, connect_timeout=CONNECT_TIMEOUT_S).close()
    except psycopg.Error as problem:
        why = " ".join(str(problem).split()) or type(problem).__name__
        remedy = "check KESIN_DATABASE_URL and the server"
        if "no password" in why:
            remedy = "put the password into PGPASSWORD or ~/.pgpass"
        raise StoreError(f"PostgreSQL is not reachable: {why}; {remedy}") from None
