"""One attempt to deliver a webhook; the owner's URL is checked each time, and never logged."""

import base64
import hmac
import http.client
import re
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args

from kesin.engine.results import Act, Done, Failed, HandlerResult
from kesin.foundation.clock import Clock, iso
from kesin.foundation.messages import Message
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import HOUR_S, SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job, delay_index
from kesin.workloads.pdf.jobs.store import parse_job
from kesin.workloads.pdf.links import PdfLinks
from kesin.workloads.pdf.safe_fetch import FetchRefused, GuardedConnection
from kesin.workloads.pdf.security import is_internal_url
from kesin.workloads.pdf.webhooks.lifecycle import RETRY_DELAYS

TIMEOUT_S: Final = 10.0  # for the whole exchange, from name resolution to the response
MAX_REPLY_BYTES: Final = 4 * 1024  # read and discarded: some servers mind if it is not read
MAX_RETRY_AFTER_S: Final = HOUR_S  # the longest pause a receiver may ask for
DELETED_STATUS: Final = "expired"  # of a deleted subject: only expired ones are deleted
WHSEC: Final = "whsec_"
_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "Kesin-Webhooks"}
_BUSY: Final = (http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.SERVICE_UNAVAILABLE)

Kind = Literal["job", "batch"]


class Subscription(NamedTuple):
    """The payload of a delivery: which subject it reports, and to which URL."""

    kind: Kind
    subject: str
    url: str
    link_s: int | None = None  # for which a link to the PDF is valid, if the message has one


def parse_subscription(delivery: Job) -> Subscription | None:
    match delivery.payload:
        case {"kind": kind, "subject": str(subject), "url": str(url)} if kind in get_args(Kind):
            return Subscription(kind, subject, url, delivery.payload.get("link_s"))
    return None


def post(url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, int | None]:
    """Return the status and the pause asked for; raises FetchRefused, OSError or HTTPException."""
    public_only = not is_internal_url(url)
    with closing(GuardedConnection(url, TIMEOUT_S, public_only=public_only)) as connection:
        response = connection.request("POST", {**_HEADERS, **headers}, body)
        status, retry_after = response.status, response.getheader("Retry-After", "")
        with suppress(OSError, http.client.HTTPException):  # the status is all that counts
            response.read1(MAX_REPLY_BYTES)
        return status, _parse_seconds(retry_after)


def _parse_seconds(header: str) -> int | None:
    """Parse Retry-After as seconds; None for a date, which the lifecycle's own delays cover."""
    return min(int(header), MAX_RETRY_AFTER_S) if re.fullmatch(r"[0-9]{1,9}", header) else None


def deliver(
    delivery: Job, subscription: Subscription, body: bytes, headers: Mapping[str, str], clock: Clock
) -> HandlerResult:
    started = clock.monotonic()
    try:
        status, pause_s = post(subscription.url, body, headers)
    except FetchRefused as problem:
        return Failed("HOOK_REFUSED", str(problem))
    except (OSError, http.client.HTTPException) as problem:
        late = isinstance(problem, TimeoutError)
        why = f"{type(problem).__name__}: {problem}"[:200]
        return Failed("HOOK_UNREACHABLE", Message("no response came in time") if late else why)
    if status in range(200, 300):
        elapsed_ms = round((clock.monotonic() - started) * 1_000)
        return Done({"status": status, "ms": elapsed_ms, "attempt": delivery.attempt_count})
    message = Message("it returned %(status)s", status=status)
    if status == http.HTTPStatus.GONE:
        return Failed("HOOK_GONE", message)
    delay_us = RETRY_DELAYS.delay_us(delay_index(RETRY_DELAYS, delivery), delivery.salt)
    # A shorter pause would use up the attempts.
    if status not in _BUSY or pause_s is None or pause_s * SECOND_US <= delay_us:
        return Failed("HOOK_BAD_ANSWER", message)
    why = "the receiver returned %(status)s and requested a pause of %(n)s s"
    later = partial(Act, "later", code="HOOK_BAD_ANSWER", category=Category.TRANSIENT)
    return later(message=Message(why, status=status, n=pause_s), run_in_s=pause_s)


def build_message(
    subscription: Subscription, status: str, subject: Job | None, at: int, links: PdfLinks
) -> bytes:
    """Build the message, the same at every attempt; a deleted subject has only its status."""
    ended_at = subject.finished_at if subject and subject.finished_at is not None else at
    build_data = _job_data if subscription.kind == "job" else _batch_data
    data = build_data(subscription.subject, status, subject)
    if subscription.link_s and subject and status == "succeeded":
        url, ends_s = links.create(parse_job(subject), subscription.link_s, since_s=at / SECOND_US)
        data["link"] = {"url": url, "expires_at": iso(ends_s * SECOND_US)}
    content = {
        "type": f"pdf.{subscription.kind}.{status}",
        "timestamp": iso(ended_at),
        "data": data,
    }
    return canonical_json(content).encode()


def _job_data(job_id: str, status: str, subject: Job | None) -> dict[str, Any]:
    job = None if subject is None else parse_job(subject)
    output = (job and job.result) or {}
    return {
        "job_id": job_id,
        "status": status,
        "error_code": job and job.error_code,
        "template_name": job and job.template_name,
        **{fact: output.get(fact) for fact in ("sha256", "pages", "bytes")},
        "download_url": f"/pdf/jobs/{job_id}/download" if status == "succeeded" else None,
        "retry_count": job and job.retry_count,
        "finished_at": iso(subject.finished_at) if subject else None,
    }


def _batch_data(batch_id: str, status: str, subject: Job | None) -> dict[str, Any]:
    output = (subject and subject.result) or {}
    payload = subject.payload if subject and isinstance(subject.payload, dict) else {}
    has_file = status in {"succeeded", "partial"}
    return {
        "batch_id": batch_id,
        "status": status,
        "error_code": subject and subject.error_code,
        "template_name": payload.get("template"),
        "rows": payload.get("rows"),
        **{fact: output.get(fact) for fact in ("made", "failed", "sha256", "pages", "bytes")},
        "download_url": f"/pdf/batches/{batch_id}/download" if has_file else None,
        "finished_at": iso(subject.finished_at) if subject else None,
    }


def derive_secret(master: str, owner: str) -> str:
    """Derive an owner's secret from the master secret; it does not reveal the master."""
    digest = hmac.digest(master.encode(), f"kesin webhook {owner}".encode(), "sha256")
    return WHSEC + base64.b64encode(digest).decode()


def signature_headers(secret: str, message_id: str, at_s: int, body: bytes) -> dict[str, str]:
    key = base64.b64decode(secret.removeprefix(WHSEC))
    signed_text = f"{message_id}.{at_s}.".encode("utf-8", "replace")
    digest = hmac.digest(key, signed_text + body, "sha256")
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
