"""Conversions in: queued, known already, corrected, or rejected with the reason; row by row.

Sending the same rows twice changes nothing. A row that rests in FAILED because its data was wrong
is taken up again when the same external id comes with other data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kesin.engine.queue import New
from kesin.engine.validation import BadInput
from kesin.engine.workload import WorkloadContext
from kesin.foundation.text import canonical_json, storable
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.store.directory import Site
from kesin.store.records import Outcome
from kesin.workloads.oci.conversions.conversion import (
    MAX_EXTERNAL_ID,
    Conversion,
    Unsendable,
)
from kesin.workloads.oci.conversions.parsing import Read
from kesin.workloads.oci.lifecycle import limits_of
from kesin.workloads.oci.site import defaults_of

Result = Literal["queued", "duplicate", "corrected", "rejected"]


@dataclass(frozen=True, slots=True)
class RowResult:
    """What became of one row."""

    index: int
    external_id: str | None
    result: Result
    id: str | None = None
    code: str | None = None
    field: str | None = None
    message: str | None = None


def ingest(
    house: WorkloadContext, site: Site, rows: Sequence[Read], *, actor: str
) -> list[RowResult]:
    """Take rows in; one result each, in order."""
    read: dict[int, Conversion] = {}
    results: dict[int, RowResult] = {}
    defaults, now = defaults_of(site), house.queue.now()
    for index, row in enumerate(rows):
        try:
            if isinstance(row, Unsendable):
                raise row
            read[index] = Conversion.read(row, defaults, now_us=now)
        except Unsendable as problem:
            results[index] = rejected(index, row, problem)
    first = {index: one for index, one in read.items() if one.revision == 1}
    results |= _enqueue(house, site, first, actor)
    results |= _later(house, site, {n: one for n, one in read.items() if n not in first})
    results |= _correct(house, site, read, results, actor)
    return [results[index] for index in range(len(rows))]


def rejected(index: int, row: Read, problem: Unsendable) -> RowResult:
    """A row that is not taken, named as far as it can be."""
    named = row.get("externalId") if isinstance(row, Mapping) else None
    external_id = storable(str(named))[:MAX_EXTERNAL_ID] if isinstance(named, str | int) else None
    field = problem.field or None
    return RowResult(index, external_id, "rejected", None, problem.code, field, problem.message)


def _enqueue(
    house: WorkloadContext, site: Site, read: Mapping[int, Conversion], actor: str
) -> dict[int, RowResult]:
    cap = limits_of(house.settings).max_attempts(site.channel)
    news = [
        New(
            one.payload(),
            key=one.key,
            tenant=site.id,
            max_attempts=cap,
            stamps={"conversion_at": one.at_us},
        )
        for one in read.values()
    ]
    answers = house.queue.enqueue_many(news, actor=actor) if news else []
    results = {}
    for (index, one), answer in zip(read.items(), answers, strict=True):
        if isinstance(answer, BadInput):
            problem = Unsendable("BAD_PAYLOAD", answer.field, str(answer))
            results[index] = rejected(index, one.payload(), problem)
        else:
            result: Result = "queued" if answer.result == "inserted" else "duplicate"
            results[index] = RowResult(index, one.external_id, result, answer.id)
    return results


def _later(
    house: WorkloadContext, site: Site, read: Mapping[int, Conversion]
) -> dict[int, RowResult]:
    """Revisions are made by operators; a producer can only correct one that is there."""
    holders = house.queue.holders(site.id, [one.key for one in read.values()]) if read else {}
    results = {}
    for index, one in read.items():
        holder = holders.get(one.key)
        if holder is None:
            why = f"{one.external_id} has no revision {one.revision} here"
            problem = Unsendable("INVALID_REVISION", "revision", why)
            results[index] = rejected(index, one.payload(), problem)
        else:
            results[index] = RowResult(index, one.external_id, "duplicate", holder)
    return results


def _correct(
    house: WorkloadContext,
    site: Site,
    read: Mapping[int, Conversion],
    results: Mapping[int, RowResult],
    actor: str,
) -> dict[int, RowResult]:
    """Of the duplicates, those that mend a row whose data was wrong."""
    known = [one.id for one in results.values() if one.result == "duplicate" and one.id]
    jobs = house.queue.find(known) if known else {}
    wanted: dict[str, tuple[int, Conversion]] = {}
    for index, one in results.items():
        job = jobs.get(one.id or "") if one.result == "duplicate" else None
        if job and _mends(job, read[index]) and job.id not in wanted:
            wanted[job.id] = (index, read[index])
    mended = {job_id: one for job_id, (_, one) in wanted.items()}
    corrected = {}
    for outcome in correct(house, site, mended, role="producer", actor=actor):
        if outcome.result == "moved":
            index, new = wanted[outcome.id]
            corrected[index] = RowResult(index, new.external_id, "corrected", outcome.id)
    return corrected


def _mends(job: Job, new: Conversion) -> bool:
    waits = job.state == "FAILED" and job.error_category == Category.VALIDATION.value
    return waits and canonical_json(job.data) != canonical_json(new.payload())


def correct(
    house: WorkloadContext,
    site: Site,
    mended: Mapping[str, Conversion],
    *,
    role: Literal["producer", "operator"],
    actor: str,
    note: str | None = None,
) -> list[Outcome]:
    """Replace what failed rows say, and queue them again."""
    if not mended:
        return []
    cap = limits_of(house.settings).max_attempts(site.channel)
    changes = [
        Change(
            job_id,
            payload=canonical_json(one.payload()),
            max_attempts=cap,
            note=note,
            stamps={"conversion_at": one.at_us},
        )
        for job_id, one in mended.items()
    ]
    return house.queue.apply("correct", changes, role=role, actor=actor, tenants=[site.id])
