"""Scheduled moves, by the sweeper and on request; budgets and pauses are in test_lifecycle."""

import json
from functools import partial
from pathlib import Path

import pytest

from tests.web.conftest import error_of
from tests.workloads.oci.own_site import CRON, DAY, MINUTE, Oci, OwnSite, bare, ok

TASKS = ("recover-processing", "attempt-cap", "process-offline-conversions")


@pytest.fixture
def site(alone: OwnSite) -> OwnSite:
    return alone


def claim_times(site: OwnSite, times: int) -> str:
    """A row that was claimed this often; the last claim is in flight."""
    [job_id] = site.claim()
    for _ in range(times - 1):
        site.wait(16 * MINUTE, "recover")
        site.export()
    assert (site.state(job_id), site.job(job_id).attempt_count) == ("PROCESSING", times)
    return job_id


# Who may


def test_only_the_secret_starts_a_task(site: OwnSite):
    wrong: list[dict[str, str]] = [
        {},
        {"authorization": "Bearer wrong"},
        {"x-api-key": "wrong"},
        {"x-vercel-cron": "1"},
        {"authorization": CRON["authorization"].removeprefix("Bearer ")},
    ]
    for path in (f"/api/cron/oci/{task}" for task in TASKS):
        for method in ("GET", "POST"):
            assert ok(site.client.request(method, path, headers=CRON))["ok"] is True
        for headers in wrong:
            response = site.client.post(path, headers=headers)
            assert (response.status_code, error_of(response)["code"]) == (403, "forbidden"), headers
        [line] = site.audit_lines(partial(site.client.post, path, headers=site.oci.key("admin")))
        assert (line.action, line.allowed) == ("cron.oci", False)


def test_a_number_out_of_bounds_is_refused(site: OwnSite):
    for task, name, value in (
        ("recover-processing", "min_age_minutes", -1),
        ("recover-processing", "min_age_minutes", 1_441),
        ("attempt-cap", "max_attempts", 0),
        ("attempt-cap", "max_attempts", 21),
        ("attempt-cap", "min_age_minutes", "soon"),
        ("process-offline-conversions", "limit", 0),
        ("process-offline-conversions", "limit", 2_001),
    ):
        response = site.client.post(f"/api/cron/oci/{task}", params={name: value}, headers=CRON)
        assert response.status_code == 422, (task, name, value)


def test_a_run_leaves_an_audit_line_with_its_parameters_and_how_many_moved(site: OwnSite):
    site.claim(2)
    site.clock.advance(16 * MINUTE)
    params = {"max_attempts": 3, "min_age_minutes": 15}
    [line] = site.audit_lines(lambda: site.cron("attempt-cap", **params))
    assert json.loads(line.details or "") == {"moved": 0, **params}
    [line] = site.audit_lines(lambda: site.cron("recover-processing"))
    assert (line.actor, line.action, line.queue) == ("cron", "cron.recover", "oci")
    assert json.loads(line.details or "")["moved"] == 2


# Recover


def test_recover_takes_back_what_nobody_acknowledged(site: OwnSite):
    ids = site.claim(3)
    site.ack(ids[:1])
    site.ack_failed(ids[1:2], errorCategory="TRANSIENT")
    failed = site.job(ids[1])
    site.clock.advance(15 * MINUTE - 1)
    assert site.cron("recover-processing") == {"ok": True, "recovered": 0}
    site.clock.advance(1)
    assert site.cron("recover-processing") == {"ok": True, "recovered": 1}
    assert site.states(ids) == ["COMPLETED", "FAILED", "RETRY"]
    assert site.job(ids[1]) == failed
    row = site.row_of(ids[2])
    assert (row["claimed_at"], row["attempt_count"]) == (None, 1)
    assert bare(site.export()) == ids[2:]


def test_recover_may_be_limited_to_rows_that_have_not_moved_for_longer(site: OwnSite):
    ids = site.claim()
    site.clock.advance(20 * MINUTE)
    assert site.cron("recover-processing", min_age_minutes=30)["recovered"] == 0
    site.clock.advance(11 * MINUTE)
    assert site.cron("recover-processing", min_age_minutes=30)["recovered"] == 1
    assert site.state(ids[0]) == "RETRY"


