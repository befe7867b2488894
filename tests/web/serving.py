"""`kesin serve` as it runs in the world: a process with a folder, a port and a key of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import httpx
import pytest

from kesin.engine.access.accounts import Accounts
from kesin.foundation.permissions import system_actor
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.open import open_store
from tests.cli.programs import PATIENCE_S, Program, Programs, wait_until


def own_settings(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A data folder below this one, and none of the settings of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("KESIN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KESIN_DATA_DIR", str(folder / "data"))
    monkeypatch.setenv("KESIN_PDF_PROCESSES", "0")  # no browser beside, unless a test asks for it


def database_of(folder: Path) -> str:
    """Where a service with its data below this folder keeps its jobs."""
    return os.environ.get("KESIN_DATABASE_URL") or str(folder / "data" / "kesin.db")


@contextmanager
def opened(folder: Path) -> Iterator[Store]:
    """The store behind a service, looked at from here."""
    store = open_store(database_of(folder), migrate=True)
    try:
        yield store
    finally:
        store.close()


def make_key(folder: Path, *scopes: str) -> str:
    """A key, made as the command line makes it."""
    with opened(folder) as store:
        accounts = Accounts(Directory(store))
        return accounts.create_key(system_actor("test"), "test", scopes or ("admin",))[0]


class Served:
    """A service that listens, and a client that is signed in to it."""

    def __init__(self, program: Program, address: str, key: str) -> None:
        self.program = program
        self.address = address
        self.key = key
        self.client = httpx.Client(base_url=address, headers={"x-api-key": key}, timeout=PATIENCE_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def signal(self, number: int) -> None:
        self.program.signal(number)

    def end(self) -> int:
        """Wait for its end; the exit code."""
        return self.program.end()

    def enqueue(self, queue: str, *payloads: object) -> list[str]:
        """Jobs by hand; their ids."""
        jobs = [{"payload": one} for one in payloads]
        answer = self.client.post(f"/api/queues/{queue}/jobs", json={"jobs": jobs})
        assert answer.status_code == 201, answer.text
        return [one["id"] for one in answer.json()["jobs"]]

    def wait_for_states(self, queue: str, **wanted: int) -> None:
        """Wait until so many jobs are in each of these states."""

        def there() -> bool:
            states = self.client.get(f"/api/queues/{queue}/stats").json()["states"]
            return all(states[name] == n for name, n in wanted.items())

        wait_until(there)


def serve(programs: Programs, folder: Path, *words: object, **env: str) -> Served:
    """Start it on a free port and wait until it listens; an admin's key comes with it."""
    key = make_key(folder)
    program = programs.start("serve", "--port", 0, *words, **env)
    return Served(program, program.hear("listening")["address"], key)
