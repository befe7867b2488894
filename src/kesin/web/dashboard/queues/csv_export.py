"""The jobs of a page as CSV: streamed, bounded, without formulas."""

from collections.abc import Callable, Iterator
from typing import Final

from kesin.engine.access.listing import JobSearch
from kesin.foundation.clock import iso
from kesin.foundation.text import csv_text
from kesin.lifecycle.model import Job
from kesin.store.limits import MAX_PAGE
from kesin.web.dashboard.frame.page import PageContext
from kesin.web.dashboard.queues.filters import read_page

MAX_ROWS: Final = 50_000
COLUMNS: Final[dict[str, Callable[[Job], object]]] = {
    "id": lambda job: job.id,
    "key": lambda job: job.dedup_key,
    "site": lambda job: job.tenant,
    "state": lambda job: job.state,
    "error_code": lambda job: job.error_code,
    "error_category": lambda job: job.error_category,
    "error_message": lambda job: job.error_message,
    "attempts": lambda job: job.attempt_count,
    "max_attempts": lambda job: job.max_attempts,
    "created_at": lambda job: iso(job.created_at),
    "moved_at": lambda job: iso(job.moved_at),
    "due_at": lambda job: iso(job.run_at),
    "finished_at": lambda job: iso(job.finished_at),
}
_BOM: Final = "\ufeff"  # without it Excel misreads Turkish letters


def csv_lines(ctx: PageContext, queue: str, search: JobSearch) -> Iterator[str]:
    """The lines, page by page; a truncated file says so in its last line."""
    yield _BOM + csv_text([COLUMNS])
    cursor: str | None = None
    written = 0
    while written < MAX_ROWS:
        page = read_page(ctx, queue, search, limit=MAX_PAGE, cursor=cursor)
        yield csv_text([read(job) for read in COLUMNS.values()] for job in page.jobs)
        written += len(page.jobs)
        cursor = page.cursor
        if cursor is None:
            return
    yield csv_text([[ctx.say("There are more rows: narrow the filter to export the rest.")]])
