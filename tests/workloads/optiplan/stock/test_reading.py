"""What every offcut reads as, whatever happens to the orders that are cut from it, in any order."""

import os
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kesin.engine.results import Act, HandlerResult, Wait
from kesin.engine.worker import Worker
from kesin.foundation.problems import Problem
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.records import Filter
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.optiplan.pipeline.runner import MAX_REPLANS
from kesin.workloads.optiplan.stock.offcut import FINAL
from kesin.workloads.optiplan.stock.rack import Rack
from kesin.workloads.optiplan.stock.service import OffcutAction, RackService
from kesin.workloads.optiplan.stock.settling import settle_orders
from tests.workloads.optiplan.crashes import Crasher, SimulatedCrash
from tests.workloads.optiplan.stock.racks import PlanningProgram, offcuts_in, put_offcut, state_of, stored_states
from tests.workloads.optiplan.workbench import ME, Workbench

OPERATOR = st.sampled_from(["cancel", "retry", "reissue", "approve"])
FAILED = Act("fail", code="E_OPTI_RUNNER_FAILED", message="no", category=Category.TRANSIENT)
HELD = Act("hold", code="E_CRM_NO_MATCH", message="no", category=Category.VALIDATION)
BY_WORKER: st.SearchStrategy[HandlerResult] = st.sampled_from([FAILED, HELD, Wait(1)])
NO_CRASH = 999
WITH_PLAN = ("OPTI_DONE", "XML_READY", "DELIVERED")
numbers = st.integers(0, 999)


class Shop(RuleBasedStateMachine):
    """Orders, a runner that crashes, a saw, the clock, and an operator who tells the truth."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, "fsync", bool)
        self.store = SqliteStore(":memory:")
        self.bench = Workbench(self.store, Path(self.folder.name))
        self.program = PlanningProgram(self.bench, self.patch)
        self.crasher = Crasher(self.patch)
        self.rack = RackService(self.bench.orders.context)
        self.put: list[str] = []
        self.cut: Counter[str] = Counter()
        self.final: dict[str, str] = {}

    def teardown(self) -> None:
        self.patch.undo()
        self.store.close()
        self.folder.cleanup()

    def jobs(self, *states: str) -> list[Job]:
        return self.bench.queue.jobs(Filter(states=states), limit=100).jobs

    # The runner

    @rule(back=st.booleans())
    def place_order(self, back: bool) -> None:
        if len(self.jobs()) < 6:
            (self.bench.two_batches if back else self.bench.order)()

    @initialize()
    def begin(self) -> None:
        self.find(18)
        self.find(18)
        self.place_order(back=False)

    @rule(most=st.integers(0, 2), effects=st.sampled_from([*range(12), *[NO_CRASH] * 12]))
    def run(self, most: int, effects: int) -> None:
        """Run what is due, and crash after some effects."""
        self.program.most = most
        with suppress(SimulatedCrash), self.crasher.armed(effects):
            self.bench.poll(self.bench.new_worker())
            return
        self.bench.lose_runner()

    @rule(result=BY_WORKER)
    def stop(self, result: HandlerResult) -> None:
        """Let a runner take what is due, and give up in the first step."""
        self.bench.clock.advance(31)
        Worker(self.bench.queue, lambda *_: result, channel="runner", batch=1).drain()

    # Around it

    @rule(minutes=st.sampled_from([0, 6, 6, 21]))
    def sweep(self, minutes: int) -> None:
        self.bench.clock.advance(minutes * 60)
        self.bench.sweep()

    @rule(late=st.booleans())
    def time_out(self, late: bool) -> None:
        """Send orders to a saw that does not answer in time."""
        self.run(1, NO_CRASH)
        self.run(1, NO_CRASH)
        self.sweep(6)
        if late:
            self.saw(refuses=False)
            self.settle()

    @rule()
    def settle(self) -> None:
        settle_orders(self.bench.orders.context)
        for job_id in Rack(self.bench.queue).orders():
            assert self.bench.reload(job_id).state != "DONE"

    @rule(refuses=st.sampled_from([False, False, True]))
    def saw(self, refuses: bool) -> None:
        machine = self.bench.paths.machine_drop_folder
        for name in self.bench.files("inbox"):
            file = machine / "inbox" / name
            self.cut.update(() if refuses else offcuts_in(file.read_text()))
            file.rename(machine / ("failed" if refuses else "processed") / name)

    @rule(action=OPERATOR, number=numbers)
    def operate(self, action: str, number: int) -> None:
        if jobs := self.jobs():
            with suppress(Problem):
                getattr(self.bench.orders, action)(ME, jobs[number % len(jobs)].id)

    @rule(thick=st.sampled_from([18, 8]))
    def find(self, thick: int) -> None:
        self.put.append(put_offcut(self.bench.queue, str(len(self.put)), thickness_mm=thick))

    @precondition(lambda self: self.put)
    @rule(action=st.sampled_from(["scrap", "lost", "settle"]), number=numbers)
    def decide(self, action: str, number: int) -> None:
        offcut = self.put[number % len(self.put)]
        truth: OffcutAction = "cut" if self.cut[offcut] else "uncut"
        with suppress(Problem):
            self.rack.act(ME, offcut, truth if action == "settle" else action, {})  # type: ignore[arg-type]

    # What holds at any time

    @invariant()
    def no_offcut_is_lost_and_its_end_never_changes(self) -> None:
        states = stored_states(self.bench.queue)
        assert states.keys() == set(self.put)
        assert states.items() >= self.final.items()
        self.final = {name: state for name, state in states.items() if state in FINAL}

    @invariant()
    def no_offcut_is_cut_twice_or_offered_unless_it_is_free(self) -> None:
        assert all(n == 1 for n in self.cut.values()), self.cut
        assert self.program.unfree == []
        assert not any(state_of(self.bench.queue, offcut) == "FREE" for offcut in self.cut)

    @invariant()
    def a_plan_has_its_offcuts_for_itself(self) -> None:
        planned: Counter[str] = Counter()
        for job in self.jobs(*WITH_PLAN):
            progress = self.bench.progress(job)
            for name in progress.xml:
                planned.update(offcuts_in((self.bench.paths.export_folder / name).read_text()))
        assert all(n == 1 for n in planned.values()), planned

    @invariant()
    def only_working_orders_reserve_and_planning_ends(self) -> None:
        for job in self.jobs():
            assert self.bench.progress(job).replans <= MAX_REPLANS
        for offcut in map(Rack(self.bench.queue).get, self.put):
            if offcut.state == "RESERVED":
                job = self.bench.reload(offcut.reserved_by_job or "")
                assert not self.bench.queue.lifecycle.state[job.state].resting
                assert job.state != "DONE"


def test_the_rack_agrees_with_what_happened_to_its_offcuts():
    few = settings(max_examples=6, stateful_step_count=20)
    run_state_machine_as_test(Shop, settings=few)


@pytest.mark.long
def test_the_rack_agrees_with_what_happened_to_its_offcuts_in_long_histories():
    many = settings(max_examples=60, stateful_step_count=40)
    run_state_machine_as_test(Shop, settings=many)
