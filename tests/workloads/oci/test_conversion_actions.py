"""Several conversion actions a site: what rows may name, when they end, what a list changes."""

from __future__ import annotations

from typing import Any

import pytest

from kesin.foundation.problems import Invalid
from kesin.workloads.oci.conversions.actions import ActionChanges, ConversionAction, merge_actions, parse_actions
from kesin.workloads.oci.google.connection_check import check_site
from kesin.workloads.oci.site import SiteSettings, validate_settings
from tests.web.conftest import ROOT
from tests.workloads.oci.action_lists import ENABLED, LEAD, SALE, SALE_AT_GOOGLE, give, listed, names, posted
from tests.workloads.oci.own_site import DAY, HOUR, OwnSite, bare, refused

# The setting


def test_actions_are_kept_with_googles_defaults_and_fields_of_other_versions_are_ignored(site: OwnSite):
    give(site, SALE, LEAD)
    sale, lead = site.place.settings.actions
    assert sale == ConversionAction("Phone sale", "987654321", True, "MANY_PER_CLICK", 30)
    assert lead == ConversionAction("Lead", "11", False, "ONE_PER_CLICK", 7)
    site.change_settings(actions=[{**SALE, "colour": "red"}])
    assert site.place.settings == SiteSettings(actions=(sale,))


@pytest.mark.parametrize(
    ("entries", "field"),
    [
        ([{**SALE, "name": ""}], "actions[0].name"),
        ([{**SALE, "name": "x" * 101}], "actions[0].name"),
        ([{**SALE, "name": "two\nlines"}], "actions[0].name"),
        ([{**SALE, "name": " blank"}], "actions[0].name"),
        ([{**SALE, "name": 5}], "actions[0].name"),
        ([LEAD, {**SALE, "id": "12a"}], "actions[1].id"),
        ([{**SALE, "id": 12}], "actions[0].id"),
        ([{"name": "x"}], "actions[0].id"),
        ([{**SALE, "default": "yes"}], "actions[0].default"),
        ([{**SALE, "counting": "TWICE"}], "actions[0].counting"),
        ([{**SALE, "lookback_days": 0}], "actions[0].lookback_days"),
        ([{**SALE, "lookback_days": 91}], "actions[0].lookback_days"),
        ([{**SALE, "lookback_days": True}], "actions[0].lookback_days"),
        ([{**SALE, "status": ENABLED}], "actions[0].status"),
        (["Phone sale"], "actions[0]."),
        ([SALE, {**LEAD, "name": "Phone sale"}], "actions"),
        ([SALE, {**LEAD, "default": True}], "actions"),
        ([{**LEAD, "name": f"a{n}"} for n in range(101)], "actions"),
        ("Phone sale", "actions[0]."),
    ],
)
def test_a_wrong_entry_is_refused_by_the_name_of_its_field(entries: Any, field: str):
    with pytest.raises(Invalid) as caught:
        validate_settings({"actions": entries})
    assert caught.value.details == {"field": field}


def test_names_differ_by_case_and_a_hundred_actions_fit():
    assert len(parse_actions([LEAD, {**LEAD, "name": "lead"}])) == 2
    assert len(parse_actions([{**LEAD, "name": f"a{n}"} for n in range(100)])) == 100


# Ingest


def test_without_actions_everything_is_as_before(site: OwnSite):
    [job_id] = site.enqueue(1, conversionName="Whatever")
    assert site.job(job_id).stamp_4 is None
    site.change(channel="api")
    site.change_settings(conversion_name="Phone sale")
    [result] = site.post([site.row(2, conversionName="Whatever")])
    assert (result["code"], "'Phone sale'" in result["message"]) == ("UNKNOWN_CONVERSION_NAME", True)


