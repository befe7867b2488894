"""The upload worker against a fake Google: the results of each row and of the site."""

from dataclasses import asdict
from unittest.mock import patch

from kesin.engine.access.masking import MASK
from kesin.engine.results import Act
from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.oci.google.connection_check import channels_of
from kesin.workloads.oci.google.credentials import vault_name
from kesin.workloads.oci.uploader import Uploader, fair_shares
from tests.web.conftest import ROOT
from tests.workloads.oci.fake_google import GoogleServer, Whole, refusal, upload_error
from tests.workloads.oci.google_faults import hang_up, nonsense, recorded_but_cut_off
from tests.workloads.oci.own_site import DAY, HOUR, MINUTE, ApiSite


def fail(google: GoogleServer, **by_click: str) -> None:
    """Let Google refuse some rows, named by the end of their click id."""

    def wrong(row):
        return [
            upload_error(value) for end, value in by_click.items() if row.get("gclid", "").endswith(end.lstrip("n"))
        ]

    google.row_errors = wrong


# Rows


def test_a_200_is_not_trusted_and_each_row_keeps_what_google_said_of_it(api: ApiSite, google: GoogleServer):
    ids = api.enqueue(3)
    fail(google, n2="EXPIRED_EVENT")
    assert api.turn() == {"COMPLETED": 2, "FAILED": 1}
    assert api.states(ids) == ["COMPLETED", "FAILED", "COMPLETED"]
    done, failed = api.row_of(ids[0]), api.row_of(ids[1])
    assert (done["uploaded_at"] is not None, done["failed_at"], done["last_error"]) == (True, None, None)
    assert (failed["uploaded_at"], failed["failed_at"] is not None) == (None, True)
    assert (failed["provider_error_code"], failed["provider_error_category"]) == ("EXPIRED_EVENT", "VALIDATION")
    assert failed["last_error"] == "What EXPIRED_EVENT means."
    note = api.events(ids[1])[-1].note or ""
    assert "request-1" in note
    assert "EXPIRED_EVENT" in note
    sent = [api.job(ids[n]).payload["orderId"] for n in (0, 2)]
    assert sorted(google.recorded) == sorted(sent)


def test_a_message_about_all_rows_is_stored_without_their_click_ids(api: ApiSite, google: GoogleServer):
    api.enqueue(gclid="wolf_7")
    api.enqueue(first=2)
    google.then(Whole(403, {"error": {"message": "wolf_7 is not yours"}}))
    api.turn()
    assert {job.error_message for job in api.jobs()} == {f"{MASK} is not yours"}
    assert api.breaker().message == f"{MASK} is not yours"


def test_eight_attempts_and_a_passing_error_fails_for_good(api: ApiSite, google: GoogleServer):
    ids = api.enqueue(1)
    fail(google, n1="EVENT_NOT_FOUND")
    for _ in range(8):
        assert api.turn() == {"RETRY": 1}
        assert api.turn() == {}  # not before its pause is over
        api.clock.advance(DAY + MINUTE)
    assert api.turn() == {}
    api.sweep("cap")
    row = api.row_of(ids[0])
    assert (row["status"], row["provider_error_code"], row["attempt_count"]) == ("FAILED", "MAX_ATTEMPTS", 8)


def test_wrong_data_and_wrong_accounts_are_never_requeued_by_the_clock(api: ApiSite, google: GoogleServer):
    ids = api.enqueue(3)
    fail(google, n1="UNPARSEABLE_GCLID", n2="UNAUTHORIZED_CUSTOMER")
    assert api.turn() == {"COMPLETED": 1, "FAILED": 2}
    api.clock.advance(2 * DAY)
    api.sweep()
    rows = [api.row_of(job_id) for job_id in ids[:2]]
    found = [(row["status"], row["provider_error_category"]) for row in rows]
    assert found == [("FAILED", "VALIDATION"), ("FAILED", "AUTH")]


def test_too_recent_waits_six_hours_and_costs_no_attempt(api: ApiSite, google: GoogleServer):
    ids = api.enqueue(1)
    fail(google, n1="TOO_RECENT_EVENT")
    assert api.turn() == {"RETRY": 1}
    job = api.job(ids[0])
    assert (job.move, job.run_at, job.attempts_left) == ("too_recent", job.moved_at + 6 * HOUR * SECOND_US, 8)


