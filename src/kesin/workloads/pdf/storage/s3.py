"""Stores PDFs in a bucket, each by one request with its SHA-256 and, if it can, If-None-Match."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError
from obstore.store import S3Store

from kesin.foundation.messages import Message
from kesin.workloads.pdf.storage import base
from kesin.workloads.pdf.storage.base import StoredObject

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Config

DEFAULT_REGION: Final = "us-east-1"  # also the usual name for a self-hosted server
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class S3Storage(base.StorageBackend):
    """A bucket, or a prefix in it. obstore finds the credentials as AWS programs do."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str = "",
        region: str = "",
        conditional: bool = True,  # not every server supports If-None-Match
        redirect: bool = True,  # not every server can be reached by the users of links
        retries: int = 3,
    ) -> None:
        self._name = f"s3://{bucket}/{prefix}".rstrip("/")
        self._conditional = conditional
        self._redirect = redirect
        config: S3Config = {"region": region or DEFAULT_REGION, "checksum_algorithm": "SHA256"}
        config["disable_bulk_delete"] = True  # one key at a time; not every server supports bulk
        if endpoint:
            config["endpoint"] = endpoint
        try:
            self._store = S3Store(
                bucket,
                prefix=prefix or None,
                config=config,
                client_options={
                    "allow_http": endpoint.startswith("http://"),
                    "connect_timeout": timedelta(seconds=5),
                    "timeout": timedelta(seconds=60),
                },
                retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=90)},
            )
        except (BaseError, ValueError, OSError) as error:
            why = _first_line(error)
            text = Message("%(place)s cannot be used: %(problem)s", place=self._name, problem=why)
            raise base.StorageMisconfigured(text) from None

    def __repr__(self) -> str:
        return f"S3Storage({self._name!r})"

    def put_bytes(self, key: str, data: bytes, content_type: str) -> None:
        """Store these bytes; a key in use may hold our own upload whose response was lost."""
        base.check_key(key)
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
                with suppress(base.NotStored):
                    if self.get_bytes(key) == data:
                        return
                raise base.KeyTaken(key) from None

    def get_bytes(self, key: str) -> bytes:
        with self._translated_errors(key):
            return obstore.get(self._store, key).bytes().to_bytes()

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return a part; cut from the whole if the server does not send a part."""
        base.check_range(start, end)
        if start == end:
            self.head(key)
            return b""
        with self._translated_errors(key):
            try:
                return obstore.get_range(self._store, key, start=start, end=end).to_bytes()
            except GenericError:
                return self.get_bytes(key)[start:end]

    def head(self, key: str) -> base.StoredObject:
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
        if prefix:
            base.check_key(prefix)
        with self._translated_errors():
            for page in obstore.list(self._store, prefix or None):
                for stored in map(_describe, page):
                    fresh = before_us is not None and stored.modified_us >= before_us
                    if base.is_key(stored.key) and not fresh:
                        yield stored

    def presign(self, key: str, seconds: int) -> str | None:
        with self._translated_errors(key):
            expires_in = timedelta(seconds=seconds)
            return obstore.sign(self._store, "GET", key, expires_in) if self._redirect else None

    @contextmanager
    def _translated_errors(self, key: str | None = None) -> Iterator[None]:
        """Raise StorageDown for what the server refuses; with a key, NotStored for no object."""
        if key is not None:
            base.check_key(key)
        try:
            try:
                yield
            except FileNotFoundError:
                if key is None:
                    raise
                next(iter(obstore.list(self._store, key)), None)  # fails if the bucket is missing
                raise base.NotStored(key) from None
        except (BaseError, OSError) as error:
            raise base.StorageDown(f"{self._name} does not work: {_first_line(error)}") from error


def _describe(meta: "ObjectMeta") -> base.StoredObject:
    modified_us = (meta["last_modified"] - _EPOCH) // timedelta(microseconds=1)
    return base.StoredObject(meta["path"], meta["size"], modified_us, meta["e_tag"] or "")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(": ")[:300] or type(error).__name__