def test_a_row_names_its_action_or_takes_the_default_and_an_unknown_name_is_rejected(site: OwnSite):
    site.change_settings(conversion_name="Of before")
    give(site, SALE, LEAD)
    names = [None, "Lead", "lead", "Of before"]
    for start, channel in ((0, "script"), (10, "api"), (20, "data_manager")):
        site.change(channel=channel)
        results = site.post([site.row(start + n, conversionName=name) for n, name in enumerate(names)])
        assert [one["result"] for one in results] == ["queued", "queued", "rejected", "rejected"]
        taken = [site.job(one["id"]).payload["conversionName"] for one in results[:2]]
        assert taken == ["Phone sale", "Lead"]
        for one in results[2:]:
            assert (one["code"], one["field"]) == ("UNKNOWN_CONVERSION_NAME", "conversionName")
            assert "'Lead', 'Phone sale'" in one["message"]


def test_without_a_default_a_row_needs_a_name(site: OwnSite):
    give(site, {**SALE, "default": False})
    [result] = site.post([site.row(conversionName=None)])
    assert (result["result"], result["code"]) == ("rejected", "MISSING_CONVERSION_NAME")


def test_of_many_actions_a_message_names_ten(site: OwnSite):
    give(site, *({**LEAD, "name": f"action {n:02}"} for n in range(40)))
    [result] = site.post([site.row()])
    assert result["message"].endswith("'action 09', …")
    assert len(result["message"]) < 300


def test_a_braid_is_refused_for_an_action_that_counts_one_per_click(site: OwnSite):
    give(site, SALE, LEAD)
    for start, kind in ((0, "wbraid"), (10, "gbraid")):
        braid = {kind: "0AAAAAA_braid-1"}
        for_lead = site.row(start + 1, conversionName="Lead", gclid=None, **braid)
        with_gclid = site.row(start + 2, conversionName="Lead", **braid)
        for_sale = site.row(start + 3, gclid=None, **braid)
        first, *others = site.post([for_lead, with_gclid, for_sale])
        code = "ONE_PER_CLICK_CONVERSION_ACTION_NOT_PERMITTED_WITH_BRAID"
        assert (first["result"], first["code"], first["field"]) == ("rejected", code, kind)
        assert [one["result"] for one in others] == ["queued", "queued"]


# The end of a row


def test_a_row_ends_with_the_look_back_of_its_action_and_others_after_ninety_days(alone: OwnSite):
    [before] = alone.enqueue(1)
    give(alone, {**SALE, "lookback_days": 90}, LEAD)
    [sale] = alone.enqueue(1, first=2)
    [lead] = alone.enqueue(1, first=3, conversionName="Lead")
    job = alone.job(lead)
    assert job.stamp_4 == (job.stamp_1 or 0) + 7 * DAY * 1_000_000
    alone.wait(6 * DAY - 10)  # each was sold a day and some seconds ago
    assert alone.sweep("expire") == {}
    alone.wait(10)
    assert alone.sweep("expire") == {"expire": 1}
    row = alone.row_of(lead)
    assert (row["status"], row["provider_error_code"]) == ("FAILED", "EXPIRED")
    assert row["last_error"].endswith("the look-back window of its conversion action")
    assert row["provider_error_category"] == "VALIDATION"
    assert alone.states([before, sale]) == ["QUEUED", "QUEUED"]
    alone.wait(83 * DAY)
    assert alone.sweep("expire") == {"expire": 2}
    assert alone.job(before).error_message == "the click is too old for Google"


def test_rows_that_end_within_a_week_with_their_action_are_counted(site: OwnSite, neighbour: OwnSite):
    give(site, SALE)  # ends after 30 days
    for days in (22, 24, 25):
        site.enqueue(1, first=days, conversionTime=site.oci.ago(days * DAY))
    neighbour.enqueue(1, conversionTime=site.oci.ago(84 * DAY))
    assert (site.stats()["expiringSoon"], "EXPIRING_SOON" in site.warnings()) == (2, True)
    assert neighbour.stats()["expiringSoon"] == 1


