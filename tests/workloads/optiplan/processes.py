"""Runners in other processes: they work side by side, or until they are killed."""

import os
import signal
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.foundation.settings import Settings
from kesin.store.records import Filter
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.optiplan.pipeline import program, waiting
from kesin.workloads.optiplan.pipeline.runner import build_worker
from kesin.workloads.optiplan.workshop.config import Workshop
from tests.engine.processes import Address
from tests.workloads.optiplan.crashes import Crasher
from tests.workloads.optiplan.workbench import Workbench


def work_until_all_is_done(address: Address, pipe: Connection, folder: Path) -> None:
    """Run a real runner with short pauses; reports how many results it wrote."""
    waiting.FIRST_POLL_S = 0.05  # type: ignore[misc]
    with closing(address.open()) as store:
        queue = Queue("optiplan", optiplan_lifecycle(), store)
        worker = build_worker(Workshop(Settings(data_dir=folder / "data")), queue, host="here")
        worker.poll_s = 0.05
        pipe.send("ready")
        pipe.recv()
        worker.start()
        while any(job.state != "DONE" for job in queue.jobs(Filter()).jobs):
            worker.pause(0.05)
        worker.stop()
        worker.join()
        pipe.send(worker.completed)


def start_and_die(slot: Path, _pipe: Connection, job_id: str, launch: Any, before: bool) -> None:
    """Start a program, and be killed before it is launched or afterwards."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if before:
        pytest.MonkeyPatch().setattr(program, "_launch", die)
    program.start(slot, job_id, 1, launch, 60)
    die()


def die_after(address: Address, pipe: Connection, folder: Path, time_us: int, effects: int) -> None:
    """Run a runner that is killed after this many effects; reports where."""

    def die(where: str) -> None:
        pipe.send(where)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as monkeypatch, closing(address.open()) as store:
        bench = Workbench(store, folder)
        bench.clock.time_us = time_us
        with Crasher(monkeypatch, die).armed(effects):
            for _ in range(6):
                bench.poll()
                bench.wait_for_program()
        pipe.send("")
