"""Small things a workload knows, kept beside its jobs: in the store that its queue is in."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from kesin.store.contract import Store
from kesin.store.directory import Directory, Fact
from kesin.store.sql.store import SqlStore


class Facts(Protocol):
    """What a directory and Redis both offer."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Facts and moves inside commit together."""

    def facts(
        self, workload: str, *, site: str | None = None, name: str | None = None
    ) -> list[Fact]:
        """Those of a workload, of a site, of a name."""

    def fact(self, workload: str, site: str, name: str) -> Fact | None:
        """One of them."""

    def put_fact(self, fact: Fact) -> None:
        """Write it, whatever was there."""

    def hold_fact(self, workload: str, site: str, name: str, now: int) -> Fact:
        """The fact, which nobody else changes until the transaction ends; ``null`` if it is new."""

    def drop_fact(self, workload: str, site: str, name: str) -> bool:
        """Forget it; whether there was one."""


def facts_of(store: Store) -> Facts:
    """The facts beside the jobs of this store."""
    if isinstance(store, SqlStore):
        return Directory(store)
    from kesin.store.redis.metadata import RedisFacts

    return RedisFacts(store)
