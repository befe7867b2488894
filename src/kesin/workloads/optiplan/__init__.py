"""A furniture workshop's cutting orders: from centimetres to the saw, stopping where a person must
decide.

What needs the web, spreadsheets or XML is imported when it is first asked for.
"""  # noqa: D205 - one sentence

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kesin.engine.transfer.backup import Kept
from kesin.engine.workload import Panel, Workload, WorkloadContext
from kesin.foundation.extras import BRINGS
from kesin.foundation.settings import Settings

if TYPE_CHECKING:
    from fastapi import APIRouter
    from typer import Typer

    from kesin.engine.worker import Worker
    from kesin.lifecycle.declare import Lifecycle


def _lifecycle() -> Lifecycle:
    from kesin.workloads.optiplan.workshop.config import configured_lifecycle

    return configured_lifecycle()


def _worker(house: WorkloadContext) -> Worker:
    from kesin.workloads.optiplan.pipeline.runner import worker_of
    from kesin.workloads.optiplan.workshop.config import Workshop

    return worker_of(Workshop(house.settings), house.queue)


def _router(house: WorkloadContext) -> APIRouter:
    from kesin.workloads.optiplan.api.routes import optiplan_router

    return optiplan_router(house)


def _cli() -> Typer:
    from kesin.workloads.optiplan.cli import app

    return app


def _tidied(house: WorkloadContext) -> int:
    from kesin.workloads.optiplan.cleanup import tidied

    return tidied(house)


def _describe(code: str) -> Mapping[str, Any]:
    from kesin.workloads.optiplan.advice import describe

    return describe(code)


def _keeps(settings: Settings) -> Iterable[Kept | str]:
    from kesin.workloads.optiplan.backup import kept

    return kept(settings)


OPTIPLAN: Final = Workload(
    "optiplan",
    _lifecycle,
    "Cutting orders to the saw",
    has_sites=False,
    worker=_worker,
    after_sweep=_tidied,
    routes=_router,
    cli=_cli,
    panels=(Panel("OptiPlan", "/dashboard/optiplan"),),
    advice=_describe,
    backup_files=_keeps,
    # A cancel takes the file back from the saw's inbox, a reissue makes a new revision.
    restricted_actions=frozenset({"cancel", "request_cancel", "reissue"}),
    needs=BRINGS["optiplan"],
)
