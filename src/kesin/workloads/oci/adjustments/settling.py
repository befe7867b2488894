"""What becomes of waiting adjustments: it depends on how far their conversion is.

Every change of an adjustment and of its conversion is one transaction under a lock of the site, so
that of two adjustments of a conversion each sees the other.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import MINUTE_S, SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.workloads.oci.adjustments.lifecycle import QUEUE, TOO_LATE, UNFINISHED, WINDOW_S
from kesin.workloads.oci.conversions.conversion import Unsendable
from kesin.workloads.oci.conversions.ingest import (
    ClaimedMeanwhile,
    amended,
    awaits_first_claim,
    is_retracted,
    was_refused,
)
from kesin.workloads.oci.script import rejections
from kesin.workloads.oci.site import SiteContext

NOTE: Final = "ADJUSTMENT"  # on a conversion, for each adjustment of it
GONE: Final = "there is no conversion of this externalId here"
RETRACTED: Final = "the sale was retracted: one that stands after all needs another externalId"
_OVERTAKEN: Final = "a later adjustment of the sale was sent first"
_NO_WBRAID: Final = (
    "Google adjusts no conversion of a wbraid: correct your own figures, and send the gclid or "
    "gbraid of sales that may change"
)
_NO_RETRACTION: Final = (
    "the Data Manager API has no retraction: send RESTATE with the value 0, or retract the sale in "
    "Google Ads itself"
)
_REFUSED: Final = "consent is denied, so no new value is sent: RETRACT is possible"
# What happens to a conversion that was never claimed: its move, and the fields that it gets.
_LOCAL: Final = {"corrected": "correct", "retracted": "retract"}
_MOVES: Final = {"corrected": "settle", "retracted": "settle", "ready": "ready"}


class Settled(NamedTuple):
    """What became of an adjustment: corrected, retracted, ready, waits or rejected."""

    what: str
    problem: Unsendable | None = None


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


def check(site: SiteContext, conversion: Job, kind: str) -> None:
    """Raise Unsendable if Google takes no such adjustment of a conversion that it may have."""
    sold, sold_at = conversion.payload, conversion.stamp_1 or 0  # conversion_at
    if sold.get("wbraid") and not sold.get("gclid"):
        raise Unsendable("WBRAID_NOT_ADJUSTABLE", "externalId", _NO_WBRAID)
    if sold_at + WINDOW_S * SECOND_US <= site.queue.now():
        raise Unsendable("CONVERSION_EXPIRED", "externalId", TOO_LATE)
    if kind == "RETRACT" and site.channel == "data_manager":
        raise Unsendable("RETRACT_NOT_POSSIBLE", "type", _NO_RETRACTION)
    if kind == "RESTATE" and was_refused(site, conversion):
        raise Unsendable("CONSENT_DENIED", "externalId", _REFUSED)


def check_unadjusted(site: SiteContext, conversion: Job) -> None:
    """Raise Unsendable if an adjustment of the conversion was sent, or may be."""
    jobs = siblings(site, [conversion.id])[conversion.id].values()
    if any(job is None or job.state != "FAILED" for job in jobs):
        why = "it has an adjustment, so it is not sent again: adjust it once more"
        raise Unsendable("ADJUSTED", "externalId", why)


def settle_waiting(site: SiteContext, jobs: Sequence[Job], actor: str) -> dict[str, Settled]:
    """Move on the waiting adjustments that can be; ``site`` is that of the conversions.

    Called under `locked`. Raises ClaimedMeanwhile if a conversion was claimed after it was read:
    then the transaction is to be made again.
    """
    settled: dict[str, Settled] = {}
    while rest := [job for job in reversed(jobs) if job.id not in settled]:
        first = {_conversion_id(job): job for job in rest}  # the oldest of each conversion
        settled |= _settle(site, first, actor)
    return settled


def _conversion_id(job: Job) -> str:
    return str(job.payload.get("conversionId")) if isinstance(job.payload, dict) else ""


def _settle(site: SiteContext, turn: Mapping[str, Job], actor: str) -> dict[str, Settled]:
    sold, own = site.queue.find(list(turn)), beside(site)
    others = siblings(site, list(sold))
    settled: dict[str, Settled] = {}
    for key, job in turn.items():
        try:
            settled[job.id] = Settled(_decide(site, sold.get(key), job, others.get(key, {})))
        except Unsendable as problem:
            settled[job.id] = Settled("rejected", problem)
    changed = {key: job for key, job in turn.items() if settled[job.id].what in _LOCAL}
    outcomes = []
    for what, action in _LOCAL.items():
        chosen = [key for key, job in changed.items() if settled[job.id].what == what]
        changes = [_amended(sold[key], changed[key]) for key in chosen]
        outcomes += site.apply(action, changes, role="producer", actor=actor)
    after = site.queue.find(list(changed)) if changed else {}
    is_claimed = any(after[key].claim_seq != sold[key].claim_seq for key in changed)
    if is_claimed or any(outcome.result != "moved" for outcome in outcomes):
        raise ClaimedMeanwhile
    for what, move in _MOVES.items():
        done = canonical_json({"outcome": what})
        own.apply(
            move, [Change(i, result=done) for i, it in settled.items() if it.what == what],
            actor=actor,
        )  # fmt: skip
    refused = [(job, why) for job in turn.values() if (why := settled[job.id].problem)]
    own.apply("reject", rejections(refused), actor=actor)
    return settled


def _amended(conversion: Job, job: Job) -> Change:
    """The conversion with what the adjustment says of it."""
    said = job.payload
    fields = {"conversionValue": said.get("value"), "conversionCurrency": said.get("currency")}
    if said["type"] == "RETRACT":
        fields = {"retracted": said["adjustmentId"]}
    return amended(conversion, **fields)._replace(note=canonical_json({"adjustment": job.id}))


def _decide(
    site: SiteContext, conversion: Job | None, job: Job, others: Mapping[str, Job | None]
) -> str:
    """What becomes of the adjustment; raises Unsendable if it is never sent."""
    if conversion is None or conversion.tenant != job.tenant or job.id not in others:
        raise Unsendable("UNKNOWN_CONVERSION", "externalId", GONE)
    if is_retracted(conversion):
        raise Unsendable("ALREADY_RETRACTED", "externalId", RETRACTED)
    at = list(others).index(job.id)
    before = [each for each in list(others.values())[:at] if each]
    later = [each for each in list(others.values())[at + 1 :] if each]
    is_blocked = any(each.state in UNFINISHED for each in before)
    kind = job.payload["type"]
    if awaits_first_claim(conversion):
        return _decide_unclaimed(site, conversion, kind, is_blocked=is_blocked)
    if conversion.state != "COMPLETED":
        return "waits"
    check(site, conversion, kind)
    sent = [each for each in (*before, *later) if each.stamp_2]  # uploaded_at
    if any(each.stamp_2 for each in later):
        raise Unsendable("MORE_RECENT_RESTATEMENT_FOUND", "externalId", _OVERTAKEN)
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
    if was_refused(site, conversion):
        raise Unsendable("CONSENT_DENIED", "externalId", _REFUSED)
    is_invalid = conversion.error_category == Category.VALIDATION.value
    takes = conversion.state == "QUEUED" or (conversion.state == "FAILED" and is_invalid)
    return "corrected" if takes and not is_blocked else "waits"
