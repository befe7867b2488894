"""The line of those who render, kept by RQ: a message is nothing but a job's id, in JSON.

Which jobs were sent for, and when, is remembered beside it: RQ does not tell a message that was
lost from one that was read.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any, Final

import redis
import rq
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq.queue import EnqueueData
from rq.serializers import JSONSerializer

from kesin.lifecycle.budget import DAY_S, HOUR_S, SECOND_US
from kesin.lifecycle.model import Job
from kesin.store.redis.reader import reached

LINE: Final = "pdf"  # RQ's queue
TASK: Final = "kesin.workloads.pdf.rq_task.render_job"
DISPATCHED: Final = "pdf:dispatched"  # job → when it was last sent for
RQ_TIMEOUT_S: Final = 720  # above every hard timeout, with time to store what was made
FAILURE_TTL_S: Final = HOUR_S
MESSAGE_TTL_S: Final = DAY_S
RESEND_S: Final = 15.0  # from a message taken to its job claimed, with room for a slow start
ANSWER_S: Final = 5.0
_SLICE: Final = 10_000  # messages read at a time
_ID: Final = 36  # letters of a job's id: a message is named after it


class Line:
    """RQ's queue in the Redis of the jobs."""

    def __init__(self, url: str) -> None:
        self._client = connected(url)
        self._queue = rq.Queue(LINE, connection=self._client, serializer=JSONSerializer)

    def send(self, job_ids: Sequence[str]) -> None:
        """A message for each of them; raises StoreUnreachable."""
        if not job_ids:
            return
        with reached(), self._client.pipeline() as pipeline:
            now = self._now()
            self._queue.enqueue_many([_message(one) for one in job_ids], pipeline=pipeline)
            pipeline.zadd(DISPATCHED, dict.fromkeys(job_ids, now))
            pipeline.execute()

    def without_message(self, due: Collection[Job]) -> list[str]:
        """Those of these due jobs for which nobody was sent since, or whose message is gone."""
        with reached():
            now = self._now()
            self._client.zremrangebyscore(DISPATCHED, "-inf", now - HOUR_S * SECOND_US)
            scores: list[Any] = self._client.zmscore(DISPATCHED, [one.id for one in due])
            unsent, old = [], set()
            for job, sent in zip(due, scores, strict=True):
                if sent is None or sent < (job.run_at or 0):
                    unsent.append(job.id)
                elif sent < now - RESEND_S * SECOND_US:
                    old.add(job.id)
            there = self._in_line(old)
            if there:
                self._client.zadd(DISPATCHED, dict.fromkeys(there, now))
            return unsent + sorted(old - there)

    def _in_line(self, wanted: Collection[str]) -> set[str]:
        """Those of these jobs that have a message in the line."""
        found: set[str] = set()
        at = 0
        while len(found) < len(wanted):
            names: list[Any] = self._client.lrange(self._queue.key, at, at + _SLICE - 1)
            found |= {name[:_ID].decode() for name in names} & set(wanted)
            if len(names) < _SLICE:
                break
            at += _SLICE
        return found

    def _now(self) -> int:
        """By the clock that times the jobs."""
        seconds, rest = self._client.time()
        return int(seconds) * SECOND_US + int(rest)


def _message(job_id: str) -> EnqueueData:
    return rq.Queue.prepare_data(
        TASK,
        args=[job_id],
        timeout=RQ_TIMEOUT_S,
        result_ttl=0,
        ttl=MESSAGE_TTL_S,
        failure_ttl=FAILURE_TTL_S,
        job_id=f"{job_id}-{uuid.uuid4().hex[:8]}",
    )


def connected(url: str) -> Any:
    """A client as RQ needs it: it reads bytes."""
    return redis.Redis.from_url(
        url,
        socket_timeout=ANSWER_S,
        socket_connect_timeout=ANSWER_S,
        retry=Retry(NoBackoff(), 0),
    )
