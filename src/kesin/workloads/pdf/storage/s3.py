"""Stores finished PDFs in a bucket of S3 or of a compatible server.

An upload is a single request: whole or not at all, checked by the server against its SHA-256, and
rejected if the key is in use (If-None-Match, if the server supports it).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError
from obstore.store import S3Store

from kesin.foundation.messages import Message
from kesin.workloads.pdf.storage.base import (
    KeyTaken,
    NotStored,
    StorageBackend,
    StorageDown,
    StorageMisconfigured,
    StoredObject,
    attachment_header,
    check_key,
    check_range,
    is_key,
)

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Config

DEFAULT_REGION: Final = "us-east-1"  # also the usual name for a self-hosted server
MAX_PRESIGN_S: Final = 7 * 24 * 3_600
_CONNECT_TIMEOUT: Final = timedelta(seconds=5)
_REQUEST_TIMEOUT: Final = timedelta(seconds=60)
_RETRY_TIMEOUT: Final = timedelta(seconds=90)
_RETRIES: Final = 3
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_REASON_LENGTH: Final = 300


@dataclass(frozen=True, slots=True, repr=False)
class S3Credentials:
    """Long-lived or temporary credentials, as AWS programs read them from the environment."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self | None:
        """Read the credentials of an environment; None if it has none."""
        key_id, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
        if not key_id or not secret:
            return None
        return cls(key_id, secret, environ.get("AWS_SESSION_TOKEN", ""))


class S3Storage(StorageBackend):
    """A bucket, or a prefix in it.

    Without ``credentials`` requests are signed as the machine's role, and nothing can be presigned.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str = "",
        region: str = "",
        conditional: bool = True,
        credentials: S3Credentials | None = None,
        retries: int = _RETRIES,
    ) -> None:
        self._name = f"s3://{bucket}/{prefix}".rstrip("/")
        self._conditional = conditional
        self._secret = credentials.secret_access_key if credentials else ""
        config: S3Config = {"region": region or DEFAULT_REGION, "checksum_algorithm": "SHA256"}
        config["disable_bulk_delete"] = True  # one key at a time; not every server supports bulk
        if endpoint:
            config["endpoint"] = endpoint
        if credentials:
            config["access_key_id"] = credentials.access_key_id
            config["secret_access_key"] = credentials.secret_access_key
            if credentials.session_token:
                config["session_token"] = credentials.session_token
        try:
            self._store = S3Store(
                bucket,
                prefix=prefix or None,
                config=config,
                client_options={
                    "allow_http": endpoint.startswith("http://"),
                    "connect_timeout": _CONNECT_TIMEOUT,
                    "timeout": _REQUEST_TIMEOUT,
                },
                retry_config={"max_retries": retries, "retry_timeout": _RETRY_TIMEOUT},
            )
        except (BaseError, ValueError, OSError) as error:
            raise StorageMisconfigured(
                Message(
                    "%(place)s cannot be used: %(problem)s",
                    place=self._name,
                    problem=_first_line(error),
                )
            ) from None

    def __repr__(self) -> str:
        return f"S3Storage({self._name!r})"

    def put_bytes(self, key: str, data: bytes, content_type: str) -> None:
        """Store these bytes.

        A key in use may hold our own upload: if its response was lost, the request was repeated.
        """
        check_key(key)
        with self._translated_errors():
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
        """Return all bytes under this key."""
        check_key(key)
        with self._translated_errors(key):
            return obstore.get(self._store, key).bytes().to_bytes()

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return a part of the bytes; cut from the whole if the server does not send a part.

        Servers reject a range that begins past the end, and some do not support ranges.
        """
        check_range(start, end)
        if start == end:
            self.head(key)
            return b""
        check_key(key)
        with self._translated_errors(key):
            try:
                return obstore.get_range(self._store, key, start=start, end=end).to_bytes()
            except GenericError:
                return self.get_bytes(key)[start:end]

    def head(self, key: str) -> StoredObject:
        """Return size and age."""
        check_key(key)
        with self._translated_errors(key):
            return _describe(obstore.head(self._store, key))

    def delete(self, key: str) -> bool:
        """Delete the object. S3 does not say whether it existed, so it is asked first."""
        if not self.exists(key):
            return False
        with self._translated_errors():
            obstore.delete(self._store, key)
        return True

    def list(self, prefix: str = "", *, before_us: int | None = None) -> Iterator[StoredObject]:
        """List the objects below a prefix, page by page."""
        if prefix:
            check_key(prefix)
        with self._translated_errors():
            for page in obstore.list(self._store, prefix or None):
                for stored in map(_describe, page):
                    fresh = before_us is not None and stored.modified_us >= before_us
                    if is_key(stored.key) and not fresh:
                        yield stored

    def delete_partial_writes(self, before_us: int) -> int:  # noqa: ARG002
        """Return 0: an upload in a single request leaves no partial write."""
        return 0

    def presign(self, key: str, seconds: int, filename: str) -> str | None:
        """Return a URL for a browser, which saves the object under this name."""
        check_key(key)
        if not 1 <= seconds <= MAX_PRESIGN_S:
            raise ValueError(f"a URL lives 1…{MAX_PRESIGN_S} s, got {seconds}")
        if not self._secret:
            return None
        with self._translated_errors():
            url = obstore.sign(self._store, "GET", key, timedelta(seconds=seconds))
        return _sign_with_parameters(
            url, {"response-content-disposition": attachment_header(filename)}, self._secret
        )

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self.get_bytes(key) == data
        except NotStored:
            return False

    @contextmanager
    def _translated_errors(self, key: str | None = None) -> Iterator[None]:
        """Raise StorageDown for what the server refuses; with a key, NotStored for no object."""
        try:
            try:
                yield
            except FileNotFoundError:
                if key is None:
                    raise
                next(iter(obstore.list(self._store, key)), None)  # fails if the bucket is missing
                raise NotStored(key) from None
        except (BaseError, OSError) as error:
            raise StorageDown(f"{self._name} does not serve: {_first_line(error)}") from error


def _describe(meta: ObjectMeta) -> StoredObject:
    modified_us = (meta["last_modified"] - _EPOCH) // timedelta(microseconds=1)
    return StoredObject(meta["path"], meta["size"], modified_us, meta["e_tag"] or "")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(": ")[:_MAX_REASON_LENGTH] or type(error).__name__


def _sign_with_parameters(url: str, parameters: Mapping[str, str], secret: str) -> str:
    """Add query parameters to a presigned URL and sign it again (AWS Signature V4)."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True)) | dict(parameters)
    del query["X-Amz-Signature"]
    pairs = sorted((quote(name, safe="-_.~"), quote(query[name], safe="-_.~")) for name in query)
    canonical = "&".join(f"{name}={value}" for name, value in pairs)
    request = f"GET\n{parts.path}\n{canonical}\nhost:{parts.netloc}\n\nhost\nUNSIGNED-PAYLOAD"
    scope = query["X-Amz-Credential"].split("/")[1:]  # day, region, service, "aws4_request"
    key = f"AWS4{secret}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    digest = hashlib.sha256(request.encode()).hexdigest()
    to_sign = "\n".join(("AWS4-HMAC-SHA256", query["X-Amz-Date"], "/".join(scope), digest))
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    return urlunsplit(parts._replace(query=f"{canonical}&X-Amz-Signature={signature}"))
