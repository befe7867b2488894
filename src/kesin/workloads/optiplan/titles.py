"""What lists call an order."""

from typing import Any

from kesin.engine.access.masking import MASK
from kesin.store.search import field_of


def order_title(data: Any) -> str:
    """An order's number and revision, and its customer unless that is masked."""
    number = field_of(data, "order.order_id")
    customer = field_of(data, "order.customer_snapshot_name")
    if not isinstance(number, str) or not number:
        return ""
    revision = field_of(data, "revision")
    revised = f"{number} r{revision}" if isinstance(revision, int) and revision > 1 else number
    shown = isinstance(customer, str) and customer and MASK not in customer
    return f"{customer} · {revised}" if shown else revised
