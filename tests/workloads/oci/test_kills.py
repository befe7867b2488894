"""Killed with -9: a script's export, our worker in an upload, an ingest."""

import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from kesin.engine import queue as queue_module
from kesin.engine.replay import verify
from kesin.engine.sweeper import Sweeper
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import ManualClock, wall_clock_us
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import Settings
from kesin.store.contract import Store
from kesin.store.directory import MetadataEntry
from kesin.store.open import open_store
from kesin.web.service import Service
from kesin.workloads.oci import OCI
from kesin.workloads.oci.conversions.conversion import SEAL_PREFIX
from kesin.workloads.oci.conversions.ingest import IngestResult, ingest
from kesin.workloads.oci.google.connection_check import channels_of
from kesin.workloads.oci.google.credentials import vault_name
from kesin.workloads.oci.reconciliation import RECONCILIATION
from kesin.workloads.oci.script import ack, export
from kesin.workloads.oci.site import SiteContext
from kesin.workloads.oci.uploader import Uploader
from tests.apart import PATIENCE_S, Start, crew
from tests.faults.cast import Point, die

ROOT = system_actor("cli:tests")
SITE = "north"
LATER_US = 3_600 * 1_000_000  # beyond every lease
ROWS = 20
NOT_DUE = 10**17
_numbers = count(1)


def context_of(store: Store, *, later_us: int = 0, **settings: Any) -> WorkloadContext:
    """The context of a process whose clock is ahead or stands still."""
    clock = ManualClock(wall_clock_us() + later_us)
    own = Settings(secret_keys="first:" + "A" * 43, **settings)
    return Service(own, store, {"oci": OCI}, work=False, clock=clock).workload_context("oci")


def site_of(context: WorkloadContext) -> SiteContext:
    site = context.commands.accounts.find_site(SITE)
    assert site is not None
    return SiteContext(context, site)


