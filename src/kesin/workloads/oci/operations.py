"""What an operator sees and does for a site: statistics, rows, actions."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from kesin.engine.access.commands import MAX_BULK_JOBS, MAX_LISTED_OUTCOMES
from kesin.engine.access.listing import JobSearch
from kesin.engine.bulk import ActionPreview
from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import iso
from kesin.foundation.ids import is_id
from kesin.foundation.messages import Message
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Invalid, Problem
from kesin.foundation.text import as_object
from kesin.lifecycle.budget import DAY_S, HOUR_S, SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.directory import Site
from kesin.store.records import Filter, MoveCount
from kesin.store.rules import jobs_by_state
from kesin.workloads.common.advice import Advice, Language
from kesin.workloads.common.stores import job_pages
from kesin.workloads.oci import reconciliation
from kesin.workloads.oci.conversions import conversion
from kesin.workloads.oci.google.circuit_breaker import read_breaker
from kesin.workloads.oci.lifecycle import ADVICE, DECISIONS
from kesin.workloads.oci.lifecycle import QUEUE as ADJUSTMENTS
from kesin.workloads.oci.script import parse_category, reason_of, refusal_reason
from kesin.workloads.oci.site import ACTIONS as KNOWN_ACTIONS
from kesin.workloads.oci.site import HEARTBEAT, UPLOADS, SiteContext, SiteSettings

if TYPE_CHECKING:
    from prometheus_client.core import Metric

STATES: Final = ("QUEUED", "RETRY", "PROCESSING", "COMPLETED", "FAILED")
ACTIONS: Final = ("RETRY_SELECTED", "RESET_TO_QUEUED", "MARK_FAILED")
CRITERIA: Final = ("status", "code", "category")  # what rows are chosen by
FAILED_SHARE_LIMIT: Final = 0.2  # above it, a warning
MIN_FINISHED_ROWS: Final = 10  # fewer say nothing about a share
EXPIRES_SOON_DAYS: Final = 7
SUMMED_ROWS: Final = 20_000  # of several days; a single day may have more
_KEY_SCOPES: Final = {"oci:ingest", "oci:script"}
_ORDER_ID: Final = re.compile(r"k[0-9a-f]{40}")


class SiteStats:
    """The statistics of a site; their cost does not grow with its rows."""

    def __init__(self, site: SiteContext, move_counts: Iterable[MoveCount] | None = None) -> None:
        queue, now = site.queue, site.queue.now()
        if move_counts is None:
            move_counts = queue.store.move_counts(queue.name)
        counts = [count for count in move_counts if count.tenant == site.id]
        self.totals = {**dict.fromkeys(STATES, 0), **jobs_by_state(counts)}
        self.last_updated_at = max((count.at for count in counts), default=None)
        acks = (count.at for count in counts if count.to_state == "COMPLETED")
        self.last_ack_at = max(acks, default=None)
        self.was_claimed = any(count.to_state == "PROCESSING" for count in counts)  # a row, ever
        waiting = queue.waiting(site.id, aged=("conversion_at", expiring_before(now)))
        self.stuck = waiting.lease_over  # PROCESSING past its lease
        self.oldest_queued_at = waiting.first_created_at.get("QUEUED")
        ending = ending_rows(queue, [site.record]) if site.settings.actions else {}
        self.expiring_soon = max(waiting.aging, ending.get(site.id, 0))
        # FAILED by a decision (consent is denied, or retracted): they are not in the share.
        denied = self.totals["FAILED"] and any(it.move in DECISIONS.values() for it in counts)
        self.withheld = count_withheld(queue, [site.id]) if denied else 0
        failed = self.totals["FAILED"] - self.withheld
        ended = failed + self.totals["COMPLETED"]
        self.failed_share = failed / ended if ended else 0.0
        self.fails_often = ended >= MIN_FINISHED_ROWS and self.failed_share > FAILED_SHARE_LIMIT
        self.breaker = read_breaker(site)
        # None where a script uploads.
        self.breaker_state = None if site.channel == "script" else self.breaker.state(now)
        # The last upload that Google did not take whole.
        self.refused = (site.read_metadata(UPLOADS) or {}).get("refused")
        warnings = _warnings(site, self)
        self.warnings = [{"code": code, "message": message} for code, message in warnings]

    def record(self) -> dict[str, Any]:
        return {
            "totals": self.totals,
            "stuck": self.stuck,
            "failed_share": round(self.failed_share, 4),
            **({"withheld": self.withheld} if self.withheld else {}),
            "oldest_queued_at": iso(self.oldest_queued_at),
            "expiring_soon": self.expiring_soon,
            "last_updated_at": iso(self.last_updated_at),
            "last_ack_at": iso(self.last_ack_at),
            "breaker": self.breaker_state,
            "warnings": self.warnings,
        }

    def advice(self, code: str, language: Language) -> Advice:
        """What a warning means; a breaker or an upload is explained by what is wrong with it."""
        if code == "BREAKER_OPEN":
            return ADVICE.find(self.breaker.code, self.breaker.kind, language)
        if code == "UPLOAD_NOT_TAKEN" and self.refused:
            reasons = Counter[str](self.refused.get("errors")).most_common(1)
            code = next((one for one, _ in reasons if one.startswith("PROCESSING_ERROR_")), code)
        return ADVICE.find(code, None, language)


def onboarding(site: SiteContext, stats: SiteStats) -> dict[str, bool]:
    """Which steps of its beginning a site has behind it, in their order."""
    acked, days = stats.last_ack_at is not None, reconciliation.read_days(site)
    attributed = any(of.get("attributed") for by in days.values() for of in by.values())
    return {
        "key": acked or _has_key(site),
        "row": stats.last_updated_at is not None,
        "export": stats.was_claimed,
        "ack": acked,
        "attributed": acked and (attributed or not (days or reconciliation.is_copied(site))),
    }


def _has_key(site: SiteContext) -> bool:
    keys = site.context.commands.accounts.directory.api_keys()
    own = [key for key in keys if key.site in {None, site.id} and key.revoked_at is None]
    own = [key for key in own if not key.expires_at or key.expires_at > site.queue.now()]
    return any(_KEY_SCOPES & set(key.scopes) for key in own)


def count_withheld(queue: Queue, sites: Sequence[str] | None = None) -> int:
    """The rows of these sites that FAILED by a decision; of all sites without."""
    failures = queue.store.failures(queue.name, tenants=sites, states=("FAILED",))
    return sum(count.n for count in failures if count.code in DECISIONS)


def oci_metrics(context: WorkloadContext) -> Iterable["Metric"]:
    """Rows that the alert on failures leaves out, and sites of which Google took too little."""
    from prometheus_client.core import GaugeMetricFamily

    text = "FAILED conversions that need no action: consent denied or sale retracted."
    yield GaugeMetricFamily("kesin_oci_withheld_jobs", text, count_withheld(context.queue))
    text = "Sites with a day on which Google accepted fewer than 90% of the rows sent."
    yield GaugeMetricFamily("kesin_oci_short_sites", text, reconciliation.short_sites(context))


def expiring_before(now: int) -> int:
    """Rows with a conversion before this time expire soon."""
    return now - (conversion.CLICK_LIFETIME_DAYS - EXPIRES_SOON_DAYS) * DAY_S * SECOND_US


def ending_rows(queue: Queue, sites: Iterable[Site]) -> dict[str, int]:
    """The rows of each site that end soon with their look-back; of a short one, within a day."""
    days = [queue.now() + n * DAY_S * SECOND_US for n in (EXPIRES_SOON_DAYS, 1)]
    soon, at_once = (queue.store.aging(queue.name, ("expires_at", day)) for day in days)
    for site in sites:
        actions = SiteSettings.of(site).actions if soon.get(site.id) else ()
        if any(0 < action.lookback_days <= EXPIRES_SOON_DAYS for action in actions):
            soon[site.id] = at_once.get(site.id, 0)
    return soon


def _warnings(site: SiteContext, stats: SiteStats) -> Iterable[tuple[str, str]]:
    """The codes of what deserves a look, with a sentence each."""
    now = site.queue.now()
    if stats.fails_often:
        share = round(100 * stats.failed_share)
        yield "FAILED_SHARE_HIGH", Message("%(share)s%% of finished rows have failed", share=share)
    if stats.stuck:
        yield "STUCK_PROCESSING", Message("rows past their lease: %(n)s", n=stats.stuck)
    if stats.expiring_soon:
        why = "rows that will become too old for Google within %(days)s days: %(n)s"
        yield "EXPIRING_SOON", Message(why, n=stats.expiring_soon, days=EXPIRES_SOON_DAYS)
    if site.is_paused:
        yield "PAUSED", "the site or the whole queue is paused"
    if (breaker := stats.breaker).kind:
        sentence = "the breaker is open (%(code)s): %(problem)s"
        testing = "the breaker is half open (%(code)s): %(problem)s"
        sentence = testing if breaker.state(now) == "half_open" else sentence
        yield "BREAKER_OPEN", Message(sentence, code=breaker.code, problem=Message(breaker.message))
    if site.only_name == "":
        yield "MISSING_CONVERSION_NAME", "the site has no conversion name: every row is refused"
    if gone := (site.read_metadata(KNOWN_ACTIONS) or {}).get("gone"):
        yield "ACTION_GONE", Message("not enabled in Google Ads: %(names)s", names=", ".join(gone))
    if site.channel == "script":
        yield from _script_warnings(site, stats, now)
    if refused := stats.refused:
        name, reasons = refused["requestId"], Counter[str](refused.get("errors")).most_common()
        status = ", ".join([refused["status"], *(f"{reason} ({n})" for reason, n in reasons)])
        sentence = "Google did not accept all of request %(request)s: %(status)s"
        yield "UPLOAD_NOT_TAKEN", Message(sentence, request=name, status=status)
    short = reconciliation.short_days(reconciliation.read_state(site), now)
    sentence = "Google accepted %(taken)s of the %(sent)s rows sent on %(day)s"
    yield from (("TAKEN_TOO_FEW", Message(sentence, **day)) for day in short[:1])


def _script_warnings(site: SiteContext, stats: SiteStats, now: int) -> Iterable[tuple[str, str]]:
    if stats.totals["QUEUED"] + stats.totals["RETRY"]:
        beat, hours = site.read_metadata(HEARTBEAT) or {}, site.silent_hours
        last = max(int(beat.get("at", 0)), stats.last_ack_at or 0, site.record.created_at)
        if now - last > hours * HOUR_S * SECOND_US:
            why = "rows are waiting; no script has reported for %(n)s hours"
            yield "SCRIPT_SILENT", Message(why, n=hours)
    adjustments = site.context.commands.queues[ADJUSTMENTS].waiting(site.id)
    if "READY" in adjustments.first_created_at:
        yield "ADJUSTMENTS_READY", "adjustments are ready: upload their file to Google Ads"


DailySums = dict[tuple[date, str], tuple[int, Decimal]]  # rows and sum, by day and currency


def daily_sums(
    site: SiteContext, criteria: Mapping[str, Sequence[str]], before: date | None = None
) -> tuple[DailySums, date | None]:
    """The sums of the newest whole days of arrival, and the day before which there are more."""
    where, zone, sums = build_filter(site, criteria), site.zone, DailySums()
    if before:
        where = replace(where, created_before=datetime.combine(before, time(), zone))
    for page in job_pages(site.queue, where):
        days = sorted({day for day, _ in sums})
        if len(days) > 1 and sum(n for n, _ in sums.values()) >= SUMMED_ROWS:
            return {key: each for key, each in sums.items() if key[0] != days[0]}, days[1]
        for job in page:
            payload = as_object(job.payload)
            value, currency = (payload.get(f"conversion{part}") for part in ("Value", "Currency"))
            day = datetime.fromtimestamp(job.created_at / SECOND_US, zone).date()
            n, total = sums.get((day, str(currency)), (0, Decimal()))
            worth = Decimal(str(value)) if isinstance(value, int | float) else Decimal()
            sums[day, str(currency)] = n + 1, total + worth
    return sums, None


def search_rows(
    site: SiteContext, actor: Actor, criteria: Mapping[str, Sequence[str]], search: str | None
) -> JobSearch:
    """What is searched for: an id, orderId, externalId or click id, unless it is masked."""
    where = build_filter(site, criteria)
    if not search:
        return JobSearch(None, where)
    exact = _find_directly(site, actor, search)
    if not exact and _ORDER_ID.fullmatch(search):
        return JobSearch(None, replace(where, contains=f'orderId":"{search}"'))
    if not exact and actor.has("reveal") and conversion.CLICK_ID.fullmatch(search):
        return JobSearch(None, replace(where, contains=f'id":"{search}"'))  # of any kind
    return JobSearch(tuple(job.id for job in exact), where)


def build_filter(site: SiteContext, criteria: Mapping[str, Sequence[str]]) -> Filter:
    """Build the store's filter; raises Problem for an unknown state."""
    for state in criteria.get("status", ()):
        if state not in STATES:
            why, known = "status must be one of %(known)s, got %(given)s", ", ".join(STATES)
            raise Problem(why, code="bad_status", known=known, given=repr(state[:64]))
    states, codes, categories = (tuple(criteria.get(name, ())) for name in CRITERIA)
    return Filter(states=states, tenants=(site.id,), codes=codes, categories=categories)


