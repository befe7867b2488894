"""An order from whatever a shop sends: JSON, or the list it keeps as XLSX or CSV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.order_list import (
    ListDefaults,
    read_order_file,
)
from kesin.workloads.optiplan.orders.payload import (
    FieldProblem,
    Payload,
    read_payload,
    refused,
)
from kesin.workloads.optiplan.orders.spreadsheet import CSV, XLSX
from kesin.workloads.optiplan.workshop.rules import NO_BAND, Rules

FILE_TYPES: Final = (
    XLSX,
    CSV,
    "application/vnd.ms-excel",  # what browsers on Windows take a CSV for
    "application/octet-stream",
)


def order_of_json(body: Any, order_id: str) -> Payload:
    """The order in a JSON body; its id is that of the address."""
    if isinstance(body, Mapping):
        given = body.get("order_id", order_id)
        if given != order_id:
            raise refused([FieldProblem(("order_id",), "is another one than in the address")])
        body = {**body, "order_id": order_id}
    return read_payload(body)


def order_of_file(
    name: str,
    data: bytes,
    *,
    order_id: str,
    customer_phone: str | None,
    rules: Rules,
    defaults: ListDefaults | None = None,
) -> Payload:
    """The order in a list; raises BadOrderList with every row that is wrong."""
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
        defaults=_with_bands(defaults or ListDefaults(), rules),
    )


def _with_bands(defaults: ListDefaults, rules: Rules) -> ListDefaults:
    """The bands of the workshop; a tick means the usual one, or the first there is."""
    bands = tuple(name for name in rules.edge_mapping if name != NO_BAND)
    if not bands:
        return defaults
    return replace(
        defaults, bands=bands, band=defaults.band if defaults.band in bands else bands[0]
    )
