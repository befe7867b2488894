"""The uploads in the storage: no table, only keys.

A key is ``uploads/{owner}/{upload id}/{time of the upload}``. The id is the hash of the bytes with
their kind in front, so the same file has the same id, its bytes never change, and a schema refuses
the wrong kind without reading. To send a file again makes it usable for longer.
"""

import hashlib
from collections.abc import Callable
from typing import Final, Literal

from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid
from kesin.lifecycle.budget import HOUR_S, SECOND_US
from kesin.workloads.pdf.errors import UPLOAD_GONE, RenderFailed
from kesin.workloads.pdf.storage.base import NotStored, StorageBackend

Kind = Literal["pdf", "file"]

FOLDER: Final = "uploads"
UPLOAD_HOURS: Final = 24
UPLOAD_NOT_FOUND: Final = "UPLOAD_NOT_FOUND"
PDF_ID_PATTERN: Final = r"^pdf-[0-9a-f]{64}$"
FILE_ID_PATTERN: Final = r"^file-[0-9a-f]{64}$"


class PdfUploads:
    """Stores and finds the uploads of owners. Every method may raise StorageDown."""

    def __init__(
        self, storage: StorageBackend, now: Callable[[], int], hours: int = UPLOAD_HOURS
    ) -> None:
        self._storage = storage
        self._now = now
        self._usable_us = hours * HOUR_S * SECOND_US

    def store(self, owner: str, data: bytes, kind: Kind) -> tuple[str, int]:
        """Store checked bytes; return their id, and until when new requests may name it."""
        upload_id, now = f"{kind}-{hashlib.sha256(data).hexdigest()}", self._now()
        key = f"{_folder(owner)}/{upload_id}/{now:016d}"
        self._storage.put_bytes(key, data, "application/octet-stream")
        return upload_id, now + self._usable_us

    def require(self, owner: str, upload_id: str, field: str) -> None:
        """Raise Invalid at this field unless a new request of the owner may name the upload."""
        keys = self._keys(owner, upload_id)
        if not keys or _time_of(keys[-1]) <= self._now() - self._usable_us:
            why = Message("there is no such upload, or it has expired: POST /pdf/uploads")
            details = {"fields": [{"field": field, "message": why, "rule": "upload"}]}
            raise Invalid(
                "%(field)s: %(problem)s",
                code=UPLOAD_NOT_FOUND,
                details=details,
                field=field,
                problem=why,
            )

    def read(self, owner: str, upload_id: str) -> bytes:
        """Return the bytes, also of an upload that new requests may no longer name.

        Raises RenderFailed if they are gone or damaged.
        """
        for key in reversed(self._keys(owner, upload_id)):
            try:
                data = self._storage.get_bytes(key)
            except NotStored:
                continue
            if upload_id.endswith(hashlib.sha256(data).hexdigest()):
                return data
        raise RenderFailed(UPLOAD_GONE, "the upload %(id)s is gone: send it again", id=upload_id)

    def delete_old(self, ttl_hours: int) -> int:
        """Delete uploads twice as old as any job that needs them gets; return how many.

        ``ttl_hours``: how long a job is kept.
        """
        before = self._now() - 2 * (self._usable_us + ttl_hours * HOUR_S * SECOND_US)
        old = [key for key in self._listed(FOLDER) if _time_of(key) < before]
        return sum(map(self._storage.delete, old))

    def _keys(self, owner: str, upload_id: str) -> list[str]:
        """The keys of an upload, the oldest first."""
        return sorted(self._listed(f"{_folder(owner)}/{upload_id}"))

    def _listed(self, prefix: str) -> list[str]:
        keys = (file.key for file in self._storage.list(prefix))
        return [key for key in keys if key.rpartition("/")[2].isdecimal()]


def _folder(owner: str) -> str:
    return f"{FOLDER}/{hashlib.sha256(owner.encode()).hexdigest()[:16]}"


def _time_of(key: str) -> int:
    return int(key.rpartition("/")[2])
