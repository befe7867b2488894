"""Secrets, put and read as a workload does it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.vault import Vault
from kesin.foundation.encryption import key_ring
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import load_settings
from kesin.store.directory import Directory
from kesin.store.open import open_store


@contextmanager
def open_vault() -> Iterator[Vault]:
    """The vault of the settings in the environment."""
    settings = load_settings()
    with closing(open_store(settings.database)) as store:
        yield Vault(Accounts(Directory(store)), key_ring(settings))


def put_secret(name: str, value: str) -> None:
    with open_vault() as vault:
        vault.put(system_actor("test"), name, value)


def secret_value(name: str) -> str:
    """The value as a worker reads it."""
    with open_vault() as vault:
        return vault.get(name)
