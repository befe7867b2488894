"""Mending by an operator: a failed row edited in place, a delivered row sent again as a revision.

A script cannot know that Google refused a row afterwards: its row is COMPLETED here and missing
there. Such a row is sent again under an order id of its own; the old row stays as it was.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kesin.engine.queue import New
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import iso
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Problem
from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Job
from kesin.store.directory import Site
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter, Outcome
from kesin.workloads.oci.advice import Language, advice
from kesin.workloads.oci.conversions.conversion import (
    MAX_REVISION,
    SEAL,
    Conversion,
    Unsendable,
    key_of,
)
from kesin.workloads.oci.conversions.csv_cells import safe
from kesin.workloads.oci.conversions.ingest import Result, RowResult, correct, rejected
from kesin.workloads.oci.conversions.parsing import Read
from kesin.workloads.oci.lifecycle import limits_of
from kesin.workloads.oci.site import WORKLOAD, defaults_of

AT_ONCE: Final = 500  # rows that commit together
USUAL: Final = 4  # revisions
MANY: Final = 100  # conversions whose later revisions are asked for together
_NOT_ITS_DATA: Final = "it did not fail because of its data: RETRY_SELECTED sends it again"


def fix(
    house: WorkloadContext,
    actor: Actor,
    site: Site,
    rows: Sequence[Read],
    *,
    reason: str | None = None,
    again: bool = False,
) -> list[RowResult]:
    """Mend rows by external id; what a row does not say stays as it was.

    The last revision counts: COMPLETED makes a new one, FAILED is corrected, and any other is on
    its way already. Unchanged data is sent again only with ``again``. Some hundred rows commit
    together with their line in the audit log, always in the same order: two fixes at once wait for
    each other and never in a circle.
    """
    order = sorted(range(len(rows)), key=lambda index: _named(rows[index]))
    results: dict[int, RowResult] = {}
    for start in range(0, len(order), AT_ONCE):
        part = {index: rows[index] for index in order[start : start + AT_ONCE]}
        with house.queue.store.transaction():
            fixed = _Fixing(house, actor, site, reason).fixed(part, again=again)
            changed = sum(one.result in ("queued", "corrected") for one in fixed.values())
            details = {"changed": changed, **({"reason": reason} if reason else {})}
            house.commands.accounts.note(
                actor, "oci.fix", queue=WORKLOAD, site=site.id, details=details
            )
        results |= fixed
    return [results[index] for index in range(len(rows))]


class _Fixing:
    """Some rows that are mended together: one read, one correction, one batch of births."""

    def __init__(
        self, house: WorkloadContext, actor: Actor, site: Site, reason: str | None
    ) -> None:
        self._house = house
        self._actor = actor
        self._site = site
        self._reason = reason or "fixed"
        self._results: dict[int, RowResult] = {}
        self._corrections: dict[str, tuple[int, Conversion]] = {}
        self._revisions: dict[str, tuple[int, Conversion]] = {}  # by the job they replace

    def fixed(self, rows: Mapping[int, Read], *, again: bool) -> dict[int, RowResult]:
        """One result each."""
        known = latest(self._house, self._site, [_named(row) for row in rows.values()])
        for index, row in rows.items():
            try:
                self._sort(index, row, known.get(_named(row)), again=again)
            except Unsendable as problem:
                self._results[index] = rejected(index, row, problem)
        self._correct()
        self._revise()
        return self._results

    def _sort(self, index: int, row: Read, job: Job | None, *, again: bool) -> None:
        if isinstance(row, Unsendable):
            raise row
        if job is None or not isinstance(job.data, dict):
            raise Unsendable("UNKNOWN_ROW", "externalId", "there is no such conversion here")
        self._results[index] = RowResult(index, _named(row), "duplicate", job.id)
        if job.id in self._corrections or job.id in self._revisions:
            return  # named twice: the first one counts
        told = {name: value for name, value in row.items() if value not in (None, "")}
        mended = {**job.data, **told, "revision": job.data.get("revision")}
        defaults, now = defaults_of(self._site), self._house.queue.now()
        new = Conversion.read(mended, defaults, now_us=now)
        changed = canonical_json(new.payload()) != canonical_json(job.data)
        if job.state == "FAILED" and changed:
            self._corrections[job.id] = (index, new)
        elif job.state == "COMPLETED" and (changed or again):
            if new.revision >= MAX_REVISION:
                raise Unsendable("INVALID_REVISION", "revision", "it was sent too often already")
            next_one = {**new.payload(), "revision": new.revision + 1}
            self._revisions[job.id] = (index, Conversion.read(next_one, defaults))

    def _correct(self) -> None:
        mended = {job_id: new for job_id, (_, new) in self._corrections.items()}
        note = canonical_json({"reason": self._reason})
        for outcome in correct(
            self._house, self._site, mended, role="operator", actor=self._actor.name, note=note
        ):
            index, _ = self._corrections[outcome.id]
            left = self._results[index]
            if outcome.result == "moved":
                self._results[index] = replace(left, result="corrected")
            elif outcome.reason == "category_in":
                self._results[index] = replace(left, message=_NOT_ITS_DATA)

    def _revise(self) -> None:
        cap = limits_of(self._house.settings).max_attempts(self._site.channel)
        news = [
            New(
                new.payload(),
                key=new.key,
                tenant=self._site.id,
                max_attempts=cap,
                stamps={"conversion_at": new.at_us},
                note={"reason": self._reason, "fixes": job_id},
            )
            for job_id, (_, new) in self._revisions.items()
        ]
        born = self._house.queue.enqueue_many(news, actor=self._actor.name) if news else []
        for (index, new), answer in zip(self._revisions.values(), born, strict=True):
            if not isinstance(answer, Outcome):
                raise answer
            # Somebody else may have made that revision first: theirs is on its way, not this one.
            result: Result = "queued" if answer.result == "inserted" else "duplicate"
            self._results[index] = RowResult(index, new.external_id, result, answer.id)


def _named(row: Read) -> str:
    given = row.get("externalId") if isinstance(row, Mapping) else None
    return str(given).strip() if isinstance(given, str | int) else ""


def latest(house: WorkloadContext, site: Site, external_ids: Sequence[str]) -> dict[str, Job]:
    """The last revision of each conversion: the first ones of all, then the others of some.

    An old revision may have been pruned while a later one is there.
    """
    names = list(dict.fromkeys(name for name in external_ids if name))
    found: dict[str, tuple[int, str]] = {}
    _look(house, site, names, range(1, USUAL + 1), found)
    rest = [name for name in names if found.get(name, (USUAL,))[0] == USUAL]
    for start in range(0, len(rest), MANY):
        _look(house, site, rest[start : start + MANY], range(USUAL + 1, MAX_REVISION + 1), found)
    jobs = house.queue.find([job_id for _, job_id in found.values()]) if found else {}
    return {name: jobs[job_id] for name, (_, job_id) in found.items() if job_id in jobs}


def _look(
    house: WorkloadContext,
    site: Site,
    names: Sequence[str],
    revisions: range,
    found: dict[str, tuple[int, str]],
) -> None:
    asked = {key_of(name, n): (name, n) for name in names for n in revisions}
    for key, job_id in house.queue.holders(site.id, list(asked)).items():
        name, revision = asked[key]
        found[name] = max(found.get(name, (0, "")), (revision, job_id))


def fix_chosen(
    house: WorkloadContext,
    actor: Actor,
    site: Site,
    ids: Sequence[str],
    changes: Mapping[str, Any] | None,
    *,
    reason: str | None,
    again: bool,
) -> tuple[int, list[tuple[str, str]]]:
    """The same for chosen rows: how many changed, and why others did not."""
    if changes and len(ids) > 1:
        raise Problem("change one row at a time", code="bad_selection", details={"field": "ids"})
    found = house.queue.find(ids)
    rows: list[Mapping[str, Any]] = []
    named: list[str] = []
    for job_id, job in found.items():
        if job.tenant == site.id and isinstance(job.data, dict):
            rows.append({**(changes or {}), "externalId": job.data.get("externalId")})
            named.append(job_id)
    refused = [(one, "no such row of this site") for one in ids if one not in set(named)]
    results = fix(house, actor, site, rows, reason=reason, again=again)
    affected = 0
    for job_id, result in zip(named, results, strict=True):
        if result.result in ("queued", "corrected"):
            affected += 1
        else:
            refused.append((job_id, result.message or "it is on its way, or nothing was changed"))
    return affected, refused


COLUMNS: Final = (
    *("id", "externalId", "revision", "gclid", "wbraid", "gbraid", "conversionName"),
    *("conversionTime", "conversionValue", "conversionCurrency", "orderId"),
    *("errorCode", "errorCategory", "lastError", "whatToDo", "attempts", "failedAt"),
)
_THREE_DECIMALS: Final = re.compile(r"[0-9]+\.[0-9]{3}")


def dead_letters(house: WorkloadContext, site: Site, *, language: Language = "en") -> Iterator[str]:
    """The site's FAILED rows as CSV, the header first, then page by page, newest first."""
    yield "\ufeff" + _lines([COLUMNS])  # the mark tells spreadsheets that this is UTF-8
    cursor: str | None = None
    where = Filter(states=("FAILED",), tenants=(site.id,))
    while True:
        page = house.queue.jobs(where, limit=MAX_PAGE, cursor=cursor)
        if page.jobs:
            yield _lines([_cells(job, language) for job in page.jobs])
        cursor = page.cursor
        if cursor is None:
            return


def _cells(job: Job, language: Language) -> list[str]:
    kept = job.data if isinstance(job.data, dict) else {}
    told: dict[str, Any] = {
        **kept,
        "id": f"{SEAL}{job.id}",
        "conversionValue": _amount(kept.get("conversionValue")),
        "revision": kept.get("revision", 1),
        "errorCode": job.error_code,
        "errorCategory": job.error_category,
        "lastError": job.error_message,
        "whatToDo": advice(job.error_code, job.error_category, language).act,
        "attempts": job.attempt_count,
        "failedAt": iso(job.stamp_3),
    }
    return [safe(told.get(name)) for name in COLUMNS]


def _amount(value: Any) -> Any:
    """Three decimals get a fourth: 12.345 could be read in two ways, and would be refused."""
    text = str(value)
    return f"{text}0" if _THREE_DECIMALS.fullmatch(text) else value


def _lines(rows: Iterable[Sequence[str]]) -> str:
    page = io.StringIO(newline="")
    csv.writer(page).writerows(rows)
    return page.getvalue()
