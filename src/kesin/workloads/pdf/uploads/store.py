"""The uploads in the storage, under ``uploads/{owner}/{upload id}/{time of the upload}``.

The id is the hash of the bytes with their kind in front, so a schema refuses the wrong kind without
reading. To send a file again makes it usable for longer.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, Literal

from kesin.foundation.messages import Message
from kesin.lifecycle.budget import HOUR_S, SECOND_US
from kesin.workloads.pdf.errors import UPLOAD_GONE, RenderFailed, invalid_fields
from kesin.workloads.pdf.limits import MAX_HTML_BYTES
from kesin.workloads.pdf.storage.base import NotStored, StorageBackend, StorageError, storage_down
from kesin.workloads.pdf.templating.pictures import find_texts, picture_type, pixel_count

Kind = Literal["pdf", "file"]

FOLDER: Final = "uploads"
PDF_ID_PATTERN: Final = r"^pdf-[0-9a-f]{64}$"
FILE_ID_PATTERN: Final = r"^file-[0-9a-f]{64}$"
RULE: Final = "upload"  # that a reference breaks
MAX_PICTURES: Final = 20  # in the variables of a document
_PREFIX: Final = "upload:"
_REFERENCE: Final = re.compile(rf"{_PREFIX}file-[0-9a-f]{{64}}")


class PdfUploads:
    """Stores and finds the uploads of owners, also as pictures for their variables."""

    def __init__(self, storage: StorageBackend, now: Callable[[], int], hours: int = 24) -> None:
        self._storage = storage
        self._now = now
        self._usable_us = hours * HOUR_S * SECOND_US
        # The last pictures are kept: documents of an owner share a logo.
        self._uri = lru_cache(MAX_PICTURES)(self._read_uri)

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

    def insert_pictures(self, owner: str, variables: Mapping[str, Any], usable: set[str] | None = None) -> Any:
        """Return the variables with the pictures; raises RenderFailed and StorageError.

        For a new request, ``usable`` holds uploads that it may name; others are checked and added.
        Raises Invalid with the path for what cannot be used.
        """
        used: dict[str, str] = {}
        for path, text in find_texts(_REFERENCE.fullmatch, variables):
            upload_id = text.removeprefix(_PREFIX)
            if usable is not None and upload_id not in usable:
                self.require(owner, upload_id, path)
                usable.add(upload_id)
            used[text] = self._uri(owner, upload_id)
            if not used[text]:
                why = "must be a picture: PNG, JPEG, GIF or WebP"
                raise invalid_fields([(path, why, RULE)])
            if len(used) > MAX_PICTURES or sum(map(len, used.values())) > MAX_HTML_BYTES:
                why = "with it, there are more than %(n)s pictures, or more than %(most)s bytes"
                why = Message(why, n=MAX_PICTURES, most=MAX_HTML_BYTES)
                raise invalid_fields([(path, why, RULE)])
        return _replace(variables, used) if used else variables

    def _read_uri(self, owner: str, upload_id: str) -> str:
        """Return the data: URI of an upload; empty for what is no picture."""
        data = self.read(owner, upload_id)
        if pixel_count(data) is None:
            return ""
        return f"data:{picture_type(data)};base64,{base64.b64encode(data).decode()}"

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


def has_uploads(variables: Mapping[str, Any]) -> bool:
    return any(find_texts(_REFERENCE.fullmatch, variables))


def _replace(value: Any, texts: Mapping[str, str]) -> Any:
    """Return a value with other texts in place of these, wherever they are in it."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, Mapping):
        return {name: _replace(inner, texts) for name, inner in value.items()}
    return [_replace(inner, texts) for inner in value] if isinstance(value, list) else value
