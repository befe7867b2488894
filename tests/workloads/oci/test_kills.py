"""Killed with -9: a script's export, our worker in an upload, the server in an ingest."""

import json
import os
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from kesin.engine.replay import verify
from kesin.engine.sweeper import Sweeper
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import ManualClock, wall_clock_us
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import Settings
from kesin.store.contract import Store
from kesin.store.open import open_store
from kesin.web.service import Service
from kesin.workloads.oci import OCI
from kesin.workloads.oci.conversions.conversion import SEAL_PREFIX
from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.conversions.parsing import parse_body
from kesin.workloads.oci.google.channels import channels_of
from kesin.workloads.oci.google.credentials import vault_name
from kesin.workloads.oci.script import ack, export
from kesin.workloads.oci.uploader import build_worker
from tests.apart import crew
from tests.cli.programs import PATIENCE_S, Program, Programs, wait_until
from tests.web.serving import own_settings

ROOT = system_actor("cli:tests")
SITE = "north"
SECRET_KEYS = "first:" + "A" * 43
LATER_US = 3_600 * 1_000_000  # beyond every lease
DOOMED = "doomed"  # what PostgreSQL knows the killed process by
ROWS = 20
MANY = 3_000
_numbers = count(1)


def context_of(store: Store, *, later_us: int = 0, **settings: Any) -> WorkloadContext:
    """The context of a process whose clock is ahead or stands still."""
    clock = ManualClock(wall_clock_us() + later_us)
    own = Settings(secret_keys=SECRET_KEYS, **settings)
    return Service(own, store, {"oci": OCI}, work=False, clock=clock).workload_context("oci")


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


