"""A backup: a folder with the database, files of the workloads, a manifest and checksums.

It appears under its name when all of it is on the disk, and overwrites nothing. Files are copied
before the database is written and once more after it, those that are new or changed: so whatever
was there at the moment of the database is in it, even if it is swept away meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from kesin import __version__
from kesin.foundation.clock import iso, wall_clock_us
from kesin.store.transfer.dump import Advance, Dump, Dumped, NotBackedUp

FORMAT: Final = "1"
MANIFEST: Final = "manifest.json"
SUMS: Final = "SHA256SUMS"  # as `sha256sum -c` reads it
DATABASE: Final = "database"
FILES: Final = "files"
MOST_TOLD: Final = 100  # files that vanished, by name
PIECE: Final = 1 << 20  # bytes read at a time

_SAFELY: Final = (
    getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)

Watch = Callable[[int], AbstractContextManager[Advance]]  # how many bytes there will be


class Kept(NamedTuple):
    """A file or folder that belongs to a workload's jobs; ``name`` is the one in the backup."""

    name: str
    place: Path


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup says of itself."""

    kesin: str
    made_at: str
    dumped: Dumped
    files: int
    bytes: int
    vanished: list[str] = field(default_factory=list)  # swept away while they were copied
    left_out: list[str] = field(default_factory=list)  # what has to be kept in another way

    def spelled(self) -> str:
        """As JSON, for people too."""
        body = asdict(self)
        return json.dumps({"format": FORMAT, **body.pop("dumped"), **body}, indent=2) + "\n"


def back_up(
    dump: Dump, target: Path, kept: Sequence[Kept], left_out: Sequence[str], watch: Watch
) -> Manifest:
    """Write a backup to a folder that is not there yet; raises NotBackedUp."""
    target = target.absolute()
    part = target.with_name(f"{target.name}.part")
    _require_free_name(target, kept)
    size = dump.size()
    total = size + sum(found.st_size for one in kept for _, _, found in files_of(one))
    require_space(target.parent, total, NotBackedUp)
    try:
        part.mkdir(mode=0o700)
    except FileExistsError:
        raise NotBackedUp(
            f"{part} is there: another backup to {target} runs, or one was broken off; if none "
            "runs, delete it"
        ) from None
    try:
        with watch(total) as advance:
            manifest = _write(dump, part, kept, left_out, advance)
        part.rename(target)
    except BaseException as problem:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(problem, OSError):
            where = problem.filename or part
            raise NotBackedUp(f"nothing was backed up: {problem.strerror}: {where}") from problem
        raise
    sync(target.parent)
    return manifest


def _require_free_name(target: Path, kept: Sequence[Kept]) -> None:
    if os.path.lexists(target):
        raise NotBackedUp(f"{target} is there already: a backup overwrites nothing")
    if not target.parent.is_dir():
        raise NotBackedUp(f"there is no folder {target.parent}")
    for one in kept:
        if target.resolve().is_relative_to(one.place.resolve()):
            raise NotBackedUp(f"{one.place} is backed up itself: choose a place outside it")


def _write(
    dump: Dump, part: Path, kept: Sequence[Kept], left_out: Sequence[str], advance: Advance
) -> Manifest:
    copies = _Copies(part / FILES, advance)
    copies.make(kept)
    (part / DATABASE).mkdir(mode=0o700)
    made_at = iso(wall_clock_us()) or ""
    dumped = dump.take(part / DATABASE, advance)
    copies.make(kept)
    sums = {f"{FILES}/{name}": one.digest for name, one in copies.made.items()}
    for file in sorted((part / DATABASE).iterdir()):
        sums[f"{DATABASE}/{file.name}"] = digest_of(file)
    size = sum((part / name).stat().st_size for name in sums)
    vanished = sorted(copies.vanished)[:MOST_TOLD]
    manifest = Manifest(
        __version__, made_at, dumped, len(copies.made), size, vanished, list(left_out)
    )
    _put(part / MANIFEST, manifest.spelled())
    sums[MANIFEST] = digest_of(part / MANIFEST)
    _put(part / SUMS, "".join(_line(name, sums[name]) for name in sorted(sums)))
    _settle(part)
    return manifest


class _Copy(NamedTuple):
    digest: str
    seen: tuple[int, int, int]


class _Copies:
    """The files that were copied, each as it was when it was last looked at."""

    def __init__(self, folder: Path, advance: Advance) -> None:
        self._folder, self._advance = folder, advance
        self.made: dict[str, _Copy] = {}
        self.vanished: set[str] = set()

    def make(self, kept: Sequence[Kept]) -> None:
        """Copy what is new or has changed."""
        for one in kept:
            for name, file, found in files_of(one):
                known = self.made.get(name)
                if known is None or known.seen != _seen(found):
                    self._copy(name, file)

    def _copy(self, name: str, file: Path) -> None:
        to = self._folder / name
        make_folders(to.parent)
        try:
            with opened(file) as source, private(to) as target:
                digest = copied(source, target, self._advance)
                found = os.fstat(source.fileno())
        except FileNotFoundError:
            self.vanished.add(name)
            return
        os.utime(to, ns=(found.st_atime_ns, found.st_mtime_ns))
        self.made[name] = _Copy(digest, _seen(found))
        self.vanished.discard(name)


def _seen(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns


def files_of(kept: Kept) -> Iterator[tuple[str, Path, os.stat_result]]:
    """The plain files, without hidden ones, which are being written or mark a folder."""
    if not kept.place.is_dir():
        try:
            found = kept.place.lstat()
        except FileNotFoundError:
            return
        if stat.S_ISREG(found.st_mode):
            yield kept.name, kept.place, found
        return
    for folder, below, names in os.walk(kept.place):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            try:
                found = file.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(found.st_mode) and not name.startswith("."):
                yield f"{kept.name}/{file.relative_to(kept.place).as_posix()}", file, found


def require_space(folder: Path, wanted: int, refusal: type[Exception]) -> None:
    """Raise the refusal unless the disk has room for so many bytes."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < wanted:
        raise refusal(f"{folder} has {free} bytes free, and this takes about {wanted}")


