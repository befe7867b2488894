"""Back-pressure: too many waiting jobs and new ones are refused, until the line is shorter.

The mark is kept in the store, so that all processes of the API say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kesin.engine.queue import Queue
from kesin.foundation.problems import TooMany
from kesin.store.directory import Fact
from kesin.store.facts import facts_of
from kesin.store.records import QueueStats
from kesin.workloads.pdf.ledger import WORKLOAD

BACKPRESSURE_FACT: Final = "back-pressure"
BACKPRESSURE_ACTIVE: Final = "BACKPRESSURE_ACTIVE"
RESUME_SHARE: Final = 0.8
BACKPRESSURE_RETRY_S: Final = 30


@dataclass(slots=True)
class Backpressure:
    """Whether a new job may come in."""

    queue: Queue
    most: int

    def check(self, stats: QueueStats | None = None) -> None:
        """Raise TooMany while the line is too long; it must get clearly shorter to open again."""
        facts = facts_of(self.queue.store)
        waiting = (stats or self.queue.stats()).states["queued"]
        closed = facts.fact(WORKLOAD, "", BACKPRESSURE_FACT) is not None
        if not closed and waiting >= self.most:
            facts.put_fact(Fact(WORKLOAD, "", BACKPRESSURE_FACT, str(waiting), self.queue.now()))
            closed = True
        elif closed and waiting < self.most * RESUME_SHARE:
            facts.drop_fact(WORKLOAD, "", BACKPRESSURE_FACT)
            closed = False
        if closed:
            raise TooMany(
                f"{waiting} jobs are waiting: try again later",
                retry_after_s=BACKPRESSURE_RETRY_S,
                code=BACKPRESSURE_ACTIVE,
            )
