"""Takes conversions in: each row is queued, a duplicate, corrected, or rejected with a reason.

Sending the same rows twice changes nothing. When an external id arrives with other data, a row that
waits for its first claim takes them, and one that FAILED because of its data is queued again. Any
other row may be at Google already, or an operator marked it FAILED: it stays as it is, and the
result names what differs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from kesin.engine.new_job import NewJob
from kesin.engine.validation import BadInput
from kesin.foundation.messages import Message
from kesin.foundation.permissions import Actor
from kesin.foundation.text import canonical_json, storable
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.store.records import Outcome
from kesin.workloads.oci.conversions.conversion import (
    CONSENT_FIELDS,
    CONVERSION_FIELDS,
    DENIED,
    HASH_FIELDS,
    MAX_EXTERNAL_ID,
    Conversion,
    ParsedRow,
    Unsendable,
    fields_of,
    parse_time,
)
from kesin.workloads.oci.conversions.identifiers import checked_row
from kesin.workloads.oci.conversions.refusals import (
    GRANTED_NOTE,
    awaits_first_claim,
    find_refused,
    note_consents,
    stop,
    withhold,
)
from kesin.workloads.oci.lifecycle import CONSENT_DENIED, EXPIRED
from kesin.workloads.oci.site import SiteContext

Conversions = Mapping[int, Conversion]  # by the position of their rows
IngestOutcome = Literal["queued", "duplicate", "corrected", "rejected"]
_PREVIEWED: Final = 10
_ROW_IDS: Final = ("externalId", "adjustmentId")
MAX_AUDITED_ROWS: Final = 100  # named in the audit line of a call; each row's event has its own
_NOT_TAKEN: Final = (
    "the stored row differs in %(fields)s and is kept: only a row that is waiting for its "
    "first claim, or is FAILED because of its data, accepts new values"
)
_REFUSED: Final = (
    "the stored row differs in %(fields)s and is kept: its consent is denied, and only a row with "
    "granted consent changes that"
)
_STOPPED: Final = "%(problem)s; the sale with this externalId cannot be sent: its consent is denied"
_RETRACTED: Final = (
    "the stored row differs in %(fields)s and is kept: it was retracted; to report the sale "
    "again, use another externalId"
)
_MARKED_FAILED: Final = (
    "the stored row differs in %(fields)s and is kept: an operator marked it FAILED before its "
    "first claim; after RETRY_SELECTED it will accept new values"
)


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The result of one row."""

    index: int
    external_id: str | None
    result: IngestOutcome
    id: str | None = None
    code: str | None = None
    field: str | None = None
    message: str | None = None
    differs: tuple[str, ...] = ()  # fields of a duplicate that the stored row has otherwise
    adjustment_id: str | None = None  # of an adjustment
    outcome: str | None = None  # of a queued one: corrected, retracted, waits, ready or rejected

    @property
    def is_change(self) -> bool:
        return self.result in ("queued", "corrected")


Results = dict[int, IngestResult]  # by the position of their rows


def ingest(site: SiteContext, rows: Sequence[ParsedRow], *, actor: Actor) -> list[IngestResult]:
    """Take rows in; returns one result per row, in order."""
    if not any(_says(row, "denied") for row in rows):
        return _ingest(site, rows, actor)
    # The lock of fixes and adjustments: none that read a row before its refusal sends it.
    with site.queue.store.transaction(), site.locked_metadata("adjustments"):
        return _ingest(site, rows, actor)


def _ingest(site: SiteContext, rows: Sequence[ParsedRow], actor: Actor) -> list[IngestResult]:
    conversions, results = _parse_rows(site, rows)
    first = {index: each for index, each in conversions.items() if each.revision == 1}
    later = {index: each for index, each in conversions.items() if each.revision > 1}
    # A refusal counts even if the row that brings it is rejected for something else.
    refused = [it for it in results.values() if it.external_id and _says(rows[it.index], "denied")]
    results |= {it.index: replace(it, message=Message(_STOPPED, problem=it.message)) for it in refused}
    refusals = {(it.external_id or "").strip() for it in refused}
    hold_us = site.hold_us
    jobs = ((index, new_job(site, each, hold_us)) for index, each in first.items())
    results |= enqueue_rows(site, jobs, actor.name)
    results |= _match_revisions(site, later)
    new = {index: each for index, each in conversions.items() if results[index].result == "queued"}
    withhold(site, [results[index].id for index, each in new.items() if each.is_denied], actor)
    said = {index for index in conversions if _says(rows[index], "denied")}
    refusals |= {conversions[index].external_id for index in said}
    stop(site, sorted(filter(None, refusals)), actor)
    results |= _correct(site, conversions, results, actor, rows, refusals=refusals)
    for index in said | {index for index, each in new.items() if each.is_denied}:
        result = results[index]
        if result.result != "rejected" and not result.differs:
            results[index] = replace(result, code=CONSENT_DENIED.code, message=Message(DENIED))
    return [results[index] for index in range(len(rows))]