def opened(file: Path) -> BinaryIO:
    """The file, and nothing that a link leads to."""
    return os.fdopen(os.open(file, os.O_RDONLY | _SAFELY), "rb")


def private(file: Path) -> BinaryIO:
    """A file to write, for the owner's eyes only."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFELY
    return os.fdopen(os.open(file, flags, 0o600), "wb")


def make_folders(folder: Path) -> None:
    """Make what is missing of the way there, for the owner's eyes only."""
    if not folder.is_dir():
        make_folders(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def copied(source: BinaryIO, target: BinaryIO, advance: Advance) -> str:
    """Copy all of it; the digest of what was copied."""
    digest = hashlib.sha256()
    while piece := source.read(PIECE):
        digest.update(piece)
        target.write(piece)
        advance(len(piece))
    return digest.hexdigest()


def digest_of(file: Path) -> str:
    """The SHA-256 of a file."""
    with opened(file) as content:
        whole: Any = content
        return hashlib.file_digest(whole, "sha256").hexdigest()


def _line(name: str, digest: str) -> str:
    """A line of the checksums; coreutils mark names that hold a backslash or a line break."""
    spelled = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    mark = "" if spelled == name else "\\"
    return f"{mark}{digest}  {spelled}\n"


def _put(file: Path, text: str) -> None:
    with private(file) as out:
        out.write(os.fsencode(text))


def _settle(part: Path) -> None:
    """Let all of it be on the disk: at the end, when most of it is there already."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows flushes only what is open for writing
        return
    for folder, _, names in os.walk(part, topdown=False):
        for name in names:
            with opened(Path(folder, name)) as file:
                os.fsync(file.fileno())
        sync(Path(folder))


def sync(folder: Path) -> None:
    """Let the names in a folder be on the disk."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows keeps names in order by itself
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
