"""What an operator sees of a site, and what an operator does: counts, rows, actions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kesin.engine.access.commands import MOST_AT_ONCE, SHOWN_OUTCOMES
from kesin.engine.queue import Bulk
from kesin.engine.sweeper import BATCH, MOST_BATCHES
from kesin.engine.workload import WorkloadContext
from kesin.foundation.ids import is_id
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Invalid, Problem
from kesin.lifecycle.budget import DAY_S, HOUR_S, MINUTE_S, SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.directory import Site
from kesin.store.records import Filter, Flow
from kesin.workloads.oci.conversions.conversion import MAX_REVISION, SEAL, key_of
from kesin.workloads.oci.google.circuit_breaker import Breaker
from kesin.workloads.oci.lifecycle import Limits, limits_of
from kesin.workloads.oci.script import why
from kesin.workloads.oci.site import BREAKER, HEARTBEAT, UPLOADS, Place, fact, is_paused

STATES: Final = ("QUEUED", "RETRY", "PROCESSING", "COMPLETED", "FAILED")
ACTIONS: Final = ("RETRY_SELECTED", "RESET_TO_QUEUED", "MARK_FAILED")
FAILED_SHARE: Final = 0.2  # more than this is a warning
EXPIRES_SOON_DAYS: Final = 7
_CLICK: Final = re.compile(r"[A-Za-z0-9_-]{6,512}")
_ORDER_ID: Final = re.compile(r"k[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class SiteStats:
    """A site at a glance; the cost does not grow with its rows."""

    totals: dict[str, int]
    stuck: int  # PROCESSING past its lease
    failed_share: float
    oldest_queued_at: int | None
    expiring_soon: int
    last_updated_at: int | None
    last_ack_at: int | None
    breaker: Breaker
    warnings: list[dict[str, str]]


def site_stats(house: WorkloadContext, site: Site, flows: Iterable[Flow]) -> SiteStats:
    """The site's figures; ``flows`` are the queue's counters."""
    queue = house.queue
    totals = dict.fromkeys(STATES, 0)
    last_updated = last_ack = 0
    for flow in flows:
        if flow.tenant != site.id:
            continue
        for state, n in ((flow.to_state, flow.n), (flow.from_state, -flow.n)):
            if state:
                totals[state] += n
        last_updated = max(last_updated, flow.at)
        if flow.to_state == "COMPLETED":
            last_ack = max(last_ack, flow.at)
    old = (Limits().click_lifetime_days - EXPIRES_SOON_DAYS) * DAY_S * SECOND_US
    waiting = queue.waiting(site.id, aged=("conversion_at", queue.now() - old))
    ended = totals["FAILED"] + totals["COMPLETED"]
    breaker = Breaker.of(fact(house, site, BREAKER))
    stats = SiteStats(
        totals=totals,
        stuck=waiting.lease_over,
        failed_share=totals["FAILED"] / ended if ended else 0.0,
        oldest_queued_at=waiting.first_created_at.get("QUEUED"),
        expiring_soon=waiting.aging,
        last_updated_at=last_updated or None,
        last_ack_at=last_ack or None,
        breaker=breaker,
        warnings=[],
    )
    stats.warnings.extend(_warnings(house, site, stats))
    return stats


def _warnings(house: WorkloadContext, site: Site, stats: SiteStats) -> Iterable[dict[str, str]]:
    now = house.queue.now()
    if stats.failed_share > FAILED_SHARE:
        share = round(100 * stats.failed_share)
        yield _warning("FAILED_SHARE_HIGH", f"{share} % of the finished rows failed")
    if stats.stuck:
        told = f"{_rows(stats.stuck)} in PROCESSING past the lease"
        yield _warning("STUCK_PROCESSING", told)
    if stats.expiring_soon:
        told = f"{_rows(stats.expiring_soon)} too old for Google within {EXPIRES_SOON_DAYS} days"
        yield _warning("EXPIRING_SOON", told)
    if is_paused(house, site):
        yield _warning("PAUSED", "the site or the whole queue is paused")
    if stats.breaker.kind:
        state = stats.breaker.state(now).replace("_", " ")
        told = f"the breaker is {state} ({stats.breaker.code}): {stats.breaker.message}"
        yield _warning("BREAKER_OPEN", told)
    waiting = stats.totals["QUEUED"] + stats.totals["RETRY"]
    if site.channel == "script" and waiting and _is_silent(house, site, stats, now):
        hours = _silent_hours(house, site)
        yield _warning("SCRIPT_SILENT", f"no sign of the script for {hours} hours, rows wait")
    refused = (fact(house, site, UPLOADS) or {}).get("refused")
    if refused:
        told = f"Google did not take all of request {refused['requestId']}: {refused['status']}"
        yield _warning("UPLOAD_NOT_TAKEN", told)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _warning(code: str, message: str) -> dict[str, str]:
    return {"code": code, "message": message}


def _silent_hours(house: WorkloadContext, site: Site) -> int:
    return Place.of(site).silent_hours or house.settings.oci_silent_hours


def _is_silent(house: WorkloadContext, site: Site, stats: SiteStats, now: int) -> bool:
    beat = int((fact(house, site, HEARTBEAT) or {}).get("at", 0))
    last = max(beat, stats.last_ack_at or 0, site.created_at)
    return now - last > _silent_hours(house, site) * HOUR_S * SECOND_US


# Rows


def rows(
    house: WorkloadContext,
    site: Site,
    *,
    wanted: Mapping[str, Sequence[str]],
    search: str | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> tuple[list[Job], str | None]:
    """A page of the site's rows, newest first; a search by id, orderId, externalId or click id."""
    where = filter_of(site, wanted)
    if search:
        direct = _direct(house, site, search)
        part = _part(search)
        if direct or part is None:
            return [job for job in direct if _fits(job, wanted)][:limit], None
        where = replace(where, contains=part)
    page = house.queue.jobs(where, limit=limit, cursor=cursor)
    return page.jobs, page.cursor


