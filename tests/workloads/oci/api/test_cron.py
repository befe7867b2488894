"""Scheduled moves, by the sweeper and on request: recover, cap, expire, revive, prune."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kesin.store.records import Filter
from tests.web.conftest import error_of, opened
from tests.workloads.oci import own_site
from tests.workloads.oci.conftest import CRON, DAY, HOUR, MINUTE, Oci, bare
from tests.workloads.oci.own_site import BOTH, OwnSite, well

shared = own_site.shared
TASKS = ("recover-processing", "attempt-cap", "process-offline-conversions")


MakeOci = Callable[..., Oci]


@pytest.fixture(params=BOTH)
def make_oci(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeOci]:
    """Makes a service under other settings."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())

        def make(**settings: Any) -> Oci:
            for name, value in settings.items():
                if name.startswith("oci_"):  # the lifecycle asks the environment
                    patch.setenv(f"KESIN_{name.upper()}", str(value))
            world = Oci(opened(request.param, tmp_path, request, stack), tmp_path, **settings)
            stack.enter_context(world.kept())
            return world

        yield make


@pytest.fixture(scope="module")
def shared_cron(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _quick_hashes: None
) -> Iterator[Oci]:
    """One for the tests that move nothing; the database is no matter to them."""
    folder = tmp_path_factory.mktemp("cron")
    with ExitStack() as stack:
        oci = Oci(opened("sqlite", folder, request, stack), folder)
        stack.enter_context(oci.kept())
        yield oci


class Alone(OwnSite):
    """A site whose rows are the only ones the clock could move."""

    def __init__(self, oci: Oci) -> None:
        super().__init__(oci)
        for action in ("RESET_TO_QUEUED", "MARK_FAILED"):  # by hand, so that nothing revives them
            oci.queue.act(action, actor="tests", where=Filter())

    def cron(self, task: str, **params: Any) -> dict[str, Any]:
        return self.oci.cron(task, **params)


@pytest.fixture
def site(shared: Oci) -> Alone:
    return Alone(shared)


def exported(site: Alone | Oci, count: int = 1) -> list[str]:
    ids = site.queued(count)
    assert bare(site.export()) == ids
    return ids


def tried(site: Alone | Oci, times: int) -> str:
    """A row that was claimed so often; the last claim is on its way."""
    [job_id] = site.queued()
    for n in range(times):
        if n:
            site.clock.advance(16 * MINUTE)
            site.sweep("recover")
        site.export()
    assert (site.state(job_id), site.look(job_id).attempt_count) == ("PROCESSING", times)
    return job_id


