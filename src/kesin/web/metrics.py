"""Numbers for Prometheus: queues from the counters, the rest as it happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kesin.engine.command import Commands
from kesin.engine.sweeper import Swept
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Job

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
WAITS_S: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 3_600)


class Metrics:
    """Everything this process measures."""

    def __init__(self, commands: Commands) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Queues(commands))
        self._requests = Counter(
            "kesin_http_requests_total",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "kesin_http_request_seconds",
            "How long requests took.",
            ["method", "route"],
            registry=self.registry,
        )
        self.open_requests = Gauge(
            "kesin_http_open_requests", "Requests being answered.", registry=self.registry
        )
        self._waits = Histogram(
            "kesin_claim_latency_seconds",
            "From due to claimed.",
            ["queue"],
            buckets=WAITS_S,
            registry=self.registry,
        )
        self._swept = Counter(
            "kesin_swept_jobs_total",
            "Jobs the sweeper of this process moved.",
            ["queue", "move"],
            registry=self.registry,
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered. A caller may invent methods: they are counted together."""
        method = method if method in METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def claimed(self, jobs: Sequence[Job]) -> None:
        """A worker of this process claimed these."""
        waits = self._waits.labels(jobs[0].queue)
        for job in jobs:
            if job.run_at is not None and job.claimed_at is not None:
                waits.observe(max(job.claimed_at - job.run_at, 0) / SECOND_US)

    def swept(self, swept: Swept) -> None:
        """The sweeper of this process made a pass."""
        for (queue, move), jobs in swept.moved.items():
            self._swept.labels(queue, move).inc(jobs)

    def page(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self.registry)


class _Queues(Collector):
    """Read from the store when asked: right even with many processes."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("kesin_jobs", "Jobs by state.", labels=["queue", "state"])
        moves = CounterMetricFamily(
            "kesin_transitions", "Moves made.", labels=["queue", "move", "from_state", "to_state"]
        )
        oldest = GaugeMetricFamily(
            "kesin_oldest_due_seconds", "How long the first in line waits.", labels=["queue"]
        )
        over = GaugeMetricFamily(
            "kesin_lease_over_jobs", "Claimed jobs whose lease ran out.", labels=["queue"]
        )
        for name, queue in self._commands.queues.items():
            stats = queue.stats()
            for state, n in stats.states.items():
                jobs.add_metric([name, state], n)
            waiting = stats.now - stats.oldest_due_at if stats.oldest_due_at else 0
            oldest.add_metric([name], max(waiting, 0) / SECOND_US)
            over.add_metric([name], stats.lease_over)
            made: dict[tuple[str, str, str], int] = {}
            for flow in queue.store.flows(name):
                edge = (flow.move, flow.from_state, flow.to_state)
                made[edge] = made.get(edge, 0) + flow.n
            for edge, n in made.items():
                moves.add_metric([name, *edge], n)
        yield from (jobs, moves, oldest, over)
