"""Facts in Redis: a hash per workload, changed by the same scripts and under the same lock."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from typing import Any

from kesin.foundation.text import storable
from kesin.store.contract import Store
from kesin.store.directory import Fact
from kesin.store.errors import StoreError
from kesin.store.redis.program import SEPARATOR
from kesin.store.redis.store import RedisStore


class RedisFacts:
    """The facts beside the jobs of a Redis store."""

    def __init__(self, store: Store) -> None:
        if not isinstance(store, RedisStore):
            raise StoreError("facts are kept in SQLite, PostgreSQL or Redis")
        self._store = store

    def transaction(self) -> AbstractContextManager[Any]:
        """Facts and moves inside commit together."""
        return self._store.transaction()

    def facts(
        self, workload: str, *, site: str | None = None, name: str | None = None
    ) -> list[Fact]:
        """Those of a workload, of a site, of a name."""
        flat = self._store.ask_facts("facts", workload)
        found = [
            _fact(workload, place, text) for place, text in zip(flat[::2], flat[1::2], strict=True)
        ]
        return sorted(
            one
            for one in found
            if (site is None or one.site == site) and (name is None or one.name == name)
        )

    def fact(self, workload: str, site: str, name: str) -> Fact | None:
        """One of them."""
        place = _place(site, name)
        text = self._store.ask_facts("fact", workload, name=place)
        return None if text is None else _fact(workload, place, text)

    def put_fact(self, fact: Fact) -> None:
        """Write it, whatever was there."""
        told = json.dumps([storable(fact.value), str(fact.changed_at)], ensure_ascii=False)
        place = _place(fact.site, fact.name)
        self._store.ask_facts("put_fact", fact.workload, name=place, value=told)

    def hold_fact(self, workload: str, site: str, name: str, now: int) -> Fact:
        """The fact; a transaction of Redis keeps everybody else out anyway."""
        found = self.fact(workload, site, name)
        if found is None:
            found = Fact(workload, site, name, "null", now)
            self.put_fact(found)
        return found

    def drop_fact(self, workload: str, site: str, name: str) -> bool:
        """Forget it; whether there was one."""
        return bool(self._store.ask_facts("drop_fact", workload, name=_place(site, name)))


def _place(site: str, name: str) -> str:
    return storable(site) + SEPARATOR + storable(name)


def _fact(workload: str, place: str, text: str) -> Fact:
    site, _, name = place.partition(SEPARATOR)
    value, changed_at = json.loads(text)
    return Fact(workload, site, name, value, int(changed_at))
