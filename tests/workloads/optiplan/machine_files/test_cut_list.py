"""The cut list and the parts list as CSV."""

import csv
from dataclasses import replace

from kesin.workloads.optiplan.machine_files.cut_list import PARTS_HEADING, cut_list_csv, parts_csv
from kesin.workloads.optiplan.optimizer.model import Band, CuttingPlan
from kesin.workloads.optiplan.optimizer.optimise import optimise
from kesin.workloads.optiplan.optimizer.output.statistics import saw_steps
from tests.workloads.optiplan.optimizer.orders import QUICK, order


def plan() -> CuttingPlan:
    demand = order((720, 560, 5, 1), (900.5, 300, 4))
    first, second = demand.parts
    banded = replace(
        first,
        name="=HYPERLINK(1)",
        bands=(Band("2 mm", 200), None, None, Band("0.4 mm", 40)),
        finished_length=72_040,
        finished_width=56_200,
        notes=("B1", 'Kapı; "sağ"'),
    )
    return optimise(replace(demand, parts=(banded, second), material="MDF"), QUICK)


def rows(data: bytes) -> list[list[str]]:
    return list(csv.reader(data.decode("utf-8-sig").splitlines()))


def test_the_cut_list_has_a_row_of_each_kind():
    made = plan()
    found = rows(cut_list_csv([made]))
    keys = ["N", "M", "K", "S", "P", "P"]
    assert [row[0] for row in found[:6]] == keys
    assert found[2:6] == [
        ["K", "4"],
        ["S", "2800", "2100", str(made.boards)],
        ["P", "720", "560", "5", "'=HYPERLINK(1)", ""],
        ["P", "900.5", "300", "4", "p2", "y"],
    ]
    steps = [step for layout in made.layouts for step in saw_steps(made.demand, layout)]
    assert [row[0] for row in found[6:]] == ["@"] * (1 + len(steps))


def test_the_parts_list_has_finished_sizes_and_bands():
    heading, first, second = rows(parts_csv([plan()]))
    assert tuple(heading) == PARTS_HEADING
    assert first[:7] == ["'=HYPERLINK(1)", "720.4", "562", "5", "n", "MDF", "1"]
    assert first[7:] == ["2 mm", "", "", "0.4 mm", "", 'B1 · Kapı; "sağ"']
    assert second[:7] == ["p2", "900.5", "300", "4", "y", "MDF", "2"]
