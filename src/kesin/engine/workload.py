"""What a trade brings to the house: one object.

A workload lives in a package of its own and imports no other. The service finds it through the
registry in `workloads/__init__.py`, or through the entry-point group ``kesin.workloads`` of any
installed package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.access.vault import Vault
from kesin.engine.queue import Queue
from kesin.engine.transfer.backup import Kept
from kesin.engine.worker import Worker
from kesin.foundation.encryption import key_ring
from kesin.foundation.extras import missing
from kesin.foundation.settings import Settings
from kesin.lifecycle.declare import Lifecycle

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.core import Metric
    from typer import Typer


@dataclass(frozen=True, slots=True)
class WorkloadContext:
    """What the service gives a workload to work with."""

    settings: Settings
    commands: Commands
    queue: Queue
    # Whether the service was asked to stop; without a service, never.
    stopping: Callable[[], bool] = field(default=bool, compare=False)

    @property
    def vault(self) -> Vault:
        """Its sealed credentials; without a key ring, reading one says what to set."""
        return _vault(self.commands.accounts, self.settings)


@lru_cache(maxsize=8)
def _vault(accounts: Accounts, settings: Settings) -> Vault:
    """One for a process: it remembers which readings it has noted."""
    return Vault(accounts, key_ring(settings))


@dataclass(frozen=True, slots=True)
class Panel:
    """A page of the dashboard that belongs to a workload."""

    title: str
    path: str


@dataclass(frozen=True, slots=True)
class Workload:
    """A trade: its rules, its hands and its doors. Only the name and the rules are needed."""

    name: str  # of the queue too
    lifecycle: Callable[[], Lifecycle]
    summary: str = ""
    has_sites: bool = True  # its tenants are sites
    worker: Callable[[WorkloadContext], Worker] | None = None
    # The same, for a transport that sends for workers; None where they look for themselves.
    push_worker: Callable[[WorkloadContext], Worker] | None = None
    needs_own_process: bool = False  # its worker needs a process of its own, never the service's
    after_sweep: Callable[[WorkloadContext], object] | None = (
        None  # to be done once its jobs have expired
    )
    periodic: Callable[[WorkloadContext], object] | None = None  # to be done every few seconds
    metrics: Callable[[WorkloadContext], Iterable[Metric]] | None = (
        None  # of its own, at every scrape
    )
    routes: Callable[[WorkloadContext], APIRouter] | None = None
    panels: Sequence[Panel] = ()
    cli: Callable[[], Typer] | None = None
    restricted_actions: frozenset[str] = (
        frozenset()
    )  # an operator's calls that only its own door makes
    secrets: Sequence[str] = ()  # names under which it keeps sealed values, for the doctor
    advice: Callable[[str], Mapping[str, Any]] | None = None  # an error code, for people
    # Files beside its jobs, for backups; and a sentence for each thing that no backup holds.
    backup_files: Callable[[Settings], Iterable[Kept | str]] | None = None
    needs: Sequence[str] = ()  # libraries without which nothing of its work can be done

    @property
    def missing_libraries(self) -> list[str]:
        """Those of them that are not installed: it can be looked at here, and no more."""
        return missing(self.needs)
