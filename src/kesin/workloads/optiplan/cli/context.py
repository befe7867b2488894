"""What every `kesin optiplan` command needs: the order service, the workshop, the language."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from kesin.workloads.common.advice import Language
from kesin.workloads.common.cli import open_workload, read_settings

if TYPE_CHECKING:
    from kesin.workloads.optiplan.service import OrderService
    from kesin.workloads.optiplan.workshop.config import Workshop

LanguageOption = Annotated[
    Language, typer.Option("--lang", metavar="en|tr", help="The language of drawings and advice.")
]


@contextmanager
def open_order_service(made_by: str | None = None) -> Iterator[OrderService]:
    """Open the order service over the configured store.

    A missing SQLite file is created; with ``made_by``, which says what creates it, it is a Problem.
    """
    from kesin.workloads.optiplan.service import QUEUE, OrderService

    with open_workload(QUEUE, made_by=made_by) as context:
        yield OrderService(context)


def open_workshop() -> Workshop:
    """Open the workshop's rules and paths, for commands that need no store."""
    from kesin.workloads.optiplan.workshop.config import Workshop

    return Workshop(read_settings())