def test_a_row_past_its_end_is_rejected_at_ingest_and_before_an_export(site: OwnSite):
    give(site, SALE, LEAD)
    old = {"conversionName": "Lead", "conversionTime": site.oci.ago(7 * DAY)}
    young = {"conversionName": "Lead", "conversionTime": site.oci.ago(7 * DAY - HOUR)}
    first, second = site.post([site.row(1, **old), site.row(2, **young)])
    assert (first["result"], first["code"]) == ("rejected", "EXPIRED")
    assert first["field"] == "conversionTime"
    site.wait(HOUR)  # no sweep comes
    assert site.export() == []
    assert site.row_of(second["id"])["provider_error_code"] == "EXPIRED"


def test_an_end_stays_when_the_look_back_changes_and_a_correction_sets_it_again(site: OwnSite):
    give(site, SALE, LEAD)
    [job_id] = site.enqueue(1, conversionName="Lead")
    ends = site.job(job_id).stamp_4
    give(site, SALE, {**LEAD, "lookback_days": 2})
    assert site.job(job_id).stamp_4 == ends
    [result] = site.post([site.row(1, conversionName="Lead", conversionValue=9)])
    job = site.job(job_id)
    assert (result["result"], job.stamp_4) == ("corrected", (job.stamp_1 or 0) + 2 * DAY * 10**6)
    [result] = site.post([site.row(1, conversionValue=9)])
    assert site.job(job_id).stamp_4 == (job.stamp_1 or 0) + 30 * DAY * 10**6


def test_a_hold_longer_than_the_look_back_sends_rows_before_their_end(site: OwnSite):
    give(site, {**SALE, "lookback_days": 2})
    site.change_settings(send_after_hours=72)
    [job_id] = site.enqueue(conversionTime=site.oci.ago(60))
    assert site.export() == []
    site.wait(DAY)
    assert bare(site.export()) == [job_id]
    [failed] = site.fail(1, first=2)
    site.post([site.row(2, conversionValue=9, conversionTime=site.oci.ago(DAY))])
    assert bare(site.export()) == [failed]


def test_rows_of_a_short_look_back_warn_on_their_last_day_only(site: OwnSite):
    give(site, {**SALE, "lookback_days": 7})
    site.enqueue(conversionTime=site.oci.ago(60))
    assert (site.warnings(), site.stats()["expiringSoon"]) == ([], 0)
    site.wait(6 * DAY)
    assert "EXPIRING_SOON" in site.warnings()


def test_a_row_that_ended_is_queued_again_once_the_look_back_is_longer(site: OwnSite):
    give(site, SALE, LEAD)
    rows = [site.row(n, conversionName="Lead") for n in (1, 2)]
    ids = [one["id"] for one in site.post(rows)]
    site.wait(7 * DAY)
    site.sweep("expire")
    for _ in range(2):
        assert {site.row_of(job_id)["provider_error_code"] for job_id in ids} == {"EXPIRED"}
        assert {(one["result"], one["code"]) for one in site.post(rows)} == {("rejected", "EXPIRED")}
    give(site, SALE, {**LEAD, "lookback_days": 90})
    assert [one["result"] for one in site.post(rows[:1])] == ["corrected"]
    site.act("CORRECT", ids[1:], conversion={"conversionValue": rows[1]["conversionValue"]})
    for job in map(site.job, ids):
        assert (job.state, job.stamp_4) == ("QUEUED", (job.stamp_1 or 0) + 90 * DAY * 10**6)
    assert [one["result"] for one in site.post(rows)] == ["duplicate"] * 2


def test_a_refusal_keeps_the_end_and_a_fix_gives_a_revision_one(site: OwnSite):
    give(site, SALE)
    [denied, done] = site.enqueue(2)
    ends = site.job(denied).stamp_4
    site.post([site.row(1, consent={"adUserData": "denied"})])
    assert (site.state(denied), site.job(denied).stamp_4) == ("FAILED", ends)
    site.export()
    site.ack([done])
    site.act("ENQUEUE_FIX", [done])
    [revision] = [job for job in site.jobs() if job.state == "QUEUED"]
    assert revision.stamp_4 == site.job(done).stamp_4


