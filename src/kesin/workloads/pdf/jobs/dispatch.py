"""How a job reaches a worker: polled in SQL, by RQ's messages in Redis; one claim wins."""

from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from kesin.engine.queue import Queue
from kesin.foundation.logs import Logger
from kesin.foundation.settings import load_settings
from kesin.store.contract import Store
from kesin.store.sql.store import SqlStore

if TYPE_CHECKING:
    from kesin.store.redis.store import RedisStore
    from kesin.workloads.pdf.jobs.rq_queue import RqMessageQueue

MAX_CHECKED_JOBS: Final = 500  # the oldest waiting jobs, at each check
log = Logger("kesin.pdf")


def enqueue_pdf_job(job_id: str, *, store: Store | None = None) -> None:
    """Send a message to a worker; never raises, for ``dispatch_waiting`` finds jobs without one."""
    try:
        if store is not None:
            messages = find_message_queue(store)
        else:
            url = load_settings().redis_url
            messages = _open_message_queue(url) if url else None
        if messages is not None:
            messages.send([job_id])
    except Exception as problem:  # noqa: BLE001  # the job is safe in the store
        log.warning("dispatch_failed", job=job_id, why=type(problem).__name__)


def dispatch_waiting(queue: Queue) -> int:
    """Send a message for every due job that has none: it was lost, or a retry never had one."""
    messages = find_message_queue(queue.store)
    if messages is None or not (due := queue.peek(limit=MAX_CHECKED_JOBS)):
        return 0
    job_ids = messages.find_jobs_without_message(due)
    messages.send(job_ids)
    if job_ids:
        log.info("jobs_dispatched_again", jobs=len(job_ids))
    return len(job_ids)


def find_message_queue(store: Store) -> "RqMessageQueue | None":
    """Return the message queue beside the jobs of this store; None where workers poll."""
    home = store.store_for("pdf")
    return None if isinstance(home, SqlStore) else _open_message_queue(cast("RedisStore", home).url)


@lru_cache(maxsize=8)
def _open_message_queue(url: str) -> "RqMessageQueue":
    from kesin.workloads.pdf.jobs.rq_queue import RqMessageQueue

    return RqMessageQueue(url)
