"""Metadata in Redis: one hash per workload, changed by the same script under the same lock."""

import json
from contextlib import AbstractContextManager
from typing import Any

from kesin.foundation.text import storable
from kesin.store.contract import Store
from kesin.store.directory import MetadataEntry
from kesin.store.errors import StoreError
from kesin.store.redis.program import SEPARATOR
from kesin.store.redis.store import RedisStore


class RedisMetadata:
    """The metadata in a Redis store, with the operations that ``Directory`` has for SQL."""

    def __init__(self, store: Store) -> None:
        if not isinstance(store, RedisStore):
            raise StoreError("metadata is kept in SQLite, PostgreSQL or Redis")
        self._store = store

    def transaction(self) -> AbstractContextManager[Any]:
        return self._store.transaction()

    def metadata_entries(
        self, workload: str, *, site: str | None = None, name: str | None = None
    ) -> list[MetadataEntry]:
        flat = self._store.execute_metadata("facts", workload)
        fields = zip(flat[::2], flat[1::2], strict=True)
        return sorted(
            entry
            for entry in [_parse_entry(workload, field, text) for field, text in fields]
            if (site is None or entry.site == site) and (name is None or entry.name == name)
        )

    def metadata_entry(self, workload: str, site: str, name: str) -> MetadataEntry | None:
        field = _field_name(site, name)
        text = self._store.execute_metadata("fact", workload, name=field)
        return None if text is None else _parse_entry(workload, field, text)

    def put_metadata(self, entry: MetadataEntry) -> None:
        value = json.dumps([storable(entry.value), str(entry.changed_at)], ensure_ascii=False)
        field = _field_name(entry.site, entry.name)
        self._store.execute_metadata("put_fact", entry.workload, name=field, value=value)

    def lock_metadata(self, workload: str, site: str, name: str, now: int) -> MetadataEntry:
        """Return an entry, new if necessary; a Redis transaction already excludes others."""
        entry = self.metadata_entry(workload, site, name)
        if entry is None:
            entry = MetadataEntry(workload, site, name, "null", now)
            self.put_metadata(entry)
        return entry

    def delete_metadata(self, workload: str, site: str, name: str) -> bool:
        field = _field_name(site, name)
        return bool(self._store.execute_metadata("drop_fact", workload, name=field))


def _field_name(site: str, name: str) -> str:
    return storable(site) + SEPARATOR + storable(name)


def _parse_entry(workload: str, field: str, text: str) -> MetadataEntry:
    site, _, name = field.partition(SEPARATOR)
    value, changed_at = json.loads(text)
    return MetadataEntry(workload, site, name, value, int(changed_at))
