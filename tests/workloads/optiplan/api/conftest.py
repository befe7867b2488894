"""Fixtures of the tests of the API."""

from collections.abc import Iterator
from typing import Any

import pytest

from kesin.workloads.optiplan.workshop.rules import default_rules, rules_json
from tests.workloads.optiplan.floor import Floor, two_batches


@pytest.fixture(scope="module")
def cut(floor: Floor) -> str:
    """An order of two batches that was cut."""
    return floor.done(*two_batches())


@pytest.fixture
def rules(floor: Floor) -> Iterator[dict[str, Any]]:
    """The default rules, to be changed: the floor has them again after the test."""
    floor.workshop.rules()  # the first look writes the file
    before = floor.workshop.rules_file.read_bytes()
    yield rules_json(default_rules())
    floor.workshop.rules_file.write_bytes(before)
