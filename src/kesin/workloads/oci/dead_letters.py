"""Dead letters as a file people can open, mend and send back."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kesin.foundation.clock import iso
from kesin.lifecycle.model import Job
from kesin.store.directory import Site
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.workloads.oci.advice import Language, advice
from kesin.workloads.oci.cells import safe
from kesin.workloads.oci.conversions import SEAL
from kesin.workloads.workload import House

COLUMNS: Final = (
    *("id", "externalId", "revision", "gclid", "wbraid", "gbraid", "conversionName"),
    *("conversionTime", "conversionValue", "conversionCurrency", "orderId"),
    *("errorCode", "errorCategory", "lastError", "whatToDo", "attempts", "failedAt"),
)
_THREE_DECIMALS: Final = re.compile(r"[0-9]+\.[0-9]{3}")


def dead_letters(house: House, site: Site, *, language: Language = "en") -> Iterator[str]:
    """The site's FAILED rows as CSV, the header first, then page by page, newest first."""
    yield "\ufeff" + _lines([COLUMNS])  # the mark tells spreadsheets that this is UTF-8
    cursor: str | None = None
    where = Filter(states=("FAILED",), tenants=(site.id,))
    while True:
        page = house.queue.jobs(where, limit=MAX_PAGE, cursor=cursor)
        if page.jobs:
            yield _lines([_cells(job, language) for job in page.jobs])
        cursor = page.cursor
        if cursor is None:
            return


def _cells(job: Job, language: Language) -> list[str]:
    kept = job.data if isinstance(job.data, dict) else {}
    told: dict[str, Any] = {
        **kept,
        "id": f"{SEAL}{job.id}",
        "conversionValue": _amount(kept.get("conversionValue")),
        "revision": kept.get("revision", 1),
        "errorCode": job.error_code,
        "errorCategory": job.error_category,
        "lastError": job.error_message,
        "whatToDo": advice(job.error_code, job.error_category, language).act,
        "attempts": job.attempt_count,
        "failedAt": iso(job.stamp_3),
    }
    return [safe(told.get(name)) for name in COLUMNS]


def _amount(value: Any) -> Any:
    """Three decimals get a fourth: 12.345 could be read in two ways, and would be refused."""
    text = str(value)
    return f"{text}0" if _THREE_DECIMALS.fullmatch(text) else value


def _lines(rows: Iterable[Sequence[str]]) -> str:
    page = io.StringIO(newline="")
    csv.writer(page).writerows(rows)
    return page.getvalue()
