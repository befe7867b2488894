"""Corrections of failed rows in place, of sent ones by a revision; and the dead-letter file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kesin.foundation.clock import iso
from kesin.foundation.permissions import Actor
from kesin.lifecycle.model import Job
from kesin.store.records import Filter
from kesin.workloads.common.advice import Language
from kesin.workloads.common.stores import job_pages
from kesin.workloads.oci import adjustments
from kesin.workloads.oci.conversions import conversion, ingest
from kesin.workloads.oci.conversions.identifiers import checked_row
from kesin.workloads.oci.conversions.ingest import Correction, IngestResult
from kesin.workloads.oci.conversions.refusals import external_id_of, find_refused, latest_revisions
from kesin.workloads.oci.lifecycle import ADVICE, DECISIONS
from kesin.workloads.oci.site import SiteContext

FIX_BATCH: Final = 500  # rows per transaction
_NOT_ITS_DATA: Final = "it did not fail because of its data: retry it instead (RETRY_SELECTED)"


def fix_rows(
    site: SiteContext,
    actor: Actor,
    rows: Sequence[conversion.ParsedRow],
    *,
    reason: str | None = None,
    again: bool = False,
    taken: bool = False,
) -> list[IngestResult]:
    """Correct the last revisions of rows: a FAILED one in place, a COMPLETED one by a new revision.

    Unchanged data is sent again only with ``again``. With ``taken`` Google has what is COMPLETED:
    a new value becomes an adjustment. Each batch commits with its audit entry, in the order of the
    ids, so that two concurrent fixes wait for each other and never deadlock.
    """
    order = sorted(range(len(rows)), key=lambda index: external_id_of(rows[index]))
    results: dict[int, IngestResult] = {}
    for start in range(0, len(order), FIX_BATCH):
        batch = {index: rows[index] for index in order[start : start + FIX_BATCH]}
        with adjustments.locked(site):
            batch_results = _FixBatch(site, actor, reason or "fixed", again, taken).run(batch)
            changed = sum(result.is_change for result in batch_results.values())
            details = {"changed": changed, **({"reason": reason} if reason else {})}
            site.note(actor, "oci.fix", details)
        results |= batch_results
    return [results[index] for index in range(len(rows))]


@dataclass(slots=True)
class _FixBatch:
    """Rows fixed in one transaction: one lookup, one correction, one batch of new revisions."""

    site: SiteContext
    actor: Actor
    reason: str
    again: bool
    taken: bool
    results: dict[int, IngestResult] = field(default_factory=dict)
    corrections: dict[str, Correction] = field(default_factory=dict)
    revisions: dict[str, tuple[int, conversion.Conversion]] = field(default_factory=dict)  # by job replaced

    def run(self, rows: Mapping[int, conversion.ParsedRow]) -> dict[int, IngestResult]:
        latest_jobs = latest_revisions(self.site, [external_id_of(row) for row in rows.values()])
        for index, row in rows.items():
            try:
                self._plan(index, row, latest_jobs.get(external_id_of(row)))
            except conversion.Unsendable as problem:
                self.results[index] = ingest.build_rejection(index, row, problem)
        for outcome in ingest.correct_rows(
            self.site, self.corrections, "operator", self.actor, {"reason": self.reason}
        ):
            index = self.corrections[outcome.id].position
            if outcome.result == "moved":
                self.results[index] = replace(self.results[index], result="corrected")
            elif outcome.reason == "category_in":
                self.results[index] = replace(self.results[index], message=_NOT_ITS_DATA)
        hold_us = self.site.hold_us
        jobs = {
            index: ingest.new_job(self.site, new, hold_us, {"reason": self.reason, "fixes": job_id})
            for job_id, (index, new) in self.revisions.items()
        }  # a duplicate, if another operator created this revision first
        return self.results | ingest.enqueue_rows(self.site, jobs.items(), self.actor.name)

    def _plan(self, index: int, row: conversion.ParsedRow, job: Job | None) -> None:
        defaults = self.site.defaults
        given = checked_row(row, defaults)
        if job is None or not isinstance(job.payload, dict):
            raise conversion.Unsendable("UNKNOWN_ROW", "externalId", "there is no such conversion here")
        if ingest.is_retracted(job):
            raise conversion.Unsendable("RETRACTED", "externalId", conversion.RETRACTED)
        self.results[index] = IngestResult(index, external_id_of(row), "duplicate", job.id)
        if job.id in self.corrections or job.id in self.revisions:
            return  # named twice: the first counts
        filled = {name: it for name, it in given.items() if it is not None and str(it).strip()}
        old, number, rules, at = job.payload, 0, defaults, {"now_us": self.site.queue.now()}
        if self.taken and job.state == "COMPLETED":
            (old, number), at = adjustments.restated(self.site, job), {}
            rules = adjustments.rules_of(self.site, job)
        merged = {**old, **filled, "revision": old.get("revision")}
        says = str(filled.get("adUserData", "")).strip().lower()
        if says != "granted" and find_refused(self.site, [job]):
            raise conversion.Unsendable("CONSENT_DENIED", "adUserData", conversion.DENIED)
        new = conversion.Conversion.parse(merged, replace(rules, consent=""), **at)
        new = ingest.keep_unsaid(new, job.payload, merged)
        changed = ingest.changed_fields(old, new)
        if job.state == "FAILED" and (changed or ingest.ends_later(job, new)):
            self.corrections[job.id] = Correction(index, job.payload, new)
        # A script cannot know that Google refused a row later: then it is COMPLETED only here.
        elif job.state == "COMPLETED" and (changed or (self.again and not self.taken)):
            if self.taken:
                row = adjustments.restatement(job, new, changed, number)
                [result] = adjustments.adjust(self.site, [row], actor=self.actor)
                self.results[index] = replace(result, index=index)
                return
            adjustments.check_unadjusted(self.site, job)
            if new.revision >= conversion.MAX_REVISION:
                raise conversion.Unsendable("INVALID_REVISION", "revision", "it has been sent too many times")
            next_revision = {**new.payload(), "revision": new.revision + 1}
            self.revisions[job.id] = (index, conversion.Conversion.parse(next_revision, defaults))


DEAD_LETTER_COLUMNS: Final = (
    *("id", *conversion.CONVERSION_FIELDS, "orderId"),
    *("errorCode", "errorCategory", "lastError", "whatToDo", "attempts", "failedAt"),
)
BYTE_ORDER_MARK: Final = "\ufeff"  # it tells spreadsheets that a CSV is UTF-8
_THREE_DECIMALS: Final = re.compile(r"[0-9]+\.[0-9]{3}")


def dead_letter_pages(
    site: SiteContext, actor: Actor, language: Language = "en", codes: Sequence[str] = ()
) -> Iterator[list[list[str]]]:
    """Yield the header and pages of FAILED rows, newest first; personal cells if revealed."""
    masking = site.context.commands.masking(site.queue.name)
    reveals = actor.has("reveal")
    columns = [name for name in DEAD_LETTER_COLUMNS if reveals or not masking.hides(name)]
    yield [columns]
    where = Filter(states=("FAILED",), tenants=(site.id,), codes=tuple(codes))
    for page in job_pages(site.queue, where):
        jobs = page if reveals else map(masking.job, page)
        jobs = [job for job in jobs if job.error_code not in DECISIONS]  # nothing to correct
        if jobs:
            yield [_dead_letter_cells(job, columns, language) for job in jobs]


def _dead_letter_cells(job: Job, columns: Sequence[str], language: Language) -> list[str]:
    payload = job.payload if isinstance(job.payload, dict) else {}
    value = payload.get("conversionValue")
    if _THREE_DECIMALS.fullmatch(str(value)):  # 12.345 reads two ways and is refused on import
        value = f"{value}0"
    cells: dict[str, Any] = {
        **payload,
        "id": f"{conversion.SEAL_PREFIX}{job.id}",
        "conversionValue": value,
        "revision": payload.get("revision", 1),
        "errorCode": job.error_code,
        "errorCategory": job.error_category,
        "lastError": job.error_message,
        "whatToDo": ADVICE.find(job.error_code, job.error_category, language).act,
        "attempts": job.attempt_count,
        "failedAt": iso(job.stamp_3),
    }
    return ["" if (cell := cells.get(name)) is None else str(cell) for name in columns]
