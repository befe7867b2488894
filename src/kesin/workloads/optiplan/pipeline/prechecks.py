"""Checks before an order is transformed: its customer, its plate and the template.

They run in this order and the first failure decides: an order without a known customer is not
examined further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kesin.foundation.messages import Message
from kesin.workloads.optiplan.customers import Customer
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.payload import Payload, PlateSize
from kesin.workloads.optiplan.orders.phones import normalise_phone
from kesin.workloads.optiplan.pipeline.xlsx_template import ImportTemplate, read_template
from kesin.workloads.optiplan.workshop.paths import Paths
from kesin.workloads.optiplan.workshop.rules import Rules


@dataclass(frozen=True, slots=True)
class PrecheckResult:
    """The results of the prechecks, with the template that was checked."""

    customer: Customer
    plate: PlateSize
    template: ImportTemplate


def run_prechecks(
    payload: Payload, rules: Rules, paths: Paths, find_customer: Callable[[str], Customer | None]
) -> PrecheckResult:
    """Run the prechecks; raises OrderProblem with the code of the first failure."""
    customer = _find_customer(payload, find_customer)
    plate = payload.plate_size or rules.default_plate_size
    if plate is None:
        raise OrderProblem(
            OptiCode.PLATE_SIZE_MISSING,
            "the order names no plate size and rules.json has no defaultPlateSize",
            {"order_id": payload.order_id},
        )
    return PrecheckResult(customer, plate, read_template(paths.template))


def _find_customer(payload: Payload, find_customer: Callable[[str], Customer | None]) -> Customer:
    phone = normalise_phone(payload.customer_phone)
    customer = find_customer(phone) if phone else None
    if customer is None:
        message = (
            Message("no customer has the phone %(phone)s", phone=phone)
            if phone
            else "the order has no phone number"
        )
        raise OrderProblem(
            OptiCode.CRM_NO_MATCH,
            message,
            {"phone_normalized": phone, "order_id": payload.order_id},
        )
    return customer
