"""What lists call an order."""

from __future__ import annotations

from typing import Any

from kesin.engine.access.masking import MASK


def order_title(data: Any) -> str:
    """An order's number and revision, and its customer unless that is masked."""
    payload = data if isinstance(data, dict) else {}
    order = payload.get("order")
    order = order if isinstance(order, dict) else {}
    number, customer = order.get("order_id"), order.get("customer_snapshot_name")
    if not isinstance(number, str) or not number:
        return ""
    revision = payload.get("revision", 1)
    revised = f"{number} r{revision}" if isinstance(revision, int) and revision > 1 else number
    shown = isinstance(customer, str) and customer and MASK not in customer
    return f"{customer} · {revised}" if shown else revised
