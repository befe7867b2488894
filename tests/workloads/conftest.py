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


HERE = "tests/workloads/"  # nodes have paths from the root
# What runs on both databases: concurrent workers, and statements of the workload. What the tests of
# the stores check (conformance, kills at every point) is repeated on both by `make soak` only.
ON_BOTH = {
    "test_a_claim_between_reading_and_changing_is_found",
    "test_circuit_breaker",
    "test_crashes",
    "test_exclusive",
    "test_exports_and_adjustments_at_once_agree_on_every_sale",
    "test_a_retraction_and_an_export_at_once_never_both_win",
    "test_two_calls_at_once_take_one_adjustment_once",
    "test_lock_1_a_claim_sets_state_time_and_attempt_in_one_move",
    "test_lock_2_after_five_claims_a_row_is_failed_for_good",
    "test_lock_3_a_row_sent_back_is_due_unclaimed_and_keeps_its_error",
    "test_lock_4_mark_failed_has_defaults_from_each_open_state",
    "test_lock_5_the_script_gets_a_flat_array_of_nine_fields",
    "test_pdf_job_store",
    "test_runner_claims",
    "test_runner_crashes",
    "test_a_row_ends_with_the_look_back_of_its_action_and_others_after_ninety_days",
    "test_a_scripts_list_is_stored_at_once_with_an_audit_line_and_twice_changes_nothing",
    "test_every_state_is_counted_without_reading_rows",
    "test_a_row_is_stuck_once_its_lease_is_over_and_not_before",
    "test_rows_that_end_within_a_week_with_their_action_are_counted",
    "test_rows_that_expire_within_a_week_are_counted",
    "test_two_fixes_of_one_row_at_once_make_one_revision",
    "test_refusals",
    "test_removal_and_rows_at_once_never_leave_an_open_row_without_a_site",
    "test_two_imports_at_once_store_every_site_once",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the second database to the long form where it would say nothing new."""
    if config.getoption("--long"):
        return
    again = {
        item
        for item in items
        if "postgres" in getattr(getattr(item, "callspec", None), "params", {}).values()
        and ON_BOTH.isdisjoint({item.path.stem, getattr(item, "originalname", "")})
        and item.nodeid.startswith(HERE)
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
