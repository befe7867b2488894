"""The worker of adjustments: settles those that wait, and sends those that are ready."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Final

from kesin.engine.worker_thread import ClaimShare
from kesin.lifecycle.model import Job
from kesin.store.records import Filter
from kesin.workloads.oci import uploader
from kesin.workloads.oci.adjustments import settling
from kesin.workloads.oci.adjustments.lifecycle import SENDABLE
from kesin.workloads.oci.conversions.conversion import Conversion, Unsendable
from kesin.workloads.oci.conversions.ingest import ClaimedMeanwhile
from kesin.workloads.oci.google.channel import UploadRow
from kesin.workloads.oci.google.circuit_breaker import WORKER_ACTOR
from kesin.workloads.oci.site import WORKLOAD, SiteContext

SETTLED_AT_ONCE: Final = 500  # waiting adjustments of a site; the next turn continues


class AdjustmentUploader(uploader.Uploader):
    """Sends adjustments as conversions are sent: with the same shares, breaker, credentials."""

    waiting_states = SENDABLE

    def plan(self) -> Iterator[ClaimShare]:
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
        cursor, sold = self._cursors.get(site.id), settling.beside(site, WORKLOAD)
        page = site.queue.jobs(where, limit=SETTLED_AT_ONCE, cursor=cursor)
        self._cursors[site.id] = page.cursor
        found = sold.queue.find([*map(settling.conversion_id, page.jobs)]) if page.jobs else {}
        pairs = ((job.id, found.get(settling.conversion_id(job))) for job in page.jobs)
        ids = [job_id for job_id, sale in pairs if not settling.is_under_way(sale)]
        if not ids:
            return  # no lock for what can only wait
        with suppress(ClaimedMeanwhile), settling.locked(site):  # else in the next turn
            jobs = site.queue.find(ids)  # as they are under the lock
            waiting = [jobs[each] for each in ids if each in jobs and jobs[each].state == "WAITING"]
            settling.settle_waiting(sold, waiting, WORKER_ACTOR)

    def _claimable_rows(self, site: SiteContext, share: int) -> int:
        """None while conversions are held; what holds adjustments alone is their own breaker."""
        sold = settling.beside(site, WORKLOAD)
        held = sold.is_paused or not self._recheck_breaker(sold).max_rows(site.queue.now(), share)
        return 0 if held else super()._claimable_rows(site, share)

    def _split(self, site: SiteContext, jobs: Sequence[Job]) -> uploader.SplitRows:
        sold = settling.beside(site, WORKLOAD)
        conversions = sold.queue.find([str(job.payload.get("conversionId")) for job in jobs])
        rows: uploader.SplitRows = ([], [])
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
        raise Unsendable("UNKNOWN_CONVERSION", "externalId", settling.GONE)
    settling.check(site, conversion, payload["type"])
    sent = Conversion.from_payload(conversion.payload, settling.rules_of(site, conversion))
    if "value" in payload:
        sent = replace(sent, value=Decimal(str(payload["value"])), currency=payload["currency"])
    return UploadRow(job.id, sent, (payload["type"], datetime.fromisoformat(payload["adjustedAt"])))


build_worker = partial(uploader.build_worker, threads=2, kind=AdjustmentUploader)
