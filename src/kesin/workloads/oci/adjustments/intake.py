"""Takes adjustments in: each is queued, a duplicate, or rejected with the reason and the way out.

An adjustment changes the newest revision of its conversion. If that was never claimed, it is
changed here and nothing is sent.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from kesin.engine.access.sites import CURRENCIES
from kesin.engine.new_job import NewJob
from kesin.engine.validation import BadInput
from kesin.foundation.messages import Message
from kesin.foundation.permissions import Actor
from kesin.foundation.text import canonical_json, storable
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Job
from kesin.store.records import Outcome
from kesin.workloads.oci.adjustments import settling
from kesin.workloads.oci.adjustments.lifecycle import WINDOW_S
from kesin.workloads.oci.conversions.conversion import (
    MAX_EXTERNAL_ID,
    MAX_FUTURE_S,
    MAX_SHOWN_NAME,
    MAX_VALUE,
    Conversion,
    ParsedRow,
    Unsendable,
    json_number,
    parse_id,
    parse_time,
    parse_value,
)
from kesin.workloads.oci.conversions.ingest import (
    ClaimedMeanwhile,
    IngestResult,
    awaits_first_claim,
    build_rejection,
    is_retracted,
)
from kesin.workloads.oci.conversions.revisions import external_id_of, latest_revisions
from kesin.workloads.oci.site import SiteContext

CHUNK: Final = 500  # rows per transaction
FIELDS: Final = ("externalId", "adjustmentId", "type", "value", "currency", "adjustedAt")
KINDS: Final = ("RETRACT", "RESTATE")
_DIFFERS: Final = "the stored adjustment differs in %(fields)s and stays: send another adjustmentId"


def adjust(site: SiteContext, rows: Sequence[ParsedRow], *, actor: Actor) -> list[IngestResult]:
    """Take adjustments in; returns one result per row, in order."""
    results: list[IngestResult] = []
    for start in range(0, len(rows), CHUNK):
        numbered = dict(enumerate(rows[start : start + CHUNK], start))
        while len(results) == start:  # again if a conversion was claimed meanwhile
            with suppress(ClaimedMeanwhile), settling.locked(site):
                done = _Chunk(site, actor.name).run(numbered)
                site.note(actor, "oci.adjust", Counter(each.result for each in done))
                results += done
    return results


class _Chunk:
    """Rows taken in by one transaction."""

    def __init__(self, site: SiteContext, actor: str) -> None:
        self._site, self._actor = site, actor
        self._keys: set[str] = set()  # of adjustments that are there
        self._earlier: dict[str, list[dict[str, Any]]] = {}  # payloads, by conversion

    def run(self, rows: Mapping[int, ParsedRow]) -> list[IngestResult]:
        """Take the rows in; returns one result per row."""
        site, queue = self._site, settling.beside(self._site).queue
        conversions = latest_revisions(site, [external_id_of(row) for row in rows.values()])
        for name, jobs in settling.siblings(site, [it.id for it in conversions.values()]).items():
            self._keys |= {str(job.dedup_key) for job in jobs.values() if job}
            standing = [job for job in jobs.values() if job and job.state != "FAILED"]
            self._earlier[name] = [job.payload for job in standing]
        results: dict[int, IngestResult] = {}
        new: dict[int, NewJob] = {}
        for index, row in rows.items():
            try:
                new[index] = self._plan(row, conversions.get(external_id_of(row)))
            except Unsendable as problem:
                results[index] = build_rejection(index, row, problem)
        outcomes = queue.enqueue_many(new.values(), actor=self._actor) if new else []
        stored = dict(zip(new, map(_outcome, outcomes), strict=True))
        ids = {index: outcome.id for index, outcome in stored.items()}
        known = queue.find(list(ids.values())) if ids else {}
        added = [outcome.id for outcome in stored.values() if outcome.result == "inserted"]
        for job_id in added:
            self._note(known[job_id])
        settled = settling.settle_waiting(site, [known[it] for it in added], self._actor)
        for index, job_id in ids.items():
            payload = new[index].payload
            result = IngestResult(index, payload["externalId"], "duplicate", job_id)
            if job_id in settled:
                what, why = settled.pop(job_id)  # a second row of this id is a duplicate
                result = replace(result, result="queued", outcome=what)
                if why:
                    result = replace(result, code=why.code, message=why.message)
            else:
                result = _compare(result, rows[index], payload, known[job_id].payload)
            results[index] = result
        texts = {index: _adjustment_id(row) for index, row in rows.items()}
        return [replace(results[index], adjustment_id=text) for index, text in texts.items()]

    def _note(self, job: Job) -> None:
        """Note a new adjustment on its conversion."""
        queue = self._site.queue
        queue.store.add_note(
            queue.name, kind=settling.NOTE, actor=self._actor, tenant=self._site.id,
            job_id=job.payload["conversionId"], details=canonical_json({"job": job.id}),
            now=queue.now(),
        )  # fmt: skip

    def _plan(self, row: ParsedRow, conversion: Job | None) -> NewJob:
        site, now = self._site, self._site.queue.now()
        given = _parse(row)
        if conversion is None or not isinstance(conversion.payload, dict):
            raise Unsendable("UNKNOWN_CONVERSION", "externalId", settling.GONE)
        earlier, sold = self._earlier[conversion.id], conversion.payload
        if "value" in given:
            given["currency"] = given.get("currency") or sold["conversionCurrency"]
            given["value"] = json_number(_parse_value(given["value"], given["currency"]))
        at = _parse_at(given.get("adjustedAt"), site)
        if at is None:  # Google wants a time after the conversion, and after the last adjustment
            times = [sold["conversionTime"], *(it["adjustedAt"] for it in earlier)]
            least = max(map(datetime.fromisoformat, times)) + timedelta(seconds=1)
            at = max(datetime.fromtimestamp(now // SECOND_US, least.tzinfo), least)
        key = f"{given['externalId']}\x1f{given['adjustmentId']}"  # ids have no control characters
        sold_at = conversion.stamp_1 or conversion.created_at  # conversion_at
        if key not in self._keys:
            if is_retracted(conversion) or any(it["type"] == "RETRACT" for it in earlier):
                raise Unsendable("ALREADY_RETRACTED", "externalId", settling.RETRACTED)
            if not awaits_first_claim(conversion):
                settling.check(site, conversion, given["type"])
            if at.timestamp() * SECOND_US <= sold_at:
                why = "adjustedAt must be later than the conversion"
                raise Unsendable("ADJUSTMENT_PRECEDES_CONVERSION", "adjustedAt", why)
        ids = {"orderId": sold["orderId"], "conversionId": conversion.id}
        payload = {**given, "adjustedAt": at.isoformat(), **ids}
        self._keys.add(key)
        earlier.append(payload)
        run_at = max(sold_at, now) + WINDOW_S * SECOND_US  # given up then, if it still waits
        new = NewJob(payload, key, site.id, max_attempts=site.max_attempts)
        return replace(new, run_at=run_at, stamps={"conversion_at": sold_at})


def _outcome(outcome: Outcome | BadInput) -> Outcome:
    if isinstance(outcome, BadInput):
        raise outcome
    return outcome


def _adjustment_id(row: ParsedRow) -> str | None:
    value = row.get("adjustmentId") if isinstance(row, Mapping) else None
    return storable(str(value))[:MAX_EXTERNAL_ID] if isinstance(value, str | int) else None


def _compare(
    result: IngestResult, row: ParsedRow, new: Mapping[str, Any], old: Mapping[str, Any]
) -> IngestResult:
    """The result of a duplicate, with the fields that the stored one has otherwise."""
    said = row if isinstance(row, Mapping) else {}
    names = [name for name in FIELDS[2:] if name != "adjustedAt" or said.get(name) is not None]
    differs = tuple(name for name in names if new.get(name) != old.get(name))
    message = Message(_DIFFERS, fields=", ".join(differs)) if differs else None
    return replace(result, differs=differs, message=message)


def _parse(row: ParsedRow) -> dict[str, Any]:
    """The fields of a row that need no conversion; raises Unsendable with the first problem."""
    if isinstance(row, Unsendable):
        raise row
    if unknown := min((str(name) for name in row if name not in FIELDS), default=""):
        name = storable(unknown)[:MAX_SHOWN_NAME]
        why = "%(field)s is no field of an adjustment"
        raise Unsendable("UNKNOWN_FIELD", name, why, field=repr(name))
    given = {name: row[name] for name in FIELDS if row.get(name) is not None}
    given["externalId"] = parse_id(row.get("externalId"))
    given["adjustmentId"] = parse_id(row.get("adjustmentId"), "adjustmentId", "ADJUSTMENT_ID")
    kind = given.get("type")
    if kind not in KINDS:
        raise Unsendable("INVALID_TYPE", "type", "type is RETRACT or RESTATE")
    unwanted = next((name for name in ("value", "currency") if name in given), None)
    if kind == "RETRACT" and unwanted:
        raise Unsendable("VALUE_NOT_ALLOWED", unwanted, "RETRACT takes no value and no currency")
    if kind == "RESTATE" and "value" not in given:
        raise Unsendable("VALUE_MISSING", "value", "RESTATE needs the new value")
    if "currency" in given and given["currency"] not in CURRENCIES:
        why = "currency is one of ISO 4217 in three letters, TRY"
        raise Unsendable("INVALID_CURRENCY", "currency", why)
    return given


def _parse_value(given: Any, currency: str) -> Decimal:
    try:
        return parse_value(given, currency)
    except Unsendable:
        why = "value must be a number in 0…%(most)s"
        raise Unsendable("INVALID_ADJUSTED_VALUE", "value", why, most=MAX_VALUE) from None


def _parse_at(given: Any, site: SiteContext) -> datetime | None:
    try:
        at = None if given is None else parse_time(given, site.zone)
    except Unsendable:
        why = "adjustedAt must be ISO 8601 with a time of day, 2026-03-01T14:05:00+03:00"
        raise Unsendable("INVALID_TIME_FORMAT", "adjustedAt", why) from None
    if at and at.timestamp() > site.queue.now() / SECOND_US + MAX_FUTURE_S:
        raise Unsendable("TIME_IN_FUTURE", "adjustedAt", "adjustedAt lies in the future")
    return at


def restatement(job: Job, new: Conversion, changed: Sequence[str]) -> dict[str, Any]:
    """The adjustment that corrects a conversion which Google took; the same data make it once."""
    for name in changed:
        if name not in ("conversionValue", "conversionCurrency"):
            why = "Google takes a new value or currency of a sale that it has, but no %(field)s"
            raise Unsendable("NOT_ADJUSTABLE", name, why, field=name)
    digest = hashlib.sha256(f"{job.id} {new.value} {new.currency}".encode()).hexdigest()
    row = {"externalId": new.external_id, "adjustmentId": f"fix-{digest[:16]}", "type": "RESTATE"}
    return {**row, "value": json_number(new.value), "currency": new.currency}


def adjustment_title(payload: Any) -> str:
    """What lists call an adjustment: the sale, and what becomes of it."""
    given = payload if isinstance(payload, dict) else {}
    restated = f"{given.get('value')} {given.get('currency')}" if "value" in given else ""
    return f"{given.get('externalId', '')} · {restated or given.get('type', '')}"
