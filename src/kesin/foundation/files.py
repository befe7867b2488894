"""Files that only their owner can read, files that appear whole or not at all, folder syncs."""

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

UNFINISHED_SUFFIX: Final = ".tmp"
_SAFE_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FOLDER_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EACCES)


def open_regular_file(file: Path) -> BinaryIO:
    """Open a file for reading; a symbolic link is refused."""
    return os.fdopen(os.open(file, os.O_RDONLY | _SAFE_FLAGS), "rb")


def create_private_file(file: Path) -> BinaryIO:
    """Open a file for writing that only its owner can read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFE_FLAGS
    return os.fdopen(os.open(file, flags, 0o600), "wb")


def create_private_folders(folder: Path, top: Path | None = None) -> None:
    """Create folders below ``top`` that only their owner reads, each synced before it is filled."""
    if folder != top and not folder.is_dir():
        create_private_folders(folder.parent, top)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent)


def write_atomically(path: Path, data: bytes, *, prefix: str = "", mode: int = 0o666) -> None:
    """Write a hidden file, sync it to disk, then rename it to its name."""
    prefix = prefix or f".{path.name}."
    hidden = path.with_name(f"{prefix}{secrets.token_hex(4)}{UNFINISHED_SUFFIX}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS
    try:
        with os.fdopen(os.open(hidden, flags, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)
    except BaseException:
        with suppress(OSError):
            hidden.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk, where the filesystem supports it."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as problem:
        if problem.errno not in _NO_FOLDER_SYNC:
            raise
