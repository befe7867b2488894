"""Three prechecks in their order; the first failure decides."""

from pathlib import Path

import pytest

from kesin.workloads.optiplan.customers import Customer
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.lifecycle import HOLD_CODES
from kesin.workloads.optiplan.orders.payload import Payload
from kesin.workloads.optiplan.pipeline.prechecks import run_prechecks
from kesin.workloads.optiplan.workshop.paths import Paths, load_paths
from kesin.workloads.optiplan.workshop.rules import Rules, default_rules
from tests.workloads.optiplan.order_bodies import payload
from tests.workloads.optiplan.workbooks import SHIPPED

ALI = Customer("Ali Usta", "+905551234567")
PLATELESS = default_rules().model_copy(update={"default_plate_size": None})


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return load_paths(tmp_path / "paths.json")


def find(phone: str) -> Customer | None:
    return ALI if phone == ALI.phone else None


def code(order: Payload, rules: Rules, paths: Paths) -> OptiCode:
    return problem(order, rules, paths).code


def problem(order: Payload, rules: Rules, paths: Paths) -> OrderProblem:
    with pytest.raises(OrderProblem) as caught:
        run_prechecks(order, rules, paths, find)
    return caught.value


def test_an_order_passes_with_the_results_of_the_prechecks(paths: Paths):
    order = payload(customer_phone="(0555) 123 45 67")
    plate, template = run_prechecks(order, default_rules(), paths, find)
    assert (plate.width_mm, plate.height_mm) == (2100, 2800)
    assert template == SHIPPED


def test_the_orders_own_plate_goes_first(paths: Paths):
    order = payload(plate_size={"width_mm": 1830, "height_mm": 3660})
    assert run_prechecks(order, default_rules(), paths, find)[0].width_mm == 1830
    assert run_prechecks(order, PLATELESS, paths, find)[0].height_mm == 3660


def test_an_unknown_customer_holds_the_order(paths: Paths):
    rejection = problem(payload(customer_phone="0532 000 00 00"), default_rules(), paths)
    assert rejection.code is OptiCode.CRM_NO_MATCH
    assert rejection.details["phone_normalized"] == "+905320000000"
    assert "+905320000000" in rejection.message


@pytest.mark.parametrize("phone", ["", "  ", "yok", "000"])
def test_no_customer_is_looked_up_without_a_number(paths: Paths, phone: str):
    def find_nobody(_: str) -> Customer:
        raise AssertionError

    with pytest.raises(OrderProblem) as caught:
        run_prechecks(payload(customer_phone=phone), default_rules(), paths, find_nobody)
    assert caught.value.code is OptiCode.CRM_NO_MATCH
    assert caught.value.details["phone_normalized"] == ""


@pytest.mark.parametrize("template", [None, b"broken"])
def test_the_prechecks_run_in_the_seeds_order_and_each_holds(paths: Paths, template: bytes | None):
    paths.template.unlink() if template is None else paths.template.write_bytes(template)
    stranger = payload(customer_phone="0532 000 00 00")
    codes = [
        code(stranger, PLATELESS, paths),
        code(payload(), PLATELESS, paths),
        code(payload(), default_rules(), paths),
    ]
    assert codes == [OptiCode.CRM_NO_MATCH, OptiCode.PLATE_SIZE_MISSING, OptiCode.TEMPLATE_INVALID]
    assert {*codes} <= {*HOLD_CODES}
