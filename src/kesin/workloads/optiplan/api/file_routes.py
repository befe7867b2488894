"""Routes for a job's files (XML, import files, cutting plan) and for the workshop's settings."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from kesin.foundation.permissions import Actor
from kesin.web.dependencies import MediaType, RawBody, SignedInActor
from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan import artifacts
from kesin.workloads.optiplan.api import common
from kesin.workloads.optiplan.api.schemas import RULES_BODY, PathsTold, RulesChanged, RulesTold
from kesin.workloads.optiplan.optimizer.output.pdf import print_plans
from kesin.workloads.optiplan.orders.safe_xlsx import pack_zip
from kesin.workloads.optiplan.rule_changes import FROM_NEXT_START, change_rules
from kesin.workloads.optiplan.service import QUEUE, OrderService
from kesin.workloads.optiplan.workshop.paths import paths_json
from kesin.workloads.optiplan.workshop.rules import Rules, rule_warnings, rules_json

XML: Final = "application/xml"
ZIP: Final = "application/zip"
SVG: Final = "image/svg+xml"
PDF: Final = "application/pdf"
MAX_BOARD_NUMBER: Final = 100_000

InLanguage = Annotated[Language, Query(alias="lang")]


def _sends(description: str, *media_types: str) -> dict[str, Any]:
    """The options of a route that sends a file."""
    content = {
        name: {"schema": {"type": "string"} | ({"format": "binary"} if name in {ZIP, PDF} else {})}
        for name in media_types
    }
    responses = {200: {"description": description, "content": content}}
    return {"response_class": Response, "responses": responses}


def add_file_routes(router: APIRouter, service: OrderService) -> None:
    def artifacts_of(actor: Actor, job_id: str) -> artifacts.JobArtifacts:
        job = service.readable_job(actor, job_id)
        return artifacts.JobArtifacts(service.workshop.paths(), job, service.progress(job))

    @router.get("/jobs/{job_id}/xml", **_sends("The XML, or an archive of several", XML, ZIP))
    def job_xml(actor: SignedInActor, job_id: str) -> Response:
        """The solution as it goes to the saw; an archive when the order has several."""
        files = artifacts_of(actor, job_id).read_xml_files()
        if len(files) > 1:
            return _file_response(pack_zip(files), f"{job_id}-xml.zip", ZIP)
        [(name, data)] = files.items()
        return _file_response(data, name, XML)

    @router.get("/jobs/{job_id}/import-files", **_sends("An archive with an XLSX a batch", ZIP))
    def job_import_files(actor: SignedInActor, job_id: str) -> Response:
        """What was written for the optimiser: an XLSX for each type, colour and thickness."""
        files = artifacts_of(actor, job_id).read_import_files()
        return _file_response(pack_zip(files), f"{job_id}-import.zip", ZIP)

    @router.get("/jobs/{job_id}/plan.svg", **_sends("The drawing", SVG))
    def job_plan_svg(
        actor: SignedInActor,
        job_id: str,
        board: Annotated[int | None, Query(ge=1, le=MAX_BOARD_NUMBER)] = None,
        language: InLanguage = "en",
    ) -> Response:
        """The cutting plan, every board or one of them."""
        plans = artifacts_of(actor, job_id).read_plans()
        drawing = artifacts.draw_plans(plans, board, language)
        return Response(drawing, headers=dict(common.PRIVATE_HEADERS), media_type=SVG)

    @router.get("/jobs/{job_id}/plan.pdf", **_sends("The plan on paper", PDF))
    def job_plan_pdf(actor: SignedInActor, job_id: str, language: InLanguage = "en") -> Response:
        """The cutting plan to print: a summary, the boards, and the cut list."""
        plans = artifacts_of(actor, job_id).read_plans()
        artifacts.check_board_count(plans)
        data = print_plans(plans, language)
        return _file_response(data, f"{job_id}-plan.pdf", PDF, disposition="inline")


def _file_response(
    data: bytes, name: str, media_type: str, *, disposition: str = "attachment"
) -> Response:
    """Send a file under a plain name: the program that wrote an XML chose its name."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._- ") else "_" for c in name)
    shown = {"content-disposition": f'{disposition}; filename="{plain}"'}
    return Response(data, headers=common.PRIVATE_HEADERS | shown, media_type=media_type)


def add_config_routes(router: APIRouter, service: OrderService) -> None:
    @router.get("/config/rules", response_model=RulesTold)
    def get_rules(actor: SignedInActor) -> Response:
        """Trims, backs, bands, grain, deadlines, retries."""
        service.context.commands.queue(actor, QUEUE)
        rules = service.workshop.rules()
        return common.json_response(RulesTold(**_rules_body(rules)))

    @router.put("/config/rules", response_model=RulesChanged, openapi_extra=RULES_BODY)
    def put_rules(actor: SignedInActor, body: RawBody, kind: MediaType) -> Response:
        """Replace the rules, all of them at once.

        The next pass of an order follows them; deadlines and retries count from the next start.
        """
        service.context.commands.queue(actor, QUEUE, "operate", "rules")
        rules, changed = change_rules(service, actor, common.parse_json(body, kind))
        later = [key for key in changed if key in FROM_NEXT_START]
        answer = RulesChanged(**_rules_body(rules), changed=changed, from_next_start=later)
        return common.json_response(answer)

    @router.get("/config/paths", response_model=PathsTold)
    def get_paths(actor: SignedInActor) -> Response:
        """Where OptiPlanning, its folders and the machine are; changed in paths.json alone."""
        service.context.commands.queue(actor, QUEUE)
        return common.json_response(PathsTold(paths=paths_json(service.workshop.paths())))


def _rules_body(rules: Rules) -> dict[str, Any]:
    return {"rules": rules_json(rules), "warnings": rule_warnings(rules)}
