"""A fake upload channel without a network, for histories of many uploads."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from kesin.lifecycle.errors import Category
from kesin.workloads.oci.google.channel import (
    NOT_SENT,
    ConnectionTrouble,
    Finding,
    RequestFailure,
    RowAccepted,
    RowRefused,
    UploadResult,
    UploadRow,
)
from kesin.workloads.oci.google.classify import ERROR_TABLE, GoogleError, classify_errors
from kesin.workloads.oci.google.credentials import GoogleCredentials

CREDENTIALS = {
    "customer_id": "1234567890",
    "client_id": "client.apps.example",
    "client_secret": "the-client-secret",
    "refresh_token": "the-refresh-token",
    "conversion_action_resource_name": "customers/1234567890/conversionActions/987654321",
}
GOOGLE_SAYS = [
    (group, value)
    for group, (_, values) in ERROR_TABLE.items()
    # Those are never about a row, or never about a conversion.
    if group not in {"processingErrorReason", "conversionAdjustmentUploadError"}
    for value in values
]

Told = Literal["take", "lose", "leave"] | tuple[str, str]  # what Google does with a row


class Google:
    """A fake channel; it records an order id once, as Google does."""

    def __init__(self) -> None:
        self.telling: Sequence[Told] = ("take",)
        self.trouble: ConnectionTrouble | None = None
        self.is_well = self.is_ready = True
        self.meanwhile: Callable[[Sequence[str]], None] | None = None
        self.recorded: Counter[str] = Counter()
        self.sent: dict[str, RowAccepted | RowRefused] = {}

    def precheck(self, credentials: GoogleCredentials) -> ConnectionTrouble | None:
        return None if self.is_ready else ConnectionTrouble("TRANSIENT", "TOKEN_UNAVAILABLE", "no token")

    def upload(self, credentials: GoogleCredentials, rows: Sequence[UploadRow]) -> UploadResult:
        assert credentials.refresh_token == CREDENTIALS["refresh_token"]
        answers = [
            self._answer(row.conversion.order_id, told) for row, told in zip(rows, itertools.cycle(self.telling))
        ]
        self.sent.update(zip([row.job_id for row in rows], answers, strict=True))
        if self.meanwhile:
            self.meanwhile([row.job_id for row in rows])
        return UploadResult(answers, self.trouble)

    def check(self, credentials: GoogleCredentials) -> list[Finding]:
        return [Finding("token", self.is_well, "as it is")]

    def search(self, credentials: GoogleCredentials, query: str) -> RequestFailure:
        """Google's figures are no part of these histories."""
        return RequestFailure(RowRefused("UNAVAILABLE", "no figures", Category.TRANSIENT))

    def _answer(self, order_id: str, behaviour: Told) -> RowAccepted | RowRefused:
        if behaviour == "leave":
            return RowRefused("CIRCUIT_OPEN", "it never left", Category.TRANSIENT, NOT_SENT)
        if self.trouble and behaviour != "lose":
            kind = Category(self.trouble.kind)
            return RowRefused(self.trouble.code, self.trouble.message, kind)
        if isinstance(behaviour, tuple):
            return classify_errors([GoogleError(*behaviour, "as Google says it")])
        if self.recorded[order_id]:
            return classify_errors([GoogleError("conversionUploadError", "ORDER_ID_ALREADY_IN_USE", "")])
        self.recorded[order_id] += 1
        if behaviour == "lose":
            return RowRefused("TIMEOUT", "the answer was lost", Category.TRANSIENT)
        return RowAccepted()
