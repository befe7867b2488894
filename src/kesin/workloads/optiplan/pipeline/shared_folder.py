"""Folders that others write into as well, and that may be a share over the network.

A folder that cannot be read is *away*, never *empty*: who waits for a file must not conclude from
a broken cable that it is not there. Links and names no person could type are not looked at.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from kesin.foundation.problems import Unavailable

XML_BYTES_MAX: Final = 20_000_000
_PIECE_BYTES: Final = 1 << 16
_ANY_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_FOLDER_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EACCES)
_NO_LINKS: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class FolderAway(Unavailable):
    """A folder or file that cannot be used now; waiting may help."""


class NotWhole(ValueError):
    """A file that is too large, or no plain file at all."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A plain file in a folder, as it was at one look."""

    path: Path
    size_bytes: int
    changed_ns: int

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def job_ids(self) -> set[str]:
        """The ids of jobs that its name holds."""
        return set(_ANY_ID.findall(self.name.lower()))


@contextmanager
def minding(place: Path) -> Iterator[None]:
    """Let whatever the disk or the network says come out as FolderAway."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise FolderAway(
            f"{place} cannot be used: {reason}", details={"place": str(place), "reason": reason}
        ) from problem


def plain_files(folder: Path) -> list[Entry]:
    """The files in a folder, by name; raises OSError if it cannot be read."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.isprintable() or not entry.is_file(follow_symlinks=False):
                continue
            try:
                about = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # gone since
            found.append(Entry(folder / entry.name, about.st_size, about.st_mtime_ns))
    return sorted(found, key=lambda one: one.name)


def read_whole(path: Path, bytes_max: int = XML_BYTES_MAX) -> bytes:
    """All of a plain file; raises NotWhole before and while it turns out too large, or OSError."""
    with _opened(path) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise NotWhole("it is no plain file")
        if about.st_size > bytes_max:
            raise NotWhole(f"it has {about.st_size} bytes, at most {bytes_max} are taken")
        read = bytearray()
        while piece := file.read(_PIECE_BYTES):
            read += piece
            if len(read) > bytes_max:
                raise NotWhole(f"it has more than {bytes_max} bytes")
        return bytes(read)


def _opened(path: Path) -> BinaryIO:
    def without_links(name: str, flags: int) -> int:
        return os.open(name, flags | _NO_LINKS)

    try:
        return open(path, "rb", opener=without_links)
    except IsADirectoryError:
        raise NotWhole("it is no plain file") from None
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise NotWhole("it is a link") from None
        raise


def holds(path: Path, sha256: str) -> bool:
    """Whether a plain file with just this content lies there; raises OSError."""
    try:
        return hashlib.sha256(read_whole(path)).hexdigest() == sha256
    except (FileNotFoundError, NotWhole):
        return False


def move(source: Path, target: Path) -> None:
    """Give a file another name at one stroke, over whatever has it; raises OSError."""
    source.replace(target)
    sync_folder(target.parent)
    if source.parent != target.parent:
        sync_folder(source.parent)


def remove(path: Path) -> None:
    """Let a file be gone; raises OSError."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, where the file system knows how."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as problem:
        if problem.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)
