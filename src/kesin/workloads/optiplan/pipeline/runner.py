"""One pass of an order: as far as it can go now, then it waits, stops for a person, or is done.

The claim travels with the job from state to state. Where something else has to happen first (the
slot to become free, the XML to appear, the machine to acknowledge) the claim is dropped and the job
wakes up later: no thread sits and waits. Every step may be met half done by the next runner.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from kesin.engine.queue import Queue, StaleClaim
from kesin.engine.results import Act, Answer, Done, Run, Wait
from kesin.engine.worker import Worker
from kesin.foundation.logs import Logger
from kesin.foundation.problems import Unavailable
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Job
from kesin.store.directory import Directory
from kesin.store.errors import StoreUnreachable
from kesin.workloads.optiplan.customers import Customers
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.lifecycle import APPROVED, CANCEL_ASKED, TRIGGER
from kesin.workloads.optiplan.orders.payload import Order
from kesin.workloads.optiplan.pipeline import program
from kesin.workloads.optiplan.pipeline.delivery import (
    Acknowledged,
    Delivery,
    Refused,
    ack,
    drop,
    forget,
    withdraw,
)
from kesin.workloads.optiplan.pipeline.delivery_attempts import (
    OPEN,
    REFUSED,
    add_try,
    check_there,
    taken_back,
)
from kesin.workloads.optiplan.pipeline.prechecks import check_gates
from kesin.workloads.optiplan.pipeline.program import macro_command, trigger_for
from kesin.workloads.optiplan.pipeline.progress import Dossier, Dossiers
from kesin.workloads.optiplan.pipeline.solution import (
    Checked,
    Found,
    check_xml,
    find_xml,
    set_aside,
)
from kesin.workloads.optiplan.pipeline.transform import transform
from kesin.workloads.optiplan.pipeline.workbook import write_batches
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.paths import Paths
from kesin.workloads.optiplan.workshop.rules import Rules

log = Logger("kesin.optiplan")

LANES: Final = 2
FIRST_LOOK_S: Final = 0.5
LONGEST_LOOK_S: Final = 10.0
LOOK_SHARE: Final = 0.1  # of the time waited so far: long waits are looked at less often
_WAITS: Final = frozenset({"OPTI_RUNNING", "XML_READY"})
_PASSING: Final = frozenset({OptiCode.EXPORT_DIR_UNWRITABLE, OptiCode.CONFIG_UNAVAILABLE})

Next = str | Answer  # the state to go on in, or the answer that ends the pass


@dataclass(slots=True)
class _Pass:
    """What a pass works with."""

    job: Job
    run: Run
    at: str  # the state it has reached
    order: Order = field(init=False)
    rules: Rules = field(init=False)
    paths: Paths = field(init=False)
    dossier: Dossier = field(init=False)

    @property
    def machine(self) -> Path:
        return self.paths.machine_drop_folder

    @property
    def export(self) -> Path:
        return self.paths.export_folder


class Runner:
    """The handler of the queue."""

    def __init__(self, workshop: Workshop, queue: Queue, *, host: str | None = None) -> None:
        self._workshop = workshop
        self._queue = queue
        self._host = host or socket.gethostname()
        directory = Directory(queue.store)
        self._dossiers = Dossiers(directory, queue.now)
        self._customers = Customers(directory, queue.now)
        self._steps: Mapping[str, Callable[[_Pass], Next]] = {
            "NEW": self._prepared,
            "PREPARED": self._imported,
            "OPTI_IMPORTED": self._running,
            "OPTI_RUNNING": self._collected,
            "OPTI_DONE": self._validated,
            "XML_READY": self._delivered,
            "DELIVERED": self._done,
        }

    def __call__(self, job: Job, run: Run) -> Answer:
        """Take the job as far as it goes."""
        here = _Pass(job, run, job.state)
        try:
            here.order = Order.of(job)
            here.rules, here.paths = self._workshop.rules(), self._workshop.paths()
            here.dossier = self._dossiers.read(job.id)
            return self._go(here)
        except StaleClaim:
            log.warning("claim_lost", job=job.id)
            return Wait(FIRST_LOOK_S)  # refused like everything else of a lost claim
        except StoreUnreachable as problem:  # no fault of the order: the next runner goes on
            log.warning("store_away", job=job.id, why=str(problem))
            return Act("release")
        except (Unavailable, OrderProblem) as problem:
            return self._stopped(here, problem)

    def _stopped(self, here: _Pass, problem: Unavailable | OrderProblem) -> Answer:
        """What is away or cannot be read is waited for, where a job can wait."""
        known = isinstance(problem, OrderProblem)
        code = problem.code if known else OptiCode.EXPORT_DIR_UNWRITABLE
        if here.at in _WAITS and code in _PASSING:
            log.warning("waiting_for_help", job=here.job.id, why=problem.message)
            return Wait(self._pause_s(here.job))
        return self._aside(OptiCode(code), problem.message, dict(problem.details))

    def _go(self, here: _Pass) -> Answer:
        """Step after step. Who asked for a cancel gets it also where the order fails meanwhile."""
        try:
            while not self._is_cancelled(here):
                reached = self._steps[here.at](here)
                if not isinstance(reached, str):
                    return reached
                here.at = reached
        except OrderProblem:
            if not self._is_cancelled(here):
                raise
        return self._aside(OptiCode.CANCELLED, "cancelled by an operator")

    # NEW → PREPARED → OPTI_IMPORTED

    def _prepared(self, here: _Pass) -> Next:
        payload = here.order.payload
        cleared = check_gates(payload, here.rules, here.paths, self._customers.find)
        made = transform(payload, here.rules)
        details = {
            "batch_count": len(made.batches),
            "backing_edge_reset_count": made.backing_edge_reset_count,
        }
        here.run.move("prepare", note=details)
        if made.backing_edge_reset_count:
            self._queue.store.add_note(
                self._queue.name,
                kind="BACKING_EDGE_RESET",
                actor=here.job.worker or "runner",
                job_id=here.job.id,
                tenant=here.job.tenant,
                details=canonical_json({"count": made.backing_edge_reset_count}),
                now=self._queue.clock.now(),
            )
        imported_by_hand = here.order.mode == "C" and self._flag(here.job, APPROVED)
        files = write_batches(
            here.paths.import_folder,
            here.job.id,
            made.batches,
            cleared.template,
            plate=cleared.plate,
            kerf_mm=here.rules.kerf_mm,
            replace=not imported_by_hand,
        )
        here.dossier.files = [one.name for one in files]
        self._save(here)
        return "PREPARED"

    def _imported(self, here: _Pass) -> Next:
        here.run.move("import", note={"import_files": here.dossier.files})
        return "OPTI_IMPORTED"

    # OPTI_IMPORTED → OPTI_RUNNING

    def _running(self, here: _Pass) -> Next:
        if here.order.mode == "C" and not self._flag(here.job, APPROVED):
            return self._aside(
                OptiCode(TRIGGER),
                "start OptiPlanning by hand, then approve",
                {"import_files": here.dossier.files},
            )
        here.dossier.program = None
        self._save(here)
        outcome = here.run.move("run", note={"mode": here.order.mode})
        if outcome.result == "busy":
            return Wait(self._pause_s(here.job))
        return "OPTI_RUNNING"

    # OPTI_RUNNING → OPTI_DONE

    def _collected(self, here: _Pass) -> Next:
        if here.order.mode != "C":
            waiting = self._program_ended(here)
            if waiting is not None:
                return waiting
        else:
            self._hold(here)
            program.end_earlier(self._workshop.run_folder)
        found = self._look(here)
        if here.order.mode == "A" and here.paths.built_in_optimiser and not found.complete:
            found = self._look(here)  # nobody writes any more: what is the same now stays so
        if not found.complete:
            return Wait(self._pause_s(here.job))
        here.dossier.xml = [one.name for one in found.paths]
        here.dossier.invalid = None
        self._save(here)
        here.run.move("collect", note={"xml_file": ", ".join(here.dossier.xml)})
        return "OPTI_DONE"

    def _look(self, here: _Pass) -> Found:
        found = find_xml(here.export, here.job.id, here.dossier.stems, here.dossier.seen)
        if found.seen != here.dossier.seen:
            here.dossier.seen = found.seen
            self._save(here)
        return found

    def _program_ended(self, here: _Pass) -> Answer | None:
        """None once the program has ended well; before that, how to wait for it.

        It runs on one machine: runners elsewhere only look whether it is their turn again.
        """
        begun = here.dossier.program
        if begun is None:
            return self._start(here)
        if begun["host"] != self._host:
            return Wait(self._pause_s(here.job))
        match program.look(self._workshop.run_folder, here.job.id, begun["run"]):
            case program.Running():
                return Wait(self._pause_s(here.job))
            case program.Ended(exit=0, timed_out=False):
                return None
            case program.Ended() as ended:
                said = f"{ended.exit}: {ended.tail[-300:]}".rstrip(": \n")
                raise OrderProblem(
                    OptiCode.OPTI_RUNNER_FAILED,
                    "the optimiser took too long and was ended"
                    if ended.timed_out
                    else f"the optimiser ended with {said}",
                    {"exit": ended.exit, "timed_out": ended.timed_out},
                )
            case _:  # no trace of it: whoever was to start it died first
                return self._start(here)

    def _start(self, here: _Pass) -> Answer:
        """Start the program; whatever runs here for an earlier one is ended first."""
        settings = self._workshop.settings
        files = [here.paths.import_folder / name for name in here.dossier.files]
        mode: Literal["A", "B"] = "A" if here.order.mode == "A" else "B"
        macro = macro_command(settings.optiplan_macro_command) if mode == "B" else ()
        trigger = trigger_for(mode, here.paths, files, macro)
        here.dossier.runs += 1
        here.dossier.program = {"run": here.dossier.runs, "host": self._host}
        here.dossier.seen = {}
        self._save(here)
        program.end_earlier(self._workshop.run_folder)
        set_aside(here.export, here.job.id, here.dossier.stems, "old")
        program.start(
            self._workshop.run_folder,
            here.job.id,
            here.dossier.runs,
            trigger,
            settings.optiplan_program_timeout_s,
        )
        return Wait(self._pause_s(here.job))

    # OPTI_DONE → XML_READY

    def _validated(self, here: _Pass) -> Next:
        told = self._checked(here)
        here.dossier.summary = {"files": [asdict(one) for one in told]}
        here.dossier.current = None
        self._save(here)
        here.run.move("validate", note={"xml_file": ", ".join(here.dossier.xml)})
        return "XML_READY"

    def _checked(self, here: _Pass) -> list[Checked]:
        """What the XMLs say of themselves. The verdict on a bad one outlives a crash."""
        xsd = self._workshop.settings.optiplan_xsd
        bad = here.dossier.invalid
        if bad is None:
            try:
                return [check_xml(here.export / name, xsd) for name in here.dossier.xml]
            except OrderProblem as problem:
                if problem.code != OptiCode.XML_INVALID:
                    raise
                bad = {"message": problem.message, "details": dict(problem.details)}
            here.dossier.invalid = bad
            self._save(here)
        with suppress(Unavailable):
            set_aside(here.export, here.job.id, here.dossier.stems, "failed")
        raise OrderProblem(OptiCode.XML_INVALID, **bad)

    # XML_READY → DELIVERED → DONE

    def _delivered(self, here: _Pass) -> Next:
        check_there(here.machine)
        if here.dossier.current is None:
            add_try(here.machine, here.export, here.job.id, here.dossier)
            self._save(here)
        this = here.dossier.deliveries[here.dossier.current or 0]
        delivery = Delivery.of_json(this["delivery"])
        if this["state"] == OPEN:
            self._hold(here)
            drop(here.machine, delivery)
        match ack(here.machine, delivery):
            case Acknowledged():
                here.run.move(
                    "deliver",
                    note={"try": delivery.try_no, "files": [one.name for one in delivery.files]},
                )
                with suppress(Unavailable):  # a few hidden files are left, no more
                    forget(here.machine, delivery)
                return "DELIVERED"
            case Refused(refused):
                this["state"] = REFUSED
                self._save(here)
                withdraw(here.machine, delivery, whole=False)
                raise OrderProblem(
                    OptiCode.OSI_ACK_FAILED,
                    f"the machine put {', '.join(refused)} into failed",
                    {"files": list(refused)},
                )
            case _:
                return Wait(self._pause_s(here.job))

    def _done(self, here: _Pass) -> Next:
        delivery = here.dossier.deliveries[here.dossier.current or 0]["delivery"]
        return Done(
            {"delivered": delivery["files"], "try": delivery["try"], **here.dossier.summary}
        )

    # Aside

    def _is_cancelled(self, here: _Pass) -> bool:
        """Whether an operator wants it cancelled, and the machine has not taken it yet."""
        now = self._queue.job(here.job.id)
        if now is None or not self._flag(now, CANCEL_ASKED) or here.at == "DELIVERED":
            return False
        self._hold(here)
        free = taken_back(here.machine, here.dossier)
        if here.dossier.deliveries:
            self._save(here)
        return free

    def _aside(self, code: OptiCode, message: str, details: Mapping[str, Any] | None = None) -> Act:
        """To HOLD or FAILED, as the lifecycle has it for this code."""
        found = self._queue.lifecycle.errors.resolve(code, channel="runner", category=None)
        return Act(
            found.move,
            code=code,
            message=message,
            category=found.category,
            note=dict(details or {}) or None,
        )

    def _flag(self, job: Job, name: str) -> bool:
        return bool(job.flags & self._queue.lifecycle.flag_bit(name))

    def _save(self, here: _Pass) -> None:
        """Keep the dossier, unless the job is another runner's by now."""
        with self._queue.store.transaction():
            self._hold(here)
            self._dossiers.write(here.job.id, here.dossier)

    def _hold(self, here: _Pass) -> None:
        """Make sure of the claim before something that others would see; raises StaleClaim."""
        if here.job.id not in self._queue.renew([here.job]):
            raise StaleClaim(f"job {here.job.id} is no longer held")

    def _pause_s(self, job: Job) -> float:
        """The longer it has waited, the longer until the next look."""
        waited_s = max(self._queue.now() - self._entered(job), 0) / SECOND_US
        return min(max(FIRST_LOOK_S, waited_s * LOOK_SHARE), LONGEST_LOOK_S)

    def _entered(self, job: Job) -> int:
        """When it came into its state: wake-ups do not count."""
        for event in reversed(self._queue.events(job.id)):
            if event.from_state != event.to_state:
                return event.at
        return job.created_at


def worker_of(workshop: Workshop, queue: Queue, *, host: str | None = None) -> Worker:
    """The worker of a process."""
    return Worker(
        queue,
        Runner(workshop, queue, host=host).__call__,
        threads=LANES,
        batch=1,
        channel="runner",
        poll_s=FIRST_LOOK_S,
    )
