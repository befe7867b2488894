"""What every `kesin oci` command begins with: the store open, the site found, who types."""

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
from kesin.foundation.permissions import Actor, system
from kesin.foundation.problems import Problem
from kesin.foundation.settings import load_settings
from kesin.foundation.terminal import typist
from kesin.store.directory import Directory, Site
from kesin.store.open import open_store
from kesin.store.postgres.reachability import check_reachable
from kesin.workloads.oci.advice import Language
from kesin.workloads.oci.lifecycle import limits_of, oci_lifecycle
from kesin.workloads.oci.site import WORKLOAD, admitted

FAILED: Final = 1  # the exit code of what could not be done, or not wholly

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
SiteArgument = Annotated[str, typer.Argument(metavar="SITE", help="The site's id or dashed uuid.")]
SiteOption = Annotated[
    str, typer.Option("--site", metavar="SITE", help="The site's id or dashed uuid.")
]
InLanguage = Annotated[
    Language, typer.Option("--lang", metavar="en|tr", help="The language of the advice.")
]


@contextmanager
def open_house() -> Iterator[WorkloadContext]:
    """The workload over the store of the settings; nothing is made that is not there."""
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


def operator() -> Actor:
    """Whoever types: at the machine itself everything is allowed, and all of it is noted."""
    return system(typist())


def site_of(house: WorkloadContext, given: str, action: str) -> Site:
    """The site of this id or uuid; raises Unknown, which says how to add one."""
    return admitted(house, operator(), given, "read", action=action)
