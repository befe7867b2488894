"""What every `kesin optiplan` command needs: the order service, or only the workshop."""

from collections.abc import Iterator
from contextlib import contextmanager

from kesin.workloads.common.cli import open_workload, read_settings
from kesin.workloads.optiplan.service import QUEUE, OrderService
from kesin.workloads.optiplan.workshop.config import Workshop


@contextmanager
def open_order_service(made_by: str | None = None) -> Iterator[OrderService]:
    """Open the order service over the configured store.

    A missing SQLite file is created; with ``made_by``, which says what creates it, it is a Problem.
    """
    with open_workload(QUEUE, made_by=made_by) as context:
        yield OrderService(context)


def open_workshop() -> Workshop:
    """Open the workshop's rules and paths, for commands that need no store."""
    return Workshop(read_settings())
