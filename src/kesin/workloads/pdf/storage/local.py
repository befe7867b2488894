"""Finished PDFs in a folder of this machine.

A file appears under its name with all its bytes on the disk, or not at all: it is written beside
its place under a hidden name, synced, and renamed. A marker lies in the folder, so that a disk
that is not mounted is *down* and not *empty*.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

from kesin.workloads.pdf.storage.base import (
    BadKey,
    KeyTaken,
    NotStored,
    StorageDown,
    Stored,
    check_key,
    check_range,
    is_key,
)

MARKER: Final = ".kesin-artifacts"
_HALF_DONE: Final = ".put-"
_TRIES: Final = 5  # to write into a folder that somebody else removes because it is empty
_ABSENT: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalStorage:
    """A folder, made if it is not there. Files are for the owner's eyes only."""

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
        """Keep these bytes; a folder has no place for their type, and the name ends with it."""
        path = self._path(key)
        with self._minding():
            self._require_folder()
            for _ in range(_TRIES):
                try:
                    if path.exists():
                        return self._compare(key, path, data)
                    _make_folders(self._base, path.parent)
                    return _write(path, data)
                except FileNotFoundError:
                    continue  # its folder was empty for a moment, and was tidied away
                except (FileExistsError, NotADirectoryError, IsADirectoryError):
                    raise KeyTaken(key) from None
        raise StorageDown(f"the folder of {key!r} vanishes as often as it is made")

    def get_bytes(self, key: str) -> bytes:
        """Everything under this key."""
        path = self._path(key)
        with self._minding():
            try:
                return path.read_bytes()
            except _ABSENT:
                self._missing(key)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """A part of it."""
        check_range(start, end)
        path = self._path(key)
        with self._minding():
            try:
                with path.open("rb") as file:
                    file.seek(start)
                    return file.read(end - start)
            except _ABSENT:
                self._missing(key)

    def head(self, key: str) -> Stored:
        """Size and age."""
        path = self._path(key)
        with self._minding():
            try:
                found = path.stat()
            except _ABSENT:
                self._missing(key)
            if not stat.S_ISREG(found.st_mode):
                self._missing(key)
        return _stored(key, found)

    def exists(self, key: str) -> bool:
        """Whether it is there."""
        try:
            self.head(key)
        except NotStored:
            return False
        return True

    def delete(self, key: str) -> bool:
        """Remove the file, and its folders where they are empty.

        Not synced: a file that a crash brings back is an orphan, and swept.
        """
        if not self.exists(key):
            return False
        path = self._path(key)
        with self._minding():
            try:
                path.unlink()
            except FileNotFoundError:
                return False
        for folder in path.parents:
            if folder == self._base or not _remove_if_empty(folder):
                break
        return True

    def list(self, prefix: str = "", *, before_us: int | None = None) -> Iterator[Stored]:
        """The files below a folder."""
        top = self._path(prefix) if prefix else self._base
        with self._minding():
            self._require_folder()
            for folder, _, names in os.walk(top, onerror=_unless_absent):
                for path in (Path(folder, name) for name in sorted(names)):
                    with suppress(*_ABSENT):
                        found = self._listed(path)
                        if found and (before_us is None or found.changed_us < before_us):
                            yield found

    def tidy(self, before_us: int) -> int:
        """Remove hidden files that were never renamed, and empty folders."""
        removed = 0
        with self._minding():
            self._require_folder()
            for folder, _, names in os.walk(self._base, topdown=False, onerror=_unless_absent):
                for name in names:
                    path = Path(folder, name)
                    with suppress(*_ABSENT):
                        if name.startswith(_HALF_DONE) and _changed_us(path) < before_us:
                            path.unlink()
                            removed += 1
                if Path(folder) != self._base:
                    _remove_if_empty(Path(folder))
        return removed

    def presign(self, key: str, seconds: int, filename: str) -> str | None:  # noqa: ARG002
        """None: a folder has no door of its own."""
        check_key(key)
        return None

    def _path(self, key: str) -> Path:
        path = self._base / check_key(key)
        with self._minding():
            if path.resolve().is_relative_to(self._base):
                return path
        raise BadKey(f"{key!r} leads out of the storage: a link stands in its way")

    def _compare(self, key: str, path: Path, data: bytes) -> None:
        if path.read_bytes() != data:
            raise KeyTaken(key)
        _sync(path.parent)

    def _listed(self, path: Path) -> Stored | None:
        """As it is told, or None for what is no object: our marker, half-done files, links."""
        key, found = path.relative_to(self._base).as_posix(), path.lstat()
        if not is_key(key) or not stat.S_ISREG(found.st_mode):
            return None
        return _stored(key, found)

    def _missing(self, key: str) -> NoReturn:
        self._require_folder()
        raise NotStored(key) from None

    def _require_folder(self) -> None:
        try:
            (self._base / MARKER).stat()
        except _ABSENT:
            raise StorageDown(
                f"the folder {self._base} is not the one that was opened (it has no {MARKER}): "
                "mount its disk, or restart to begin a new one"
            ) from None

    @contextmanager
    def _minding(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise StorageDown(f"the folder {self._base} does not serve: {reason}") from error
        except RuntimeError as error:  # how pathlib tells of links that go in a circle
            raise StorageDown(f"the folder {self._base} does not serve: {error}") from error


def _stored(key: str, found: os.stat_result) -> Stored:
    """A time of change can be set back by hand, and the inode's own cannot: the mark has both."""
    times = f"{found.st_mtime_ns}-{found.st_ctime_ns}"
    mark = f"{found.st_dev}-{found.st_ino}-{found.st_size}-{times}"
    return Stored(key, found.st_size, found.st_mtime_ns // 1_000, mark)


def _write(path: Path, data: bytes) -> None:
    handle, hidden = tempfile.mkstemp(prefix=_HALF_DONE, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(hidden, path)  # noqa: PTH105 - the name of the one atomic call
    except BaseException:
        with suppress(OSError):
            Path(hidden).unlink()
        raise
    _sync(path.parent)


def _make_folders(base: Path, folder: Path) -> None:
    """Make what is missing between them, each name on the disk before anything is put below it."""
    if folder == base or folder.is_dir():
        return
    _make_folders(base, folder.parent)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_if_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def _changed_us(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, _ABSENT):
        raise error