# Who may


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_scheduler_may_get_or_post(shared_cron: Oci, task: str, method: str):
    answer = shared_cron.client.request(method, f"/api/cron/oci/{task}", headers=CRON)
    assert well(answer)["ok"] is True


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"x-api-key": "wrong"},
        {"x-vercel-cron": "1"},
        {"authorization": CRON["authorization"].removeprefix("Bearer ")},
    ],
)
def test_without_the_secret_nothing_runs(shared_cron: Oci, task: str, headers: dict):
    answer = shared_cron.client.post(f"/api/cron/oci/{task}", headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (403, "forbidden")


@pytest.mark.parametrize("task", TASKS)
def test_an_admin_key_is_not_the_secret(shared_cron: Oci, task: str):
    key = shared_cron.key("admin")
    [line] = shared_cron.said(lambda: shared_cron.client.post(f"/api/cron/oci/{task}", headers=key))
    assert (line.action, line.allowed) == ("cron.oci", False)


@pytest.mark.parametrize("task", TASKS)
def test_where_no_secret_is_set_nobody_has_it(make_oci: MakeOci, task: str):
    oci = make_oci(cron_secret=None)
    for headers in ({}, {"authorization": "Bearer "}, CRON):
        assert oci.client.post(f"/api/cron/oci/{task}", headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("task", "params"),
    [
        ("recover-processing", {"min_age_minutes": -1}),
        ("recover-processing", {"min_age_minutes": 1_441}),
        ("attempt-cap", {"max_attempts": 0}),
        ("attempt-cap", {"max_attempts": 21}),
        ("attempt-cap", {"min_age_minutes": "soon"}),
        ("process-offline-conversions", {"limit": 0}),
        ("process-offline-conversions", {"limit": 2_001}),
    ],
)
def test_a_number_out_of_bounds_is_refused(shared_cron: Oci, task: str, params: dict):
    answer = shared_cron.client.post(f"/api/cron/oci/{task}", params=params, headers=CRON)
    assert answer.status_code == 422


def test_a_run_is_written_down_with_how_many_it_moved(site: Alone):
    exported(site, 2)
    site.clock.advance(16 * MINUTE)
    [line] = site.said(lambda: site.cron("recover-processing"))
    assert (line.actor, line.action, line.queue) == ("cron", "cron.recover", "oci")
    assert json.loads(line.details or "")["moved"] == 2


def test_a_run_is_written_down_with_what_was_asked(site: Alone):
    asked = {"max_attempts": 3, "min_age_minutes": 15}
    [line] = site.said(lambda: site.cron("attempt-cap", **asked))
    assert json.loads(line.details or "") == {"moved": 0, **asked}


# Recover


def test_recover_takes_back_what_nobody_acknowledged(site: Alone):
    ids = exported(site, 3)
    site.ack(ids[:1])
    site.ack_failed(ids[1:2])
    site.clock.advance(15 * MINUTE - 1)
    assert site.cron("recover-processing") == {"ok": True, "recovered": 0}
    site.clock.advance(1)
    assert site.cron("recover-processing") == {"ok": True, "recovered": 1}
    assert site.states(ids) == ["COMPLETED", "FAILED", "RETRY"]
    row = site.shown(ids[2])
    assert (row["claimed_at"], row["attempt_count"]) == (None, 1)


def test_a_recovered_row_is_due_at_once(site: Alone):
    ids = exported(site)
    site.clock.advance(16 * MINUTE)
    site.cron("recover-processing")
    assert bare(site.export()) == ids


def test_recover_never_touches_failed(site: Alone):
    ids = exported(site)
    site.ack_failed(ids, errorCategory="TRANSIENT")
    before = site.look(ids[0])
    site.clock.advance(HOUR)
    assert site.cron("recover-processing")["recovered"] == 0
    assert site.look(ids[0]) == before


def test_recover_may_ask_for_rows_that_have_not_moved_for_longer(site: Alone):
    ids = exported(site)
    site.clock.advance(20 * MINUTE)
    assert site.cron("recover-processing", min_age_minutes=30)["recovered"] == 0
    site.clock.advance(11 * MINUTE)
    assert site.cron("recover-processing", min_age_minutes=30)["recovered"] == 1
    assert site.state(ids[0]) == "RETRY"


def test_recover_ends_a_row_whose_budget_is_spent(site: Alone):
    job_id = tried(site, 5)
    site.clock.advance(16 * MINUTE)
    assert site.cron("recover-processing")["recovered"] == 1
    job = site.look(job_id)
    assert (job.state, job.error_code) == ("FAILED", "MAX_ATTEMPTS")


# Attempt cap


def test_a_fifth_attempt_in_flight_lives(site: Alone):
    job_id = tried(site, 5)
    assert site.cron("attempt-cap") == {"ok": True, "affected": 0}
    site.clock.advance(14 * MINUTE)
    assert site.cron("attempt-cap")["affected"] == 0
    assert site.ack([job_id])["updated"] == 1


def test_a_fifth_attempt_whose_time_is_over_is_capped(site: Alone):
    job_id = tried(site, 5)
    site.clock.advance(15 * MINUTE)
    assert site.cron("attempt-cap")["affected"] == 1
    job = site.look(job_id)
    assert (job.error_code, job.error_category, job.error_message) == (
        *("MAX_ATTEMPTS", "PERMANENT"),
        "MAX_ATTEMPTS_EXCEEDED",
    )


def test_fewer_attempts_are_not_capped(site: Alone):
    job_id = tried(site, 4)
    site.clock.advance(16 * MINUTE)
    assert site.cron("attempt-cap")["affected"] == 0
    site.sweep("recover")
    assert site.cron("attempt-cap")["affected"] == 0
    assert site.state(job_id) == "RETRY"


def test_a_named_cap_counts_instead_of_the_rows_own(site: Alone):
    job_id = tried(site, 2)
    site.clock.advance(16 * MINUTE)
    site.sweep("recover")
    assert site.cron("attempt-cap", max_attempts=3)["affected"] == 0
    assert site.cron("attempt-cap", max_attempts=2)["affected"] == 1
    assert site.state(job_id) == "FAILED"


def test_a_named_cap_leaves_a_row_in_flight_too(site: Alone):
    job_id = tried(site, 2)
    assert site.cron("attempt-cap", max_attempts=1)["affected"] == 0
    assert site.state(job_id) == "PROCESSING"


def test_a_renewed_budget_begins_anew(site: Alone):
    job_id = tried(site, 5)
    site.clock.advance(16 * MINUTE)
    site.cron("attempt-cap")
    site.act("RETRY_SELECTED", [job_id])
    assert site.cron("attempt-cap")["affected"] == 0
    assert bare(site.export()) == [job_id]


def test_the_cap_may_spare_rows_that_moved_lately(site: Alone):
    job_id = tried(site, 2)
    site.clock.advance(16 * MINUTE)
    site.sweep("recover")
    site.clock.advance(10 * MINUTE)
    asked = {"max_attempts": 2, "min_age_minutes": 15}
    assert site.cron("attempt-cap", **asked)["affected"] == 0
    site.clock.advance(6 * MINUTE)
    assert site.cron("attempt-cap", **asked)["affected"] == 1
    assert site.state(job_id) == "FAILED"


def test_rows_of_an_api_site_have_eight_attempts(site: Alone):
    site.become(channel="api")
    [job_id] = site.queued()
    site.become(channel="script")
    for _ in range(7):
        site.export()
        site.clock.advance(16 * MINUTE)
        site.sweep("cap", "recover")
    assert (site.state(job_id), site.look(job_id).attempt_count) == ("RETRY", 7)
    site.export()
    site.clock.advance(16 * MINUTE)
    assert site.cron("attempt-cap")["affected"] == 1


def test_the_cap_runs_before_recover(site: Alone):
    job_id = tried(site, 5)
    site.clock.advance(16 * MINUTE)
    assert site.sweep() == {"attempt_cap": 1}
    assert site.events(job_id)[-1].move == "attempt_cap"


def test_a_worker_pass_without_sites_of_its_own_does_nothing(site: Alone):
    site.queued()
    assert site.cron("process-offline-conversions") == {
        "ok": True,
        "processed": 0,
        "completed": 0,
        "failed": 0,
        "retry": 0,
    }


# Expire


@pytest.mark.parametrize("state", ["QUEUED", "RETRY"])
def test_a_conversion_older_than_ninety_days_expires(site: Alone, state: str):
    [job_id] = site.queued()
    if state == "RETRY":
        site.export()
        site.clock.advance(16 * MINUTE)
        site.sweep("recover")
    site.clock.advance(88 * DAY)
    assert site.sweep("expire") == {}
    site.clock.advance(2 * DAY)
    assert site.sweep("expire") == {"expire": 1}
    job = site.look(job_id)
    assert (job.state, job.error_code, job.error_category) == ("FAILED", "EXPIRED", "VALIDATION")


def test_a_row_in_flight_does_not_expire(site: Alone):
    exported(site)
    site.clock.advance(100 * DAY)
    assert site.sweep("expire") == {}


def test_an_expired_row_that_was_uploaded_is_still_acknowledged(site: Alone):
    [job_id] = exported(site)
    site.clock.advance(100 * DAY)
    site.sweep("recover", "expire")
    assert site.look(job_id).error_code == "EXPIRED"
    assert site.ack([job_id])["updated"] == 1


# Revive


@pytest.mark.parametrize("category", ["TRANSIENT", "RATE_LIMIT"])
def test_a_passing_failure_is_taken_up_again_after_its_pause(site: Alone, category: str):
    [job_id] = exported(site)
    site.ack_failed([job_id], errorCode="LATER", errorCategory=category)
    site.clock.advance(299)
    assert site.sweep("revive") == {}
    site.clock.advance(62)
    assert site.sweep("revive") == {"revive": 1}
    row = site.shown(job_id)
    assert (row["status"], row["failed_at"], row["attempt_count"]) == ("RETRY", None, 1)
    assert row["provider_error_code"] == "LATER"
    assert bare(site.export()) == [job_id]


@pytest.mark.parametrize("category", ["VALIDATION", "AUTH"])
def test_what_does_not_pass_by_itself_is_never_taken_up(site: Alone, category: str):
    [job_id] = exported(site)
    site.ack_failed([job_id], errorCategory=category)
    site.clock.advance(30 * DAY)
    assert site.sweep("cap", "recover", "expire", "revive") == {}
    assert site.state(job_id) == "FAILED"


def test_each_pause_is_twice_the_one_before(site: Alone):
    [job_id] = site.queued()
    pauses = []
    for _ in range(4):
        site.export()
        site.ack_failed([job_id], errorCategory="TRANSIENT")
        job = site.look(job_id)
        assert job.timer_at is not None
        pauses.append((job.timer_at - site.clock.time_us) / 1e6)
        site.clock.advance(pauses[-1])
        site.sweep("revive")
    for pause, least in zip(pauses, (300, 600, 1_200, 2_400), strict=True):
        assert least <= pause <= least + 60


def test_a_failure_of_the_last_attempt_stays(site: Alone):
    [job_id] = site.queued()
    for _ in range(5):
        site.export()
        site.ack_failed([job_id], errorCategory="TRANSIENT")
        site.clock.advance(2 * HOUR)
        site.sweep("revive")
    job = site.look(job_id)
    assert (job.state, job.attempt_count, job.timer_at) == ("FAILED", 5, None)
    site.clock.advance(30 * DAY)
    assert site.sweep("cap", "recover", "revive") == {}


def test_reviving_can_be_switched_off(make_oci: MakeOci):
    oci = make_oci(oci_revive=False)
    [job_id] = exported(oci)
    oci.ack_failed([job_id], errorCategory="TRANSIENT")
    oci.clock.advance(10 * DAY)
    assert oci.sweep() == {}
    assert oci.state(job_id) == "FAILED"


def test_the_cap_of_a_script_can_be_set(make_oci: MakeOci):
    oci = make_oci(oci_max_attempts_script=2)
    job_id = tried(oci, 2)
    oci.clock.advance(16 * MINUTE)
    assert oci.cron("attempt-cap")["affected"] == 1
    assert oci.look(job_id).attempt_count == 2


# Prune


def test_delivered_rows_go_after_ninety_days_and_failed_ones_after_a_year(oci: Oci):
    done, failed = exported(oci, 2)
    oci.ack([done])
    oci.ack_failed([failed])
    oci.clock.advance(89 * DAY)
    assert oci.sweep("prune") == {}
    oci.clock.advance(2 * DAY)
    assert oci.sweep("prune") == {"prune": 1}
    assert oci.store.job(done) is None
    oci.clock.advance(275 * DAY)
    assert oci.sweep("prune") == {"prune": 1}
    assert oci.store.job(failed) is None


def test_a_row_that_waits_is_never_pruned(oci: Oci):
    [job_id] = oci.queued()
    oci.clock.advance(80 * DAY)
    assert oci.sweep("prune") == {}
    assert oci.state(job_id) == "QUEUED"