class Place:
    """A database with one site in it, seen from here."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self.address = address
        self.store = open_store(address, migrate=True)
        stack.callback(self.store.close)
        self.context = context_of(self.store)
        self.accounts.add_site(ROOT, SITE)

    @property
    def accounts(self) -> Any:
        return self.context.commands.accounts

    def fill(self, rows: int = ROWS) -> set[str]:
        """So many rows in QUEUED; their ids."""
        site = self.accounts.find_site(SITE)
        results = ingest(self.context, site, [sale(n) for n in range(rows)], actor="tests")
        assert {result.result for result in results} == {"queued"}
        return {result.id for result in results if result.id}

    def states(self) -> dict[str, int]:
        return {name: n for name, n in self.context.queue.stats().states.items() if n}

    def check(self, ids: set[str], attempts: int) -> None:
        """Every row was completed once, after so many claims, and its history says the same."""
        seen = set()
        for job, events in self.store.scan("oci"):
            seen.add(job.id)
            assert job.state == "COMPLETED"
            assert sum(event.to_state == "COMPLETED" for event in events) == 1
            assert sum(event.claim == 1 for event in events) == job.attempt_count == attempts
        assert seen == ids
        self.check_whole()

    def check_whole(self) -> None:
        assert [str(one) for one in verify(self.store, "oci").differences] == []
        if not self.is_postgres:
            with closing(sqlite3.connect(self.address)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]

    @property
    def is_postgres(self) -> bool:
        return self.address.startswith("postgres")

    def lock(self, stack: ExitStack, table: str = "job") -> Callable[[], None]:
        """Nobody writes rows from now on; gives what lets the living write again."""
        connection: Any
        if not self.is_postgres:
            connection = sqlite3.connect(self.address, check_same_thread=False, timeout=PATIENCE_S)
            stack.enter_context(closing(connection))
            connection.execute("BEGIN IMMEDIATE")
            return connection.rollback
        connection = stack.enter_context(closing(psycopg.connect(self.address)))
        connection.execute(f"LOCK TABLE kesin.{table} IN EXCLUSIVE MODE")

        def unlock() -> None:
            self.end_sessions_of_the_dead()
            connection.rollback()

        return unlock

    def end_sessions_of_the_dead(self) -> None:
        """What a process sent before it died may be carried out still, if its session waits."""
        sessions = f"FROM pg_stat_activity WHERE application_name = '{DOOMED}'"
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"SELECT pg_terminate_backend(pid) {sessions}")
            wait_until(lambda: not connection.execute(f"SELECT 1 {sessions}").fetchone())


@pytest.fixture(params=["sqlite", "postgres"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    own_settings(monkeypatch, tmp_path)
    address = str(tmp_path / "data" / "kesin.db")
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        address = server.create_database(f"kills_{os.getpid()}_{next(_numbers)}")
    monkeypatch.setenv("KESIN_DATABASE_URL", address)
    monkeypatch.setenv("KESIN_SECRET_KEYS", SECRET_KEYS)
    with ExitStack() as stack:
        yield Place(address, stack)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with Programs(tmp_path) as programs:
        yield programs


def kill(program: Program) -> None:
    """No handler runs, nothing is flushed."""
    program.process.kill()
    assert program.end() == -9


# A script's export


def export_and_hang(address: str, pipe: Connection, inside: bool) -> None:
    """Claim rows for a script and die with them in hand, before or after the commit."""
    with closing(open_store(address, migrate=False)) as store:
        context = context_of(store)
        site = context.commands.accounts.find_site(SITE)
        assert site is not None
        with store.transaction() if inside else ExitStack():
            pipe.send([item["id"] for item in export(context, site, limit=ROWS, actor="doomed")])
            pipe.recv()


@pytest.mark.parametrize("inside", [True, False], ids=["before the commit", "after the commit"])
def test_an_export_that_is_killed_loses_no_row_and_no_attempt_too_many(place: Place, inside: bool):
    ids = place.fill()
    with crew() as start:
        doomed = start(export_and_hang, place.address, inside)
        assert {one.removeprefix(SEAL_PREFIX) for one in doomed.hear()} == ids
        doomed.kill()
    site = place.accounts.find_site(SITE)
    context = place.context
    if not inside:
        assert place.states() == {"PROCESSING": ROWS}
        assert export(context, site, limit=ROWS, actor="heir") == []
        assert Sweeper([context.queue]).sweep().total == 0
        context = context_of(place.store, later_us=LATER_US)
        assert Sweeper([context.queue]).sweep(("recover",)).total == ROWS
    got: list[str] = []

    def all_there() -> bool:  # a dying connection may hold a row for a moment
        got.extend(one["id"] for one in export(context, site, limit=ROWS, actor="heir"))
        return len(got) >= ROWS

    wait_until(all_there)
    assert sorted(got) == sorted(f"{SEAL_PREFIX}{job_id}" for job_id in ids)
    assert ack(context, site, got, actor="heir").updated == ROWS
    assert ack(context, site, got, actor="heir").updated == 0
    place.check(ids, attempts=1 if inside else 2)


# Our worker in an upload


def hang_in_upload(google: Any, *, record: bool) -> threading.Event:
    """Let the next upload hang, recorded or not; the event is set when it has come."""
    came = threading.Event()

    def hang(_handler: Any) -> None:
        if record:
            google._upload(os.environ["KESIN_OCI_GOOGLE_VERSION"], google.account, google.came[-1])
        came.set()
        google.over.wait(PATIENCE_S)

    google.then(hang)
    return came


@pytest.mark.parametrize("moment", ["unheard", "recorded", "answered"])
def test_a_worker_killed_in_an_upload_delivers_every_row_once(
    place: Place, programs: Programs, moment: str, monkeypatch: pytest.MonkeyPatch
):
    from tests.workloads.oci.fake_google import VERSION, GoogleServer  # slow, and no child needs it

    with GoogleServer() as google, ExitStack() as stack:
        monkeypatch.setenv("KESIN_OCI_GOOGLE_URL", google.url)
        monkeypatch.setenv("KESIN_OCI_GOOGLE_VERSION", VERSION)
        monkeypatch.setenv("KESIN_OCI_TOKEN_URL", google.token_url)
        place.accounts.set_site(ROOT, SITE, channel="api")
        place.context.vault.put(ROOT, vault_name(SITE), google.credentials().to_text())
        ids = place.fill()
        unlocks: list[Callable[[], None]] = []

        def lock_once(_row: Any) -> tuple[()]:
            if not unlocks:
                unlocks.append(place.lock(stack))
            return ()

        if moment == "answered":  # the answer arrives, and cannot be written
            google.row_errors = lock_once
            doomed = programs.start("serve", "--port", 0, PGAPPNAME=DOOMED)
            assert doomed.hear("uploaded")["accepted"] == ROWS
        else:
            came = hang_in_upload(google, record=moment == "recorded")
            doomed = programs.start("serve", "--port", 0, PGAPPNAME=DOOMED)
            assert came.wait(PATIENCE_S)
        kill(doomed)
        for unlock in unlocks:
            unlock()
        assert place.states() == {"PROCESSING": ROWS}
        assert len(google.recorded) == (0 if moment == "unheard" else ROWS)
        context = context_of(place.store, later_us=LATER_US)
        assert Sweeper([context.queue]).sweep(("recover",)).total == ROWS
        ended = build_worker(context, channels_of(context.settings), threads=1).run_once()
        stack.callback(channels_of.cache_clear)
        assert ended == {"COMPLETED": ROWS}
        place.check(ids, attempts=2)
        jobs = [job for job, _ in place.store.scan("oci")]
        assert sorted(google.recorded) == sorted(job.payload["orderId"] for job in jobs)
        code = None if moment == "unheard" else "ORDER_ID_ALREADY_IN_USE"
        assert {job.error_code for job in jobs} == {code}
        assert [len(rows) for rows in google.uploads] == [ROWS, ROWS]


# The server in an ingest


class Server:
    """`kesin serve` without workers, and a producer that posts to it."""

    def __init__(self, programs: Programs, place: Place) -> None:
        self.key = place.accounts.create_key(ROOT, "shop", ["oci:ingest"], site=SITE)[0]
        self.program = programs.start("serve", "--port", 0, "--no-workers", PGAPPNAME=DOOMED)
        self.address = self.program.hear("listening")["address"]

    @property
    def url(self) -> str:
        return f"{self.address}/api/oci/conversions?siteId={SITE}"

    def post(self, body: bytes) -> None:
        headers = {"x-api-key": self.key, "content-type": "application/json"}
        httpx.post(self.url, content=body, headers=headers, timeout=PATIENCE_S, trust_env=False)

    def post_half(self, body: bytes) -> None:
        """Send a request whose second half never comes."""
        at = urlsplit(self.url)
        head = (
            f"POST {at.path}?{at.query} HTTP/1.1\r\nhost: {at.netloc}\r\nx-api-key: {self.key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((at.hostname, at.port), PATIENCE_S) as line:
            line.sendall(head.encode() + body[: len(body) // 2])
            kill(self.program)


def kill_while_it_writes(doomed: Server, place: Place, body: bytes) -> None:
    """Its transaction has begun and is not committed: nobody else sees anything of it."""

    def post() -> None:
        with suppress(httpx.HTTPError):
            doomed.post(body)

    producer = threading.Thread(target=post)
    with ExitStack() as stack:
        if place.is_postgres:  # the rows are written, their history cannot be
            stack.callback(place.lock(stack, "event"))
            connection = stack.enter_context(psycopg.connect(place.address, autocommit=True))
            blocked = (
                "SELECT 1 FROM pg_stat_activity WHERE application_name = %s "
                "AND backend_xid IS NOT NULL AND wait_event_type = 'Lock'"
            )
            producer.start()
            wait_until(lambda: connection.execute(blocked, [DOOMED]).fetchone())
        else:  # what its memory does not hold is in the journal before the end
            journal = Path(f"{place.address}-wal")
            before = journal.stat().st_size
            producer.start()
            wait_until(lambda: journal.stat().st_size > before + 500_000)
        kill(doomed.program)
    producer.join(PATIENCE_S)


def ingest_again(place: Place, body: bytes) -> None:
    """Post the same file to another process: every row is there once."""
    site = place.accounts.find_site(SITE)
    results = ingest(place.context, site, parse_body(body, "application/json")[1], actor="tests")
    assert {result.result for result in results} <= {"queued", "duplicate"}
    assert place.states() == {"QUEUED": MANY}
    assert len({result.id for result in results}) == MANY
    keys = {job.dedup_key for job, _ in place.store.scan("oci")}
    assert keys == {f"sale-{number}" for number in range(MANY)}
    place.check_whole()


def test_a_file_posted_again_after_a_kill_while_it_was_written_is_there_once(
    place: Place, programs: Programs
):
    body = json.dumps([sale(number) for number in range(MANY)]).encode()
    kill_while_it_writes(Server(programs, place), place, body)
    assert place.states() in ({}, {"QUEUED": MANY}), "a file was taken by half"
    ingest_again(place, body)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)  # nothing reaches the database
def test_a_file_posted_again_after_a_kill_while_it_was_read_is_there_once(
    place: Place, programs: Programs
):
    body = json.dumps([sale(number) for number in range(MANY)]).encode()
    Server(programs, place).post_half(body)
    assert place.states() == {}
    ingest_again(place, body)
