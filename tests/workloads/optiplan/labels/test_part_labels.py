"""Which labels an order has, in the order in which the saw frees its pieces."""

from collections import Counter

import pytest

from kesin.foundation.clock import ManualClock
from kesin.foundation.ids import IdMaker
from kesin.workloads.optiplan.api.responses import order_artifacts
from kesin.workloads.optiplan.api.shop_files import read_labels
from kesin.workloads.optiplan.labels.ids import PieceId, find_offcut_id, find_orders, order_code
from kesin.workloads.optiplan.labels.part_labels import PartLabel
from kesin.workloads.optiplan.optimizer.output.statistics import saw_steps
from tests.workloads.optiplan.floor import Floor, actor_with
from tests.workloads.optiplan.order_bodies import back, part

OWNER = actor_with("admin")
PARTS = [
    part(id="yan", quantity=4, iidesc="Mutfak", delik_kodu="D1"),
    back(id="arka", quantity=1),
    part(id="raf", quantity=7, length_cm=60, width_cm=30, material_code="OTHER"),
    part(id="kapak", quantity=3, length_cm=70, width_cm=40),
]


@pytest.fixture(scope="module")
def job_id(floor: Floor) -> str:
    return floor.done(*PARTS)


@pytest.fixture(scope="module")
def labels(floor: Floor, job_id: str) -> list[PartLabel]:
    return list(read_labels(floor.orders, OWNER, job_id, "en"))


def test_every_piece_has_one_label_with_the_part_of_the_order(labels: list[PartLabel]):
    ids = [str(label.piece) for label in labels]
    assert len(set(ids)) == len(ids)
    by_part = Counter(label.piece.part for label in labels)
    assert by_part == {number: given["quantity"] for number, given in enumerate(PARTS, start=1)}
    for label in labels:
        given = PARTS[label.piece.part - 1]
        assert (label.part.name, label.part.quantity) == (given["id"], given["quantity"])
        thickness = f"{given['thickness_mm']} mm"
        assert label.material == f"{thickness} · {given['material_code']} · {given['color']}"
    first = next(label for label in labels if label.part.name == "yan")
    assert (first.notes, first.drill) == ("Mutfak", "D1")


def test_the_labels_come_in_the_order_of_the_cuts_that_free_their_parts(
    floor: Floor, job_id: str, labels: list[PartLabel]
):
    boards = [(label.layout, int(label.board.partition("/")[0])) for label in labels]
    assert boards == sorted(boards)
    for board in set(boards):
        cuts = [label.cut for label, where in zip(labels, boards, strict=True) if where == board]
        assert cuts == sorted(cuts)
    plans = order_artifacts(floor.orders, OWNER, job_id).read_plans()
    layouts = [(plan, layout) for plan in plans for layout in plan.layouts]
    for label in labels:
        plan, layout = layouts[label.layout - 1]
        step = saw_steps(plan.demand, layout)[label.cut - 1]
        assert label.part.name in [plan.demand.parts[number - 1].name for number in step.frees]


def test_a_plan_of_optiplanning_gives_labels_by_the_part_list(floor: Floor):
    job_id = floor.running(*PARTS)
    file = floor.paths.export_folder / f"{job_id}.xml"
    file.write_text("<Sol><Solution name='p001' best='1' mqBoards='5.88'/></Sol>")
    floor.later()
    floor.later()
    found = list(read_labels(floor.orders, OWNER, job_id, "en"))
    assert len(found) == 15
    assert {(label.board, label.cut, label.layout) for label in found} == {("", 0, 0)}
    floor.saw.process_inbox()


# Ids


def test_an_id_leads_to_its_order(floor: Floor, job_id: str):
    others = [floor.new() for _ in range(3)]
    assert find_orders(floor.queue, order_code(job_id)) == [job_id]
    assert [find_orders(floor.queue, order_code(other)) for other in others] == [[other] for other in others]


def test_what_a_scanner_types_is_understood_and_anything_else_is_no_piece():
    piece = PieceId("B7Q4TXA7K2", 12, 3)
    for typed in ("{}", " {} ", "https://x.example/dashboard/optiplan/scan/{}"):
        for separator in ("-", "*", ".", " ", "ß"):
            text = typed.format(str(piece).replace("-", separator))
            assert PieceId.parse(text) == PieceId.parse(text.lower()) == piece
    for text in ("", "B7Q4TXA7K2", "B7Q4TXA7K2-0-1", "B7Q4TXA7K2-1-0", "I7Q4TXA7K2-1-1", "R23456789"):
        assert PieceId.parse(text) is None
    for text in (" rABC23DEF ", "https://x.example/dashboard/optiplan/scan/RABC23DEF"):
        assert find_offcut_id(text) == "RABC23DEF"
    assert find_offcut_id("B7Q4TXA7K2-12-3") == ""


def test_orders_of_one_millisecond_have_different_codes():
    ids = IdMaker(ManualClock(), seed=1).make(20)
    assert len({order_code(each) for each in ids}) > 15
