"""The script channel; unsendable rows are rejected before the claim, so they cost no attempt."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from kesin.engine.workload import WorkloadContext
from kesin.foundation.ids import is_id
from kesin.foundation.messages import Message, note_json
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Problem, RequestConflict
from kesin.foundation.text import canonical_json, storable
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import Role
from kesin.store.limits import MAX_CODE, MAX_MESSAGE
from kesin.store.records import Filter, Outcome
from kesin.workloads.oci.conversions.conversion import (
    CLICK_KINDS,
    DENIED,
    HASH_FIELDS,
    PAST_WINDOW,
    SEAL_PREFIX,
    Conversion,
    Unsendable,
)
from kesin.workloads.oci.conversions.identifiers import hide_clicks
from kesin.workloads.oci.conversions.refusals import amended, find_refused
from kesin.workloads.oci.lifecycle import CONSENT_DENIED, DECISIONS, WAITING
from kesin.workloads.oci.site import HEARTBEAT, WORKLOAD, SiteContext, visible_sites

MAX_EXPORT_ROWS: Final = 1_000
MAX_MANAGED: Final = 50  # accounts that Google lets a manager script serve in a run
MAX_REJECT_ROUNDS: Final = 10  # rejected rows make room for others
SCRIPT_CATEGORIES: Final = frozenset(Category) - {Category.PERMANENT}
DEFAULT_CODE: Final = "VALIDATION_FAILED"
REVISION: Final = "\x1f"  # what follows it in a key

PRIVATE: Final = (*CLICK_KINDS, *HASH_FIELDS)

# Why a report did not move a row.
_REFUSALS: Final = {
    "unknown": "this site has no such row",
    "was_claimed": "it has not been exported since its data last changed",
    "state": "it is already %(state)s",
    "code_not_in": "consent is denied, or the sale was retracted: a retry will not send it",
}


class ExportPreview:
    """What an export would return, and what it would leave out, with a reason each.

    Nothing is changed. ``masked``: for those who may not see click ids.
    """

    def __init__(self, site: SiteContext, *, limit: int, masked: bool) -> None:
        jobs = site.queue.peek(limit=limit, tenants=[site.id])
        sendable, unsendable = split_sendable(site, jobs)
        self.items = _items(site, sendable)
        self.skipped: list[dict[str, Any]] = []
        for job, problem in unsendable:
            external_id = (job.dedup_key or "").partition(REVISION)[0] or None
            row = {"id": f"{SEAL_PREFIX}{job.id}", "externalId": external_id}
            self.skipped.append({**row, "code": problem.code, "message": problem.message})
        counts = site.queue.stats().tenants.get(site.id, {})
        others = sum(counts.get(state, 0) for state in WAITING) - len(jobs)
        self.is_full = others > 0 and len(jobs) >= limit  # more rows wait than one export takes
        self.counts = {"queued": len(self.items), "skipped": len(self.skipped)}
        self.counts |= {"atLeast": True} if self.is_full else {}
        about = [{"code": code, "message": why} for code, why in self._warnings(site, others)]
        self.warnings = [*self.skipped, *about]
        if masked:
            mask = site.context.commands.masking(site.queue.name).value
            shown = map(mask, (self.items, self.skipped, self.warnings))
            self.items, self.skipped, self.warnings = shown

    def _warnings(self, site: SiteContext, others: int) -> Iterator[tuple[str, str]]:
        if site.is_paused:
            yield "PAUSED", "paused: exports are empty for now"
        elif self.is_full:
            yield "MORE_WAIT", Message("%(n)s more rows are waiting for later exports", n=others)
        elif others > 0:
            why = "%(n)s more rows are waiting for their next attempt"
            yield "NOT_DUE", Message(why, n=others)
        if site.channel != "script":
            why = "the site uses the channel %(channel)s: a script receives no rows"
            yield "WRONG_CHANNEL", Message(why, channel=site.channel)


def managed_sites(context: WorkloadContext, actor: Actor, *, starts: bool) -> list[SiteContext]:
    """The sites that a manager script serves next: those that waited longest, new ones first."""
    entries = context.commands.accounts.directory.metadata_entries(WORKLOAD, name=HEARTBEAT)
    beats = {entry.site: json.loads(entry.value) for entry in entries}

    def served_at(site: SiteContext) -> tuple[int, str]:
        beat = beats.get(site.id, {})
        return max(beat.get("at", 0), beat.get("tried_at", 0)), site.id

    sites = [site for site in visible_sites(context, actor) if site.channel == "script"]
    chosen = sorted((s for s in sites if s.settings.customer_id), key=served_at)[:MAX_MANAGED]
    for site in chosen if starts else ():  # whatever becomes of the run, others go first next time
        with site.locked_metadata(HEARTBEAT) as beat:
            beat["tried_at"] = context.queue.now()
    return chosen


def require_channel(site: SiteContext) -> None:
    """Raise RequestConflict unless the site is left to a script."""
    if site.channel != "script":
        raise RequestConflict(
            f"the site {site.id} uses the channel {site.channel!r}: Kesin's worker uploads its "
            "rows; stop the script, or move the site back with `kesin site set --channel script`",
            code="wrong_channel",
        )


def export(site: SiteContext, *, limit: int, actor: str) -> list[dict[str, Any]]:
    """Claim up to ``limit`` due rows for a script and return its items; nothing while paused."""
    require_channel(site)
    if site.is_paused:
        return []
    reject_unsendable(site, limit=limit, actor=actor)
    lease_s = site.settings.recover_minutes * 60
    jobs = site.queue.claim(actor, limit=limit, lease_seconds=lease_s, tenants=[site.id])
    sendable, unsendable = split_sendable(site, jobs)
    # These were enqueued between the check and the claim, not by ingest.
    site.apply("ack_failed", rejections(unsendable), actor=actor)
    return _items(site, sendable)


def _items(site: SiteContext, sendable: Sequence[tuple[Job, Conversion]]) -> list[dict[str, Any]]:
    zone, more = site.zone, site.settings.script_columns
    return [row.script_item(job.id, zone, more=more) for job, row in sendable]


def reject_unsendable(site: SiteContext, *, limit: int, actor: str) -> None:
    """Reject due rows that cannot be sent, before they are claimed."""
    for _ in range(MAX_REJECT_ROUNDS):
        _, unsendable = split_sendable(site, site.queue.peek(limit=limit, tenants=[site.id]))
        if not unsendable:
            return
        for code, action in DECISIONS.items():
            stopped = [amended(job) for job, why in unsendable if why.code == code]
            role: Role = "worker" if code == CONSENT_DENIED.code else "producer"
            site.apply(action, stopped, role=role, actor=actor)
        others = [(job, why) for job, why in unsendable if why.code not in DECISIONS]
        site.apply("reject", rejections(others), actor=actor)


def split_sendable(
    site: SiteContext, jobs: Sequence[Job]
) -> tuple[list[tuple[Job, Conversion]], list[tuple[Job, Unsendable]]]:
    """The jobs that can be sent, with their conversions, and the others, with what is wrong."""
    sendable, unsendable = [], []
    now, rules, refused = site.queue.now(), site.defaults, find_refused(site, jobs)
    for job in jobs:
        try:
            if job.id in refused:
                raise Unsendable(CONSENT_DENIED.code, "adUserData", DENIED)  # noqa: TRY301
            conversion = Conversion.from_payload(job.payload, rules, now_us=now)
            if job.stamp_4 is not None and job.stamp_4 <= now:  # expires_at
                raise Unsendable("EXPIRED", "conversionTime", PAST_WINDOW)  # noqa: TRY301
            sendable.append((job, conversion))
        except Unsendable as problem:
            unsendable.append((job, problem))
    return sendable, unsendable


def names_in_use(site: SiteContext, names: Iterable[str]) -> list[str]:
    """Those of these conversion names that waiting rows have."""
    where = partial(Filter, states=WAITING, tenants=(site.id,))
    wanted = {name: where(contains=f'"conversionName":{canonical_json(name)}') for name in names}
    return [name for name, each in wanted.items() if site.queue.jobs(each, limit=1).jobs]


def rejections(unsendable: Sequence[tuple[Job, Unsendable]]) -> list[Change]:
    invalid, changes = partial(Change, error_category=Category.VALIDATION.value), []
    for job, problem in unsendable:
        why, note = problem.message, note_json(problem.message)
        changes.append(invalid(job.id, error_code=problem.code, error_message=why, note=note))
    return changes


Report = dict[str, Any]  # updated, already (reported before), refused: of each its id and reason


def ack(site: SiteContext, queue_ids: Sequence[str], *, actor: str) -> Report:
    """Complete rows that Google has; a repeated report succeeds and changes nothing."""
    ids = parse_queue_ids(queue_ids)
    result = canonical_json({"channel": "script"})
    changes = [Change(job_id, result=result) for job_id in ids]
    return _apply_report(site, "ack", changes, actor, done="COMPLETED")


def ack_failed(
    site: SiteContext,
    queue_ids: Sequence[str],
    *,
    code: str | None,
    message: str | None,
    category: str | None,
    actor: str,
) -> Report:
    """Fail rows that the script could not upload; `revive` retries two of the categories."""
    if category is not None:
        category = parse_category(category, SCRIPT_CATEGORIES)
    ids = parse_queue_ids(queue_ids)
    code = storable((code or "").strip())[:MAX_CODE] or DEFAULT_CODE
    # Each row gets the message, and others may read it: without the click ids of these rows.
    payloads = site.payloads([job_id for job_id in ids if is_id(job_id)] if message else [])
    known = [payload.get(kind) for payload in payloads.values() for kind in PRIVATE]
    message = hide_clicks(message or "", {each for each in known if isinstance(each, str)})
    message = storable(message.strip())[:MAX_MESSAGE] or code
    fail = partial(Change, error_code=code, error_category=category or Category.VALIDATION)
    changes = [fail(job_id, error_message=message) for job_id in ids]
    return _apply_report(site, "ack_failed", changes, actor, done="FAILED")


def parse_category(text: str, known: Iterable[Category]) -> Category:
    """The category of this name, if it is one of the known; raises Problem."""
    categories = {category.value: category for category in known}
    if text not in categories:
        why = "errorCategory must be one of %(known)s, got %(given)s"
        field = {"field": "errorCategory"}
        names, given = ", ".join(sorted(categories)), repr(text[:64])
        raise Problem(why, code="bad_error_category", details=field, known=names, given=given)
    return categories[text]


def parse_queue_ids(queue_ids: Sequence[str]) -> list[str]:
    """Strip the seal prefix and drop duplicates; raises Problem naming ids without a prefix."""
    if malformed := [each[:80] for each in queue_ids if not each.startswith(SEAL_PREFIX)]:
        raise Problem(
            f"ids begin with {SEAL_PREFIX!r}; these do not: {', '.join(malformed[:20])}",
            code="bad_queue_id",
            details={"ids": malformed[:100]},
        )
    return list(dict.fromkeys(each.removeprefix(SEAL_PREFIX) for each in queue_ids))


def _apply_report(site: SiteContext, action: str, changes: list[Change], actor: str, *, done: str) -> Report:
    valid = [change for change in changes if is_id(change.id)]
    outcomes = site.apply(action, valid, actor=actor)
    reasons = {each.id: _REFUSALS["unknown"] for each in changes if not is_id(each.id)}
    reasons |= {
        outcome.id: reason_of(outcome)
        for outcome in outcomes
        if outcome.result != "moved" and (outcome.result == "unknown" or outcome.state != done)
    }
    refused = [{"id": f"{SEAL_PREFIX}{job_id}", "reason": why} for job_id, why in reasons.items()]
    updated = sum(outcome.result == "moved" for outcome in outcomes)
    already = len(changes) - updated - len(refused)
    return {"updated": updated, "already": already, "refused": refused}


def reason_of(outcome: Outcome) -> str:
    cause = "unknown" if outcome.result == "unknown" else outcome.reason
    return refusal_reason(cause or outcome.result, outcome.state)


def refusal_reason(cause: str, state: str | None = None) -> str:
    return Message.fill(_REFUSALS.get(cause, cause), {"state": state})