def sale(number: int) -> dict[str, Any]:
    at = datetime.fromtimestamp(wall_clock_us() // 10**6, UTC) - timedelta(days=1, seconds=number)
    return {
        "externalId": f"sale-{number}",
        "gclid": f"Cj0KCQiA_click-{number:06d}",
        "conversionName": "Phone sale",
        "conversionTime": at.isoformat(),
        "conversionValue": 100 + number,
        "conversionCurrency": "TRY",
    }


def ingest_file(context: WorkloadContext) -> list[IngestResult]:
    return ingest(site_of(context), [sale(n) for n in range(ROWS)], actor=ROOT)


class Place:
    """A database with one site in it."""

    def __init__(self, address: str, store: Store) -> None:
        self.address = address
        self.store = store
        self.context = context_of(store)
        self.accounts = self.context.commands.accounts
        self.accounts.add_site(ROOT, SITE)

    def fill(self) -> set[str]:
        """Queue the rows of a file; their ids."""
        results = ingest_file(self.context)
        assert {result.result for result in results} == {"queued"}
        return {result.id for result in results if result.id}

    def states(self) -> dict[str, int]:
        return {name: n for name, n in self.context.queue.stats().states.items() if n}

    def recover(self, **settings: Any) -> WorkloadContext:
        """Sweep when every lease has ended; the context of that time."""
        context = context_of(self.store, later_us=LATER_US, **settings)
        assert Sweeper([context.queue]).sweep(("recover",)).total == ROWS
        return context

    def check(self, ids: set[str], attempts: int) -> None:
        """Every row was completed once, after so many claims, and its history says the same."""
        seen = set()
        for job, events in self.store.scan("oci"):
            seen.add(job.id)
            assert job.state == "COMPLETED"
            assert sum(event.to_state == "COMPLETED" for event in events) == 1
            assert sum(event.claim == 1 for event in events) == job.attempt_count == attempts
        assert seen == ids
        assert not verify(self.store, "oci").differences


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "postgres":
        server, ready = map(request.getfixturevalue, ("postgres_server", "ready_postgres"))
        address = server.create_database(f"kills_{os.getpid()}_{next(_numbers)}", like=ready)
    else:
        address = str(shutil.copyfile(request.getfixturevalue("ready_file"), tmp_path / "kesin.db"))
    with closing(open_store(address)) as store:
        yield Place(address, store)


@pytest.fixture
def start() -> Iterator[Start]:
    with crew() as start:
        yield start


def moments(usual: str, *others: str) -> pytest.MarkDecorator:
    """The usual moment of death; the others are left to the long form."""
    long = [pytest.param(other, marks=pytest.mark.long) for other in others]
    return pytest.mark.parametrize("moment", [usual, *long])


# A script's export


def export_and_die(address: str, pipe: Connection, point: Point) -> None:
    with closing(open_store(address)) as store:
        context = context_of(store)
        point.arm(store)
        pipe.send(export(site_of(context), limit=ROWS, actor="doomed"))


@moments("after", "inside")
def test_an_export_that_is_killed_loses_no_row_and_no_attempt_too_many(place: Place, start: Start, moment: Any):
    ids = place.fill()
    assert start(export_and_die, place.address, Point("claim", moment)).last_words() == []
    context, site = place.context, site_of(place.context)
    if moment == "after":
        assert place.states() == {"PROCESSING": ROWS}
        assert export(site, limit=ROWS, actor="heir") == []
        assert Sweeper([context.queue]).sweep().total == 0
        site = site_of(place.recover())
    got: list[str] = []
    while len(got) < ROWS:  # a dying connection may hold a row for a moment
        got.extend(item["id"] for item in export(site, limit=ROWS, actor="heir"))
    assert sorted(got) == sorted(f"{SEAL_PREFIX}{job_id}" for job_id in ids)
    assert ack(site, got, actor="heir")["updated"] == ROWS
    assert ack(site, got, actor="heir")["updated"] == 0
    place.check(ids, attempts=1 if moment == "inside" else 2)


# Our worker in an upload


def upload_and_die(address: str, _pipe: Connection, settings: dict[str, Any], point: Any) -> None:
    with closing(open_store(address)) as store:
        context = context_of(store, **settings)
        if point:
            point.arm(store)
        Uploader(context, channels_of(context.settings), threads=1).run_once()


@moments("recorded", "unheard", "answered")
def test_a_worker_killed_in_an_upload_delivers_every_row_once(place: Place, start: Start, moment: str):
    from tests.workloads.oci.fake_google import GoogleServer  # slow, and no child needs it
    from tests.workloads.oci.google_library import VERSION

    with GoogleServer() as google, ExitStack() as stack:
        settings = {"oci_google_url": google.url, "oci_google_version": VERSION, "oci_token_url": google.token_url}
        came = threading.Event()

        def hang(_handler: Any) -> None:
            if moment == "recorded":
                google._upload(VERSION, google.account, google.came[-1])
            came.set()
            google.over.wait(PATIENCE_S)

        place.accounts.set_site(ROOT, SITE, channel="api")
        place.accounts.set_site_settings(ROOT, SITE, "oci", {"conversion_name": "Phone sale"})
        place.context.vault.put(ROOT, vault_name(SITE), google.credentials().to_text())
        later = MetadataEntry("oci", SITE, RECONCILIATION, json.dumps({"nextAt": NOT_DUE}), 0)
        place.accounts.directory.put_metadata(later)
        ids = place.fill()
        if moment == "answered":  # and the answer is not written
            point = Point("apply", "before")
            start(upload_and_die, place.address, settings, point).last_words()
        else:
            google.then(hang)
            doomed = start(upload_and_die, place.address, settings, None)
            assert came.wait(PATIENCE_S)
            doomed.kill()
        assert place.states() == {"PROCESSING": ROWS}
        assert len(google.recorded) == (0 if moment == "unheard" else ROWS)
        context = place.recover(**settings)
        stack.callback(channels_of.cache_clear)
        ended = Uploader(context, channels_of(context.settings), threads=1).run_once()
        assert ended == {"COMPLETED": ROWS}
        place.check(ids, attempts=2)
        jobs = [job for job, _ in place.store.scan("oci")]
        assert sorted(google.recorded) == sorted(job.payload["orderId"] for job in jobs)
        code = None if moment == "unheard" else "ORDER_ID_ALREADY_IN_USE"
        assert {job.error_code for job in jobs} == {code}
        assert [len(rows) for rows in google.uploads] == [ROWS, ROWS]


# An ingest


def ingest_and_die(address: str, _pipe: Connection, moment: str) -> None:
    with closing(open_store(address)) as store:
        context = context_of(store)
        if moment == "inside":
            pytest.MonkeyPatch().setattr(queue_module, "MAX_BATCH", ROWS // 2)
            Point("enqueue", "after", call=2).arm(store)
        ingest_file(context)
        die()


@moments("inside", "after")
def test_a_file_posted_again_after_a_kill_while_it_was_written_is_there_once(place: Place, start: Start, moment: Any):
    start(ingest_and_die, place.address, moment).last_words()
    written = moment == "after"
    assert place.states() == ({"QUEUED": ROWS} if written else {}), "a file was taken by half"
    results = ingest_file(place.context)
    assert {result.result for result in results} == {"duplicate" if written else "queued"}
    assert place.states() == {"QUEUED": ROWS}
    keys = {job.dedup_key for job, _ in place.store.scan("oci")}
    assert keys == {f"sale-{number}" for number in range(ROWS)}
    assert not verify(place.store, "oci").differences