def test_a_row_whose_action_is_gone_from_the_site_is_rejected_before_the_claim(site: OwnSite):
    give(site, SALE, LEAD)
    [lead] = site.enqueue(1, conversionName="Lead")
    [sale] = site.enqueue(1, first=2)
    give(site, SALE)
    assert [one["conversionName"] for one in site.export()] == ["Phone sale"]
    row = site.row_of(lead)
    assert (row["provider_error_code"], row["attempt_count"]) == ("UNKNOWN_CONVERSION_NAME", 0)
    assert site.state(sale) == "PROCESSING"


# What a list changes


def test_a_list_adds_changes_and_marks_but_never_removes_and_keeps_the_default():
    current = parse_actions([{**SALE, "default": False}, {**LEAD, "default": True}])
    sale = {**SALE_AT_GOOGLE, "lookback_days": 60}
    entries = listed(sale, {"name": "New", "id": "7"}) + listed({"name": "Off", "id": "8"}, status="HIDDEN")
    changes = merge_actions(current, entries, ["New"])
    assert [(one.name, one.default) for one in changes.actions] == [
        *(("Phone sale", False), ("Lead", True), ("New", False))
    ]
    assert (changes.added, changes.changed) == (("New",), ("Phone sale",))
    assert (changes.gone, changes.omitted) == (("Lead",), ("Off (HIDDEN)",))
    again = merge_actions(changes.actions, entries, ())
    assert (again.actions, again.added, again.changed) == (changes.actions, (), ())


def test_the_first_default_is_what_rows_without_a_name_went_to():
    cases: list[tuple[list[str], list[str], list[str]]] = [
        (["a", "b"], ["b"], ["b"]),
        (["a", "b"], ["11"], ["a"]),
        (["a", "b"], [""], []),
        (["a"], [], ["a"]),
        ([], ["a"], []),
    ]
    for entries, usual, default in cases:
        found = listed(*({"name": name, "id": f"{11 + n}"} for n, name in enumerate(entries)))
        assert [one.name for one in merge_actions((), found, usual).actions if one.default] == default


def test_a_list_chooses_no_default_where_an_operator_left_it_open():
    current = parse_actions([{**SALE, "default": False}])
    for usual in ([], ["Phone sale", "987654321"]):
        changes = merge_actions(current, listed(SALE_AT_GOOGLE), usual)
        assert [one.default for one in changes.actions] == [False]


def test_what_cannot_be_kept_is_omitted_and_said():
    bad: list[dict[str, Any]] = [{"name": "x" * 101, "id": "1"}, {"name": "b", "id": "2", "lookback_days": 120}]
    twice = [{"name": "c", "id": "3"}, {"name": "c", "id": "4"}]
    changes = merge_actions((), listed(*bad, *twice), ())
    assert [one.id for one in changes.actions] == ["3"]
    assert [text.rpartition(" ")[2] for text in changes.omitted] == ["(UNUSABLE)"] * 3


def test_of_a_list_that_is_too_long_what_has_room_is_taken_and_what_is_there_stays_up_to_date():
    every: list[dict[str, Any]] = [{"name": f"n{n}", "id": str(n)} for n in range(102)]
    first = merge_actions((), listed(*every), ())
    assert len(first.actions) == len(first.added) == 100
    assert first.omitted == ("n100 (TOO_MANY)", "n101 (TOO_MANY)")
    every[99] |= {"lookback_days": 90}
    again = merge_actions(first.actions, listed(*reversed(every)), ())
    assert (again.added, again.changed, again.gone) == ((), ("n99",), ())
    assert {text[-10:] for text in again.omitted} == {"(TOO_MANY)"}


# The script's list


