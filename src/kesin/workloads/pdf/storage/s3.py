"""Finished PDFs in a bucket of S3, or of anything that speaks like it.

An upload is one request: whole or not at all, checked by the server against its SHA-256, and
refused where the key is in use (If-None-Match, where the server knows it).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NoReturn, Self
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError
from obstore.store import S3Store

from kesin.workloads.pdf.storage.base import (
    KeyTaken,
    NotStored,
    StorageDown,
    StorageMisconfigured,
    Stored,
    attachment,
    check_key,
    check_range,
    is_key,
)

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Config

DEFAULT_REGION: Final = "us-east-1"  # what servers of one's own call themselves, too
PRESIGNED_MAX_S: Final = 7 * 24 * 3_600
_CONNECT: Final = timedelta(seconds=5)
_REQUEST: Final = timedelta(seconds=60)
_ALL_TRIES: Final = timedelta(seconds=90)
_RETRIES: Final = 3
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_REASON_MAX: Final = 300


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """Long-lived or temporary credentials, as AWS programs take them from the environment."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self | None:
        """Those of an environment, or None if it has none."""
        name, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
        if not name or not secret:
            return None
        return cls(name, secret, environ.get("AWS_SESSION_TOKEN", ""))


class S3Storage:
    """A bucket, or what is below a prefix in it.

    Without ``keys`` requests are signed as the machine's role, and nothing can be presigned.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str = "",
        region: str = "",
        conditional: bool = True,
        keys: Keys | None = None,
        retries: int = _RETRIES,
    ) -> None:
        self._name = f"s3://{bucket}/{prefix}".rstrip("/")
        self._conditional = conditional
        self._secret = keys.secret_access_key if keys else ""
        config: S3Config = {"region": region or DEFAULT_REGION, "checksum_algorithm": "SHA256"}
        config["disable_bulk_delete"] = True  # one key at a time; not every server knows bulk
        if endpoint:
            config["endpoint"] = endpoint
        if keys:
            config["access_key_id"] = keys.access_key_id
            config["secret_access_key"] = keys.secret_access_key
            if keys.session_token:
                config["session_token"] = keys.session_token
        try:
            self._store = S3Store(
                bucket,
                prefix=prefix or None,
                config=config,
                client_options={
                    "allow_http": endpoint.startswith("http://"),
                    "connect_timeout": _CONNECT,
                    "timeout": _REQUEST,
                },
                retry_config={"max_retries": retries, "retry_timeout": _ALL_TRIES},
            )
        except (BaseError, ValueError, OSError) as error:
            raise StorageMisconfigured(
                f"{self._name} cannot be used: {_first_line(error)}"
            ) from None

    def __repr__(self) -> str:
        return f"S3Storage({self._name!r})"

    def put_bytes(self, key: str, data: bytes, content_type: str) -> None:
        """Keep these bytes.

        A key in use may be our own doing: an upload whose answer was lost is sent again.
        """
        check_key(key)
        with self._minding():
            try:
                obstore.put(
                    self._store,
                    key,
                    data,
                    attributes={"Content-Type": content_type},
                    mode="create" if self._conditional else "overwrite",
                    use_multipart=False,
                )
            except AlreadyExistsError:
                if not self._holds(key, data):
                    raise KeyTaken(key) from None

    def get_bytes(self, key: str) -> bytes:
        """Everything under this key."""
        check_key(key)
        with self._minding():
            try:
                return obstore.get(self._store, key).bytes().to_bytes()
            except FileNotFoundError:
                self._missing(key)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """A part of it; cut from the whole where the server will not send a part.

        Servers refuse a part that begins past the end, and some know no parts at all.
        """
        check_range(start, end)
        if start == end:
            self.head(key)
            return b""
        check_key(key)
        with self._minding():
            try:
                return obstore.get_range(self._store, key, start=start, end=end).to_bytes()
            except FileNotFoundError:
                self._missing(key)
            except GenericError:
                return self.get_bytes(key)[start:end]

    def head(self, key: str) -> Stored:
        """Size and age."""
        check_key(key)
        with self._minding():
            try:
                return _stored(obstore.head(self._store, key))
            except FileNotFoundError:
                self._missing(key)

    def exists(self, key: str) -> bool:
        """Whether it is there."""
        try:
            self.head(key)
        except NotStored:
            return False
        return True

    def delete(self, key: str) -> bool:
        """Remove it. S3 does not say whether it was there, so it is asked first."""
        if not self.exists(key):
            return False
        with self._minding():
            obstore.delete(self._store, key)
        return True

    def list(self, prefix: str = "", *, before_us: int | None = None) -> Iterator[Stored]:
        """What is below a prefix, page by page."""
        if prefix:
            check_key(prefix)
        with self._minding():
            for page in obstore.list(self._store, prefix or None):
                for found in map(_stored, page):
                    fresh = before_us is not None and found.changed_us >= before_us
                    if is_key(found.key) and not fresh:
                        yield found

    def tidy(self, before_us: int) -> int:  # noqa: ARG002
        """0: an upload in one request leaves nothing half done."""
        return 0

    def presign(self, key: str, seconds: int, filename: str) -> str | None:
        """A URL for a browser, which saves the object under this name."""
        check_key(key)
        if not 1 <= seconds <= PRESIGNED_MAX_S:
            raise ValueError(f"a URL lives 1…{PRESIGNED_MAX_S} s, got {seconds}")
        if not self._secret:
            return None
        with self._minding():
            url = obstore.sign(self._store, "GET", key, timedelta(seconds=seconds))
        return _signed_again(
            url, {"response-content-disposition": attachment(filename)}, self._secret
        )

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self.get_bytes(key) == data
        except NotStored:
            return False

    def _missing(self, key: str) -> NoReturn:
        """Raise NotStored, if the bucket is there: to HEAD, a missing one looks the same."""
        next(iter(obstore.list(self._store, key)), None)
        raise NotStored(key) from None

    @contextmanager
    def _minding(self) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            raise StorageDown(f"{self._name} does not serve: {_first_line(error)}") from error


def _stored(found: ObjectMeta) -> Stored:
    changed = found["last_modified"] - _EPOCH
    changed_us = changed // timedelta(microseconds=1)
    return Stored(found["path"], found["size"], changed_us, found["e_tag"] or "")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(": ")[:_REASON_MAX] or type(error).__name__


def _signed_again(url: str, more: Mapping[str, str], secret: str) -> str:
    """The same URL with more in its query, which its signature must cover (AWS Signature V4)."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True)) | dict(more)
    del query["X-Amz-Signature"]
    pairs = sorted((quote(name, safe="-_.~"), quote(query[name], safe="-_.~")) for name in query)
    canonical = "&".join(f"{name}={value}" for name, value in pairs)
    request = f"GET\n{parts.path}\n{canonical}\nhost:{parts.netloc}\n\nhost\nUNSIGNED-PAYLOAD"
    scope = query["X-Amz-Credential"].split("/")[1:]  # day, region, service, "aws4_request"
    key = f"AWS4{secret}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    digest = hashlib.sha256(request.encode()).hexdigest()
    told = "\n".join(("AWS4-HMAC-SHA256", query["X-Amz-Date"], "/".join(scope), digest))
    signature = hmac.digest(key, told.encode(), "sha256").hex()
    return urlunsplit(parts._replace(query=f"{canonical}&X-Amz-Signature={signature}"))
