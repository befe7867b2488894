"""`kesin worker --processes`: children are restarted when they die and stopped together."""

import os
import signal
import sys
from types import SimpleNamespace

import pytest

from kesin.cli.support import supervisor
from kesin.cli.support.supervisor import FIRST_PAUSE_S, STEADY_S, WorkerProcesses, _Slot, worker_command
from tests.cli.programs import is_alive, kill, wait_until

HANDLERS = """
import threading

from kesin import task_lifecycle

def quick():
    return task_lifecycle("quick", lease_seconds=1)

def brief(job):
    threading.Event().wait(0.01)
"""


@pytest.fixture
def own(module) -> str:
    return module(HANDLERS)


def start_workers(programs, own, *words, handler="brief"):
    lifecycle = ("--lifecycle", f"{own}:quick")
    options = ("--handler", f"{own}:{handler}", *lifecycle, "--processes", 2)
    return programs.start("worker", "quick", *options, *words)


@pytest.mark.usefixtures("quick_children")
def test_a_killed_child_is_replaced_and_all_end_with_a_killed_parent(kesin, fill, own, programs, states):
    fill("quick", 100, "--lifecycle", f"{own}:quick")
    program = start_workers(programs, own)
    first = [program.hear("process_started")["pid"] for _ in range(2)]
    assert {os.getpgid(pid) for pid in first} == set(first), "Ctrl-C would reach them twice"
    workers = [program.hear("worker_started")["pid"] for _ in range(2)]
    wait_until(lambda: states("quick")["done"] >= 20)
    kill(workers[0])
    assert program.hear("process_died")["code"] == -signal.SIGKILL
    third = program.hear("process_started")["pid"]
    assert third not in first

    def all_done():
        kesin("sweep", "quick", "--lifecycle", f"{own}:quick", "--stage", "recover")
        return states("quick")["done"] == 100

    wait_until(all_done)
    workers.append(program.hear("worker_started")["pid"])
    kill(program.process.pid)
    program.end()
    wait_until(lambda: not any(map(is_alive, [*first, third, *workers])))
    assert kesin("audit", "verify").code == 0


@pytest.mark.usefixtures("quick_children")
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_until_idle_all_children_end_and_a_stop_reaches_every_child(fill, own, programs, states, number):
    fill("quick", 10, "--lifecycle", f"{own}:quick")
    words = ("--until-idle", "--threads", 2, "--batch", 5)
    assert start_workers(programs, own, *words).end() == 0
    assert states("quick")["done"] == 10
    program = start_workers(programs, own)
    pids = [program.hear("worker_started")["pid"] for _ in range(2)]
    program.signal(number)
    assert program.end() == 0
    assert not any(map(is_alive, pids))
    assert '"level": "error"' not in program.rest()


def test_an_unknown_handler_starts_no_child(programs, own):
    program = start_workers(programs, own, handler="nothing")
    assert program.end() == 2
    assert "process_started" not in program.rest()


def test_a_child_that_dies_repeatedly_is_restarted_with_growing_pauses(monkeypatch):
    now = 0.0
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: now))
    processes = WorkerProcesses(["/bin/false"], 1, 1)
    for alive_s, pause_s in {0: 1, 1: 2, 2: 4, STEADY_S: 1}.items():
        assert processes.reap_and_start() is None
        [pid] = processes.pids
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        now += alive_s
        for passed_s in (0.0, pause_s * FIRST_PAUSE_S - 0.01):
            now += passed_s
            assert processes.reap_and_start() is None
            assert processes.pids == []
        now += 0.02


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
