"""Prometheus metrics under the seed's names, from counts that no restart and no pruning lowers."""

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import core
from prometheus_client.core import CounterMetricFamily, Metric

from kesin.engine.workload import WorkloadContext
from kesin.store.metadata import metadata_for
from kesin.workloads.pdf.errors import PdfErrorCode
from kesin.workloads.pdf.jobs.heartbeat import workers_alive
from kesin.workloads.pdf.jobs.store import BUCKETS_S, WORKLOAD, PdfJobStatus, read_stats
from kesin.workloads.pdf.jobs.submit import BACKPRESSURE_KEY, RESUME_SHARE

PREFIX: Final = "ptf_admin_pdf_"


def collect_metrics(context: WorkloadContext) -> Iterator[Metric]:
    queue = context.commands.queues["pdf"]
    waiting = queue.stats().states[PdfJobStatus.QUEUED]
    yield _build_gauge("queue_depth", "Waiting jobs.", waiting)
    alive = len(workers_alive(queue.store, queue.now()))
    yield _build_gauge("workers", "Workers that reported in the last 15 seconds.", alive)
    # The next request lifts back-pressure if the queue is short by now.
    facts = metadata_for(queue.store)
    active = facts.metadata_entry(WORKLOAD, "", BACKPRESSURE_KEY) is not None
    refused = active and waiting >= context.settings.pdf_max_queued * RESUME_SHARE
    yield _build_gauge("backpressure_active", "1 while new jobs are refused.", int(refused))
    # From here on, metrics that only rise.
    entered: Counter[str] = Counter()  # by state
    moved: Counter[str] = Counter()  # by move
    for flow in queue.store.move_counts(queue.name):
        entered[flow.to_state] += flow.n
        moved[flow.move] += flow.n
    help_text = "Moves of jobs into each status, including new jobs and retries."
    jobs = CounterMetricFamily(f"{PREFIX}jobs", help_text, labels=["status"])
    for status in PdfJobStatus:  # all of them, so that a first failure shows as a rise from zero
        jobs.add_metric([status], entered[status])
    stats = read_stats(facts)
    help_text = "Failed attempts, including those that are retried but not those of stopped workers."
    failures = CounterMetricFamily(f"{PREFIX}failures", help_text, labels=["error_code"])
    for code in PdfErrorCode:
        lost = moved["lose"] if code is PdfErrorCode.UNKNOWN else 0
        failures.add_metric([code], stats.failures.get(code, 0) + lost)
    help_text, requeued = "Failed jobs that were queued again.", moved["requeue"]
    retries = CounterMetricFamily(f"{PREFIX}retries", help_text, value=requeued)
    limits = [*(str(float(limit_s)) for limit_s in BUCKETS_S), "+Inf"]
    cumulative = list(zip(limits, accumulate(stats.buckets), strict=True))
    yield from (jobs, failures, retries)
    name, help_text = "render_duration_seconds", "How long the engine took to render a PDF."
    yield core.HistogramMetricFamily(PREFIX + name, help_text, cumulative, stats.seconds)


def _build_gauge(name: str, help_text: str, value: float) -> Metric:
    return core.GaugeMetricFamily(PREFIX + name, help_text, value=value)
