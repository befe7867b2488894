"""What applications have in hand: a connection or session of each library, in a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import django
import psycopg
import psycopg2
import sqlalchemy
from django.conf import settings
from django.db import connections
from django.db.transaction import atomic
from psycopg.rows import dict_row
from sqlalchemy.orm import Session


@dataclass
class Given:
    """Something for ``within``, and how its owner writes, commits and rolls back."""

    within: Any
    execute: Callable[[str], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]


Opener = Callable[[str], Any]


@contextmanager
def psycopg_plain(url: str) -> Iterator[Given]:
    with psycopg.connect(url) as own:
        yield Given(own, own.execute, own.commit, own.rollback)


@contextmanager
def psycopg_dicts(url: str) -> Iterator[Given]:
    """Prefers other rows, and prepares statements at once."""
    with psycopg.connect(url, row_factory=dict_row, prepare_threshold=0) as own:
        yield Given(own, own.execute, own.commit, own.rollback)


@contextmanager
def psycopg_block(url: str) -> Iterator[Given]:
    """In autocommit, inside a block of its own."""
    with psycopg.connect(url, autocommit=True) as own:
        own.execute("BEGIN")
        yield Given(own, own.execute, lambda: own.execute("COMMIT"), lambda: own.execute("ROLLBACK"))


@contextmanager
def psycopg2_plain(url: str) -> Iterator[Given]:
    """Not for ``within``: it calls the SQL function."""
    with closing(psycopg2.connect(url)) as own, own.cursor() as cursor:
        yield Given(own, cursor.execute, own.commit, own.rollback)


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Given]:
    engine = sqlalchemy.create_engine(_address(url))
    with Session(engine) as own:
        yield Given(own, lambda sql: own.execute(sqlalchemy.text(sql)), own.commit, own.rollback)
    engine.dispose()


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Given]:
    engine = sqlalchemy.create_engine(_address(url))
    with engine.connect() as own:
        yield Given(own, lambda sql: own.execute(sqlalchemy.text(sql)), own.commit, own.rollback)
    engine.dispose()


@contextmanager
def django_atomic(url: str) -> Iterator[Given]:
    own = django_connection(url)
    block = atomic("within")
    block.__enter__()

    def end(problem: type[BaseException] | None) -> None:
        block.__exit__(problem, None, None)
        own.set_autocommit(False)  # what follows would be refused: the block is over

    yield Given(own, lambda sql: _django_execute(own, sql), lambda: end(None), lambda: end(KeyError))
    own.close()


def django_connection(url: str) -> Any:
    if not settings.configured:
        settings.configure(DATABASES={})
        django.setup()
    engine = "postgresql" if url.startswith("postgresql") else "sqlite3"
    known = psycopg.conninfo.conninfo_to_dict(url) if engine == "postgresql" else {"dbname": url}
    names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
    config = {name: known.get(there, "") for name, there in names.items()}
    connections.databases.pop("within", None)
    if hasattr(connections._connections, "within"):
        del connections["within"]
    connections.databases["within"] = connections.configure_settings(
        {"within": {"ENGINE": f"django.db.backends.{engine}", **config}, "default": {}}
    )["within"]
    return connections["within"]


def _django_execute(own: Any, sql: str) -> None:
    with own.cursor() as cursor:
        cursor.execute(sql)


@contextmanager
def sqlite_plain(path: str) -> Iterator[Given]:
    own = sqlite3.connect(path)
    yield Given(own, own.execute, own.commit, own.rollback)
    own.close()


@contextmanager
def sqlite_bytes(path: str) -> Iterator[Given]:
    """Prefers other rows and other texts."""
    own = sqlite3.connect(path)
    own.row_factory = lambda _, row: {"row": row}
    own.text_factory = bytes
    yield Given(own, own.execute, own.commit, own.rollback)
    assert own.text_factory is bytes
    own.close()


@contextmanager
def sqlite_begun(path: str) -> Iterator[Given]:
    """In autocommit, inside a transaction of its own."""
    own = sqlite3.connect(path, isolation_level=None)
    own.execute("BEGIN IMMEDIATE")
    ends = [partial(own.execute, how) for how in ("COMMIT", "ROLLBACK")]
    yield Given(own, own.execute, *ends)
    own.close()


def _address(url: str) -> str:
    if url.startswith("postgresql"):
        return url.replace("postgresql://", "postgresql+psycopg://", 1)
    return f"sqlite:///{url}"


SHARED = (sqlalchemy_session, sqlalchemy_connection, django_atomic)
DRIVERS: dict[str, tuple[Opener, ...]] = {
    "postgres": (psycopg_plain, psycopg_dicts, psycopg_block, *SHARED),
    "sqlite-file": (sqlite_plain, sqlite_bytes, sqlite_begun, *SHARED),
}
CASES = [(kind, opener) for kind, openers in DRIVERS.items() for opener in openers]
