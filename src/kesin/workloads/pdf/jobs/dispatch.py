"""How a job reaches somebody who renders: the one function to change for another transport.

The workers of SQLite and of PostgreSQL look for themselves, and are woken when a job is written.
Jobs that live in Redis are sent for over RQ. A message there may be lost or come twice: who gets
it claims the job by its id, and only one can.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kesin.engine.queue import Queue
from kesin.foundation.logs import Logger
from kesin.foundation.settings import load_settings
from kesin.store.contract import Store
from kesin.store.sql.store import SqlStore

if TYPE_CHECKING:
    from kesin.workloads.pdf.jobs.rq_queue import Line

MOST_LOOKED: Final = 500  # waiting jobs, the oldest, at every look
_QUEUE: Final = "pdf"
log = Logger("kesin.pdf")


def enqueue_pdf_job(job_id: str, *, store: Store | None = None) -> None:
    """Send for a worker. Never raises: a job that cannot be sent for now is found by the sweeper.

    ``store``: where the job lives; else where the settings say.
    """
    try:
        line = _environments() if store is None else line_of(store)
        if line is not None:
            line.send([job_id])
    except Exception as problem:  # noqa: BLE001  # the job is safe, whatever the transport does
        log.warning("not_sent_for", job=job_id, why=type(problem).__name__)


def dispatch_waiting(queue: Queue) -> int:
    """Send for a worker for every job that is due and has no message; how many.

    Messages are lost with RQ's keys, with a worker that had just taken one, or when Redis was away;
    retries that have become due never had one.
    """
    line = line_of(queue.store)
    if line is None or not (due := queue.peek(limit=MOST_LOOKED)):
        return 0
    lost = line.without_message(due)
    line.send(lost)
    if lost:
        log.info("sent_for_again", jobs=len(lost))
    return len(lost)


def line_of(store: Store) -> Line | None:
    """The line beside the jobs of this store; None where workers look for themselves."""
    home = store.home(_QUEUE)
    if isinstance(home, SqlStore):
        return None
    from kesin.store.redis.store import RedisStore

    return _line(home.url) if isinstance(home, RedisStore) else None


def _environments() -> Line | None:
    url = load_settings().redis_url
    return _line(url) if url else None


@lru_cache(maxsize=8)
def _line(url: str) -> Line:
    from kesin.workloads.pdf.jobs.rq_queue import Line

    return Line(url)