def test_a_row_google_recorded_before_we_heard_is_completed_with_the_code_kept(api: ApiSite, google: GoogleServer):
    ids = api.enqueue(2)
    google.then(recorded_but_cut_off)
    assert api.turn() == {"RETRY": 2}
    api.clock.advance(7 * MINUTE)
    assert api.turn() == {"COMPLETED": 2}
    row = api.row_of(ids[0])
    assert row["provider_error_code"] == "ORDER_ID_ALREADY_IN_USE"
    assert len(google.recorded) == 2


def test_two_sales_of_one_click_in_one_second_are_not_both_called_delivered(api: ApiSite):
    first = api.row(1)
    api.post([first, {**first, "externalId": "sale-2"}])
    assert api.turn() == {"COMPLETED": 1, "FAILED": 1}
    (row,) = api.rows(status="FAILED")
    assert row["provider_error_code"] == "CLICK_CONVERSION_ALREADY_EXISTS"
    assert row["provider_error_category"] == "VALIDATION"


def test_on_an_api_channel_a_site_without_a_name_takes_no_row_and_sends_those_it_has(api: ApiSite):
    api.change(channel="script")
    [stored] = api.enqueue(conversionName="Lead")
    api.change(channel="api")
    api.change_settings(conversion_name="")
    named, unnamed = api.post([api.row(2), api.row(3, conversionName=None)])
    assert (named["result"], named["code"]) == ("rejected", "UNKNOWN_CONVERSION_NAME")
    assert (unnamed["result"], unnamed["code"]) == ("rejected", "MISSING_CONVERSION_NAME")
    assert all("in the site's settings" in row["message"] for row in (named, unnamed))
    assert api.turn() == {"COMPLETED": 1}
    assert api.state(stored) == "COMPLETED"


def test_on_an_api_channel_another_name_than_that_of_the_site_is_refused(api: ApiSite):
    stray = api.enqueue_raw(api.row(1, conversionName="Lead"))
    api.change_settings(conversion_name="Phone sale")
    [lead, sale, unnamed] = api.post(
        [api.row(2, conversionName="Lead"), api.row(3, conversionName="Phone sale"), api.row(4, conversionName=None)]
    )
    assert (lead["result"], lead["code"]) == ("rejected", "UNKNOWN_CONVERSION_NAME")
    assert (sale["result"], unnamed["result"]) == ("queued", "queued")
    assert api.turn() == {"COMPLETED": 2}
    assert api.job(stray).error_code == "UNKNOWN_CONVERSION_NAME"
    api.change(channel="script")
    assert api.post([api.row(2, conversionName="Lead")])[0]["result"] == "queued"


def test_a_row_whose_click_grew_too_old_is_not_uploaded(api: ApiSite, google: GoogleServer):
    old = api.enqueue_raw(api.row(1, conversionTime=api.oci.ago(90 * DAY)))
    assert api.turn() == {}
    assert (api.job(old).error_code, api.job(old).attempt_count) == ("EXPIRED", 0)
    api.enqueue(1, first=2, conversionTime=api.oci.ago(90 * DAY - MINUTE))
    jobs = api.oci.queue.claim("tests", tenants=[api.id])
    api.clock.advance(MINUTE)
    [result] = Uploader(api.context, channels_of(api.oci.settings)).upload(jobs)
    assert isinstance(result, Act)
    assert (result.action, result.code) == ("ack_failed", "EXPIRED")
    assert google.came == []


def test_an_ack_is_not_lost_when_the_lease_was(api: ApiSite, google: GoogleServer):
    ids = api.enqueue(1)

    def slow(row):
        api.clock.advance(HOUR)
        api.sweep("recover")
        return []

    google.row_errors = slow
    api.turn()
    assert api.states(ids) == ["COMPLETED"]
    assert api.events(ids[0])[-1].move == "late_ack"


# Sites


