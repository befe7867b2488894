"""Webhooks, delivered: a workload that Kesin finds through its entry point."""

from kesin.workloads import Workload
from kesin_courier.api import courier_router
from kesin_courier.lifecycle import courier_lifecycle
from kesin_courier.work import courier_worker

COURIER = Workload(
    "courier",
    courier_lifecycle,
    "Webhooks to other people's servers",
    worker=courier_worker,
    routes=courier_router,
)
