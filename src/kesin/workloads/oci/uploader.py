"""The upload worker: sends the rows of every site that is not on the script channel.

One thread serves a site at a time, so a slow site does not delay the others. Before rows are
claimed, their data, the site's credentials and its breaker are checked; what is claimed is sent.
The error table alone decides what becomes of a row.
"""

import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Final

from kesin.engine.results import Act, HandlerResult
from kesin.engine.worker import Worker
from kesin.engine.worker_thread import ClaimShare
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import Logger
from kesin.foundation.messages import Message
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.records import Filter
from kesin.workloads.oci import adjustments, reconciliation
from kesin.workloads.oci.conversions.conversion import Conversion, Unsendable
from kesin.workloads.oci.conversions.ingest import ClaimedMeanwhile
from kesin.workloads.oci.google import circuit_breaker, data_manager
from kesin.workloads.oci.google.channel import (
    MAX_ROWS,
    Channel,
    ConnectionTrouble,
    RowAccepted,
    RowRefused,
    UploadResult,
    UploadRow,
)
from kesin.workloads.oci.google.circuit_breaker import WORKER_ACTOR, Breaker, Trouble
from kesin.workloads.oci.google.classify import CIRCUIT_OPEN
from kesin.workloads.oci.google.credentials import vault_name
from kesin.workloads.oci.google.http import dig, text_at
from kesin.workloads.oci.lifecycle import SENDABLE, WAITING, limits_of
from kesin.workloads.oci.script import reject_unsendable, split_sendable
from kesin.workloads.oci.site import WORKLOAD, SiteContext

log = Logger("kesin.oci")

SplitRows = tuple[list[tuple[Job, UploadRow]], list[tuple[Job, Unsendable]]]
WORKER_THREADS: Final = 4
LEASE_S: Final = 120  # renewed during an upload
POLL_S: Final = 2.0
_COPYING: Final = ""  # no site: reserved by the thread that copies figures
_SITE_CHANGED: Final = RowRefused(CIRCUIT_OPEN, "not sent: the site has changed in the meantime", Category.TRANSIENT)
_FREE_WAITS: Final = ("too_recent", "quota_wait")  # they cost no attempt, a number of times
MAX_TWINS: Final = 100  # rows of one click to compare with
_ABOUT_ACTION: Final = "CONVERSION_ACTION"  # in the codes that blame one, of both APIs
DUPLICATE_CLICK_CODES: Final = ("CLICK_CONVERSION_ALREADY_EXISTS", "CALL_CONVERSION_ALREADY_EXISTS")