def filter_of(site: Site, wanted: Mapping[str, Sequence[str]]) -> Filter:
    """The store's filter for these words; raises Problem for a state that does not exist."""
    for state in wanted.get("status", ()):
        if state not in STATES:
            raise Problem(
                f"status is one of {', '.join(STATES)}, not {state[:64]!r}", code="bad_status"
            )
    return Filter(
        states=tuple(wanted.get("status", ())),
        tenants=(site.id,),
        codes=tuple(wanted.get("code", ())),
        categories=tuple(wanted.get("category", ())),
    )


def _part(search: str) -> str | None:
    """What of a stored row only a walk can find: an order id, or a click id of any kind."""
    if _ORDER_ID.fullmatch(search):
        return f'orderId":"{search}"'
    return f'id":"{search}"' if _CLICK.fullmatch(search) else None


def _direct(house: WorkloadContext, site: Site, search: str) -> list[Job]:
    """Rows found without walking: by their id, or by their external id with every revision."""
    named = search.removeprefix(SEAL)
    if is_id(named):
        job = house.queue.job(named)
        return [job] if job and job.tenant == site.id else []
    keys = [key_of(search, revision) for revision in range(1, MAX_REVISION + 1)]
    held = house.queue.holders(site.id, keys)
    found = house.queue.find(list(held.values())) if held else {}
    return sorted(found.values(), key=lambda job: job.id, reverse=True)


def _fits(job: Job, wanted: Mapping[str, Sequence[str]]) -> bool:
    has = {"status": job.state, "code": job.error_code, "category": job.error_category}
    return all(not names or has.get(what) in names for what, names in wanted.items())


# Actions


@dataclass(frozen=True, slots=True)
class Acted:
    """What an action moved, and what it did not."""

    affected: int
    refused: list[tuple[str, str]]  # maybe only the first of them
    more: bool = False
    already: int = 0  # there before
    reasons: Mapping[str, int] = field(default_factory=dict)  # of all that were refused


