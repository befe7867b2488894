"""The workshop's customers, its rules and where its folders are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Depends, Query
from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse, Response

from kesin.foundation.problems import Invalid, Problem
from kesin.web.dashboard.optiplan_page import PATH, desk_of, frame, reader_desk
from kesin.web.dashboard.shell import form
from kesin.web.dashboard.view import Looker, Looking

if TYPE_CHECKING:
    from kesin.workloads.optiplan.order_desk import OrderDesk

router = APIRouter(include_in_schema=False)

CUSTOMERS: Final = 50
Fields = Annotated[dict[str, str], Depends(form)]
Phone = Annotated[str, Query(max_length=40)]


# Customers


@router.get(f"{PATH}/customers", response_class=HTMLResponse)
def customers_page(
    looking: Looking, phone: Phone = "", cursor: Phone = "", done: Phone = ""
) -> HTMLResponse:
    """Everybody the workshop knows, or whoever has a phone."""
    desk = reader_desk(looking)
    return _customers(looking, desk, phone=phone.strip(), cursor=cursor, done=done)


def _customers(
    looking: Looker,
    desk: OrderDesk,
    *,
    phone: str = "",
    cursor: str = "",
    done: str = "",
    problem: Problem | None = None,
    typed: dict[str, str] | None = None,
) -> HTMLResponse:
    following = None
    if phone:
        found = desk.lookup(looking.actor, phone)[1]
        customers = [found] if found else []
    else:
        customers, following = desk.customer_page(
            looking.actor, limit=CUSTOMERS, cursor=cursor or None
        )
    told = frame(looking, "customers")
    return looking.page(
        "optiplan_customers.html",
        status=problem.status if problem else 200,
        customers=customers,
        following=following,
        phone=phone,
        done=done,
        problem=problem,
        typed=typed or {},
        may_keep=told["may_create"] or told["may_operate"],
        **told,
    )


@router.post(f"{PATH}/customers")
def keep_customer(looking: Looking, fields: Fields) -> Response:
    """Keep somebody: a name by a phone number. A known phone gets the new name."""
    from kesin.workloads.optiplan.codes import OrderProblem

    desk = desk_of(looking)
    try:
        _, new = desk.add_customer(looking.actor, fields.get("name", ""), fields.get("phone", ""))
    except OrderProblem as problem:
        typed = {name: fields.get(name, "")[:200] for name in ("name", "phone")}
        return _customers(looking, desk, problem=problem, typed=typed)
    return _to("customers", "new" if new else "renamed")


@router.post(f"{PATH}/customers/remove")
def forget_customer(looking: Looking, fields: Fields) -> Response:
    """Forget whoever has this phone."""
    desk = desk_of(looking)
    gone = desk.remove_customer(looking.actor, fields.get("phone", "")[:40])
    return _to("customers", "removed" if gone else "")


# Rules and paths


@router.get(f"{PATH}/rules", response_class=HTMLResponse)
def rules_page(looking: Looking, done: Annotated[str, Query(max_length=400)] = "") -> HTMLResponse:
    """The rules in force, as the file spells them, and where everything is."""
    desk = reader_desk(looking)
    desk.house.commands.queue(looking.actor, "optiplan")
    return _rules(looking, desk, changed=done)


def _rules(
    looking: Looker,
    desk: OrderDesk,
    *,
    changed: str = "",
    problem: Problem | None = None,
    source: str | None = None,
) -> HTMLResponse:
    from kesin.workloads.optiplan.paths import paths_json
    from kesin.workloads.optiplan.rule_changes import FROM_NEXT_START
    from kesin.workloads.optiplan.rules import rules_json

    rules = rules_json(desk.workshop.rules())
    details: dict[str, Any] = problem.details if problem else {}
    names = [one for one in changed.split(",") if one in rules]
    return looking.page(
        "optiplan_rules.html",
        status=problem.status if problem else 200,
        rules=rules,
        source=source or json.dumps(rules, ensure_ascii=False, indent=2),
        paths=paths_json(desk.workshop.paths()),
        changed=names,
        nothing_changed=changed == "none",
        from_next_start=[one for one in names if one in FROM_NEXT_START],
        problem=problem,
        wrong=details.get("fields", ()),
        **frame(looking, "rules"),
    )


@router.post(f"{PATH}/rules")
def change_rules_page(looking: Looking, fields: Fields) -> Response:
    """Put the typed rules in the place of those in force, all of them or none."""
    from kesin.workloads.optiplan.codes import OrderProblem
    from kesin.workloads.optiplan.rule_changes import change_rules

    desk = desk_of(looking)
    desk.house.commands.queue(looking.actor, "optiplan", "operate", "rules")
    source = fields.get("source", "")
    try:
        made = change_rules(desk, looking.actor, _json(source))
    except (OrderProblem, Invalid) as problem:
        return _rules(looking, desk, problem=problem, source=source)
    return _to("rules", ",".join(made.changed) or "none")


def _json(source: str) -> Any:
    try:
        return json.loads(source)
    except (ValueError, RecursionError) as problem:
        raise Invalid(f"the JSON cannot be read: {problem}", code="not_json") from None


def _to(page: str, done: str) -> Response:
    return RedirectResponse(f"{PATH}/{page}?done={done}", status_code=303)
