import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.vault import Rotation, UnopenedSecret, Vault, unopened_secrets
from kesin.foundation.clock import ManualClock
from kesin.foundation.encryption import KeyRing, NoSecretKeys, SecretAltered, SecretKeyMissing, sealing_key_id
from kesin.foundation.permissions import Actor, system_actor
from kesin.foundation.problems import Forbidden, Invalid, NotFound, Problem
from kesin.store.audit_log import AuditLine
from kesin.store.contract import Store
from kesin.store.directory import Directory, Secret
from tests.store.conftest import opened

CANARY = "canary-7f3a"
OLD = KeyRing({"old": b"o" * 32})
NEW = KeyRing({"new": b"n" * 32})
BOTH = KeyRing({"new": b"n" * 32, "old": b"o" * 32})
ADMIN = system_actor("cli:ayse")
OPERATOR = Actor("user:can", frozenset({"operator"}), all_sites=True)


@pytest.fixture(scope="module", params=["sqlite-file", "postgres"])
def opened_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with opened(request.param, request) as store:
        yield store


@pytest.fixture
def store(opened_store: Store) -> Store:
    """A store without secrets. Audit lines cannot be removed, so tests read the newest."""
    directory = Directory(opened_store)
    for secret in directory.secrets():
        directory.delete_secret(secret.name)
    return opened_store


@pytest.fixture
def directory(store: Store) -> Directory:
    return Directory(store)


@pytest.fixture
def accounts(directory: Directory, clock: ManualClock) -> Accounts:
    return Accounts(directory, clock)


@pytest.fixture
def audited(directory: Directory) -> Callable[[], list[tuple]]:
    """The audit lines since the test began, oldest first."""
    last = directory.audit(limit=1)
    start = last[0].id if last else 0

    def read() -> list[tuple]:
        lines = [line for line in directory.audit(limit=100) if line.id > start]
        assert CANARY not in repr(lines)
        return [
            (line.actor, line.action, line.allowed, line.target, line.details and json.loads(line.details))
            for line in reversed(lines)
        ]

    return read


class BusyDirectory(Directory):
    """A directory in which something happens just before a secret is resealed."""

    def __init__(self, store: Store, interrupt: Callable[[], object]) -> None:
        super().__init__(store)
        self.interrupt = interrupt

    def reseal(self, name: str, before: str, sealed: str) -> bool:
        self.interrupt()
        return super().reseal(name, before, sealed)


class UnauditedDirectory(Directory):
    """A directory that cannot write audit lines."""

    def add_audit(self, line: AuditLine) -> None:
        raise OSError("the disk is full")


def test_the_last_value_is_read(accounts, directory):
    vault = Vault(accounts, OLD)
    vault.put(ADMIN, "ads/token", "first")
    vault.put(ADMIN, "ads/token", CANARY)
    assert vault.get("ads/token") == CANARY
    assert CANARY not in repr(directory.secrets())
    directory.put_secret(directory.secret("ads/token")._replace(name="moved"))
    with pytest.raises(SecretAltered):  # its row was moved to another name
        vault.get("moved")


def test_secrets_that_no_key_opens_are_named(accounts, directory):
    Vault(accounts, OLD).put(ADMIN, "b", CANARY)
    Vault(accounts, NEW).put(ADMIN, "a", CANARY)
    directory.put_secret(Secret("plain", CANARY, 0, "sql"))  # written by hand
    assert unopened_secrets(directory, NEW) == ["b", "plain"]
    assert unopened_secrets(directory, BOTH) == ["plain"]
    assert unopened_secrets(directory, None) == ["a", "b", "plain"]


def test_a_dropped_secret_is_not_found(accounts):
    Vault(accounts, OLD).put(ADMIN, "token", CANARY)
    Vault(accounts, None).drop(ADMIN, "token")
    with pytest.raises(NotFound, match="there is no secret 'token'"):
        Vault(accounts, OLD).get("token")
    with pytest.raises(NotFound):
        Vault(accounts, OLD).drop(ADMIN, "token")


def test_without_keys_the_error_says_what_to_set(accounts):
    vault = Vault(accounts, None)
    for call in (lambda: vault.put(ADMIN, "token", CANARY), lambda: vault.get("token"), lambda: vault.rotate(ADMIN)):
        with pytest.raises(NoSecretKeys, match="set KESIN_SECRET_KEYS to the output of `kesin secrets new-key`"):
            call()


