"""Which files are kept: by the hourly cleanup and in a backup.

The cleanup deletes files of orders done long ago, the leftovers of deleted jobs, and the records of
offcuts used or scrapped as long ago as orders that are done are kept. Jobs that are active, held or
failed keep everything, because an operator may continue them. Files that the machine has moved are
left to the machine. An unavailable folder is skipped until the next run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kesin.engine.queue import Queue
from kesin.engine.transfer.backup import BackupFile
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import Logger
from kesin.foundation.problems import Problem
from kesin.foundation.settings import Settings
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.lifecycle import OptiplanLimits
from kesin.workloads.optiplan.pipeline import shared_folder
from kesin.workloads.optiplan.pipeline.delivery import OPEN, withdraw_job_files
from kesin.workloads.optiplan.pipeline.progress import ProgressStore
from kesin.workloads.optiplan.stock.rack import Rack
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.paths import Paths, load_paths

KEEP_FILES_DAYS: Final = 30  # of an order that is done
_SET_ASIDE_FOLDERS: Final = ("old", "failed")  # in the export folder

log = Logger("kesin.optiplan")


def delete_expired_files(context: WorkloadContext) -> int:
    """Run every cleanup task; returns how many files and records were removed."""
    workshop = Workshop(context.settings)
    progress_store = ProgressStore(context.queue)
    deleted = 0
    for task in (_Cleanup.withdraw_cancelled, _Cleanup.delete_old, _Cleanup.delete_orphans, _Cleanup.prune_rack):
        try:
            paths = workshop.paths()
            deleted += task(_Cleanup(context.queue, progress_store, paths, workshop.run_folder))
        except (Problem, OSError) as problem:
            log.warning("cleanup_failed", why=str(problem))
    return deleted


@dataclass(frozen=True, slots=True)
class _Cleanup:
    """The cleanup tasks; each returns how much it removed."""

    queue: Queue
    progress_store: ProgressStore
    paths: Paths
    run_folder: Path

    def withdraw_cancelled(self) -> int:
        """Withdraw files of orders that were cancelled without the order service."""
        where = Filter(states=("FAILED",), codes=(OptiCode.CANCELLED,))
        machine, store = self.paths.machine_drop_folder, self.progress_store
        return sum(
            withdraw_job_files(machine, store, job.id, all_or_nothing=False)
            for job in self.queue.jobs(where, limit=MAX_PAGE).jobs  # earlier runs saw the older
            if any(attempt["state"] == OPEN for attempt in store.read(job.id).deliveries)
        )

    def delete_old(self) -> int:
        """Delete import files, solutions and run logs of orders done long ago."""
        before = self.queue.now() - KEEP_FILES_DAYS * DAY_S * SECOND_US
        job_files = list(self._job_files())
        old_jobs: set[str] = set()
        for ids in _pages({job_id for job_id, _ in job_files}):
            for job in self.queue.find(ids).values():
                if job.state == "DONE" and (job.finished_at or job.moved_at) < before:
                    old_jobs.add(job.id)
        return _delete(job_files, old_jobs)

    def delete_orphans(self) -> int:
        """Delete files of deleted jobs with a record; others may be of another Kesin."""
        deleted_jobs: set[str] = set()
        for ids in _pages(self.progress_store.job_ids()):
            deleted_jobs |= set(ids) - self.queue.states(ids).keys()
        if not deleted_jobs:
            return 0
        deleted = _delete(self._job_files(), deleted_jobs)
        return deleted + sum(map(self.progress_store.delete, sorted(deleted_jobs)))

    def prune_rack(self) -> int:
        """Delete the records of offcuts used or scrapped long ago."""
        kept_us = OptiplanLimits().keep_done_days * DAY_S * SECOND_US
        return Rack(self.queue).prune(self.queue.now() - kept_us)

    def _job_files(self) -> Iterator[tuple[str, shared_folder.FolderEntry]]:
        """Yield every file whose name holds exactly one job id, with that id."""
        exported = self.paths.export_folder
        set_aside = (exported / name for name in _SET_ASIDE_FOLDERS)
        for folder in (self.paths.import_folder, exported, *set_aside, self.run_folder):
            if not folder.is_dir():
                continue
            with shared_folder.translate_os_errors(folder):
                entries = shared_folder.list_plain_files(folder)
            for entry in entries:
                if len(ids := entry.job_ids) == 1:
                    yield ids.pop(), entry


def _delete(job_files: Iterable[tuple[str, shared_folder.FolderEntry]], jobs: set[str]) -> int:
    paths = [file.path for job_id, file in job_files if job_id in jobs]
    for path in paths:
        with shared_folder.translate_os_errors(path):
            path.unlink(missing_ok=True)
    return len(paths)


def _pages(ids: Iterable[str]) -> Iterator[list[str]]:
    ordered = sorted(ids)
    return (ordered[start : start + MAX_PAGE] for start in range(0, len(ordered), MAX_PAGE))


def backup_files(settings: Settings) -> Iterator[BackupFile | str]:
    """List the files to back up; say what is left out, such as files that the saw has had."""
    workshop = Workshop(settings)
    if not workshop.paths_file.exists():
        return  # nothing has been set up
    places = [workshop.rules_file, workshop.paths_file]
    try:
        paths = load_paths(workshop.paths_file)
        places += [paths.import_folder, paths.export_folder, paths.rules_folder, paths.template]
        yield f"{paths.machine_drop_folder}: the saw must not get these files again"
    except OrderProblem as problem:
        yield f"files of orders: {problem.message}"
    for place in places:
        if place.is_relative_to(workshop.folder):
            yield BackupFile(f"data/{place.relative_to(workshop.folder).as_posix()}", place)
        else:
            yield f"{place}: it is outside the data folder"
