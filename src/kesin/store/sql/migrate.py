"""The migration runner: numbered SQL files, forward only, each applied exactly once.

What was applied is remembered with a checksum. A file that changed since, or a database that is
ahead of this code, is refused: guessing would be worse than stopping.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

from kesin.store.errors import StoreError

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


class MigrationRefused(StoreError):
    """The schema and this version of the code do not fit together."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """What the database remembers of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations(dialect: str) -> list[Migration]:
    """The files of a dialect, in order."""
    found = []
    for entry in (files("kesin.store.sql") / "migrations" / dialect).iterdir():
        match = _FILE.fullmatch(entry.name)
        if match:
            found.append(Migration(int(match[1]), match[2], entry.read_text("utf-8")))
    return sorted(found, key=lambda one: one.version)


def outstanding(known: list[Migration], applied: dict[int, str]) -> list[Migration]:
    """What is still to apply; raises when history and files disagree."""
    newest = max((one.version for one in known), default=0)
    ahead = [version for version in applied if version > newest]
    if ahead:
        raise MigrationRefused(
            f"the schema is at version {max(ahead)} but this kesin knows only up to {newest}: "
            "upgrade kesin; a newer schema is never changed"
        )
    for one in known:
        if one.version in applied and applied[one.version] != one.checksum:
            raise MigrationRefused(
                f"migration {one.version:04d}_{one.name} was changed after it was applied: "
                "restore the file, and put the change into a new migration"
            )
    return [one for one in known if one.version not in applied]
