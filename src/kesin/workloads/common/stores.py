"""Opening the stores of the settings, with each queue in its home, and reading all of a queue."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from kesin.engine.queue import Queue
from kesin.engine.workload import Workload
from kesin.foundation.settings import Settings
from kesin.lifecycle.codec import rules_fingerprint
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Job
from kesin.store.contract import Store
from kesin.store.limits import MAX_PAGE
from kesin.store.open import open_configured_store, open_redis
from kesin.store.records import Filter


def open_workload_stores(settings: Settings, workloads: Collection[Workload]) -> Store:
    """Open the store of the settings, with the queues of these workloads in their homes."""
    in_redis = [workload.name for workload in workloads if workload.in_redis]
    tenant = queues_with_tenant_keys(workloads)
    return open_configured_store(settings, in_redis=in_redis, keys_name_tenant=tenant)


def open_workload_redis(url: str, workloads: Iterable[Workload]) -> Store:
    """Open the Redis that is the home of those of these workloads that live there."""
    return open_redis(url, keys_name_tenant=queues_with_tenant_keys(workloads))


def queues_with_tenant_keys(workloads: Iterable[Workload]) -> frozenset[str]:
    """The queues whose job keys are unique across tenants."""
    return frozenset(workload.name for workload in workloads if workload.keys_name_tenant)


def open_as_stored(store: Store, name: str, lifecycle: Lifecycle) -> Queue | None:
    """The queue, if its newest rules are these: for checks, which declare nothing."""
    versions = store.rules(name)
    if not versions or versions[-1].fingerprint != rules_fingerprint(lifecycle):
        return None  # no process of this version has opened it yet
    return Queue(name, lifecycle, store)


def job_pages(queue: Queue, where: Filter) -> Iterator[Sequence[Job]]:
    """Yield all jobs that match, a page at a time."""
    cursor: str | None = ""
    while cursor is not None:
        page = queue.jobs(where, limit=MAX_PAGE, cursor=cursor or None)
        yield page.jobs
        cursor = page.cursor