def test_a_site_that_is_paused_or_left_to_its_script_is_not_served(api: ApiSite):
    ids = api.enqueue(1)
    api.pause()
    assert api.turn() == {}
    api.resume()
    api.change(channel="script")
    assert api.turn() == {}
    assert api.states(ids) == ["QUEUED"]


def test_a_refused_site_fails_that_batch_and_keeps_the_rest_queued(api: ApiSite, google: GoogleServer):
    ids = api.enqueue(6)
    google.then(Whole(403, {"error": {"code": 403, "message": "no", "status": "X"}}))
    assert api.turn(limit=5) == {"FAILED": 5}
    assert api.turn() == {}
    assert api.states(ids[-1:]) == ["QUEUED"]
    assert api.row_of(ids[0])["provider_error_category"] == "AUTH"
    assert api.breaker().kind == "AUTH"
    assert "BREAKER_OPEN" in api.warnings()


def test_an_auth_breaker_closes_when_credentials_change(api: ApiSite, google: GoogleServer):
    ids = api.enqueue(1)
    api.context.vault.drop(ROOT, vault_name(api.id))
    assert api.turn() == {}
    assert api.breaker().code == "CREDENTIALS_MISSING"
    api.clock.advance(1)
    api.put_credentials(refresh_token="wrong")
    assert api.turn() == {}
    assert api.breaker().code == "INVALID_GRANT"
    assert api.states(ids) == ["QUEUED"]  # a row that cannot be sent is not claimed
    api.clock.advance(1)
    api.put_credentials()
    assert api.turn() == {"COMPLETED": 1}
    assert api.breaker().kind == ""


def open_by_token_trouble(api: ApiSite, google: GoogleServer) -> None:
    api.enqueue(1)
    google.tokens_then(*[Whole(404)] * 5)
    for _ in range(5):
        assert api.turn() == {}
    assert (api.breaker().kind, api.breaker().code) == ("TRANSIENT", "TOKEN_UNAVAILABLE")
    api.clock.advance(1)


def test_new_credentials_close_a_breaker_that_passing_trouble_opened_in_a_limited_turn_too(
    api: ApiSite, google: GoogleServer
):
    open_by_token_trouble(api, google)
    assert api.turn(10) == {}
    api.put_credentials()
    assert api.turn(10) == {"COMPLETED": 1}
    assert api.breaker().kind == ""


def test_credentials_put_by_the_api_close_the_breaker_at_once(api: ApiSite, google: GoogleServer):
    open_by_token_trouble(api, google)
    assert "BREAKER_OPEN" in api.warnings()
    body = {"siteId": api.id, "credentials": asdict(google.credentials())}
    store = api.context.queue.store
    with patch.object(store, "add_note", wraps=store.add_note) as noted:
        assert api.request("PUT", "credentials", api.oci.key("admin"), json=body).status_code == 200
    assert noted.call_args.kwargs["kind"] == "breaker"
    assert noted.call_args.kwargs["actor"].startswith("key:")
    assert api.warnings() == []
    assert api.turn() == {"COMPLETED": 1}


def test_an_auth_breaker_tries_a_check_and_never_a_row(api: ApiSite, google: GoogleServer):
    ids = api.enqueue(2)
    google.account = "999"  # the site lost its access
    assert api.turn() == {"FAILED": 2}
    api.act("RETRY_SELECTED", ids)
    api.clock.advance(HOUR)
    before = len(google.came)
    assert api.turn() == {}
    checks = google.came[before:]
    assert [check.body.get("validateOnly") for check in checks] == [True]
    google.account = "1234567890"
    api.clock.advance(HOUR)
    assert api.turn() == {"COMPLETED": 2}


def test_five_passing_troubles_open_the_breaker_and_a_probe_closes_it(api: ApiSite, google: GoogleServer):
    ids = api.enqueue(20)
    google.then(hang_up, nonsense, *[Whole(503)] * 4)
    for failures in range(5):
        assert (api.breaker().kind, api.breaker().failures) == ("", failures)
        assert api.turn() == {"RETRY": 20}
        api.clock.advance(DAY + MINUTE)
    assert api.row_of(ids[0])["provider_error_category"] == "TRANSIENT"
    assert api.breaker().kind == "TRANSIENT"
    api.clock.advance(-DAY)
    assert api.turn() == {}
    api.clock.advance(DAY)
    assert api.turn() == {"RETRY": 5}  # a probe that fails opens it again
    assert api.turn() == {}
    api.clock.advance(DAY + MINUTE)
    assert api.turn() == {"COMPLETED": 5}
    assert api.breaker().kind == ""
    assert api.turn() == {"COMPLETED": 15}
    assert len(google.recorded) == len(ids)