class Uploader(Worker):
    """Chooses the sites to serve and uploads their rows; ``limit`` is for a turn on request."""

    waiting_states = WAITING
    usual_threads = WORKER_THREADS

    def __init__(
        self,
        context: WorkloadContext,
        channels: Mapping[str, Channel],
        *,
        limit: int | None = None,
        threads: int | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(
            context.queue,
            batch_handler=self.upload,
            plan=self.plan_claims,
            threads=threads or self.usual_threads,
            batch=MAX_ROWS,
            lease_seconds=LEASE_S,
            channel="api",  # an exception in the handler is retried
            poll_s=POLL_S,
        )
        self._context = context
        self._channels = channels
        self._limit = limit
        self._rng = rng or random.Random()
        self._limits = limits_of(context.settings)
        self._lock = threading.Lock()
        self._site_locks: dict[str, threading.Lock] = {}
        self._copy_at: dict[str, int] = {}  # by site: when to ask for its next copy of figures
        self._last_upload: dict[str, float] = {}  # by site, in monotonic seconds
        self._rounds = 0
        self._cursors: dict[str, str | None] = {}  # by site, of lists that are read in turns

    # Choosing sites

    def plan_claims(self) -> Iterator[ClaimShare]:
        """Yield what to upload; then ask Google what became of earlier uploads."""
        yield from self.plan_uploads()
        for site in _rotate(self._sites(), self._rounds):
            with self._reserve(site.id) as free:
                if free:
                    data_manager.poll_requests(site, self._channels[site.channel])
        with self._reserve(_COPYING) as free:  # one site at a time: uploads come first
            if free:
                self._copy_figures()

    def _copy_figures(self) -> None:
        """Copy Google's figures of one site; other threads upload its rows meanwhile."""
        for site in filter(reconciliation.is_copied, _rotate(self._sites(), self._rounds)):
            now = self._context.queue.now()
            if self._copy_at.get(site.id, 0) <= now:
                due_at = reconciliation.copy_figures(site, self._channels)
                self._copy_at[site.id] = due_at if due_at > now else now + reconciliation.RETRY_US
                if due_at <= now:
                    return

    def _sites(self) -> list[SiteContext]:
        records = self._context.commands.accounts.directory.sites()
        return [SiteContext(self._context, it) for it in records if it.channel in self._channels]

    def plan_uploads(self) -> Iterator[ClaimShare]:
        """Yield the sites with waiting rows, each with the number of rows it may send now."""
        queue, every_s = self._context.queue, self._context.settings.oci_upload_every_s
        sites = self._sites()
        shares = self._row_shares(sites)
        with self._lock:
            self._rounds += 1
            turn = self._rounds
        waiting = [site for site in sites if shares.get(site.id)]
        for site in _rotate(waiting, turn):
            with self._reserve(site.id) as free:
                # Google counts requests, so single rows wait for each other.
                last = self._last_upload.get(site.id)  # None also after a full request
                is_due = last is None or queue.clock.monotonic() - last >= every_s
                if rows := self._claimable_rows(site, shares[site.id]) if free and is_due else 0:
                    yield ClaimShare((site.id,), rows)

    def _row_shares(self, sites: Sequence[SiteContext]) -> dict[str, int]:
        """The rows each site may send; only sites that can upload now share a limit."""
        queue = self._context.queue
        counts = queue.stats().tenants if sites else {}
        waiting = {
            site.id: sum(counts.get(site.id, {}).get(state, 0) for state in self.waiting_states) for site in sites
        }
        if self._limit is not None:
            for site in sites:
                if not waiting[site.id]:
                    continue
                is_open = self._recheck_breaker(site).max_rows(queue.now(), 1) == 0
                if is_open or site.is_paused:
                    waiting[site.id] = 0
                else:
                    due = len(queue.peek(limit=self._limit, tenants=[site.id]))
                    waiting[site.id] = due if due < self._limit else waiting[site.id]
        return fair_shares(waiting, self._limit)

    @contextmanager
    def _reserve(self, site: str) -> Iterator[bool]:
        """Reserve the site for this thread; yields False if another thread is serving it."""
        lock = self._site_locks.setdefault(site, threading.Lock())
        free = lock.acquire(blocking=False)
        try:
            yield free
        finally:
            if free:
                lock.release()

    def _claimable_rows(self, site: SiteContext, share: int) -> int:
        """The number of rows to claim now: none while the site is paused or cannot upload."""
        if site.is_paused:
            return 0
        breaker = self._recheck_breaker(site)
        rows = breaker.max_rows(self._context.queue.now(), min(share, MAX_ROWS))
        if not rows:
            return 0
        opened, channel = circuit_breaker.open_credentials(site), self._channels[site.channel]
        trouble = opened if isinstance(opened, ConnectionTrouble) else channel.precheck(opened)
        if trouble is not None:
            self._record_upload(site, trouble)
            return 0
        if site.queue.name == WORKLOAD:  # an adjustment was checked when it became ready
            reject_unsendable(site, limit=rows, actor=WORKER_ACTOR)
        return rows

    def _recheck_breaker(self, site: SiteContext) -> Breaker:
        """Read the site's breaker; close it if the credentials are new, or pass another check."""
        breaker = circuit_breaker.read_breaker(site)
        if not breaker.kind:
            return breaker
        secret = self._context.commands.accounts.directory.secret(vault_name(site.id))
        if secret and breaker.opened_at and secret.changed_at > breaker.opened_at:
            return circuit_breaker.close_breaker(site)
        if not breaker.wants_check(self._context.queue.now()):
            return breaker
        credentials = circuit_breaker.open_credentials(site)
        if isinstance(credentials, ConnectionTrouble):
            return self._record_upload(site, credentials)
        is_adjusting = site.queue.name != WORKLOAD
        findings = self._channels[site.channel].check(credentials, adjusts=is_adjusting)
        failed = next((finding for finding in findings if not finding.ok), None)
        if failed is None:
            return circuit_breaker.close_breaker(site)
        return self._record_upload(site, ConnectionTrouble("AUTH", breaker.code, failed.detail))

    def _record_upload(self, site: SiteContext, trouble: ConnectionTrouble | None) -> Breaker:
        return circuit_breaker.record_upload(site, trouble, jitter=self._rng.random())

    # Uploading

    def upload(self, jobs: Sequence[Job]) -> list[HandlerResult]:
        """Send the rows of one site; returns one result per job."""
        record = self._context.commands.accounts.directory.site(jobs[0].tenant)
        channel = self._channels.get(record.channel) if record else None
        if record is None or channel is None:
            return [self._release(job) for job in jobs]  # the site changed after the check
        site = SiteContext(self._context, record)
        credentials = circuit_breaker.open_credentials(site)
        if isinstance(credentials, ConnectionTrouble):
            return [self._release(job) for job in jobs]
        sendable, unsendable = self._split(site, jobs)
        rows = [row for _, row in sendable]
        fail = partial(Act, "ack_failed", category=Category.VALIDATION)
        answers: dict[str, HandlerResult] = {
            job.id: fail(code=problem.code, message=problem.message) for job, problem in unsendable
        }
        if rows:
            if len(rows) == MAX_ROWS:
                self._last_upload.pop(site.id, None)
            else:
                self._last_upload[site.id] = self._context.queue.clock.monotonic()
            clicks = {*chain.from_iterable(row.conversion.hashes for row in rows)}
            clicks |= {row.conversion.click[1] for row in rows if row.conversion.click}
            sent = channel.upload(credentials, rows).without_clicks(clicks)
            for (job, row), outcome in zip(sendable, sent.rows, strict=True):
                answers[job.id] = self._job_result(site, job, outcome, row.conversion)
            pairs = zip(rows, sent.rows, strict=True)
            unclicked = [dig(it.note, "requestId") for row, it in pairs if not row.conversion.click]
            sent = replace(sent, trouble=_site_trouble(site, rows, sent))
            self._record_result(site, sent, Counter(unclicked))
        return [answers[job.id] for job in jobs]

    def _split(self, site: SiteContext, jobs: Sequence[Job]) -> SplitRows:
        sendable, unsendable = split_sendable(site, jobs)
        return [(job, UploadRow(job.id, conversion)) for job, conversion in sendable], unsendable

    def _record_result(self, site: SiteContext, sent: UploadResult, unclicked: Counter[str]) -> None:
        """Record the upload for the site; a failure here does not affect the rows."""
        try:
            self._record_upload(site, sent.trouble)
            if site.channel == "data_manager":
                data_manager.remember_requests(site, sent.request_ids, unclicked)
        except Exception:  # the rows' results must not be lost
            log.exception("upload_not_recorded", site=site.id, requests=list(sent.request_ids))
        rows, trouble = len(sent.rows), sent.trouble.code if sent.trouble else None
        accepted = sum(isinstance(row, RowAccepted) for row in sent.rows)
        log.info("uploaded", site=site.id, rows=rows, accepted=accepted, trouble=trouble)

    def _job_result(
        self, site: SiteContext, job: Job, outcome: RowAccepted | RowRefused, conversion: Conversion
    ) -> HandlerResult:
        act = partial(Act, code=outcome.code, message=outcome.message, note=outcome.note)
        # Adjustments go to the same action, whatever becomes of the site's list.
        sent = {"channel": site.channel, "actionId": conversion.action_id}
        sent["requestId"] = text_at(outcome.note, "requestId")
        result = {name: text for name, text in sent.items() if text}
        if isinstance(outcome, RowAccepted):
            if self._is_twin(site, outcome, job, conversion):
                why = "another conversion has the same click and time, to the second: %(problem)s"
                message = Message(why, problem=outcome.message)
                return act("ack_failed", message=message, category=Category.VALIDATION)
            if outcome.code is None:  # Google has it
                return Act("ack", result=result, note=outcome.note, fenced=False)
            return act("ack_duplicate", result=result, category=Category.PERMANENT)
        if not outcome.was_sent:
            return self._release(job, outcome)
        if outcome.code == "CLICK_NOT_FOUND" and conversion.click is None:
            # Google has it; the person came without a click on an ad, as most people do.
            return act("ack_duplicate", result=result, category=Category.PERMANENT)
        errors = self._context.queue.lifecycle.errors
        verdict = errors.resolve(outcome.code, channel=site.channel, category=outcome.category)
        move, category = verdict.move, verdict.category
        if move == "retry_later" and verdict.category is Category.RATE_LIMIT:
            move = "quota_wait"
        if move in _FREE_WAITS and job.retry_count >= self._limits.too_recent_waits:
            move = "retry_later"
            if outcome.code == "CONVERSION_NOT_FOUND":  # Google had two days for it
                move, category = "ack_failed", Category.VALIDATION
        return act(move, category=category)

    def _is_twin(self, site: SiteContext, outcome: RowAccepted, job: Job, new: Conversion) -> bool:
        """Whether Google has another row of this click and second, and cannot have this one."""
        # A row that was never sent before is not the one Google has: completed, it would be lost.
        times_sent = job.attempt_count - job.return_count - job.retry_count
        if outcome.code not in DUPLICATE_CLICK_CODES or times_sent > 1:
            return False
        same_click = Filter(tenants=(job.tenant,), contains=f'":"{new.traces[0]}"')
        candidates = self._context.queue.jobs(same_click, limit=MAX_TWINS).jobs
        twins = [it for it in candidates if it.id != job.id and it.stamp_1 == new.at_us]
        # The same click may be a conversion of each action; of two names, one action may have both.
        others = {it.name for it in site.settings.actions if new.action and it.id != new.action.id}
        return any(dig(it.payload, "conversionName") not in others for it in twins)

    def _release(self, job: Job, why: RowRefused = _SITE_CHANGED) -> HandlerResult:
        """Release a row that was not sent; the attempt is returned while returns are left."""
        if job.return_count < self._context.queue.lifecycle.max_returns:
            return Act("release")
        return Act("retry_later", code=why.code, message=why.message, category=Category.TRANSIENT)


SETTLED_AT_ONCE: Final = 500  # waiting adjustments of a site; the next turn continues


class AdjustmentUploader(Uploader):
    """Sends adjustments as conversions are sent: with the same shares, breaker, credentials."""

    waiting_states = SENDABLE
    usual_threads = 2

    def plan_claims(self) -> Iterator[ClaimShare]:
        """Settle what waits, also for sites that are left to a script; then send what is ready."""
        counts = self._context.queue.stats().tenants
        for record in self._context.commands.accounts.directory.sites():
            site = SiteContext(self._context, record)
            if counts.get(site.id, {}).get("WAITING"):
                with self._reserve(site.id) as free:
                    if free:
                        self._settle(site)
        yield from self.plan_uploads()

    def _settle(self, site: SiteContext) -> None:
        """Settle the next waiting adjustments of a site; those that stay hold up no others."""
        where = Filter(states=("WAITING",), tenants=(site.id,), oldest_first=True)
        cursor, sold = self._cursors.get(site.id), adjustments.beside(site, WORKLOAD)
        page = site.queue.jobs(where, limit=SETTLED_AT_ONCE, cursor=cursor)
        self._cursors[site.id] = page.cursor
        found = sold.queue.find([*map(adjustments.conversion_id, page.jobs)]) if page.jobs else {}
        pairs = ((job.id, found.get(adjustments.conversion_id(job))) for job in page.jobs)
        ids = [job_id for job_id, sale in pairs if not adjustments.is_under_way(sale)]
        if not ids:
            return  # no lock for what can only wait
        with suppress(ClaimedMeanwhile), adjustments.locked(site):  # else in the next turn
            jobs = site.queue.find(ids)  # as they are under the lock
            waiting = [jobs[each] for each in ids if each in jobs and jobs[each].state == "WAITING"]
            adjustments.settle_waiting(sold, waiting, WORKER_ACTOR)

    def _claimable_rows(self, site: SiteContext, share: int) -> int:
        """None while conversions are held; what holds adjustments alone is their own breaker."""
        sold = adjustments.beside(site, WORKLOAD)
        held = sold.is_paused or not self._recheck_breaker(sold).max_rows(site.queue.now(), share)
        return 0 if held else super()._claimable_rows(site, share)

    def _split(self, site: SiteContext, jobs: Sequence[Job]) -> SplitRows:
        sold = adjustments.beside(site, WORKLOAD)
        conversions = sold.queue.find([str(job.payload.get("conversionId")) for job in jobs])
        rows: SplitRows = ([], [])
        for job in jobs:
            try:
                rows[0].append((job, _row(sold, job, conversions)))
            except Unsendable as problem:
                rows[1].append((job, problem))
        return rows


def _row(site: SiteContext, job: Job, conversions: Mapping[str, Job]) -> UploadRow:
    """The adjustment as it is sent; raises Unsendable."""
    payload, conversion = job.payload, conversions.get(str(job.payload.get("conversionId")))
    if conversion is None or conversion.tenant != job.tenant:
        raise Unsendable("UNKNOWN_CONVERSION", "externalId", adjustments.GONE)
    adjustments.check(site, conversion, payload["type"])
    sent = Conversion.from_payload(conversion.payload, adjustments.rules_of(site, conversion))
    if "value" in payload:
        sent = replace(sent, value=Decimal(str(payload["value"])), currency=payload["currency"])
    return UploadRow(job.id, sent, (payload["type"], datetime.fromisoformat(payload["adjustedAt"])))


def _site_trouble(site: SiteContext, rows: Sequence[UploadRow], sent: UploadResult) -> Trouble:
    """The trouble of the whole site; an action that Google refuses stops only its own rows."""
    pairs = zip(rows, sent.rows, strict=True)
    bad = {row.conversion.action for row, it in pairs if _ABOUT_ACTION in (it.code or "")}
    others = {action.id for action in site.settings.actions} - {it.id for it in bad if it}
    is_blamed = sent.trouble and _ABOUT_ACTION in sent.trouble.code
    return None if is_blamed and len(bad) == 1 and others else sent.trouble


def _rotate(sites: Sequence[SiteContext], turn: int) -> Sequence[SiteContext]:
    """The sites, starting with another site each turn."""
    first = turn % len(sites) if sites else 0
    return [*sites[first:], *sites[:first]]


def fair_shares(waiting: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """Share a limit by backlog, at least one row each, the longest backlog first."""
    backlog = {site: count for site, count in waiting.items() if count > 0}
    if limit is None or sum(backlog.values()) <= limit:
        return {site: min(count, MAX_ROWS) for site, count in backlog.items()}
    shares = dict.fromkeys(sorted(backlog, key=lambda site: (-backlog[site], site)), 0)
    for _ in range(limit):
        shares[min(shares, key=lambda site: shares[site] / backlog[site])] += 1
    return {site: min(count, MAX_ROWS) for site, count in shares.items() if count}
