"""Opens the storage at an address."""

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from kesin.workloads.pdf.storage.base import BadKey, StorageBackend, StorageMisconfigured, check_key
from kesin.workloads.pdf.storage.local import LocalStorage

_S3_OPTIONS: Final = frozenset({"endpoint", "region", "conditional", "redirect"})


def open_storage(url: str) -> StorageBackend:
    """Open a folder, ``file:///folder`` or ``s3://bucket/prefix``, which may have options."""
    scheme, separator, _ = url.partition("://")
    if not url.strip():
        raise StorageMisconfigured("the storage address is empty: set a folder or s3://…")
    if not separator:
        return _open_folder(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise StorageMisconfigured("the storage address is not valid") from None
    if scheme == "file":
        if parts.netloc not in {"", "localhost"} or not parts.path.strip("/"):
            raise StorageMisconfigured(f"expected file:///folder, got {url!r}")
        return _open_folder(unquote(parts.path))
    if scheme == "s3":
        return _open_bucket(parts)
    raise StorageMisconfigured(f"unknown storage {scheme}://: use a folder, file:// or s3://")


def _open_folder(path: str) -> StorageBackend:
    if "\0" in path:
        raise StorageMisconfigured("a folder's name must not contain NUL")
    return LocalStorage(Path(path))


def _open_bucket(parts: SplitResult) -> StorageBackend:
    if "@" in parts.netloc:
        raise StorageMisconfigured(
            "credentials do not belong in a storage address: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}", parts.netloc):
        raise StorageMisconfigured(f"expected s3://bucket/prefix, got the bucket {parts.netloc!r}")
    prefix = unquote(parts.path).strip("/")
    try:
        check_key(prefix or "none")
    except BadKey as problem:
        raise StorageMisconfigured(f"the prefix of the storage: {problem}") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - _S3_OPTIONS):
        known = ", ".join(sorted(_S3_OPTIONS))
        raise StorageMisconfigured(f"unknown option {unknown[0]!r} of s3://: the options are {known}")
    endpoint = options.get("endpoint", "")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise StorageMisconfigured(f"expected endpoint=https://…, got {endpoint!r}")
    switches = {name: options.get(name, "on") for name in ("conditional", "redirect")}
    for name, switch in switches.items():
        if switch not in {"on", "off"}:
            raise StorageMisconfigured(f"{name} must be on or off, got {switch!r}")
    try:
        from kesin.workloads.pdf.storage.s3 import S3Storage
    except ImportError:
        why = "s3:// needs obstore: install it with `pip install 'kesin[s3]'`"
        raise StorageMisconfigured(why) from None
    return S3Storage(
        parts.netloc,
        prefix,
        endpoint=endpoint or _first_set("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
        region=options.get("region") or _first_set("AWS_REGION", "AWS_DEFAULT_REGION"),
        **{name: switch == "on" for name, switch in switches.items()},
    )


def _first_set(*names: str) -> str:
    return next(filter(None, map(os.environ.get, names)), "")