def test_a_bad_name_is_refused_and_not_repeated_and_so_is_an_empty_value(accounts, directory):
    vault = Vault(accounts, OLD)
    for name in ("", "-x", "a b", "a\nb", "a\x00", "ş", "a" * 129, "\ud800"):
        for call in (partial(vault.put, ADMIN, value=CANARY), vault.get, partial(vault.drop, ADMIN)):
            with pytest.raises(Invalid, match="a secret's name must have up to 128") as caught:
                call(name)
            assert repr(name) not in str(caught.value)
    with pytest.raises(Invalid):
        vault.put(ADMIN, "token", "")
    assert directory.secrets() == []


def test_other_actors_than_admins_are_refused_with_an_audit_line(accounts, directory, audited):
    vault = Vault(accounts, OLD)
    vault.put(ADMIN, "token", CANARY)
    for call in (
        lambda: vault.put(OPERATOR, "token", "mine"),
        lambda: vault.drop(OPERATOR, "token"),
        lambda: vault.rotate(OPERATOR),
    ):
        with pytest.raises(Forbidden):
            call()
        accounts.write_counted_refusals(unfinished=True)  # the next one is a line of its own
    assert vault.get("token") == CANARY
    assert audited()[1:4] == [
        ("user:can", "secret.put", False, "token", None),
        ("user:can", "secret.drop", False, "token", None),
        ("user:can", "secret.rotate", False, None, None),
    ]


def test_every_action_has_an_audit_line_without_the_value(accounts, audited):
    Vault(accounts, OLD).put(ADMIN, "token", CANARY)
    vault = Vault(accounts, BOTH)
    vault.rotate(ADMIN)
    vault.drop(ADMIN, "token")
    counts = {"key": "new", "resealed": 1, "current": 0, "busy": 0, "unopened": 0}
    assert audited() == [
        ("cli:ayse", "secret.put", True, "token", {"key": "old"}),
        ("cli:ayse", "secret.reseal", True, "token", {"key": "new", "before": "old"}),
        ("cli:ayse", "secret.rotate", True, None, counts),
        ("cli:ayse", "secret.drop", True, "token", None),
    ]


def test_a_read_has_one_audit_line_for_each_value(accounts, audited):
    vault = Vault(accounts, OLD)
    for value in (CANARY, CANARY):
        vault.put(ADMIN, "token", value)
        assert [vault.get("token") for _ in range(3)] == [CANARY] * 3
    reading = ("worker", "secret.get", True, "token", {"key": "old"})
    putting = ("cli:ayse", "secret.put", True, "token", {"key": "old"})
    assert audited() == [putting, reading, putting, reading]
    without_its_key = Vault(accounts, NEW)
    for _ in range(2):
        with pytest.raises(SecretKeyMissing):
            without_its_key.get("token")
    failed = {"key": "old", "problem": "secret_key_missing"}
    assert audited()[4:] == [("worker", "secret.get", True, "token", failed)]


def test_a_change_whose_audit_line_fails_is_not_made(store, accounts, directory, clock):
    Vault(accounts, OLD).put(ADMIN, "token", CANARY)
    before = directory.secrets()
    vault = Vault(Accounts(UnauditedDirectory(store), clock), BOTH)
    for call in (
        lambda: vault.put(ADMIN, "token", "other"),
        lambda: vault.drop(ADMIN, "token"),
        lambda: vault.rotate(ADMIN),
    ):
        with pytest.raises(OSError, match="full"):
            call()
    assert directory.secrets() == before


# Rotation


def test_rotation_reseals_secrets_of_other_keys_and_nothing_else(accounts, directory, clock):
    Vault(accounts, OLD).put(ADMIN, "a", f"{CANARY}-a")
    Vault(accounts, NEW).put(ADMIN, "b", f"{CANARY}-b")
    before = {secret.name: secret for secret in directory.secrets()}
    clock.advance(60)
    assert Vault(accounts, BOTH).rotate(ADMIN) == Rotation(1, 1, 0, ())
    after = {secret.name: secret for secret in directory.secrets()}
    assert after["b"] == before["b"]
    assert after["a"] == before["a"]._replace(sealed=after["a"].sealed)  # the value is unchanged
    vault = Vault(accounts, NEW)
    assert [vault.get(name) for name in "ab"] == [f"{CANARY}-a", f"{CANARY}-b"]
    sealed = directory.secrets()
    assert Vault(accounts, BOTH).rotate(ADMIN) == Rotation(0, 2, 0, ())
    assert directory.secrets() == sealed, "a second rotation changes nothing"


