"""uploadConversionAdjustments of the local Google, in the classes of Google's own package.

It adjusts what the server recorded: a conversion that it does not know is not found, one that was
retracted stays so, and a restatement needs a later time than the last one.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from google.protobuf import json_format

from tests.workloads.oci.google_library import google_module

MAX_ADJUSTMENTS = 2_000
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d")


def _message(kind: str) -> Any:
    service = google_module("services.types.conversion_adjustment_upload_service")
    return getattr(service, f"UploadConversionAdjustments{kind}").pb()()


def adjustment_values() -> list[str]:
    """Every name of Google's enum of errors of adjustments."""
    module = google_module("errors.types.conversion_adjustment_upload_error")
    enum = module.ConversionAdjustmentUploadErrorEnum.ConversionAdjustmentUploadError
    return [value.name for value in enum]


def adjustments_response(rows: list[dict[str, Any]], wrong: dict[int, list[str]]) -> dict[str, Any]:
    """The body of a 200: a result a row, empty for those that are wrong, and their errors."""
    from tests.workloads.oci.fake_google import Wrong, failure

    response = _message("Response")
    if wrong:
        status = response.partial_failure_error
        status.code, status.message = 3, "Multiple errors, see details."
        group = "conversion_adjustment_upload_error"
        errors = ((n, Wrong(group, value, "")) for n, them in wrong.items() for value in them)
        status.details.add().Pack(failure(errors, field="conversion_adjustments"))
    for index, row in enumerate(rows):
        result = response.results.add()
        if index not in wrong:
            names = ("orderId", "conversionAction", "adjustmentDateTime", "adjustmentType")
            json_format.ParseDict({name: row[name] for name in names}, result)
    return json_format.MessageToDict(response)


class AdjustmentsApi:
    """Takes adjustments row by row."""

    recorded: dict[str, dict[str, Any]]  # conversions by order id
    action_ids: Any

    def reset(self) -> None:
        self.adjusted: list[dict[str, Any]] = []  # what was taken, in order
        self.adjustment_errors: Callable[[dict[str, Any]], list[str]] = lambda _row: []

    def adjust(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        asked = self.parse(body, _message("Request"))  # type: ignore[attr-defined]  # the server's
        rows = body["conversionAdjustments"]
        assert asked.partial_failure
        assert len(rows) <= MAX_ADJUSTMENTS
        orders = Counter(row["orderId"] for row in rows)
        assert orders.most_common(1)[0][1] == 1, "one adjustment of a conversion at a time"
        wrong = {n: found for n, row in enumerate(rows) if (found := [*self._wrong(row)])}
        if asked.validate_only:
            return 200, adjustments_response(rows, wrong) if wrong else {}
        self.adjusted += [row for n, row in enumerate(rows) if n not in wrong]
        return 200, adjustments_response(rows, wrong)

    def _wrong(self, row: dict[str, Any]) -> Iterator[str]:
        assert _TIME.fullmatch(row["adjustmentDateTime"])
        assert ("restatementValue" in row) == (row["adjustmentType"] == "RESTATEMENT")
        yield from self.adjustment_errors(row)
        if row["conversionAction"].rpartition("/")[2] not in self.action_ids:
            yield "NO_CONVERSION_ACTION_FOUND"
        elif row["orderId"] not in self.recorded:
            yield "CONVERSION_NOT_FOUND"
        before = [one for one in self.adjusted if one["orderId"] == row["orderId"]]
        at = datetime.fromisoformat(row["adjustmentDateTime"])
        if any(one["adjustmentType"] == "RETRACTION" for one in before):
            yield "CONVERSION_ALREADY_RETRACTED"
        elif row in before:
            yield "RESTATEMENT_ALREADY_EXISTS"
        elif any(datetime.fromisoformat(one["adjustmentDateTime"]) >= at for one in before):
            yield "MORE_RECENT_RESTATEMENT_FOUND"
