"""The hourly tidying: what nobody needs any more goes, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kesin.engine.sweeper import Sweeper
from kesin.foundation.clock import ManualClock
from kesin.store.directory import MetadataEntry
from kesin.workloads.pdf.cleanup import delete_expired
from kesin.workloads.pdf.jobs.heartbeat import PRUNE_AFTER_S, open_heartbeats
from kesin.workloads.pdf.services import open_artifacts
from tests.web.conftest import CRON_SECRET, _plain_logs  # noqa: F401  # one is a fixture
from tests.workloads.pdf.batching import TTL_S, Bindery, opened_bindery

HOUR_S = 3_600
ORPHAN = "0" * 8 + "-0000-7000-8000-" + "0" * 12


@pytest.fixture
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bindery]:
    with opened_bindery(request.param, tmp_path, request) as bindery:
        yield bindery


@pytest.fixture(scope="module")
def shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bindery]:
    with opened_bindery("sqlite", tmp_path_factory.mktemp("shop"), request) as shop:
        yield shop


@pytest.fixture
def bindery(shop: Bindery) -> Iterator[Bindery]:
    """One for the module: every test begins when all of the one before has expired."""
    shop.headers = shop.key("pdf")
    yield shop
    shop.recover()
    later(shop, 3 * TTL_S)
    later(shop, 1)
    assert not shop.metadata_names()
    assert files(shop, "pdfs") == []


def date_files(bindery: Bindery) -> None:
    """The storage has a clock of its own: let it be the test's."""
    now = bindery.clock.monotonic()
    for path in bindery.folder.rglob("*"):
        if path.is_file() and path.stat().st_mtime > now + 365 * 86_400:
            os.utime(path, (now, now))


def later(bindery: Bindery, seconds: float) -> int:
    """Let time pass, then do what the sweeper does."""
    date_files(bindery)
    bindery.clock.advance(seconds)
    bindery.sweep("expire")
    return delete_expired(bindery.context)


def files(bindery: Bindery, folder: str) -> list[str]:
    return sorted(one.key for one in bindery.batches.storage.list(folder))


@pytest.mark.parametrize("either", ["sqlite", "postgres"], indirect=True)
def test_what_expired_takes_its_files_along_and_what_did_not_keeps_them(either):
    old = either.order("a", "bad")
    either.work()
    later(either, TTL_S - HOUR_S)
    young = either.order("c")
    either.work()
    later(either, HOUR_S + 1)
    assert either.get(old)["status"] == "expired"
    assert either.download(old).status_code == 410
    assert either.get(young)["status"] == "succeeded"
    assert either.download(young).status_code == 200
    assert len(files(either, "pdfs")) == 1
    later(either, TTL_S)
    assert files(either, "pdfs") == files(either, "batches") == []
    assert either.get(young)["results"] == []


def test_what_was_sent_is_forgotten_before_what_was_made(bindery):
    batch_id = bindery.order("a")
    bindery.work()
    later(bindery, TTL_S - 1)
    assert {one.partition("-")[0] for one in bindery.stored()} == {"out", "results"}
    assert bindery.get(batch_id)["results"][0]["status"] == "succeeded"


def test_files_nobody_knows_are_swept_once_they_are_old(bindery):
    storage = bindery.batches.storage
    storage.put_bytes(f"batches/{'a' * 32}/rows.json.gz", b"x", "")
    storage.put_bytes(f"batches/{'a' * 32}/out-0000000000000001.zip", b"x", "")
    storage.put_bytes(f"pdfs/{ORPHAN}/0000000000000001.pdf", b"x", "")
    storage.put_bytes("batches/of-somebody-else/rows.json.gz", b"x", "")
    assert later(bindery, HOUR_S) == 0
    assert later(bindery, TTL_S) == 3
    assert files(bindery, "batches") == ["batches/of-somebody-else/rows.json.gz"]
    assert files(bindery, "pdfs") == []
    storage.delete("batches/of-somebody-else/rows.json.gz")


def test_files_of_a_batch_on_its_way_are_kept_however_old(bindery):
    batch_id = bindery.order("a")
    bindery.queue.claim("somebody")
    folder = bindery.batch(batch_id).input_key.rpartition("/")[0]
    bindery.batches.storage.put_bytes(f"{folder}/out-0000000000000001.zip", b"x", "")
    later(bindery, 3 * TTL_S)
    assert len(files(bindery, "batches")) == 2
    assert bindery.get(batch_id)["status"] == "running"


