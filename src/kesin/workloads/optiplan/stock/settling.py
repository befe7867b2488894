"""What follows for the rack from what became of an order; doing it again changes nothing."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import Logger
from kesin.foundation.problems import Unavailable
from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.pipeline import delivery
from kesin.workloads.optiplan.pipeline.delivery import Delivery, DeliveryFile
from kesin.workloads.optiplan.pipeline.progress import OrderProgress, ProgressStore, batch_stem
from kesin.workloads.optiplan.stock.offcut import Offcut
from kesin.workloads.optiplan.stock.plans import made_offcuts
from kesin.workloads.optiplan.stock.rack import Rack
from kesin.workloads.optiplan.workshop.config import Workshop

FREED: Final[Mapping[str, Any]] = {
    "state": "FREE",
    "reserved_by_job": None,
    "reserved_attempt": 0,
    "reserved_batch": "",
}
_Plan = tuple[int, str]  # the run of the optimiser, and the batch
_Sent = Mapping[_Plan, Literal["delivered", "taken", "inbox", "nowhere"]]
log = Logger("kesin.optiplan")


def settle_orders(context: WorkloadContext) -> None:
    """Settle every order that has come to rest, or has ended."""
    settling = Settling(Workshop(context.settings), context.queue)
    rack = settling.rack
    for job_id in rack.orders():
        if not rack.is_working(context.queue.states([job_id]).get(job_id)):
            with suppress(Unavailable, OrderProblem):  # reported of the orders themselves
                settling.settle(job_id)


class Settling:
    """Ends the reservations of orders, and puts their new offcuts into the rack."""

    def __init__(self, workshop: Workshop, queue: Queue) -> None:
        self.rack = Rack(queue)
        self._workshop = workshop
        self._queue = queue
        self._progress_store = ProgressStore(queue)

    def settle(self, job_id: str, *, finished: bool = False) -> None:
        """Settle an order; ``finished``: the saw has acknowledged it. Raises FolderUnavailable.

        The folders are read first. If the order has moved meanwhile, nothing is done this time.
        """
        if not self.rack.has_order(job_id):
            return
        job, progress = self._read(job_id)
        done = job is not None and (finished or job.state == "DONE")
        working = job is not None and not done and self.rack.is_working(job.state)
        paths = self._workshop.paths()
        sent = _where_sent(paths.machine_drop_folder, progress, done=done)
        doubt = None if working else {"state": "IN_DOUBT"}
        ends: Mapping[str, Mapping[str, Any] | None] = {
            "delivered": {"state": "USED", "used_by_job": job_id},
            "taken": doubt,
            "inbox": None,  # the saw may still take the file
            "nowhere": FREED,
        }
        made = self._made(paths.export_folder, job, progress, sent) if job and done else []
        with self.rack.directory.transaction():
            offcuts, left = self.rack.lock_all(self.rack.lock_order(job_id)), list[str]()
            now, now_progress = self._read(job_id)
            if (now and now.state, now_progress) != (job and job.state, progress):
                return
            for offcut in offcuts:
                if (offcut.state, offcut.reserved_by_job) != ("RESERVED", job_id):
                    continue
                is_over = job and not (working and offcut.reserved_attempt == progress.runs)
                plan = (offcut.reserved_attempt, offcut.reserved_batch)
                changes = ends[sent.get(plan, "nowhere")] if is_over else doubt
                if changes is None:
                    left.append(offcut.id)
                else:
                    self.rack.update(offcut, **changes)
            for offcut in made:
                self.rack.add(offcut)
            self.rack.keep_order(job_id, left)
            if not (left or working):
                self.rack.drop_order(job_id)

    def _read(self, job_id: str) -> tuple[Job | None, OrderProgress]:
        return self._queue.job(job_id), self._progress_store.read(job_id)

    def _made(self, folder: Path, job: Job, progress: OrderProgress, sent: _Sent) -> list[Offcut]:
        """Return the order's new offcuts; none of what was cut by the plan of an earlier run."""
        runs = progress.runs
        batches = [stem for run, stem in sent if sent[run, stem] == "delivered" and run == runs]
        try:
            return list(made_offcuts(folder, job, progress, batches, self._queue.now()))
        except (KeyError, ValueError, ArithmeticError) as problem:  # of a file that was changed
            log.warning("offcuts_not_recorded", job=job.id, why=repr(problem))
            return []


def _where_sent(machine_folder: Path, progress: OrderProgress, *, done: bool) -> _Sent:
    """Return where the files of an order's plans are, by the plan that they come from."""
    first_runs: dict[str, int] = {}  # a file that was carried over is of an earlier run
    files: dict[_Plan, list[DeliveryFile]] = {}
    delivered: set[_Plan] = set()
    for number, record in enumerate(progress.deliveries):
        for file in Delivery.from_json(record["delivery"]).files:
            run = first_runs.setdefault(file.name, record.get("run", 0))
            plan = (run, batch_stem(progress.stems, file.source.name))
            files.setdefault(plan, []).append(file)
            if done and number == (progress.current or 0):
                delivered.add(plan)
    return {
        plan: "delivered" if plan in delivered else delivery.find_sent(machine_folder, its_files)
        for plan, its_files in files.items()
    }
