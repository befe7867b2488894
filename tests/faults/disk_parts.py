"""What is tried on a disk that is full or cannot be written, in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import structlog
from typer.testing import CliRunner

from kesin.cli.root import app
from kesin.engine.queue import Queue, apply_changes
from kesin.engine.replay import verify
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.foundation.clock import ManualClock
from kesin.foundation.settings import Settings
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreTrouble
from kesin.store.open import open_store
from kesin.store.sqlite.store import SqliteStore
from kesin.web.service import Service
from tests.faults.conftest import fill
from tests.faults.promise import check_promise
from tests.faults.small_disk import SmallDisk, make_read_only
from tests.quick_hashes import quick_hashes
from tests.web.conftest import ROOT, World, error_of
from tests.workloads.optiplan.floor import PHONE, Floor
from tests.workloads.pdf.front import front_over

LEASE_S = 60


def refused(call: Callable[[], object]) -> StoreTrouble:
    try:
        answer = call()
    except StoreTrouble as trouble:
        return trouble
    raise AssertionError(f"not refused: {answer}")


def the_store(disk: SmallDisk, folder: Path) -> None:
    """Every write is refused whole, and the same objects go on when there is room."""
    with closing(open_store(folder / "kesin.db")) as store:
        clock = ManualClock()
        queue = Queue("work", task_lifecycle(lease_seconds=LEASE_S), store, clock=clock)
        answered_ids = fill(queue, 60)
        mine = queue.claim("me", limit=20)
        before = queue.stats().states
        disk.fill()
        code = "disk_full" if disk.real else "disk_failing"
        clock.advance(LEASE_S + 1)
        for call in (
            lambda: queue.enqueue({"large": "x" * 200_000}),
            lambda: queue.enqueue({}),
            lambda: queue.claim("other", limit=5),
            lambda: apply_changes(queue, "complete", [Change(mine[0].id, mine[0].claim_seq)], actor="me"),
            lambda: Sweeper([queue]).sweep(("recover",)),
            lambda: queue.pause(actor="me"),
            lambda: open_store(folder / "another.db"),
        ):
            trouble = refused(call)
            assert (trouble.code, "space" in trouble.remedy) == (code, True), str(trouble)
        assert queue.stats().states == before
        check_promise(store, "work", queue.lifecycle, answered_ids, at_rest=False)
        disk.free()
        answered_ids += fill(queue, 5)
        assert Sweeper([queue]).sweep(("recover",)).total == len(mine)
        _work_while_it_fills(disk, queue)
        report = check_promise(store, "work", queue.lifecycle, answered_ids)
        assert report.states == {"done": len(answered_ids)}


def _work_while_it_fills(disk: SmallDisk, queue: Queue) -> None:
    """A worker whose disk is full when it wants to write its answers keeps them until it can."""
    events: list[str] = []

    def listen(_logger: object, _method: str, event: Any) -> Any:
        events.append(event["event"])
        if events.count("result_not_written") == 2:
            disk.free()
        raise structlog.DropEvent

    def handler(_job: Job) -> None:
        if not events:
            disk.fill()

    structlog.configure(processors=[listen])
    worker = Worker(queue, handler)
    assert worker.drain() == 65
    structlog.reset_defaults()
    assert events.count("result_not_written") == 2, events
    assert worker.completed == 65


def the_service(disk: SmallDisk, folder: Path) -> None:
    """Programs get 503 and a code, people a page, watchers a reason; then it goes on."""
    with closing(SqliteStore(folder / "kesin.db")) as store:
        world = World(store, folder, min_free_mb=2)
        world.site("north")
        boss = world.key("admin")
        person = world.cookie(world.person("ayse", "admin"))
        with world.kept():
            assert world.client.get("/health/ready").status_code == 200
            disk.fill()
            for path in ("/api/queues", "/api/queues/task/jobs", "/health/live"):
                answer = world.client.get(path, headers=boss)
                assert answer.status_code == 200, (path, answer.text)
            body = {"jobs": [{"payload": {}, "site": "north"}]}
            answer = world.client.post("/api/queues/task/jobs", json=body, headers=boss)
            code = "disk_full" if disk.real else "disk_failing"
            assert (answer.status_code, error_of(answer)["code"]) == (503, code), answer.text
            assert str(folder) not in answer.text
            page = world.client.get("/dashboard", headers=person)
            assert page.status_code == 200, page.text
            if disk.real:
                ready = world.client.get("/health/ready")
                assert ready.status_code == 503
                assert ready.json()["checks"]["disk"] == {"ok": False, "detail": "is nearly full"}
            disk.free()
            assert world.client.get("/health/ready").status_code == 200
            answer = world.client.post("/api/queues/task/jobs", json=body, headers=boss)
            assert answer.status_code == 201, answer.text
        assert verify(store, "task").differences == []


def the_pdfs(disk: SmallDisk, folder: Path) -> None:
    """The queue is elsewhere, the PDFs are here: none is torn, and the job is tried again."""
    with closing(SqliteStore(":memory:")) as store, front_over(store, folder) as front:
        me = front.owner()
        job_id = front.submit(me)
        disk.fill()
        front.worker.process_job(job_id)
        seen = front.seen(job_id)
        assert (seen.status, seen.artifact_key) == ("queued", None), seen
        assert front.fetch(me, job_id).status_code == 202
        disk.free()
        left = [path.name for path in (folder / "artifacts").rglob("*") if path.is_file()]
        assert left == [".kesin-artifacts"]
        front.clock.advance(3_600)
        front.beat()
        front.worker.process_job(job_id)
        assert front.fetch(me, job_id).status_code == 200
        assert front.moves(job_id).count("claim") == 2
        assert verify(store, "pdf").differences == []


def the_workshop(disk: SmallDisk, folder: Path) -> None:
    """Its folders are full: an order fails and says why, and a retry brings it to the saw."""
    with closing(SqliteStore(":memory:")) as store:
        floor = Floor(store, folder)
        with floor.kept():
            floor.orders.add_customer(ROOT, "Ayşe", PHONE)
            job_id = floor.new()
            disk.fill()
            floor.work()
            seen = floor.job_body(job_id)
            assert (seen["state"], seen["error_code"]) == ("FAILED", "E_EXPORT_DIR_UNWRITABLE")
            disk.free()
            assert list(floor.paths.import_folder.rglob("*.*")) == []  # not even a hidden part
            assert floor.act(job_id, "retry").status_code == 200
            floor.later()
            assert floor.state(job_id) == "HOLD"
            floor.act(job_id, "approve", confirm=True)
            floor.work()
            floor.plan(job_id)
            disk.fill()
            floor.later()
            floor.later()
            disk.free()
            assert [path.suffix for path in floor.paths.inbox.rglob("*") if path.is_file()] == []
            for _ in range(10):
                floor.later()
                floor.saw.process_inbox()
            assert floor.state(job_id) == "DONE"
        assert verify(store, "optiplan").differences == []


# Folders and files that cannot be written


def the_folder(kind: str, folder: Path) -> None:
    """A process that has the store open goes on; a new one is refused with the reason."""
    file = folder / "kesin.db"
    with closing(open_store(file)) as store:
        queue = Queue("task", task_lifecycle(), store)
        ids = fill(queue, 20)
        make_read_only(folder, kind)
        assert queue.stats().states["ready"] == len(ids)
        ids += fill(queue, 5)
        check_promise(store, "task", queue.lifecycle, ids, at_rest=False)
        for path in (file, folder / "deeper" / "kesin.db"):
            _refused_as_read_only(path, lambda path=path: open_store(path))  # type: ignore[misc]
        for words in (("serve", "--port", "0"), ("migrate",), ("stats",)):
            code, out, err = _kesin(folder, *words)
            assert (code, out) == (1, ""), (words, out, err)
            assert "cannot be written" in err, (words, err)
            assert "give this user write access" in err, (words, err)
            assert "Traceback" not in err, (words, err)
        code, out, err = _kesin(folder, "doctor")
        assert code == 1, out
        assert f"{folder} cannot be written" in out, out
        assert "let this user write" in out, out
        assert "Traceback" not in out + err


def the_file(kind: str, folder: Path) -> None:
    """The file alone: it can be read, as a backup is, and nothing is written."""
    file = folder / "kesin.db"
    with closing(open_store(file)) as store:
        ids = fill(Queue("task", task_lifecycle(), store), 3)
    make_read_only(file, kind)
    with closing(open_store(file)) as store:
        queue = Queue("task", task_lifecycle(), store)
        check_promise(store, "task", queue.lifecycle, ids, at_rest=False)
        _refused_as_read_only(file, lambda: queue.enqueue({}))
        service = Service(Settings(data_dir=folder), store, {}, work=False)
        assert service.checks()["disk"].detail == "cannot be written"
    code, out, _ = _kesin(folder, "doctor")
    assert code == 1, out
    assert f"{file} cannot be written" in out, out


def _refused_as_read_only(path: Path, call: Callable[[], object]) -> None:
    with pytest.raises(StoreTrouble) as caught:
        call()
    assert caught.value.code == "read_only", str(caught.value)
    assert "give this user write access" in str(caught.value)
    assert str(path) in str(caught.value)


def _kesin(folder: Path, *words: str) -> tuple[int, str, str]:
    with patch.dict(os.environ, {"KESIN_DATA_DIR": str(folder), "COLUMNS": "250"}):
        done = CliRunner().invoke(app, list(words))
    assert isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def main(kind: str, place: str) -> None:
    """Try everything, with disks of its own (``mounts``) or limits that stand in (``limits``)."""
    mounts = kind == "mounts"
    folders = [Path(place) / name for name in ("the_file", "the_folder", "disk")]
    for folder in folders:
        folder.mkdir()
    for read_only, folder in zip((the_file, the_folder), folders, strict=False):
        read_only("mount" if mounts else "modes", folder)
    disk = SmallDisk(folders[-1], "tmpfs" if mounts else "quota")
    for part in (the_store, the_service, the_pdfs, the_workshop):
        folder = disk.folder / part.__name__
        folder.mkdir()
        with quick_hashes():
            part(disk, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
