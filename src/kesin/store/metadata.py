"""Metadata of a workload, kept in the same store as the jobs of its queue."""

from typing import TYPE_CHECKING, Final, TypeAlias

from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.sql.store import SqlStore

if TYPE_CHECKING:
    from kesin.store.redis.metadata import RedisMetadata  # needs the extra ``redis``

TRANSIENT: Final = "_transient"  # ends names of workloads whose entries no copy or backup holds
MetadataStore: TypeAlias = "Directory | RedisMetadata"  # both offer the same operations


def metadata_for(store: Store) -> MetadataStore:
    if isinstance(store, SqlStore):
        return Directory(store)
    from kesin.store.redis.metadata import RedisMetadata

    return RedisMetadata(store)
