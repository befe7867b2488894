"""The error codes agree with the lifecycle."""

import re

from kesin.workloads.optiplan.errors import OptiCode
from kesin.workloads.optiplan.lifecycle import optiplan_errors


def test_every_code_of_the_lifecycle_is_known():
    assert {code.name for code in optiplan_errors().codes} <= set(OptiCode)


def test_codes_are_spelled_as_the_seed_spells_them():
    assert [code for code in OptiCode if not re.fullmatch(f"E_{code.name}", code)] == []
    assert [code for code in OptiCode if not re.fullmatch(r"E_[A-Z_]+", code)] == []
