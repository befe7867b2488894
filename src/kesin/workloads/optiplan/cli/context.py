"""What every `kesin optiplan` command needs: the order service, the workshop, the operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import set_up_logs
from kesin.foundation.permissions import Actor, system_actor
from kesin.foundation.settings import load_settings
from kesin.foundation.terminal import cli_actor
from kesin.store.directory import Directory
from kesin.store.open import open_store
from kesin.store.postgres.reachability import check_reachable
from kesin.workloads.optiplan.advice import Language

if TYPE_CHECKING:
    from kesin.workloads.optiplan.service import OrderService
    from kesin.workloads.optiplan.workshop.config import Workshop

FAILED: Final = 1  # the exit code of a command that failed, also in part

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
InLanguage = Annotated[
    Language, typer.Option("--lang", metavar="en|tr", help="The language of drawings and advice.")
]


@contextmanager
def open_order_service() -> Iterator[OrderService]:
    """Open the order service over the configured store; a missing SQLite file is created."""
    from kesin.workloads.optiplan.service import QUEUE, OrderService
    from kesin.workloads.optiplan.workshop.config import configured_lifecycle

    settings = load_settings()
    set_up_logs(settings.log, "warning")
    check_reachable(settings)
    store = open_store(settings.database, migrate=False)
    try:
        queue = Queue(QUEUE, configured_lifecycle(), store)
        commands = Commands({QUEUE: queue}, Accounts(Directory(store)), frozenset({QUEUE}))
        yield OrderService(WorkloadContext(settings, commands, queue))
    finally:
        store.close()


def open_workshop() -> Workshop:
    """Open the workshop's rules and paths, for commands that need no store."""
    from kesin.workloads.optiplan.workshop.config import Workshop

    settings = load_settings()
    set_up_logs(settings.log, "warning")
    return Workshop(settings)


def local_operator() -> Actor:
    """Return the user at the terminal: local commands are all permitted, and audited."""
    return system_actor(cli_actor())