def test_a_refusal_for_quota_costs_no_attempt_until_eight_waits(api: ApiSite, google: GoogleServer):
    [job_id] = api.enqueue(1)
    left = []
    for _ in range(9):
        google.then(refusal(429, "RESOURCE_EXHAUSTED"))
        assert api.turn() == {"RETRY": 1}
        left.append(api.job(job_id).attempts_left)
        api.clock.advance(DAY)
    assert left == [*[8] * 8, 7]
    moves = [event.move for event in api.events(job_id) if event.move != "claim"]
    assert moves == ["enqueue", *["quota_wait"] * 8, "retry_later"]
    assert api.row_of(job_id)["provider_error_code"] == "RESOURCE_EXHAUSTED"


def test_a_rate_limit_holds_the_site_for_as_long_as_google_says(api: ApiSite, google: GoogleServer):
    api.enqueue(3)
    google.then(refusal(429, "RESOURCE_EXHAUSTED")._replace(headers={"retry-after": "7200"}))
    assert api.turn() == {"RETRY": 3}
    api.clock.advance(HOUR)
    assert api.turn() == {}
    api.clock.advance(HOUR + MINUTE)
    assert api.turn() == {"COMPLETED": 3}


def test_rows_that_come_singly_wait_a_minute_and_go_together(api: ApiSite, google: GoogleServer):
    worker = Uploader(api.context, channels_of(api.oci.settings), threads=1)
    api.enqueue(1)
    assert worker.run_once() == {"COMPLETED": 1}
    api.enqueue(1, first=10)
    api.enqueue(1, first=20)
    assert worker.run_once() == {}
    api.clock.advance(MINUTE)
    assert worker.run_once() == {"COMPLETED": 2}
    assert [len(rows) for rows in google.uploads] == [1, 2]


def test_each_turn_begins_with_another_site(api: ApiSite, make_api):
    other = make_api()
    api.enqueue(1)
    other.enqueue(1)
    uploader = Uploader(api.context, channels_of(api.oci.settings))
    first = [next(iter(list(uploader.plan_claims()))).tenants for _ in range(4)]
    assert first[:2] in ([(api.id,), (other.id,)], [(other.id,), (api.id,)])
    assert first[2:] == first[:2]


# Turns that are limited


def test_a_limited_turn_is_shared_between_the_sites_and_counts_the_results(
    api: ApiSite, google: GoogleServer, make_api
):
    api.enqueue(27)
    make_api().enqueue(3, first=500)
    fail(google, n000001="UNPARSEABLE_GCLID", n000002="EVENT_NOT_FOUND")
    body = api.cron("process-offline-conversions", limit=10)
    assert body == {"ok": True, "processed": 10, "completed": 8, "failed": 1, "retry": 1}
    assert sorted(len(rows) for rows in google.uploads) == [1, 9]


def test_shares_are_in_proportion_and_nobody_with_rows_gets_none():
    cases: list[tuple[dict[str, int], int | None, dict[str, int]]] = [
        ({}, 10, {}),
        ({"a": 5, "b": 0}, None, {"a": 5}),
        ({"a": 5_000}, None, {"a": 2_000}),
        ({"a": 3, "b": 4}, 10, {"a": 3, "b": 4}),
        ({"a": 90, "b": 10}, 20, {"a": 18, "b": 2}),
        ({"a": 1_000, "b": 1}, 10, {"a": 9, "b": 1}),
        ({"a": 5, "b": 5, "c": 5}, 2, {"a": 1, "b": 1}),
        ({"a": 10, "b": 10, "c": 10}, 10, {"a": 4, "b": 3, "c": 3}),
    ]
    for waiting, limit, shares in cases:
        assert fair_shares(waiting, limit) == shares
