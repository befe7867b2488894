"""Settles waiting adjustments under a lock of the site, so that two of a sale see each other."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import MINUTE_S, SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.workloads.oci.adjustments.lifecycle import QUEUE, TOO_LATE, UNFINISHED, WINDOW_S
from kesin.workloads.oci.conversions import ingest, refusals
from kesin.workloads.oci.conversions.actions import ConversionAction
from kesin.workloads.oci.conversions.conversion import RowDefaults, Unsendable
from kesin.workloads.oci.google.json_paths import dig, text_at
from kesin.workloads.oci.script import rejections
from kesin.workloads.oci.site import SiteContext

Settled = str | Unsendable  # corrected, retracted, ready or waits; or why it is never sent

NOTE: Final = "ADJUSTMENT"  # on a conversion, for each adjustment of it
GONE: Final = "this site has no conversion with this externalId"
RETRACTED: Final = "the sale was retracted: to report it again, use another externalId"
OVERTAKEN: Final = "a later adjustment of the sale was sent first"
_NO_WBRAID: Final = (
    "Google cannot adjust a conversion with a wbraid: correct your own figures, and send the gclid "
    "or gbraid of sales that may change"
)
_NO_RETRACTION: Final = (
    "the Data Manager API has no retraction: retract the sale in Google Ads itself (RESTATE with "
    "the value 0 has not been tried)"
)
_REFUSED: Final = "consent is denied, so no new value will be sent; RETRACT is still possible"
# What happens to a conversion that was never claimed, by its move.
_LOCAL: Final = {"corrected": "correct", "retracted": "retract"}
_MOVES: Final = {"corrected": "settle", "retracted": "settle", "ready": "ready"}


def beside(site: SiteContext, queue: str = QUEUE) -> SiteContext:
    """The same site with another queue of the workload."""
    return replace(site, context=replace(site.context, queue=site.context.commands.queues[queue]))


@contextmanager
def locked(site: SiteContext) -> Iterator[None]:
    """Let no other transaction add or settle adjustments of the site."""
    with site.queue.store.transaction(), site.locked_metadata("adjustments"):
        yield


def siblings(site: SiteContext, conversion_ids: Sequence[str]) -> dict[str, dict[str, Job | None]]:
    """The adjustments of each conversion, oldest first; None for one that is pruned."""
    ids: dict[str, list[str]] = {}
    for each in conversion_ids:
        notes = [note for note in site.queue.notes(each) if note.kind == NOTE]
        ids[each] = [json.loads(note.details or "{}")["job"] for note in notes]
    every = [job_id for each in ids.values() for job_id in each]
    jobs = beside(site).queue.find(every) if every else {}
    return {name: {job_id: jobs.get(job_id) for job_id in each} for name, each in ids.items()}


def _may_arrive(job: Job | None) -> bool:
    """Whether Google has the adjustment, or may get it; one that is pruned may be there."""
    return job is None or job.state in UNFINISHED or bool(job.stamp_2)  # uploaded_at


def check(site: SiteContext, conversion: Job, kind: str) -> None:
    """Raise Unsendable if Google takes no such adjustment of a conversion that it may have."""
    sold, sold_at = conversion.payload, conversion.stamp_1 or 0  # conversion_at
    if sold.get("wbraid") and not sold.get("gclid"):
        raise Unsendable("WBRAID_NOT_ADJUSTABLE", "externalId", _NO_WBRAID)
    if sold_at + WINDOW_S * SECOND_US <= site.queue.now():
        raise Unsendable("CONVERSION_EXPIRED", "externalId", TOO_LATE)
    if kind == "RETRACT" and site.channel == "data_manager":
        raise Unsendable("RETRACT_NOT_POSSIBLE", "type", _NO_RETRACTION)
    if kind == "RESTATE" and refusals.find_refused(site, [conversion]):
        raise Unsendable("CONSENT_DENIED", "externalId", _REFUSED)


def rules_of(site: SiteContext, conversion: Job) -> RowDefaults:
    """The rules of a conversion that Google has: its action is the one that it was sent to."""
    rules, name = site.defaults.as_sent(), str(dig(conversion.payload, "conversionName"))
    action = ConversionAction(name, text_at(conversion.result, "actionId"))
    return replace(rules, actions={**rules.actions, name: action}) if action.id else rules


def check_unadjusted(site: SiteContext, conversion: Job) -> None:
    """Raise Unsendable if an adjustment of the conversion was sent, or may be."""
    if any(map(_may_arrive, siblings(site, [conversion.id])[conversion.id].values())):
        why = "it has an adjustment, so it will not be sent again: adjust it again"
        raise Unsendable("ADJUSTED", "externalId", why)


def restated(site: SiteContext, conversion: Job) -> tuple[dict[str, Any], int]:
    """The conversion with its last value, sent or still to be, and how many adjustments it has."""
    payload, others = conversion.payload, siblings(site, [conversion.id])[conversion.id]
    for job in others.values():
        if job and _may_arrive(job) and "value" in job.payload:
            payload = {**payload, **_fields(job)}
    return payload, len(others)


def _fields(job: Job) -> dict[str, Any]:
    said = job.payload
    if said["type"] == "RETRACT":
        return {"retracted": said["adjustmentId"]}
    return {"conversionValue": said["value"], "conversionCurrency": said["currency"]}


def conversion_id(job: Job) -> str:
    return str(job.payload.get("conversionId")) if isinstance(job.payload, dict) else ""


def is_under_way(conversion: Job | None) -> bool:
    """Whether Google may get the conversion, or have it: its adjustments wait for the outcome."""
    is_open = conversion and conversion.state != "COMPLETED" and not ingest.is_retracted(conversion)
    return bool(conversion and is_open and conversion.claim_seq)


def settle_waiting(site: SiteContext, jobs: Sequence[Job], actor: str) -> dict[str, Settled]:
    """Settle those that can be, under `locked`; after ClaimedMeanwhile, start it again."""
    settled: dict[str, Settled] = {}
    while rest := [job for job in reversed(jobs) if job.id not in settled]:
        first = {conversion_id(job): job for job in rest}  # the oldest of each conversion
        settled |= _settle(site, first, actor)
        held = {key for key, job in first.items() if settled[job.id] in ("waits", "ready")}
        behind = [job for job in rest if job.id not in settled and conversion_id(job) in held]
        # A retraction of what was never claimed waits for none before it.
        settled |= {job.id: "waits" for job in behind if job.payload["type"] != "RETRACT"}
    return settled


def _settle(site: SiteContext, turn: Mapping[str, Job], actor: str) -> dict[str, Settled]:
    sold, own = site.queue.find(list(turn)), beside(site)
    others = siblings(site, [key for key, each in sold.items() if not is_under_way(each)])
    settled: dict[str, Settled] = {}
    for key, job in turn.items():
        try:
            settled[job.id] = _decide(site, sold.get(key), job, others.get(key, {}))
        except Unsendable as problem:
            settled[job.id] = problem
    outcomes, changed = [], [key for key, job in turn.items() if settled[job.id] in _LOCAL]
    for what, action in _LOCAL.items():
        chosen = [(sold[key], turn[key]) for key in changed if settled[turn[key].id] == what]
        changes = [
            refusals.amended(conversion, canonical_json({"adjustment": job.id}), **_fields(job))
            for conversion, job in chosen
        ]
        outcomes += site.apply(action, changes, role="producer", actor=actor)
    after = site.queue.find(changed) if changed else {}
    is_newer = any(after[key].seq != sold[key].seq + 1 for key in changed)
    if is_newer or any(outcome.result != "moved" for outcome in outcomes):
        raise ingest.ClaimedMeanwhile
    for what, move in _MOVES.items():
        done = canonical_json({"outcome": what})
        moved = [Change(job_id, result=done) for job_id, it in settled.items() if it == what]
        own.apply(move, moved, actor=actor)
    whys = ((job, settled[job.id]) for job in turn.values())
    refused = [(job, why) for job, why in whys if isinstance(why, Unsendable)]
    own.apply("reject", rejections(refused), actor=actor)
    return settled


def _decide(
    site: SiteContext, conversion: Job | None, job: Job, others: Mapping[str, Job | None]
) -> str:
    """What becomes of the adjustment; raises Unsendable if it is never sent."""
    waits = is_under_way(conversion)
    if not conversion or conversion.tenant != job.tenant or not (waits or job.id in others):
        raise Unsendable("UNKNOWN_CONVERSION", "externalId", GONE)
    if waits:
        return "waits"
    if ingest.is_retracted(conversion):
        raise Unsendable("ALREADY_RETRACTED", "externalId", RETRACTED)
    at = list(others).index(job.id)
    before = [each for each in list(others.values())[:at] if each]
    later = [each for each in list(others.values())[at + 1 :] if each]
    is_blocked = any(each.state in UNFINISHED for each in before)
    kind = job.payload["type"]
    if conversion.state != "COMPLETED":
        return _decide_unclaimed(site, conversion, kind, is_blocked=is_blocked)
    check(site, conversion, kind)
    sent = [each for each in (*before, *later) if each.stamp_2]  # uploaded_at
    if any(each.stamp_2 for each in later):
        raise Unsendable("MORE_RECENT_RESTATEMENT_FOUND", "externalId", OVERTAKEN)
    if any(each.payload["type"] == "RETRACT" for each in sent):
        raise Unsendable("ALREADY_RETRACTED", "externalId", RETRACTED)
    is_blocked |= any(each.state in UNFINISHED[1:] for each in later)
    # Another sender of the same row may still be under way until its lease is over.
    lease_us = site.settings.recover_minutes * MINUTE_S * SECOND_US
    sent_at = max(each.stamp_2 or 0 for each in (conversion, *sent))
    return "waits" if is_blocked or sent_at + lease_us > site.queue.now() else "ready"


def _decide_unclaimed(site: SiteContext, conversion: Job, kind: str, *, is_blocked: bool) -> str:
    if kind == "RETRACT":
        return "retracted"
    if refusals.find_refused(site, [conversion]):
        raise Unsendable("CONSENT_DENIED", "externalId", _REFUSED)
    is_invalid = conversion.error_category == Category.VALIDATION.value
    takes = conversion.state == "QUEUED" or (conversion.state == "FAILED" and is_invalid)
    return "corrected" if takes and not is_blocked else "waits"
