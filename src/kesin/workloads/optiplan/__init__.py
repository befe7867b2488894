"""The OptiPlan workload: a furniture workshop's cutting orders, from the order to the saw.

Modules that need the web, spreadsheets or XML are imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kesin.engine.transfer.backup import BackupFile
from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.extras import LIBRARIES
from kesin.foundation.settings import Settings
from kesin.workloads.optiplan.advice import ADVICE

if TYPE_CHECKING:
    from fastapi import APIRouter
    from typer import Typer

    from kesin.engine.worker import Worker
    from kesin.lifecycle.declare import Lifecycle
    from kesin.workloads.common.demo import DemoPart


def _lifecycle() -> Lifecycle:
    from kesin.workloads.optiplan.workshop.config import configured_lifecycle

    return configured_lifecycle()


def _worker(context: WorkloadContext) -> Worker:
    from kesin.workloads.optiplan.pipeline.runner import build_worker
    from kesin.workloads.optiplan.workshop.config import Workshop

    return build_worker(Workshop(context.settings), context.queue)


def _routes(context: WorkloadContext) -> APIRouter:
    from kesin.workloads.optiplan.api.routes import optiplan_router

    return optiplan_router(context)


def _pages() -> object:
    from kesin.workloads.optiplan.pages import PAGES

    return PAGES


def _cli() -> Typer:
    from kesin.workloads.optiplan.cli import app

    return app


def _delete_expired_files(context: WorkloadContext) -> int:
    from kesin.workloads.optiplan.cleanup import delete_expired_files

    return delete_expired_files(context)


def _backup_files(settings: Settings) -> Iterable[BackupFile | str]:
    from kesin.workloads.optiplan.backup import backup_files

    return backup_files(settings)


def _demo() -> DemoPart:
    from kesin.workloads.optiplan.demo import OptiplanDemo

    return OptiplanDemo()


OPTIPLAN: Final = Workload(
    "optiplan",
    _lifecycle,
    "Cutting orders to the saw",
    title="Orders",
    has_sites=False,
    personal_fields=frozenset(
        {"customer_phone", "customer_snapshot_name", "phone", "phone_normalized"}
    ),
    worker=_worker,
    opens_secrets=False,
    after_sweep=_delete_expired_files,
    routes=_routes,
    pages=_pages,
    cli=_cli,
    demo=_demo,
    advice=ADVICE.describe,
    backup_files=_backup_files,
    # A cancel withdraws files from the saw's inbox and a reissue creates a new revision.
    restricted_actions=frozenset({"cancel", "request_cancel", "reissue"}),
    needs=LIBRARIES["optiplan"],
)