def _parse_rows(site: SiteContext, rows: Sequence[ParsedRow]) -> tuple[dict[int, Conversion], dict[int, IngestResult]]:
    """The conversions, and the results of rows that are none."""
    conversions: dict[int, Conversion] = {}
    results: dict[int, IngestResult] = {}
    defaults, now = site.defaults, site.queue.now()
    for index, row in enumerate(rows):
        try:
            conversions[index] = Conversion.parse(checked_row(row, defaults), defaults, now_us=now)
        except Unsendable as problem:
            results[index] = build_rejection(index, row, problem)
    return conversions, results


def import_rows(site: SiteContext, rows: Sequence[ParsedRow], actor: Actor) -> list[IngestResult]:
    """Take the rows of a file in, with a line in the audit log."""
    with site.queue.store.transaction():
        results = ingest(site, rows, actor=actor)
        site.note(actor, "oci.import", Counter(result.result for result in results))
    return results


@dataclass(slots=True)
class IngestPreview:
    """What rows would become, with nothing stored."""

    first: list[dict[str, Any]] = field(default_factory=list)  # as they would be stored, masked
    sums: dict[str, Decimal] = field(default_factory=dict)  # by currency

    def add(self, site: SiteContext, rows: Sequence[ParsedRow], actor: Actor) -> list[IngestResult]:
        """The result of each row: they are taken in, and the transaction is undone."""
        with suppress(_Undone), site.queue.store.transaction():
            results = ingest(site, rows, actor=actor)
            raise _Undone
        conversions = _parse_rows(site, rows)[0]
        changes = [new for index, new in conversions.items() if results[index].is_change]
        for new in changes:
            self.sums[new.currency] = self.sums.get(new.currency, Decimal()) + new.value
        mask = site.context.commands.masking(site.queue.name).value
        self.first += [mask(new.payload()) for new in changes[: _PREVIEWED - len(self.first)]]
        return results


class _Undone(Exception):
    """Ends the transaction of a preview."""


def build_rejection(index: int, row: ParsedRow, problem: Unsendable) -> IngestResult:
    external_id, adjustment_id = (
        storable(str(value))[:MAX_EXTERNAL_ID] if isinstance(value, str | int) else None
        for value in map(fields_of(row).get, _ROW_IDS)
    )
    why = (problem.code, problem.field or None, problem.message)
    return IngestResult(index, external_id, "rejected", None, *why, adjustment_id=adjustment_id)


def enqueue_rows(site: SiteContext, jobs: Iterable[tuple[int, NewJob]], actor: str) -> Results:
    """Enqueue new rows, with their position; a row that is there is a duplicate."""
    named: list[tuple[int, Any, Any]] = []

    def news() -> Iterator[NewJob]:  # one at a time: 10,000 payloads at once fit into no cache
        for index, job in jobs:
            named.append((index, *map(job.payload.get, _ROW_IDS)))
            yield job

    with site.context.commands.accounts.kept_site(site.id):
        outcomes = site.queue.enqueue_many(news(), actor=actor)
    results = {}
    for (index, *ids), outcome in zip(named, outcomes, strict=True):
        if isinstance(outcome, BadInput):
            problem = Unsendable("BAD_PAYLOAD", outcome.field, str(outcome))
            results[index] = build_rejection(index, dict(zip(_ROW_IDS, ids, strict=True)), problem)
        else:
            result: IngestOutcome = "queued" if outcome.result == "inserted" else "duplicate"
            results[index] = IngestResult(index, ids[0], result, outcome.id, adjustment_id=ids[1])
    return results


def new_job(site: SiteContext, conversion: Conversion, hold_us: int, note: Any = None) -> NewJob:
    run_at = _due_at(conversion, site.queue.now(), hold_us) if hold_us else None
    row = (conversion.payload(), conversion.key, site.id, run_at, site.max_attempts)
    return NewJob(*row, conversion.stamps, note)