# Attempt cap


def test_a_fifth_attempt_in_flight_is_not_capped(site: OwnSite):
    job_id = claim_times(site, 5)
    assert site.cron("attempt-cap") == {"ok": True, "affected": 0}
    site.clock.advance(14 * MINUTE)
    assert site.cron("attempt-cap")["affected"] == 0
    assert site.ack([job_id])["updated"] == 1


@pytest.mark.parametrize("named", [{"max_attempts": 5}, {"min_age_minutes": 0}, {"min_age_minutes": 10}])
def test_a_cap_that_is_named_applies_to_attempts_in_flight_and_a_late_ack_counts(site: OwnSite, named: dict[str, int]):
    job_id = claim_times(site, 5)
    [young] = site.claim(1, first=2)
    if named.get("min_age_minutes"):
        assert site.cron("attempt-cap", **named)["affected"] == 0
        site.clock.advance(10 * MINUTE)
    assert site.cron("attempt-cap", max_attempts=6)["affected"] == 0
    assert site.cron("attempt-cap", **named)["affected"] == 1
    job = site.job(job_id)
    assert (job.state, job.error_code, job.move) == ("FAILED", "MAX_ATTEMPTS", "attempt_cap")
    assert site.state(young) == "PROCESSING"
    assert site.ack([job_id])["updated"] == 1
    assert site.events(job_id)[-1].move == "late_ack"


def test_fewer_attempts_are_not_capped_unless_a_cap_is_named(site: OwnSite):
    job_id = claim_times(site, 4)
    site.clock.advance(16 * MINUTE)
    assert site.cron("attempt-cap")["affected"] == 0
    site.sweep("recover")
    assert site.cron("attempt-cap")["affected"] == 0
    assert site.state(job_id) == "RETRY"
    assert site.cron("attempt-cap", max_attempts=5)["affected"] == 0
    params = {"max_attempts": 4, "min_age_minutes": 15}
    site.clock.advance(10 * MINUTE)
    assert site.cron("attempt-cap", **params)["affected"] == 0
    site.clock.advance(6 * MINUTE)
    assert site.cron("attempt-cap", **params)["affected"] == 1
    assert site.state(job_id) == "FAILED"


# Expire


# Revive


def test_a_transient_failure_is_revived_after_its_pause(site: OwnSite):
    [job_id] = site.claim()
    site.ack_failed([job_id], errorCode="LATER", errorCategory="TRANSIENT")
    site.clock.advance(299)
    assert site.sweep("revive") == {}
    site.clock.advance(62)
    assert site.sweep("revive") == {"revive": 1}
    row = site.row_of(job_id)
    assert (row["status"], row["failed_at"], row["attempt_count"]) == ("RETRY", None, 1)
    assert row["provider_error_code"] == "LATER"
    assert bare(site.export()) == [job_id]


# Prune


def test_delivered_rows_go_after_ninety_days_and_failed_ones_after_a_year(site: OwnSite):
    done, failed = site.claim(2)
    site.ack([done])
    site.ack_failed([failed])
    site.wait(89 * DAY, "prune")
    assert site.states([done, failed]) == ["COMPLETED", "FAILED"]
    assert site.stats()["totals"]["COMPLETED"] == 1
    site.wait(2 * DAY, "prune")
    assert site.oci.store.job(done) is None
    assert site.stats()["totals"]["COMPLETED"] == 0
    assert site.state(failed) == "FAILED"
    [waiting] = site.enqueue(1, first=9)
    site.wait(275 * DAY, "prune")
    assert site.oci.store.job(failed) is None
    assert site.state(waiting) == "QUEUED"


# Settings


def test_without_a_secret_no_task_runs_and_the_cap_is_a_setting(site: OwnSite, tmp_path: Path):
    oci = Oci(site.oci.store, tmp_path, cron_secret=None, oci_max_attempts_script=2)
    with oci.kept():
        other = OwnSite(oci)
        for task in TASKS:
            for headers in ({}, {"authorization": "Bearer "}, CRON):
                response = other.client.post(f"/api/cron/oci/{task}", headers=headers)
                assert response.status_code == 403
        [job_id] = other.enqueue()
        assert other.job(job_id).max_attempts == 2
