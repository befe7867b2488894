"""Orders that wait: they say what for, and time out as what they waited for."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kesin.engine.sweeper import Sweeper
from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.pipeline import delivery, runner, waiting
from kesin.workloads.optiplan.pipeline.waiting import log_timeouts, pause_s, waiting_for
from kesin.workloads.optiplan.workshop import config
from tests.workloads.optiplan.at_the_saw import retry, sent
from tests.workloads.optiplan.workbench import ME, MINUTE, InstantProgram, Workbench

pytestmark = pytest.mark.usefixtures("instant")


def waits(bench: Workbench, job: Job) -> tuple[str, str, bool]:
    found = waiting_for(bench.reload(job))
    assert found is not None
    return found.what, found.message, found.blocked


def unwritable(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Refuse every write into the machine's folder; returns what allows it again."""

    def refused(path: Path, data: bytes) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(delivery, "write_atomically", refused)
    return monkeypatch.undo


def blocked(bench: Workbench) -> Job:
    """An order that is ready, while the machine's folder is away."""
    job = bench.order()
    bench.paths.inbox.rename(bench.paths.machine_drop_folder / "gone")
    return bench.until(job, "XML_READY")


def test_a_drop_folder_that_cannot_be_written_is_said_at_once_and_is_what_it_fails_with(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
):
    unwritable(monkeypatch)
    job = bench.until(bench.order(), "XML_READY")
    folder = bench.paths.machine_drop_folder
    why = f"{folder} cannot be used: Permission denied"
    assert waits(bench, job) == ("folder", why, True)
    assert bench.reload(job).error_code == "E_DROP_DIR_UNWRITABLE"
    bench.clock.advance(5 * MINUTE)
    bench.sweep()
    failed = bench.reload(job)
    assert (failed.state, failed.error_code) == ("FAILED", "E_DROP_DIR_UNWRITABLE")
    assert failed.error_message == why


def test_a_wrong_path_of_the_machine_is_what_the_order_waits_for(bench: Workbench, monkeypatch: pytest.MonkeyPatch):
    logged: list[list[str]] = []
    monkeypatch.setattr(config.log, "info", lambda _, folders: logged.append(folders))
    wrong = bench.settings.data_dir.parent / "no-such-share"
    bench.change_paths(machineDropFolder=str(wrong))
    job = bench.until(bench.order(), "XML_READY")
    assert waits(bench, job) == ("folder", f"{wrong} cannot be used: there is no inbox in it", True)
    assert not wrong.exists()
    wrong.mkdir()  # the share is there now
    bench.poll()
    assert waits(bench, job)[0] == "machine"
    assert logged == [[str(wrong / name) for name in ("inbox", "processed", "failed")]]


def test_what_blocked_an_order_is_forgotten_once_it_can_be_used_again(bench: Workbench):
    job = blocked(bench)
    (bench.paths.machine_drop_folder / "gone").rename(bench.paths.inbox)
    bench.poll()
    assert (bench.reload(job).error_code, waits(bench, job)) == (None, ("machine", "the saw to take its files", False))
    bench.clock.advance(5 * MINUTE)
    bench.sweep()
    assert bench.reload(job).error_code == "E_OSI_ACK_TIMEOUT"
    bench.until(retry(bench, job), "DONE")
    assert bench.reload(job).error_code is None


def test_an_export_folder_that_is_away_is_not_the_missing_xml(bench: Workbench):
    job = bench.until(bench.order(opti_mode="C"), "HOLD")
    assert waits(bench, job) == ("operator", "an operator to approve it", False)
    bench.orders.approve(ME, job.id, confirmed=True)
    bench.until(job, "OPTI_RUNNING")
    assert waits(bench, job) == ("xml", "its XML in the export folder", False)
    bench.paths.export_folder.rename(bench.settings.data_dir / "away")
    bench.poll()
    assert waits(bench, job)[0] == "folder"
    bench.clock.advance(20 * MINUTE)
    bench.sweep()
    assert bench.reload(job).error_code == "E_EXPORT_DIR_UNWRITABLE"


def test_a_standing_problem_is_logged_once_and_when_it_or_its_order_ends(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
):
    said: list[str] = []
    monkeypatch.setattr(runner.log, "warning", lambda event, **_: said.append(event))
    monkeypatch.setattr(waiting.log, "info", lambda event, **_: said.append(event))
    job = blocked(bench)
    for _ in range(3):
        bench.poll()
    assert said == ["order_blocked"]
    (bench.paths.machine_drop_folder / "gone").rename(bench.paths.inbox)
    bench.poll()
    bench.poll()
    assert said == ["order_blocked", "order_unblocked"]
    assert bench.moves(job).count("block") == 4
    cancelled = blocked(bench)
    (bench.paths.machine_drop_folder / "gone").rename(bench.paths.inbox)
    said.clear()
    bench.orders.cancel(ME, cancelled.id)
    assert (bench.reload(cancelled).state, said) == ("FAILED", ["order_unblocked"])


def test_a_problem_that_a_timeout_ends_is_logged_once(bench: Workbench, monkeypatch: pytest.MonkeyPatch):
    said: list[tuple[str, str]] = []
    monkeypatch.setattr(waiting.log, "info", lambda event, *, job, **_: said.append((event, job)))
    sweeper = Sweeper([bench.queue], periodic={"optiplan": lambda: log_timeouts(bench.queue)})
    sweeper.sweep()
    for _ in range(2):
        job = blocked(bench)
        bench.clock.advance(5 * MINUTE)
        sweeper.sweep(("timeout",))
        assert bench.reload(job).state == "FAILED"
        sweeper.sweep(("timeout",))
        assert said == [("order_unblocked", job.id)]
        said.clear()
        (bench.paths.machine_drop_folder / "gone").rename(bench.paths.inbox)
        bench.clock.advance(1)
    bench.orders.retry(ME, job.id)
    sweeper.sweep(("timeout",))
    assert said == []


def test_a_program_that_ends_without_an_xml_gives_the_slot_up(bench: Workbench, instant: InstantProgram):
    bench.install("")
    first, second = bench.order(), bench.order()
    instant.solution = ""  # an empty file is none
    bench.poll()
    instant.solution = "<S><a/></S>"
    assert waits(bench, second)[0] == "slot"
    bench.until(first, "FAILED", polls=2)
    failed = bench.reload(first)
    assert failed.error_code == "E_OPTI_RUNNER_FAILED"
    message = failed.error_message or ""
    assert str(bench.paths.export_folder) in message
    assert bench.progress(first).stems[0] in message
    bench.until(second, "XML_READY")


def test_looks_become_rarer(bench: Workbench):
    job = sent(bench, bench.order())
    pauses = []
    while bench.reload(job).state == "XML_READY":
        pauses.append(pause_s(bench.queue, bench.reload(job)))
        bench.clock.advance(pauses[-1])
        bench.worker.drain()
        bench.sweep()
    assert pauses == sorted(pauses)
    assert (pauses[0] >= 1, pauses[-1]) == (True, 30)
    assert len(pauses) < 25  # in five minutes
