"""A backup: a folder with the database, files of the workloads, a manifest, checksums, a signature.

It gets its name once it is completely on the disk, and overwrites nothing. Files are copied before
the database is written; new and changed files are copied again after it. So the backup has every
file that existed at the time of the database, even if it was deleted meanwhile.
"""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from kesin.foundation.clock import iso, wall_clock_us
from kesin.foundation.encryption import KeyRing
from kesin.foundation.files import create_private_file, create_private_folders, open_regular_file, sync_folder
from kesin.foundation.text import canonical_json
from kesin.foundation.version import __version__
from kesin.store.transfer.dump import Advance, BackupRefused, Dump, DumpManifest

FORMAT: Final = "1"
MANIFEST: Final = "manifest.json"
SUMS: Final = "SHA256SUMS"  # as `sha256sum -c` reads it
SIGNATURE: Final = "SIGNATURE"  # of the checksums, with a key that is not in the backup
DATABASE: Final = "database"
FILES: Final = "files"
MAX_LISTED_FILES: Final = 100  # names of vanished files in the manifest
CHUNK_BYTES: Final = 1 << 20  # bytes read at a time

ProgressFactory = Callable[[int], Advance]  # takes the total number of bytes


class BackupFile(NamedTuple):
    """A file or folder of a workload; ``name`` is its name in the backup."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Manifest(DumpManifest):
    """The description of a backup."""

    kesin: str
    made_at: str
    files: int
    bytes: int
    vanished: list[str]  # files deleted while they were copied
    left_out: list[str]  # data that needs another kind of backup

    def as_record(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}


def back_up(
    dump: Dump,
    target: Path,
    files: Sequence[BackupFile],
    left_out: Sequence[str],
    open_progress: ProgressFactory,
    *,
    ring: KeyRing | None = None,
) -> Manifest:
    """Write a backup to a new folder, signed if there is a ring; raises BackupRefused."""
    target = target.absolute()
    part = target.with_name(f"{target.name}.part")
    _require_free_name(target, files)
    total = dump.size() + sum(info.st_size for entry in files for _, _, info in list_files(entry))
    require_space(target.parent, total, BackupRefused)
    try:
        part.mkdir(mode=0o700)
    except FileExistsError:
        raise BackupRefused(
            f"{part} exists: another backup to {target} is running, or one was interrupted; if "
            "none is running, delete it"
        ) from None
    try:
        manifest = _write(dump, part, files, left_out, open_progress(total))
        if ring is not None:
            _write_text(part / SIGNATURE, f"{ring.sign(signed_text(part, manifest))}\n")
        _sync_tree(part)
        part.rename(target)
    except BaseException as problem:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(problem, OSError):
            where = problem.filename or part
            raise BackupRefused(f"nothing was backed up: {problem.strerror}: {where}") from problem
        raise
    sync_folder(target.parent)
    return manifest


def _require_free_name(target: Path, files: Sequence[BackupFile]) -> None:
    if os.path.lexists(target):
        raise BackupRefused(f"{target} already exists: a backup never overwrites a file")
    if not target.parent.is_dir():
        raise BackupRefused(f"there is no folder {target.parent}")
    for entry in files:
        if target.resolve().is_relative_to(entry.path.resolve()):
            raise BackupRefused(f"{entry.path} is itself backed up: choose a folder outside it")


def _write(dump: Dump, part: Path, files: Sequence[BackupFile], left_out: Sequence[str], advance: Advance) -> Manifest:
    copies = _FileCopies(part / FILES, advance)
    copies.copy_changed(files)
    (part / DATABASE).mkdir(mode=0o700)
    made_at = iso(wall_clock_us()) or ""
    dumped = dump.write(part / DATABASE, advance)
    copies.copy_changed(files)
    sums = {f"{FILES}/{name}": digest for name, digest in copies.digests.items()}
    for file in sorted((part / DATABASE).iterdir()):
        sums[f"{DATABASE}/{file.name}"] = digest_of(file)
    manifest = Manifest(
        **asdict(dumped),
        kesin=__version__,
        made_at=made_at,
        files=len(copies.digests),
        bytes=sum((part / name).stat().st_size for name in sums),
        vanished=sorted(copies.vanished)[:MAX_LISTED_FILES],
        left_out=list(left_out),
    )
    _write_text(part / MANIFEST, json.dumps(manifest.as_record(), indent=2) + "\n")
    sums[MANIFEST] = digest_of(part / MANIFEST)
    _write_text(part / SUMS, "".join(_checksum_line(name, sums[name]) for name in sorted(sums)))
    return manifest


def signed_text(folder: Path, manifest: Manifest) -> str:
    """What a signature signs: the digest of the checksums, and the head of the audit log."""
    signed = {"sha256sums": digest_of(folder / SUMS), "audit_head": manifest.audit_head}
    return canonical_json(signed)


class _FileCopies:
    """The copied files, each with the version that was copied."""

    def __init__(self, folder: Path, advance: Advance) -> None:
        self._folder, self._advance = folder, advance
        self._versions: dict[str, tuple[int, int, int]] = {}
        self.digests: dict[str, str] = {}
        self.vanished: set[str] = set()

    def copy_changed(self, files: Sequence[BackupFile]) -> None:
        for entry in files:
            for name, file, info in list_files(entry):
                if self._versions.get(name) != _file_version(info):
                    self._copy(name, file)

    def _copy(self, name: str, file: Path) -> None:
        copy_path = self._folder / name
        create_private_folders(copy_path.parent)
        try:
            with open_regular_file(file) as source, create_private_file(copy_path) as target:
                digest = copy_stream(source, target, self._advance)
                info = os.fstat(source.fileno())
        except FileNotFoundError:
            self.vanished.add(name)
            return
        os.utime(copy_path, ns=(info.st_atime_ns, info.st_mtime_ns))
        self.digests[name], self._versions[name] = digest, _file_version(info)
        self.vanished.discard(name)


def _file_version(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_ino, info.st_size, info.st_mtime_ns


def list_files(entry: BackupFile) -> Iterator[tuple[str, Path, os.stat_result]]:
    """The regular files, without hidden ones: those are unfinished, or mark a folder."""
    for file in _visible_files(entry.path) if entry.path.is_dir() else [entry.path]:
        try:
            info = file.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(info.st_mode):
            yield Path(entry.name, file.relative_to(entry.path)).as_posix(), file, info


def _visible_files(top: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(top):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))


def require_space(folder: Path, required: int, refusal: type[Exception]) -> None:
    """Raise ``refusal`` unless the disk has that many bytes free."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < required:
        raise refusal(f"{folder} has {free} bytes free, but this needs about {required}")


def copy_stream(source: BinaryIO, target: BinaryIO, advance: Advance) -> str:
    """Copy a stream; return the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
        target.write(chunk)
        advance(len(chunk))
    return digest.hexdigest()


def digest_of(file: Path) -> str:
    """The SHA-256 of a file."""
    with open_regular_file(file) as content:
        reader: Any = content
        return hashlib.file_digest(reader, "sha256").hexdigest()


def _checksum_line(name: str, digest: str) -> str:
    """A line of the checksums; coreutils escape names with a backslash or a line break."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    prefix = "" if escaped == name else "\\"
    return f"{prefix}{digest}  {escaped}\n"


def _write_text(file: Path, text: str) -> None:
    with create_private_file(file) as out:
        out.write(os.fsencode(text))


def _sync_tree(root: Path) -> None:
    """Flush all files and folders to the disk: at the end, when most data is there already."""
    for folder, _, names in os.walk(root, topdown=False):
        for name in names:
            with open_regular_file(Path(folder, name)) as file:
                os.fsync(file.fileno())
        sync_folder(Path(folder))
