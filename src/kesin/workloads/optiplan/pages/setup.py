"""The workshop's customers, its rules and where its folders are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Depends, Query
from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse, Response

from kesin.foundation.ids import ID_PATTERN, is_id
from kesin.foundation.problems import Clash, Invalid, Problem
from kesin.web.auth import guarded_router
from kesin.web.dashboard.forms.schema_form import SchemaForm
from kesin.web.dashboard.forms.uploads import WideForm
from kesin.web.dashboard.frame.page import Context, PageContext
from kesin.web.dashboard.frame.routes import form
from kesin.workloads.optiplan.pages.orders import PATH, desk_of, frame, reader_desk
from kesin.workloads.optiplan.pages.rules_form import Typed, changes, form_schema, to_form, to_rules

if TYPE_CHECKING:
    from kesin.workloads.optiplan.service import OrderDesk
    from kesin.workloads.optiplan.workshop.rules import Rules

router = guarded_router(include_in_schema=False)

CUSTOMERS: Final = 50
MARK: Final = 64  # letters of the mark that rules are known by
Fields = Annotated[dict[str, str], Depends(form)]
Phone = Annotated[str, Query(max_length=40)]


# Customers


@router.get(f"{PATH}/customers", response_class=HTMLResponse)
def customers_page(
    looking: Context,
    phone: Phone = "",
    cursor: Phone = "",
    done: Phone = "",
    order: Annotated[str | None, Query(pattern=ID_PATTERN)] = None,
) -> HTMLResponse:
    """Everybody the workshop knows, or whoever has a phone; with an order, its customer to keep."""
    desk = reader_desk(looking)
    return _customers(looking, desk, phone=phone.strip(), cursor=cursor, done=done, order=order)


def _customers(
    looking: PageContext,
    desk: OrderDesk,
    *,
    phone: str = "",
    cursor: str = "",
    done: str = "",
    problem: Problem | None = None,
    typed: dict[str, str] | None = None,
    order: str | None = None,
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
    may_keep = told["may_create"] or told["may_operate"]
    brought = _brought(looking, desk, order) if order and may_keep else {}
    return looking.page(
        "optiplan_customers.html",
        status=problem.status if problem else 200,
        customers=customers,
        following=following,
        phone=phone,
        done=done,
        problem=problem,
        typed=typed or brought,
        order=brought,
        may_keep=may_keep,
        **told,
    )


def _brought(looking: PageContext, desk: OrderDesk, job_id: str) -> dict[str, str]:
    """An order's customer as the order has them; looked up here: no phone stands in an address."""
    kept = desk.job(looking.actor, job_id).data
    order = kept.get("order") if isinstance(kept, dict) else None
    told = order if isinstance(order, dict) else {}
    return {
        "id": job_id,
        "number": str(told.get("order_id") or ""),
        "name": str(told.get("customer_snapshot_name") or ""),
        "phone": str(told.get("customer_phone") or ""),
    }


@router.post(f"{PATH}/customers")
def keep_customer(looking: Context, fields: Fields) -> Response:
    """Keep somebody: a name by a phone number. A known phone gets the new name."""
    from kesin.workloads.optiplan.errors import OrderProblem

    desk = desk_of(looking)
    asked = fields.get("order", "")
    order = asked if is_id(asked) else None
    try:
        _, new = desk.add_customer(looking.actor, fields.get("name", ""), fields.get("phone", ""))
    except OrderProblem as problem:
        typed = {name: fields.get(name, "")[:200] for name in ("name", "phone")}
        return _customers(looking, desk, problem=problem, typed=typed, order=order)
    if order:
        return RedirectResponse(f"{PATH}#held-{order}", status_code=303)
    return _to("customers", "new" if new else "renamed")


@router.post(f"{PATH}/customers/remove")
def forget_customer(looking: Context, fields: Fields) -> Response:
    """Forget whoever has this phone."""
    desk = desk_of(looking)
    gone = desk.remove_customer(looking.actor, fields.get("phone", "")[:40])
    return _to("customers", "removed" if gone else "")


# Rules and paths


@router.get(f"{PATH}/rules", response_class=HTMLResponse)
def rules_page(looking: Context, done: Annotated[str, Query(max_length=400)] = "") -> HTMLResponse:
    """The rules in force as a form, the file behind it, and where everything is."""
    desk = reader_desk(looking)
    desk.house.commands.queue(looking.actor, "optiplan")
    return _rules(looking, desk, changed=done)


def _rules(
    looking: PageContext,
    desk: OrderDesk,
    *,
    changed: str = "",
    problem: Problem | None = None,
    value: Any = None,
    source: str | None = None,
    typed: Typed | None = None,
    seen: str = "",
) -> HTMLResponse:
    """The page; with what was typed, in the fields or as JSON, where that was not good."""
    from kesin.workloads.optiplan.rule_changes import FROM_NEXT_START
    from kesin.workloads.optiplan.workshop.paths import paths_json
    from kesin.workloads.optiplan.workshop.rules import rules_json

    rules = rules_json(desk.workshop.rules())
    errors, wrong = _sorted(problem, typed or Typed({})) if problem else ({}, [])
    names = [one for one in changed.split(",") if one in rules]
    drawn = _form(looking, desk, to_form(rules) if value is None else value, errors)
    return looking.page(
        "optiplan_rules.html",
        status=problem.status if problem else 200,
        **drawn | ({"seen": seen} if seen else {}),
        source=json.dumps(rules, ensure_ascii=False, indent=2) if source is None else source,
        as_json=source is not None,
        paths=paths_json(desk.workshop.paths()),
        changed=names,
        nothing_changed=changed == "none",
        from_next_start=[one for one in names if one in FROM_NEXT_START],
        problem=problem,
        wrong=wrong,
        marked=len(errors),
        **frame(looking, "rules"),
    )


