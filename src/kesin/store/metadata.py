"""Metadata of a workload, kept in the same store as the jobs of its queue."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from kesin.store.contract import Store
from kesin.store.directory import Directory, MetadataEntry
from kesin.store.sql.store import SqlStore


class MetadataStore(Protocol):
    """The metadata operations that SQL stores and Redis both offer."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Commit metadata and moves inside the block together."""

    def metadata_entries(
        self, workload: str, *, site: str | None = None, name: str | None = None
    ) -> list[MetadataEntry]:
        """The entries of a workload, optionally of one site or one name."""

    def metadata_entry(self, workload: str, site: str, name: str) -> MetadataEntry | None:
        """One entry; None if there is none."""

    def put_metadata(self, fact: MetadataEntry) -> None:
        """Insert or replace an entry."""

    def lock_metadata(self, workload: str, site: str, name: str, now: int) -> MetadataEntry:
        """Lock an entry until the transaction ends and return it; a new one holds ``null``."""

    def delete_metadata(self, workload: str, site: str, name: str) -> bool:
        """Delete an entry; return whether there was one."""


def metadata_for(store: Store) -> MetadataStore:
    """The metadata kept in this store."""
    if isinstance(store, SqlStore):
        return Directory(store)
    from kesin.store.redis.metadata import RedisMetadata

    return RedisMetadata(store)
