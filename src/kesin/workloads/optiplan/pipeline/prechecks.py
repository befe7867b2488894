"""What must be settled before anything is converted: the customer, the plate, the template.

In this order, and the first that fails decides: an order without a known customer is never looked
at any further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kesin.workloads.optiplan.customers import Customer
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.payload import Payload, PlateSize
from kesin.workloads.optiplan.orders.phones import normalised_phone
from kesin.workloads.optiplan.pipeline.xlsx_template import Template, check_template
from kesin.workloads.optiplan.workshop.paths import Paths
from kesin.workloads.optiplan.workshop.rules import Rules


@dataclass(frozen=True, slots=True)
class Cleared:
    """What the gates settled; the template is the very one that was checked."""

    customer: Customer
    plate: PlateSize
    template: Template


def check_gates(
    payload: Payload, rules: Rules, paths: Paths, find_customer: Callable[[str], Customer | None]
) -> Cleared:
    """Pass the gates; raises OrderProblem with the code of the first that holds the order."""
    customer = _customer(payload, find_customer)
    plate = payload.plate_size or rules.default_plate_size
    if plate is None:
        raise OrderProblem(
            OptiCode.PLATE_SIZE_MISSING,
            "the order names no plate size and rules.json has no defaultPlateSize",
            {"order_id": payload.order_id},
        )
    return Cleared(customer, plate, check_template(paths.template))


def _customer(payload: Payload, find_customer: Callable[[str], Customer | None]) -> Customer:
    phone = normalised_phone(payload.customer_phone)
    customer = find_customer(phone) if phone else None
    if customer is None:
        told = f"no customer has the phone {phone}" if phone else "the order has no phone number"
        raise OrderProblem(
            OptiCode.CRM_NO_MATCH,
            told,
            {"phone_normalized": phone, "order_id": payload.order_id},
        )
    return customer
