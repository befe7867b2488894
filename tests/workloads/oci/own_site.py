"""A service that the tests of a module share, and a new site of it for each test.

Starting a service takes a third of a second, adding a site does not. Tests use only the rows of
their own sites; the clock is shared, so it only moves forward.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from kesin.engine.access.sites import site_uuid
from kesin.engine.queue import Queue
from kesin.engine.sweeper import Sweeper
from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import system_actor
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import STAGES, Stage
from kesin.store.audit_log import AuditLine
from kesin.store.records import Event, Filter
from kesin.workloads.oci import script
from kesin.workloads.oci.api.routes import _ingest_row
from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.conversions.parsing import parse_body
from kesin.workloads.oci.google.circuit_breaker import Breaker, read_breaker
from kesin.workloads.oci.google.connection_check import channels_of
from kesin.workloads.oci.google.credentials import vault_name
from kesin.workloads.oci.reconciliation import RECONCILIATION
from kesin.workloads.oci.site import SiteContext
from kesin.workloads.oci.uploader import Uploader
from tests.web.conftest import CRON_SECRET, ROOT, World
from tests.workloads.oci.fake_google import GoogleServer

PRODUCER, SCRIPT = system_actor("key:producer"), "key:script"
CRON = {"authorization": f"Bearer {CRON_SECRET}"}
MINUTE = 60
HOUR = 3_600
DAY = 86_400
SECRET_KEYS = "first:" + "A" * 43
NOT_DUE = 10**17  # a copy of Google's figures, unless a test is about it
NOWHERE = "00000000-0000-7000-8000-000000000000"
UNKNOWN = "this site has no such row"
_numbers = itertools.count(1)


class Oci(World):
    """The service, with short methods for the oci queue."""

    def __init__(self, store: Any, folder: Path, **settings: Any) -> None:
        super().__init__(store, folder, **settings)
        self.reader = self.key("read")
        self.operator = self.key("operate")

    @property
    def queue(self) -> Queue:
        return self.service.queues["oci"]

    @property
    def context(self) -> WorkloadContext:
        return self.service.workload_context("oci")

    def place(self, site_id: str) -> SiteContext:
        site = self.accounts.find_site(site_id)
        assert site is not None
        return SiteContext(self.context, site)

    def ago(self, seconds: float) -> str:
        """A conversion time this many seconds ago."""
        at = datetime.fromtimestamp(self.clock.monotonic(), UTC) - timedelta(seconds=seconds)
        return at.isoformat(timespec="seconds")

    def row(self, number: int = 1, **changes: Any) -> dict[str, Any]:
        """A sendable conversion; None removes a field."""
        row = {
            "externalId": f"sale-{number}",
            "gclid": f"Cj0KCQiA_click-{number:06d}",
            "conversionName": "Phone sale",
            "conversionTime": self.ago(DAY + number),
            "conversionValue": 100 + number,
            "conversionCurrency": "TRY",
        }
        return {name: value for name, value in {**row, **changes}.items() if value is not None}

    def enqueue_raw(self, payload: Any, *, site: str, **how: Any) -> str:
        """Enqueue a row without validation; returns its id."""
        return self.queue.enqueue(payload, tenant=site, **how).id

    def cron(self, task: str, **params: Any) -> dict[str, Any]:
        return dict(ok(self.client.post(f"/api/cron/oci/{task}", params=params, headers=CRON)))

    def sweep(self, *stages: Stage) -> dict[str, int]:
        """Run the sweeper; returns what it moved."""
        swept = Sweeper([self.queue]).sweep(stages or STAGES)
        return {move: n for (_, move), n in swept.moved.items() if n}

    def retire_rows(self) -> None:
        """Fail every row by hand, so that neither the clock nor a worker moves it again."""
        for action in ("RESET_TO_QUEUED", "MARK_FAILED"):
            self.queue.act(action, actor="tests", where=Filter())


class OwnSite:
    """A site of a single test, with short methods for its rows."""

    def __init__(self, oci: Oci, **how: Any) -> None:
        self.oci = oci
        self.client = oci.client
        self.clock = oci.clock
        self.row = oci.row
        self.cron = oci.cron
        self.id = f"site-{next(_numbers)}"
        oci.accounts.add_site(ROOT, self.id, **how)

    # Keys

    @cached_property
    def producer(self) -> dict[str, str]:
        return self.oci.key("oci:ingest", site=self.id)

    @cached_property
    def script(self) -> dict[str, str]:
        """The headers of its script."""
        return self.oci.key("oci:script", site=self.id)

    @cached_property
    def operator(self) -> dict[str, str]:
        return self.oci.key("operate", site=self.id)

    @property
    def reader(self) -> dict[str, str]:
        return self.oci.reader

    # The site

    @property
    def context(self) -> WorkloadContext:
        return self.oci.context

    @property
    def uuid(self) -> str:
        return site_uuid(self.id)

    @property
    def place(self) -> SiteContext:
        return self.oci.place(self.id)

    def change(self, **how: Any) -> None:
        """Change the site itself: its channel, zone or currency."""
        self.oci.accounts.set_site(ROOT, self.id, **how)

    def change_settings(self, **settings: Any) -> None:
        """Change its oci settings."""
        self.oci.accounts.set_site_settings(ROOT, self.id, "oci", settings)

    def pause(self) -> None:
        self.oci.queue.pause(actor="tests", tenant=self.id)

    def resume(self) -> None:
        self.oci.queue.resume(tenant=self.id)

    # Requests

    def request(self, method: str, path: str, headers: Any = None, **sent: Any) -> Any:
        """Request a path below /api/oci as the script, or with other headers."""
        return self.client.request(method, f"/api/oci/{path}", headers=headers or self.script, **sent)

    def ingest(self, body: str | bytes, kind: str = "application/json") -> Any:
        """Post a body as it is."""
        content = body if isinstance(body, bytes) else body.encode()
        headers = {**self.producer, "content-type": kind}
        params = {"siteId": self.id}
        return self.request("POST", "conversions", headers, params=params, content=content)

    def post(self, rows: Any) -> list[dict[str, Any]]:
        """Take in conversions as a body of JSON; returns the results."""
        _, parsed = parse_body(json.dumps(rows).encode(), "application/json")
        results = [_ingest_row(result) for result in ingest(self.place, parsed, actor=PRODUCER)]
        return list(json.loads(json.dumps(results)))

    def enqueue(self, count: int = 1, *, first: int = 1, **changes: Any) -> list[str]:
        """Enqueue this many conversions; returns their ids."""
        results = self.post([self.row(first + n, **changes) for n in range(count)])
        assert [result["result"] for result in results] == ["queued"] * count
        return [result["id"] for result in results]

    def export(self, limit: int = 1_000) -> list[dict[str, Any]]:
        """Export as a script; the rows are in PROCESSING afterwards."""
        return script.export(self.place, limit=limit, actor=SCRIPT)

    def request_export(self, headers: Any = None, **params: Any) -> Any:
        return self.request("GET", "google-ads-export", headers, params={"siteId": self.id, **params})

    def claim(self, count: int = 1, *, first: int = 1) -> list[str]:
        """Enqueue this many rows and export them; returns their ids."""
        ids = self.enqueue(count, first=first)
        assert bare(self.export()) == ids
        return ids

    def report(self, path: str, headers: Any = None, **fields: Any) -> Any:
        """Post a report of the script."""
        return self.request("POST", path, headers, json={"siteId": self.id, **fields})

    def ack(self, ids: Sequence[str]) -> dict[str, Any]:
        return script.ack(self.place, seals(ids), actor=SCRIPT)

    def ack_failed(self, ids: Sequence[str], **fields: Any) -> dict[str, Any]:
        names = {"code": "errorCode", "message": "errorMessage", "category": "errorCategory"}
        error = {name: fields.pop(field, None) for name, field in names.items()}
        assert not fields
        return script.ack_failed(self.place, seals(ids), **error, actor=SCRIPT)

    def fail(self, count: int = 1, *, category: str = "VALIDATION", first: int = 1) -> list[str]:
        """Enqueue this many rows, export them and report a failure; returns their ids."""
        ids = self.claim(count, first=first)
        self.ack_failed(ids, errorCode="BROKEN", errorMessage="it broke", errorCategory=category)
        return ids

    def row_in(self, state: str) -> str:
        """A row in this state; a failed one is TRANSIENT and has the code BROKEN."""
        [job_id] = self.enqueue() if state == "QUEUED" else self.claim()
        if state == "RETRY":
            self.wait(16 * MINUTE, "recover")
        elif state == "COMPLETED":
            self.ack([job_id])
        elif state == "FAILED":
            self.ack_failed([job_id], errorCode="BROKEN", errorCategory="TRANSIENT")
        assert self.state(job_id) == state
        return job_id

    def request_action(self, action: str, headers: Any = None, **fields: Any) -> Any:
        return self.report("queue-actions", headers or self.operator, action=action, **fields)

    def act(self, action: str, ids: Sequence[str] | None = None, **fields: Any) -> dict[str, Any]:
        chosen = {} if ids is None else {"ids": list(ids)}
        return dict(ok(self.request_action(action, **chosen, **fields)))

    def stats(self) -> dict[str, Any]:
        return dict(ok(self.request("GET", f"queue-stats?siteId={self.id}", self.reader)))

    def warnings(self) -> list[str]:
        """The codes of its warnings."""
        return [warning["code"] for warning in self.stats()["warnings"]]

    def page(self, **params: Any) -> Any:
        params = {"siteId": self.id, **params}
        return self.request("GET", "queue-rows", self.operator, params=params)

    def rows(self, **params: Any) -> list[dict[str, Any]]:
        return list(ok(self.page(**params))["rows"])

    def row_of(self, job_id: str) -> dict[str, Any]:
        """A row as operators see it."""
        return self.rows(q=job_id)[0]

    # The queue itself

    def enqueue_raw(self, payload: Any, **how: Any) -> str:
        """Enqueue a row without validation; returns its id."""
        return self.oci.enqueue_raw(payload, site=self.id, **how)

    def job(self, job_id: str) -> Job:
        return self.oci.found(job_id)

    def state(self, job_id: str) -> str:
        return self.job(job_id).state

    def states(self, ids: Sequence[str]) -> list[str]:
        return [self.state(job_id) for job_id in ids]

    def events(self, job_id: str) -> list[Event]:
        return self.oci.queue.events(job_id)

    def jobs(self) -> list[Job]:
        """Every job of the site."""
        return self.oci.queue.jobs(Filter(tenants=(self.id,)), limit=1_000).jobs

    def audit_lines(self, request: Callable[[], Any]) -> list[AuditLine]:
        """The audit log entries of a request, without those of creating keys."""
        assert self.operator
        assert self.script
        return self.oci.said(request)

    def sweep(self, *stages: Stage) -> dict[str, int]:
        """Run the sweeper over all sites."""
        return self.oci.sweep(*stages)

    def wait(self, seconds: float, *stages: Stage) -> None:
        """Advance the clock, then run the sweeper."""
        self.clock.advance(seconds)
        if stages:
            self.sweep(*stages)


class ApiSite(OwnSite):
    """A site that our worker uploads for, to a local Google server."""

    def __init__(self, oci: Oci, google: GoogleServer, channel: str = "api") -> None:
        super().__init__(oci)
        self.google = google
        self.switch(channel)

    def switch(self, channel: str) -> None:
        """Move the site to a channel, with credentials that work."""
        self.change(channel=channel)
        self.change_settings(conversion_name="Phone sale")
        self.put_credentials()
        self.place.put_metadata(RECONCILIATION, {"nextAt": NOT_DUE})

    def put_credentials(self, **changes: str) -> None:
        credentials = self.google.credentials(**changes)
        self.context.vault.put(ROOT, vault_name(self.id), credentials.to_text())

    def turn(self, limit: int | None = None) -> dict[str, int]:
        """Run one turn of our worker; returns the number of rows by state."""
        channels = channels_of(self.oci.settings)
        worker = Uploader(self.context, channels, limit=limit, threads=1, rng=random.Random(1))
        return dict(worker.run_once())

    def breaker(self) -> Breaker:
        return read_breaker(self.place)


def seals(ids: Sequence[str]) -> list[str]:
    """Ids as the script knows them."""
    return [job_id if job_id.startswith("seal_") else f"seal_{job_id}" for job_id in ids]


def bare(items: Sequence[dict[str, Any]]) -> list[str]:
    """The ids of exported items, without the seal prefix."""
    return [item["id"].removeprefix("seal_") for item in items]


def ok(response: Any) -> Any:
    """The body of a successful response."""
    assert response.status_code == 200, response.text
    return response.json()


def refused(response: Any, status: int) -> dict[str, Any]:
    """The error of a response with this status."""
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    return error
