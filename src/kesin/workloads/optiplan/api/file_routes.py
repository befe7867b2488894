"""The doors for a job's files: what goes to the optimiser and the saw, and the plan to look at."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from kesin.workloads.optiplan.api.common import (
    PRIVATE,
    Asker,
    Body,
    ContentType,
    OrderRoute,
    json_of,
    sent,
)
from kesin.workloads.optiplan.api.schemas import (
    RULES_BODY,
    PathsTold,
    RulesChanged,
    RulesTold,
)
from kesin.workloads.optiplan.artifacts import (
    check_countable,
    drawing,
    import_files,
    packed,
    plans_of,
    xml_files,
)
from kesin.workloads.optiplan.optimizer import print_plans
from kesin.workloads.optiplan.optimizer.output.texts import Language
from kesin.workloads.optiplan.rule_changes import change_rules
from kesin.workloads.optiplan.service import QUEUE, OrderDesk
from kesin.workloads.optiplan.workshop.paths import paths_json
from kesin.workloads.optiplan.workshop.rules import rules_json

XML: Final = "application/xml"
ZIP: Final = "application/zip"
SVG: Final = "image/svg+xml"
PDF: Final = "application/pdf"
MOST_NUMBER: Final = 100_000

_BINARY: Final[dict[str, Any]] = {"schema": {"type": "string", "format": "binary"}}
_TEXT: Final[dict[str, Any]] = {"schema": {"type": "string"}}

InLanguage = Annotated[Language, Query(alias="lang")]


def _told(description: str, **content: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    kinds = {"xml": XML, "zip": ZIP, "svg": SVG, "pdf": PDF}
    told = {kinds[name]: schema for name, schema in content.items()}
    return {200: {"description": description, "content": told}}


def files_router(desk: OrderDesk) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/jobs/{job_id}", tags=["optiplan"], route_class=OrderRoute)

    @router.get(
        "/xml",
        response_class=Response,
        responses=_told("The XML, or an archive of several", xml=_TEXT, zip=_BINARY),
    )
    def job_xml(actor: Asker, job_id: str) -> Response:
        """The solution as it goes to the saw; an archive when the order has several."""
        job = desk.job(actor, job_id)
        files = xml_files(desk.workshop.paths(), job, desk.dossier(job))
        if len(files) == 1:
            return _saved(files[0].data, files[0].name, XML)
        return _saved(packed(files), f"{job.id}-xml.zip", ZIP)

    @router.get(
        "/import-files",
        response_class=Response,
        responses=_told("An archive with an XLSX a batch", zip=_BINARY),
    )
    def job_import_files(actor: Asker, job_id: str) -> Response:
        """What was written for the optimiser: an XLSX for each type, colour and thickness."""
        job = desk.job(actor, job_id)
        files = import_files(desk.workshop.paths(), job, desk.dossier(job))
        return _saved(packed(files), f"{job.id}-import.zip", ZIP)

    @router.get("/plan.svg", response_class=Response, responses=_told("The drawing", svg=_TEXT))
    def job_plan_svg(
        actor: Asker,
        job_id: str,
        board: Annotated[int | None, Query(ge=1, le=MOST_NUMBER)] = None,
        language: InLanguage = "en",
    ) -> Response:
        """The cutting plan, every board or one of them."""
        job = desk.job(actor, job_id)
        plans = plans_of(desk.workshop.paths(), job, desk.dossier(job))
        return Response(drawing(plans, board, language), headers=dict(PRIVATE), media_type=SVG)

    @router.get(
        "/plan.pdf", response_class=Response, responses=_told("The plan on paper", pdf=_BINARY)
    )
    def job_plan_pdf(actor: Asker, job_id: str, language: InLanguage = "en") -> Response:
        """The cutting plan to print: a summary, the boards, and the cut list."""
        job = desk.job(actor, job_id)
        plans = plans_of(desk.workshop.paths(), job, desk.dossier(job))
        check_countable(plans)
        return _saved(print_plans(plans, language), f"{job.id}-plan.pdf", PDF, how="inline")

    return router


def _saved(data: bytes, name: str, kind: str, *, how: str = "attachment") -> Response:
    """A file under its name, which is of our own making and plain."""
    headers = {**PRIVATE, "content-disposition": f'{how}; filename="{_plain(name)}"'}
    return Response(data, headers=headers, media_type=kind)


def _plain(name: str) -> str:
    """An XML is named by the program that wrote it."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._- ") else "_" for c in name)


def config_router(desk: OrderDesk) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/config", tags=["optiplan"], route_class=OrderRoute)

    @router.get("/rules", response_model=RulesTold)
    def get_rules(actor: Asker) -> Response:
        """Trims, backs, bands, grain, deadlines, retries."""
        desk.house.commands.queue(actor, QUEUE)
        return sent(RulesTold(rules=rules_json(desk.workshop.rules())))

    @router.put("/rules", response_model=RulesChanged, openapi_extra=RULES_BODY)
    def put_rules(actor: Asker, body: Body, kind: ContentType) -> Response:
        """Replace the rules, all of them at once.

        The next pass of an order follows them; deadlines and retries count from the next start.
        """
        desk.house.commands.queue(actor, QUEUE, "operate", "rules")
        made = change_rules(desk, actor, json_of(body, kind))
        return sent(
            RulesChanged(
                rules=rules_json(made.rules),
                changed=list(made.changed),
                from_next_start=list(made.from_next_start),
            )
        )

    @router.get("/paths", response_model=PathsTold)
    def get_paths(actor: Asker) -> Response:
        """Where OptiPlanning, its folders and the machine are; changed in paths.json alone."""
        desk.house.commands.queue(actor, QUEUE)
        return sent(PathsTold(paths=paths_json(desk.workshop.paths())))

    return router
