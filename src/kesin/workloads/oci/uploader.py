"""Our own worker: uploads the rows of every site that is not left to a script.

One lane serves a site at a time, so a site whose Google is slow holds up nobody else. Before rows
are claimed their data, the site's credentials and its breaker are looked at; what is claimed is
sent. A row's answer follows from the error table and nothing else.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kesin.engine.results import Act, Answer
from kesin.engine.worker import Worker
from kesin.engine.worker_thread import Share
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import Logger
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.directory import Site
from kesin.store.records import Filter
from kesin.workloads.oci.conversions.conversion import Conversion, Unsendable
from kesin.workloads.oci.google import pending_uploads
from kesin.workloads.oci.google.channel import (
    MAX_ROWS,
    Accepted,
    Channel,
    Refused,
    Row,
    Sent,
    Trouble,
)
from kesin.workloads.oci.google.circuit_breaker import (
    ACTOR,
    Breaker,
    breaker_of,
    close,
    opened,
    tell,
)
from kesin.workloads.oci.google.credentials import Credentials, vault_name
from kesin.workloads.oci.google.error_table import CIRCUIT_OPEN
from kesin.workloads.oci.lifecycle import limits_of
from kesin.workloads.oci.script import WAITING, reject_unsendable
from kesin.workloads.oci.site import is_paused

log = Logger("kesin.oci")

LANES: Final = 4
LEASE_S: Final = 120  # renewed while an upload lasts
POLL_S: Final = 2.0
_SITE_CHANGED: Final = Refused(
    CIRCUIT_OPEN, "not sent: the site changed meanwhile", Category.TRANSIENT
)
MOST_TWINS: Final = 100  # rows of one click that are looked at
BY_CLICK: Final = ("CLICK_CONVERSION_ALREADY_EXISTS", "CALL_CONVERSION_ALREADY_EXISTS")


class Uploader:
    """Whom to serve next, and what to tell about each row."""

    def __init__(
        self,
        house: WorkloadContext,
        channels: Mapping[str, Channel],
        *,
        limit: int | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._house = house
        self._channels = channels
        self._limit = limit
        self._random = chance or random.Random()
        self._limits = limits_of(house.settings)
        self._lock = threading.Lock()
        self._served: set[str] = set()
        self._uploaded: dict[str, float] = {}  # when each site last did, in monotonic seconds
        self._turns = 0

    # Whom to serve

    def plan(self) -> Iterator[Share]:
        """The sites with waiting rows, each with as many as it may send now."""
        directory = self._house.commands.accounts.directory
        sites = [one for one in directory.sites() if one.channel in self._channels]
        shares = self._shares(sites)
        with self._lock:
            self._turns += 1
            turn = self._turns
        for site in _rotated([one for one in sites if shares.get(one.id)], turn):
            with self._serving(site) as free:
                rows = self._ready(site, shares[site.id]) if free and self._is_time(site) else 0
                if rows:
                    yield Share((site.id,), rows)
        for site in _rotated(sites, turn):
            with self._serving(site) as free:
                if free:
                    pending_uploads.ask(self._house, site, self._channels[site.channel])

    def _shares(self, sites: Sequence[Site]) -> dict[str, int]:
        """What each site may send. A limit is only shared between those that can use it now."""
        queue = self._house.queue
        counts = queue.stats().tenants if sites else {}
        waiting = {
            one.id: sum(counts.get(one.id, {}).get(state, 0) for state in WAITING) for one in sites
        }
        if self._limit is not None:
            for site in sites:
                open_ = breaker_of(self._house, site).rows(queue.now(), 1) == 0
                if not waiting[site.id] or open_ or is_paused(self._house, site):
                    waiting[site.id] = 0
                else:
                    due = len(queue.peek(limit=self._limit, tenants=[site.id]))
                    waiting[site.id] = due if due < self._limit else waiting[site.id]
        return fair_shares(waiting, self._limit)

    @contextmanager
    def _serving(self, site: Site) -> Iterator[bool]:
        """Whether the site is this lane's for the block; another may be at it."""
        with self._lock:
            free = site.id not in self._served
            if free:
                self._served.add(site.id)
        try:
            yield free
        finally:
            if free:
                with self._lock:
                    self._served.discard(site.id)

    def _is_time(self, site: Site) -> bool:
        """Google counts requests, not rows: rows that come singly wait and go together."""
        last = self._uploaded.get(site.id)  # None too after a full request: there is more
        every_s = self._house.settings.oci_upload_every_s
        return last is None or self._house.queue.clock.monotonic() - last >= every_s

    def _ready(self, site: Site, share: int) -> int:
        """How many rows of the site may be claimed now: none while something is wrong with it."""
        if is_paused(self._house, site):
            return 0
        breaker = self._look(site)
        rows = breaker.rows(self._house.queue.now(), min(share, MAX_ROWS))
        if not rows:
            return 0
        credentials = opened(self._house, site)
        trouble = (
            credentials
            if isinstance(credentials, Trouble)
            else self._channels[site.channel].ready(credentials)
        )
        if trouble is not None:
            self._tell(site, trouble)
            return 0
        reject_unsendable(self._house, site, limit=rows, actor=ACTOR)
        return rows

    def _look(self, site: Site) -> Breaker:
        """The site's breaker; one that wrong credentials opened may close here."""
        breaker = breaker_of(self._house, site)
        if breaker.kind != "AUTH":
            return breaker
        secret = self._house.commands.accounts.directory.secret(vault_name(site.id))
        if secret and breaker.opened_at and secret.changed_at > breaker.opened_at:
            return close(self._house, site)
        if not breaker.wants_check(self._house.queue.now()):
            return breaker
        credentials = opened(self._house, site)
        if isinstance(credentials, Trouble):
            return self._tell(site, credentials)
        findings = self._channels[site.channel].check(credentials)
        wrong = next((one for one in findings if not one.ok), None)
        if wrong is None:
            return close(self._house, site)
        return self._tell(site, Trouble("AUTH", breaker.code, wrong.detail))

    def _tell(self, site: Site, trouble: Trouble | None) -> Breaker:
        return tell(self._house, site, trouble, chance=self._random.random())

    # What to tell about each row

    def upload(self, jobs: Sequence[Job]) -> list[Answer]:
        """Send the rows of one site; one answer each."""
        directory = self._house.commands.accounts.directory
        site = directory.site(jobs[0].tenant)
        channel = self._channels.get(site.channel) if site else None
        credentials = opened(self._house, site) if site else None
        if site is None or channel is None or not isinstance(credentials, Credentials):
            return [self._given_back(job) for job in jobs]  # it changed since we looked
        rows: list[Row] = []
        answers: dict[str, Answer] = {}
        for job in jobs:
            try:
                conversion = Conversion.of(job.data, site.id)
                rows.append(Row(job.id, conversion, job.attempt_count))
            except Unsendable as problem:
                answers[job.id] = Act(
                    "ack_failed",
                    code=problem.code,
                    message=problem.message,
                    category=Category.VALIDATION,
                )
        if rows:
            if len(rows) == MAX_ROWS:
                self._uploaded.pop(site.id, None)
            else:
                self._uploaded[site.id] = self._house.queue.clock.monotonic()
            sent = channel.upload(credentials, rows)
            by_id = {job.id: job for job in jobs}
            for row, told in zip(rows, sent.rows, strict=True):
                answers[row.job_id] = self._answer(site, by_id[row.job_id], told, row.conversion)
            self._keep_in_mind(site, sent)
        return [answers[job.id] for job in jobs]

    def _keep_in_mind(self, site: Site, sent: Sent) -> None:
        """What an upload means for the site. What Google took is told whatever happens here."""
        try:
            self._tell(site, sent.trouble)
            if site.channel == "data_manager":
                pending_uploads.expect(self._house, site, sent.request_ids)
        except Exception:  # the rows' answers must not be lost for it
            log.exception("upload_not_noted", site=site.id, requests=list(sent.request_ids))
        log.info(
            "uploaded",
            site=site.id,
            rows=len(sent.rows),
            accepted=sum(isinstance(one, Accepted) for one in sent.rows),
            trouble=sent.trouble.code if sent.trouble else None,
        )

    def _answer(self, site: Site, job: Job, told: Accepted | Refused, sent: Conversion) -> Answer:
        result: dict[str, Any] = {"channel": site.channel}
        if told.note and "requestId" in told.note:
            result["requestId"] = told.note["requestId"]
        if isinstance(told, Accepted) and told.code is None:
            return Act("ack", result=result, note=told.note, fenced=False)  # Google has it
        if isinstance(told, Accepted) and self._is_twin(told, job, sent):
            return Act(
                "ack_failed",
                code=told.code,
                message=f"another conversion has this click and this second: {told.message}",
                category=Category.VALIDATION,
                note=told.note,
            )
        if isinstance(told, Accepted):
            return Act(
                "ack_duplicate",
                result=result,
                code=told.code,
                message=told.message,
                category=Category.PERMANENT,
                note=told.note,
            )
        if not told.was_sent:
            return self._given_back(job, told)
        errors = self._house.queue.lifecycle.errors
        found = errors.resolve(told.code, channel=site.channel, category=told.category)
        move = found.move
        if move == "too_recent" and job.retry_count >= self._limits.too_recent_waits:
            move = "retry_later"
        return Act(
            move, code=told.code, message=told.message, category=found.category, note=told.note
        )

    def _is_twin(self, told: Accepted, job: Job, sent: Conversion) -> bool:
        """Google has another row of this site with this click and this second.

        If this one was never sent before, what Google has is not it: it would be lost in silence.
        """
        if told.code not in BY_CLICK or job.attempt_count - job.return_count - job.retry_count > 1:
            return False
        same = Filter(tenants=(job.tenant,), contains=f'":"{sent.click[1]}"')
        others = self._house.queue.jobs(same, limit=MOST_TWINS).jobs
        return any(one.id != job.id and one.stamp_1 == sent.at_us for one in others)

    def _given_back(self, job: Job, told: Refused = _SITE_CHANGED) -> Answer:
        """Nothing was tried: the attempt is returned, while returns are left."""
        if job.return_count < self._house.queue.lifecycle.max_returns:
            return Act("release")
        return Act(
            "retry_later",
            code=told.code,
            message=told.message,
            category=Category.TRANSIENT,
        )


