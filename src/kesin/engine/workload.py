"""The Workload plug-in interface: what a workload brings, and what it is given to work with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kesin.engine.access.listing import check_search
from kesin.foundation.extras import missing_libraries

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.core import Metric
    from typer import Typer

    from kesin.engine.access.accounts import Accounts
    from kesin.engine.access.commands import Commands
    from kesin.engine.access.vault import Vault
    from kesin.engine.queue import Queue
    from kesin.engine.transfer.backup import BackupFile
    from kesin.engine.worker import Worker
    from kesin.foundation.clock import Clock
    from kesin.foundation.settings import Settings
    from kesin.lifecycle.declare import Lifecycle
    from kesin.store.contract import Store


@dataclass(frozen=True, slots=True)
class WorkloadContext:
    """The settings, commands and queue that a workload gets."""

    settings: Settings
    commands: Commands
    queue: Queue
    # Whether the service was asked to stop; always False without a service.
    stopping: Callable[[], bool] = field(default=bool, compare=False)

    @property
    def vault(self) -> Vault:
        """Sealed credentials; using them without a key ring raises an error naming the setting."""
        return _vault(self.commands.accounts, self.settings)


@lru_cache(maxsize=8)
def _vault(accounts: Accounts, settings: Settings) -> Vault:
    """One vault a process: it remembers which reads it has put into the audit log."""
    from kesin.engine.access.vault import Vault
    from kesin.foundation.encryption import key_ring

    return Vault(accounts, key_ring(settings))


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload. Only the name and the lifecycle are required.

    Callables import what they need when they are called, so that commands start quickly and a
    workload whose libraries are missing can still be listed.
    """

    name: str  # of its queue too
    lifecycle: Callable[[], Lifecycle]
    summary: str = ""
    title: str = ""  # what people call its jobs; empty: its name
    part_of: str = ""  # the workload that it completes, if it is not one by itself
    has_sites: bool = True  # its tenants are sites
    # Fields of its payloads, results and notes that hold personal data, by name and with all that
    # is in them. API, pages and files mask them unless the reader has the permission ``reveal``.
    # Usual names, such as email, phone or token, are masked in every queue.
    personal_fields: frozenset[str] = frozenset()
    # What lists call a job: a format of payload fields, as `Queue` takes it, or a function of the
    # payload as it is shown, masked or not. And the payload fields by which jobs are found.
    job_title: str | Callable[[Any], str] = ""
    search_fields: tuple[str, ...] = ()
    # The settings of a site that a spreadsheet may have, each with what reads its cell (Invalid).
    site_settings: Callable[[], Mapping[str, Callable[[str], Any]]] | None = None
    account_settings: frozenset[str] = frozenset()  # of a site, which one like it does not get
    needs: Sequence[str] = ()  # libraries without which none of its work can be done

    worker: Callable[[WorkloadContext], Worker] | None = None
    # The same for a transport that pushes jobs to workers; None where workers poll.
    push_worker: Callable[[WorkloadContext], Worker] | None = None
    needs_own_process: bool = False  # its worker never runs inside the service
    opens_secrets: bool = True  # its worker reads sealed secrets, so its processes get the keys
    in_redis: bool = False  # its jobs live in Redis where KESIN_REDIS_URL is set
    keys_name_tenant: bool = False  # its job keys are unique across tenants
    after_sweep: Callable[[WorkloadContext], object] | None = None  # once its jobs have expired
    periodic: Callable[[WorkloadContext], object] | None = None  # every few seconds

    routes: Callable[[WorkloadContext], APIRouter] | None = None
    # Its part of the dashboard: a `kesin.web.dashboard.frame.workload_pages.WorkloadPages`, which
    # this floor does not know.
    pages: Callable[[], object] | None = None
    cli: Callable[[], Typer] | None = None
    metrics: Callable[[WorkloadContext], Iterable[Metric]] | None = None  # at every scrape
    demo: Callable[[], object] | None = None  # its part of `kesin demo`
    restricted_actions: frozenset[str] = frozenset()  # operators use only its own pages for these
    advice: Callable[[str, str], Mapping[str, Any]] | None = None  # on an error's code and category
    # Files beside its jobs, for backups; and a sentence for each thing that no backup holds.
    backup_files: Callable[[Settings], Iterable[BackupFile | str]] | None = None

    def __post_init__(self) -> None:
        check_search(self.search_fields, self.personal_fields)

    def open_queue(self, store: Store, clock: Clock | None = None) -> Queue:
        """The workload's queue, with the title and search fields that the workload declares."""
        from kesin.engine.queue import Queue

        title = self.job_title if isinstance(self.job_title, str) else ""
        listed: dict[str, Any] = {"title": title or None, "search": self.search_fields or None}
        return Queue(self.name, self.lifecycle(), store, clock=clock, **listed)

    @property
    def group(self) -> str:
        """The workload that this one is grouped with."""
        return self.part_of or self.name

    @property
    def missing_libraries(self) -> tuple[str, ...]:
        """Required libraries that are not installed; without them, jobs are shown, but not run."""
        return missing_libraries(tuple(self.needs))
