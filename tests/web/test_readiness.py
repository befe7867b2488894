"""`/health/ready`: workers, sweeper and disk, in a service of this process."""

import errno
import io
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kesin.engine.transfer.backup import BackupFile
from kesin.engine.worker import Worker
from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.clock import ManualClock
from kesin.foundation.settings import Settings
from kesin.lifecycle.task import task_lifecycle
from kesin.store.open import open_store
from kesin.web.app import create_app
from kesin.web.service import SWEEPS_MISSED, WORKER_SILENT_S, Service
from tests.cli.programs import wait_until
from tests.web.client import Client


def ready(service: Service) -> tuple[int, set[str]]:
    """The status, and the names of the checks that failed."""
    response = Client(create_app(service)).get("/health/ready")
    checks = response.json()["checks"]
    return response.status_code, {name for name, check in checks.items() if not check["ok"]}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_service(tmp_path, clock) -> Iterator[Callable[..., Service]]:
    """A service in this process, with workers, under a clock that stands still."""
    services: list[Service] = []

    def make(min_free_mb: int = 0, files: Path | None = None) -> Service:
        settings = Settings(data_dir=tmp_path / "data", min_free_mb=min_free_mb)
        store = open_store(str(tmp_path / "here.db"), migrate=True)
        kept = [] if files is None else [BackupFile("files", files)]
        workload = Workload(
            "task",
            task_lifecycle,
            worker=make_worker,
            periodic=WorkloadContext.__repr__,  # anything: only that it is called matters
            backup_files=lambda _: [*kept, "a note"],
        )
        service = Service(settings, store, {"task": workload}, clock=clock)
        services.append(service)
        service.start()
        return service

    yield make
    for service in services:
        service.stop()


def make_worker(context: WorkloadContext) -> Worker:
    return Worker(context.queue, lambda job: None, poll_s=0.05)


@pytest.fixture
def service(make_service) -> Service:
    return make_service()


def test_a_running_service_is_ready_until_it_is_asked_to_stop_and_still_alive(service):
    wait_until(lambda: ready(service) == (200, set()))
    service.begin_stop()
    status, failed = ready(service)
    assert status == 503
    assert "running" in failed
    assert Client(create_app(service)).get("/health/live").status_code == 200


@pytest.mark.parametrize("jobs", [0, 1])
def test_a_workload_that_cannot_run_here_is_logged_only_if_it_has_jobs(tmp_path, clock, jobs):
    store = open_store(str(tmp_path / "here.db"), migrate=True)
    workload = Workload("task", task_lifecycle, needs=("no_such_library",))
    service = Service(Settings(data_dir=tmp_path), store, {"task": workload}, clock=clock)
    for number in range(jobs):
        service.queues["task"].enqueue(number)
    with capture_logs() as logs:
        service.start()
    service.stop()
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["no_work_here"] * jobs


def test_a_worker_whose_threads_ended_is_not_ready(service):
    [worker] = service.workers
    worker.stop()
    wait_until(lambda: not worker.alive)
    assert ready(service) == (503, {"workers"})


def test_a_worker_that_does_not_reach_the_store_is_not_ready(service, monkeypatch, clock):
    [worker] = service.workers
    broken = threading.Event()

    def fail(*_: object, **__: object) -> None:
        broken.set()
        raise RuntimeError("away")

    monkeypatch.setattr(worker.queue, "claim", fail)
    assert broken.wait(60)
    clock.advance(WORKER_SILENT_S + 1)
    assert ready(service) == (503, {"workers"})


def test_a_worker_with_a_long_job_is_ready(service, clock):
    begun, go = threading.Event(), threading.Event()

    def work(job: object) -> None:
        begun.set()
        assert go.wait(60)

    [worker] = service.workers
    worker.handler = work
    service.queues["task"].enqueue({})
    assert begun.wait(60)
    clock.advance(WORKER_SILENT_S + 1)
    assert ready(service) == (200, set())
    go.set()


def test_a_sweeper_that_has_not_swept_for_long_is_not_ready(service, clock):
    wait_until(lambda: service.sweeper.last_success is not None)
    assert "task" in service.sweeper.periodic
    service.sweeper.stop()
    clock.advance(SWEEPS_MISSED * service.settings.sweep_s + 1)
    wait_until(lambda: service.workers[0].last_success == clock.monotonic())
    assert ready(service) == (503, {"sweeper"})


def test_a_disk_that_is_nearly_full_is_not_ready(make_service):
    assert ready(make_service(min_free_mb=10**7)) == (503, {"disk"})


def test_a_disk_of_a_workload_that_takes_no_file_is_not_ready(make_service, tmp_path, monkeypatch):
    files = tmp_path / "artifacts"
    files.mkdir()
    service = make_service(files=files)
    assert ready(service) == (200, set())
    with monkeypatch.context() as patch:
        usage = shutil.disk_usage(tmp_path)
        full = {str(files): usage._replace(free=0)}
        patch.setattr(shutil, "disk_usage", lambda folder: full.get(str(folder), usage))
        patch.setattr(service, "settings", service.settings.model_copy(update={"min_free_mb": 1}))
        assert ready(service) == (503, {"disk"})

    def refuse(dir: Path, **_: object) -> object:  # noqa: A002  # its name there
        if dir == files:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        return io.BytesIO()

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    assert ready(service) == (503, {"disk"})
