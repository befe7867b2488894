"""Takes conversions in: each row is queued, a duplicate, corrected, or rejected with a reason.

Sending the same rows twice changes nothing. A row that FAILED because of its data is queued again
when its external id arrives with other data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kesin.engine.queue import NewJob, apply_changes
from kesin.engine.validation import BadInput
from kesin.engine.workload import WorkloadContext
from kesin.foundation.messages import Message
from kesin.foundation.text import canonical_json, storable
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.store.directory import Site
from kesin.store.records import Outcome
from kesin.workloads.oci.conversions.conversion import (
    MAX_EXTERNAL_ID,
    Conversion,
    Unsendable,
    check_fields,
)
from kesin.workloads.oci.conversions.parsing import ParsedRow
from kesin.workloads.oci.lifecycle import limits_of
from kesin.workloads.oci.site import defaults_of

IngestOutcome = Literal["queued", "duplicate", "corrected", "rejected"]


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


def ingest(
    context: WorkloadContext, site: Site, rows: Sequence[ParsedRow], *, actor: str
) -> list[IngestResult]:
    """Take rows in; returns one result per row, in order."""
    conversions: dict[int, Conversion] = {}
    results: dict[int, IngestResult] = {}
    defaults, now = defaults_of(site), context.queue.now()
    for index, row in enumerate(rows):
        try:
            if isinstance(row, Unsendable):
                raise row
            check_fields(row)
            conversions[index] = Conversion.parse(row, defaults, now_us=now)
        except Unsendable as problem:
            results[index] = build_rejection(index, row, problem)
    first: dict[int, Conversion] = {}
    later: dict[int, Conversion] = {}
    for index, conversion in conversions.items():
        (first if conversion.revision == 1 else later)[index] = conversion
    results |= _enqueue(context, site, first, actor)
    results |= _match_revisions(context, site, later)
    results |= _correct(context, site, conversions, results, actor)
    return [results[index] for index in range(len(rows))]


def build_rejection(index: int, row: ParsedRow, problem: Unsendable) -> IngestResult:
    """The result of a rejected row, with its external id if it has one."""
    value = row.get("externalId") if isinstance(row, Mapping) else None
    external_id = storable(str(value))[:MAX_EXTERNAL_ID] if isinstance(value, str | int) else None
    field = problem.field or None
    return IngestResult(index, external_id, "rejected", None, problem.code, field, problem.message)


def _enqueue(
    context: WorkloadContext, site: Site, conversions: Mapping[int, Conversion], actor: str
) -> dict[int, IngestResult]:
    cap = limits_of(context.settings).max_attempts(site.channel)
    new_jobs = [
        NewJob(
            conversion.payload(),
            key=conversion.key,
            tenant=site.id,
            max_attempts=cap,
            stamps={"conversion_at": conversion.at_us},
        )
        for conversion in conversions.values()
    ]
    outcomes = context.queue.enqueue_many(new_jobs, actor=actor) if new_jobs else []
    results = {}
    for (index, conversion), outcome in zip(conversions.items(), outcomes, strict=True):
        if isinstance(outcome, BadInput):
            problem = Unsendable("BAD_PAYLOAD", outcome.field, str(outcome))
            results[index] = build_rejection(index, conversion.payload(), problem)
        else:
            result: IngestOutcome = "queued" if outcome.result == "inserted" else "duplicate"
            results[index] = IngestResult(index, conversion.external_id, result, outcome.id)
    return results


def _match_revisions(
    context: WorkloadContext, site: Site, conversions: Mapping[int, Conversion]
) -> dict[int, IngestResult]:
    """Match later revisions to their rows: only operators create revisions."""
    keys = [conversion.key for conversion in conversions.values()]
    holders = context.queue.holders(site.id, keys) if keys else {}
    results = {}
    for index, conversion in conversions.items():
        holder = holders.get(conversion.key)
        if holder is None:
            message = Message(
                "%(id)s has no revision %(n)s here",
                id=conversion.external_id,
                n=conversion.revision,
            )
            problem = Unsendable("INVALID_REVISION", "revision", message)
            results[index] = build_rejection(index, conversion.payload(), problem)
        else:
            results[index] = IngestResult(index, conversion.external_id, "duplicate", holder)
    return results


def _correct(
    context: WorkloadContext,
    site: Site,
    conversions: Mapping[int, Conversion],
    results: Mapping[int, IngestResult],
    actor: str,
) -> dict[int, IngestResult]:
    """Apply the duplicates that correct a row whose data was wrong."""
    duplicates = {index: row for index, row in results.items() if row.result == "duplicate"}
    job_ids = [row.id for row in duplicates.values() if row.id]
    jobs = context.queue.find(job_ids) if job_ids else {}
    corrections: dict[str, tuple[int, Conversion]] = {}
    for index, row in duplicates.items():
        job = jobs.get(row.id or "")
        if job and _is_correction(job, conversions[index]) and job.id not in corrections:
            corrections[job.id] = (index, conversions[index])
    new_data = {job_id: conversion for job_id, (_, conversion) in corrections.items()}
    corrected = {}
    for outcome in correct_rows(context, site, new_data, role="producer", actor=actor):
        if outcome.result == "moved":
            index, new = corrections[outcome.id]
            corrected[index] = IngestResult(index, new.external_id, "corrected", outcome.id)
    return corrected


def _is_correction(job: Job, new: Conversion) -> bool:
    failed_on_data = job.state == "FAILED" and job.error_category == Category.VALIDATION.value
    return failed_on_data and canonical_json(job.payload) != canonical_json(new.payload())


def correct_rows(
    context: WorkloadContext,
    site: Site,
    conversions: Mapping[str, Conversion],
    *,
    role: Literal["producer", "operator"],
    actor: str,
    note: str | None = None,
) -> list[Outcome]:
    """Replace the data of failed rows and queue them again."""
    if not conversions:
        return []
    cap = limits_of(context.settings).max_attempts(site.channel)
    changes = [
        Change(
            job_id,
            payload=canonical_json(conversion.payload()),
            max_attempts=cap,
            note=note,
            stamps={"conversion_at": conversion.at_us},
        )
        for job_id, conversion in conversions.items()
    ]
    return apply_changes(
        context.queue, "correct", changes, role=role, actor=actor, tenants=[site.id]
    )
