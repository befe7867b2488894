"""Webhook delivery: a workload that Kesin finds through its entry point."""

from kesin import Workload
from kesin_courier.api import courier_router
from kesin_courier.lifecycle import courier_lifecycle
from kesin_courier.titles import receiver
from kesin_courier.work import courier_worker


def courier_pages() -> object:
    """The workload's dashboard pages, imported when the dashboard starts."""
    from kesin_courier.pages import PAGES

    return PAGES


COURIER = Workload(
    "courier",
    courier_lifecycle,
    "Webhooks to external servers",
    title="Webhooks",
    job_title=receiver,
    worker=courier_worker,
    routes=courier_router,
    pages=courier_pages,
)
