"""The rows of a page as a file for a spreadsheet: streamed, bounded, and never a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kesin.foundation.clock import iso
from kesin.lifecycle.model import Job
from kesin.store.limits import MAX_PAGE
from kesin.web.dashboard.frame.masking import masked_text
from kesin.web.dashboard.frame.page import PageContext
from kesin.web.dashboard.queues.filters import Meant, rows

MOST_ROWS: Final = 50_000
COLUMNS: Final = (
    "id",
    "key",
    "site",
    "state",
    "error_code",
    "error_category",
    "error_message",
    "attempts",
    "max_attempts",
    "created_at",
    "moved_at",
    "due_at",
    "finished_at",
)
_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
_PARTED: Final = re.compile(r"([;,\t\r\n|]\s*)(?=[=+@-])")  # signs a spreadsheet may part a line at
_MARK: Final = "\ufeff"  # without it Excel reads Turkish letters as something else


def exported(looking: PageContext, queue: str, sought: Meant) -> Iterator[str]:
    """The lines, a page at a time; a file that was cut says so in its last line."""
    yield _MARK + _lines([COLUMNS])
    cursor: str | None = None
    told = 0
    while told < MOST_ROWS:
        page = rows(looking, queue, sought, limit=MAX_PAGE, cursor=cursor)
        yield _lines(_row(job) for job in page.jobs)
        told += len(page.jobs)
        cursor = page.cursor
        if cursor is None:
            return
    yield _lines([[looking.say("There are more rows: narrow the filter to export the rest.")]])


def _row(job: Job) -> list[str]:
    cells = (
        job.id,
        job.dedup_key,
        job.tenant,
        job.state,
        job.error_code,
        job.error_category,
        masked_text(job.error_message),
        job.attempt_count,
        job.max_attempts,
        iso(job.created_at),
        iso(job.moved_at),
        iso(job.run_at),
        iso(job.finished_at),
    )
    return [safe(one) for one in cells]


def safe(value: Any) -> str:
    """A cell that no spreadsheet takes for a formula, at whichever sign it parts the line."""
    text = "" if value is None else str(value)
    text = _PARTED.sub(r"\1'", text)
    return f"'{text}" if text.startswith(_STARTS) else text


def _lines(cells: Iterable[Sequence[str]]) -> str:
    page = io.StringIO(newline="")
    csv.writer(page).writerows(cells)
    return page.getvalue()
