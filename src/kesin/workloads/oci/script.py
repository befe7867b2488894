"""Conversions out to a script: looked at first, then claimed, and exactly those are handed over.

A row that cannot be sent is rejected before the claim, so it costs no attempt and never sits in
PROCESSING. The claim is one statement: two scripts at once never share a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kesin.engine.workload import WorkloadContext
from kesin.foundation.ids import is_id
from kesin.foundation.problems import Clash, Problem
from kesin.foundation.text import canonical_json, storable
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.store.directory import Site
from kesin.store.limits import MAX_CODE, MAX_MESSAGE
from kesin.store.records import Outcome
from kesin.workloads.oci.conversions.conversion import SEAL, Conversion, Unsendable
from kesin.workloads.oci.site import Place, is_paused, zone_of

MOST: Final = 1_000  # rows an export hands over
ROUNDS: Final = 10  # of looking, where rejected rows made room for others
WAITING: Final = ("QUEUED", "RETRY")


@dataclass(frozen=True, slots=True)
class Preview:
    """What an export would hand over, and what it would not."""

    items: list[dict[str, Any]]
    skipped: list[dict[str, Any]]
    warnings: list[dict[str, Any]]

    @property
    def counts(self) -> dict[str, int]:
        """How many would go, and how many would not."""
        return {"queued": len(self.items), "skipped": len(self.skipped)}


def export(house: WorkloadContext, site: Site, *, limit: int, actor: str) -> list[dict[str, Any]]:
    """Claim up to ``limit`` due rows for a script and spell them; nothing while paused."""
    if site.channel != "script":
        raise Clash(
            f"the site {site.id} is on the channel {site.channel!r}: our worker uploads its rows; "
            "switch the script off, or the site back with `kesin site set --channel script`",
            code="wrong_channel",
        )
    if is_paused(house, site):
        return []
    reject_unsendable(house, site, limit=limit, actor=actor)
    jobs = house.queue.claim(
        actor,
        limit=limit,
        lease_seconds=Place.of(site).recover_minutes * 60,
        tenants=[site.id],
    )
    sendable, wrong = _sorted(site, jobs)
    if wrong:  # born between the look and the claim, by another door than ours
        house.queue.apply("ack_failed", _reasons(wrong), actor=actor, tenants=[site.id])
    return _items(site, sendable)


def preview(house: WorkloadContext, site: Site, *, limit: int) -> Preview:
    """The same without changing anything; every row left out comes with its reason."""
    jobs = house.queue.peek(limit=limit, tenants=[site.id])
    sendable, wrong = _sorted(site, jobs)
    skipped = [
        {
            "id": f"{SEAL}{job.id}",
            "externalId": (job.dedup_key or "").partition("\x1f")[0] or None,  # of any revision
            "code": problem.code,
            "message": problem.message,
        }
        for job, problem in wrong
    ]
    warnings = list(skipped)
    if is_paused(house, site):
        warnings.append({"code": "PAUSED", "message": "paused: an export gives nothing now"})
    elif len(jobs) < limit:
        counts = house.queue.stats().tenants.get(site.id, {})
        later = sum(counts.get(state, 0) for state in WAITING) - len(jobs)
        if later > 0:
            told = f"{later} more wait for the time of their next try"
            warnings.append({"code": "NOT_DUE", "message": told})
    if site.channel != "script":
        told = f"the site is on the channel {site.channel}: a script gets nothing"
        warnings.append({"code": "WRONG_CHANNEL", "message": told})
    return Preview(_items(site, sendable), skipped, warnings)


def reject_unsendable(house: WorkloadContext, site: Site, *, limit: int, actor: str) -> None:
    """Look at what is due and reject what cannot be sent, before anybody claims it."""
    for _ in range(ROUNDS):
        _, wrong = _sorted(site, house.queue.peek(limit=limit, tenants=[site.id]))
        if not wrong:
            return
        house.queue.apply("reject", _reasons(wrong), actor=actor, tenants=[site.id])


def _sorted(
    site: Site, jobs: Sequence[Job]
) -> tuple[list[tuple[Job, Conversion]], list[tuple[Job, Unsendable]]]:
    sendable, wrong = [], []
    for job in jobs:
        try:
            sendable.append((job, Conversion.of(job.data, site.id)))
        except Unsendable as problem:
            wrong.append((job, problem))
    return sendable, wrong


def _reasons(wrong: Sequence[tuple[Job, Unsendable]]) -> list[Change]:
    return [
        Change(
            job.id,
            error_code=problem.code,
            error_category=Category.VALIDATION.value,
            error_message=problem.message,
        )
        for job, problem in wrong
    ]


def _items(site: Site, sendable: Sequence[tuple[Job, Conversion]]) -> list[dict[str, Any]]:
    zone = zone_of(site)
    return [conversion.script_item(job.id, zone) for job, conversion in sendable]


CATEGORIES: Final = (
    Category.VALIDATION,
    Category.TRANSIENT,
    Category.AUTH,
    Category.RATE_LIMIT,
)
DEFAULT_CODE: Final = "VALIDATION_FAILED"

# Why a row stayed as it was, for whoever reads the answer.
_WHY: Final = {
    "unknown": "no such row of this site",
    "was_claimed": "it was never exported since its data last changed",
    "state": "it is {state} already",
}


@dataclass(frozen=True, slots=True)
class Report:
    """What a report changed, and which rows stayed as they were."""

    updated: int
    refused: list[tuple[str, str]]  # (id as it was named, why)


def ack(house: WorkloadContext, site: Site, queue_ids: Sequence[str], *, actor: str) -> Report:
    """Google has these; a repeated report is a success that changes nothing."""
    ids = sealed(queue_ids)
    result = canonical_json({"channel": "script"})
    changes = [Change(one, result=result) for one in ids]
    return _report(house, site, "ack", changes, actor, done="COMPLETED")


def ack_failed(
    house: WorkloadContext,
    site: Site,
    queue_ids: Sequence[str],
    *,
    code: str | None,
    message: str | None,
    category: str | None,
    actor: str,
) -> Report:
    """These failed at the script; every category rests in FAILED, and revive takes on two."""
    known = {one.value for one in CATEGORIES}
    category = Category.VALIDATION.value if category is None else category
    if category not in known:
        raise Problem(
            f"errorCategory is one of {', '.join(sorted(known))}, not {category[:64]!r}",
            code="bad_error_category",
            details={"field": "errorCategory"},
        )
    code = storable((code or "").strip())[:MAX_CODE] or DEFAULT_CODE
    message = storable((message or "").strip())[:MAX_MESSAGE] or code
    changes = [
        Change(one, error_code=code, error_category=category, error_message=message)
        for one in sealed(queue_ids)
    ]
    return _report(house, site, "ack_failed", changes, actor, done="FAILED")


def sealed(queue_ids: Sequence[str]) -> list[str]:
    """The rows' ids; raises Problem naming what carries no seal. Each is taken once."""
    strange = [one for one in queue_ids if not one.startswith(SEAL)]
    if strange:
        raise Problem(
            f"ids begin with {SEAL!r}; these do not: {', '.join(one[:80] for one in strange[:20])}",
            code="bad_queue_id",
            details={"ids": [one[:80] for one in strange[:100]]},
        )
    return list(dict.fromkeys(one.removeprefix(SEAL) for one in queue_ids))


def _report(
    house: WorkloadContext, site: Site, call: str, changes: list[Change], actor: str, *, done: str
) -> Report:
    known = [one for one in changes if is_id(one.id)]
    outcomes = house.queue.apply(call, known, actor=actor, tenants=[site.id]) if known else []
    refused = [(f"{SEAL}{one.id}", _WHY["unknown"]) for one in changes if not is_id(one.id)]
    refused += [
        (f"{SEAL}{one.id}", why(one))
        for one in outcomes
        if one.result != "moved" and (one.result == "unknown" or one.state != done)
    ]
    return Report(sum(one.result == "moved" for one in outcomes), refused)


def why(outcome: Outcome) -> str:
    """A refusal as a sentence."""
    cause = "unknown" if outcome.result == "unknown" else outcome.reason
    text = _WHY.get(cause, cause or outcome.result)
    return text.format(state=outcome.state) if "{" in text else text
