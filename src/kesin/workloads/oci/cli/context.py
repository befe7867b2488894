"""What every `kesin oci` command shares: the open store, the site, the operator, the options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import set_up_logs
from kesin.foundation.permissions import Actor, system_actor
from kesin.foundation.problems import Problem
from kesin.foundation.settings import load_settings
from kesin.foundation.terminal import cli_actor
from kesin.store.directory import Directory, Site
from kesin.store.open import open_store
from kesin.store.postgres.reachability import check_reachable
from kesin.workloads.oci.advice import Language
from kesin.workloads.oci.lifecycle import limits_of, oci_lifecycle
from kesin.workloads.oci.site import WORKLOAD, require_site

EXIT_FAILED: Final = 1  # the command failed, or failed in part

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
SiteArgument = Annotated[str, typer.Argument(metavar="SITE", help="The site's id or dashed uuid.")]
SiteOption = Annotated[
    str, typer.Option("--site", metavar="SITE", help="The site's id or dashed uuid.")
]
LanguageOption = Annotated[
    Language, typer.Option("--lang", metavar="en|tr", help="The language of the advice.")
]


@contextmanager
def open_context() -> Iterator[WorkloadContext]:
    """Open the store of the settings; a missing database is not created."""
    settings = load_settings()
    set_up_logs(settings.log, "warning")
    file = settings.database_file
    if file is not None and not file.exists():
        raise Problem(
            f"there is no database at {file}: make it with `kesin site add`, or say with "
            "KESIN_DATA_DIR or KESIN_DATABASE_URL where it is"
        )
    check_reachable(settings)
    store = open_store(settings.database, migrate=False)
    try:
        queue = Queue(WORKLOAD, oci_lifecycle(limits_of(settings)), store)
        commands = Commands({WORKLOAD: queue}, Accounts(Directory(store)))
        yield WorkloadContext(settings, commands, queue)
    finally:
        store.close()


def local_operator() -> Actor:
    """The user of this terminal: may do everything, and the audit log records it."""
    return system_actor(cli_actor())


def find_site(context: WorkloadContext, name: str, action: str) -> Site:
    """The site with this id or uuid; raises NotFound, which says how to add one."""
    return require_site(context, local_operator(), name, "read", action=action)
