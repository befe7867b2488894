"""Two sites and everything that happens to their rows, with what must hold whatever happens.

A history sends requests and remembers the responses; after every step it compares each row as
an operator sees it, as it is stored and as its events say. One service serves all histories:
each ends with every row pruned, and the clock only moves forward.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.replay import verify
from kesin.foundation.ids import IdMaker
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import OWNED, Stage
from kesin.store.contract import Store
from kesin.workloads.oci.api import control_routes
from kesin.workloads.oci.conversions.conversion import key_of
from kesin.workloads.oci.google.channel import RowAccepted, RowRefused
from kesin.workloads.oci.google.circuit_breaker import close_breaker
from kesin.workloads.oci.operations import STATES
from kesin.workloads.oci.uploader import DUPLICATE_CLICK_CODES, AdjustmentUploader, Uploader
from tests.web.conftest import ROOT
from tests.workloads.oci.google_in_hand import CREDENTIALS, Google
from tests.workloads.oci.own_site import CRON, DAY, HOUR, SECRET_KEYS, Oci, seals
from tests.workloads.oci.seen import Seen, check_row

SITE, OTHER = SITES = ("north", "south")
SCRIPTS = ("first", "second")
KEPT_DAYS = {"COMPLETED": 90, "FAILED": 365}
AGES_D = (0.1, 1, 2, 10, 60, 89)  # of the sales, when the history begins


class TwoSites(Oci):
    """The service of all histories, with a key for everybody."""

    def __init__(self, store: Store, folder: Path) -> None:
        super().__init__(store, folder, secret_keys=SECRET_KEYS)
        self.site(*SITES)
        self.google = Google()
        self.histories = 0  # to run
        self.chance = random.Random()
        self.made: set[tuple[str, str, str]] = set()  # (move, from, to) of all histories
        self.producers = {site: self.key("oci:ingest", site=site) for site in SITES}
        self.scripts = {(site, name): self.key("oci:script", site=site) for site in SITES for name in SCRIPTS}
        admin = self.key("admin")
        for site in SITES:
            self.accounts.set_site_settings(ROOT, site, "oci", {"conversion_name": "Phone sale"})
            body = {"siteId": site, "credentials": CREDENTIALS}
            answer = self.client.put("/api/oci/credentials", json=body, headers=admin)
            assert answer.status_code == 200, answer.text

    def to_google(self, patch: pytest.MonkeyPatch) -> None:
        """Let the routes reach the fake Google of the current history."""
        ways = _Ways(self)
        patch.setattr(control_routes, "channels_of", lambda _settings: ways)
        for kind in (Uploader, AdjustmentUploader):
            patch.setattr(control_routes, kind.__name__, partial(kind, rng=self.chance))

    def draw_as_before(self) -> None:
        """The same lots and, but for their times, the same ids: a history can be repeated."""
        self.chance.seed(1)
        self.context.queue._ids = IdMaker(self.clock, seed=1)


class _Ways(Mapping[str, Google]):
    """Both channels of our worker lead to the same Google."""

    def __init__(self, sites: TwoSites) -> None:
        self._sites = sites

    def __getitem__(self, name: str) -> Google:
        if name not in {"api", "data_manager"}:
            raise KeyError(name)
        return self._sites.google

    def __iter__(self) -> Any:
        return iter(("api", "data_manager"))

    def __len__(self) -> int:
        return 2


class History:
    """One history: what was said so far, and what the rows looked like after the last step."""

    def __init__(self, sites: TwoSites) -> None:
        self.oci = sites
        self.google = sites.google = Google()
        self.start = datetime.fromtimestamp(sites.clock.monotonic(), UTC)
        self.memory: dict[tuple[str, str], dict[str, int]] = {who: {} for who in sites.scripts}
        self.exported: dict[str, int] = {}  # row → its corrections when it was last handed out
        self.acked: set[str] = set()
        self.held: dict[tuple[str, str], str] = {}  # (site, key) → the row that the result named
        self.paused: set[str] = set()
        self.channel = dict.fromkeys(SITES, "script")
        self.seen: dict[str, Seen] = {}
        self.touched: set[str] = set(SITES)
        sites.draw_as_before()
        for site in SITES:
            self.switch(site, "script")
            close_breaker(sites.place(site))
        for site in ("", *SITES):
            sites.queue.resume(tenant=site)
        self._forget_others()

    def _forget_others(self) -> None:
        """Rows of a history that failed."""
        for _ in range(20):
            if not list(self.oci.store.scan("oci")):
                return
            self.oci.clock.advance(100 * DAY)
            self.oci.sweep()
        raise AssertionError("some rows never go")

    @property
    def now(self) -> int:
        return self.oci.clock.time_us

    def sale(self, number: int, version: int = 0, **changes: Any) -> dict[str, Any]:
        """The same whenever it is posted; a version differs in its value."""
        at = self.start - timedelta(days=AGES_D[(number - 1) % len(AGES_D)])
        body = {"conversionTime": at.isoformat(timespec="seconds"), "conversionValue": 100 + version}
        return self.oci.row(number, **{**body, **changes})

    def of(self, site: str) -> dict[str, Seen]:
        """The rows of a site, the oldest first."""
        return {key: one for key, one in self.seen.items() if one.job.tenant == site}

    def ask(self, method: str, path: str, status: int = 200, **how: Any) -> Any:
        answer = self.oci.client.request(method, path, **how)
        assert answer.status_code == status, answer.text
        return answer

    # After every step

    def check(self) -> None:
        """Look at everything, hold it against what was before, and remember it."""
        before, self.seen = self.seen, self._look()
        now = self.seen
        for job_id, seen in now.items():
            check_row(seen)
            known = len(before[job_id].events) if job_id in before else 0
            new_ones = seen.events[known:]
            self.oci.made |= {(one.move, one.from_state, one.to_state) for one in new_ones}
        for job_id, old in before.items():
            new = now.get(job_id)
            if new is None:
                self._check_gone(old)
                continue
            assert new.row["orderId"] == old.row["orderId"]
            assert new.row["externalId"] == old.row["externalId"]
            if old.job.tenant not in self.touched or old.state == "COMPLETED":
                assert new == old, "it changed and nothing was asked of it"
        for job_id in now.keys() - before.keys():
            assert now[job_id].job.tenant in self.touched
        for held in self.held.values():
            assert held in now or held in before, "an accepted row is not there"
        self.held = {key: one for key, one in self.held.items() if one in now}
        self.acked &= now.keys()
        lost = [one for one in self.acked if now[one].state != "COMPLETED"]
        assert not lost, "an acknowledgement was lost"
        self.touched = set()

    def _look(self) -> dict[str, Seen]:
        """The rows of each site; requested again where something changed."""
        before = {job_id: one.job for job_id, one in self.seen.items()}
        stored = {job.id: (job, events) for job, events in self.oci.store.scan("oci")}
        seen: dict[str, Seen] = {}
        counts = {site: dict.fromkeys(STATES, 0) for site in SITES}
        for site in SITES:
            own = {job_id: one for job_id, one in stored.items() if one[0].tenant == site}
            old = {job_id: job for job_id, job in before.items() if job.tenant == site}
            if {job_id: job for job_id, (job, _) in own.items()} == old:
                rows = {job_id: self.seen[job_id].row for job_id in own}
            else:
                rows = {row["id"]: row for row in self._rows(site)}
            assert rows.keys() == own.keys()
            seen |= {job_id: Seen(*one, rows[job_id]) for job_id, one in own.items()}
            keys = [job.dedup_key for job, _ in own.values() if job.dedup_key]
            assert len(keys) == len(set(keys)), "two rows hold one key"
            for row in rows.values():
                counts[site][row["status"]] += 1
        assert len(seen) == len(stored)
        if seen != self.seen:
            self._check_stats(seen, counts)
        return seen

    def _check_stats(self, seen: dict[str, Seen], counts: dict[str, dict[str, int]]) -> None:
        path = "/api/oci/queue-stats?scope=multi"
        stats = self.ask("GET", path, headers=self.oci.reader).json()
        assert {site["siteId"]: site["totals"] for site in stats["sites"]} == counts
        leases = [one.job.lease_until or 0 for one in seen.values() if one.job.phase == OWNED]
        assert stats["stuckProcessing"] == sum(until <= self.now for until in leases)

    def _rows(self, site: str) -> list[dict[str, Any]]:
        path = f"/api/oci/queue-rows?siteId={site}&limit=200"
        page = self.ask("GET", path, headers=self.oci.reader).json()
        assert page["nextCursor"] is None
        rows: list[dict[str, Any]] = page["rows"]
        return rows

    def _check_gone(self, old: Seen) -> None:
        assert old.state in KEPT_DAYS, f"a row went from {old.state}"
        assert old.job.finished_at is not None
        age_d = (self.now - old.job.finished_at) / 1_000_000 / DAY
        assert age_d >= KEPT_DAYS[old.state], "it went too early"
        self.oci.made.add(("prune", old.state, ""))

    # Producers

    def post(self, site: str, rows: Sequence[dict[str, Any]]) -> None:
        self.touched = {site}
        path = f"/api/oci/conversions?siteId={site}"
        answer = self.ask("POST", path, json=list(rows), headers=self.oci.producers[site])
        results = answer.json()["results"]
        holders = {one.job.dedup_key: one for one in self.of(site).values()}
        corrected: set[str] = set()
        fresh: dict[str, str] = {}
        for row, result in zip(rows, results, strict=True):
            key = key_of(row.get("externalId", ""), row.get("revision", 1))
            holder = holders.get(key)
            if "gclid" not in row or not key or (holder is None and row.get("revision")):
                assert result["result"] == "rejected", result
                assert result["code"], result
                continue
            expected = "duplicate"
            if holder is None:
                expected = "duplicate" if key in fresh else "queued"
                fresh.setdefault(key, result["id"])
            elif (
                (holder.state, holder.job.error_category) == ("FAILED", "VALIDATION")
                and holder.job.payload["conversionValue"] != row["conversionValue"]
                and key not in corrected
            ):
                expected = "corrected"
                corrected.add(key)
            assert result["result"] == expected, (row, result)
            assert result["id"] == (holder.job.id if holder else fresh[key])
            self.held[site, key] = result["id"]

    # Scripts

    def export(self, site: str, script: str, limit: int) -> None:
        self.touched = {site}
        answer = self.oci.client.get(
            "/api/oci/google-ads-export",
            params={"siteId": site, "markAsExported": "true", "limit": limit},
            headers=self.oci.scripts[site, script],
        )
        if self.channel[site] != "script":
            assert answer.status_code == 409, answer.text
            return
        assert answer.status_code == 200, answer.text
        items = answer.json()
        if {"", site} & self.paused:
            assert (items, answer.headers.get("x-kesin-paused")) == ([], "true")
            return
        due = {key: one for key, one in self.of(site).items() if one.is_due(self.now) and one.is_sendable}
        got = [item["id"].removeprefix("seal_") for item in items]
        assert set(got) <= due.keys(), "a row that was held, ended or not due was handed out"
        assert len(got) == len(set(got)) == min(limit, len(due))
        for job_id, item in zip(got, items, strict=True):
            one = due[job_id]
            assert item["orderId"] == one.row["orderId"]
            assert item["conversionValue"] == one.job.payload["conversionValue"]
            self.memory[site, script][job_id] = self.exported[job_id] = one.corrections

    def ack(self, site: str, script: str, ids: Sequence[str]) -> None:
        """Whatever a script says it delivered: what was handed out since its data changed is so."""
        self.touched = {site}
        body = self._report(site, script, "/api/oci/ack", ids)
        done, refused = 0, set()
        for job_id in ids:
            one = self.of(site).get(job_id)
            if one and self.exported.get(job_id) == one.corrections:
                self.acked.add(job_id)
                done += one.state != "COMPLETED"
            elif not one or one.state != "COMPLETED":
                refused.add(f"seal_{job_id}")
        assert (body["updated"], {refusal["id"] for refusal in body["refused"]}) == (done, refused)

    def ack_failed(self, site: str, script: str, ids: Sequence[str], category: str) -> None:
        self.touched = {site}
        code = f"TOLD_{category}"
        how = {"errorCode": code, "errorMessage": "it broke", "errorCategory": category}
        body = self._report(site, script, "/api/oci/ack-failed", ids, **how)
        states = {job_id: one.state for job_id, one in self.of(site).items()}
        working = [job_id for job_id in ids if states.get(job_id) == "PROCESSING"]
        refused = {f"seal_{job_id}" for job_id in ids if states.get(job_id) not in ("PROCESSING", "FAILED")}
        assert body["updated"] == len(working)
        assert {refusal["id"] for refusal in body["refused"]} == refused
        for job_id in working:
            job = self.oci.found(job_id)
            assert (job.state, job.error_code, job.error_category) == ("FAILED", code, category)

    def _report(self, site: str, script: str, path: str, ids: Sequence[str], **fields: Any) -> dict[str, Any]:
        report = {"siteId": site, "queueIds": seals(ids), **fields}
        answer = self.ask("POST", path, json=report, headers=self.oci.scripts[site, script])
        body: dict[str, Any] = answer.json()
        return body

    # People

    def act(self, site: str, action: str, **fields: Any) -> dict[str, Any]:
        """An operator's action; as many rows as it tells have moved, and no other."""
        self.touched = {site}
        body = {"siteId": site, "action": action, **fields}
        path = "/api/oci/queue-actions"
        answer: dict[str, Any] = self.ask("POST", path, json=body, headers=self.oci.operator).json()
        stored = dict(self._stored(site))
        moved = [one for one in stored if one not in self.seen or stored[one] > self.seq(one)]
        assert answer["affected"] == len(moved), (answer, moved)
        stayed = {refusal["id"] for refusal in answer["refused"]}
        assert not stayed & set(moved)
        return answer

    def _stored(self, site: str) -> Iterable[tuple[str, int]]:
        for job, _ in self.oci.store.scan("oci"):
            if job.tenant == site:
                yield job.id, job.seq

    def seq(self, job_id: str) -> int:
        return self.seen[job_id].job.seq

    def steer(self, site: str | None, *, on: bool) -> None:
        path = f"/api/queues/oci/{'pause' if on else 'resume'}"
        self.ask("POST", path, json={"site": site}, headers=self.oci.operator)
        (self.paused.add if on else self.paused.discard)(site or "")

    def switch(self, site: str, channel: str) -> None:
        if self.oci.place(site).channel != channel:
            self.oci.accounts.set_site(ROOT, site, channel=channel)
        self.channel[site] = channel

    # Our worker

    def turn(self, limit: int, meanwhile: Callable[[Sequence[str]], None] | None = None) -> None:
        """A turn of our worker; every row it sent stands as Google's answer says."""
        google = self.google
        self.touched = {site for site in SITES if self.channel[site] != "script"}
        google.sent, google.meanwhile = {}, meanwhile
        path = f"/api/cron/oci/process-offline-conversions?limit={limit}"
        body = self.ask("POST", path, headers=CRON).json()
        google.meanwhile = None
        assert len(google.sent) <= limit
        if meanwhile is None:
            assert body["processed"] == len(google.sent)
        for job_id, answer in google.sent.items():
            was, job = self.seen[job_id], self.oci.found(job_id)
            assert was.is_due(self.now) or meanwhile
            assert not {"", job.tenant} & self.paused
            mended = was.corrections != sum(event.move == "correct" for event in self.oci.queue.events(job_id))
            self.exported[job_id] = was.corrections
            if isinstance(answer, RowAccepted) and answer.code is None and not mended:
                self.acked.add(job_id)
            if meanwhile is None:
                self._check_answered(job, answer)

    def _check_answered(self, job: Job, answer: RowAccepted | RowRefused) -> None:
        if isinstance(answer, RowAccepted):
            state = "FAILED" if answer.code in DUPLICATE_CLICK_CODES and self._is_twin(job) else "COMPLETED"
            assert (job.state, job.error_code) == (state, answer.code)
        elif not answer.was_sent:
            assert job.state == "RETRY"
        else:
            again = answer.category in (Category.TRANSIENT, Category.RATE_LIMIT)
            assert job.state == ("RETRY" if again else "FAILED")
            assert (job.error_code, job.error_category) == (answer.code, answer.category.value)

    def _is_twin(self, job: Job) -> bool:
        """Google cannot have this row yet, and may have another with its click and second."""
        first = job.attempt_count - job.return_count - job.retry_count <= 1
        others = [one.click for key, one in self.seen.items() if key != job.id]
        return first and self.seen[job.id].click in others

    # The clock

    def sweep(self, *stages: Stage) -> None:
        self.touched = set(SITES)
        self.oci.sweep(*stages)

    def cron(self, task: str, **params: Any) -> None:
        self.touched = set(SITES)
        self.oci.cron(task, **params)

    def end(self) -> None:
        """Nobody comes any more: every row comes to rest, stays there, and goes in the end."""
        assert verify(self.oci.store, "oci"), "a row and its history disagree"
        for seconds in (HOUR, 25 * HOUR, 91 * DAY, HOUR, HOUR):
            self.oci.clock.advance(seconds)
            self.sweep()
            self.check()
        moving = [one.state for one in self.seen.values() if one.state not in KEPT_DAYS]
        assert not moving, "some rows never come to rest"
        rest = {job_id: one.job.seq for job_id, one in self.seen.items()}
        self.oci.clock.advance(DAY)
        self.sweep()
        self.check()
        assert all(rest[job_id] == one.job.seq for job_id, one in self.seen.items())
        assert verify(self.oci.store, "oci")
        self.oci.clock.advance(366 * DAY)
        self.sweep("prune")
        self.check()
        assert not self.seen
        assert verify(self.oci.store, "oci")
