"""The status of accepted uploads whose result Google reports later (Data Manager).

For its rows an accepted request is delivered. Its status is polled after half an hour, and again;
it is recorded as a note of the queue, and a bad status raises a warning for the site.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from kesin.engine.workload import WorkloadContext
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import SECOND_US
from kesin.store.directory import Site
from kesin.workloads.oci.google.channel import Channel, RequestStatus, StatusChannel
from kesin.workloads.oci.google.circuit_breaker import WORKER_ACTOR, open_credentials
from kesin.workloads.oci.google.credentials import GoogleCredentials
from kesin.workloads.oci.site import UPLOADS, WORKLOAD, put_metadata, read_metadata

FIRST_POLL_S: Final = 1_800
MAX_POLL_PAUSE_S: Final = 6 * 3_600
MAX_POLLS: Final = 8  # about a day and a half; then it is recorded as it is
MAX_SILENT_POLLS: Final = 100  # without a response, half an hour apart
MAX_PENDING: Final = 200  # requests per site; older ones are dropped
POLL_BATCH: Final = 10
BAD_STATES: Final = ("PARTIAL_SUCCESS", "FAILURE")


def remember_requests(context: WorkloadContext, site: Site, request_ids: Sequence[str]) -> None:
    """Store these requests for polling."""
    if not request_ids:
        return
    now = context.queue.now()
    new = [
        {"requestId": request_id, "tries": 0, "askAt": now + FIRST_POLL_S * SECOND_US}
        for request_id in request_ids
    ]

    def add(uploads: dict[str, Any]) -> None:
        waiting = [*uploads.get("pending", []), *new]
        uploads["pending"] = waiting[-MAX_PENDING:]
        dropped.extend(request["requestId"] for request in waiting[:-MAX_PENDING])

    dropped: list[str] = []
    _update_uploads(context, site, add)
    for request_id in dropped:
        _add_note(
            context, site, request_id, "UNKNOWN", "never asked: too many requests were waiting"
        )


def poll_requests(context: WorkloadContext, site: Site, channel: Channel) -> int:
    """Poll the requests that are due; returns how many were polled."""
    if not isinstance(channel, StatusChannel):
        return 0
    now = context.queue.now()
    pending = (read_metadata(context, site, UPLOADS) or {}).get("pending", [])
    due = [request for request in pending if request["askAt"] <= now][:POLL_BATCH]
    credentials = open_credentials(context, site) if due else None
    if not isinstance(credentials, GoogleCredentials):
        return 0
    for number, request in enumerate(due, start=1):
        result = channel.status(credentials, request["requestId"])
        _record_status(context, site, request, result)
        if result.status == "UNKNOWN":  # Google does not respond: the others can wait
            return number
    return len(due)


def _record_status(
    context: WorkloadContext, site: Site, request: dict[str, Any], result: RequestStatus
) -> None:
    now, request_id = context.queue.now(), request["requestId"]
    silent = result.status == "UNKNOWN"
    tries, silences = request["tries"] + (not silent), request.get("silences", 0) + silent
    undecided = silent or result.status == "PROCESSING"
    over = not undecided or tries >= MAX_POLLS or silences >= MAX_SILENT_POLLS
    settled: list[str] = []

    def settle(uploads: dict[str, Any]) -> None:
        pending = uploads.get("pending", [])
        others = [other for other in pending if other["requestId"] != request_id]
        if len(others) == len(pending):
            return  # another process recorded it first
        if not over:
            pause_s = min(FIRST_POLL_S * 2**tries, MAX_POLL_PAUSE_S)
            ask_at = now + pause_s * SECOND_US
            others.append({**request, "tries": tries, "silences": silences, "askAt": ask_at})
        else:
            settled.append(request_id)
            if result.status in BAD_STATES:
                uploads["refused"] = {"requestId": request_id, "status": result.status, "at": now}
            elif result.status == "SUCCESS":
                uploads.pop("refused", None)
        uploads["pending"] = others

    _update_uploads(context, site, settle)
    if settled:
        _add_note(context, site, request_id, result.status, result.details)


def _add_note(
    context: WorkloadContext, site: Site, request_id: str, status: str, details: Any
) -> None:
    note = canonical_json({"requestId": request_id, "status": status, "details": details})
    context.queue.store.add_note(
        context.queue.name, kind="upload_status", actor=WORKER_ACTOR, tenant=site.id, details=note
    )


def dismiss_warning(context: WorkloadContext, site: Site) -> None:
    """Clear the warning; a request that Google takes in full clears it too."""
    _update_uploads(context, site, lambda uploads: uploads.pop("refused", None))


def _update_uploads(
    context: WorkloadContext, site: Site, change: Callable[[dict[str, Any]], object]
) -> None:
    directory = context.commands.accounts.directory
    with directory.transaction():
        row = directory.lock_metadata(WORKLOAD, site.id, UPLOADS, context.queue.now())
        uploads = json.loads(row.value) or {}
        change(uploads)
        put_metadata(context, site, UPLOADS, uploads)
