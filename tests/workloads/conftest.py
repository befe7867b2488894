"""The courier is a package of its own: its folder is put on the path, as if installed."""

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

COURIER = Path(__file__).parents[2] / "examples" / "courier"
sys.path.append(str(COURIER))

with warnings.catch_warnings():  # it asks for httpx2 and works with httpx
    warnings.simplefilter("ignore")
    import starlette.testclient  # noqa: F401


HERE = Path(__file__).parent
# What runs on both databases: concurrent workers, and statements of the workload. What the tests of
# the stores check (conformance, kills at every point) is repeated on both by `make soak` only.
ON_BOTH = {
    "test_circuit_breaker",
    "test_crashes",
    "test_exclusive",
    "test_histories",
    "test_locks",
    "test_pdf_job_store",
    "test_runner_claims",
    "test_runner_crashes",
    "test_stats",
    "test_two_fixes_of_one_row_at_once_make_one_revision",
    "test_verify",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the second database to the long form where it would say nothing new."""
    if config.getoption("--long"):
        return
    again = {
        item
        for item in items
        if item.path.is_relative_to(HERE)
        and ON_BOTH.isdisjoint({item.path.stem, getattr(item, "originalname", "")})
        and "postgres" in getattr(getattr(item, "callspec", None), "params", {}).values()
    }
    if again:
        config.hook.pytest_deselected(items=list(again))
        items[:] = [item for item in items if item not in again]


@pytest.fixture
def said() -> Iterator[list[Any]]:
    """What is logged meanwhile."""
    with capture_logs() as lines:
        yield lines
    structlog.reset_defaults()
