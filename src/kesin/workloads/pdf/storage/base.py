"""Where finished PDFs are kept: what every storage promises.

Storage knows keys, not paths: moving the folder or the bucket breaks no reference. Missing and
down are different answers. Who is told *missing* may render again or say *gone*; who is told
*down* waits, or a network that blinked would cost a render of everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

KEY_MAX: Final = 512  # S3 takes 1 024 bytes, its prefix included
_SEGMENT: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._=@-]{0,126}[A-Za-z0-9_=@-])?"
_KEY: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT}){{0,15}}", re.ASCII)
_SHOWN: Final = 80
_UNFIT_IN_A_NAME: Final = re.compile(r'[\x00-\x1f\x7f-\x9f"\\/:*?<>|\ud800-\udfff]+')


class StorageError(Exception):
    """Something about the storage; its kinds say what."""


class StorageDown(StorageError):
    """It does not answer, refuses us, or is not there: nothing is known of what it holds."""


class NotStored(StorageError):
    """The storage answers, and holds nothing under this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"nothing is stored under {key!r}")
        self.key = key


class KeyTaken(StorageError):
    """Other bytes are stored under this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key!r} holds something else already: put it under a new key")
        self.key = key


class BadKey(StorageError, ValueError):
    """No key at all, or one that tries to leave its place."""


class StorageMisconfigured(StorageError, ValueError):
    """The address of the storage makes no sense."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What is known of an object without reading it."""

    key: str
    size: int
    changed_us: int  # by the storage's own clock
    mark: str = ""  # of these very bytes: what is written in their place has another; '' is none


class StorageBackend(Protocol):
    """Whole objects under keys. Each call raises BadKey for a bad key, else StorageDown at worst.

    Safe to share between threads; not to be carried over a fork.
    """

    def put_bytes(self, key: str, data: bytes, content_type: str) -> None:
        """Keep these bytes, durably and whole or not at all; the same bytes may be put again.

        Other bytes under a key in use raise KeyTaken. Of two who put at the same moment, some
        storages keep the last: who wants both makes two keys.
        """
        ...

    def get_bytes(self, key: str) -> bytes:
        """Everything under this key; raises NotStored."""
        ...

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """As ``get_bytes(key)[start:end]``, for downloads in parts; raises NotStored."""
        ...

    def head(self, key: str) -> Stored:
        """Size and age; raises NotStored."""
        ...

    def exists(self, key: str) -> bool:
        """Whether it is there; a storage that cannot tell raises StorageDown."""
        ...

    def delete(self, key: str) -> bool:
        """Let it be gone, and say whether it was there."""
        ...

    def list(self, prefix: str = "", *, before_us: int | None = None) -> Iterator[Stored]:
        """What is below these whole segments of keys, last changed before this time.

        Objects may be deleted meanwhile. What is not named as keys are is not ours, and not told.
        """
        ...

    def tidy(self, before_us: int) -> int:
        """Remove what writers that died before this time left half done; never an object."""
        ...

    def presign(self, key: str, seconds: int, filename: str) -> str | None:
        """A URL that gives this object to anybody for so long, or None if there can be none."""
        ...


def is_key(text: str) -> bool:
    """Whether this could be a key."""
    return len(text) <= KEY_MAX and _KEY.fullmatch(text) is not None


def check_key(key: str) -> str:
    """The key, if it is one; raises BadKey.

    Segments of letters, digits and ``._=@-`` that begin with a letter or a digit and do not end
    with a dot: no storage reads a path, a drive, a stream or an option into that.
    """
    if not is_key(key):
        shown = key[:_SHOWN] + ("…" if len(key) > _SHOWN else "")
        raise BadKey(
            f"{shown!r} is no key: up to 16 segments, with '/' between them, of 1…128 letters, "
            f"digits and '._=@-' that begin with a letter or a digit, {KEY_MAX} characters in all"
        )
    return key


def check_range(start: int, end: int) -> None:
    """Raise ValueError unless these can be the ends of a part."""
    if not 0 <= start <= end:
        raise ValueError(f"a part is 0 <= start <= end, got {start}…{end}")


def attachment(filename: str) -> str:
    """The Content-Disposition that saves under this name, whatever letters it has."""
    name = _UNFIT_IN_A_NAME.sub("_", filename).strip(" .")[:150] or "document.pdf"
    plain = re.sub(r"[^ -~]|[%;']", "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
