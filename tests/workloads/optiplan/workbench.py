"""A small workshop: a queue with a manual clock, folders, a saw, and programs to run."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.replay import verify
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.clock import ManualClock
from kesin.foundation.permissions import system_actor
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import STAGES
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.records import Filter
from kesin.workloads.optiplan.history import audit_events
from kesin.workloads.optiplan.pipeline import prechecks, program, program_child, workbook
from kesin.workloads.optiplan.pipeline.program import ProgramLaunch
from kesin.workloads.optiplan.pipeline.progress import OrderProgress, ProgressStore
from kesin.workloads.optiplan.pipeline.runner import build_worker
from kesin.workloads.optiplan.pipeline.saw_simulator import SawSimulator
from kesin.workloads.optiplan.service import OrderService
from kesin.workloads.optiplan.workshop.paths import Paths
from tests.web.conftest import _settings, opened
from tests.web.lifecycle_cache import workloads
from tests.workloads.optiplan.order_bodies import back, part, payload
from tests.workloads.optiplan.programs import wait_for_end
from tests.workloads.optiplan.workbooks import SHIPPED

ME = system_actor("me")
PHONE = "0555 123 45 67"
LEASE_S = 61.0
POLL_S = 31.0  # longer than the longest pause between two polls
MINUTE = 60
GOOD = '<Solutions><Solution name="p001" best="1" mqBoards="5.88" patterns="1"/></Solutions>'


class Workbench:
    """The workload without its API, with an operator, a saw and programs."""

    def __init__(self, store: Store, folder: Path, **settings: Any) -> None:
        self.clock = ManualClock()
        self.store = store
        self.settings = _settings(**settings).model_copy(update={"data_dir": folder / "data"})
        workload = Workload("optiplan", workloads()["optiplan"].lifecycle, has_sites=False)
        self.queue = Queue("optiplan", workload.lifecycle(), store, clock=self.clock, seed=1)
        accounts = Accounts(Directory(store))
        commands = Commands({"optiplan": self.queue}, accounts, {"optiplan": workload})
        self.orders = OrderService(WorkloadContext(self.settings, commands, self.queue))
        self.workshop = self.orders.workshop
        self.saw = SawSimulator(self.paths.machine_drop_folder)
        self.progress_store = ProgressStore(self.queue)
        self.orders.add_customer(ME, "Ayşe", PHONE)
        self.worker = self.new_worker()
        self._orders = 0

    @property
    def paths(self) -> Paths:
        return self.workshop.paths()

    def new_worker(self, host: str = "here") -> Worker:
        """Build a worker without any state."""
        worker = build_worker(self.workshop, self.queue, host=host)
        worker.threads = 1
        return worker

    # What an operator does

    def order(self, *parts: dict[str, Any], **other: Any) -> Job:
        """Create a new order."""
        self._orders += 1
        other = {"order_id": f"S-{self._orders}", **other}
        return self.orders.create_order(ME, payload(*parts, **other)).job

    def two_batches(self, **other: Any) -> Job:
        return self.order(part(), back(), **other)

    def install(self, code: str) -> Path:
        """Install a short Python program as OptiPlanning.

        It finds ``files`` and ``export``, and ``solve(file)`` writes a good solution.
        """
        exe = self.settings.data_dir / "OptiPlanning.exe"
        exe.write_text(
            f"#!{sys.executable} -IS\n"
            "import os, signal, sys, time\n"
            "from pathlib import Path\n"
            f"export = Path({str(self.paths.export_folder)!r})\n"
            "files = [Path(name) for name in sys.argv[1:]]\n"
            "def solve(file, text=None):\n"
            f"    (export / file.name).with_suffix('.xml').write_text(text or {GOOD!r})\n"
            f"{code}\n"
        )
        exe.chmod(0o755)
        self.change_paths(optiplanningExePath=str(exe))
        self.change_rules(optiModeDefault="A")
        return exe

    def change_paths(self, **changes: str) -> None:
        file = self.workshop.paths_file
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    def change_rules(self, **changes: Any) -> None:
        """Change rules; None removes a rule."""
        self.workshop.rules()
        file = self.workshop.rules_file
        rules = {**json.loads(file.read_text()), **changes}
        file.write_text(json.dumps({key: value for key, value in rules.items() if value is not None}))

    def solve(self, job: Job, text: str = GOOD) -> None:
        """Write the XMLs, as the operator's OptiPlanning does in mode C."""
        for stem in self.progress(job).stems:
            (self.paths.export_folder / f"{stem}.xml").write_text(text)

    # What happens by itself

    def poll(self, worker: Worker | None = None) -> None:
        """Let this runner do everything that is due after a while."""
        self.clock.advance(POLL_S)
        (worker or self.worker).drain()

    def sweep(self) -> None:
        """Run all scheduled moves."""
        Sweeper([self.queue]).sweep(STAGES)

    def lose_runner(self) -> None:
        """Let the runner's lease expire, and recover its jobs."""
        self.clock.advance(LEASE_S)
        self.sweep()

    def until(self, job: Job, *states: str, polls: int = 6) -> Job:
        """Poll until the job is in one of the states; the saw works only for DONE."""
        for _ in range(polls):
            if self.reload(job).state in states:
                break
            if "DONE" in states:
                self.saw.process_inbox()
            self.wait_for_program()
            self.poll()
        assert self.reload(job).state in states, self.reload(job)
        return self.reload(job)

    def wait_for_program(self) -> None:
        """Wait until the program that runs now, if any, has ended."""
        record = program_child.read_json(self.workshop.run_folder / program_child.RECORD) or {}
        if program_child.is_alive(record):
            wait_for_end(record["pid"])

    # What can be seen

    def reload(self, job: Job | str) -> Job:
        row = self.queue.job(job if isinstance(job, str) else job.id)
        assert row is not None
        return row

    def progress(self, job: Job) -> OrderProgress:
        return self.progress_store.read(job.id)

    def moves(self, job: Job) -> list[str]:
        return [event.move for event in self.queue.events(job.id)]

    def states(self, job: Job) -> list[str]:
        """The states that the job entered, in order."""
        events = self.queue.events(job.id)
        return [event.to_state for event in events if event.from_state != event.to_state]

    def files(self, folder: str, job: Job | None = None) -> list[str]:
        """List the XMLs in a folder of the machine, without hidden files."""
        path = self.paths.machine_drop_folder / folder
        names = (file.name for file in path.glob("*.xml") if not file.name.startswith("."))
        return sorted(name for name in names if job is None or job.id in name)

    def assert_delivered_once(self, job: Job) -> None:
        """Assert that one file per batch was cut, and that none is left to be cut again."""
        stems = self.progress(job).stems
        cut = self.files("processed", job)
        assert [sum(name.startswith(stem) for name in cut) for stem in stems] == [1] * len(stems)
        assert len(cut) == len(stems)
        assert self.files("inbox", job) == []


