"""The migration runner: numbered SQL files, forward only, each applied exactly once.

Applied migrations are recorded with a checksum. A file that has changed since, or a database that
is ahead of this code, is refused: guessing would be worse than stopping.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

from kesin.store.errors import StoreError

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


class MigrationRefused(StoreError):
    """The schema and this version of the code do not fit together."""


@dataclass(frozen=True)
class Migration:
    """One numbered file."""

    version: int
    name: str
    text: str

    @cached_property
    def checksum(self) -> str:
        """The checksum that the database records."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """The files of a dialect, in order."""
    result = []
    for entry in (files("kesin.store.sql") / "migrations" / dialect).iterdir():
        match = _FILE.fullmatch(entry.name)
        if match:
            result.append(Migration(int(match[1]), match[2], entry.read_text("utf-8")))
    return tuple(sorted(result, key=lambda migration: migration.version))


def pending_migrations(available: Sequence[Migration], applied: dict[int, str]) -> list[Migration]:
    """The migrations still to apply; raise MigrationRefused if files and history disagree."""
    newest = max((migration.version for migration in available), default=0)
    ahead = [version for version in applied if version > newest]
    if ahead:
        raise MigrationRefused(
            f"the schema is at version {max(ahead)} but this kesin knows only up to {newest}: "
            "upgrade kesin; a newer schema is never changed"
        )
    for migration in available:
        if migration.version in applied and applied[migration.version] != migration.checksum:
            raise MigrationRefused(
                f"migration {migration.version:04d}_{migration.name} was changed after it was"
                " applied: restore the file, and put the change into a new migration"
            )
    return [migration for migration in available if migration.version not in applied]
