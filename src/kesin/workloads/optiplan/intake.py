"""Orders as a shop sends them: JSON, or an order list as XLSX or CSV."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.order_list import ListDefaults, read_order_file
from kesin.workloads.optiplan.orders.payload import FieldProblem, Payload, read_payload
from kesin.workloads.optiplan.orders.spreadsheet import CSV, XLSX
from kesin.workloads.optiplan.workshop.rules import NO_BAND, Rules

# Browsers on Windows send a CSV as an Excel file.
FILE_TYPES: Final = (XLSX, CSV, "application/vnd.ms-excel", "application/octet-stream")


def payload_from_json(body: Any, order_id: str) -> Payload:
    """Read the order in a JSON body; its id is the one in the URL."""
    if isinstance(body, Mapping):
        if body.get("order_id", order_id) != order_id:
            raise FieldProblem(("order_id",), "is another one than in the address").as_problem()
        body = {**body, "order_id": order_id}
    return read_payload(body)


def payload_from_file(
    name: str,
    data: bytes,
    *,
    order_id: str,
    customer_phone: str | None,
    rules: Rules,
    defaults: ListDefaults,
) -> Payload:
    """Read the order in an order list; raises BadOrderList with every invalid row."""
    if customer_phone is None:
        raise OrderProblem(
            OptiCode.PHONE_REQUIRED,
            "a list does not tell whose it is: give the customer's phone, ?customer_phone=",
        )
    bands = tuple(band for band in rules.edge_mapping if band != NO_BAND) or defaults.bands
    tick = defaults.band if defaults.band in bands else bands[0]
    defaults = replace(defaults, backs_mm=rules.backing_thicknesses, bands=bands, band=tick)
    names = {"order_id": order_id, "customer_phone": customer_phone}
    return read_order_file(name, data, **names, defaults=defaults)
