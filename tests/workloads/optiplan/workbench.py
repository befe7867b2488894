"""A small workshop: a queue under a clock the test moves, folders, a saw, and programs to run."""

from __future__ import annotations

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
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import ManualClock
from kesin.foundation.permissions import system
from kesin.foundation.settings import Settings
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import STAGES
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.records import Filter
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.optiplan.pipeline import prechecks, program, workbook
from kesin.workloads.optiplan.pipeline.program import Trigger
from kesin.workloads.optiplan.pipeline.progress import Dossier, Dossiers
from kesin.workloads.optiplan.pipeline.runner import worker_of
from kesin.workloads.optiplan.pipeline.saw_simulator import Saw
from kesin.workloads.optiplan.pipeline.xlsx_template import check_template
from kesin.workloads.optiplan.service import OrderDesk
from kesin.workloads.optiplan.workshop.paths import Paths
from tests.web.conftest import opened
from tests.workloads.optiplan.order_bodies import back, part, payload
from tests.workloads.optiplan.programs import wait_for_end

ME = system("me")
PHONE = "0555 123 45 67"
LEASE_S = 61.0
LOOK_S = 11.0  # longer than the longest pause between two looks
MINUTE = 60
GOOD = '<Solutions><Solution name="p001" best="1" mqBoards="5.88" patterns="1"/></Solutions>'


