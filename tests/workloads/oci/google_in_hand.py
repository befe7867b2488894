"""A way to Google in the test's hand, without a network: for histories of many uploads."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from kesin.lifecycle.errors import Category
from kesin.workloads.oci.google.channel import (
    NOT_SENT,
    Accepted,
    Finding,
    Refused,
    Row,
    Sent,
    Trouble,
)
from kesin.workloads.oci.google.classify import GoogleError, judge
from kesin.workloads.oci.google.credentials import Credentials
from kesin.workloads.oci.google.error_table import TABLE

CREDENTIALS = {
    "customer_id": "1234567890",
    "client_id": "client.apps.example",
    "client_secret": "the-client-secret",
    "refresh_token": "the-refresh-token",
    "conversion_action_resource_name": "customers/1234567890/conversionActions/987654321",
}
GOOGLE_SAYS = [(group, value) for group, (_, values) in TABLE.items() for value in values]

Told = Literal["take", "lose", "leave"] | tuple[str, str]  # what Google does with a row


class Google:
    """A way to Google in the test's hand; it records an order id once, as Google does."""

    def __init__(self) -> None:
        self.telling: Sequence[Told] = ("take",)
        self.trouble: Trouble | None = None
        self.is_well = self.is_ready = True
        self.meanwhile: Callable[[Sequence[str]], None] | None = None
        self.recorded: Counter[str] = Counter()
        self.sent: dict[str, Accepted | Refused] = {}

    def ready(self, credentials: Credentials) -> Trouble | None:
        return None if self.is_ready else Trouble("TRANSIENT", "TOKEN_UNAVAILABLE", "no token")

    def upload(self, credentials: Credentials, rows: Sequence[Row]) -> Sent:
        assert credentials.refresh_token == CREDENTIALS["refresh_token"]
        answers = [
            self._answer(row.conversion.order_id, told)
            for row, told in zip(rows, itertools.cycle(self.telling))
        ]
        self.sent.update(zip([row.job_id for row in rows], answers, strict=True))
        if self.meanwhile:
            self.meanwhile([row.job_id for row in rows])
        return Sent(answers, self.trouble)

    def check(self, credentials: Credentials) -> list[Finding]:
        return [Finding("token", self.is_well, "as it is")]

    def _answer(self, order_id: str, told: Told) -> Accepted | Refused:
        if told == "leave":
            return Refused("CIRCUIT_OPEN", "it never left", Category.TRANSIENT, NOT_SENT)
        if self.trouble and told != "lose":
            kind = Category(self.trouble.kind)
            return Refused(self.trouble.code, self.trouble.message, kind)
        if isinstance(told, tuple):
            return judge([GoogleError(*told, "as Google says it")])
        if self.recorded[order_id]:
            return judge([GoogleError("conversionUploadError", "ORDER_ID_ALREADY_IN_USE", "")])
        self.recorded[order_id] += 1
        if told == "lose":
            return Refused("TIMEOUT", "the answer was lost", Category.TRANSIENT)
        return Accepted()
