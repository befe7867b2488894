"""The interface of storages: a PDF that is *missing* is rendered again, while *down* may pass."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote

from kesin.foundation.problems import Unavailable

STORAGE_DOWN: Final = "STORAGE_DOWN"
MAX_KEY_LENGTH: Final = 512  # S3 takes 1 024 bytes, its prefix included
_SEGMENT: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._=@-]{0,126}[A-Za-z0-9_=@-])?"
_KEY: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT}){{0,15}}", re.ASCII)
_MAX_SHOWN: Final = 80
_UNSAFE_IN_FILE_NAME: Final = re.compile(r'[\x00-\x1f\x7f-\x9f"\\/:*?<>|\ud800-\udfff]+')


class StorageError(Exception):
    """The base of all storage errors."""


class StorageDown(StorageError):
    """The storage does not answer, denies access or is missing: its contents are unknown."""


class NotStored(StorageError):
    """The storage answers and has no object under this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"nothing is stored under {key!r}")


def storage_down() -> Unavailable:
    """The answer to a request that needs the storage while it is down."""
    return Unavailable("the storage is not responding: try again", code=STORAGE_DOWN)


class KeyTaken(StorageError):
    """Other bytes are stored under this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key!r} already holds other data: use a new key")


class BadKey(StorageError, ValueError):
    """The key is malformed, or leads out of the storage."""


class StorageMisconfigured(StorageError, ValueError):
    """The address of the storage is invalid."""


class StoredObject(NamedTuple):
    """The metadata of an object, known without reading it."""

    key: str
    size: int
    modified_us: int  # by the storage's own clock
    fingerprint: str = ""  # changes whenever the bytes do; empty if unknown


class StorageBackend(Protocol):
    """Stores objects under keys; not across forks. All may raise BadKey and StorageDown."""

    def put_bytes(self, key: str, data: bytes, content_type: str) -> None:
        """Store these bytes durably, whole or not at all; the same bytes may be put again.

        Other bytes under a key in use raise KeyTaken. Of two writes at the same moment, some
        storages keep the last: callers use a new key for each write.
        """

    def get_bytes(self, key: str) -> bytes:
        """Return all bytes under this key; raises NotStored."""

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return ``get_bytes(key)[start:end]``, for downloads in parts; raises NotStored."""

    def head(self, key: str) -> StoredObject:
        """Return size and age; raises NotStored."""

    def exists(self, key: str) -> bool:
        """Whether the object exists; raises StorageDown if that is unknown."""
        try:
            self.head(key)
        except NotStored:
            return False
        return True

    def delete(self, key: str) -> bool:
        """Delete the object and return whether it existed."""

    def list(self, prefix: str = "", *, before_us: int | None = None) -> Iterator[StoredObject]:
        """List objects below whole segments, last modified before this time; some may vanish."""

    def presign(self, key: str, seconds: int) -> str | None:  # noqa: ARG002  # most have none
        """Return an address that serves this object without credentials, None if there is none."""
        return None

    def delete_partial_writes(self, before_us: int) -> int:  # noqa: ARG002  # a bucket has none
        """Delete partial writes from before this time, left by dead writers; never an object."""
        return 0


def is_key(text: str) -> bool:
    return len(text) <= MAX_KEY_LENGTH and _KEY.fullmatch(text) is not None


def check_key(key: str) -> str:
    """Return a key that no storage reads as a path, drive, stream or option; raises BadKey."""
    if not is_key(key):
        shown = key[:_MAX_SHOWN] + ("…" if len(key) > _MAX_SHOWN else "")
        raise BadKey(
            f"{shown!r} is not a key: up to 16 segments, with '/' between them, of 1…128 letters, "
            "digits and '._=@-' that begin with a letter or a digit, "
            f"{MAX_KEY_LENGTH} characters in all"
        )
    return key


def check_range(start: int, end: int) -> None:
    if not 0 <= start <= end:
        raise ValueError(f"a part is 0 <= start <= end, got {start}…{end}")


def attachment_header(filename: str) -> str:
    """Build the Content-Disposition that saves under this name, in any script."""
    name = _UNSAFE_IN_FILE_NAME.sub("_", filename).strip(" .")[:150] or "document.pdf"
    plain = re.sub(r"[^ -~]|[%;']", "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
