"""Whose turn it is: each thread's next claim begins after the tenant it served last.

With T tenants waiting, the k-th job in its tenant's line is in the k·⌈T/b⌉-th claim of b jobs by
any one thread at the latest. Nothing is stored: a crash loses only a starting point.
"""

import random
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Final

from kesin.lifecycle.model import Job
from kesin.store.contract import Store

FIRST_TENANTS: Final = 1_000  # among how many a thread's first start is drawn


class Turns:
    """The places of the threads of one queue."""

    def __init__(self, store: Store, queue: str, seed: int | None) -> None:
        self._store = store
        self._queue = queue
        self._random = random.Random(seed)
        self._local = threading.local()

    def after(self) -> str:
        """The tenant after which this thread's next claim begins."""
        after: str | None = getattr(self._local, "after", None)
        if after is None:
            tenants = self._store.ready_tenants(self._queue, FIRST_TENANTS)
            after = self._local.after = self._random.choice(tenants) if len(tenants) > 1 else ""
        return after

    def advance(self, jobs: Sequence[Job]) -> None:
        """Continue after the tenants that a claim served."""
        if jobs:
            self._local.after = next_turn(self.after(), jobs)


def next_turn(after: str, jobs: Sequence[Job]) -> str:
    """The last tenant, in the order of turns, that got one job more; else the last one served."""
    counts = Counter([job.tenant for job in jobs])
    most = max(counts.values())
    return max(
        (tenant for tenant, count in counts.items() if count == most), key=lambda tenant: (tenant <= after, tenant)
    )


def turns_bound() -> str:
    """The sentence printed beside a lifecycle's own bound."""
    return (
        "while T tenants wait, each worker thread that claims b jobs at a time claims the k-th job"
        " of a tenant in its k·⌈T/b⌉-th claim at the latest (if b ≥ T, in its ⌈k/⌊b/T⌋⌉-th); a"
        " tenant's due jobs are ordered by priority, then by age; slots and rates are not counted;"
        " if more than 1,000 tenants have ready jobs, T also counts tenants with later jobs, and b"
        " is at most 1,000"
    )
