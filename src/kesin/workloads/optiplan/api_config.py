"""The doors for the workshop's settings: its rules to read and to change, its paths to read."""

from __future__ import annotations

from fastapi import APIRouter, Response

from kesin.workloads.optiplan.doors import Asker, Body, ContentType, OrderRoute, json_of, sent
from kesin.workloads.optiplan.order_desk import QUEUE, OrderDesk
from kesin.workloads.optiplan.paths import paths_json
from kesin.workloads.optiplan.rule_changes import change_rules
from kesin.workloads.optiplan.rules import rules_json
from kesin.workloads.optiplan.schemas import RULES_BODY, PathsTold, RulesChanged, RulesTold


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