def test_a_scripts_list_is_stored_at_once_with_an_audit_line_and_twice_changes_nothing(site: OwnSite):
    site.change_settings(conversion_name="Lead", recover_minutes=45)
    lead = {"name": "Lead", "id": "11", "lookbackDays": 7}
    off = {"name": "Off", "id": "12", "status": "REMOVED"}
    [line] = site.audit_lines(lambda: posted(site, SALE_AT_GOOGLE, lead, off))
    assert (line.action, line.allowed, line.site) == ("oci.actions", True, site.id)
    sale, lead_action = site.place.settings.actions
    assert (sale.default, lead_action.default, lead_action.lookback_days) == (False, True, 7)
    assert site.place.settings.recover_minutes == 45
    changed_at = site.place.record.changed_at
    site.wait(1)
    answers: list[Any] = []
    assert site.audit_lines(lambda: answers.append(posted(site, SALE_AT_GOOGLE, lead, off))) == []
    nothing = {"added": [], "changed": [], "gone": [], "omitted": ["Off (REMOVED)"]}
    assert (answers, site.place.record.changed_at) == ([nothing], changed_at)


def test_a_scripts_list_lengthens_a_look_back_and_never_shortens_one(site: OwnSite):
    give(site, SALE, {**LEAD, "counting": "MANY_PER_CLICK"})
    give_days = {"Phone sale": 60, "Lead": 3}
    entries = [{"name": one["name"], "id": one["id"]} for one in (SALE, LEAD)]
    posted(site, *({**one, "lookbackDays": give_days[one["name"]]} for one in entries))
    assert [action.lookback_days for action in site.place.settings.actions] == [60, 7]


def test_an_action_that_vanished_stays_marked_and_its_rows_stay(site: OwnSite):
    posted(site, SALE_AT_GOOGLE, {"name": "Lead", "id": "11"})
    site.enqueue(1, conversionName="Lead")
    for _ in range(2):
        assert posted(site, SALE_AT_GOOGLE)["gone"] == ["Lead"]
    assert posted(site)["gone"] == ["Phone sale", "Lead"]
    assert names(site) == ["Phone sale", "Lead"]
    assert "ACTION_GONE" in site.warnings()
    assert len(site.export()) == 1
    posted(site, SALE_AT_GOOGLE, {"name": "Lead", "id": "11"})
    assert "ACTION_GONE" not in site.warnings()


def test_an_empty_first_list_changes_nothing(site: OwnSite):
    assert posted(site) == {"added": [], "changed": [], "gone": [], "omitted": []}
    assert site.place.settings == SiteSettings()
    site.enqueue(1, conversionName="Whatever")


def test_a_list_is_bounded_and_comes_from_a_script(site: OwnSite):
    entry = {**SALE_AT_GOOGLE, "status": ENABLED, "lookbackDays": 30}
    assert refused(site.report("actions", actions=[entry] * 501), 422)
    assert refused(site.report("actions", actions=[{**entry, "colour": 1}]), 422)
    assert refused(site.report("actions", actions=[{**entry, "lookbackDays": -1}]), 422)
    site.change(channel="api")
    assert refused(site.report("actions", actions=[entry]), 409)["code"] == "wrong_channel"
    assert names(site) == []


def test_a_script_site_is_checked_by_its_last_list(site: OwnSite):
    posted(site, SALE_AT_GOOGLE, {"name": "Lead", "id": "11"})
    posted(site, {"name": "Lead", "id": "11"})
    details = [one.detail for one in check_site(site.place) if one.name == "actions"]
    assert details == [
        "there is no default action: each row must name an action",
        "not enabled in Google Ads: Phone sale",
    ]


def test_a_stored_change_is_what_it_says(site: OwnSite):
    actions = parse_actions([SALE])
    changes = ActionChanges(actions, gone=("Phone sale",))
    assert site.place.change_actions(ROOT, "page", lambda _: changes)["gone"] == ["Phone sale"]
    site.place.change_actions(ROOT, "page", lambda _: ActionChanges(()))
    assert site.place.settings == SiteSettings()
