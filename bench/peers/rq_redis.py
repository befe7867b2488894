"""RQ on Redis: its SimpleWorker, which works in its own process instead of forking for each job."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import redis
from rq import Queue, SimpleWorker
from rq.serializers import JSONSerializer

from bench.peers import common

QUEUE = "bench"
CALLED = "bench.peers.common.nothing"
AT_ONCE = 1_000


def fill(url: str, jobs: int) -> float:
    queue = Queue(QUEUE, connection=redis.Redis.from_url(url), serializer=JSONSerializer)
    started = time.monotonic()
    for size in common.batches(jobs, AT_ONCE):
        # Without results a finished job is deleted, which is the least it can be asked to do.
        one = partial(Queue.prepare_data, CALLED, result_ttl=0, timeout=60)
        queue.enqueue_many([one() for _ in range(size)])
    return time.monotonic() - started


def work(ready: Callable[[], object], *, url: str) -> common.Finished:
    connection = redis.Redis.from_url(url)
    worker = SimpleWorker([QUEUE], connection=connection, serializer=JSONSerializer)
    ready()
    worker.work(burst=True, logging_level="ERROR")
    return common.Finished(time.monotonic(), 0)  # it keeps no count of what it deletes


def main() -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--url", required=True)
    asked = parser.parse_args()
    enqueue_seconds = fill(asked.url, asked.jobs)
    drain_seconds, _ = common.drain(partial(work, url=asked.url), asked.processes)
    queue = Queue(QUEUE, connection=redis.Redis.from_url(asked.url), serializer=JSONSerializer)
    result = common.Result(
        peer="rq",
        package="rq",
        store="redis",
        jobs=asked.jobs,
        processes=asked.processes,
        enqueue_seconds=enqueue_seconds,
        drain_seconds=drain_seconds,
        completed=asked.jobs - queue.count - queue.failed_job_registry.count,
    )
    return common.report(result, quiet=asked.json)


if __name__ == "__main__":
    sys.exit(main())
