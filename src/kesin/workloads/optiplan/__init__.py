"""A furniture workshop's cutting orders: from centimetres to the saw, stopping where a person must
decide.

What needs the web, spreadsheets or XML is imported when it is first asked for.
"""  # noqa: D205 - one sentence

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kesin.engine.backup import Kept
from kesin.foundation.extras import BRINGS
from kesin.foundation.settings import Settings
from kesin.workloads.workload import House, Panel, Workload

if TYPE_CHECKING:
    from fastapi import APIRouter
    from typer import Typer

    from kesin.engine.worker import Worker
    from kesin.lifecycle.declare import Lifecycle


def _lifecycle() -> Lifecycle:
    from kesin.workloads.optiplan.workshop import configured_lifecycle

    return configured_lifecycle()


def _worker(house: House) -> Worker:
    from kesin.workloads.optiplan.runner import worker_of
    from kesin.workloads.optiplan.workshop import Workshop

    return worker_of(Workshop(house.settings), house.queue)


def _router(house: House) -> APIRouter:
    from kesin.workloads.optiplan.api import optiplan_router

    return optiplan_router(house)


def _cli() -> Typer:
    from kesin.workloads.optiplan.cli import app

    return app


def _tidied(house: House) -> int:
    from kesin.workloads.optiplan.tidying import tidied

    return tidied(house)


def _describe(code: str) -> Mapping[str, Any]:
    from kesin.workloads.optiplan.advice import describe

    return describe(code)


def _keeps(settings: Settings) -> Iterable[Kept | str]:
    from kesin.workloads.optiplan.keeping import kept

    return kept(settings)


OPTIPLAN: Final = Workload(
    "optiplan",
    _lifecycle,
    "Cutting orders to the saw",
    sited=False,
    worker=_worker,
    chore=_tidied,
    router=_router,
    cli=_cli,
    panels=(Panel("OptiPlan", "/dashboard/optiplan"),),
    describe=_describe,
    keeps=_keeps,
    # A cancel takes the file back from the saw's inbox, a reissue makes a new revision.
    own_calls=frozenset({"cancel", "request_cancel", "reissue"}),
    needs=BRINGS["optiplan"],
)
