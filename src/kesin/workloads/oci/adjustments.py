"""Adjustments of conversions: taken in, and settled under a lock of the site.

Retracted sales, and sales whose value changed. An adjustment of a conversion that was never claimed
is made here and not sent; under the lock, two of a sale see each other.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from kesin.engine.new_job import NewJob
from kesin.foundation.messages import Message
from kesin.foundation.permissions import Actor
from kesin.foundation.text import canonical_json, json_number
from kesin.lifecycle.budget import MINUTE_S, SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.workloads.oci.conversions import ingest, refusals
from kesin.workloads.oci.conversions.actions import ConversionAction
from kesin.workloads.oci.conversions.conversion import (
    MAX_FUTURE_S,
    MAX_VALUE,
    Conversion,
    ParsedRow,
    RowDefaults,
    Unsendable,
    parse_currency,
    parse_id,
    parse_time,
    parse_value,
)
from kesin.workloads.oci.conversions.identifiers import known_fields
from kesin.workloads.oci.conversions.ingest import IngestResult
from kesin.workloads.oci.conversions.refusals import external_id_of
from kesin.workloads.oci.google.http import dig, text_at
from kesin.workloads.oci.lifecycle import QUEUE, TOO_LATE, UNFINISHED, WINDOW_S
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
    context = replace(site.context, queue=site.context.commands.queues[queue])
    return SiteContext(context, site.record)


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
    name, given = str(dig(conversion.payload, "conversionName")), site.defaults
    action = ConversionAction(name, text_at(conversion.result, "actionId"))
    # Without the rules that are about new rows.
    actions = {name: replace(each, counting="") for name, each in given.actions.items()}
    actions |= {name: action} if action.id else {}
    rules = replace(given, actions=actions, only_name=None, consent_required=False)
    return replace(rules, enhanced=True, needs_click=False)


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


def _decide(site: SiteContext, conversion: Job | None, job: Job, others: Mapping[str, Job | None]) -> str:
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


CHUNK: Final = 500  # rows per transaction
FIELDS: Final = ("externalId", "adjustmentId", "type", "value", "currency", "adjustedAt")
_KNOWN_FIELDS: Final = frozenset(FIELDS)
_DIFFERS: Final = "the stored adjustment differs in %(fields)s and is kept: use a new adjustmentId"


def adjust(site: SiteContext, rows: Sequence[ParsedRow], *, actor: Actor) -> list[IngestResult]:
    """Take adjustments in; returns one result per row, in order."""
    results: list[IngestResult] = []
    for start in range(0, len(rows), CHUNK):
        numbered = dict(enumerate(rows[start : start + CHUNK], start))
        while len(results) == start:  # again if a conversion was claimed meanwhile
            kept = site.context.commands.accounts.kept_site(site.id)
            with suppress(ingest.ClaimedMeanwhile), kept, locked(site):
                done = _take_in(site, numbered, actor.name)
                site.note(actor, "oci.adjust", Counter(each.result for each in done))
                results += done
    return results


def _take_in(site: SiteContext, rows: Mapping[int, ParsedRow], actor: str) -> list[IngestResult]:
    """Take the rows in, in one transaction; returns one result per row."""
    own, new, results = beside(site), dict[int, NewJob](), dict[int, IngestResult]()
    sold = refusals.latest_revisions(site, [external_id_of(row) for row in rows.values()])
    earlier = {
        name: {str(it.dedup_key): it.payload if it.state != "FAILED" else None
               for it in jobs.values() if it}
        for name, jobs in siblings(site, [it.id for it in sold.values()]).items()
    }  # fmt: skip
    for index, row in rows.items():
        try:
            new[index] = _plan(site, row, sold.get(external_id_of(row)), earlier)
        except Unsendable as problem:
            results[index] = ingest.build_rejection(index, row, problem)
    results |= ingest.enqueue_rows(own, new.items(), actor)
    ids = [str(results[index].id) for index in new]
    known = own.queue.find(ids) if ids else {}
    added = [known[job_id] for job_id, i in zip(ids, new, strict=True) if results[i].is_change]
    for job in added:
        site.note_event(NOTE, actor, job.payload["conversionId"], job=job.id)
    settled = settle_waiting(site, added, actor)
    for index, job_id in zip(new, ids, strict=True):
        result, what = results[index], settled.get(job_id, "")
        if result.result == "duplicate":
            result = _compare(result, rows[index], new[index].payload, known[job_id])
        elif isinstance(what, Unsendable):
            result = replace(result, outcome="rejected", code=what.code, message=what.message)
        else:
            result = replace(result, outcome=what or None)
        results[index] = result
    return [results[index] for index in rows]


def _plan(site: SiteContext, row: ParsedRow, conversion: Job | None, earlier: dict[str, dict[str, Any]]) -> NewJob:
    now, given = site.queue.now(), _parse(row)
    if conversion is None or not isinstance(conversion.payload, dict):
        raise Unsendable("UNKNOWN_CONVERSION", "externalId", GONE)
    others, sold = earlier[conversion.id], conversion.payload
    if "value" in given:
        given["currency"] = given.get("currency") or sold["conversionCurrency"]
        wanted = Message("value must be a number in 0…%(most)s", most=MAX_VALUE)
        with _named("INVALID_ADJUSTED_VALUE", "value", wanted):
            given["value"] = json_number(parse_value(given["value"], given["currency"]))
    standing = [it for it in others.values() if it]
    times = [sold["conversionTime"], *(it["adjustedAt"] for it in standing)]
    last = max(map(datetime.fromisoformat, times))
    at = _parse_at(given.get("adjustedAt"), site)
    if at is None:  # Google wants a time after the conversion, and after the last adjustment
        least = last + timedelta(seconds=1)
        at = max(datetime.fromtimestamp(now // SECOND_US, least.tzinfo), least)
    key = f"{given['externalId']}\x1f{given['adjustmentId']}"  # ids have no control characters
    sold_at = conversion.stamp_1 or conversion.created_at  # conversion_at
    ids = {"orderId": sold["orderId"], "conversionId": conversion.id}
    payload = {**given, "adjustedAt": at.isoformat(), **ids}
    run_at = max(sold_at, now) + WINDOW_S * SECOND_US  # given up then, if it still waits
    new = NewJob(payload, key, site.id, max_attempts=site.max_attempts)
    new = replace(new, run_at=run_at, stamps={"conversion_at": sold_at})
    if key in others:
        return new  # a duplicate
    if ingest.is_retracted(conversion) or any(it["type"] == "RETRACT" for it in standing):
        raise Unsendable("ALREADY_RETRACTED", "externalId", RETRACTED)
    if at.timestamp() * SECOND_US <= sold_at:
        why = "adjustedAt must be later than the conversion"
        raise Unsendable("ADJUSTMENT_PRECEDES_CONVERSION", "adjustedAt", why)
    if conversion.claim_seq:
        check(site, conversion, given["type"])
        if given["type"] == "RESTATE" and at <= last:  # Google would not tell it from the last one
            why = "adjustedAt must be later than that of the last adjustment"
            raise Unsendable("MORE_RECENT_RESTATEMENT_FOUND", "adjustedAt", why)
    others[key] = payload
    return new


def _compare(result: IngestResult, row: ParsedRow, new: Mapping[str, Any], stored: Job) -> IngestResult:
    """The result of a duplicate, with the fields that the stored one has otherwise."""
    said = row if isinstance(row, Mapping) else {}
    names = [name for name in FIELDS[2:] if name != "adjustedAt" or said.get(name) is not None]
    differs = tuple(name for name in names if new.get(name) != stored.payload.get(name))
    message = Message(_DIFFERS, fields=", ".join(differs)) if differs else None
    return replace(result, differs=differs, message=message)


def _parse(row: ParsedRow) -> dict[str, Any]:
    """The fields of a row that need no conversion; raises Unsendable with the first problem."""
    row = known_fields(row, _KNOWN_FIELDS, "%(field)s is not a field of an adjustment")
    given = {name: row[name] for name in FIELDS if row.get(name) is not None}
    given["externalId"] = parse_id(row.get("externalId"))
    given["adjustmentId"] = parse_id(row.get("adjustmentId"), "adjustmentId", "ADJUSTMENT_ID")
    kind = given.get("type")
    if kind not in ("RETRACT", "RESTATE"):
        raise Unsendable("INVALID_TYPE", "type", "type must be RETRACT or RESTATE")
    unwanted = next((name for name in ("value", "currency") if name in given), None)
    if kind == "RETRACT" and unwanted:
        raise Unsendable("VALUE_NOT_ALLOWED", unwanted, "RETRACT takes no value or currency")
    if kind == "RESTATE" and "value" not in given:
        raise Unsendable("VALUE_MISSING", "value", "RESTATE needs the new value")
    if "currency" in given:
        why = "currency must be a three-letter ISO 4217 code, such as TRY"
        with _named("INVALID_CURRENCY", "currency", why):
            given["currency"] = parse_currency(given["currency"])
    return given


@contextmanager
def _named(code: str, field: str, why: str) -> Iterator[None]:
    """Name a problem of a value by the field of the adjustment."""
    try:
        yield
    except Unsendable:
        raise Unsendable(code, field, why) from None


def _parse_at(given: Any, site: SiteContext) -> datetime | None:
    if given is None:
        return None
    why = "adjustedAt must be ISO 8601 with a time, such as 2026-03-01T14:05:00+03:00"
    with _named("INVALID_TIME_FORMAT", "adjustedAt", why):
        at = parse_time(given, site.zone)
    if at.timestamp() > site.queue.now() / SECOND_US + MAX_FUTURE_S:
        raise Unsendable("TIME_IN_FUTURE", "adjustedAt", "adjustedAt is in the future")
    return at


def restatement(job: Job, new: Conversion, changed: Sequence[str], number: int) -> dict[str, Any]:
    """The adjustment of this number, with a new value of a conversion that Google took."""
    for name in changed:
        if name not in ("conversionValue", "conversionCurrency"):
            why = "Google accepts a new value or currency for a known sale, but not a new %(field)s"
            raise Unsendable("NOT_ADJUSTABLE", name, why, field=name)
    digest = hashlib.sha256(f"{job.id} {number} {new.value} {new.currency}".encode()).hexdigest()
    row = {"externalId": new.external_id, "adjustmentId": f"fix-{digest[:16]}", "type": "RESTATE"}
    return {**row, "value": json_number(new.value), "currency": new.currency}


def adjustment_title(payload: Any) -> str:
    """What lists call an adjustment: the sale, and what becomes of it."""
    given = payload if isinstance(payload, dict) else {}
    restated = f"{given.get('value')} {given.get('currency')}" if "value" in given else ""
    return f"{given.get('externalId', '')} · {restated or given.get('type', '')}"