def _form(
    looking: PageContext, desk: OrderDesk, value: Any, errors: dict[str, list[str]] | None = None
) -> dict[str, Any]:
    """The fields, filled in, and the mark of the rules that are being edited."""
    from kesin.workloads.optiplan.rule_changes import mark_of

    form = SchemaForm(form_schema(looking.say), errors or {})
    return {
        "root": form.draw(value),
        "seen": mark_of(desk.workshop.rules()),
        "form_id": "rules-form",
        "form_path": f"{PATH}/rules",
    }


@router.post(f"{PATH}/rules/form", response_class=HTMLResponse)
def change_rules_form(looking: Context, fields: WideForm) -> HTMLResponse:
    """The fields with a row more or less; nothing that was typed is lost, nothing is kept yet."""
    desk = desk_of(looking)
    desk.house.commands.queue(looking.actor, "optiplan", "operate", "rules")
    form = SchemaForm(form_schema(looking.say))
    value = form.read(fields)
    do, _, pointer = fields.get("do", "").partition(":")
    if do not in {"add", "remove"}:
        raise Invalid("say what to change: add or remove:N")
    value = form.added(value, pointer) if do == "add" else form.removed(value, pointer)
    told = _form(looking, desk, value) | {"seen": fields.get("seen", "")[:MARK]}
    return looking.page("part_rules_form.html", **told, **frame(looking, "rules"))


@router.post(f"{PATH}/rules")
def change_rules_page(looking: Context, fields: WideForm) -> Response:
    """Check what was typed and show what would change; with ``sure``, put it in force."""
    from kesin.workloads.optiplan.errors import OrderProblem
    from kesin.workloads.optiplan.rule_changes import (
        FROM_NEXT_START,
        change_rules,
        check_seen,
        mark_of,
    )
    from kesin.workloads.optiplan.workshop.rules import read_rules, rules_json

    desk = desk_of(looking)
    desk.house.commands.queue(looking.actor, "optiplan", "operate", "rules")
    before = desk.workshop.rules()
    source, seen = fields.get("source"), fields.get("seen", "")[:MARK]
    typed = Typed({})
    value: Any = None
    try:
        if source is None:
            value = SchemaForm(form_schema(looking.say)).read(fields)
            typed = to_rules(value, rules_json(before))
            body: Any = typed.rules
        else:
            body = _json(source)
        if fields.get("do") == "edit" and isinstance(body, dict):
            return _rules(looking, desk, value=to_form(body), seen=seen)
        after = _checked(read_rules, body, typed)
        if "sure" in fields:
            made = change_rules(desk, looking.actor, body, seen=seen)
            return _to("rules", ",".join(made.changed) or "none")
        if seen:
            check_seen(before, seen)
    except (OrderProblem, Invalid, Clash) as problem:
        return _rules(looking, desk, problem=problem, value=value, source=source, typed=typed)
    changed = changes(looking.say, rules_json(before), rules_json(after))
    if not changed:
        return _to("rules", "none")
    return looking.page(
        "optiplan_rules_review.html",
        changed=changed,
        source=json.dumps(rules_json(after), ensure_ascii=False),
        seen=mark_of(before),
        later=[one for one in sorted(FROM_NEXT_START) if _differs(one, before, after)],
        **frame(looking, "rules"),
    )


def _checked(read: Callable[[Any], Rules], body: Any, typed: Typed) -> Rules:
    """The rules, if the form's own tables are good too; else everything that is wrong at once."""
    from kesin.workloads.optiplan.errors import OrderProblem
    from kesin.workloads.optiplan.orders.payload import FieldProblem, refused

    if not typed.wrong:
        return read(body)
    own = [FieldProblem((place,), one) for place, told in typed.wrong.items() for one in told]
    try:
        read(body)
    except OrderProblem as problem:
        others = [FieldProblem((one["field"],), one["message"]) for one in _fields(problem)]
        own += [one for one in others if typed.place(one.field) not in typed.wrong]
    raise refused(own)


def _fields(problem: Problem) -> Sequence[Mapping[str, str]]:
    told: Sequence[Mapping[str, str]] = problem.details.get("fields", ())
    return told


def _sorted(problem: Problem, typed: Typed) -> tuple[dict[str, list[str]], list[Mapping[str, str]]]:
    """What is wrong: by the field of the form it is at, and what is at none of them."""
    errors: dict[str, list[str]] = {}
    rest = []
    for one in _fields(problem):
        place = one["field"] if one["field"] in typed.wrong else typed.place(one["field"])
        if place:
            errors.setdefault(place, []).append(one["message"])
        else:
            rest.append(one)
    return errors, rest


def _differs(name: str, before: Rules, after: Rules) -> bool:
    return bool(getattr(before, name) != getattr(after, name))


def _json(source: str) -> Any:
    try:
        return json.loads(source)
    except (ValueError, RecursionError) as problem:
        raise Invalid(f"the JSON cannot be read: {problem}", code="not_json") from None


def _to(page: str, done: str) -> Response:
    return RedirectResponse(f"{PATH}/{page}?done={done}", status_code=303)