def audited(bench: Workbench, job: Job) -> list[str]:
    """The types of the events in the job's history."""
    history = bench.queue.events(job.id), bench.queue.notes(job.id)
    return [event.event_type for event in audit_events(bench.queue, job.id, *history)]


class InstantProgram:
    """Replaces real processes: a program succeeds at once.

    The next starts give the states in ``next`` instead. No real workbooks are built.
    """

    def __init__(self, bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench = bench
        self.starts: Counter[str] = Counter()
        self.ends: dict[tuple[str, int], program.ProgramRunning | program.ProgramEnded] = {}
        self.next: list[program.ProgramRunning | program.ProgramEnded] = []
        self.solution = GOOD
        for name in ("start", "read_state", "end_current"):
            monkeypatch.setattr(program, name, getattr(self, name))
        template = SHIPPED
        monkeypatch.setattr(prechecks, "read_template", lambda _: template)
        monkeypatch.setattr(workbook, "build_batch_xlsx", lambda batch, _: repr(batch).encode())

    def start(self, folder: Path, job_id: str, run: int, trigger: ProgramLaunch, _: float) -> None:
        if (job_id, run) in self.ends:
            return
        running = [isinstance(state, program.ProgramRunning) for state in self.ends.values()]
        assert not any(running), "two programs at a time"
        in_slot = self.bench.queue.jobs(Filter(states=("OPTI_RUNNING",))).jobs
        assert [job.id for job in in_slot] == [job_id], "a program without the slot"
        self.starts[job_id] += 1
        self.ends[job_id, run] = self.next.pop(0) if self.next else program.ProgramEnded(0, False, "")
        if self.ends[job_id, run] == program.ProgramEnded(0, False, ""):
            for file in trigger.files:
                xml = self.bench.paths.export_folder / file.with_suffix(".xml").name
                xml.write_text(self.solution)

    def read_state(self, folder: Path, job_id: str, run: int) -> program.ProgramRunning | program.ProgramEnded | None:
        return self.ends.get((job_id, run))

    def end_current(self, folder: Path) -> None:
        for key, state in list(self.ends.items()):
            if isinstance(state, program.ProgramRunning):
                del self.ends[key]


@contextmanager
def open_bench(kind: str, folder: Path, request: pytest.FixtureRequest, **settings: Any) -> Iterator[Workbench]:
    """Open a workbench on this kind of store; at the end its history must replay."""
    with ExitStack() as stack:
        store = opened(kind, folder, request, stack)
        yield Workbench(store, folder, **settings)
        assert [str(difference) for difference in verify(store, "optiplan").differences] == []
