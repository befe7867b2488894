"""A listening service with a manual clock, for scripts to talk to."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn
from fastapi import FastAPI

from kesin.workloads.oci.site import HEARTBEAT
from tests.web.conftest import opened
from tests.workloads.oci.own_site import Oci, OwnSite, seals
from tests.workloads.oci.script import Script


class StoredRow(NamedTuple):
    """A row as stored on the server."""

    state: str
    code: str | None
    category: str | None
    message: str | None
    attempts: int


class Running:
    """A site of a listening service, with its script."""

    def __init__(self, oci: Oci, base_url: str) -> None:
        self.oci = oci
        self.base_url = base_url
        self.site = OwnSite(oci)
        self.site_id = self.site.id
        self.key = self.site.script["x-api-key"]

    def script(self, **how: Any) -> Script:
        """The site's script."""
        return Script(self.base_url, self.site_id, self.key, **how)

    def enqueue(self, *sales: dict[str, Any]) -> list[str]:
        """Post sales as a producer; returns their sealed ids."""
        results = self.site.post(list(sales))
        assert {result["result"] for result in results} == {"queued"}, results
        return seals([result["id"] for result in results])

    def row(self, row_id: str) -> StoredRow:
        job = self.site.job(row_id.removeprefix("seal_"))
        return StoredRow(job.state, job.error_code, job.error_category, job.error_message, job.attempt_count)

    def rows(self, ids: Sequence[str]) -> list[StoredRow]:
        return [self.row(job_id) for job_id in ids]

    def states(self) -> dict[str, int]:
        """How many rows of the site are in each state that has any."""
        counts = self.oci.queue.stats().tenants.get(self.site_id, {})
        return {name: n for name, n in counts.items() if n}

    def heartbeat(self) -> dict[str, Any] | None:
        return self.site.place.read_metadata(HEARTBEAT)

    def pass_time(self, seconds: float) -> None:
        self.oci.clock.advance(seconds)

    def sweep(self) -> None:
        self.oci.sweep()


@contextmanager
def running(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[], Running]]:
    """A service on this kind of database; each call gives a new site in it."""
    with ExitStack() as stack:
        oci = Oci(opened(kind, folder, request, stack), folder)
        stack.enter_context(oci.kept())
        base_url = stack.enter_context(_listening(oci.app))
        yield lambda: Running(oci, base_url)


@contextmanager
def _listening(app: FastAPI) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()  # early connections wait in the listen queue
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def secrets_in(script: Script, text: str) -> list[str]:
    """Click ids, keys and tokens of a script's runs in a text."""
    kinds = ("Google Click ID", "WBRAID", "GBRAID")
    clicks = {row[kind] for upload in script.uploads for row in upload.rows for kind in kinds}
    tokens = {request.headers.get("Authorization", "")[7:] for request in script.requests}
    return [secret for secret in {script.key, *clicks, *tokens} - {""} if secret in text]


def sale(number: int = 1, **other: Any) -> dict[str, Any]:
    """What a producer posts."""
    plain = {
        "externalId": f"sale-{number}",
        "gclid": f"Cj0KCQ-click_{number:06}",
        "conversionName": "Phone sale",
        "conversionTime": "2023-11-12T11:30:00+00:00",
        "conversionValue": 1250.5,
        "conversionCurrency": "TRY",
    }
    return {**plain, **other}


def sales(count: int) -> list[dict[str, Any]]:
    return [sale(number) for number in range(1, count + 1)]


def changed(*changes: dict[str, Any]) -> Any:
    """Change the first rows of an export, like a server with other checks than ours."""

    def rewrite(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rest = rows[len(changes) :]
        return [{**row, **change} for row, change in zip(rows, changes, strict=False)] + rest

    return rewrite
