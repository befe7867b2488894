"""The daily copy of Google's figures beside our own: sent, taken, attributed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

import pytest

from kesin.engine.queue import Queue
from kesin.store.records import Filter
from kesin.workloads.oci.google.connection_check import channels_of
from kesin.workloads.oci.reconciliation import RECONCILIATION, copy_figures, read_figures, read_state, store_copy
from tests.workloads.oci.action_lists import LEAD, SALE, give
from tests.workloads.oci.fake_google import GoogleServer, Whole, Wrong, refusal
from tests.workloads.oci.own_site import DAY, HOUR, MINUTE, NOT_DUE, ApiSite, OwnSite, ok

API = "GOOGLE_ADS_API"
WEB = "GOOGLE_ADS_WEB_CLIENT"
SALE_ID = 987654321
ISTANBUL = "Europe/Istanbul"


def now_in(site: OwnSite, zone: str = ISTANBUL) -> datetime:
    return datetime.fromtimestamp(site.clock.monotonic(), UTC).astimezone(ZoneInfo(zone))


def day(site: OwnSite, back: int = 0, zone: str = ISTANBUL) -> str:
    """The date of so many account days ago."""
    return (now_in(site, zone).date() - timedelta(days=back)).isoformat()


def wait_until(site: OwnSite, hour: int, minute: int = 0, zone: str = ISTANBUL) -> None:
    """Move the clock to the next such time of the account."""
    now = now_in(site, zone)
    then = now.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
    while then <= now:
        then = (then.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=ZoneInfo(zone))
    site.clock.advance(then.timestamp() - now.timestamp())


def begin(site: OwnSite, **state: Any) -> None:
    """As if nothing had ever been copied."""
    site.place.put_metadata(RECONCILIATION, state)


def copy(site: ApiSite) -> int:
    return copy_figures(site.place, channels_of(site.oci.settings))


def figures(site: OwnSite) -> dict[tuple[str, str], tuple[Any, ...]]:
    found = read_figures(site.place, date(2000, 1, 1), date(2100, 1, 1))
    return {(one.day, one.action): one[2:] for one in found}


def send(site: ApiSite, count: int, *, first: int = 1, **changes: Any) -> None:
    site.enqueue(count, first=first, **changes)
    assert site.turn() == {"COMPLETED": count}


@pytest.fixture
def fresh(api: ApiSite) -> ApiSite:
    """A site at noon of its account, whose figures were never copied."""
    wait_until(api, 12)
    begin(api)
    return api


def test_the_worker_copies_sent_taken_and_attributed_by_day_and_action(fresh: ApiSite, google: GoogleServer):
    send(fresh, 3)
    wait_until(fresh, 2, 59)  # of the next day
    begin(fresh)
    assert fresh.turn() == {}
    assert figures(fresh) == {}  # not before three
    fresh.clock.advance(MINUTE)
    yesterday = day(fresh, 1)
    google.uploaded[SALE_ID, "Telefon satışı", API, yesterday] = (2, 0, 1)
    google.uploaded[55, "Of others", WEB, yesterday] = (7, 1, 0)
    google.conversions = {
        (yesterday, SALE_ID, "Telefon satışı"): 1.5,
        (yesterday, 77, "Page view"): 400.0,  # takes no uploads
        (day(fresh, 20), SALE_ID, "Telefon satışı"): 4.0,
        (day(fresh, 0), SALE_ID, "Telefon satışı"): 9.0,  # today is not over
    }
    assert fresh.turn() == {}
    assert figures(fresh) == {
        (yesterday, "Phone sale"): (3, 2, 0, 1, 1.5),
        (yesterday, "Of others"): (0, 7, 1, 0, None),
        (day(fresh, 20), "Phone sale"): (None, None, None, None, 4.0),
    }
    state = read_state(fresh.place)
    assert (state["zone"], state["copiedAt"]) == (ISTANBUL, fresh.oci.queue.now())
    asked = len(google.came)
    fresh.clock.advance(20 * HOUR)
    assert (fresh.turn(), len(google.came)) == ({}, asked)  # once an account day
    wait_until(fresh, 3)
    fresh.turn()
    assert len(google.came) == asked + 3


def test_days_are_those_of_the_account_also_where_clocks_change(fresh: ApiSite, google: GoogleServer):
    zone = google.time_zone = "America/Los_Angeles"
    begin(fresh, zone=zone)
    while now_in(fresh, zone).utcoffset() == (now_in(fresh, zone) + timedelta(1)).utcoffset():
        fresh.clock.advance(DAY)
    wait_until(fresh, 23, 30, zone)  # of the day before the clocks change, or that very day
    send(fresh, 1)
    first = day(fresh, 0, zone)
    fresh.clock.advance(HOUR)
    send(fresh, 2, first=2)
    assert day(fresh, 0, zone) != first
    assert day(fresh) == day(fresh, 0, zone)  # in Istanbul all three were sent on one day
    wait_until(fresh, 23, 30, zone)
    send(fresh, 4, first=4)
    wait_until(fresh, 3, 0, zone)
    copy(fresh)
    assert {key[0]: numbers[0] for key, numbers in figures(fresh).items()} == {first: 1, day(fresh, 1, zone): 6}


def test_a_later_copy_wins_for_its_days_and_what_google_has_forgotten_stays(fresh: ApiSite, google: GoogleServer):
    old, new = day(fresh, 6), day(fresh, 1)
    google.uploaded = {
        (SALE_ID, "Phone sale", API, old): (5, 0, 0),
        (SALE_ID, "Phone sale", API, new): (3, 0, 9),
        (55, "Of others", WEB, new): (1, 0, 0),
    }
    google.conversions = {(old, SALE_ID, "x"): 2.0, (new, SALE_ID, "x"): 1.0}
    copy(fresh)
    wait_until(fresh, 4)
    google.uploaded = {(SALE_ID, "Phone sale", API, new): (11, 1, 0)}
    google.conversions = {(old, SALE_ID, "x"): 2.25}
    copy(fresh)
    assert figures(fresh) == {(old, "Phone sale"): (0, 5, 0, 0, 2.25), (new, "Phone sale"): (0, 11, 1, 0, None)}


def test_actions_are_named_as_rows_name_them_and_a_long_answer_comes_in_pages(fresh: ApiSite, google: GoogleServer):
    give(fresh, SALE, LEAD)
    google.actions = [{"id": 11, "name": "Lead at Google"}]
    send(fresh, 1)
    send(fresh, 2, first=2, conversionName="Lead")
    wait_until(fresh, 4)
    yesterday = day(fresh, 1)
    google.page_rows = 1
    google.uploaded = {
        (11, "Lead at Google", API, yesterday): (2, 0, 0),
        (SALE_ID, "Sale at Google", API, yesterday): (1, 0, 0),
    }
    copy(fresh)
    assert figures(fresh) == {(yesterday, "Lead"): (2, 2, 0, 0, None), (yesterday, "Phone sale"): (1, 1, 0, 0, None)}


def test_a_day_that_is_over_is_counted_once_and_only_rows_of_new_days_are_read(fresh: ApiSite):
    read: list[int] = []
    jobs = Queue.jobs

    def counted(queue: Queue, where: Filter, **how: Any) -> Any:
        page = jobs(queue, where, **{**how, "limit": 2})
        read.append(len(page.jobs))
        return page

    begin(fresh, nextAt=NOT_DUE)
    for number in range(3):
        send(fresh, 4, first=4 * number + 1)
        wait_until(fresh, 12)
    begin(fresh)
    with patch.object(Queue, "jobs", counted):
        copy(fresh)
        assert sum(read) == 12  # the first time: all that arrived in three weeks
        send(fresh, 2, first=50)
        wait_until(fresh, 12)
        read.clear()
        copy(fresh)
        assert sum(read) <= 4  # of fourteen: the two of the day, and a page to see that it is over
        read.clear()
        begin(fresh, **{**read_state(fresh.place), "nextAt": 0})
        copy(fresh)
        assert read == []
    assert [numbers[0] for numbers in figures(fresh).values()] == [2, 4, 4, 4]


def test_a_row_that_waited_for_days_is_counted_on_the_day_of_its_upload(fresh: ApiSite):
    [late] = fresh.enqueue(1)
    fresh.pause()
    copy(fresh)
    fresh.clock.advance(40 * DAY)
    copy(fresh)
    fresh.resume()
    fresh.turn()
    send(fresh, 2, first=2)
    assert fresh.state(late) == "COMPLETED"
    uploaded = day(fresh)
    wait_until(fresh, 4)
    copy(fresh)
    assert figures(fresh) == {(uploaded, "Phone sale"): (3, None, None, None, None)}


def test_a_copy_that_fails_says_why_and_is_tried_again_after_an_hour(fresh: ApiSite, google: GoogleServer):
    google.then(Whole(503, {"error": {"message": "later, please"}}))
    fresh.turn()
    state = read_state(fresh.place)
    assert "later, please" in state["error"]["message"]
    assert "copiedAt" not in state
    asked = len(google.came)
    fresh.clock.advance(HOUR - 1)
    fresh.turn()
    assert len(google.came) == asked
    fresh.clock.advance(1)
    fresh.turn()
    assert ("error" in read_state(fresh.place), len(google.came)) == (False, asked + 3)


def test_an_answer_that_cannot_be_read_changes_no_figure(fresh: ApiSite, google: GoogleServer):
    denied = Wrong("authorization_error", "USER_PERMISSION_DENIED", "")
    for answer, why in (
        (Whole(200, b"<html>"), "the response is not a JSON object"),
        (Whole(200, {"results": [{"customer": {"timeZone": "Mars/Olympus"}}]}), "not a time zone"),
        (Whole(200, {"results": "?"}), "not a time zone"),
        (refusal(403, "PERMISSION_DENIED", denied), "USER_PERMISSION_DENIED"),
        (None, "INVALID_GRANT"),
    ):
        begin(fresh)
        if answer:
            google.then(answer)
        else:
            fresh.put_credentials(refresh_token="revoked")
        copy(fresh)
        assert why in read_state(fresh.place)["error"]["message"]
        assert (figures(fresh), fresh.breaker().kind) == ({}, ""), why  # uploads go on


def test_strange_counts_are_none_and_strange_days_are_left_out(fresh: ApiSite, google: GoogleServer):
    new = day(fresh, 1)
    summary = {
        "client": API,
        "conversionActionId": str(SALE_ID),
        "dailySummaries": [
            {"uploadDate": new, "successfulCount": "9" * 30, "failedCount": -1, "pendingCount": "4"},
            {"uploadDate": "2019-01-01", "successfulCount": "1"},
            {"uploadDate": 7},
            "?",
        ],
    }
    row = {"offlineConversionUploadConversionActionSummary": summary}
    google.then(Whole(200, {"results": [{"customer": {"timeZone": ISTANBUL}}]}), Whole(200, {"results": [row, {}, 5]}))
    copy(fresh)
    assert figures(fresh) == {(new, "Phone sale"): (0, 0, 0, 4, None)}


def test_a_pause_that_google_asks_for_opens_the_breaker_and_an_open_breaker_is_respected(
    fresh: ApiSite, google: GoogleServer
):
    exhausted = Wrong("quota_error", "RESOURCE_EXHAUSTED", "")
    google.then(refusal(429, "RESOURCE_EXHAUSTED", exhausted, retry_s=7_200))
    copy(fresh)
    assert fresh.breaker().kind == "RATE_LIMIT"
    asked = len(google.came)
    fresh.clock.advance(HOUR)
    copy(fresh)
    assert len(google.came) == asked
    assert "RESOURCE_EXHAUSTED" in read_state(fresh.place)["error"]["message"]


def test_of_two_workers_at_once_one_copies(fresh: ApiSite, google: GoogleServer):
    asked = len(google.came)
    with ThreadPoolExecutor(2) as workers:
        both = list(workers.map(copy, [fresh, fresh]))
    assert sorted(at <= fresh.oci.queue.now() for at in both) == [False, True]
    assert len(google.came) == asked + 3


def test_rows_that_another_process_counts_meanwhile_are_counted_once(fresh: ApiSite):
    send(fresh, 2)
    wait_until(fresh, 4)
    jobs, others = Queue.jobs, [1]

    def overtaken(queue: Queue, where: Filter, **how: Any) -> Any:
        if others:
            others.pop()
            store_copy(fresh.place, ZoneInfo(ISTANBUL), (), ())
            send(fresh, 1, first=3)
        return jobs(queue, where, **how)

    with patch.object(Queue, "jobs", overtaken):
        store_copy(fresh.place, ZoneInfo(ISTANBUL), (), ())
    wait_until(fresh, 4)
    copy(fresh)
    assert [(key[0], numbers[0]) for key, numbers in figures(fresh).items()] == [(day(fresh, 1), 1), (day(fresh, 2), 2)]


def test_data_manager_is_copied_only_where_a_setting_says_so(make_api: Callable[..., ApiSite], google: GoogleServer):
    site = make_api("data_manager")
    wait_until(site, 12)
    begin(site)
    site.turn()
    assert (google.came, read_state(site.place)) == ([], {})
    site.change_settings(data_manager_counts=True)
    site.turn()
    assert read_state(site.place)["zone"] == ISTANBUL


def test_thirteen_months_are_kept_and_a_hundred_actions_a_day(fresh: ApiSite):
    for _ in range(15):
        copies = [(day(fresh, 1), f"a{n}", API, [1, 0, 0]) for n in range(120)]
        store_copy(fresh.place, ZoneInfo(ISTANBUL), copies, ())
        fresh.clock.advance(31 * DAY)
    found = figures(fresh)
    assert len({key[0][:7] for key in found}) == 13
    assert len(found) == 13 * 100


# Judging


def test_too_few_taken_of_a_day_is_a_warning_two_account_days_later(
    make_api: Callable[..., ApiSite], google: GoogleServer
):
    cases: list[tuple[dict[str, tuple[int, int, int]], bool]] = [
        ({API: (9, 0, 0)}, False),
        ({API: (4, 1, 5)}, False),
        ({API: (8, 2, 0)}, True),
        ({API: (8, 0, 0), WEB: (50, 0, 0)}, True),  # the uploads of others are not ours
        ({}, True),
    ]
    sites = [make_api() for _ in cases]
    wait_until(sites[0], 12)
    for number, site in enumerate(sites):
        site.enqueue(10, first=100 * number)
    assert sites[0].turn() == {"COMPLETED": 50}
    for site in sites:
        begin(site)
    sent_on = day(sites[0])

    def copy_all(*, short: bool) -> None:
        wait_until(sites[0], 3)
        for site, (counts, is_short) in zip(sites, cases, strict=True):
            google.uploaded = {(SALE_ID, "Phone sale", client, sent_on): one for client, one in counts.items()}
            copy(site)
            assert site.warnings() == (["TAKEN_TOO_FEW"] if short and is_short else []), counts

    copy_all(short=False)  # Google may still be at it
    copy_all(short=True)
    messages = [one["message"] for site in sites for one in site.stats()["warnings"]]
    assert messages == [f"Google accepted {taken} of the 10 rows sent on {sent_on}" for taken in (8, 8, 0)]
    metrics = sites[0].client.get("/metrics", headers=sites[0].oci.key("metrics")).text
    assert "kesin_oci_short_sites 3.0" in metrics
    sites[0].clock.advance(6 * DAY)
    copy_all(short=False)  # Google will not change it any more


def test_a_day_without_rows_is_never_short_and_an_old_copy_says_nothing(fresh: ApiSite, google: GoogleServer):
    google.uploaded[SALE_ID, "Phone sale", API, day(fresh, 3)] = (0, 5, 0)
    copy(fresh)
    assert fresh.warnings() == []
    begin(fresh, copiedAt=fresh.oci.queue.now(), short=[{"day": "d", "sent": 3, "taken": 1}])
    assert fresh.warnings() == ["TAKEN_TOO_FEW"]
    fresh.clock.advance(8 * DAY)
    assert fresh.warnings() == []
    assert ok(fresh.request("GET", f"queue-stats?siteId={fresh.id}", fresh.reader))