def _find_directly(site: SiteContext, actor: Actor, search: str) -> list[Job]:
    """Find rows by index: by id, or by external id with every revision."""
    commands, name = site.context.commands, site.queue.name
    job_id = search.removeprefix(conversion.SEAL_PREFIX)
    if is_id(job_id):
        return [job for job in commands.find(actor, name, [job_id]) if job.tenant == site.id]
    keys = {conversion.key_of(search, number) for number in range(1, conversion.MAX_REVISION + 1)}
    holders = site.queue.holders(site.id, sorted(keys))
    jobs = commands.find(actor, name, list(holders.values())) if holders else []
    return [job for job in jobs if actor.has("reveal") or job.dedup_key in keys]  # not masked


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What an action moved, and what it refused."""

    affected: int
    refused: list[tuple[str, str]]  # possibly only the first ones
    more: bool = False
    already: int = 0  # were in the target state
    reasons: Mapping[str, int] = field(default_factory=dict)  # counts over all refusals
    planned: Mapping[tuple[str | None, str | None], int] | None = None  # by state and reason

    @property
    def refused_count(self) -> int:
        """How many rows were refused, listed or not."""
        return sum(self.reasons.values()) or len(self.refused)


def run_action(
    site: SiteContext,
    actor: Actor,
    action: str,
    *,
    ids: Sequence[str] | None,
    where: Filter | None,
    reason: str | None = None,
    dry_run: bool = False,
    **terms: Any,
) -> ActionResult:
    """Act on rows by ids or by filter, on terms of `action_arguments`; ``dry_run`` only counts."""
    if (ids is None) == (where is None):
        raise Invalid("specify the rows by id or by filter, not both", code="bad_selection")
    given = action_arguments(site, action, **terms)
    ids = None if ids is None else strip_seals(ids)
    commands, queue = site.context.commands, site.queue.name
    if dry_run:
        options = given["options"]
        preview = commands.preview(actor, queue, action, ids=ids, where=where, options=options, site=site.id)
        return _planned_result(preview, len(ids or ()))
    bulk = commands.act(actor, queue, action, ids=ids, where=where, reason=reason, **given)
    refused = [(outcome.id, reason_of(outcome)) for outcome in bulk.outcomes if not outcome.done]
    listed = refused if where is None else refused[:MAX_LISTED_OUTCOMES]
    more, reasons = len(bulk.outcomes) >= MAX_BULK_JOBS, Counter(why for _, why in refused)
    return ActionResult(bulk.moved, listed, more, bulk.already, reasons)


def action_arguments(
    site: SiteContext, action: str, *, code: str | None = None, category: str | None = None, clear_errors: bool = False
) -> dict[str, Any]:
    """Build the arguments of `Commands.act` for an action; raises Problem."""
    if action not in ACTIONS:
        known = ", ".join(ACTIONS)
        raise Problem("action must be one of %(known)s", code="unknown_action", known=known)
    marks_failed, resets = action == "MARK_FAILED", action == "RESET_TO_QUEUED"
    return {
        "site": site.id,
        "options": frozenset({"clearErrors"} if clear_errors and resets else ()),
        "code": code if marks_failed else None,
        "category": parse_category(category, Category) if marks_failed and category else None,
        "max_attempts": site.max_attempts,
    }


def _planned_result(preview: ActionPreview, asked: int) -> ActionResult:
    planned: dict[tuple[str | None, str | None], int] = {
        (state, refusal_reason(reason, state) if reason else None): n for (state, reason), n in preview.counts.items()
    }
    if asked > preview.matched:
        planned[None, refusal_reason("unknown")] = asked - preview.matched
    already = preview.by_reason.get("already", 0)
    refused = max(asked, preview.matched) - preview.would_move - already
    more = preview.matched > MAX_BULK_JOBS
    return ActionResult(preview.would_move, [], more, already, {"planned": refused}, planned)


def strip_seals(ids: Sequence[str]) -> list[str]:
    """Strip the seal prefix where there is one, and drop duplicates."""
    return list(dict.fromkeys(sealed_id.removeprefix(conversion.SEAL_PREFIX) for sealed_id in ids))


def row_columns(job: Job) -> dict[str, Any]:
    """A row as the columns of the seed's table; times are microseconds since 1970."""
    retry_times = {"RETRY": job.run_at, "FAILED": job.timer_at}
    if job.run_at and job.run_at > job.moved_at:
        retry_times["QUEUED"] = job.run_at  # held until the click is old enough
    names = {name: as_object(job.payload).get(name) for name in ("orderId", "externalId")}
    return {
        "id": job.id,
        **{name: value if isinstance(value, str) else None for name, value in names.items()},
        "status": job.state,
        "attempt_count": job.attempt_count,
        "claimed_at": job.claimed_at,
        "next_retry_at": retry_times.get(job.state),
        "last_error": job.error_message,
        "provider_error_code": job.error_code,
        "provider_error_category": job.error_category,
        "uploaded_at": job.stamp_2,
        "failed_at": job.stamp_3,
        "created_at": job.created_at,
        "updated_at": job.moved_at,
    }
