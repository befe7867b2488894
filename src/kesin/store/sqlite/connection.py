"""Connections to a SQLite file: their settings, the dialect, and the oldest supported version."""

import json
import sqlite3

from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.sql.dialect import Dialect
from kesin.store.sqlite.file import as_disk_error

BUSY_TIMEOUT_S = 10.0
OLDEST_SQLITE = (3, 38, 0)  # STRICT tables, ->> and unixepoch()
SQLITE = Dialect(
    name="sqlite",
    greater=lambda left, right: f"iif({left} > {right}, {left}, {right})",  # max() costs a call
    now=":now",
    modulo="%",
    param=lambda name: f":{name}",
    table=lambda name: name,
    array=lambda values: None if values is None else json.dumps(list(values)),
    is_in=lambda column, name: f"{column} IN (SELECT value FROM json_each(:{name}))",
    given_slot="g.value",
    fragments={
        "as_text": "",
        "news": "j.phase IN (2, 3)",
        "among_ids": "IN (SELECT value FROM json_each(:ids))",
        "among_names": "IN (SELECT value FROM json_each(:names))",
        "keep_lock": "",  # a transaction is alone
        "skip_locked": "",
        "now": ":now",
        "pairs": "(SELECT value ->> 0 AS child, value ->> 1 AS parent FROM json_each(:pairs))",
    },
)


def check_version() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old: kesin needs 3.38 or newer")


def connect(path: str, *, reader: bool = False) -> sqlite3.Connection:
    """Open the file; a ``reader`` cannot write."""
    try:
        connection = sqlite3.connect(
            path,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.Error as problem:
        unreachable = StoreUnreachable(f"cannot open the database {path}: {problem}")
        raise as_disk_error(problem, path) or unreachable from problem
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")  # 0005_copying.sql relies on it
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cache_size = -65536")
    # SQLite's own handles ASCII only.
    connection.create_function("lower", 1, _lower, deterministic=True)
    if reader:
        connection.execute("PRAGMA query_only = ON")
    return connection


def _lower(text: str | None) -> str | None:
    return None if text is None else str(text).lower()
