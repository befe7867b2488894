"""Restores a backup: all of it is checked first; the database changes last and at once.

Files are restored before the database. After an interruption in between, the database is still the
old one, with files that it does not know. Files that are not in the backup stay. A file that
differs from the backup is replaced only on request.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final, NamedTuple

from kesin.engine.access.accounts import Accounts
from kesin.engine.transfer import backup as backups
from kesin.engine.transfer.backup import BackupFile, Manifest, ProgressFactory
from kesin.foundation.encryption import SETTING, KeyRing, signing_key_id
from kesin.foundation.files import create_private_file, create_private_folders, open_regular_file
from kesin.foundation.permissions import Actor
from kesin.store.audit_log import AuditHead
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.sql.migrate import migrations, pending_migrations
from kesin.store.transfer.dump import Advance, Dump, RestoreRefused

_CHECKSUM_LINE: Final = re.compile(r"(\\?)([0-9a-f]{64})  (.+)")
_ESCAPED: Final = re.compile(r"\\(.)")
_UNESCAPED: Final = {"n": "\n", "r": "\r"}


class Backup(NamedTuple):
    """A backup whose checksums were verified."""

    folder: Path
    manifest: Manifest
    pending: tuple[str, ...]  # migrations it will need
    signature: str | None

    @property
    def audit_head(self) -> AuditHead | None:
        head = self.manifest.audit_head
        return None if head is None else AuditHead(head["seq"], head["hash"])


def secure_restored(store: Store, actor: Actor, reason: str, *, paused: bool) -> None:
    """Pause the queues if asked for, end all sessions, and write to the audit log."""
    accounts = Accounts(Directory(store))
    with store.transaction():
        for queue in store.queues() if paused else ():
            store.pause(queue, actor=actor.name, reason=reason)
        for user in accounts.directory.users():
            accounts.directory.end_sessions_of(user.name)
        accounts.note(actor, "store.restore", details={"reason": reason})


def read_backup(folder: Path) -> Backup:
    """Read and verify the backup in a folder; raises RestoreRefused, which names the damage."""
    folder = folder.absolute()
    sums = _read_checksums(folder)
    files = dict(_list_backup_files(folder))
    for name in sorted(files.keys() | sums.keys()):
        if name not in files:
            raise RestoreRefused(f"the backup is damaged: {name} is missing")
        if name not in sums:
            raise RestoreRefused(f"the backup is damaged: {name} does not belong to it")
        if backups.digest_of(files[name]) != sums[name]:
            raise RestoreRefused(f"the backup is damaged: {name} has changed since it was written")
    manifest = _read_manifest(folder)
    pending = pending_migrations(migrations(manifest.database), manifest.schema)
    file = folder / backups.SIGNATURE
    signature = file.read_text("ascii", errors="replace").strip() if file.exists() else None
    return Backup(folder, manifest, tuple(map(str, pending)), signature)


def check_signature(backup: Backup, ring: KeyRing | None, *, allow_unsigned: bool) -> str | None:
    """The id of the key that signed the backup; raises RestoreRefused.

    ``allow_unsigned`` accepts a backup without a signature, or signed with a key that the ring
    lacks, and returns None for it. A signature that does not match is never accepted.
    """
    signature = backup.signature
    key_id = None if signature is None else signing_key_id(signature)
    known = ring is not None and key_id in ring.ids
    if signature is not None and (known or key_id is None):
        text = backups.signed_text(backup.folder, backup.manifest)
        if ring is not None and ring.has_signed(text, signature):
            return key_id
        raise RestoreRefused(f"the backup was changed: {backups.SIGNATURE} does not match it")
    if allow_unsigned:
        return None
    foreign = f"is signed with the key {key_id!r}, which is not in {SETTING}"
    problem = "is not signed" if signature is None else foreign
    raise RestoreRefused(f"the backup {problem}, so others may have changed it: add --allow-unsigned to trust it")


def restore(
    backup: Backup,
    dump: Dump,
    places: Sequence[BackupFile],
    after_restore: Callable[[Store], None],
    open_progress: ProgressFactory,
    *,
    replace: bool,
) -> None:
    """Restore files and database; raises RestoreRefused."""
    kind = backup.manifest.database
    if kind != dump.kind:
        names = {"sqlite": "a SQLite file", "postgres": "PostgreSQL"}
        raise RestoreRefused(
            f"this is a backup of {names[kind]}, but the settings use {names[dump.kind]}: "
            "restore it to the same kind of database, then use `kesin store copy`"
        )
    dump.check_target(replace=replace)
    files = [pair for pair in _restore_paths(backup, places) if not _same(*pair)]
    overwritten = [target for _, target in files if os.path.lexists(target)]
    if overwritten and not replace:
        more = f" and {len(overwritten) - 1} more" if len(overwritten) > 1 else ""
        raise RestoreRefused(f"{overwritten[0]}{more} would be overwritten: copy what you need, then add --replace")
    total = sum(source.stat().st_size for source, _ in files)
    database = backup.folder / backups.DATABASE
    folder, database_bytes = dump.required_space(database)
    backups.require_space(folder, database_bytes + total, RestoreRefused)
    advance = open_progress(total + sum(file.stat().st_size for file in database.iterdir()))
    for source, target in files:
        _restore_file(source, target, advance)
    dump.restore(database, backup.manifest, after_restore, advance, replace=replace)


def _restore_paths(backup: Backup, places: Sequence[BackupFile]) -> Iterator[tuple[Path, Path]]:
    """Each file of the backup, with its path in the current settings."""
    for place in places:
        saved = backup.folder / backups.FILES / place.name
        for _, source, _ in backups.list_files(BackupFile(place.name, saved)):
            yield source, place.path / source.relative_to(saved)


def _restore_file(source: Path, target: Path, advance: Advance) -> None:
    """Restore a file under a hidden name, then rename it."""
    info = source.stat()
    create_private_folders(target.parent)
    hidden = target.with_name(f".{target.name}.restoring")
    with open_regular_file(source) as content, create_private_file(hidden) as out:
        backups.copy_stream(content, out, advance)
        out.flush()
        os.fsync(out.fileno())
    os.utime(hidden, ns=(info.st_atime_ns, info.st_mtime_ns))
    hidden.replace(target)


def _same(source: Path, target: Path) -> bool:
    same_size = target.is_file() and target.stat().st_size == source.stat().st_size
    return same_size and backups.digest_of(target) == backups.digest_of(source)


def _read_checksums(folder: Path) -> dict[str, str]:
    try:
        text = os.fsdecode((folder / backups.SUMS).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise RestoreRefused(f"{folder} is not a Kesin backup: it has no {backups.SUMS}") from None
    sums = {}
    for line in text.removesuffix("\n").split("\n"):
        match = _CHECKSUM_LINE.fullmatch(line)
        if match is None:
            raise RestoreRefused(f"the backup is damaged: {backups.SUMS} has changed since it was written")
        name = match[3]
        if match[1]:
            name = _ESCAPED.sub(lambda escape: _UNESCAPED.get(escape[1], escape[1]), name)
        sums[name] = match[2]
    return sums


def _list_backup_files(folder: Path) -> Iterator[tuple[str, Path]]:
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(parent, name)
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise RestoreRefused(f"the backup is damaged: {path} is not a regular file")
            if path.is_file() and path not in (folder / backups.SUMS, folder / backups.SIGNATURE):
                yield path.relative_to(folder).as_posix(), path


def _read_manifest(folder: Path) -> Manifest:
    try:
        body = json.loads((folder / backups.MANIFEST).read_text("utf-8"))
        if body.get("format") != backups.FORMAT:
            made, ours = body.get("format"), backups.FORMAT
            raise RestoreRefused(f"the backup has format {made}, but this Kesin reads {ours}: upgrade Kesin")
        body.setdefault("audit_head", None)  # an earlier version made it
        body["schema"] = {int(version): checksum for version, checksum in body["schema"].items()}
        return Manifest(**{field.name: body[field.name] for field in fields(Manifest)})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise RestoreRefused(f"the backup is damaged: {backups.MANIFEST} cannot be read") from None
