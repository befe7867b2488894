"""The error codes agree with the lifecycle."""

import re

import pytest

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.lifecycle import optiplan_errors


def test_every_code_of_the_lifecycle_is_known():
    assert {code.name for code in optiplan_errors().codes} <= set(OptiCode)


def test_codes_are_spelled_as_the_seed_spells_them():
    assert [code for code in OptiCode if not re.fullmatch(f"E_{code.name}", code)] == []
    assert [code for code in OptiCode if not re.fullmatch(r"E_[A-Z_]+", code)] == []


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (OptiCode.VALIDATION, 422),
        (OptiCode.JOB_NOT_FOUND, 404),
        (OptiCode.JOB_NOT_IN_HOLD, 409),
        (OptiCode.RETRY_LIMIT_REACHED, 409),
        (OptiCode.XML_INVALID, 409),
        (OptiCode.CONFIG_UNAVAILABLE, 503),
        (OptiCode.PHONE_REQUIRED, 400),
    ],
)
def test_a_problem_has_its_http_status(code: OptiCode, status: int):
    assert OrderProblem(code, "why").status == status


def test_a_problem_tells_code_message_and_details():
    problem = OrderProblem(OptiCode.CRM_NO_MATCH, "nobody", {"phone_normalized": "+90"})
    assert problem.body() == {
        "error": {
            "code": "E_CRM_NO_MATCH",
            "message": "nobody",
            "details": {"phone_normalized": "+90"},
        }
    }
