"""Prometheus metrics: queues from the store's counters, the rest as it happens."""

from collections import Counter as Counted
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kesin.engine.access.commands import Commands
from kesin.engine.sweeper import SweepResult
from kesin.foundation.clock import Clock
from kesin.foundation.logs import Logger
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Job, declared_edges
from kesin.store.errors import StoreUnreachable
from kesin.web.failures import FailureReader

log = Logger("kesin.metrics")

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
Source = Callable[[], Iterable[Metric]]
WAITS_S: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 3_600)


class Metrics(Collector):
    """Everything this process measures, and what it reads at every scrape."""

    def __init__(self, commands: Commands, clock: Clock, failures: FailureReader) -> None:
        self.registry = CollectorRegistry()
        self._sources: list[Source] = [partial(_queue_metrics, commands, failures), self._sweep_metrics]
        self.registry.register(self)
        self._monotonic = clock.monotonic
        self._swept_at: float | None = None
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        route = ["method", "route"]
        answered = [*route, "status"]
        self._requests = counter("kesin_http_requests_total", "Completed requests.", answered)
        self._seconds = histogram("kesin_http_request_seconds", "How long requests took.", route)
        self.open_requests = Gauge("kesin_http_open_requests", "Requests in progress.", registry=self.registry)
        self._waits = histogram("kesin_claim_latency_seconds", "Time from due to claim.", ["queue"], buckets=WAITS_S)
        swept = "Jobs moved by the sweeper of this process."
        self._swept = counter("kesin_swept_jobs_total", swept, ["queue", "move"])

    def add(self, collect: Source) -> None:
        """Collect a workload's own metrics as well, at every scrape."""
        self._sources.append(partial(_workload_metrics, collect))

    def collect(self) -> Iterable[Metric]:
        return chain.from_iterable(read() for read in self._sources)

    def record_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request. Methods that do not exist are counted together."""
        method = method if method in METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def record_claims(self, jobs: Sequence[Job]) -> None:
        """Record how long these jobs waited for a worker of this process."""
        waits = self._waits.labels(jobs[0].queue)
        for job in jobs:
            if job.run_at is not None and job.claimed_at is not None:
                waits.observe(max(job.claimed_at - job.run_at, 0) / SECOND_US)

    def start_sweeping(self) -> None:
        """A sweeper starts in this process: from now on a pass can be overdue."""
        self._swept_at = self._monotonic()

    def _sweep_metrics(self) -> Iterator[Metric]:
        """The age of the last sweep, where this process sweeps."""
        since = GaugeMetricFamily("kesin_since_sweep_seconds", "How long ago the last sweep finished.")
        if self._swept_at is not None:
            since.add_metric([], self._monotonic() - self._swept_at)
        yield since

    def record_sweep(self, swept: SweepResult) -> None:
        """Record a pass of this process's sweeper, or of its cron route."""
        self._swept_at = self._monotonic()
        self.record_moves(swept)

    def record_moves(self, swept: SweepResult) -> None:
        for (queue, move), jobs in swept.moved.items():
            self._swept.labels(queue, move).inc(jobs)

    def page(self) -> bytes:
        return generate_latest(self.registry)


def _workload_metrics(collect: Source) -> Iterable[Metric]:
    """A workload's own metrics; their failure does not affect the others."""
    try:
        return list(collect())
    except Exception:
        log.exception("metrics_failed")
        return ()


def _queue_metrics(commands: Commands, failures: FailureReader) -> Iterator[Metric]:
    """Read from the store at every scrape, so it is right with many processes."""
    jobs = GaugeMetricFamily("kesin_jobs", "Jobs by state.", labels=["queue", "state"])
    moves = CounterMetricFamily("kesin_transitions", "Moves made.", labels=["queue", "move", "from_state", "to_state"])
    gauge = partial(GaugeMetricFamily, labels=["queue"])
    oldest = gauge("kesin_oldest_due_seconds", "How long the first job in line has been waiting.")
    over = gauge("kesin_lease_over_jobs", "Claimed jobs whose lease has expired.")
    success = gauge("kesin_since_success_seconds", "How long ago a job last succeeded.")
    needing = gauge("kesin_needs_you_jobs", "Failed or held jobs that need an operator.")
    retrying = gauge("kesin_retrying_jobs", "Failed jobs that are retried automatically.")
    up = gauge("kesin_queue_up", "Whether the store of the queue responds.")
    for name, queue in list(commands.queues.items()):
        try:
            stats, flows = queue.stats(), queue.store.move_counts(name)
            failed = failures.of(queue, stats)
        except StoreUnreachable:
            up.add_metric([name], 0)
            continue
        up.add_metric([name], 1)
        for state, n in stats.states.items():
            jobs.add_metric([name, state], n)
        waiting = stats.now - stats.oldest_due_at if stats.oldest_due_at else 0
        oldest.add_metric([name], max(waiting, 0) / SECOND_US)
        over.add_metric([name], stats.lease_over)
        needing.add_metric([name], failed.needs_you)
        retrying.add_metric([name], failed.retries)
        # Every move from the start: a first one must be seen to rise from zero.
        edges = declared_edges(queue.lifecycle)
        counts = Counted({(move.name, source, to): 0 for move, source, to in edges})
        success_states = {state.name for state in queue.lifecycle.states if state.success}
        last_success = 0
        for flow in flows:
            counts[flow.move, flow.from_state, flow.to_state] += flow.n
            if flow.to_state in success_states:
                last_success = max(last_success, flow.at)
        for edge, n in counts.items():
            moves.add_metric([name, *edge], n)
        if last_success:
            success.add_metric([name], max(stats.now - last_success, 0) / SECOND_US)
    yield from (jobs, moves, oldest, over, needing, retrying, success, up)
