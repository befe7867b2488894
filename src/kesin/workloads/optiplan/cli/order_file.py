"""Orders in local files: an order list from a spreadsheet, or the API's JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from kesin.foundation.problems import Invalid
from kesin.foundation.terminal import visible
from kesin.workloads.optiplan.intake import payload_from_file
from kesin.workloads.optiplan.orders.order_list import BadOrderList, ListDefaults
from kesin.workloads.optiplan.orders.payload import Payload, read_payload
from kesin.workloads.optiplan.workshop.rules import Rules

MAX_FILE_BYTES: Final = 10_000_000


def read_order(
    file: Path,
    *,
    order_id: str | None,
    phone: str | None,
    rules: Rules,
    defaults: ListDefaults | None = None,
) -> Payload:
    """Read an order. A JSON file may omit its id, and ``phone`` overrides the phone in it.

    Raises Invalid; for an order list, with every invalid row.
    """
    data = read_file(file)
    if file.suffix.lower() == ".json":
        return _read_json_order(file, data, order_id, phone)
    if phone is None:
        raise Invalid("say whose order it is with --phone")
    try:
        return payload_from_file(
            file.name,
            data,
            order_id=order_id or file.stem,
            customer_phone=phone,
            rules=rules,
            defaults=defaults,
        )
    except BadOrderList as problem:
        lines = [f"  {visible(str(row_problem))}" for row_problem in problem.problems]
        raise Invalid("\n".join([f"{file}: nothing was made", *lines])) from None


def read_file(file: Path) -> bytes:
    """Read a file that the user names; raises Invalid."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        raise Invalid(f"{file} cannot be read: {problem.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise Invalid(f"{file} has more than {MAX_FILE_BYTES} bytes")
    return data


def _read_json_order(file: Path, data: bytes, order_id: str | None, phone: str | None) -> Payload:
    try:
        body: Any = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        raise Invalid(f"{file} is no JSON: {problem}") from None
    if not isinstance(body, dict):
        raise Invalid(f"{file} must hold an object: an order")
    body = {"order_id": order_id or file.stem, **body}
    if order_id is not None and body["order_id"] != order_id:
        raise Invalid(f"{file} is the order {body['order_id']!r}, and --order-id says {order_id!r}")
    return read_payload({**body, "customer_phone": phone} if phone else body)
