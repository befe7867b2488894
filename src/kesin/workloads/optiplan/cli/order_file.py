"""An order in a file on this machine: a list from a spreadsheet, or the JSON of the API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from kesin.foundation.problems import Invalid
from kesin.foundation.terminal import visible
from kesin.workloads.optiplan.intake import order_of_file
from kesin.workloads.optiplan.orders.order_list import BadOrderList, ListDefaults
from kesin.workloads.optiplan.orders.payload import Payload, read_payload
from kesin.workloads.optiplan.workshop.rules import Rules

LARGEST_BYTES: Final = 10_000_000


def order_in(
    file: Path,
    *,
    order_id: str | None,
    phone: str | None,
    rules: Rules,
    defaults: ListDefaults | None = None,
) -> Payload:
    """The order. A JSON file may leave out its id; the phone given beside it wins over its own.

    Raises Invalid, of a list with every row that is wrong.
    """
    data = content(file)
    if file.suffix.lower() == ".json":
        return _of_json(file, data, order_id, phone)
    if phone is None:
        raise Invalid("say whose order it is with --phone")
    try:
        return order_of_file(
            file.name,
            data,
            order_id=order_id or file.stem,
            customer_phone=phone,
            rules=rules,
            defaults=defaults,
        )
    except BadOrderList as problem:
        lines = [f"  {visible(str(one))}" for one in problem.problems]
        raise Invalid("\n".join([f"{file}: nothing was made", *lines])) from None


def content(file: Path) -> bytes:
    """What is in a file somebody names; raises Invalid."""
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST_BYTES + 1)
    except OSError as problem:
        raise Invalid(f"{file} cannot be read: {problem.strerror}") from None
    if len(data) > LARGEST_BYTES:
        raise Invalid(f"{file} has more than {LARGEST_BYTES} bytes")
    return data


def _of_json(file: Path, data: bytes, order_id: str | None, phone: str | None) -> Payload:
    try:
        told: Any = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        raise Invalid(f"{file} is no JSON: {problem}") from None
    if not isinstance(told, dict):
        raise Invalid(f"{file} must hold an object: an order")
    told = {"order_id": order_id or file.stem, **told}
    if order_id is not None and told["order_id"] != order_id:
        raise Invalid(f"{file} is the order {told['order_id']!r}, and --order-id says {order_id!r}")
    return read_payload({**told, "customer_phone": phone} if phone else told)
