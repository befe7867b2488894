"""A database written into a folder as it was at one moment, and made again from there.

Nothing is migrated by being written: the backup before an upgrade holds the schema of before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from kesin.foundation.encryption import key_of
from kesin.store.contract import Store
from kesin.store.errors import StoreError

Kind = Literal["sqlite", "postgres"]
Read = Callable[[str], list[tuple[Any, ...]]]  # a statement, with {table} where a table belongs
Advance = Callable[[int], None]  # so many bytes more

_PEOPLE: Final = {"person": "people", "site": "sites", "api_key": "keys", "secret": "secrets"}


class NotBackedUp(StoreError):
    """There is no backup; the message says why."""


class NotRestored(StoreError):
    """What was there is still there; the message says why."""


@dataclass(frozen=True, slots=True)
class Dumped:
    """What lies in the folder."""

    database: Kind
    schema: dict[int, str]  # migrations that were applied: number → checksum
    queues: dict[str, dict[str, int]]  # state → jobs, by the counters of that moment
    secret_keys: list[str]  # ids of the keys that its secrets are sealed with
    tables: dict[str, list[str]] = field(default_factory=dict)  # of a server: their columns


class Dump(ABC):
    """The database at an address."""

    kind: Kind

    @abstractmethod
    def size(self) -> int:
        """Bytes that writing it will take, about."""

    @abstractmethod
    def take(self, folder: Path, advance: Advance) -> Dumped:
        """Write it into an empty folder, all of it as of one moment; others may write meanwhile."""

    @abstractmethod
    def require_room(self, *, replace: bool) -> None:
        """Raise NotRestored while somebody uses the database, or if it holds something."""

    @abstractmethod
    def room(self, folder: Path) -> tuple[Path, int]:
        """A folder, and the bytes that putting back what lies in the other one takes there."""

    @abstractmethod
    def put_back(
        self,
        folder: Path,
        dumped: Dumped,
        finish: Callable[[Store], None],
        advance: Advance,
        *,
        replace: bool,
    ) -> list[str]:
        """Put it in the place of what is there, at once or not at all; the migrations applied.

        ``finish`` is given the store at the newest schema, before anybody else sees it.
        """


def described(kind: Kind, read: Read, tables: dict[str, list[str]]) -> Dumped:
    """What the tables hold, asked in the same snapshot."""
    if "schema_migration" not in tables or "job" not in tables:
        raise NotBackedUp("the database has no kesin tables yet: there is nothing to back up")
    applied = read("SELECT version, checksum FROM {schema_migration} ORDER BY version")
    schema = {int(version): str(checksum) for version, checksum in applied}
    sealed = read("SELECT sealed FROM {secret}") if "secret" in tables else []
    keys = {key_of(one) for (one,) in sealed}
    return Dumped(kind, schema, _counted(read), sorted(key for key in keys if key))


def _counted(read: Read) -> dict[str, dict[str, int]]:
    queues: dict[str, dict[str, int]] = {
        name: {} for (name,) in read("SELECT queue FROM {lifecycle} ORDER BY queue")
    }
    for queue, *states, n in read(
        "SELECT queue, from_state, to_state, sum(n) FROM {flow} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    ):
        counts = queues.setdefault(queue, {})
        for state, sign in zip(states, (-1, 1), strict=True):
            if state:
                counts[state] = counts.get(state, 0) + sign * int(n)
    return {name: {s: n for s, n in one.items() if n} for name, one in queues.items()}


def holding(read: Read, tables: dict[str, list[str]]) -> str:
    """``12 jobs of task, 3 people``: what would be lost; empty where nothing would."""
    found = []
    if {"lifecycle", "flow"} <= set(tables):
        jobs = {queue: sum(states.values()) for queue, states in _counted(read).items()}
        found += [f"{n} jobs of {queue}" for queue, n in jobs.items() if n]
    for table, word in _PEOPLE.items():
        n = read(f"SELECT count(*) FROM {{{table}}}")[0][0] if table in tables else 0
        found += [f"{n} {word}"] if n else []
    return ", ".join(found)


def refuse_holding(where: str, found: str, *, replace: bool) -> None:
    """Raise NotRestored if there is something that may not be replaced."""
    if found and not replace:
        raise NotRestored(
            f"{where} holds {found}: restore elsewhere, or back it up and add --replace to lose it"
        )


@contextmanager
def nothing_left(*files: Path) -> Iterator[None]:
    """Whatever happens inside, these are gone afterwards."""
    try:
        yield
    finally:
        for one in files:
            one.unlink(missing_ok=True)
