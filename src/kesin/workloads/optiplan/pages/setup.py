"""The pages of the workshop's customers, its rules and its folders."""

from typing import Annotated, Any, Final

from fastapi import Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kesin.foundation.problems import Invalid, Problem, RequestConflict
from kesin.web.dashboard.forms.schema_form import ROOT, SchemaForm
from kesin.web.dashboard.forms.uploads import WideForm
from kesin.web.dashboard.frame.page import Context, PageContext, page_router
from kesin.web.dashboard.frame.routes import FirstFields
from kesin.workloads.optiplan import rule_changes
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.orders.payload import FieldProblem, validation_problem
from kesin.workloads.optiplan.pages import rules_form
from kesin.workloads.optiplan.pages.orders import PATH, frame, order_service, readable_order_service
from kesin.workloads.optiplan.rule_changes import FROM_NEXT_START, rules_digest
from kesin.workloads.optiplan.service import OrderService
from kesin.workloads.optiplan.workshop.paths import paths_json
from kesin.workloads.optiplan.workshop.rules import Rules, rule_warnings, rules_json

router = page_router()

PAGE_CUSTOMERS: Final = 50
MAX_DIGEST_CHARS: Final = 64  # of the digest that identifies the rules
Phone = Annotated[str, Query(max_length=40)]


# Customers


@router.get(f"{PATH}/customers", response_class=HTMLResponse)
def customers_page(ctx: Context, phone: Phone = "", cursor: Phone = "", done: Phone = "") -> HTMLResponse:
    orders, phone = readable_order_service(ctx), phone.strip()
    return _render_customers(ctx, orders, phone, cursor, done=done)


def _render_customers(
    ctx: PageContext, orders: OrderService, phone: str = "", cursor: str = "", **outcome: Any
) -> HTMLResponse:
    customers, following = orders.customer_page(ctx.actor, limit=PAGE_CUSTOMERS, cursor=cursor or None, search=phone)
    return ctx.page(
        "optiplan/customers.html",
        customers=customers,
        following=following,
        phone=phone,
        **outcome,
        **frame(ctx, "customers"),
    )


@router.post(f"{PATH}/customers")
def save_customer(ctx: Context, fields: FirstFields) -> Response:
    """Save a customer by phone number; a known phone gets the new name."""
    orders = order_service(ctx)
    given = {name: fields.get(name, "")[:200] for name in ("name", "phone")}
    try:
        _, new = orders.add_customer(ctx.actor, **given)
    except OrderProblem as problem:
        return _render_customers(ctx, orders, problem=problem, given=given)
    return _redirect("customers", "new" if new else "renamed")


@router.post(f"{PATH}/customers/remove")
def delete_customer(ctx: Context, fields: FirstFields) -> Response:
    deleted = order_service(ctx).remove_customer(ctx.actor, fields.get("phone", "")[:40])
    return _redirect("customers", "removed" if deleted else "")


# Rules and paths


@router.get(f"{PATH}/rules", response_class=HTMLResponse)
def rules_page(ctx: Context, done: Annotated[str, Query(max_length=400)] = "") -> HTMLResponse:
    orders = readable_order_service(ctx)
    orders.context.commands.queue(ctx.actor, "optiplan")
    return _render_rules(ctx, orders, changed=done)


def _render_rules(
    ctx: PageContext,
    orders: OrderService,
    *,
    changed: str = "",
    problem: Problem | None = None,
    value: Any = None,
    typed: rules_form.TypedRules | None = None,
    seen: str = "",
) -> HTMLResponse:
    """The page; after an error, with the values as typed."""
    in_force = orders.workshop.rules()
    rules = rules_json(in_force)
    errors = _field_errors(problem, typed) if problem and typed else {}
    shown = rules_form.form_value(rules) if value is None else value
    names = [name for name in changed.split(",") if name in rules]
    form = SchemaForm(rules_form.form_schema(ctx.say), language=ctx.language)
    return ctx.page(
        "optiplan/rules.html",
        **_form_values(ctx, orders, shown, seen, errors),
        paths=paths_json(orders.workshop.paths()),
        changed=names,
        nothing_changed=changed == "none",
        from_next_start=[name for name in names if name in FROM_NEXT_START],
        warnings=rule_warnings(in_force),
        problem=problem,
        errors=errors,
        labels={name: form.label_of(name[1:]) for name in errors if name != "rules"},
        **frame(ctx, "rules"),
    )