def test_rotation_reports_secrets_that_do_not_open_and_reseals_the_rest(accounts, directory):
    Vault(accounts, KeyRing({"lost": b"l" * 32})).put(ADMIN, "a", CANARY)
    Vault(accounts, KeyRing({"new": b"x" * 32})).put(ADMIN, "b", CANARY)
    Vault(accounts, OLD).put(ADMIN, "c", CANARY)
    directory.put_secret(directory.secret("c")._replace(name="d", sealed="plain"))
    before = [directory.secret(name) for name in "abd"]
    rotation = Vault(accounts, BOTH).rotate(ADMIN)
    assert rotation == Rotation(
        1,
        0,
        0,
        (
            UnopenedSecret("a", "lost", "secret_key_missing"),
            UnopenedSecret("b", "new", "secret_altered"),
            UnopenedSecret("d", None, "secret_altered"),
        ),
    )
    assert not rotation.complete
    assert [directory.secret(name) for name in "abd"] == before
    assert Vault(accounts, NEW).get("c") == CANARY


def test_a_value_put_during_rotation_is_kept(store, accounts, clock):
    old = Vault(accounts, OLD)
    old.put(ADMIN, "token", "before")
    values = iter([CANARY])

    def put_once() -> None:
        for value in values:
            old.put(ADMIN, "token", value)

    interrupted = Accounts(BusyDirectory(store, put_once), clock)
    assert Vault(interrupted, BOTH).rotate(ADMIN) == Rotation(1, 0, 0, ())
    assert Vault(accounts, NEW).get("token") == CANARY


def test_a_secret_that_changes_all_the_time_or_under_an_unknown_key_during_rotation_is_reported(store, accounts, clock):
    old = Vault(accounts, OLD)
    old.put(ADMIN, "token", CANARY)
    interrupted = Accounts(BusyDirectory(store, lambda: old.put(ADMIN, "token", CANARY)), clock)
    rotation = Vault(interrupted, BOTH).rotate(ADMIN)
    assert (rotation, rotation.complete) == (Rotation(0, 0, 1, ()), False)
    assert old.get("token") == CANARY
    newer = Vault(accounts, KeyRing({"newer": b"w" * 32}))  # of another process
    interrupted = Accounts(BusyDirectory(store, lambda: newer.put(ADMIN, "token", CANARY)), clock)
    rotation = Vault(interrupted, BOTH).rotate(ADMIN)
    assert rotation.unopened == (UnopenedSecret("token", "newer", "secret_key_missing"),)
    assert newer.get("token") == CANARY


def test_a_secret_dropped_during_rotation_stays_dropped(store, accounts, directory, clock):
    old = Vault(accounts, OLD)
    old.put(ADMIN, "token", CANARY)
    interrupted = Accounts(BusyDirectory(store, lambda: old.drop(ADMIN, "token")), clock)
    assert Vault(interrupted, BOTH).rotate(ADMIN) == Rotation(0, 0, 0, ())
    assert directory.secrets() == []


def test_concurrent_rotations_reseal_each_secret_once(accounts, directory):
    for number in range(12):
        Vault(accounts, OLD).put(ADMIN, f"s{number}", f"{CANARY}-{number}")
    barrier = Barrier(2, timeout=20)

    def rotate() -> Rotation:
        barrier.wait()
        return Vault(accounts, BOTH).rotate(ADMIN)

    with ThreadPoolExecutor(2) as pool:
        first, second = [future.result() for future in [pool.submit(rotate) for _ in range(2)]]
    assert first.resealed + second.resealed == 12
    assert first.resealed + first.current == second.resealed + second.current == 12
    assert {sealing_key_id(secret.sealed) for secret in directory.secrets()} == {"new"}
    vault = Vault(accounts, NEW)
    assert all(vault.get(f"s{number}") == f"{CANARY}-{number}" for number in range(12))


def test_no_error_shows_the_value(accounts, directory):
    vault = Vault(accounts, OLD)
    directory.put_secret(Secret("plain", CANARY, 0, "sql"))  # written by hand
    for call in (lambda: vault.get("plain"), lambda: vault.put(ADMIN, "x y", CANARY)):
        with pytest.raises(Problem) as caught:
            call()
        assert CANARY not in repr(caught.value.body())
    assert CANARY not in repr(vault.rotate(ADMIN))
