"""What became of an upload that Google only answers later (Data Manager).

An accepted request is delivered as far as its rows are concerned. Its status is asked for half an
hour later, and again; it is kept as a remark beside the queue, and a bad one warns at the site.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from kesin.engine.workload import WorkloadContext
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import SECOND_US
from kesin.store.directory import Fact, Site
from kesin.workloads.oci.google.channel import AnsweredLater, Channel, Status
from kesin.workloads.oci.google.circuit_breaker import ACTOR, opened
from kesin.workloads.oci.google.credentials import Credentials
from kesin.workloads.oci.site import UPLOADS, WORKLOAD, fact

FIRST_S: Final = 1_800
LONGEST_S: Final = 6 * 3_600
TRIES: Final = 8  # about a day and a half; then it is noted as it is
SILENT_TRIES: Final = 100  # without an answer, half an hour apart
PENDING: Final = 200  # requests a site waits for; older ones are let go
AT_ONCE: Final = 10
BAD: Final = ("PARTIAL_SUCCESS", "FAILURE")


def expect(house: WorkloadContext, site: Site, request_ids: Sequence[str]) -> None:
    """Remember to ask about these."""
    if not request_ids:
        return
    now = house.queue.now()
    new = [
        {"requestId": one, "tries": 0, "askAt": now + FIRST_S * SECOND_US} for one in request_ids
    ]

    def add(kept: dict[str, Any]) -> None:
        waiting = [*kept.get("pending", []), *new]
        kept["pending"] = waiting[-PENDING:]
        dropped.extend(one["requestId"] for one in waiting[:-PENDING])

    dropped: list[str] = []
    _change(house, site, add)
    for one in dropped:
        _note(house, site, one, "UNKNOWN", "never asked: too many requests were waiting")


def ask(house: WorkloadContext, site: Site, channel: Channel) -> int:
    """Ask about the requests whose time has come; how many were asked about."""
    if not isinstance(channel, AnsweredLater):
        return 0
    now = house.queue.now()
    pending = (fact(house, site, UPLOADS) or {}).get("pending", [])
    due = [one for one in pending if one["askAt"] <= now][:AT_ONCE]
    credentials = opened(house, site) if due else None
    if not isinstance(credentials, Credentials):
        return 0
    for number, one in enumerate(due, start=1):
        told = channel.status(credentials, one["requestId"])
        _settle(house, site, one, told)
        if told.status == "UNKNOWN":  # Google does not answer: the others can wait too
            return number
    return len(due)


def _settle(house: WorkloadContext, site: Site, asked: dict[str, Any], told: Status) -> None:
    now, request_id = house.queue.now(), asked["requestId"]
    silent = told.status == "UNKNOWN"
    tries, silences = asked["tries"] + (not silent), asked.get("silences", 0) + silent
    undecided = silent or told.status == "PROCESSING"
    over = not undecided or tries >= TRIES or silences >= SILENT_TRIES
    settled: list[str] = []

    def settle(kept: dict[str, Any]) -> None:
        pending = kept.get("pending", [])
        others = [one for one in pending if one["requestId"] != request_id]
        if len(others) == len(pending):
            return  # somebody else heard it first
        if not over:
            pause_s = min(FIRST_S * 2**tries, LONGEST_S)
            ask_at = now + pause_s * SECOND_US
            others.append({**asked, "tries": tries, "silences": silences, "askAt": ask_at})
        else:
            settled.append(request_id)
            if told.status in BAD:
                kept["refused"] = {"requestId": request_id, "status": told.status, "at": now}
            elif told.status == "SUCCESS":
                kept.pop("refused", None)
        kept["pending"] = others

    _change(house, site, settle)
    if settled:
        _note(house, site, request_id, told.status, told.details)


def _note(house: WorkloadContext, site: Site, request_id: str, status: str, details: Any) -> None:
    told = canonical_json({"requestId": request_id, "status": status, "details": details})
    house.queue.store.add_note(
        house.queue.name, kind="upload_status", actor=ACTOR, tenant=site.id, details=told
    )


def dismiss(house: WorkloadContext, site: Site) -> None:
    """Somebody has seen the warning; a request that Google takes whole ends it too."""
    _change(house, site, lambda kept: kept.pop("refused", None))


def _change(house: WorkloadContext, site: Site, change: Callable[[dict[str, Any]], object]) -> None:
    directory = house.commands.accounts.directory
    now = house.queue.now()
    with directory.transaction():
        held = directory.hold_fact(WORKLOAD, site.id, UPLOADS, now)
        kept = json.loads(held.value) or {}
        change(kept)
        directory.put_fact(Fact(WORKLOAD, site.id, UPLOADS, canonical_json(kept), now))
