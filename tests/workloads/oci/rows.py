"""Conversions to send."""

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from kesin.workloads.oci.conversions.conversion import Conversion, order_id_of
from kesin.workloads.oci.google.channel import UploadRow

ISTANBUL = timezone(timedelta(hours=3))
START = datetime(2026, 3, 1, 14, 5, tzinfo=ISTANBUL)


def conversion(number: int, **changes: object) -> Conversion:
    given: dict[str, Any] = {
        "external_id": f"sale-{number}",
        "order_id": order_id_of("site", f"sale-{number}"),
        "gclid": f"Cj0KCQ-click_{number}",
        "wbraid": "",
        "gbraid": "",
        "name": "Sale",
        "at": START + timedelta(seconds=number),
        "value": Decimal("150.50"),
        "currency": "TRY",
    }
    return Conversion(**{**given, **changes})


def row(number: int, **changes: object) -> UploadRow:
    return UploadRow(f"job-{number}", conversion(number, **changes))


def rows(count: int) -> list[UploadRow]:
    return [row(number) for number in range(count)]
