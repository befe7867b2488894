"""The small tables: each statement, on both databases."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import pytest

from kesin.store import audit_log
from kesin.store.audit_log import AuditLine
from kesin.store.directory import ApiKey, Directory, MetadataEntry, Secret, Session, Site, User
from kesin.store.errors import StoreError
from kesin.store.redis.store import RedisStore
from tests.store.conftest import SQL_STORES, opened

TABLES = ("site", "person", "session", "api_key", "audit", "secret", "fact")
SITE = Site("north", "North", "script", "Europe/Istanbul", "TRY", "{}", 1, 1)
AYSE = User("ayse", "hash", "operator", False, ("north",), ("oci", "pdf"), 1, 1)
SESSION = Session("mark", "ayse", 10, 10, 100, "::1")
KEY = ApiKey("abcd2345", "mark", "script", ("oci:script", "read"), "north", 5, "cli:me")
UNSTORABLE = ("ay\0se", "ay\ud800se")


@pytest.fixture(scope="module", params=SQL_STORES)
def sql_store(request: pytest.FixtureRequest) -> Iterator[Any]:
    with opened(request.param, request) as store:
        yield store


@pytest.fixture
def directory(sql_store: Any) -> Iterator[Directory]:
    yield Directory(sql_store)
    for table in TABLES:
        sql_store._rows(f"DELETE FROM {sql_store.dialect.table(table)}", {})


def line(**details: Any) -> AuditLine:
    return AuditLine(**{"id": 0, "at": 1, "actor": "a", "action": "x", "allowed": True, **details})


def test_a_store_of_another_kind_has_no_directory():
    with (
        closing(RedisStore("redis://127.0.0.1:1", listen=False)) as other,
        pytest.raises(StoreError, match="SQLite or PostgreSQL"),
    ):
        Directory(other)


# Sites


def test_sites_are_added_once_changed_and_listed_by_their_ids_byte_by_byte(directory):
    assert directory.add_site(SITE)
    assert not directory.add_site(SITE._replace(name="Other"))
    assert (directory.site("north"), directory.site("south")) == (SITE, None)
    changed = Site("north", "N", "api", "UTC", "EUR", '{"a":1}', 99, 2)
    assert directory.update_site(changed)
    assert not directory.update_site(changed._replace(id="south"))
    with directory.transaction():
        assert directory.lock_site("north") == changed._replace(created_at=1), "it keeps when it was created"
        assert directory.lock_site("south") is None
    for site_id in ("b", "a", "B", "a-1"):
        directory.add_site(SITE._replace(id=site_id))
    assert [site.id for site in directory.sites()] == ["B", "a", "a-1", "b", "north"]


# Users


def test_users_are_added_once_changed_and_read_as_they_are(directory):
    users = [
        AYSE,
        AYSE._replace(name="b", all_sites=True, sites=(), queues=(), disabled_at=7),
        AYSE._replace(name="c", sites=('a"b', "ş"), role="admin"),
    ]
    for user in users:
        assert directory.add_user(user)
        assert not directory.add_user(user._replace(role="viewer"))
        assert directory.user(user.name) == user
    assert directory.users() == users
    assert directory.user("Ayse") is None
    changed = User("ayse", "new", "viewer", True, (), ("pdf",), 99, 2, 3)
    assert directory.update_user(changed)
    assert not directory.update_user(changed._replace(name="can"))
    with directory.transaction():
        assert directory.lock_user("ayse") == changed._replace(created_at=1)
        assert directory.lock_user("can") is None


# Sessions


def test_a_session_is_read_by_its_hash_until_it_is_ended(directory):
    directory.add_session(SESSION)
    directory.touch_session("mark", 50)
    assert directory.session("mark") == SESSION._replace(used_at=50)
    assert directory.session("other") is None
    assert [directory.end_session("mark") for _ in range(2)] == [True, False]
    assert directory.session("mark") is None


def test_all_sessions_of_a_user_end_and_those_that_are_over_or_idle(directory):
    directory.add_session(SESSION._replace(token_hash="2", created_at=20))
    directory.add_session(SESSION._replace(token_hash="1"))
    for token, expires_at, used_at in (("over", 50, 40), ("idle", 99, 30), ("live", 51, 31)):
        directory.add_session(SESSION._replace(token_hash=token, person="can", expires_at=expires_at, used_at=used_at))
    assert [session.token_hash for session in directory.sessions_of("ayse")] == ["1", "2"]
    assert directory.end_sessions_of("ayse") == 2
    assert directory.sessions_of("ayse") == []
    assert directory.end_old_sessions(50, 30) == 2
    assert [session.token_hash for session in directory.sessions_of("can")] == ["live"]


# Keys


def test_keys_are_added_once_and_found_with_their_last_use_and_first_revocation(directory):
    for key in (KEY, KEY._replace(id="other234", site=None, expires_at=9, used_at=8)):
        assert directory.add_key(key)
        assert not directory.add_key(key._replace(name="other"))
        assert directory.api_key(key.id) == key
    assert len(directory.api_keys()) == 2
    assert directory.api_key("nothing2") is None
    directory.touch_key(KEY.id, 40)
    assert directory.revoke_key(KEY.id, 50)
    assert not directory.revoke_key(KEY.id, 60)
    assert not directory.revoke_key("nothing2", 60)
    assert directory.api_key(KEY.id) == KEY._replace(used_at=40, revoked_at=50)


# The audit log


def test_an_audit_line_comes_back_as_it_was_written(directory):
    whole = line(
        allowed=False, queue="oci", site="north", target="t", details="{}", request_id="r",
        address="::1",
    )  # fmt: skip
    directory.add_audit(whole)
    [row] = directory.audit()
    assert row._replace(id=0) == whole
    assert row.id > 0


def test_the_newest_lines_come_first_page_by_page_and_are_searched_by_each_field(directory):
    fields = ("actor", "action", "queue", "site", "target")
    for at, field in enumerate(fields):
        directory.add_audit(line(at=at, **{field: "wanted"}))
    first = directory.audit(limit=2)
    rest = directory.audit(limit=9, before=first[-1].id)
    assert [row.at for row in (*first, *rest)] == [4, 3, 2, 1, 0]
    for at, field in enumerate(fields):
        assert [row.at for row in directory.audit(**{field: "wanted"})] == [at]
        assert directory.audit(**{field: "nothing"}) == []


def test_the_audit_log_is_searched_by_parts_of_words(directory):
    for at, text in enumerate(("user:AYSE", "user:fatma", "50%_off!")):
        directory.add_audit(line(at=at, actor=text, action=text, site=text, target=text))
    expected = {
        "ayse": [0], "USER:": [1, 0], "%_o": [2], "f!": [2], "_": [2], "%": [2], "nobody": [],
        "\x00": [], "user:%": [],
    }  # fmt: skip
    for field in ("actor", "action", "site", "target"):
        for part, rows in expected.items():
            lines = directory.search_audit(**{field: part}).lines
            assert [row.at for row in lines] == rows, (field, part)


def test_a_search_looks_through_so_many_lines_and_goes_on(directory, monkeypatch):
    monkeypatch.setattr(audit_log, "MAX_SEARCHED_LINES", 4)
    for at in range(10):
        directory.add_audit(line(at=at, actor="rare" if at in {0, 1, 8} else "usual"))
    times, before, searches = [], audit_log.LAST_AUDIT_ID, 0
    while before is not None:
        lines, before = directory.search_audit(actor="rar", before=before, limit=1)
        times += [row.at for row in lines]
        searches += 1
    assert (times, searches) == ([8, 1, 0], 4)


# Sealed secrets


def test_a_secret_is_put_replaced_and_dropped(directory):
    first = Secret("oci/north", "sealed", 1, "a")
    directory.put_secret(first)
    assert directory.secret("oci/north") == first
    second = Secret("oci/north", "other", 2, "b")
    directory.put_secret(second)
    assert directory.secrets() == [second]
    assert directory.delete_secret("oci/north")
    assert not directory.delete_secret("oci/north")
    assert directory.secret("oci/north") is None


def test_a_secret_that_changed_meanwhile_is_not_sealed_anew(directory):
    directory.put_secret(Secret("s", "now", 1, "a"))
    assert not directory.reseal("s", "before", "anew")
    assert directory.reseal("s", "now", "anew")
    assert directory.secret("s") == Secret("s", "anew", 1, "a")


# Metadata


ENTRY = MetadataEntry("oci", "north", "breaker", '{"open":false}', 1)


def test_metadata_is_put_replaced_and_dropped(directory):
    directory.put_metadata(ENTRY)
    assert directory.metadata_entry("oci", "north", "breaker") == ENTRY
    directory.put_metadata(ENTRY._replace(value="2", changed_at=2))
    assert directory.metadata_entries("oci") == [ENTRY._replace(value="2", changed_at=2)]
    assert directory.delete_metadata("oci", "north", "breaker")
    assert not directory.delete_metadata("oci", "north", "breaker")
    assert directory.metadata_entry("oci", "north", "breaker") is None


def test_metadata_differs_by_workload_site_and_name(directory):
    for number, (workload, site, name) in enumerate(itertools.product(("oci", "pdf"), "ba", "yx")):
        directory.put_metadata(MetadataEntry(workload, site, name, str(number), number))
    directory.put_metadata(MetadataEntry("oci", "", "x", "9", 9))

    def values(**which: str) -> list[str]:
        return [entry.value for entry in directory.metadata_entries("oci", **which)]

    assert values() == ["9", "3", "2", "1", "0"]
    assert values(site="a") == ["3", "2"]
    assert values(site="") == ["9"]
    assert values(name="x") == ["9", "3", "1"]
    assert values(site="b", name="y") == ["0"]
    assert directory.metadata_entries("optiplan") == []


def test_locked_metadata_is_created_once(directory):
    with directory.transaction():
        assert directory.lock_metadata("oci", "", "seen", 5) == MetadataEntry("oci", "", "seen", "null", 5)
        directory.put_metadata(MetadataEntry("oci", "", "seen", "1", 6))
    with directory.transaction():
        assert directory.lock_metadata("oci", "", "seen", 7) == MetadataEntry("oci", "", "seen", "1", 6)
    assert directory.metadata_entries("oci") == [MetadataEntry("oci", "", "seen", "1", 6)]


def test_locked_metadata_is_waited_for(directory):
    def count(_: int) -> None:
        with directory.transaction():
            held = directory.lock_metadata("oci", "north", "n", 1)
            more = str(int(held.value.replace("null", "0")) + 1)
            directory.put_metadata(held._replace(value=more))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(40)))
    assert directory.metadata_entry("oci", "north", "n") == MetadataEntry("oci", "north", "n", "40", 1)


# Together


def test_what_happens_in_a_transaction_is_kept_together_or_not_at_all(directory):
    with suppress(ZeroDivisionError), directory.transaction():
        directory.add_site(SITE)
        directory.add_audit(line())
        assert (len(directory.sites()), len(directory.audit())) == (1, 1)
        _ = 1 / 0
    assert (directory.sites(), directory.audit()) == ([], [])


def test_text_that_no_database_can_store_is_in_no_row(directory):
    directory.add_user(AYSE)
    for name in UNSTORABLE:
        assert directory.user(name) is None
        assert directory.site(name) is None
        assert directory.api_key(name) is None
        assert directory.session(name) is None
        assert directory.secret(name) is None
        assert directory.metadata_entries(name) == []
        assert directory.metadata_entry("oci", "", name) is None
        assert directory.audit(actor=name) == []