def test_an_earlier_attempts_file_is_swept_though_the_batch_has_one(bindery):
    batch_id = bindery.order("a")
    folder = bindery.batch(batch_id).input_key.rpartition("/")[0]
    bindery.batches.storage.put_bytes(f"{folder}/out-0000000000000001.zip", b"x", "")
    bindery.work()
    later(bindery, TTL_S - 1)
    assert bindery.batch(batch_id).artifact_key in files(bindery, "batches")
    assert f"{folder}/out-0000000000000001.zip" not in files(bindery, "batches")


def test_a_batch_that_an_operator_ended_is_forgotten_with_its_rows(bindery):
    batch_id = bindery.order("a", "b")
    worker = bindery.worker(lambda _seconds: worker.stop())
    worker.run_once()
    other = bindery.batches.jobs.create_job("card", {"variables": {"name": "c"}}, owner="other")
    bindery.queue.act("cancel", actor="tests", ids=[batch_id])
    assert len(bindery.pdf.peek(limit=10)) == 3
    assert later(bindery, 1) == 1
    assert [one.id for one in bindery.pdf.peek(limit=10)] == [other.job_id]
    assert not bindery.metadata_names()


def test_facts_of_a_batch_that_is_no_more_are_dropped(bindery):
    bindery.accounts.directory.put_metadata(MetadataEntry("pdf", ORPHAN, "rows:0000", "[]", 1))
    assert later(bindery, 1) == 1
    assert not bindery.metadata_names()


def test_workers_that_are_long_silent_are_forgotten(bindery):
    directory = bindery.accounts.directory
    now = bindery.queue.now()
    directory.put_metadata(MetadataEntry("pdf", "", "worker:old", "{}", now))
    directory.put_metadata(MetadataEntry("pdf", "", "ledger", "null", now))
    bindery.clock.advance(PRUNE_AFTER_S)
    directory.put_metadata(MetadataEntry("pdf", "", "worker:new", "{}", bindery.queue.now()))
    assert later(bindery, 1) == 1
    assert list(open_heartbeats(bindery.store).read_all()) == ["new"]
    assert directory.metadata_entry("pdf", "", "ledger") is not None


def test_a_storage_that_is_down_keeps_nothing_else_from_being_tidied(bindery):
    batch_id = bindery.order("a")
    bindery.work()
    date_files(bindery)
    bindery.accounts.directory.put_metadata(MetadataEntry("pdf", ORPHAN, "rows:0000", "[]", 1))
    bindery.clock.advance(TTL_S)
    bindery.sweep("expire")
    artifacts = bindery.folder
    hidden = artifacts.with_name("unmounted")
    artifacts.rename(hidden)
    artifacts.mkdir()  # as a disk leaves it that is not mounted
    assert delete_expired(bindery.context) == 1
    assert not bindery.metadata_names()
    artifacts.rmdir()  # nothing was begun there in the place of what is away
    hidden.rename(artifacts)
    assert delete_expired(bindery.context) > 0
    assert files(bindery, "batches") == []
    assert bindery.get(batch_id)["status"] == "expired"


def test_the_sweeper_tidies_once_jobs_have_expired(bindery):
    assert isinstance(bindery.clock, ManualClock)
    batch_id = bindery.order("a")
    bindery.work()
    date_files(bindery)
    bindery.clock.advance(TTL_S)
    queues = list(bindery.service.queues.values())
    Sweeper(queues, after_sweep={"pdf": lambda: delete_expired(bindery.context)}).sweep(["expire"])
    assert bindery.get(batch_id)["status"] == "expired"
    assert files(bindery, "batches") == files(bindery, "pdfs") == []


def test_the_cron_door_tidies_as_the_sweeper_does(bindery):
    """A service without a sweeper of its own has nobody else to do it."""
    artifacts = open_artifacts(bindery.context)
    key = artifacts.store_pdf(ORPHAN, b"%PDF-1.4")
    date_files(bindery)
    bindery.clock.advance(TTL_S)
    answer = bindery.client.post(
        "/api/cron/sweep", headers={"authorization": f"Bearer {CRON_SECRET}"}
    )
    assert answer.status_code == 200, answer.text
    assert not artifacts.exists(key)
