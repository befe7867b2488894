"""The uploads in the storage, under ``uploads/{owner}/{upload id}/{time of the upload}``.

The id is the hash of the bytes with their kind in front, so a schema refuses the wrong kind without
reading. To send a file again makes it usable for longer.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal

from kesin.lifecycle.budget import HOUR_S, SECOND_US
from kesin.workloads.pdf.errors import UPLOAD_GONE, RenderFailed, invalid_fields
from kesin.workloads.pdf.storage.base import NotStored, StorageBackend, StorageError, storage_down

Kind = Literal["pdf", "file"]

FOLDER: Final = "uploads"
PDF_ID_PATTERN: Final = r"^pdf-[0-9a-f]{64}$"
FILE_ID_PATTERN: Final = r"^file-[0-9a-f]{64}$"


class PdfUploads:
    """Stores and finds the uploads of owners."""

    def __init__(self, storage: StorageBackend, now: Callable[[], int], hours: int = 24) -> None:
        self._storage = storage
        self._now = now
        self._usable_us = hours * HOUR_S * SECOND_US

    def store(self, owner: str, data: bytes, kind: Kind) -> tuple[str, int]:
        """Store checked bytes; return their id, and until when new requests may name it."""
        upload_id, now = f"{kind}-{hashlib.sha256(data).hexdigest()}", self._now()
        try:
            key = f"{_folder(owner, upload_id)}/{now:016d}"
            self._storage.put_bytes(key, data, "application/octet-stream")
        except StorageError:
            raise storage_down() from None
        return upload_id, now + self._usable_us

    def require(self, owner: str, upload_id: str, field: str) -> int:
        """Return the size; raise Invalid at this field unless a new request may name the upload."""
        try:
            keys = self._keys(_folder(owner, upload_id))
            size = self._storage.head(keys[-1]).size if keys else 0
        except StorageError:
            raise storage_down() from None
        if not keys or _time_of(keys[-1]) <= self._now() - self._usable_us:
            why = "there is no such upload, or it has expired: upload the file again"
            raise invalid_fields([(field, why, "upload")], code="UPLOAD_NOT_FOUND")
        return size

    def read(self, owner: str, upload_id: str) -> bytes:
        """Return the bytes, also if new requests may no longer name them; raises RenderFailed."""
        for key in reversed(self._keys(_folder(owner, upload_id))):
            with suppress(NotStored):
                data = self._storage.get_bytes(key)
                if upload_id.endswith(hashlib.sha256(data).hexdigest()):
                    return data
        raise RenderFailed(UPLOAD_GONE, "the upload %(id)s is gone: upload it again", id=upload_id)

    def delete_old(self, ttl_hours: int) -> int:
        """Delete what no job needs any more, twice as old as such a job gets; return how many."""
        before = self._now() - 2 * (self._usable_us + ttl_hours * HOUR_S * SECOND_US)
        return sum(self._storage.delete(k) for k in self._keys(FOLDER) if _time_of(k) < before)

    def _keys(self, folder: str) -> list[str]:
        """The keys in a folder; those of an upload from the oldest."""
        keys = (file.key for file in self._storage.list(folder))
        return sorted(key for key in keys if key.rpartition("/")[2].isdecimal())


def _folder(owner: str, upload_id: str) -> str:
    return f"{FOLDER}/{hashlib.sha256(owner.encode()).hexdigest()[:16]}/{upload_id}"


def _time_of(key: str) -> int:
    return int(key.rpartition("/")[2])
