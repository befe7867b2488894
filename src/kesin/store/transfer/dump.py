"""The Dump interface: a database as a folder, in the schema that it has, and its restoration."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from kesin.foundation.encryption import sealing_key_id
from kesin.store.audit_log import AuditHead
from kesin.store.contract import Store
from kesin.store.errors import StoreError
from kesin.store.metadata import TRANSIENT
from kesin.store.records import MoveCount
from kesin.store.rules import jobs_by_state

DatabaseKind = Literal["sqlite", "postgres"]
RunQuery = Callable[[str], list[tuple[Any, ...]]]  # see ``Dump._reader``
Advance = Callable[[int], None]  # takes the number of bytes done since the last call
Finish = Callable[[Store], None]  # completes a restored store

LEFT_OUT: Final = f"workload LIKE '%{TRANSIENT}'"  # rows of the table ``fact``
_ACCOUNTS: Final = {"person": "people", "site": "sites", "api_key": "keys", "secret": "secrets"}


class BackupRefused(StoreError):
    """No backup was made; the message says why."""


class RestoreRefused(StoreError):
    """Nothing was restored or changed; the message says why."""


@dataclass(frozen=True, slots=True)
class DumpManifest:
    """The description of a dump."""

    database: DatabaseKind
    schema: dict[int, str]  # applied migrations: number → checksum
    queues: dict[str, dict[str, int]]  # queue → state → number of jobs
    secret_keys: list[str]  # ids of the keys that encrypt its secrets
    tables: dict[str, list[str]]  # PostgreSQL only: table → columns
    audit_head: dict[str, Any] | None  # seq, hash and time of the newest audit line, if any


class Dump(ABC):
    """The database at an address."""

    kind: DatabaseKind
    schema_prefix = ""  # of the tables

    @abstractmethod
    def size(self) -> int:
        """The approximate size of the dump in bytes."""

    @abstractmethod
    def write(self, folder: Path, advance: Advance) -> DumpManifest:
        """Write one snapshot into an empty folder; others may change the database meanwhile."""

    @abstractmethod
    def check_target(self, *, replace: bool) -> None:
        """Raise RestoreRefused if the database is in use or holds data that may not be replaced."""

    @abstractmethod
    def required_space(self, folder: Path) -> tuple[Path, int]:
        """A folder, and the bytes that a restore of the dump in ``folder`` needs there."""

    @abstractmethod
    def restore(self, folder: Path, dumped: DumpManifest, finish: Finish, advance: Advance, *, replace: bool) -> None:
        """Replace the database at once; ``finish`` gets the migrated store before others do."""

    @abstractmethod
    def _tables(self, connection: Any) -> dict[str, list[str]]:
        """The tables and their columns; the columns only if a dump needs them."""

    def _reader(self, connection: Any) -> RunQuery:
        """Runs queries on a connection of either database; they name tables as ``{table}``."""
        schema = self.schema_prefix
        return lambda sql: connection.execute(sql.replace("{", schema).replace("}", "")).fetchall()

    def _describe(self, connection: Any) -> DumpManifest:
        """Describe the contents of the tables, read in the dump's snapshot."""
        read, tables = self._reader(connection), self._tables(connection)
        if "schema_migration" not in tables or "job" not in tables:
            raise BackupRefused("the database has no Kesin tables yet: there is nothing to back up")
        applied = read("SELECT version, checksum FROM {schema_migration} ORDER BY version")
        sealed = read("SELECT sealed FROM {secret}") if "secret" in tables else []
        keys = {sealing_key_id(secret) for (secret,) in sealed}
        line_of_head = "SELECT at FROM {audit} WHERE seq = head.seq"
        chain = f"SELECT seq, hash, ({line_of_head}) FROM {{audit_head}} AS head"
        heads = read(chain) if "audit_head" in tables else []
        names = (*AuditHead._fields, "at")
        return DumpManifest(
            database=self.kind,
            schema={int(version): str(checksum) for version, checksum in applied},
            queues=_count_jobs(read),
            secret_keys=sorted(key for key in keys if key),
            tables={},
            audit_head=dict(zip(names, heads[0], strict=True)) if heads else None,
        )

    def _refuse_overwrite(self, where: str, connection: Any, *, replace: bool) -> None:
        """Raise RestoreRefused if there are jobs or accounts to lose and ``replace`` is not set."""
        read, tables = self._reader(connection), self._tables(connection)
        contents = []
        if {"lifecycle", "flow"} <= tables.keys():
            jobs = {queue: sum(states.values()) for queue, states in _count_jobs(read).items()}
            contents += [f"jobs of {queue} ({n})" for queue, n in jobs.items() if n]
        for table, word in _ACCOUNTS.items():
            n = read(f"SELECT count(*) FROM {{{table}}}")[0][0] if table in tables else 0
            contents += [f"{word} ({n})"] if n else []
        if contents and not replace:
            raise RestoreRefused(
                f"{where} holds {', '.join(contents)}: restore elsewhere, or back it up and add"
                " --replace to overwrite it"
            )


def _count_jobs(read: RunQuery) -> dict[str, dict[str, int]]:
    names = read("SELECT queue FROM {lifecycle} ORDER BY queue")
    moves: dict[str, list[MoveCount]] = {name: [] for (name,) in names}
    edges = "SELECT queue, from_state, to_state, sum(n) FROM {flow} GROUP BY 1, 2, 3"
    for queue, source, target, n in read(f"{edges} ORDER BY 1, 2, 3"):
        moves.setdefault(queue, []).append(MoveCount("", "", source, target, int(n)))
    return {queue: jobs_by_state(counts) for queue, counts in moves.items()}
