"""RQ messages, each a job's id; a set records them: RQ cannot tell a lost from a read one."""

import uuid
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final

import redis
import rq
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq.queue import EnqueueData
from rq.serializers import JSONSerializer

from kesin.lifecycle.budget import DAY_S, HOUR_S, SECOND_US
from kesin.lifecycle.model import Job
from kesin.store.redis.reader import redis_errors_translated

RQ_QUEUE_NAME: Final = "pdf"
TASK: Final = "kesin.workloads.pdf.rq_task.render_job"
DISPATCHED_KEY: Final = "pdf:dispatched"  # job → when it was last dispatched
RQ_TIMEOUT_S: Final = 720  # above every hard timeout, with time to store the PDF
FAILURE_TTL_S: Final = HOUR_S
MESSAGE_TTL_S: Final = DAY_S
RESEND_S: Final = 15.0  # from a message taken to its job claimed, with time for a slow start
REDIS_TIMEOUT_S: Final = 5.0
_MESSAGE_PAGE: Final = 10_000  # messages read at a time
_JOB_ID_LENGTH: Final = 36  # the id of a message begins with its job's id


class RqMessageQueue:
    """RQ's queue, in the Redis of the jobs."""

    def __init__(self, url: str) -> None:
        self._client = connect_redis(url)
        self._queue = rq.Queue(RQ_QUEUE_NAME, connection=self._client, serializer=JSONSerializer)

    def send(self, job_ids: Sequence[str]) -> None:
        if not job_ids:
            return
        with redis_errors_translated(), self._client.pipeline() as pipeline:
            now = self._now()
            self._queue.enqueue_many(list(map(_build_message, job_ids)), pipeline=pipeline)
            pipeline.zadd(DISPATCHED_KEY, dict.fromkeys(job_ids, now))
            pipeline.execute()

    def find_jobs_without_message(self, due: Collection[Job]) -> list[str]:
        """Return the due jobs that were not dispatched since then, or lost their message."""
        with redis_errors_translated():
            now = self._now()
            self._client.zremrangebyscore(DISPATCHED_KEY, "-inf", now - HOUR_S * SECOND_US)
            scores: list[Any] = self._client.zmscore(DISPATCHED_KEY, [job.id for job in due])
            unsent, old = [], set()
            for job, sent in zip(due, scores, strict=True):
                if sent is None or sent < (job.run_at or 0):
                    unsent.append(job.id)
                elif sent < now - RESEND_S * SECOND_US:
                    old.add(job.id)
            queued = self._find_queued(old)
            if queued:
                self._client.zadd(DISPATCHED_KEY, dict.fromkeys(queued, now))
            return unsent + sorted(old - queued)

    def _find_queued(self, job_ids: Collection[str]) -> set[str]:
        queued: set[str] = set()
        start = 0
        while len(queued) < len(job_ids):
            stop = start + _MESSAGE_PAGE - 1
            names: list[Any] = self._client.lrange(self._queue.key, start, stop)
            queued |= {name[:_JOB_ID_LENGTH].decode() for name in names} & set(job_ids)
            if len(names) < _MESSAGE_PAGE:
                break
            start += _MESSAGE_PAGE
        return queued

    def _now(self) -> int:
        """The time of Redis, which also times the jobs."""
        seconds, microseconds = self._client.time()
        return int(seconds) * SECOND_US + int(microseconds)


def _build_message(job_id: str) -> EnqueueData:
    name, ttl, failure_ttl = f"{job_id}-{uuid.uuid4().hex[:8]}", MESSAGE_TTL_S, FAILURE_TTL_S
    prepare = partial(rq.Queue.prepare_data, TASK, args=[job_id], timeout=RQ_TIMEOUT_S, ttl=ttl)
    return prepare(result_ttl=0, failure_ttl=failure_ttl, job_id=name)


def connect_redis(url: str) -> Any:
    """Create a client as RQ needs it: without decoding responses."""
    timeouts = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), REDIS_TIMEOUT_S)
    return redis.Redis.from_url(url, **timeouts, retry=Retry(NoBackoff(), 0))