def _form_values(
    ctx: PageContext, orders: OrderService, value: Any, seen: str, errors: dict[str, list[str]]
) -> dict[str, Any]:
    """The template's values: the form, filled in, and the digest of the rules being edited."""
    by_pointer = {name.removeprefix(ROOT): messages for name, messages in errors.items()}
    schema = rules_form.form_schema(ctx.say, rules_form.profile_names(value))
    root = SchemaForm(schema, by_pointer).draw(value)
    seen = seen or rules_digest(orders.workshop.rules())
    return {"root": root, "seen": seen, "form_id": "rules-form"}


@router.post(f"{PATH}/rules/form", response_class=HTMLResponse)
def change_rules_form(ctx: Context, fields: WideForm) -> HTMLResponse:
    """The form with a row added or removed; keeps what was typed and saves nothing."""
    orders = order_service(ctx)
    orders.context.commands.queue(ctx.actor, "optiplan", "operate", "rules")
    form = SchemaForm(rules_form.form_schema(ctx.say))
    value = form.read(fields)
    do, _, pointer = fields.get("do", "").partition(":")
    if do not in {"add", "remove"}:
        raise Invalid("specify the change: add or remove:N")
    value = form.with_added(value, pointer) if do == "add" else form.with_removed(value, pointer)
    values = _form_values(ctx, orders, value, fields.get("seen", "")[:MAX_DIGEST_CHARS], {})
    return ctx.page("optiplan/part_rules_form.html", **values, **frame(ctx, "rules"))


@router.post(f"{PATH}/rules")
def change_rules_page(ctx: Context, fields: WideForm) -> Response:
    """Validate the typed rules and show what would change; with ``sure``, put them in force."""
    orders = order_service(ctx)
    orders.context.commands.queue(ctx.actor, "optiplan", "operate", "rules")
    before = orders.workshop.rules()
    seen = fields.get("seen", "")[:MAX_DIGEST_CHARS]
    value = SchemaForm(rules_form.form_schema(ctx.say)).read(fields)
    if fields.get("do") == "edit":
        return _render_rules(ctx, orders, value=value, seen=seen)
    typed = rules_form.read_typed_rules(value, rules_json(before))
    try:
        after = _validate(typed)
        if "sure" in fields:
            _, keys = rule_changes.change_rules(orders, ctx.actor, typed.values, expected_digest=seen)
            return _redirect("rules", ",".join(keys) or "none")
        if seen:
            rule_changes.check_unchanged(before, seen)
    except (OrderProblem, RequestConflict) as problem:
        return _render_rules(ctx, orders, problem=problem, value=value, typed=typed)
    changed = rules_form.list_changes(ctx.say, rules_json(before), rules_json(after))
    if not changed:
        return _redirect("rules", "none")
    at_start = sorted(FROM_NEXT_START)
    return ctx.page(
        "optiplan/rules_review.html",
        changed=changed,
        typed={name: text for name, text in fields.items() if name.startswith(ROOT)},
        seen=rules_digest(before),
        later=[name for name in at_start if getattr(before, name) != getattr(after, name)],
        **frame(ctx, "rules"),
    )


def _validate(typed: rules_form.TypedRules) -> Rules:
    """The rules, if the form's tables are valid too; else raises all problems at once."""
    problems = [FieldProblem((pointer,), message) for pointer, message in typed.errors.items()]
    try:
        rules = rule_changes.read_new_rules(typed.values)
        if not problems:
            return rules
    except OrderProblem as problem:
        rows = problem.details.get("fields", ())
        in_rules = [FieldProblem((row["field"],), row["message"]) for row in rows]
        problems += [rule for rule in in_rules if typed.pointer_of(rule.field) not in typed.errors]
    raise validation_problem(problems)


def _field_errors(problem: Problem, typed: rules_form.TypedRules) -> dict[str, list[str]]:
    """The messages by the name of their field; the form has those that no field has."""
    errors: dict[str, list[str]] = {}
    for row in problem.details.get("fields", ()):
        field = row["field"]
        if pointer := field if field in typed.errors else typed.pointer_of(field):
            errors.setdefault(ROOT + pointer, []).append(row["message"])
        else:
            message = FieldProblem((field,), row["message"]).full_message
            errors.setdefault("rules", []).append(message)
    return errors


def _redirect(page: str, done: str) -> Response:
    return RedirectResponse(f"{PATH}/{page}?done={done}", status_code=303)
