"""Titles and searchable fields: what a program declares, and what it may not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kesin import BadInput, Filter, Queue, task_lifecycle
from kesin.engine.access.listing import MAX_TITLE, shown_title, title_of, titles_in
from kesin.engine.access.masking import MASK, Masking
from kesin.engine.transfer.copy import copy_queues
from kesin.engine.transfer.queue_copy import NamedStore
from kesin.engine.workload import Workload
from kesin.store.postgres.store import PostgresStore
from kesin.store.records import Listing
from kesin.store.sqlite.store import SqliteStore
from kesin.store.transfer.dump import Dump
from kesin.store.transfer.dump_postgres import PostgresDump
from kesin.store.transfer.dump_sqlite import SqliteDump
from tests.store.conftest import fresh_schema, opened

__all__ = ["fresh_schema"]
TASK = task_lifecycle()
LISTED: dict[str, Any] = {"title": "{to} · {order.number}", "search": ("to", "order.number")}
ADA = {"to": "Ada Lovelace", "order": {"number": 42}}


def found(queue: Queue, text: str) -> list[str]:
    return [job.id for job in queue.jobs(Filter(search=text)).jobs]


BAD_TITLES = (
    ("{to", "expected '}'"),
    ("to}", "Single '}'"),
    ("{to!r}", "'to'"),
    ("{to:>10}", "'to'"),
    ("{to.__class__.__init__}{0}", "'0'"),
    ("{to[0]}", r"'to\[0\]'"),
    ("{}", "''"),
    ("{a b}", "'a b'"),
    ("x" * 201, "200 characters"),
)
BAD_SEARCHES: tuple[tuple[Any, str], ...] = (
    (("to", "email"), "masked field: 'email'"),
    (("customer.name",), "masked field: 'customer.name'"),
    (("login.userToken",), "masked field: 'login.userToken'"),
    (("to.",), "not a payload field: 'to.'"),
    (("0",), "'0'"),
    (('to"',), "not a payload field"),
    ("to", "a list of at most 8"),
    (tuple(f"f{n}" for n in range(9)), "a list of at most 8"),
)


def test_a_title_that_is_no_format_of_fields_and_a_field_that_is_masked_or_none_are_refused_by_name(store):
    fields: dict[str, Any] = {"title": BAD_TITLES, "search": BAD_SEARCHES}
    for name, cases in fields.items():
        for value, word in cases:
            with pytest.raises(BadInput, match=word) as refused:
                Queue("mails", TASK, store, **{name: value})
            assert refused.value.field == name
    assert store.listing("mails") == Listing()
    with pytest.raises(BadInput, match=r"masked field: 'guest\.note'"):
        Workload("w", task_lifecycle, personal_fields=frozenset({"Note"}), search_fields=("guest.note",))


def test_a_program_that_declares_nothing_leaves_what_is_stored(store):
    Queue("mails", TASK, store, **LISTED)
    stored = Listing(LISTED["title"], LISTED["search"])
    Queue("mails", TASK, store)
    assert store.listing("mails") == stored
    Queue("mails", TASK, store, title="{to}")
    assert store.listing("mails") == stored._replace(title="{to}")
    Queue("mails", TASK, store, title="", search=())
    assert store.listing("mails") == Listing()


TITLES = {
    "{to} · {order.number}": "Ada Lovelace · 42",
    "Mail to {to}": "Mail to Ada Lovelace",
    "{to} · {missing}": "Ada Lovelace",
    "{missing} – {order}": "",
    "{{{to}}}": "{Ada Lovelace}",
    "": "",
}


def test_a_title_is_filled_with_fields_in_one_line_and_not_too_long():
    for title, shown in TITLES.items():
        assert shown_title(title_of(title, ADA)) == shown
        assert title_of(title, ["Ada"]) == title_of(title, None) == ""
    assert shown_title("a\n b\t c ·") == "a b c"
    assert shown_title("x" * 80) == "x" * 80
    cut = shown_title("x" * 81)
    assert (len(cut), cut[-1]) == (MAX_TITLE, "…")


def test_a_masked_field_is_left_out_of_a_title(store):
    queue = Queue("mails", TASK, store, title="{to} {email} {note}")
    queue.enqueue({"to": "Ada", "email": "ada@example.com", "note": "call ada@example.com"})
    [job] = queue.jobs().jobs
    masked = Masking().job(job)
    assert MASK in masked.payload["email"]
    assert MASK in masked.payload["note"]
    assert titles_in(store, "mails")(masked) == "Ada"


def test_a_job_within_a_transaction_of_the_callers_is_found(tmp_path):
    path = tmp_path / "k.db"
    with closing(SqliteStore(path)) as store, closing(sqlite3.connect(path)) as own:
        queue = Queue("mails", TASK, store, **LISTED)
        own.execute("BEGIN IMMEDIATE")
        outcome = queue.enqueue(ADA, within=own)
        own.commit()
        assert found(queue, "lovelace") == [outcome.id]


def test_a_job_of_the_sql_function_is_found(postgres_url, fresh_schema):
    schema = fresh_schema()
    with (
        closing(PostgresStore(postgres_url, schema=schema, migrate=True, listen=False)) as store,
        psycopg.connect(postgres_url, autocommit=True) as connection,
    ):
        queue = Queue("mails", TASK, store, **LISTED)
        sql = f"SELECT job_id::text FROM {schema}.enqueue('mails', %s)"
        [(job_id,)] = connection.execute(sql, ('{"to": "İrem Öz"}',)).fetchall()
        assert found(queue, "irem") == found(queue, "ÖZ") == [job_id]


@pytest.fixture
def stores(request: pytest.FixtureRequest) -> Iterator[Callable[[str], NamedStore]]:
    with ExitStack() as stack:
        yield lambda kind: NamedStore(stack.enter_context(opened(kind, request)), kind)


@pytest.mark.parametrize(
    ("source", "target"), [("sqlite-file", "postgres"), ("postgres", "redis"), ("redis", "sqlite-file")]
)
def test_titles_and_searches_are_the_same_in_a_copy(stores, source, target):
    there, here = stores(source), stores(target)
    queue = Queue("mails", TASK, there.store, **LISTED)
    job_id = queue.enqueue(ADA).id
    copy_queues(there, here, {"mails": TASK})
    copied = Queue("mails", TASK, here.store)
    assert here.store.listing("mails") == there.store.listing("mails")
    assert found(copied, "lovelace") == found(copied, "42") == [job_id]


def test_titles_and_searches_are_the_same_in_a_restored_backup(tmp_path, postgres_server):
    url, here = postgres_server.create_database("listed"), tmp_path / "k.db"  # in no other use
    for make, dump in (
        (lambda: SqliteStore(here), SqliteDump(here)),
        (lambda: PostgresStore(url, migrate=True, listen=False), PostgresDump(url)),
    ):
        check_restored(make, dump, tmp_path / dump.kind)


def check_restored(make: Callable[[], Any], dump: Dump, folder: Path) -> None:
    folder.mkdir()
    with closing(make()) as store:
        queue = Queue("mails", TASK, store, **LISTED)
        job_id = queue.enqueue(ADA).id
    manifest = dump.write(folder, lambda _: None)
    with closing(make()) as store:
        Queue("mails", TASK, store).enqueue({"to": "Later"})
    dump.restore(folder, manifest, lambda _: None, lambda _: None, replace=True)
    with closing(make()) as store:
        restored = Queue("mails", TASK, store)
        assert (found(restored, "ada"), found(restored, "later")) == ([job_id], [])
        assert store.listing("mails").title == LISTED["title"]
        later = restored.enqueue({"to": "Later"}).id
        assert found(restored, "later") == [later]
