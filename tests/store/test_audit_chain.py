"""The audit log is a chain: what is deleted or changed is noticed, on both databases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import count
from typing import Any

import pytest

from kesin.engine.access.audit_verification import verify_audit_log
from kesin.store.audit_log import AuditChainBroken, AuditHead, AuditLine
from kesin.store.directory import Directory
from kesin.store.errors import GuardRefused
from kesin.store.sql.store import SqlStore
from kesin.store.transfer.copy_directory import copy_directory
from tests.store.conftest import opened

KINDS = ("sqlite-file", "postgres")


def line(at: int = 1, **columns: Any) -> AuditLine:
    details = json.dumps({"n": at})
    return AuditLine(**{"id": 0, "at": at, "actor": "a", "action": "x", "allowed": True,
                        "details": details, **columns})  # fmt: skip


class Undone(Exception):
    """Rolls a transaction back."""


class Log:
    """An audit log of ten lines, and ways past its triggers."""

    def __init__(self, store: Any, lines: int = 10) -> None:
        self.store: SqlStore = store
        self.directory = Directory(store)
        for at in range(1, lines + 1):
            self.directory.add_audit(line(at))

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        table = self.store.dialect.table
        return self.store._rows(sql.format(audit=table("audit"), head=table("audit_head")), {})

    def without_guard(self, sql: str) -> None:
        """As somebody who owns the database can."""
        if self.store.dialect.name == "postgres":
            for name in ("audit", "audit_head"):
                self.run(f"ALTER TABLE {self.store.dialect.table(name)} DISABLE TRIGGER USER")
        else:
            names = [row[0] for row in self.run(
                "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'audit%'"
            )]  # fmt: skip
            for name in names:
                self.run(f"DROP TRIGGER {name}")
        self.run(sql)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """What is done inside is rolled back."""
        with suppress(Undone), self.store.transaction():
            yield
            raise Undone

    def ids(self) -> list[int]:
        return [row[0] for row in self.run("SELECT id FROM {audit} ORDER BY id")]

    def verify(self, known: AuditHead | None = None) -> Any:
        return verify_audit_log(self.directory, known)


def emptied(store: Any) -> Any:
    """The store without its log, whose triggers may be off."""
    tables = [store.dialect.table(name) for name in ("audit", "audit_head")]
    with store.transaction() as connection:
        connection.execute("SET LOCAL session_replication_role = replica")
        connection.execute(f"TRUNCATE {', '.join(tables)}")
        for table in tables:
            connection.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
    return store


@pytest.fixture(scope="module")
def open_schema(request: pytest.FixtureRequest) -> Iterator[Callable[[int], Any]]:
    """The schema of that number, empty: to make one takes a tenth of a second."""
    with ExitStack() as stack:
        made = cache(lambda _: stack.enter_context(opened("postgres", request)))
        yield lambda number: emptied(made(number))


@pytest.fixture(params=KINDS)
def open_empty(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    if request.param == "postgres":
        schemas = map(request.getfixturevalue("open_schema"), count())
        yield lambda: next(schemas)
        return
    with ExitStack() as stack:
        yield lambda: stack.enter_context(opened(request.param, request))


@pytest.fixture
def log(open_empty: Callable[[], Any]) -> Log:
    return Log(open_empty())


def test_an_untouched_log_is_whole(log: Log, open_empty: Callable[[], Any]):
    result = log.verify()
    assert (result.lines, result.missing, result.problems) == (10, 0, [])
    assert result.head == log.directory.audit_head()
    assert result.head.seq == 10
    other = Log(open_empty(), 0)
    assert other.verify().problems == []
    for at in range(12):
        other.directory.add_audit(line(at, actor="another"))
    assert other.verify().problems == []
    assert "differs from the one" in other.verify(log.directory.audit_head()).problems[0], "a backup notices"
    assert log.verify(log.directory.audit_head()).problems == []


def test_deleted_lines_are_counted_and_the_first_gap_is_named(log: Log):
    ids = log.ids()
    for deleted, missing, first in (
        ((3,), 1, 4),
        ((0, 1), 2, 2),
        ((8, 9), 2, 7),
        ((2, 3, 6), 3, 4),
        (range(10), 10, None),
    ):
        with log.undone():
            which = ", ".join(str(ids[at]) for at in deleted)
            log.run(f"DELETE FROM {{audit}} WHERE id IN ({which})")
            result = log.verify()
            assert result.problems
            assert result.missing == missing
            assert result.first_broken == (None if first is None else ids[first])


def test_a_changed_line_is_named(log: Log):
    changed = log.ids()[4]
    for column in ("actor", "action", "details", "address", "target"):
        with log.undone():
            log.without_guard(f"UPDATE {{audit}} SET {column} = 'other' WHERE id = {changed}")
            result = log.verify()
            assert (result.first_broken, result.missing, len(result.problems)) == (changed, 0, 1)


def test_a_head_that_is_put_back_with_the_lines_after_it_is_noticed_by_a_backup(log: Log):
    known = log.directory.audit_head()
    [(hash_of_7,)] = log.run("SELECT hash FROM {audit} WHERE seq = 7")
    log.without_guard(f"UPDATE {{head}} SET seq = 7, hash = '{hash_of_7}'")
    log.run("DELETE FROM {audit} WHERE seq > 7")
    assert log.verify().problems == []  # a chain of its own
    result = log.verify(known)
    assert (result.missing, len(result.problems)) == (3, 1)


GUARDED = {
    "a line is changed": "UPDATE {audit} SET actor = 'other'",
    "a line outside the chain": "INSERT INTO {audit} (at, actor, action, allowed) VALUES (1, 'a', 'x', 1)",
    "a number that is taken": "INSERT INTO {audit} (at, actor, action, allowed, seq, hash)"
    " VALUES (1, 'a', 'x', 1, 10, 'x')",
    "the head goes back": "UPDATE {head} SET seq = seq - 1",
    "another hash": "UPDATE {head} SET hash = 'x'",
    "the head is deleted": "DELETE FROM {head}",
}


def test_the_database_refuses_what_breaks_the_chain(log: Log):
    in_sqlite = {"another head": "INSERT OR REPLACE INTO audit_head VALUES (1, 0, 'x')"}
    for name, sql in (GUARDED | (in_sqlite if log.store.dialect.name == "sqlite" else {})).items():
        with pytest.raises(GuardRefused, match="only goes on" if name in in_sqlite else None):
            log.run(sql)
    assert log.verify().problems == []


# Pruning


def test_pruning_leaves_an_anchor_from_which_the_chain_goes_on(log: Log):
    before = log.directory.audit_head()
    assert log.directory.prune_audit(4, now=20) == 3
    assert log.directory.prune_audit(4, now=20) == 0
    assert [kept.at for kept in log.directory.audit()] == [20, *range(10, 3, -1)]
    anchor = json.loads(log.directory.audit()[0].details or "")
    assert (anchor["seq"], anchor["lines"], anchor["before"]) == (3, 3, 4)
    result = log.verify(before)
    assert (result.lines, result.pruned_to, result.problems) == (8, 3, [])
    assert log.directory.prune_audit(30, now=40) == 8  # the anchor of before too
    result = log.verify(before)
    assert (result.lines, result.pruned_to, result.problems) == (1, 11, [])
    log.directory.add_audit(line(50))
    assert log.verify().problems == []


def test_lines_that_go_missing_around_a_pruning_are_counted(log: Log):
    """One of a clock that went back is pruned with its neighbours."""
    log.directory.add_audit(line(1))
    assert log.directory.prune_audit(4, now=20) == 3
    assert log.verify().problems == []
    log.run(f"DELETE FROM {{audit}} WHERE id = {log.ids()[0]}")
    result = log.verify()
    assert (result.missing, result.first_broken) == (1, log.ids()[0])
    with pytest.raises(AuditChainBroken, match="missing after number 3"):
        log.directory.prune_audit(6, now=20)
    assert len(log.ids()) == 8


# Lines from before the chain


@pytest.fixture
def old_log(open_empty: Callable[[], Any]) -> Log:
    """A log with five lines from before the migration."""
    log = Log(open_empty(), 0)
    for at in range(1, 6):
        log.run("INSERT INTO {audit} (at, actor, action, allowed)"
                f" VALUES ({at}, 'old', 'x', 1)")  # fmt: skip
    return log


def test_one_anchor_covers_the_lines_from_before_the_chain(old_log: Log):
    assert old_log.verify().problems == []  # no chain yet
    old_log.directory.add_audit(line(7))
    result = old_log.verify()
    assert (result.older, result.lines, result.problems) == (5, 2, [])
    actions = [each.action for each in old_log.directory.audit(limit=2)]
    assert actions == ["x", "audit.begin"]
    with old_log.undone():
        old_log.run(f"DELETE FROM {{audit}} WHERE id = {old_log.ids()[2]}")
        result = old_log.verify()
        assert (result.missing, len(result.problems)) == (1, 1)
        with pytest.raises(AuditChainBroken, match="before the chain were changed"):
            old_log.directory.prune_audit(3, now=20)
    for before, pruned, older in ((3, 2, 3), (5, 2, 1), (8, 3, 0)):
        assert old_log.directory.prune_audit(before, now=20) == pruned
        result = old_log.verify()
        assert (result.older, result.problems) == (older, [])


def test_a_changed_line_from_before_the_chain_is_noticed(old_log: Log):
    old_log.directory.add_audit(line(7))
    old_log.without_guard("UPDATE {audit} SET actor = 'other' WHERE at = 3")
    result = old_log.verify()
    assert "one was changed" in result.problems[0]
    assert result.first_broken == old_log.ids()[0]


# Several writers, and copies


def test_writers_of_several_processes_make_one_chain_without_a_gap(log: Log):
    def write(writer: int) -> None:
        for at in range(10):
            log.directory.add_audit(line(at, actor=f"w{writer}"))

    with suppress(Undone), log.directory.transaction():
        log.directory.add_audit(line(11))
        raise Undone
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    result = log.verify()
    assert (result.lines, result.problems) == (50, [])


@pytest.mark.starts  # copies to each kind of store
def test_a_copy_has_the_chain_and_its_gaps(log: Log, request: pytest.FixtureRequest):
    log.directory.prune_audit(3, now=20)
    head = log.directory.audit_head()
    for kind in KINDS:
        with opened(kind, request) as target:
            assert copy_directory(log.store, target)["audit"] == 9
            copy = Directory(target)
            assert copy.audit_head() == head
            copy.add_audit(line(30))
            assert verify_audit_log(copy, head).problems == []
    log.run(f"DELETE FROM {{audit}} WHERE id IN ({log.ids()[3]}, {log.ids()[5]})")
    with opened(KINDS[0], request) as target:
        copy_directory(log.store, target)
        assert verify_audit_log(Directory(target)).missing == 2


def test_a_copy_of_a_log_without_a_chain_begins_one(old_log: Log, request: pytest.FixtureRequest):
    with opened(KINDS[0], request) as target:
        assert copy_directory(old_log.store, target)["audit"] == 5
        Directory(target).add_audit(line(9))
        result = verify_audit_log(Directory(target))
        assert (result.older, result.lines, result.problems) == (5, 2, [])
