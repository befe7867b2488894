"""A producer, workers and a sweeper behind a line that fails again and again, by chance."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from kesin.engine.results import Done
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.foundation.clock import SystemClock
from kesin.lifecycle.model import Job
from kesin.lifecycle.task import task_lifecycle
from tests.cli.programs import wait_until
from tests.faults.promise import check_promise
from tests.faults.proxy import How
from tests.faults.wires import PATIENCE_S, Wire, until_back

JOBS = 50
FAILS_ONE_IN = 25
CUTS: tuple[How, ...] = ("cut_before", "cut_after")
FATES: tuple[How, ...] = (*CUTS, "swallow", "mute")
_PLAIN = task_lifecycle("storm", max_attempts=100, lease_seconds=1)
# A key that outlives its job: who enqueues again after a lost answer may come after the end.
STORM = replace(_PLAIN, states=tuple(replace(state, holds_key=state.name != "failed") for state in _PLAIN.states))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    storms = [("wire", CUTS, 0)]
    if metafunc.config.getoption("--long"):
        storms += [("wire", CUTS, seed) for seed in range(1, 6)]
        storms += [("hasty", FATES, seed) for seed in range(6, 12)]
    names = [f"{line}-{seed}" for line, _, seed in storms]
    metafunc.parametrize(("line", "fates", "seed"), storms, ids=names)


@pytest.mark.usefixtures("end")
def test_a_line_that_fails_all_the_time_loses_nothing_and_doubles_nothing(
    request: pytest.FixtureRequest, line: str, fates: tuple[How, ...], seed: int
):
    wire: Wire = request.getfixturevalue(line)
    chance = random.Random(seed)

    def rule(_: bytes) -> How:
        return chance.choice(fates) if chance.randrange(FAILS_ONE_IN) == 0 else "pass"

    near, far = wire.queues(STORM, SystemClock())
    runs: Counter[str] = Counter()

    def handler(job: Job) -> Done:
        runs[job.id] += 1
        return Done(job.payload)

    answered_ids: list[str] = []

    def produce() -> None:
        answered_ids.extend(until_back(partial(near.enqueue, n, key=f"{n}")).id for n in range(JOBS))

    worker = Worker(near, handler, threads=2, batch=5, poll_s=0.05)
    sweeper = Sweeper([near], every_s=dict.fromkeys(("cap", "recover", "revive"), 0.2))
    wire.proxy.rule = rule
    beside = [threading.Thread(target=one) for one in (produce, sweeper.run)]
    worker.start()
    for thread in beside:
        thread.start()
    wait_until(lambda: far.stats().states["done"] == JOBS)
    wire.proxy.mend()
    sweeper.stop()
    worker.stop()
    worker.join()
    for thread in beside:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    report = check_promise(wire.far, far.name, STORM, answered_ids)
    assert (report.jobs, report.untold) == (JOBS, 0)
    assert wire.proxy.struck.is_set()
    assert all(1 <= runs[job_id] <= report.most_attempts for job_id in answered_ids)
