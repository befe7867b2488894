"""Which tests are repeated on a second database by default, and which only in the long form.

Every statement is tried on every database by the tests of the stores. What stands above the
statements is the same Python on each: it is tried on one, and `make soak` repeats it on the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

KINDS = ("sqlite-file", "sqlite", "sqlite-memory", "postgres", "redis")
WORKLOADS = "tests/workloads/"
PAIRS = "tests/engine/transfer/"  # what comes from one database and goes to another
ABOVE = (WORKLOADS, "tests/engine/", "tests/faults/", "tests/web/", "tests/cli/")

# Modules and tests above the stores that run on every database: concurrent workers, processes that
# die, lines that fail, statements of a workload, and what a database itself shows, logs or checks.
ON_EACH = {
    # engine
    "test_a_concurrent_change_is_not_lost",
    "test_a_command_whose_audit_line_fails_is_not_executed",
    "test_a_key_is_taken_until_its_job_is_pruned_and_free_then",
    "test_an_exception_inside_undoes_all_and_the_job_is_tried_again",
    "test_concurrent_rotations_reseal_each_secret_once",
    "test_each_tick_is_one_job_under_its_own_key",
    "test_effect_follow_up_and_result_are_committed_together",
    "test_processes",
    "test_schedules_are_changed_and_removed_by_who_declares_them",
    "test_several_sweepers_make_one_job",
    "test_titles_and_searches_are_the_same_in_a_copy",
    # faults
    "test_a_listener_whose_line_fails_listens_again",
    "test_a_call_that_is_not_answered_ends_and_is_settled_by_asking_again",
    "test_a_store_behind_a_silent_line_is_closed_and_leaves_no_thread",
    "test_points",
    "test_those_at_work_outlive_a_line_that_goes_silent_and_go_on",
    "test_what_a_cut_leaves_in_doubt_is_settled_by_asking_again",
    # web
    "test_a_fault_shows_and_logs_no_payload_no_key_and_no_statement",
    "test_any_mix_of_enqueues_gets_the_answers_and_leaves_the_jobs_that_each_would_alone",
    "test_jobs_of_other_sites_appear_in_no_response",
    # cli
    "test_a_backup_of_an_older_schema_is_migrated_by_the_restore",
    "test_settings_lifecycles_and_database_are_checked",
    "test_until_idle_every_due_job_is_handled",
    # workloads
    "test_a_link_ends_and_its_counter_is_pruned_on_every_database",
    "test_a_template_goes_from_draft_to_active_and_back_in_every_process",
    "test_changes_at_the_same_moment_are_all_kept_on_every_database",
    "test_downloads_are_counted_one_at_a_time_on_every_database",
    "test_a_worker_renders_every_job_and_counts_it",
    "test_job_and_webhook_are_created_together_or_not_at_all",
    "test_several_workers_send_each_delivery_once",
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

# A test with several cases has its last, mostly the fullest, on the other databases. In these, each
# case is a statement, a trigger or a driver of its own.
EVERY_CASE = {
    "test_a_job_and_the_callers_row_are_committed_together_or_not_at_all",
    "test_an_installation_of_any_schema_goes_on_in_the_newest_one",
}


def repetitions(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Tests that say nothing new on the database they would run on."""
    cases: dict[str, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        kinds = [kind for kind in KINDS if kind in _parameters(item)]
        if kinds and not item.nodeid.startswith(PAIRS):
            cases[item.nodeid.split("[")[0]][kinds[-1]].append(item)
    found: set[pytest.Item] = set()
    for name, on in cases.items():
        home = min(on, key=KINDS.index)
        for kind in on.keys() & {"postgres", "redis"} - {home}:
            found |= _repeated(name, on[kind])
    return found


def _repeated(name: str, cases: list[pytest.Item]) -> set[pytest.Item]:
    """Those of a test on a second database that are left to the long form."""
    names = {cases[0].path.stem, name.rsplit("::", 1)[1]}
    if name.startswith(ABOVE) and ON_EACH.isdisjoint(names):
        return set(cases)
    if name.startswith(WORKLOADS) or not EVERY_CASE.isdisjoint(names):
        return set()
    return set(cases[:-1])


def _parameters(item: pytest.Item) -> list[object]:
    return list(getattr(getattr(item, "callspec", None), "params", {}).values())
