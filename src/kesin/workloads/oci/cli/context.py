"""What every `kesin oci` command shares: the open store, the site, the options."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from kesin.foundation.terminal import argument, option
from kesin.workloads.common.advice import Language
from kesin.workloads.common.cli import local_operator, open_workload
from kesin.workloads.oci.site import WORKLOAD, SiteContext, require_site

SiteArgument = Annotated[str, argument("SITE", "The site's id or dashed uuid.")]
SiteOption = Annotated[str, option("SITE", "The site's id or dashed uuid.", "--site")]
LanguageOption = Annotated[Language, option("en|tr", "The language of the advice.", "--lang")]


@contextmanager
def open_site(name: str, action: str) -> Iterator[SiteContext]:
    """Open the store, with the site of this id or uuid; NotFound says how to add one.

    A missing database is not created.
    """
    with open_workload(WORKLOAD, made_by="make it with `kesin site add`") as context:
        yield require_site(context, local_operator(), name, "read", action=action)
