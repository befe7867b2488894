"""Accounts with a user and two sites, on a store that each test leaves empty."""

from collections.abc import Iterator
from typing import Any

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.foundation.clock import ManualClock
from kesin.foundation.permissions import system_actor
from kesin.store.directory import Directory
from tests.quick_hashes import quick_hashes
from tests.store.conftest import opened

TABLES = ("site", "person", "session", "api_key", "audit", "secret")
ROOT = system_actor("cli:root")
PASSWORD = "correct horse battery"
HOME = "10.0.0.7"
DAY_S = 86_400


@pytest.fixture(scope="module", params=["sqlite-file", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[Any]:
    with opened(request.param, request) as store:
        yield store


@pytest.fixture(scope="module", autouse=True)
def _quick_hashes() -> Iterator[None]:
    with quick_hashes():
        yield


@pytest.fixture
def accounts(store: Any, clock: ManualClock) -> Iterator[Accounts]:
    accounts = Accounts(Directory(store), clock)
    accounts.add_site(ROOT, "north")
    accounts.add_site(ROOT, "south")
    accounts.add_user(ROOT, "ayse", PASSWORD, role="operator", sites=["north"], queues=["oci"])
    store._rows(f"DELETE FROM {store.dialect.table('audit')}", {})
    yield accounts
    for table in TABLES:
        store._rows(f"DELETE FROM {store.dialect.table(table)}", {})


def audit_lines(accounts: Accounts) -> list[tuple[str, str, bool]]:
    """(actor, action, allowed) of every audit line, oldest first."""
    return [(line.actor, line.action, line.allowed) for line in accounts.directory.audit()][::-1]


def signed_in(accounts: Accounts, name: str = "ayse") -> str:
    return accounts.sign_in(name, PASSWORD, HOME)[0]


def state(accounts: Accounts) -> tuple[Any, ...]:
    directory = accounts.directory
    return directory.sites(), directory.users(), directory.api_keys()
