"""The runner: one pass takes an order as far as it can go; then it waits, is held, or is done.

A job keeps its claim from state to state. Where it must wait (for the free slot, the XML or the
machine's acknowledgement), the claim is dropped and the job wakes up later, so no thread blocks.
Every step must tolerate being found half done by the next runner.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from kesin.engine.queue import Queue, StaleClaim
from kesin.engine.results import Act, Done, HandlerResult, RunContext, Wait
from kesin.engine.worker import Worker
from kesin.foundation.logs import Logger
from kesin.foundation.messages import Message, parts_of, restore
from kesin.foundation.problems import Unavailable
from kesin.foundation.text import canonical_json
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.errors import StoreUnreachable
from kesin.workloads.optiplan.customers import Customers
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.lifecycle import APPROVED, CANCEL_REQUESTED, START_BY_HAND
from kesin.workloads.optiplan.orders.payload import CuttingOrder
from kesin.workloads.optiplan.pipeline import delivery, program, solution, waiting
from kesin.workloads.optiplan.pipeline.prechecks import run_prechecks
from kesin.workloads.optiplan.pipeline.progress import OrderProgress, ProgressStore
from kesin.workloads.optiplan.pipeline.transform import transform_order
from kesin.workloads.optiplan.pipeline.workbook import write_batches
from kesin.workloads.optiplan.stock.plans import offer_offcuts, used_offcuts
from kesin.workloads.optiplan.stock.rack import OffcutsGone
from kesin.workloads.optiplan.stock.settling import Settling
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.paths import Paths
from kesin.workloads.optiplan.workshop.rules import Rules

log = Logger("kesin.optiplan")

WORKER_THREADS: Final = 2
MAX_REPLANS: Final = 2  # then an order is planned without the rack
SETTLE_S: Final = 2.0  # a share may show a file so long after the program that wrote it has ended

StepResult = str | HandlerResult  # the next state, or the result that ends the pass


@dataclass(slots=True)
class _PassContext:
    job: Job
    run: RunContext
    state: str  # the state that the pass has reached
    order: CuttingOrder = field(init=False)
    rules: Rules = field(init=False)
    paths: Paths = field(init=False)
    progress: OrderProgress = field(init=False)


class Runner:
    """The queue's handler."""

    def __init__(self, workshop: Workshop, queue: Queue, *, host: str | None = None) -> None:
        self._workshop = workshop
        self._queue = queue
        self._host = host or socket.gethostname()
        self._progress_store = ProgressStore(queue)
        self._customers = Customers(queue)
        self._settling = Settling(workshop, queue)
        self._rack = self._settling.rack
        self._steps: Mapping[str, Callable[[_PassContext], StepResult]] = {
            "NEW": self._prepare,
            "PREPARED": self._import,
            "OPTI_IMPORTED": self._run,
            "OPTI_RUNNING": self._collect,
            "OPTI_DONE": self._validate,
            "XML_READY": self._deliver,
            "DELIVERED": self._finish,
        }

    def __call__(self, job: Job, run: RunContext) -> HandlerResult:
        ctx = _PassContext(job, run, job.state)
        try:
            ctx.order = CuttingOrder.from_job(job)
            ctx.rules, ctx.paths = self._workshop.rules(), self._workshop.paths()
            ctx.progress = self._progress_store.read(job.id)
            result = self._run_steps(ctx)
        except StaleClaim:
            log.warning("claim_lost", job=job.id)
            return Wait(waiting.FIRST_POLL_S)  # rejected, like everything of a lost claim
        except StoreUnreachable as problem:  # not the order's fault: the next runner continues
            log.warning("store_unreachable", job=job.id, why=str(problem))
            return Act("release")
        except (Unavailable, OrderProblem) as problem:
            return self._handle_problem(ctx, problem)
        waiting.log_unblocked(job)
        return result

    def _handle_problem(self, ctx: _PassContext, problem: Unavailable | OrderProblem) -> HandlerResult:
        """Wait for what is unavailable, if the job can wait in its state; else hold or fail it."""
        if isinstance(problem, OrderProblem):
            code, blocked = problem.code, problem.code == OptiCode.CONFIG_UNAVAILABLE
        else:
            code, blocked = waiting.unavailable_code(problem, ctx.paths.machine_drop_folder), True
        if ctx.state not in waiting.WAITING_STATES or not blocked:
            return self._hold_or_fail(code, problem.message, problem.details)
        if ctx.job.error_code != code:  # a standing problem is logged once
            log.warning("order_blocked", job=ctx.job.id, code=code, why=problem.message)
        block = partial(Act, "block", category=Category.TRANSIENT, note=problem.details)
        pause_s = waiting.pause_s(self._queue, ctx.job)
        return block(code=code, message=problem.message, run_in_s=pause_s)

    def _run_steps(self, ctx: _PassContext) -> HandlerResult:
        """Run step after step. A requested cancel also wins over a failure of the order."""
        try:
            while not self._withdraw_if_cancelled(ctx):
                result = self._steps[ctx.state](ctx)
                if not isinstance(result, str):
                    return result
                ctx.state = result
        except OrderProblem:
            if not self._withdraw_if_cancelled(ctx):
                raise
        return self._hold_or_fail(OptiCode.CANCELLED, "cancelled by an operator")

    # NEW → PREPARED → OPTI_IMPORTED

    def _prepare(self, ctx: _PassContext) -> StepResult:
        payload = ctx.order.payload
        template = run_prechecks(payload, ctx.rules, ctx.paths, self._customers.find)
        batches, resets = transform_order(payload, ctx.rules)
        details = {"batch_count": len(batches), "backing_edge_reset_count": resets}
        ctx.run.move("prepare", note=details)
        if resets:
            job, actor = ctx.job, ctx.job.worker or "runner"
            counted, now = canonical_json({"count": resets}), self._queue.clock.now()
            add_note = partial(self._queue.store.add_note, self._queue.name, actor=actor, now=now)
            add_note(kind="BACKING_EDGE_RESET", job_id=job.id, tenant=job.tenant, details=counted)
        imported_by_hand = ctx.order.mode == "C" and self._has_flag(ctx.job, APPROVED)
        write = partial(write_batches, ctx.paths.import_folder, ctx.job.id, batches, template)
        files = write(order=payload, rules=ctx.rules, replace=not imported_by_hand)
        ctx.progress.files = [file.name for file in files]
        self._save_progress(ctx)
        return "PREPARED"

    def _import(self, ctx: _PassContext) -> StepResult:
        ctx.run.move("import", note={"import_files": ctx.progress.files})
        return "OPTI_IMPORTED"

    # OPTI_IMPORTED → OPTI_RUNNING

    def _run(self, ctx: _PassContext) -> StepResult:
        if ctx.order.mode == "C" and not self._has_flag(ctx.job, APPROVED):
            why, details = START_BY_HAND.message, {"import_files": ctx.progress.files}
            return self._hold_or_fail(OptiCode(START_BY_HAND.code), why, details)
        ctx.progress.program, ctx.progress.replans = None, 0
        ctx.progress.runs += ctx.order.mode == "C"  # each plan has its number, also one by hand
        self._save_progress(ctx)
        if ctx.run.move("run", note={"mode": ctx.order.mode}).result == "busy":
            return Wait(waiting.pause_s(self._queue, ctx.job))
        return "OPTI_RUNNING"

    # OPTI_RUNNING → OPTI_DONE

    def _collect(self, ctx: _PassContext) -> StepResult:
        if ctx.order.mode != "C":
            if (result := self._wait_for_program(ctx)) is not None:
                return result
        else:
            self._renew_claim(ctx)
            program.end_current(self._workshop.run_folder)
        xml, changed = self._find_xml(ctx)
        if self._plans_itself(ctx) and not xml.complete:
            xml, changed = self._find_xml(ctx)  # the program has ended: the files are final
        if not xml.complete:
            return self._wait_for_xml(ctx, xml, changed=changed)
        ctx.progress.xml = [path.name for path in xml.paths]
        ctx.progress.invalid = None
        if not self._reserve_offcuts(ctx, xml.paths):
            return self._start_program(ctx)
        ctx.run.move("collect", note={"xml_file": ", ".join(ctx.progress.xml)})
        return "OPTI_DONE"

    def _reserve_offcuts(self, ctx: _PassContext, xml: Sequence[Path]) -> bool:
        """Reserve the plan's offcuts and save the progress; False: some are gone, so plan again."""
        progress = ctx.progress
        used = used_offcuts(xml, progress.stems)
        try:
            with self._queue.store.transaction():
                self._save_progress(ctx)
                if used is not None:
                    self._rack.reserve(ctx.job.id, progress.runs, used)
        except OffcutsGone as problem:
            if not self._plans_itself(ctx) or progress.replans == MAX_REPLANS:
                raise
            log.info("order_planned_again", job=ctx.job.id, why=problem.message)
            progress.replans, progress.xml = progress.replans + 1, []
            return False
        return True

    def _find_xml(self, ctx: _PassContext) -> tuple[solution.FoundXml, bool]:
        """Look for the XMLs; also returns whether the files have changed since the last look."""
        folder, progress = ctx.paths.export_folder, ctx.progress
        xml = solution.find_xml(folder, ctx.job.id, progress.stems, progress.seen)
        changed = xml.file_states != progress.seen
        if changed:
            progress.seen = xml.file_states
            self._save_progress(ctx)
        return xml, changed

    def _wait_for_xml(self, ctx: _PassContext, xml: solution.FoundXml, *, changed: bool) -> Wait:
        """Wait for the XMLs; OrderProblem frees the slot once the program ended without them."""
        if ctx.order.mode == "C":
            return Wait(waiting.pause_s(self._queue, ctx.job))
        started = ctx.progress.program or {}
        if (changed or not started.get("ended")) and not ctx.paths.built_in_optimiser:
            ctx.progress.program = {**started, "ended": True}
            self._save_progress(ctx)
            return Wait(SETTLE_S)
        ended = program.read_state(self._workshop.run_folder, ctx.job.id, started["run"])
        missing = [stem for stem in ctx.progress.stems if stem not in xml.files]
        details = {"missing": missing, "tail": getattr(ended, "tail", "")[-300:]}
        why = "the optimiser ended and left no XML in %(folder)s for: %(files)s"
        message = Message(why, folder=ctx.paths.export_folder, files=", ".join(missing))
        raise OrderProblem(OptiCode.OPTI_RUNNER_FAILED, message, details)

    def _wait_for_program(self, ctx: _PassContext) -> HandlerResult | None:
        """Return None once the program has succeeded on its one machine, else wait for it."""
        started = ctx.progress.program
        if started is None:
            return self._start_program(ctx)
        if started["host"] != self._host:
            return Wait(waiting.pause_s(self._queue, ctx.job))
        match program.read_state(self._workshop.run_folder, ctx.job.id, started["run"]):
            case program.ProgramRunning():
                return Wait(waiting.pause_s(self._queue, ctx.job))
            case program.ProgramEnded(exit=0, timed_out=False):
                return None
            case program.ProgramEnded() as ended:
                end_text = f"{ended.exit}: {ended.tail[-300:]}".rstrip(": \n")
                why = Message("the optimiser ended with %(problem)s", problem=end_text)
                if ended.timed_out:
                    why = Message("the optimiser took too long and was stopped")
                details = {"exit": ended.exit, "timed_out": ended.timed_out}
                raise OrderProblem(OptiCode.OPTI_RUNNER_FAILED, why, details)
            case _:  # the runner that recorded it crashed before the start
                return self._start_program(ctx)

    def _start_program(self, ctx: _PassContext) -> HandlerResult:
        """Start the program; a program of an earlier job is ended first."""
        settings, run_folder = self._workshop.settings, self._workshop.run_folder
        files = [ctx.paths.import_folder / name for name in ctx.progress.files]
        payload = ctx.order.payload
        rules = ctx.rules.for_order(payload)
        own = ("--language", rules.language, "--machine-files", ",".join(rules.saw().machine_files))
        build_launch = partial(program.build_launch, ctx.order.mode, ctx.paths, files)
        launch = build_launch(settings.optiplan_macro_command, own)
        ctx.progress.runs += 1
        ctx.progress.program = {"run": ctx.progress.runs, "host": self._host}
        ctx.progress.seen = {}
        self._save_progress(ctx)
        program.end_current(run_folder)
        solution.set_aside(ctx.paths.export_folder, ctx.job.id, ctx.progress.stems, "old")
        if self._plans_itself(ctx):
            with suppress(Unavailable):  # then what it has reserved stays so
                self._settling.settle(ctx.job.id)
            free = self._rack.free() if ctx.progress.replans < MAX_REPLANS else []
            offer_offcuts(ctx.paths.import_folder, payload, rules, ctx.progress.stems, free)
        timeout_s = settings.optiplan_program_timeout_s
        program.start(run_folder, ctx.job.id, ctx.progress.runs, launch, timeout_s)
        return Wait(waiting.pause_s(self._queue, ctx.job))

    def _plans_itself(self, ctx: _PassContext) -> bool:
        """Whether the built-in optimiser plans this order, and may use the rack."""
        return ctx.order.mode == "A" and ctx.paths.built_in_optimiser

    # OPTI_DONE → XML_READY

    def _validate(self, ctx: _PassContext) -> StepResult:
        checked = self._check_xml(ctx)
        ctx.progress.summary = {"files": checked}
        if (kinds := ctx.rules.for_order(ctx.order.payload).saw().machine_files) != ("xml",):
            hashes = (file["sha256"] for file in checked)
            by_name = dict(zip(ctx.progress.xml, hashes, strict=True))
            found = solution.check_machine_files(ctx.paths.export_folder, by_name, kinds)
            ctx.progress.summary["machine_files"] = found
        ctx.progress.current = None
        self._save_progress(ctx)
        ctx.run.move("validate", note={"xml_file": ", ".join(ctx.progress.xml)})
        return "XML_READY"

    def _check_xml(self, ctx: _PassContext) -> list[dict[str, Any]]:
        """Check the XMLs. The problem of an invalid one is recorded, so it survives a crash."""
        xsd, folder = self._workshop.settings.optiplan_xsd, ctx.paths.export_folder
        invalid = ctx.progress.invalid
        if invalid is None:
            try:
                return [solution.check_xml(folder / name, xsd) for name in ctx.progress.xml]
            except OrderProblem as problem:
                if problem.code != OptiCode.XML_INVALID:
                    raise
                invalid = {"message": problem.message, "details": dict(problem.details)}
                invalid |= parts_of(problem.message)
            ctx.progress.invalid = invalid
            self._save_progress(ctx)
        with suppress(Unavailable):
            solution.set_aside(folder, ctx.job.id, ctx.progress.stems, "failed")
        message = restore(invalid["message"], invalid)
        raise OrderProblem(OptiCode.XML_INVALID, message, invalid["details"])

    # XML_READY → DELIVERED → DONE

    def _deliver(self, ctx: _PassContext) -> StepResult:
        machine, exported = ctx.paths.machine_drop_folder, ctx.paths.export_folder
        delivery.check_inbox_exists(machine)
        if ctx.progress.current is None:
            delivery.add_attempt(machine, exported, ctx.job.id, ctx.progress)
            ctx.progress.deliveries[-1]["run"] = ctx.progress.runs
            self._save_progress(ctx)
        attempt = ctx.progress.deliveries[ctx.progress.current or 0]
        planned = delivery.Delivery.from_json(attempt["delivery"])
        if attempt["state"] == delivery.OPEN:
            self._renew_claim(ctx)
            delivery.put_in_inbox(machine, planned)
        ack = delivery.read_ack(machine, planned)
        if ack.refused:
            attempt["state"] = delivery.REFUSED
            self._save_progress(ctx)
            delivery.withdraw(machine, planned, all_or_nothing=False)
            names = list(ack.refused)
            why = Message("the saw moved %(files)s to its “failed” folder", files=", ".join(names))
            raise OrderProblem(OptiCode.OSI_ACK_FAILED, why, {"files": names})
        if any(ack):
            return Wait(waiting.pause_s(self._queue, ctx.job))
        names = [file.name for file in planned.files]
        ctx.run.move("deliver", note={"try": planned.attempt, "files": names})
        with suppress(Unavailable):  # only leaves a few hidden files
            delivery.remove_markers(machine, planned)
        return "DELIVERED"

    def _finish(self, ctx: _PassContext) -> StepResult:
        made = ctx.progress.deliveries[ctx.progress.current or 0]["delivery"]
        with suppress(Unavailable):  # it is settled later
            self._settling.settle(ctx.job.id, finished=True)
        return Done({"delivered": made["files"], "try": made["try"], **ctx.progress.summary})

    # Holding, failing and cancelling

    def _withdraw_if_cancelled(self, ctx: _PassContext) -> bool:
        """Withdraw files of a requested cancel; False once the machine has taken one."""
        job = self._queue.job(ctx.job.id)
        if job is None or not self._has_flag(job, CANCEL_REQUESTED) or ctx.state == "DELIVERED":
            return False
        self._renew_claim(ctx)
        withdrawn_all = delivery.withdraw_attempts(ctx.paths.machine_drop_folder, ctx.progress)
        if ctx.progress.deliveries:
            self._save_progress(ctx)
        return withdrawn_all

    def _hold_or_fail(self, code: OptiCode, message: str, details: Mapping[str, Any] | None = None) -> Act:
        """Move to HOLD or FAILED, as the lifecycle declares for this code."""
        resolved = self._queue.lifecycle.errors.resolve(code, channel="runner", category=None)
        note = dict(details or {}) or None
        return Act(resolved.move, code=code, message=message, category=resolved.category, note=note)

    def _has_flag(self, job: Job, name: str) -> bool:
        return bool(job.flags & self._queue.lifecycle.flag_bit(name))

    def _save_progress(self, ctx: _PassContext) -> None:
        """Save the progress, unless another runner has claimed the job."""
        with self._queue.store.transaction():
            self._renew_claim(ctx)
            self._progress_store.write(ctx.job.id, ctx.progress)

    def _renew_claim(self, ctx: _PassContext) -> None:
        """Renew the claim before a visible effect; raises StaleClaim."""
        if ctx.job.id not in self._queue.renew([ctx.job]):
            raise StaleClaim(f"job {ctx.job.id} is no longer held")


def build_worker(workshop: Workshop, queue: Queue, *, host: str | None = None) -> Worker:
    handler, poll_s = Runner(workshop, queue, host=host).__call__, waiting.FIRST_POLL_S
    return Worker(queue, handler, threads=WORKER_THREADS, batch=1, channel="runner", poll_s=poll_s)
