"""What every `kesin oci` command shares: the open store, the site, the options."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Annotated

import typer

from kesin.engine.workload import WorkloadContext
from kesin.store.directory import Site
from kesin.workloads.common.advice import Language
from kesin.workloads.common.cli import local_operator, open_workload
from kesin.workloads.oci.site import WORKLOAD, require_site

SiteArgument = Annotated[str, typer.Argument(metavar="SITE", help="The site's id or dashed uuid.")]
SiteOption = Annotated[
    str, typer.Option("--site", metavar="SITE", help="The site's id or dashed uuid.")
]
LanguageOption = Annotated[
    Language, typer.Option("--lang", metavar="en|tr", help="The language of the advice.")
]


def open_context() -> AbstractContextManager[WorkloadContext]:
    """Open the store of the settings; a missing database is not created."""
    return open_workload(WORKLOAD, made_by="make it with `kesin site add`")


def find_site(context: WorkloadContext, name: str, action: str) -> Site:
    """The site with this id or uuid; raises NotFound, which says how to add one."""
    return require_site(context, local_operator(), name, "read", action=action)
