"""One webhook, sent once: what it says, where it may go, and what the answer means.

The owner chooses the address, so it may not lead where only this machine can go: the list is asked
again at every try, a public name must have public addresses, and redirects are not followed.
Neither the address nor what was said is logged.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, get_args

from kesin.engine.answers import Answer, Done, Failed, Make
from kesin.foundation.clock import Clock, iso
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import HOUR_S, SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job, tries
from kesin.workloads.pdf.fetching import Line, Refused
from kesin.workloads.pdf.hook_lifecycle import AGAIN
from kesin.workloads.pdf.jobs import job_of
from kesin.workloads.pdf.security import is_inside

TIMEOUT_S: Final = 10.0  # for all of it, from the name to the answer
MAX_ANSWER_BYTES: Final = 4 * 1024  # nobody reads it; some servers mind if it is left behind
LONGEST_PAUSE_S: Final = HOUR_S  # that a receiver may ask for
GONE: Final = "expired"  # what a job was before it was forgotten: no other one is
_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "Kesin-Webhooks"}
_SUCCESS: Final = range(200, 300)
_BUSY: Final = (http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.SERVICE_UNAVAILABLE)

Kind = Literal["job", "batch"]


@dataclass(frozen=True, slots=True)
class Promise:
    """What a delivery keeps: who is told of what, and where."""

    kind: Kind
    subject: str
    url: str

    def payload(self) -> dict[str, str]:
        """As it is stored."""
        return {"kind": self.kind, "subject": self.subject, "url": self.url}


def promise_of(delivery: Job) -> Promise | None:
    """What was promised; None where somebody else has put something into the queue."""
    match delivery.data:
        case {"kind": kind, "subject": str(subject), "url": str(url)} if kind in get_args(Kind):
            return Promise(kind, subject, url)
    return None


class Reply(NamedTuple):
    """What the receiver said."""

    status: int
    pause_s: int | None  # it wants to be left alone for so long


def post(url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
    """Send it. Raises Refused where nothing may be sent, OSError or HTTPException without answer.

    A host of the inside by name was spelled out on the list; any other must be a public address.
    """
    with Line(url, TIMEOUT_S, public_only=not is_inside(url)) as line:
        response = line.ask("POST", body, {**_HEADERS, **headers})
        status, pause = response.status, response.getheader("Retry-After", "")
        with suppress(OSError, http.client.HTTPException):  # the status has said everything
            response.read1(MAX_ANSWER_BYTES)
        return Reply(status, _seconds(pause))


def _seconds(wanted: str) -> int | None:
    """A pause as a number; a date is left to the lifecycle's own pauses."""
    return min(int(wanted), LONGEST_PAUSE_S) if re.fullmatch(r"[0-9]{1,9}", wanted) else None


def delivered(
    delivery: Job, promise: Promise, body: bytes, headers: Mapping[str, str], clock: Clock
) -> Answer:
    """Send it and judge the answer."""
    began = clock.monotonic()
    try:
        reply = post(promise.url, body, headers)
    except Refused as problem:
        return Failed("HOOK_REFUSED", str(problem))
    except (OSError, http.client.HTTPException) as problem:
        return Failed("HOOK_UNREACHABLE", _words(problem))
    if reply.status in _SUCCESS:
        lasted_ms = round((clock.monotonic() - began) * 1_000)
        told = {"status": reply.status, "ms": lasted_ms, "attempt": delivery.attempt_count}
        return Done(told)
    said = f"it answered {reply.status}"
    if reply.status == http.HTTPStatus.GONE:
        return Failed("HOOK_GONE", said)
    if reply.status in _BUSY and reply.pause_s is not None and _longer(reply.pause_s, delivery):
        return Make(
            "later",
            code="HOOK_BAD_ANSWER",
            message=f"{said} and asked for {reply.pause_s} s of peace",
            category=Category.TRANSIENT,
            run_in_s=reply.pause_s,
        )
    return Failed("HOOK_BAD_ANSWER", said)


def _longer(pause_s: int, delivery: Job) -> bool:
    """Whether it is longer than ours would be: short ones would use the tries up in no time."""
    return pause_s * SECOND_US > AGAIN.delay_us(tries(AGAIN, delivery), delivery.salt)


def _words(problem: Exception) -> str:
    if isinstance(problem, TimeoutError):
        return "no answer came in time"
    return f"{type(problem).__name__}: {problem}"[:200]


def message(promise: Promise, status: str, subject: Job | None, ready_at: int) -> bytes:
    """What is said, the same on every try; of a subject that was forgotten only how it ended."""
    ended_at = subject.finished_at if subject and subject.finished_at is not None else ready_at
    data = _of_job if promise.kind == "job" else _of_batch
    told = {
        "type": f"pdf.{promise.kind}.{status}",
        "timestamp": iso(ended_at),
        "data": data(promise.subject, status, subject),
    }
    return canonical_json(told).encode()


def _of_job(job_id: str, status: str, subject: Job | None) -> dict[str, Any]:
    job = None if subject is None else job_of(subject)
    made = (job and job.made) or {}
    return {
        "job_id": job_id,
        "status": status,
        "error_code": job and job.error_code,
        "template_name": job and job.template_name,
        "sha256": made.get("sha256"),
        "pages": made.get("pages"),
        "bytes": made.get("bytes"),
        "download_url": f"/pdf/jobs/{job_id}/download" if status == "succeeded" else None,
        "retry_count": job and job.retry_count,
        "finished_at": iso(subject.finished_at) if subject else None,
    }


def _of_batch(batch_id: str, status: str, subject: Job | None) -> dict[str, Any]:
    made = (subject and subject.outcome) or {}
    asked = subject.data if subject and isinstance(subject.data, dict) else {}
    has_file = status in {"succeeded", "partial"}
    return {
        "batch_id": batch_id,
        "status": status,
        "error_code": subject and subject.error_code,
        "template_name": asked.get("template"),
        "rows": asked.get("rows"),
        "made": made.get("made"),
        "failed": made.get("failed"),
        "sha256": made.get("sha256"),
        "pages": made.get("pages"),
        "bytes": made.get("bytes"),
        "download_url": f"/pdf/batches/{batch_id}/download" if has_file else None,
        "finished_at": iso(subject.finished_at) if subject else None,
    }
