"""One webhook, sent once: what it says, where it may go, and what the answer means.

The owner chooses the address, so it may not lead where only this machine can go: the list is asked
again at every try, a public name must have public addresses, and redirects are not followed.
Neither the address nor what was said is logged.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, get_args

from kesin.engine.results import Act, Answer, Done, Failed
from kesin.foundation.clock import Clock, iso, wall_clock_us
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import HOUR_S, MINUTE_S, SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job, tries
from kesin.workloads.pdf.jobs.store import job_of
from kesin.workloads.pdf.safe_fetch import Line, Refused
from kesin.workloads.pdf.security import is_inside
from kesin.workloads.pdf.webhooks.lifecycle import AGAIN

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
        return Act(
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


ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
PREFIX: Final = "whsec_"
TOLERANCE_S: Final = 5 * MINUTE_S  # between the sender's clock and the receiver's
_VERSION: Final = "v1"
_SECONDS: Final = re.compile(r"[0-9]{1,15}")


def secret_of(master: str, owner: str) -> str:
    """An owner's own secret: no two share one, and none leads back to the master."""
    made = hmac.digest(master.encode(), f"kesin webhook {owner}".encode(), "sha256")
    return PREFIX + base64.b64encode(made).decode()


def signed(secret: str, message_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """The headers that go with a body."""
    return {
        ID: message_id,
        TIMESTAMP: str(at_s),
        SIGNATURE: f"{_VERSION},{_signature(_key(secret), message_id, str(at_s), body)}",
    }


def verify(
    secret: str, headers: Mapping[str, str], body: bytes, *, now_s: float | None = None
) -> bool:
    """Whether a message is the sender's and not an old one; for receivers.

    Several signatures may stand in one header, while a secret is being changed: one must fit.
    """
    given = {name.lower(): value for name, value in headers.items()}
    message_id, at, told = (given.get(name, "") for name in (ID, TIMESTAMP, SIGNATURE))
    now = wall_clock_us() / SECOND_US if now_s is None else now_s
    if not message_id or not _SECONDS.fullmatch(at) or abs(now - int(at)) > TOLERANCE_S:
        return False
    wanted = f"{_VERSION},{_signature(_key(secret), message_id, at, body)}".encode()
    return any(
        hmac.compare_digest(wanted, one.encode("utf-8", "replace")) for one in told.split(" ")
    )


def _signature(key: bytes, message_id: str, at: str, body: bytes) -> str:
    signed_text = f"{message_id}.{at}.".encode("utf-8", "replace")
    made = hmac.new(key, signed_text + body, hashlib.sha256)
    return base64.b64encode(made.digest()).decode()


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"a secret is {PREFIX} and base64") from None
