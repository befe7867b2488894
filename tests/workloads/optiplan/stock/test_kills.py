"""A runner that is killed (kill -9) on the way from a plan to the end of its order."""

from collections import Counter
from pathlib import Path

import pytest

from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.stock.offcut import OffcutFilter
from kesin.workloads.optiplan.stock.rack import Rack
from tests.apart import crew
from tests.engine.processes import Address
from tests.workloads.optiplan.stock.killed import POINTS, run_until
from tests.workloads.optiplan.stock.racks import offcuts_in, put_offcut, stored_states
from tests.workloads.optiplan.workbench import Workbench, open_bench

ORDERED_BEFORE = ("planned", "delivered")  # early enough for the saw to answer in time
SOME = ("planned", "recorded", "delivered", "settled, not committed")
WORKING = ("OPTI_RUNNING", "OPTI_DONE", "XML_READY", "DELIVERED")


def plans_of(bench: Workbench) -> Counter[str]:
    """How many plans of orders use each offcut."""
    jobs = bench.queue.jobs(limit=100).jobs
    files = [bench.paths.export_folder / name for job in jobs for name in bench.progress(job).xml]
    return Counter(offcut for file in files for offcut in offcuts_in(file.read_text()))


@pytest.mark.parametrize("points", [SOME, pytest.param(tuple(POINTS), marks=pytest.mark.long)], ids=["some", "all"])
def test_offcuts_are_cut_once_and_made_once_wherever_runner_after_runner_is_killed(
    request: pytest.FixtureRequest, tmp_path: Path, points: tuple[str, ...]
):
    with open_bench("sqlite", tmp_path, request) as bench, crew() as start:
        rack, address = Rack(bench.queue), Address(str(tmp_path / "kesin.db"))
        given = {put_offcut(bench.queue, name) for name in "abc"}
        jobs: list[Job] = []
        for point in points:
            if point in ORDERED_BEFORE:
                jobs.append(bench.order())
            runner = start(run_until, address, tmp_path, bench.clock.time_us, point)
            bench.clock.time_us = runner.hear()
            assert bench.clock.time_us, (point, [bench.states(job) for job in jobs])
            runner.kill()
            bench.lose_runner()
            assert all(n == 1 for n in plans_of(bench).values())
            for reserved in rack.page(OffcutFilter(state="RESERVED"), 50)[0]:
                assert bench.reload(reserved.reserved_by_job or "").state in WORKING, point
                assert plans_of(bench)[reserved.id] == 1, point
        last = start(run_until, address, tmp_path, bench.clock.time_us, "")
        assert (last.hear(), last.wait()) == (None, 0)
        made = set()
        for job in jobs:
            assert bench.reload(job).state == "DONE"
            bench.assert_delivered_once(job)
            [cut] = bench.files("processed", job)
            [offcut] = offcuts_in((bench.paths.machine_drop_folder / "processed" / cut).read_text())
            assert (rack.get(offcut).state, rack.get(offcut).used_by_job) == ("USED", job.id)
            given.remove(offcut)
            [rest] = [each.id for each in rack.page(OffcutFilter(), 50)[0] if each.made_by_job == job.id]
            made.add(rest)
        assert len(made) == len(jobs)
        assert {name for name, state in stored_states(bench.queue).items() if state == "FREE"} == given | made
        assert rack.orders() == []
