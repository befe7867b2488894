"""A backup put back: everything is checked first, and the database changes last and at once.

Files come before the database: broken off in between, the database is the one of before, with
files beside it that it does not know. Files that are not in the backup stay; one that is there and
differs is replaced only where that was asked for.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kesin.engine.access.accounts import Accounts
from kesin.engine.transfer.backup import (
    DATABASE,
    FILES,
    FORMAT,
    MANIFEST,
    SUMS,
    Kept,
    Manifest,
    Watch,
    copied,
    digest_of,
    make_folders,
    opened,
    private,
    require_space,
)
from kesin.foundation.encryption import KeyRing, NotOpened
from kesin.foundation.permissions import Actor
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.sql.migrate import migrations, outstanding
from kesin.store.transfer.dump import Advance, Dump, Dumped, NotRestored

_LINE: Final = re.compile(r"(\\?)([0-9a-f]{64})  (.+)")
_ESCAPED: Final = re.compile(r"\\(.)")
_PLAIN: Final = {"n": "\n", "r": "\r"}


@dataclass(frozen=True, slots=True)
class Backup:
    """One whose every byte is as it was written."""

    folder: Path
    manifest: Manifest
    todo: tuple[str, ...]  # migrations it will need


@dataclass(frozen=True, slots=True)
class Return:
    """What a restored store is told before anybody sees it."""

    actor: Actor
    reason: str
    paused: bool = True

    def tell(self, store: Store) -> None:
        """Queues rest until somebody resumes them, sessions end, and the audit log knows."""
        accounts = Accounts(Directory(store))
        with store.transaction():
            for queue in store.queues() if self.paused else ():
                store.pause(queue, actor=self.actor.name, reason=self.reason)
            for person in accounts.directory.people():
                accounts.directory.end_sessions_of(person.name)
            accounts.note(self.actor, "store.restore", details={"reason": self.reason})


def checked(folder: Path) -> Backup:
    """The backup in a folder, once all of it was read; raises NotRestored, naming what is wrong."""
    folder = folder.absolute()
    sums = _sums(folder)
    there = dict(_members(folder))
    for name in sorted(there.keys() | sums.keys()):
        if name not in there:
            raise NotRestored(f"the backup is damaged: {name} is missing")
        if name not in sums:
            raise NotRestored(f"the backup is damaged: {name} does not belong to it")
        if digest_of(there[name]) != sums[name]:
            raise NotRestored(f"the backup is damaged: {name} is not what was written")
    manifest = _manifest(folder)
    todo = outstanding(migrations(manifest.dumped.database), manifest.dumped.schema)
    return Backup(folder, manifest, tuple(f"{one.version:04d}_{one.name}" for one in todo))


def restore(
    backup: Backup,
    dump: Dump,
    kept: Sequence[Kept],
    told: Callable[[Store], None],
    watch: Watch,
    *,
    replace: bool,
) -> None:
    """Put files and database where they belong; raises NotRestored."""
    kind = backup.manifest.dumped.database
    if kind != dump.kind:
        other = {"sqlite": "a SQLite file", "postgres": "PostgreSQL"}
        raise NotRestored(
            f"this is a backup of {other[kind]}, and the settings name {other[dump.kind]}: restore "
            "it where it came from, and go on with `kesin store copy`"
        )
    dump.require_room(replace=replace)
    files = list(_placed(backup, kept))
    if not replace:
        _refuse_other([target for source, target in files if _differs(source, target)])
    total = sum(source.stat().st_size for source, _ in files)
    database = backup.folder / DATABASE
    place, wanted = dump.room(database)
    require_space(place, wanted + total, NotRestored)
    with watch(total + sum(one.stat().st_size for one in database.iterdir())) as advance:
        for source, target in files:
            _put(source, target, advance)
        dump.put_back(database, backup.manifest.dumped, told, advance, replace=replace)


def unopened(store: Store, ring: KeyRing | None) -> list[str]:
    """The names of sealed secrets that these keys do not open."""
    closed = []
    for one in Directory(store).secrets():
        try:
            if ring is None:
                closed.append(one.name)
            else:
                ring.open(one.name, one.sealed)
        except NotOpened:
            closed.append(one.name)
    return closed


def _placed(backup: Backup, kept: Sequence[Kept]) -> Iterator[tuple[Path, Path]]:
    """Each file of the backup, and where the settings of today want it."""
    for one in kept:
        there = backup.folder / FILES / one.name
        if there.is_file():
            yield there, one.place
        for folder, _, names in os.walk(there):
            for name in sorted(names):
                source = Path(folder, name)
                yield source, one.place / source.relative_to(there)


def _put(source: Path, target: Path, advance: Advance) -> None:
    """Give the file its name when it is whole; what is there already is not written again."""
    found = source.stat()
    if _same(source, target):
        advance(found.st_size)
        return
    make_folders(target.parent)
    hidden = target.with_name(f".{target.name}.restoring")
    with opened(source) as content, private(hidden) as out:
        copied(content, out, advance)
        out.flush()
        os.fsync(out.fileno())
    os.utime(hidden, ns=(found.st_atime_ns, found.st_mtime_ns))
    hidden.replace(target)


def _refuse_other(there: list[Path]) -> None:
    if there:
        others = f" and {len(there) - 1} more files" if len(there) > 1 else ""
        raise NotRestored(
            f"{there[0]}{others} would be overwritten by others: move them away, or add --replace "
            "to lose them"
        )


def _differs(source: Path, target: Path) -> bool:
    return os.path.lexists(target) and not _same(source, target)


def _same(source: Path, target: Path) -> bool:
    return (
        target.is_file()
        and target.stat().st_size == source.stat().st_size
        and digest_of(target) == digest_of(source)
    )


def _sums(folder: Path) -> dict[str, str]:
    try:
        text = os.fsdecode((folder / SUMS).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise NotRestored(f"{folder} is no backup of kesin: it has no {SUMS}") from None
    sums = {}
    for line in text.removesuffix("\n").split("\n"):
        found = _LINE.fullmatch(line)
        if found is None:
            raise NotRestored(f"the backup is damaged: {SUMS} is not what was written")
        name = found[3]
        if found[1]:
            name = _ESCAPED.sub(lambda one: _PLAIN.get(one[1], one[1]), name)
        sums[name] = found[2]
    return sums


def _members(folder: Path) -> Iterator[tuple[str, Path]]:
    for below, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(below, name)
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise NotRestored(f"the backup is damaged: {path} is no plain file")
        for name in names:
            path = Path(below, name)
            if path != folder / SUMS:
                yield path.relative_to(folder).as_posix(), path


def _manifest(folder: Path) -> Manifest:
    try:
        return _understood(json.loads((folder / MANIFEST).read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise NotRestored(f"the backup is damaged: {MANIFEST} cannot be understood") from None


def _understood(body: dict[str, Any]) -> Manifest:
    if body.get("format") != FORMAT:
        raise NotRestored(
            f"the backup is of format {body.get('format')}, and this kesin reads {FORMAT}: upgrade"
        )
    return Manifest(
        kesin=body["kesin"],
        made_at=body["made_at"],
        dumped=Dumped(
            body["database"],
            {int(version): checksum for version, checksum in body["schema"].items()},
            body["queues"],
            body["secret_keys"],
            body["tables"],
        ),
        files=body["files"],
        bytes=body["bytes"],
        vanished=body["vanished"],
        left_out=body["left_out"],
    )