def _rotated(sites: Sequence[Site], turn: int) -> Sequence[Site]:
    """Each turn begins with another site."""
    first = turn % len(sites) if sites else 0
    return [*sites[first:], *sites[:first]]


def fair_shares(waiting: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """How many rows each site may send when a turn is limited: in proportion, and at least one.

    What rounding leaves over goes round; with more sites than rows, the longest lines go first.
    """
    lines = {site: n for site, n in waiting.items() if n > 0}
    total = sum(lines.values())
    if limit is None or total <= limit:
        return {site: min(n, MAX_ROWS) for site, n in lines.items()}
    longest = sorted(lines, key=lambda site: (-lines[site], site))[:limit]
    total = sum(lines[site] for site in longest)
    shares = {site: max(1, limit * lines[site] // total) for site in longest}
    while sum(shares.values()) > limit:
        shares[max(shares, key=lambda site: (shares[site], site))] -= 1
    left = limit - sum(shares.values())
    while left:
        for site in longest:
            if left and shares[site] < lines[site]:
                shares[site] += 1
                left -= 1
    return {site: min(n, MAX_ROWS) for site, n in shares.items()}


def worker_of(
    house: WorkloadContext,
    channels: Mapping[str, Channel],
    *,
    limit: int | None = None,
    threads: int = LANES,
    chance: random.Random | None = None,
) -> Worker:
    """A worker over an uploader; with a limit, for one turn that somebody asked for."""
    uploader = Uploader(house, channels, limit=limit, chance=chance)
    return Worker(
        house.queue,
        batch_handler=uploader.upload,
        plan=uploader.plan,
        threads=threads,
        batch=MAX_ROWS,
        lease_seconds=LEASE_S,
        channel="api",  # how a failure of our own is judged: it is tried again
        poll_s=POLL_S,
    )