def act(
    house: WorkloadContext,
    actor: Actor,
    site: Site,
    action: str,
    *,
    ids: Sequence[str] | None,
    where: Filter | None,
    reason: str | None = None,
    code: str | None = None,
    category: str | None = None,
    clear_errors: bool = False,
) -> Acted:
    """One of the seed's actions on chosen rows of a site, or on all that match."""
    if (ids is None) == (where is None):
        raise Invalid("name the rows by ids or by a filter, not both", code="bad_selection")
    told = terms(house, site, action, code=code, category=category, clear_errors=clear_errors)
    bulk = house.commands.act(
        actor,
        house.queue.name,
        action,
        ids=None if ids is None else bare(ids),
        where=where,
        reason=reason,
        **told,
    )
    listed = SHOWN_OUTCOMES if where is not None else None
    return acted(bulk, listed, more=len(bulk.outcomes) >= MOST_AT_ONCE)


def terms(
    house: WorkloadContext,
    site: Site,
    action: str,
    *,
    code: str | None = None,
    category: str | None = None,
    clear_errors: bool = False,
) -> dict[str, Any]:
    """What an action says of each row, as the command layer takes it; raises Problem."""
    if action not in ACTIONS:
        raise Problem(f"action is one of {', '.join(ACTIONS)}", code="unknown_action")
    fails, resets = action == "MARK_FAILED", action == "RESET_TO_QUEUED"
    return {
        "site": site.id,
        "options": frozenset({"clearErrors"} if clear_errors and resets else ()),
        "code": code if fails else None,
        "category": _category(category) if fails and category else None,
        "max_attempts": limits_of(house.settings).max_attempts(site.channel),
    }


def acted(bulk: Bulk, listed: int | None = None, *, more: bool = False) -> Acted:
    """A bulk as an answer tells it: all of it counted, so many refusals listed at most."""
    refused = [(one.id, why(one)) for one in bulk.outcomes if not one.done]
    reasons = Counter(reason for _, reason in refused)
    return Acted(bulk.moved, refused[:listed], more, bulk.already, reasons)


def bare(ids: Sequence[str]) -> list[str]:
    """Ids with or without their seal, each once."""
    return list(dict.fromkeys(one.removeprefix(SEAL) for one in ids))


def _category(given: str) -> Category:
    try:
        return Category(given)
    except ValueError:
        known = ", ".join(one.value for one in Category)
        raise Problem(
            f"errorCategory is one of {known}, not {given[:64]!r}",
            code="bad_error_category",
            details={"field": "errorCategory"},
        ) from None


def columns(job: Job) -> dict[str, Any]:
    """A row with the seed's columns; times are microseconds since 1970."""
    waits = job.run_at if job.state == "RETRY" else job.timer_at if job.state == "FAILED" else None
    return {
        "id": job.id,
        "status": job.state,
        "attempt_count": job.attempt_count,
        "claimed_at": job.claimed_at,
        "next_retry_at": waits,
        "last_error": job.error_message,
        "provider_error_code": job.error_code,
        "provider_error_category": job.error_category,
        "uploaded_at": job.stamp_2,
        "failed_at": job.stamp_3,
        "created_at": job.created_at,
        "updated_at": job.moved_at,
    }


def recover_processing(house: WorkloadContext, *, min_age_minutes: int = 0) -> int:
    """Take back rows whose claim ran out; a spent budget ends them instead. FAILED stays."""
    return _sweep(house, "recover", min_age_minutes, None)


def attempt_cap(
    house: WorkloadContext, *, max_attempts: int | None = None, min_age_minutes: int = 0
) -> int:
    """Fail rows whose budget is spent; without a cap, by the one stamped on each row.

    A row in PROCESSING is left alone until its lease is over: its last attempt may yet succeed.
    """
    return _sweep(house, "attempt_cap", min_age_minutes, max_attempts)


def _sweep(
    house: WorkloadContext, name: str, min_age_minutes: int, max_attempts: int | None
) -> int:
    queue = house.queue
    moved = 0
    for move in queue.lifecycle.clock_moves:
        if move.name != name:
            continue
        for _ in range(MOST_BATCHES):
            batch = queue.store.sweep(
                queue.name,
                move,
                limit=BATCH,
                now=queue.clock.now(),
                min_age_us=min_age_minutes * MINUTE_S * SECOND_US,
                max_attempts=max_attempts,
            )
            moved += batch
            if batch < BATCH:
                break
    return moved
