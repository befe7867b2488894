"""Folders shared with programs; one that cannot be read is *unavailable*, never *empty*."""

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

from kesin.foundation.files import sync_folder
from kesin.foundation.messages import Message, MessageError
from kesin.foundation.problems import Unavailable

MAX_XML_BYTES: Final = 20_000_000
_CHUNK_BYTES: Final = 1 << 16
_ANY_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class FolderUnavailable(Unavailable):
    """A folder or file cannot be used now; waiting may help."""


class UnusableFile(MessageError):
    """A file is too large or not a plain file."""


class MissingFile(UnusableFile):
    """A file does not exist, but its folder does."""


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A plain file in a folder, as it was when listed."""

    path: Path
    size_bytes: int
    modified_ns: int

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def job_ids(self) -> set[str]:
        return set(_ANY_ID.findall(self.name.lower()))


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Raise every OSError of the disk or the network as FolderUnavailable."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        message = Message("%(place)s cannot be used: %(problem)s", place=path, problem=reason)
        details = {"place": str(path), "reason": reason}
        raise FolderUnavailable(message, details=details) from problem


def list_plain_files(folder: Path) -> list[FolderEntry]:
    """List the files in a folder, sorted by name; raises OSError."""
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.isprintable() or not entry.is_file(follow_symlinks=False):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # deleted meanwhile
            files.append(FolderEntry(folder / entry.name, status.st_size, status.st_mtime_ns))
    return sorted(files, key=lambda file: file.name)


def read_plain_file(path: Path, max_bytes: int = MAX_XML_BYTES) -> bytes:
    """Read a plain file; raises UnusableFile as soon as it is too large, or OSError."""
    with _open_no_follow(path) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UnusableFile("it is not a regular file")
        if status.st_size > max_bytes:
            why = "it is %(n)s bytes; at most %(most)s are accepted"
            raise UnusableFile(why, n=status.st_size, most=max_bytes)
        content = bytearray()
        while chunk := file.read(_CHUNK_BYTES):
            content += chunk
            if len(content) > max_bytes:
                raise UnusableFile("it is larger than %(most)s bytes", most=max_bytes)
        return bytes(content)


def read_shared_file(path: Path) -> bytes:
    """Read a plain file; raises UnusableFile, MissingFile, or FolderUnavailable for its folder."""
    with translate_os_errors(path):
        try:
            return read_plain_file(path)
        except FileNotFoundError:
            if not path.parent.is_dir():
                raise
            raise MissingFile("it no longer exists") from None


def _open_no_follow(path: Path) -> BinaryIO:
    try:
        return open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_FOLLOW))
    except IsADirectoryError:
        raise UnusableFile("it is not a regular file") from None
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise UnusableFile("it is a link") from None
        raise


def has_content(path: Path, sha256: str) -> bool:
    """Whether there is a plain file with exactly this content; raises OSError."""
    try:
        return hashlib.sha256(read_plain_file(path)).hexdigest() == sha256
    except (FileNotFoundError, UnusableFile):
        return False


def move_file(source: Path, target: Path) -> None:
    """Rename a file atomically, replacing the target; raises OSError."""
    source.replace(target)
    sync_folder(target.parent)
    if source.parent != target.parent:
        sync_folder(source.parent)


def remove_file(path: Path) -> None:
    """Remove a file if it exists; raises OSError."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)
