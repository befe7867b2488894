"""`kesin worker --processes`: children are restarted when they die and stopped together."""

import os
import signal
import sys
from types import SimpleNamespace

import pytest

from kesin.cli.support.supervisor import FIRST_PAUSE_S, WorkerProcesses, _Slot, worker_command
from tests.cli.programs import is_alive, kill, wait_until

HANDLERS = """
import os
import threading
from pathlib import Path

from kesin import task_lifecycle

def quick():
    return task_lifecycle("quick", lease_seconds=1)

def brief(job):
    threading.Event().wait(0.01)

def deadly(job):
    os._exit(3)
"""


@pytest.fixture
def own(module) -> str:
    return module(HANDLERS)


def start_workers(programs, own, handler, *words):
    lifecycle = ("--lifecycle", f"{own}:quick")
    return programs.start(
        "worker", "quick", "--handler", f"{own}:{handler}", *lifecycle, "--processes", 2, *words
    )


def test_a_killed_child_is_replaced_and_its_jobs_are_not_lost(kesin, fill, own, programs, states):
    fill("quick", 200, "--lifecycle", f"{own}:quick")
    program = start_workers(programs, own, "brief")
    first = [program.hear("process_started")["pid"] for _ in range(2)]
    wait_until(lambda: states("quick")["done"] >= 20)
    kill(first[0])
    assert program.hear("process_died")["code"] == -signal.SIGKILL
    third = program.hear("process_started")["pid"]
    assert third not in first

    def all_done():
        kesin("sweep", "quick", "--lifecycle", f"{own}:quick", "--stage", "recover")
        return states("quick")["done"] == 200

    wait_until(all_done)
    program.signal(signal.SIGTERM)
    assert program.end() == 0
    assert not any(map(is_alive, [*first, third]))
    assert kesin("audit", "verify").code == 0


def test_until_idle_all_children_end(kesin, fill, own, programs, states):
    fill("quick", 40, "--lifecycle", f"{own}:quick")
    program = start_workers(programs, own, "brief", "--until-idle", "--threads", 2, "--batch", 5)
    assert program.end() == 0
    assert states("quick")["done"] == 40


def test_a_child_that_dies_repeatedly_is_restarted_with_growing_pauses(kesin, fill, own, programs):
    fill("quick", 50, "--lifecycle", f"{own}:quick")
    program = start_workers(programs, own, "deadly")
    pauses: dict[int, float] = {}
    while max(pauses.values(), default=0) < 4 * FIRST_PAUSE_S:
        died = program.hear("process_died")
        doubled = 2 * pauses.get(died["slot"], FIRST_PAUSE_S / 2)
        # On a slow machine a start may take so long that the process counts as steady.
        assert died["again_in_s"] in (doubled, FIRST_PAUSE_S)
        pauses[died["slot"]] = died["again_in_s"]
    program.signal(signal.SIGTERM)
    assert program.end() == 0


def test_a_stop_reaches_every_child_once(kesin, fill, own, programs):
    fill("quick", 1, "--lifecycle", f"{own}:quick")
    program = start_workers(programs, own, "brief")
    pids = [program.hear("process_started")["pid"] for _ in range(2)]
    assert {os.getpgid(pid) for pid in pids} == set(pids), "Ctrl-C of a terminal reaches them twice"
    for _ in pids:
        program.hear("worker_started")
    program.signal(signal.SIGINT)
    assert program.end() == 0
    assert not any(map(is_alive, pids))
    while line := program.read_line():
        assert '"level": "error"' not in line


def test_children_end_when_their_parent_is_killed(kesin, fill, own, programs):
    fill("quick", 1, "--lifecycle", f"{own}:quick")
    program = start_workers(programs, own, "brief")
    pids = [program.hear("process_started")["pid"] for _ in range(2)]
    for _ in pids:
        program.hear("worker_started")
    kill(program.process.pid)
    program.end()
    wait_until(lambda: not any(map(is_alive, pids)))


def test_an_unknown_handler_starts_no_child(programs, own):
    program = programs.start("worker", "task", "--handler", f"{own}:nothing", "--processes", 2)
    assert program.end() == 2
    assert "process_started" not in "".join(iter(program.read_line, ""))


@pytest.mark.parametrize("restart_always", [False, True])
def test_a_child_that_exits_with_success_is_done_or_restarted(restart_always):
    """`kesin serve` restarts always, for example a worker that an operator stopped."""
    processes = WorkerProcesses([sys.executable, "-c", ""], 1, 1, restart_always=restart_always)
    assert processes.reap_and_start() is None
    [first] = processes.pids
    if not restart_always:
        wait_until(lambda: processes.reap_and_start() == 0)
        return
    wait_until(lambda: processes.reap_and_start() is None and processes.pids not in ([], [first]))
    processes.kill()


def test_a_failed_start_is_retried(tmp_path):
    program = tmp_path / "program"
    processes = WorkerProcesses([str(program)], 1, 1)
    assert processes.reap_and_start() is None
    assert processes.pids == []
    program.write_text("#!/bin/sh\nread line\n")
    program.chmod(0o700)
    wait_until(lambda: processes.reap_and_start() is None and processes.pids)
    processes.kill()


def test_a_child_gets_only_the_given_options():
    command = worker_command(["-q"], grace=0.0, batch=5, handler=None, until_idle=True, rq=False)
    assert command[-6:] == ["--child", "--grace=0.0", "--batch=5", "--until-idle", "--", "-q"]
    assert worker_command(["q"], tenant=["a", "b"])[-4:-2] == ["--tenant=a", "--tenant=b"]


def test_pids_can_be_read_while_a_child_is_reaped(monkeypatch):
    """`kesin serve` reads them from other threads than the one that reaps."""
    processes = WorkerProcesses([], 1, 1)
    reads = iter([SimpleNamespace(pid=7), None])
    monkeypatch.setattr(_Slot, "process", property(lambda _slot: next(reads)))
    assert processes.pids == [7]
