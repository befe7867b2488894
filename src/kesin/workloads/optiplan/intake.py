"""Orders as a shop sends them: JSON, or an order list as XLSX or CSV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.order_list import ListDefaults, read_order_file
from kesin.workloads.optiplan.orders.payload import (
    FieldProblem,
    Payload,
    read_payload,
    validation_problem,
)
from kesin.workloads.optiplan.orders.spreadsheet import CSV, XLSX
from kesin.workloads.optiplan.workshop.rules import NO_BAND, Rules

FILE_TYPES: Final = (
    XLSX,
    CSV,
    "application/vnd.ms-excel",  # sent by browsers on Windows for a CSV
    "application/octet-stream",
)


def payload_from_json(body: Any, order_id: str) -> Payload:
    """Read the order in a JSON body; its id is the one in the URL."""
    if isinstance(body, Mapping):
        body_order_id = body.get("order_id", order_id)
        if body_order_id != order_id:
            raise validation_problem(
                [FieldProblem(("order_id",), "is another one than in the address")]
            )
        body = {**body, "order_id": order_id}
    return read_payload(body)


def payload_from_file(
    name: str,
    data: bytes,
    *,
    order_id: str,
    customer_phone: str | None,
    rules: Rules,
    defaults: ListDefaults | None = None,
) -> Payload:
    """Read the order in an order list; raises BadOrderList with every invalid row."""
    if customer_phone is None:
        raise OrderProblem(
            OptiCode.PHONE_REQUIRED,
            "a list does not tell whose it is: give the customer's phone, ?customer_phone=",
        )
    return read_order_file(
        name,
        data,
        order_id=order_id,
        customer_phone=customer_phone,
        defaults=_with_rules(defaults or ListDefaults(), rules),
    )


def _with_rules(defaults: ListDefaults, rules: Rules) -> ListDefaults:
    """Add the workshop's backs and bands. A tick is the default band, or the first without it."""
    defaults = replace(defaults, backs_mm=rules.backing_thicknesses)
    bands = tuple(name for name in rules.edge_mapping if name != NO_BAND)
    if not bands:
        return defaults
    return replace(
        defaults, bands=bands, band=defaults.band if defaults.band in bands else bands[0]
    )
