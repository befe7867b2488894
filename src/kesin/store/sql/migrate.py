"""Numbered SQL files, forward only, each applied once; a changed or newer schema is refused."""

import hashlib
import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

from kesin.store.errors import StoreError

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


class MigrationRefused(StoreError):
    """The schema and this version of the code do not fit together."""


@dataclass(frozen=True, order=True)
class Migration:
    """One numbered file."""

    version: int
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.version:04d}_{self.name}"

    @cached_property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """The files of a dialect, in order."""
    folder = files("kesin.store.sql") / "migrations" / dialect
    found = [(_FILE.fullmatch(entry.name), entry) for entry in folder.iterdir()]
    texts = ((name, file.read_text("utf-8")) for name, file in found if name)
    return tuple(sorted(Migration(int(name[1]), name[2], text) for name, text in texts))


def pending_migrations(steps: tuple[Migration, ...], applied: dict[int, str]) -> list[Migration]:
    """The migrations still to apply; raise MigrationRefused if files and history disagree."""
    newest = max((step.version for step in steps), default=0)
    ahead = [version for version in applied if version > newest]
    if ahead:
        raise MigrationRefused(
            f"the schema is at version {max(ahead)} but this version of Kesin supports only"
            f" versions up to {newest}: upgrade Kesin; a newer schema is never changed"
        )
    for step in steps:
        if step.version in applied and applied[step.version] != step.checksum:
            raise MigrationRefused(
                f"migration {step} was changed after it was"
                " applied: restore the file, and make the change in a new migration"
            )
    return [step for step in steps if step.version not in applied]
