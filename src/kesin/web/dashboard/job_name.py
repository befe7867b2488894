"""What a job is called by the people it is for, where what it carries has a name for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kesin.lifecycle.model import Job

MOST_LETTERS: Final = 80


def name_of(job: Job) -> str:
    """Its name, or nothing where only its id tells it from others."""
    maker = NAMES.get(job.queue)
    return maker(job.data) if maker else ""


def order_name(data: Any) -> str:
    """A cutting order: its number, its revision and whose it is."""
    kept = data if isinstance(data, dict) else {}
    order = kept.get("order")
    order = order if isinstance(order, dict) else {}
    number, customer = order.get("order_id"), order.get("customer_snapshot_name")
    if not isinstance(number, str) or not number:
        return ""
    revision = kept.get("revision", 1)
    told = f"{number} r{revision}" if isinstance(revision, int) and revision > 1 else number
    named = f"{customer} · {told}" if isinstance(customer, str) and customer else told
    return named if len(named) <= MOST_LETTERS else f"{named[:MOST_LETTERS]}…"


NAMES: Final[dict[str, Callable[[Any], str]]] = {"optiplan": order_name}
