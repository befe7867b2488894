"""Takes adjustments in; one of a conversion that was never claimed is made here and not sent."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from kesin.engine.new_job import NewJob
from kesin.foundation.messages import Message
from kesin.foundation.permissions import Actor
from kesin.foundation.text import json_number
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Job
from kesin.workloads.oci.adjustments import settling
from kesin.workloads.oci.adjustments.lifecycle import WINDOW_S
from kesin.workloads.oci.conversions.conversion import (
    MAX_FUTURE_S,
    MAX_VALUE,
    Conversion,
    ParsedRow,
    Unsendable,
    parse_currency,
    parse_id,
    parse_time,
    parse_value,
)
from kesin.workloads.oci.conversions.identifiers import known_fields
from kesin.workloads.oci.conversions.ingest import (
    ClaimedMeanwhile,
    IngestResult,
    build_rejection,
    enqueue_rows,
    is_retracted,
)
from kesin.workloads.oci.conversions.refusals import external_id_of, latest_revisions
from kesin.workloads.oci.site import SiteContext

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
            with suppress(ClaimedMeanwhile), kept, settling.locked(site):
                done = _take_in(site, numbered, actor.name)
                site.note(actor, "oci.adjust", Counter(each.result for each in done))
                results += done
    return results


def _take_in(site: SiteContext, rows: Mapping[int, ParsedRow], actor: str) -> list[IngestResult]:
    """Take the rows in, in one transaction; returns one result per row."""
    own, new, results = settling.beside(site), dict[int, NewJob](), dict[int, IngestResult]()
    sold = latest_revisions(site, [external_id_of(row) for row in rows.values()])
    earlier = {
        name: {str(it.dedup_key): it.payload if it.state != "FAILED" else None
               for it in jobs.values() if it}
        for name, jobs in settling.siblings(site, [it.id for it in sold.values()]).items()
    }  # fmt: skip
    for index, row in rows.items():
        try:
            new[index] = _plan(site, row, sold.get(external_id_of(row)), earlier)
        except Unsendable as problem:
            results[index] = build_rejection(index, row, problem)
    results |= enqueue_rows(own, new.items(), actor)
    ids = [str(results[index].id) for index in new]
    known = own.queue.find(ids) if ids else {}
    added = [known[job_id] for job_id, i in zip(ids, new, strict=True) if results[i].is_change]
    for job in added:
        site.note_event(settling.NOTE, actor, job.payload["conversionId"], job=job.id)
    settled = settling.settle_waiting(site, added, actor)
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


def _plan(
    site: SiteContext, row: ParsedRow, conversion: Job | None, earlier: dict[str, dict[str, Any]]
) -> NewJob:
    now, given = site.queue.now(), _parse(row)
    if conversion is None or not isinstance(conversion.payload, dict):
        raise Unsendable("UNKNOWN_CONVERSION", "externalId", settling.GONE)
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
    if is_retracted(conversion) or any(it["type"] == "RETRACT" for it in standing):
        raise Unsendable("ALREADY_RETRACTED", "externalId", settling.RETRACTED)
    if at.timestamp() * SECOND_US <= sold_at:
        why = "adjustedAt must be later than the conversion"
        raise Unsendable("ADJUSTMENT_PRECEDES_CONVERSION", "adjustedAt", why)
    if conversion.claim_seq:
        settling.check(site, conversion, given["type"])
        if given["type"] == "RESTATE" and at <= last:  # Google would not tell it from the last one
            why = "adjustedAt must be later than that of the last adjustment"
            raise Unsendable("MORE_RECENT_RESTATEMENT_FOUND", "adjustedAt", why)
    others[key] = payload
    return new


def _compare(
    result: IngestResult, row: ParsedRow, new: Mapping[str, Any], stored: Job
) -> IngestResult:
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
