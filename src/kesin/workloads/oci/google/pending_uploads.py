"""Polls accepted uploads whose result comes later (Data Manager); a bad one warns the site."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.oci.google.channel import BAD_STATES, Channel, RequestStatus
from kesin.workloads.oci.google.circuit_breaker import WORKER_ACTOR, open_credentials
from kesin.workloads.oci.google.credentials import GoogleCredentials
from kesin.workloads.oci.google.data_manager import DataManager
from kesin.workloads.oci.site import UPLOADS, SiteContext

FIRST_POLL_S: Final = 1_800
MAX_POLL_PAUSE_S: Final = 6 * 3_600
MAX_POLLS: Final = 8  # about a day and a half; then it is recorded as it is
MAX_SILENT_POLLS: Final = 100  # without a response, half an hour apart
MAX_PENDING: Final = 200  # requests per site; older ones are dropped
POLL_BATCH: Final = 10
_NO_CLICK: Final = "PROCESSING_ERROR_REASON_CLICK_NOT_FOUND"
MAX_REASONS: Final = 3  # of a refused request, in its warning


def remember_requests(site: SiteContext, ids: Sequence[str], clickless: Counter[str]) -> None:
    """Store these requests for polling, with the number of their rows that have no click."""
    if not ids:
        return
    ask_at = site.queue.now() + FIRST_POLL_S * SECOND_US
    first = {"tries": 0, "askAt": ask_at}
    new = [first | {"requestId": it, "clickless": clickless[it]} for it in ids]
    with site.locked_metadata(UPLOADS) as uploads:
        waiting = [*uploads.get("pending", []), *new]
        uploads["pending"] = waiting[-MAX_PENDING:]
    why = "never checked: too many requests were waiting"
    for request in waiting[:-MAX_PENDING]:
        _add_note(site, request["requestId"], "UNKNOWN", why)


def poll_requests(site: SiteContext, channel: Channel) -> None:
    if not isinstance(channel, DataManager):
        return
    now = site.queue.now()
    pending = (site.read_metadata(UPLOADS) or {}).get("pending", [])
    due = [request for request in pending if request["askAt"] <= now][:POLL_BATCH]
    credentials = open_credentials(site) if due else None
    if not isinstance(credentials, GoogleCredentials):
        return
    for request in due:
        result = channel.status(credentials, request["requestId"])
        errors = Counter[str](result.details.get("errors"))
        if set(errors) == {_NO_CLICK} and errors[_NO_CLICK] <= request.get("clickless", 0):
            result = result._replace(status="SUCCESS")  # most people come without a click on an ad
        _record_status(site, request, result)
        if result.status == "UNKNOWN":  # Google does not respond: the others can wait
            return


def _record_status(site: SiteContext, request: dict[str, Any], result: RequestStatus) -> None:
    now, request_id = site.queue.now(), request["requestId"]
    silent = result.status == "UNKNOWN"
    tries, silences = request["tries"] + (not silent), request.get("silences", 0) + silent
    undecided = silent or result.status == "PROCESSING"
    over = not undecided or tries >= MAX_POLLS or silences >= MAX_SILENT_POLLS
    with site.locked_metadata(UPLOADS) as uploads:
        pending = uploads.get("pending", [])
        others = [other for other in pending if other["requestId"] != request_id]
        if len(others) == len(pending):
            return  # another process recorded it first
        if not over:
            pause_s = min(FIRST_POLL_S * 2**tries, MAX_POLL_PAUSE_S)
            ask_at = now + pause_s * SECOND_US
            others.append({**request, "tries": tries, "silences": silences, "askAt": ask_at})
        elif result.status in BAD_STATES:
            refused = {"requestId": request_id, "status": result.status, "at": now}
            reasons = Counter[str](result.details.get("errors")).most_common(MAX_REASONS)
            uploads["refused"] = {**refused, "errors": dict(reasons)}
        elif result.status == "SUCCESS":
            uploads.pop("refused", None)
        uploads["pending"] = others
    if over:
        _add_note(site, request_id, result.status, result.details)


def _add_note(site: SiteContext, request_id: str, status: str, details: Any) -> None:
    note = {"requestId": request_id, "status": status, "details": details}
    site.note_event("upload_status", WORKER_ACTOR, **note)
