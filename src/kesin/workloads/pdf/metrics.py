"""Numbers for Prometheus under the seed's names.

All come from what the store counts in the transaction of the move itself: whichever process made
it, it is there once, and neither a restart nor pruning lowers a counter. Labels are closed sets,
all of them shown from the start, so that a first failure is seen to rise from zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.store.metadata import facts_of
from kesin.workloads.pdf.errors import PdfErrorCode
from kesin.workloads.pdf.jobs.heartbeat import workers_alive
from kesin.workloads.pdf.jobs.stats import BUCKETS_S, WORKLOAD, Ledger, Numbers
from kesin.workloads.pdf.jobs.store import PdfJobStatus
from kesin.workloads.pdf.jobs.submit import BACKPRESSURE_FACT, RESUME_SHARE

PREFIX: Final = "ptf_admin_pdf_"


def collected(house: WorkloadContext) -> Iterable[Metric]:
    """What a scrape gets."""
    queue = house.commands.queues["pdf"]
    yield from counted(queue)
    waiting = queue.stats().states[PdfJobStatus.QUEUED]
    yield _gauge("queue_depth", "Jobs that wait.", waiting)
    alive = len(workers_alive(queue.store, queue.now()))
    yield _gauge("workers", "Workers heard of within 15 seconds.", alive)
    refused = _closed(queue) and waiting >= house.settings.pdf_max_queued * RESUME_SHARE
    yield _gauge("backpressure_active", "1 while new jobs are refused.", int(refused))


def counted(queue: Queue) -> Iterator[Metric]:
    """What only ever rises."""
    into: Counter[str] = Counter()
    made: Counter[str] = Counter()
    for flow in queue.store.flows(queue.name):
        into[flow.to_state] += flow.n
        made[flow.move] += flow.n
    jobs = CounterMetricFamily(
        f"{PREFIX}jobs",
        "Moves of jobs into each status: births and retries alike.",
        labels=["status"],
    )
    for status in PdfJobStatus:
        jobs.add_metric([status], into[status])
    numbers = Ledger(facts_of(queue.store), queue.now).read()
    failures = CounterMetricFamily(
        f"{PREFIX}failures",
        "Failed attempts, those that are tried again too; a stop of the worker is none.",
        labels=["error_code"],
    )
    for code in PdfErrorCode:
        lost = made["lose"] if code is PdfErrorCode.UNKNOWN else 0
        failures.add_metric([code], numbers.failures.get(code, 0) + lost)
    retries = CounterMetricFamily(f"{PREFIX}retries", "Failed jobs that were queued again.")
    retries.add_metric([], made["requeue"])
    yield from (jobs, failures, retries, _durations(numbers))


def _durations(numbers: Numbers) -> Metric:
    limits = [*(str(float(one)) for one in BUCKETS_S), "+Inf"]
    durations = HistogramMetricFamily(
        f"{PREFIX}render_duration_seconds", "How long the engine took for a PDF."
    )
    up_to = zip(limits, accumulate(numbers.buckets), strict=True)
    durations.add_metric([], buckets=list(up_to), sum_value=numbers.seconds)
    return durations


def _closed(queue: Queue) -> bool:
    """Whether the door was shut; the next caller finds it open if the line is short by now."""
    return facts_of(queue.store).fact(WORKLOAD, "", BACKPRESSURE_FACT) is not None


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, what, value=value)
