"""The hourly cleanup: what it deletes and what it keeps."""

from pathlib import Path

from kesin.engine.sweeper import Sweeper
from kesin.workloads.optiplan.files import KEEP_FILES_DAYS, delete_expired_files
from tests.workloads.optiplan.floor import DAY, NO_JOB, Floor, two_batches


def files_of(floor: Floor, job_id: str) -> list[Path]:
    folders = (floor.paths.import_folder, floor.paths.export_folder, floor.workshop.run_folder)
    return [file for folder in folders for file in folder.rglob(f"*{job_id}*")]


def traces(floor: Floor, job_id: str) -> None:
    """Write the files that a program and an earlier attempt leave behind."""
    floor.workshop.run_folder.mkdir(parents=True, exist_ok=True)
    for name in (f"{job_id}.1.json", f"{job_id}.1.log"):
        (floor.workshop.run_folder / name).write_text("{}")
    old = floor.paths.export_folder / "old"
    old.mkdir(exist_ok=True)
    (old / f"{job_id}_GOVDE_Beyaz_18mm.aa.xml").write_text("<a/>")
    (floor.paths.export_folder / f"{job_id}_GOVDE_Beyaz_18mm.svg").write_text("<svg/>")


def test_files_of_an_order_cut_long_ago_go_and_all_of_it_once_it_is_deleted(
    own_floor: Floor, said: list[dict[str, str]]
):
    floor = own_floor
    job_id = floor.done(*two_batches())
    traces(floor, job_id)
    strangers = [floor.paths.import_folder / f"{NO_JOB}_GOVDE_Beyaz_18mm.xlsx", floor.paths.export_folder / "notes.xml"]
    for file in strangers:
        file.write_text("mine")
    assert len(files_of(floor, job_id)) == 4 + 2 + 4
    floor.clock.advance((KEEP_FILES_DAYS - 1) * DAY)
    assert delete_expired_files(floor.context) == 0
    floor.clock.advance(2 * DAY)
    floor.workshop.paths_file.write_text("{")
    assert delete_expired_files(floor.context) == 0
    assert "cleanup_failed" in {line["event"] for line in said}
    floor.workshop.paths_file.unlink()
    assert delete_expired_files(floor.context) == 10  # the next time
    assert files_of(floor, job_id) == []
    assert floor.job_body(job_id)["state"] == "DONE"
    assert list(floor.paths.processed.iterdir()) != []  # the machine's
    assert delete_expired_files(floor.context) == 0

    other = floor.done()
    floor.clock.advance(366 * DAY)
    Sweeper([floor.queue]).sweep(("prune",))
    assert floor.queue.job(other) is None
    assert delete_expired_files(floor.context) > 1
    assert files_of(floor, other) == []
    assert floor.orders._progress_store.job_ids() == []
    assert all(file.exists() for file in strangers)


def test_an_order_that_is_not_done_keeps_everything(own_floor: Floor):
    floor = own_floor
    job_ids = [floor.timed_out(), floor.sent(), floor.held()]
    for job_id in job_ids:
        traces(floor, job_id)
    before = {job_id: files_of(floor, job_id) for job_id in job_ids}
    assert all(before.values())
    floor.clock.advance(400 * DAY)
    assert delete_expired_files(floor.context) == 0
    assert {job_id: files_of(floor, job_id) for job_id in job_ids} == before


def test_a_cancel_without_the_order_service_is_completed_by_the_cleanup(own_floor: Floor):
    floor = own_floor
    job_id = floor.sent()
    floor.queue.act("cancel", actor="somebody", ids=[job_id])
    assert len(floor.inbox()) == 1
    after_sweep = floor.service.workloads["optiplan"].after_sweep
    assert after_sweep is not None
    assert after_sweep(floor.context) == 1  # as the service runs it
    assert floor.inbox() == []
    assert delete_expired_files(floor.context) == 0