def _due_at(new: Conversion, now: int, hold_us: int) -> int:
    """When the row is sent: after the hold of its site, but no later than a day before its end."""
    ends = new.stamps.get("expires_at", now + hold_us + DAY_S * SECOND_US)
    return max(now, min(new.at_us + hold_us, ends - DAY_S * SECOND_US))


def _match_revisions(site: SiteContext, conversions: Conversions) -> dict[int, IngestResult]:
    """Match later revisions to their rows: only operators create revisions."""
    keys = [conversion.key for conversion in conversions.values()]
    holders = site.queue.holders(site.id, keys) if keys else {}
    results = {}
    for index, conversion in conversions.items():
        if (holder := holders.get(conversion.key)) is None:
            name, n = conversion.external_id, conversion.revision
            message = Message("%(id)s has no revision %(n)s", id=name, n=n)
            problem = Unsendable("INVALID_REVISION", "revision", message)
            results[index] = build_rejection(index, conversion.payload(), problem)
        else:
            results[index] = IngestResult(index, conversion.external_id, "duplicate", holder)
    return results


class Correction(NamedTuple):
    """New data for a stored row."""

    position: int  # of the row that brought it
    old: Any  # the stored payload
    new: Conversion

    def changes(self) -> dict[str, Any]:
        """The fields that change, each with its old and its new value."""
        old, new = self.old if isinstance(self.old, dict) else {}, self.new.payload()
        names = changed_fields(old, self.new)
        return {name: {"old": old.get(name), "new": new.get(name)} for name in names}


def _correct(
    site: SiteContext,
    conversions: Conversions,
    results: Mapping[int, IngestResult],
    actor: Actor,
    rows: Sequence[ParsedRow],
    *,
    refusals: AbstractSet[str | None],
) -> dict[int, IngestResult]:
    """Apply duplicates that correct a row (the first of several); say what else differs."""
    duplicates = {index: row for index, row in results.items() if row.result == "duplicate"}
    job_ids = [row.id for row in duplicates.values() if row.id]
    jobs = site.queue.find(job_ids) if job_ids else {}
    stored = {job_id: job.payload for job_id, job in jobs.items()}
    refused = find_refused(site, jobs.values())
    agreed = [i for i, row in duplicates.items() if row.id in refused and _says(rows[i], "granted")]
    lifted = {duplicates[i].id or "" for i in agreed if duplicates[i].external_id not in refusals}
    conversions = {
        index: keep_unsaid(conversions[index], stored.get(row.id or ""), rows[index])
        for index, row in duplicates.items()
    }
    taken = {row.id for row in results.values() if row.result == "queued"}
    corrections: dict[str, Correction] = {}
    for index, row in duplicates.items():
        job = jobs.get(row.id or "")
        if job is None or not _takes_new_data(job):
            continue
        if job.id in taken and not _says(rows[index], "denied"):
            continue
        is_unsent = awaits_first_claim(job) and _said(rows[index], CONSENT_FIELDS[0])
        if job.id in refused and not (is_unsent or (index in agreed and job.id in lifted)):
            continue  # a refusal changes no data that Google may have
        new = conversions[index]
        if job.id in lifted or changed_fields(stored[job.id], new) or ends_later(job, new):
            taken.add(job.id)
            corrections[job.id] = Correction(index, stored[job.id], new)
    note_consents(site, [jobs[each] for each in lifted - corrections.keys()], GRANTED_NOTE, actor)
    changed = {}
    for job_id in _correct_unclaimed(site, dict(corrections), jobs, actor):
        index, _, new = corrections[job_id]
        stored[job_id] = new.payload()
        changed[index] = IngestResult(index, new.external_id, "corrected", job_id)
    for index in duplicates.keys() - changed.keys():
        row = duplicates[index]
        job = jobs.get(row.id or "")
        differs = changed_fields(stored[job.id], conversions[index]) if job else ()
        withheld = job is not None and job.id in refused - lifted
        if job and differs:
            was_marked = job.state == "FAILED" and awaits_first_claim(job)
            sentence = _MARKED_FAILED if was_marked else _NOT_TAKEN
            sentence = _RETRACTED if is_retracted(job) else sentence
            message = Message(_REFUSED if withheld else sentence, fields=", ".join(differs))
            changed[index] = replace(row, message=message, differs=differs)
        elif withheld:
            changed[index] = replace(row, code=CONSENT_DENIED.code, message=Message(DENIED))
    return changed


