"""Stores PDFs in a folder, each whole or not at all; a disk without its marker is *down*."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Final

from kesin.foundation import files
from kesin.workloads.pdf.storage import base
from kesin.workloads.pdf.storage.base import KeyTaken, StorageDown, StoredObject

MARKER: Final = ".kesin-artifacts"
_PARTIAL_PREFIX: Final = ".put-"
_PUT_ATTEMPTS: Final = 5  # to write into a folder that another process deletes while it is empty
_ABSENT_ERRORS: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalStorage(base.StorageBackend):
    """A folder, created if missing. Only the owner can read its files."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._base = folder.resolve()
            (self._base / MARKER).touch(mode=0o600)
        except OSError as error:
            raise StorageDown(f"the folder {folder} cannot be used: {error.strerror}") from None

    def __repr__(self) -> str:
        return f"LocalStorage({str(self._base)!r})"

    def put_bytes(self, key: str, data: bytes, content_type: str) -> None:  # noqa: ARG002
        """Store these bytes. The content type is not stored; the file name's suffix implies it."""
        path = self._path(key)
        with self._translated_errors():
            self._require_folder()
            for _ in range(_PUT_ATTEMPTS):
                try:
                    if path.exists():
                        if path.read_bytes() != data:
                            raise KeyTaken(key)
                        return files.sync_folder(path.parent)
                    files.create_private_folders(path.parent, self._base)
                    return files.write_atomically(path, data, prefix=_PARTIAL_PREFIX, mode=0o600)
                except FileNotFoundError:
                    continue  # its empty folder was deleted meanwhile
                except (FileExistsError, NotADirectoryError, IsADirectoryError):
                    raise KeyTaken(key) from None
        raise StorageDown(f"the folder of {key!r} keeps vanishing")

    def get_bytes(self, key: str) -> bytes:
        path = self._path(key)
        with self._translated_errors(key):
            return path.read_bytes()

    def get_range(self, key: str, start: int, end: int) -> bytes:
        base.check_range(start, end)
        path = self._path(key)
        with self._translated_errors(key), path.open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    def head(self, key: str) -> StoredObject:
        path = self._path(key)
        with self._translated_errors(key):
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError(key)
        return _describe(key, status)

    def delete(self, key: str) -> bool:
        """Delete the file and empty folders, not synced: one that reappears is an orphan."""
        path = self._path(key)
        try:
            with self._translated_errors(key):
                path.unlink()
        except base.NotStored:
            return False
        with suppress(OSError):  # the first that is not empty
            for folder in takewhile(lambda folder: folder != self._base, path.parents):
                folder.rmdir()
        return True

    def list(self, prefix: str = "", *, before_us: int | None = None) -> Iterator[StoredObject]:
        top = self._path(prefix) if prefix else self._base
        with self._translated_errors():
            self._require_folder()
            for folder, _, names in os.walk(top, onerror=_raise_unless_absent):
                for path in (Path(folder, name) for name in sorted(names)):
                    with suppress(*_ABSENT_ERRORS):
                        status = path.lstat()
                        stored = _describe(path.relative_to(self._base).as_posix(), status)
                        # The marker, partial writes and links are no objects.
                        ours = base.is_key(stored.key) and stat.S_ISREG(status.st_mode)
                        if ours and (before_us is None or stored.modified_us < before_us):
                            yield stored

    def delete_partial_writes(self, before_us: int) -> int:
        """Delete hidden files that were never renamed, and empty folders."""
        removed = 0
        with self._translated_errors():
            self._require_folder()
            walk = os.walk(self._base, topdown=False, onerror=_raise_unless_absent)
            for folder, names in ((Path(path), files) for path, _, files in walk):
                for name in names:
                    with suppress(*_ABSENT_ERRORS):
                        partial, path = name.startswith(_PARTIAL_PREFIX), folder / name
                        if partial and path.stat().st_mtime_ns // 1_000 < before_us:
                            path.unlink()
                            removed += 1
                if folder != self._base:
                    with suppress(OSError):
                        folder.rmdir()
        return removed

    def _path(self, key: str) -> Path:
        path = self._base / base.check_key(key)
        with self._translated_errors():
            if path.resolve().is_relative_to(self._base):
                return path
        raise base.BadKey(f"{key!r} leads out of the storage: its path contains a link")

    def _require_folder(self) -> None:
        try:
            (self._base / MARKER).stat()
        except _ABSENT_ERRORS:
            raise StorageDown(
                f"the folder {self._base} is not the one that was opened (it has no {MARKER}): "
                "mount its disk, or restart to create a new one"
            ) from None

    @contextmanager
    def _translated_errors(self, key: str | None = None) -> Iterator[None]:
        """Raise StorageDown for what the system refuses; with a key, NotStored for no file."""
        try:
            try:
                yield
            except _ABSENT_ERRORS:
                if key is None:
                    raise
                self._require_folder()
                raise base.NotStored(key) from None
        except (OSError, RuntimeError) as error:  # the second is pathlib's for a loop of links
            reason = getattr(error, "strerror", str(error)) or type(error).__name__
            raise StorageDown(f"the folder {self._base} does not work: {reason}") from error


def _describe(key: str, status: os.stat_result) -> StoredObject:
    """Describe a file; its modification time can be set back, the inode's change time cannot."""
    times = f"{status.st_mtime_ns}-{status.st_ctime_ns}"
    fingerprint = f"{status.st_dev}-{status.st_ino}-{status.st_size}-{times}"
    return StoredObject(key, status.st_size, status.st_mtime_ns // 1_000, fingerprint)


def _raise_unless_absent(error: OSError) -> None:
    if not isinstance(error, _ABSENT_ERRORS):
        raise error
