"""A new site for each test, in a service that the tests of a module share.

For tests that only use their own rows: starting a service takes a third of a second, adding a site
does not. The clock is shared too, so it only moves forward.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import pytest

from kesin.engine.access.sites import site_uuid
from kesin.engine.workload import WorkloadContext
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import Stage
from kesin.store.directory import AuditLine, Site
from kesin.store.records import Event, Filter
from tests.web.conftest import ROOT, opened
from tests.workloads.oci.conftest import SECRET_KEYS, Oci, seals

BOTH = ["sqlite", "postgres"]
_numbers = itertools.count(1)


class OwnSite:
    """A site of a single test, with short methods for its rows."""

    def __init__(self, oci: Oci, **how: Any) -> None:
        self.oci = oci
        self.client = oci.client
        self.clock = oci.clock
        self.id = f"site-{next(_numbers)}"
        oci.accounts.add_site(ROOT, self.id, **how)

    # Keys

    @cached_property
    def producer(self) -> dict[str, str]:
        return self.oci.key("oci:ingest", site=self.id)

    @cached_property
    def script(self) -> dict[str, str]:
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
    def place(self) -> Site:
        return self.oci.place(self.id)

    def become(self, **how: Any) -> None:
        """Change the site itself: its channel, zone or currency."""
        self.oci.accounts.set_site(ROOT, self.id, **how)

    def decide(self, **settings: Any) -> None:
        """Change its oci settings."""
        self.oci.accounts.set_site_settings(ROOT, self.id, "oci", settings)

    def pause(self) -> None:
        self.oci.queue.pause(actor="tests", tenant=self.id)

    def row(self, number: int = 1, **changes: Any) -> dict[str, Any]:
        return self.oci.row(number, **changes)

    # Requests

    def send(self, method: str, path: str, headers: Any = None, **sent: Any) -> Any:
        return self.client.request(method, path, headers=headers, **sent)

    def ingest(self, body: str | bytes, kind: str) -> Any:
        """Post a body as it is."""
        return self.client.post(
            "/api/oci/conversions",
            params={"siteId": self.id},
            content=body if isinstance(body, bytes) else body.encode(),
            headers={**self.producer, "content-type": kind},
        )

    def post(self, rows: Any) -> list[dict[str, Any]]:
        answer = self.client.post(
            "/api/oci/conversions", params={"siteId": self.id}, json=rows, headers=self.producer
        )
        return list(well(answer)["results"])

    def queued(self, count: int = 1, *, first: int = 1, **changes: Any) -> list[str]:
        results = self.post([self.row(first + n, **changes) for n in range(count)])
        assert [result["result"] for result in results] == ["queued"] * count
        return [result["id"] for result in results]

    def export(self, limit: int = 1_000) -> list[dict[str, Any]]:
        return list(well(self.ask_export(markAsExported="true", limit=limit)))

    def ask_export(self, headers: Any = None, **params: Any) -> Any:
        return self.client.get(
            "/api/oci/google-ads-export",
            params={"siteId": self.id, **params},
            headers=headers or self.script,
        )

    def exported(self, count: int = 1, *, first: int = 1) -> list[str]:
        """Export this many rows; returns their ids."""
        ids = self.queued(count, first=first)
        assert [one["id"] for one in self.export()] == seals(ids)
        return ids

    def ack(self, ids: Sequence[str], headers: Any = None) -> dict[str, Any]:
        body = {"siteId": self.id, "queueIds": seals(ids)}
        return dict(
            well(self.client.post("/api/oci/ack", json=body, headers=headers or self.script))
        )

    def ack_failed(self, ids: Sequence[str], **fields: Any) -> dict[str, Any]:
        body = {"siteId": self.id, "queueIds": seals(ids), **fields}
        return dict(well(self.client.post("/api/oci/ack-failed", json=body, headers=self.script)))

    def failed(self, count: int = 1, *, category: str = "VALIDATION", first: int = 1) -> list[str]:
        """Fail this many rows; returns their ids."""
        ids = self.exported(count, first=first)
        self.ack_failed(ids, errorCode="BROKEN", errorMessage="it broke", errorCategory=category)
        return ids

    def ask_act(self, action: str, headers: Any = None, **fields: Any) -> Any:
        body = {"siteId": self.id, "action": action, **fields}
        return self.client.post(
            "/api/oci/queue-actions", json=body, headers=headers or self.operator
        )

    def act(self, action: str, ids: Sequence[str] | None = None, **fields: Any) -> dict[str, Any]:
        chosen = {} if ids is None else {"ids": list(ids)}
        return dict(well(self.ask_act(action, **chosen, **fields)))

    def stats(self) -> dict[str, Any]:
        return dict(
            well(
                self.client.get(
                    "/api/oci/queue-stats", params={"siteId": self.id}, headers=self.reader
                )
            )
        )

    def page(self, **wanted: Any) -> Any:
        return self.client.get(
            "/api/oci/queue-rows", params={"siteId": self.id, **wanted}, headers=self.reader
        )

    def rows(self, **wanted: Any) -> list[dict[str, Any]]:
        return list(well(self.page(**wanted))["rows"])

    def shown(self, job_id: str) -> dict[str, Any]:
        """A row as operators see it."""
        return self.rows(q=job_id)[0]

    def beat(self, **fields: Any) -> None:
        body = {"siteId": self.id, **fields}
        well(self.client.post("/api/oci/script-heartbeat", json=body, headers=self.script))

    # The queue itself

    def raw(self, payload: Any, **how: Any) -> str:
        """Enqueue a row without validation; returns its id."""
        return self.oci.raw(payload, site=self.id, **how)

    def look(self, job_id: str) -> Job:
        return self.oci.look(job_id)

    def state(self, job_id: str) -> str:
        return self.look(job_id).state

    def states(self, ids: Sequence[str]) -> list[str]:
        return [self.state(job_id) for job_id in ids]

    def events(self, job_id: str) -> list[Event]:
        return self.oci.queue.events(job_id)

    def jobs(self) -> list[Job]:
        """Every job of the site."""
        return self.oci.queue.jobs(Filter(tenants=(self.id,)), limit=1_000).jobs

    def said(self, request: Callable[[], Any]) -> list[AuditLine]:
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


def well(answer: Any) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer: Any, status: int) -> dict[str, Any]:
    """The error of a response with this status."""
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()["error"]
    return body


@pytest.fixture(scope="module", params=BOTH)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _quick_hashes: None
) -> Iterator[Oci]:
    """The service of the module, on each database."""
    folder = tmp_path_factory.mktemp("oci")
    with ExitStack() as stack:
        store = opened(request.param, folder, request, stack)
        oci = Oci(store, folder, secret_keys=SECRET_KEYS)
        stack.enter_context(oci.kept())
        yield oci


@pytest.fixture
def site(shared: Oci) -> OwnSite:
    """A script site."""
    return OwnSite(shared)


@pytest.fixture
def neighbour(shared: Oci) -> OwnSite:
    """Another script site."""
    return OwnSite(shared)
