"""The hourly tidying: files of orders that were cut long ago, and what is remembered of none.

Jobs on their way, held or failed keep everything: somebody may go on with them. What the machine
has moved is the machine's. A folder that is away is tidied next time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import Logger
from kesin.foundation.problems import Problem
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.store.directory import Directory
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.workloads.optiplan.errors import OptiCode
from kesin.workloads.optiplan.pipeline.delivery_attempts import OPEN, withdrawn
from kesin.workloads.optiplan.pipeline.progress import Dossiers
from kesin.workloads.optiplan.pipeline.shared_folder import Entry, minding, plain_files
from kesin.workloads.optiplan.service import QUEUE
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.paths import Paths

KEEP_FILES_DAYS: Final = 30  # of an order that is done
_ASIDE: Final = ("old", "failed")  # in the export folder

log = Logger("kesin.optiplan")


def tidied(house: WorkloadContext) -> int:
    """Do all of it; how many files and dossiers were taken away."""
    workshop = Workshop(house.settings)
    queue = house.commands.queues[QUEUE]
    dossiers = Dossiers(Directory(queue.store), queue.now)
    chores: tuple[Callable[[Paths], int], ...] = (
        lambda paths: withdraw_cancelled(queue, dossiers, paths),
        lambda paths: remove_old_files(queue, paths, workshop.run_folder),
        lambda paths: forget_gone(queue, dossiers, paths, workshop.run_folder),
    )
    done = 0
    for chore in chores:
        try:
            done += chore(workshop.paths())
        except (Problem, OSError) as problem:
            log.warning("not_tidied", why=str(problem))
    return done


def withdraw_cancelled(queue: Queue, dossiers: Dossiers, paths: Paths) -> int:
    """Take back files of orders that were cancelled past the order desk, which does it itself."""
    where = Filter(states=("FAILED",), codes=(OptiCode.CANCELLED,))
    taken = 0
    for job in queue.jobs(where, limit=MAX_PAGE).jobs:  # the newest: older ones had their turn
        is_open = any(one["state"] == OPEN for one in dossiers.read(job.id).deliveries)
        if is_open and withdrawn(paths.machine_drop_folder, dossiers, job.id, whole=False):
            taken += 1
    return taken


def remove_old_files(queue: Queue, paths: Paths, run_folder: Path) -> int:
    """Remove import files, solutions and traces of orders done long ago; how many files."""
    before = queue.now() - KEEP_FILES_DAYS * DAY_S * SECOND_US
    found = list(_files(paths, run_folder))
    old: set[str] = set()
    for ids in _pages(sorted({job_id for job_id, _ in found})):
        for job in queue.find(ids).values():
            if job.state == "DONE" and (job.finished_at or job.moved_at) < before:
                old.add(job.id)
    return _remove(one for job_id, one in found if job_id in old)


def forget_gone(queue: Queue, dossiers: Dossiers, paths: Paths, run_folder: Path) -> int:
    """Forget jobs that are no more, with the files they left; how many of both.

    Only what we remember: a name with an id that nobody here knows is another house's.
    """
    gone: set[str] = set()
    for ids in _pages(sorted(dossiers.of_jobs())):
        there = queue.states(ids)
        gone.update(one for one in ids if one not in there)
    if not gone:
        return 0
    removed = _remove(one for job_id, one in _files(paths, run_folder) if job_id in gone)
    return removed + sum(dossiers.drop(one) for one in sorted(gone))


def _files(paths: Paths, run_folder: Path) -> Iterator[tuple[str, Entry]]:
    """Every file that bears the id of one job, and that id."""
    aside = (paths.export_folder / name for name in _ASIDE)
    for folder in (paths.import_folder, paths.export_folder, *aside, run_folder):
        if not folder.is_dir():
            continue
        with minding(folder):
            entries = plain_files(folder)
        for one in entries:
            ids = one.job_ids
            if len(ids) == 1:
                yield ids.pop(), one


def _remove(files: Iterable[Entry]) -> int:
    removed = 0
    for one in list(files):
        with minding(one.path):
            one.path.unlink(missing_ok=True)
            removed += 1
    return removed


def _pages(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + MAX_PAGE] for start in range(0, len(ids), MAX_PAGE))