class Workbench:
    """The workload without its doors, and the people and machines around it."""

    def __init__(self, store: Store, folder: Path, **settings: Any) -> None:
        self.clock = ManualClock()
        self.store = store
        self.settings = Settings(data_dir=folder / "data", **settings)
        self.queue = Queue("optiplan", optiplan_lifecycle(), store, clock=self.clock, seed=1)
        accounts = Accounts(Directory(store))
        commands = Commands({"optiplan": self.queue}, accounts, frozenset({"optiplan"}))
        self.desk = OrderDesk(WorkloadContext(self.settings, commands, self.queue))
        self.workshop = self.desk.workshop
        self.saw = Saw(self.paths.machine_drop_folder)
        self.dossiers = Dossiers(Directory(store), self.queue.now)
        self.desk.add_customer(ME, "Ayşe", PHONE)
        self.worker = self.hire()
        self._orders = 0

    @property
    def paths(self) -> Paths:
        return self.workshop.paths()

    def hire(self, host: str = "here") -> Worker:
        """A runner with nothing in its head."""
        worker = worker_of(self.workshop, self.queue, host=host)
        worker.threads = 1
        return worker

    # What people do

    def order(self, *parts: dict[str, Any], **other: Any) -> Job:
        """A new order, unlike all others."""
        self._orders += 1
        other = {"order_id": f"S-{self._orders}", **other}
        return self.desk.create(ME, payload(*parts, **other)).job

    def two_batches(self, **other: Any) -> Job:
        return self.order(part(), back(), **other)

    def install(self, code: str) -> Path:
        """Set up a program of a few lines of Python in the place of OptiPlanning.

        It finds ``files`` and ``export``, and ``solve(file)`` writes a good solution.
        """
        exe = self.settings.data_dir / "OptiPlanning.exe"
        exe.write_text(
            f"#!{sys.executable} -IS\n"
            "import os, signal, sys, time\n"
            "from pathlib import Path\n"
            f"export = Path({str(self.paths.export_folder)!r})\n"
            "files = [Path(one) for one in sys.argv[1:]]\n"
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
        """None takes a rule away."""
        self.workshop.rules()
        file = self.workshop.rules_file
        rules = {**json.loads(file.read_text()), **changes}
        file.write_text(json.dumps({key: one for key, one in rules.items() if one is not None}))

    def solve(self, job: Job, text: str = GOOD) -> None:
        """What the operator's OptiPlanning does in mode C."""
        for stem in self.dossier(job).stems:
            (self.paths.export_folder / f"{stem}.xml").write_text(text)

    # What happens by itself

    def look(self, worker: Worker | None = None) -> None:
        """Everything that is due after a while, done by this runner."""
        self.clock.advance(LOOK_S)
        (worker or self.worker).drain()

    def sweep(self) -> None:
        """Everything the clock does."""
        Sweeper([self.queue]).sweep(STAGES)

    def die(self) -> None:
        """The runner is no more, and a minute later that is noticed."""
        self.clock.advance(LEASE_S)
        self.sweep()

    def until(self, job: Job, *states: str, looks: int = 6) -> Job:
        """Look until it is there, the saw at work meanwhile only for DONE."""
        for _ in range(looks):
            if self.seen(job).state in states:
                break
            if "DONE" in states:
                self.saw.pass_once()
            self.wait_for_program()
            self.look()
        assert self.seen(job).state in states, self.seen(job)
        return self.seen(job)

    def wait_for_program(self) -> None:
        """Until the program that runs now, if any, has ended."""
        told = program.read_json(self.workshop.run_folder / program.RECORD) or {}
        if program.lives(told):
            wait_for_end(told["pid"])

    # What can be seen

    def seen(self, job: Job | str) -> Job:
        found = self.queue.job(job if isinstance(job, str) else job.id)
        assert found is not None
        return found

    def dossier(self, job: Job) -> Dossier:
        return self.dossiers.read(job.id)

    def moves(self, job: Job) -> list[str]:
        return [one.move for one in self.queue.events(job.id)]

    def states(self, job: Job) -> list[str]:
        """Where it was, each stay once."""
        events = self.queue.events(job.id)
        return [one.to_state for one in events if one.from_state != one.to_state]

    def files(self, folder: str, job: Job | None = None) -> list[str]:
        """What the machine's side sees of a job's files."""
        place = self.paths.machine_drop_folder / folder
        found = (one.name for one in place.glob("*.xml") if not one.name.startswith("."))
        return sorted(name for name in found if job is None or job.id in name)

    def delivered_once(self, job: Job) -> None:
        """One file a batch was cut, and none lies there to be cut again."""
        stems = self.dossier(job).stems
        cut = self.files("processed", job)
        assert [sum(name.startswith(stem) for name in cut) for stem in stems] == [1] * len(stems)
        assert len(cut) == len(stems)
        assert self.files("inbox", job) == []


class InstantProgram:
    """In the place of real processes: it has ended well before anybody looks.

    What a test lays out as ``next`` happens instead, once. Nor are real workbooks made for it.
    """

    def __init__(self, bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench = bench
        self.starts: Counter[str] = Counter()
        self.ends: dict[tuple[str, int], program.Running | program.Ended] = {}
        self.next: list[program.Running | program.Ended] = []
        self.solution = GOOD
        for name in ("start", "look", "end_earlier"):
            monkeypatch.setattr(program, name, getattr(self, name))
        template = check_template(bench.paths.template)
        monkeypatch.setattr(prechecks, "check_template", lambda _: template)
        monkeypatch.setattr(workbook, "batch_xlsx", lambda batch, _: repr(batch).encode())

    def start(self, folder: Path, job_id: str, run: int, trigger: Trigger, _: float) -> None:
        if (job_id, run) in self.ends:
            return
        running = [one for one, how in self.ends.items() if isinstance(how, program.Running)]
        assert running == [], "two programs at a time"
        in_slot = self.bench.queue.jobs(Filter(states=("OPTI_RUNNING",))).jobs
        assert [one.id for one in in_slot] == [job_id], "a program without the slot"
        self.starts[job_id] += 1
        self.ends[job_id, run] = self.next.pop(0) if self.next else program.Ended(0, False, "")
        if self.ends[job_id, run] == program.Ended(0, False, ""):
            for file in trigger.files:
                xml = self.bench.paths.export_folder / file.with_suffix(".xml").name
                xml.write_text(self.solution)

    def look(
        self, folder: Path, job_id: str, run: int
    ) -> program.Running | program.Ended | program.Never:
        return self.ends.get((job_id, run), program.Never())

    def end_earlier(self, folder: Path) -> None:
        for key, how in list(self.ends.items()):
            if isinstance(how, program.Running):
                del self.ends[key]


@contextmanager
def opened_bench(
    kind: str, folder: Path, request: pytest.FixtureRequest, **settings: Any
) -> Iterator[Workbench]:
    """A workbench on this kind of store; whatever a test does to it, its history replays."""
    with ExitStack() as stack:
        store = opened(kind, folder, request, stack)
        yield Workbench(store, folder, **settings)
        assert [str(one) for one in verify(store, "optiplan").differences] == []
