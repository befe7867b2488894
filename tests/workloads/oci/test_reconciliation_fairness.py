"""Figures that are counted once and in the right place, and an alert that means something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

import pytest

from kesin.workloads.oci import reconciliation
from kesin.workloads.oci.google.connection_check import channels_of
from kesin.workloads.oci.reconciliation import read_state, store_copy
from kesin.workloads.oci.uploader import Uploader
from tests.workloads.oci.action_lists import LEAD, SALE, give
from tests.workloads.oci.adjustments.adjusting import turn as turn_of_adjustments
from tests.workloads.oci.fake_google import GoogleServer, Wrong
from tests.workloads.oci.own_site import ApiSite
from tests.workloads.oci.test_reconciliation import (
    API,
    ISTANBUL,
    SALE_ID,
    WEB,
    begin,
    copy,
    day,
    figures,
    send,
    wait_until,
)

LOS_ANGELES = "America/Los_Angeles"


@pytest.fixture
def fresh(api: ApiSite) -> ApiSite:
    """A site at noon of its account, whose figures were never copied."""
    wait_until(api, 12)
    begin(api)
    return api


def judge(site: ApiSite) -> list[str]:
    """The warnings two account days later."""
    for _ in range(2):
        wait_until(site, 3)
    copy(site)
    return site.warnings()


def test_the_worker_of_adjustments_copies_nothing(fresh: ApiSite, google: GoogleServer):
    assert turn_of_adjustments(fresh) == {}
    assert (google.came, read_state(fresh.place)) == ([], {})


def test_one_site_is_copied_in_a_turn(make_api: Callable[..., ApiSite], fresh: ApiSite, google: GoogleServer):
    other = make_api()
    begin(other)
    fresh.turn()
    assert len(google.came) == 3
    fresh.turn()
    assert len(google.came) == 6
    assert all("copiedAt" in read_state(site.place) for site in (fresh, other))


def test_rows_are_uploaded_while_figures_are_copied(fresh: ApiSite):
    fresh.enqueue(2)
    uploader = Uploader(fresh.context, channels_of(fresh.oci.settings))
    list(uploader.plan_uploads())
    meanwhile: list[Any] = []

    def slow(*_: Any) -> int:
        meanwhile.extend(uploader.plan_uploads())
        list(uploader.plan_claims())  # of another thread, which leaves the copies to this one
        return 0

    with patch.object(reconciliation, "copy_figures", slow):
        list(uploader.plan_claims())
    assert [share.tenants for share in meanwhile] == [(fresh.id,)]


def test_each_row_is_counted_once_also_if_the_zone_of_the_account_changes(make_api: Callable[..., ApiSite]):
    zones = [(LOS_ANGELES, ISTANBUL), (ISTANBUL, LOS_ANGELES), (ISTANBUL, ISTANBUL)]
    sites = [make_api() for _ in zones]
    wait_until(sites[0], 12)
    for number in range(8):  # of two days, six hours apart
        for place, site in enumerate(sites):
            site.enqueue(1, first=10 * place + number)
        assert sites[0].turn() == {"COMPLETED": 3}
        sites[0].clock.advance(6 * 3_600)
    for when in (0, 1):
        for site, pair in zip(sites, zones, strict=True):
            store_copy(site.place, ZoneInfo(pair[when]), (), ())
        sites[0].clock.advance(2 * 86_400)
    assert [sum(numbers[0] for numbers in figures(site).values()) for site in sites] == [8] * 3


def test_two_actions_of_one_name_are_added_up(fresh: ApiSite, google: GoogleServer):
    give(fresh, SALE, LEAD)
    yesterday = day(fresh, 1)
    google.uploaded = {(11, "Lead at Google", API, yesterday): (2, 1, 0), (12, "Lead", API, yesterday): (5, 0, 3)}
    google.conversions = {(yesterday, 11, "Lead at Google"): 1.5, (yesterday, 12, "Lead"): 2.0}
    copy(fresh)
    assert figures(fresh) == {(yesterday, "Lead"): (0, 7, 1, 3, 3.5)}


def test_attributed_stays_of_an_action_that_a_copy_does_not_mention(fresh: ApiSite):
    zone, sold = ZoneInfo(ISTANBUL), (day(fresh, 3), "Sale")
    store_copy(fresh.place, zone, (), [(*sold, 4.0), (sold[0], "Lead", 1.0)])
    store_copy(fresh.place, zone, [(day(fresh, 1), "Lead", WEB, [1, 0, 0])], ())
    assert figures(fresh)[sold] == (0, None, None, None, 4.0)
    assert (sold[0], "Lead") not in figures(fresh)


def test_what_google_had_before_is_no_reason_to_warn(fresh: ApiSite, google: GoogleServer):
    known = Wrong("conversion_upload_error", "ORDER_ID_ALREADY_IN_USE", "")
    google.row_errors = lambda _row: [known]
    send(fresh, 10)
    google.uploaded[SALE_ID, "Phone sale", API, day(fresh)] = (0, 10, 0)
    assert judge(fresh) == []
    assert [numbers[:3] for numbers in figures(fresh).values()] == [(10, 0, 10)]


def test_a_site_that_came_from_a_script_is_judged_by_what_its_script_sent(fresh: ApiSite, google: GoogleServer):
    fresh.change(channel="script")
    fresh.ack(fresh.claim(10))
    google.uploaded[SALE_ID, "Phone sale", WEB, day(fresh)] = (10, 0, 0)
    fresh.change(channel="api")
    assert judge(fresh) == []
    google.uploaded[SALE_ID, "Phone sale", WEB, day(fresh, 2)] = (8, 0, 0)
    begin(fresh, **{**read_state(fresh.place), "nextAt": 0})
    copy(fresh)
    assert fresh.warnings() == ["TAKEN_TOO_FEW"]


def test_a_renamed_action_is_judged_by_its_new_name(fresh: ApiSite, google: GoogleServer):
    send(fresh, 10)
    google.uploaded[SALE_ID, "Phone sale", API, day(fresh)] = (10, 0, 0)
    wait_until(fresh, 4)
    copy(fresh)
    fresh.change_settings(conversion_name="Telephone")
    wait_until(fresh, 4)
    copy(fresh)
    assert fresh.warnings() == []
    assert {key[1] for key in figures(fresh)} == {"Phone sale", "Telephone"}
