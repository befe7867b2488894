"""A service with two sites, on each database, with a clock that the test moves."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.engine.sweeper import Sweeper
from kesin.engine.workload import WorkloadContext
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import STAGES, Stage
from kesin.store.directory import Site
from kesin.workloads.oci.google.channels import channels_of
from kesin.workloads.oci.google.circuit_breaker import Breaker, read_breaker
from kesin.workloads.oci.google.credentials import vault_name
from kesin.workloads.oci.uploader import build_worker
from tests.web.conftest import (  # noqa: F401  # two of them are fixtures
    CRON_SECRET,
    ROOT,
    World,
    _plain_logs,
    _quick_hashes,
    opened,
)
from tests.workloads.oci.fake_google import VERSION, GoogleServer

SITE = "north"
OTHER = "south"
CRON = {"authorization": f"Bearer {CRON_SECRET}"}
MINUTE = 60
HOUR = 3_600
DAY = 86_400
SECRET_KEYS = "first:" + "A" * 43


class Oci(World):
    """The world, with short methods for conversions."""

    def __init__(self, store: Any, folder: Path, **settings: Any) -> None:
        super().__init__(store, folder, **settings)
        self.site(SITE, OTHER)
        self.ingest_key = self.key("oci:ingest", site=SITE)
        self.script_key = self.key("oci:script", site=SITE)
        self.other_key = self.key("oci:script", site=OTHER)
        self.reader = self.key("read")
        self.operator = self.key("operate")

    @property
    def queue(self) -> Queue:
        return self.service.queues["oci"]

    @property
    def context(self) -> WorkloadContext:
        return self.service.workload_context("oci")

    def place(self, site: str = SITE) -> Site:
        found = self.accounts.find_site(site)
        assert found is not None
        return found

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

    # Requests

    def post(self, rows: Any, *, site: str = SITE, headers: Any = None) -> list[dict[str, Any]]:
        """Post conversions; returns the results."""
        key = headers or (self.ingest_key if site == SITE else self.key("oci:ingest", site=site))
        answer = self.client.post(f"/api/oci/conversions?siteId={site}", json=rows, headers=key)
        assert answer.status_code == 200, answer.text
        results: list[dict[str, Any]] = answer.json()["results"]
        return results

    def queued(self, count: int = 1, *, site: str = SITE, first: int = 1) -> list[str]:
        """Enqueue this many conversions; returns their ids."""
        results = self.post([self.row(first + n) for n in range(count)], site=site)
        assert all(result["result"] == "queued" for result in results)
        return [result["id"] for result in results]

    def export(
        self, *, limit: int = 1_000, site: str = SITE, headers: Any = None
    ) -> list[dict[str, Any]]:
        """Export as a script; the rows are in PROCESSING afterwards."""
        answer = self.client.get(
            f"/api/oci/google-ads-export?siteId={site}&markAsExported=true&limit={limit}",
            headers=headers or (self.script_key if site == SITE else self.other_key),
        )
        assert answer.status_code == 200, answer.text
        items: list[dict[str, Any]] = answer.json()
        return items

    def ack(self, ids: Sequence[str], *, site: str = SITE, headers: Any = None) -> dict[str, Any]:
        return self._report("/api/oci/ack", {"siteId": site, "queueIds": seals(ids)}, headers)

    def ack_failed(
        self, ids: Sequence[str], *, site: str = SITE, headers: Any = None, **fields: Any
    ) -> dict[str, Any]:
        body = {"siteId": site, "queueIds": seals(ids), **fields}
        return self._report("/api/oci/ack-failed", body, headers)

    def _report(self, path: str, body: dict[str, Any], headers: Any) -> dict[str, Any]:
        answer = self.client.post(path, json=body, headers=headers or self.script_key)
        assert answer.status_code == 200, answer.text
        response_body: dict[str, Any] = answer.json()
        return response_body

    def act(self, action: str, ids: Sequence[str] | None = None, **fields: Any) -> dict[str, Any]:
        body = {"siteId": SITE, "action": action, **({} if ids is None else {"ids": list(ids)})}
        answer = self.client.post(
            "/api/oci/queue-actions", json={**body, **fields}, headers=self.operator
        )
        assert answer.status_code == 200, answer.text
        done: dict[str, Any] = answer.json()
        return done

    def stats(self, site: str = SITE) -> dict[str, Any]:
        answer = self.client.get(f"/api/oci/queue-stats?siteId={site}", headers=self.reader)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def rows(self, **wanted: Any) -> list[dict[str, Any]]:
        answer = self.client.get(
            "/api/oci/queue-rows", params={"siteId": SITE, **wanted}, headers=self.reader
        )
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["rows"]
        return found

    def shown(self, job_id: str) -> dict[str, Any]:
        """A row as operators see it."""
        return self.rows(q=job_id)[0]

    def cron(self, task: str, **params: Any) -> dict[str, Any]:
        answer = self.client.post(f"/api/cron/oci/{task}", params=params, headers=CRON)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    # The queue itself

    def sweep(self, *stages: Stage) -> dict[str, int]:
        """Run the sweeper; returns what it moved."""
        swept = Sweeper([self.queue]).sweep(stages or STAGES)
        return {move: n for (_, move), n in swept.moved.items() if n}

    def states(self, ids: Sequence[str]) -> list[str]:
        return [self.state(job_id) for job_id in ids]

    def look(self, job_id: str) -> Job:
        return self.found(job_id)

    def raw(self, payload: Any, *, site: str = SITE, **how: Any) -> str:
        """Enqueue a row without validation; returns its id."""
        return self.queue.enqueue(payload, tenant=site, **how).id


def seals(ids: Sequence[str]) -> list[str]:
    """Ids as the script knows them."""
    return [job_id if job_id.startswith("seal_") else f"seal_{job_id}" for job_id in ids]


def bare(items: Sequence[dict[str, Any]]) -> list[str]:
    """The ids of exported items, without the seal prefix."""
    return [item["id"].removeprefix("seal_") for item in items]


@pytest.fixture(params=["sqlite", "postgres"])
def oci(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Oci]:
    """A service with the script sites north and south."""
    with ExitStack() as stack:
        world = Oci(opened(request.param, tmp_path, request, stack), tmp_path)
        stack.enter_context(world.kept())
        yield world


@pytest.fixture
def google() -> Iterator[GoogleServer]:
    """A local Google server."""
    with GoogleServer() as server:
        yield server


class ApiSites(Oci):
    """The site north uploads through our worker; south has a script."""

    google: GoogleServer

    def switch(self, channel: str, *, site: str = SITE, **credentials: str) -> None:
        """Move a site to another channel, with credentials that work unless they are changed."""
        self.accounts.set_site(ROOT, site, channel=channel)
        self.credentials(site=site, **credentials)

    def credentials(self, *, site: str = SITE, **changes: str) -> None:
        told = self.google.credentials(**changes)
        self.context.vault.put(ROOT, vault_name(site), told.to_text())

    def turn(self, limit: int | None = None) -> dict[str, int]:
        """Run one turn of our worker; returns the number of rows by state."""
        channels = channels_of(self.settings)
        worker = build_worker(self.context, channels, limit=limit, threads=1, rng=random.Random(1))
        return dict(worker.run_once())

    def breaker(self, site: str = SITE) -> Breaker:
        return read_breaker(self.context, self.place(site))


@pytest.fixture(params=["sqlite", "postgres"])
def api(request: pytest.FixtureRequest, tmp_path: Path, google: GoogleServer) -> Iterator[ApiSites]:
    """A service whose site north is on the channel ``api``."""
    with ExitStack() as stack:
        store = opened(request.param, tmp_path, request, stack)
        world = ApiSites(
            store,
            tmp_path,
            secret_keys=SECRET_KEYS,
            oci_google_url=google.url,
            oci_google_version=VERSION,
            oci_data_manager_url=google.url,
            oci_token_url=google.token_url,
            oci_timeout_s=5,
        )
        world.google = google
        stack.enter_context(world.kept())
        world.switch("api")
        yield world
        channels_of.cache_clear()