def is_retracted(job: Job) -> bool:
    """Whether it was retracted before it was sent."""
    return isinstance(job.payload, dict) and bool(job.payload.get("retracted"))


def _said(row: ParsedRow, name: str) -> str:
    """What the row itself says of a consent, not its site."""
    given = fields_of(row)
    consent = given.get("consent")
    inner = consent.get(name) if isinstance(consent, dict) else None
    return str(given.get(name) or inner or "").strip().lower()


def _says(row: ParsedRow, what: Literal["granted", "denied"]) -> bool:
    return _said(row, CONSENT_FIELDS[0]) == what


def keep_unsaid(new: Conversion, payload: Any, row: ParsedRow) -> Conversion:
    """The conversion with the stored consent and hashes where the row itself has none."""
    old = payload if isinstance(payload, dict) else {}
    said = [_said(row, name) or str(old.get(name) or "") for name in CONSENT_FIELDS]
    pairs = zip(HASH_FIELDS, new.hashes, strict=True)
    hashes = [text or str(old.get(name) or "") for name, text in pairs]
    return replace(new, said=(said[0], said[1]), hashes=(hashes[0], hashes[1]))


class ClaimedMeanwhile(Exception):
    """A row was claimed after it was read: its old data may be at Google."""


def _correct_unclaimed(
    site: SiteContext, corrections: dict[str, Correction], jobs: Mapping[str, Job], actor: Actor
) -> list[str]:
    """Correct the rows that were not claimed since they were read; returns their ids."""
    while corrections:
        with suppress(ClaimedMeanwhile), site.queue.store.transaction():
            outcomes = correct_rows(site, corrections, "producer", actor)
            for job_id, job in site.queue.find(list(corrections)).items():
                if job.payload_seq != jobs[job_id].seq + 1:
                    del corrections[job_id]
            if len(corrections) < len(outcomes):
                raise ClaimedMeanwhile
            return [outcome.id for outcome in outcomes if outcome.result == "moved"]
    return []


def _takes_new_data(job: Job) -> bool:
    if is_retracted(job):
        return False
    if job.state == "QUEUED":
        return awaits_first_claim(job)
    return job.state == "FAILED" and job.error_category == Category.VALIDATION.value


def changed_fields(payload: Any, new: Conversion) -> tuple[str, ...]:
    """The fields that a stored conversion has otherwise; a time is the same in any zone."""
    old = payload if isinstance(payload, dict) else {}
    values = new.payload()
    names = [name for name in CONVERSION_FIELDS if old.get(name) != values.get(name)]
    if "conversionTime" in names:
        with suppress(Unsendable):  # no time at all is another time
            if parse_time(old.get("conversionTime"), None) == new.at:
                names.remove("conversionTime")
    return tuple(names)


def ends_later(job: Job, new: Conversion) -> bool:
    """Whether the row ended with the look-back of its action, which was changed since."""
    known = (None, new.stamps.get("expires_at"))
    return job.error_code == EXPIRED.code and job.stamp_4 not in known


def correct_rows(
    site: SiteContext,
    corrections: Mapping[str, Correction],
    role: Literal["producer", "operator"],
    actor: Actor,
    note: Mapping[str, Any] | None = None,
) -> list[Outcome]:
    """Replace the data of rows, requeue them, and record what changed, masked if personal."""
    if not corrections:
        return []
    mask = site.context.commands.masking(site.queue.name).value
    changed = {job_id: mask(correction.changes()) for job_id, correction in corrections.items()}
    again, changes = partial(Change, max_attempts=site.max_attempts), []
    hold_us, now = site.hold_us, site.queue.now()
    for job_id, (_, _, new) in corrections.items():
        event_note = canonical_json({**(note or {}), "changed": changed[job_id]})
        payload, run_at = canonical_json(new.payload()), _due_at(new, now, hold_us)
        change = again(job_id, payload=payload, note=event_note, stamps=new.stamps, run_at=run_at)
        changes.append(change)
    outcomes = site.apply("correct", changes, role=role, actor=actor.name)
    corrected = [outcome.id for outcome in outcomes if outcome.result == "moved"]
    withhold(site, [job_id for job_id in corrected if corrections[job_id].new.is_denied], actor)
    if corrected:
        rows = {job_id: changed[job_id] for job_id in corrected[:MAX_AUDITED_ROWS]}
        site.note(actor, "oci.correct", {"corrected": len(corrected), "changed": rows})
    return outcomes
