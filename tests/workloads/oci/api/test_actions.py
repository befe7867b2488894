"""An operator's actions: what moves, what is refused, what is recorded.

The actions on each state are in test_lifecycle and test_locks, the permissions in the matrix.
"""

import json
from typing import Any

import pytest

from tests.workloads.oci.own_site import NOWHERE, UNKNOWN, Oci, OwnSite, ok, refused, seals

MOVED_ONE = {"ok": True, "asked": 1, "affected": 1, "already": 0, "refusedCount": 0, "refused": []}


def test_sending_a_row_back_renews_its_budget_and_notes_the_reason(site: OwnSite):
    for action, job_id in zip(("RETRY_SELECTED", "RESET_TO_QUEUED"), site.fail(2), strict=True):
        assert site.act(action, [job_id], reason="the shop called") == MOVED_ONE
        job, event = site.job(job_id), site.events(job_id)[-1]
        assert (job.state, job.attempt_count, job.attempts_left) == ("QUEUED", 1, 5)
        assert (event.move, json.loads(event.note or "")) == (action, {"reason": "the shop called"})
        assert job.error_message == "it broke"


def test_a_row_that_is_there_already_is_neither_moved_nor_refused(site: OwnSite):
    [failed], [waiting] = site.fail(), site.enqueue(first=2)
    for action, job_id in (("RETRY_SELECTED", waiting), ("MARK_FAILED", failed)):
        before = site.job(job_id)
        assert site.act(action, [job_id]) == MOVED_ONE | {"affected": 0, "already": 1}
        assert site.job(job_id) == before


def test_each_value_that_mark_failed_is_not_given_has_a_default(site: OwnSite):
    cases: list[tuple[dict[str, Any], tuple[str, str, str]]] = [
        ({"reason": "spam"}, ("MANUAL_FAIL", "PERMANENT", "spam")),
        ({"errorCode": "SPAM"}, ("SPAM", "PERMANENT", "MANUALLY_MARKED_FAILED")),
        ({"errorCategory": "AUTH"}, ("MANUAL_FAIL", "AUTH", "MANUALLY_MARKED_FAILED")),
        ({"reason": "r" * 2_000}, ("MANUAL_FAIL", "PERMANENT", "r" * 1_000)),
        ({"reason": None, "errorCode": None}, ("MANUAL_FAIL", "PERMANENT", "MANUALLY_MARKED_FAILED")),
    ]
    for (fields, stored), job_id in zip(cases, site.enqueue(len(cases)), strict=True):
        site.act("MARK_FAILED", [job_id], **fields)
        job = site.job(job_id)
        assert (job.error_code, job.error_category, job.error_message) == stored


def test_what_makes_no_sense_is_refused_and_moves_nothing(site: OwnSite):
    [job_id] = site.enqueue()
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"errorCategory": "BAD"}, 400, "bad_error_category"),
        ({"errorCode": "c" * 65}, 422, "invalid"),
        ({"errorCode": ""}, 422, "invalid"),
        ({"filter": {}}, 422, "bad_selection"),
        ({"all": True}, 422, "bad_selection"),
        ({"ids": None, "filter": {"status": ["QUEUED"]}, "all": True}, 422, "bad_selection"),
        ({"action": "ENQUEUE_FIX", "dryRun": True}, 422, "invalid"),
        ({"ids": []}, 422, "invalid"),
        ({"ids": None}, 422, "bad_selection"),
        ({"ids": None, "filter": {"status": ["SENT"]}}, 400, "bad_status"),
        ({"ids": None, "filter": {"state": ["FAILED"]}}, 422, "invalid"),
        ({"ids": None, "filter": {"status": "FAILED"}}, 422, "invalid"),
        ({"action": "DELETE"}, 400, "unknown_action"),
        ({"action": "expire"}, 400, "unknown_action"),
        ({"action": "ack"}, 400, "unknown_action"),
        ({"siteId": ""}, 422, "invalid"),
        ({"clearErrors": "perhaps"}, 422, "invalid"),
        # A correction needs rows and something to change.
        ({"action": "CORRECT", "ids": None, "conversion": {"conversionValue": 9}}, 422, "bad_selection"),
        ({"action": "CORRECT", "ids": None, "filter": {}, "conversion": {"conversionValue": 9}}, 422, "bad_selection"),
        ({"action": "CORRECT"}, 422, "invalid"),
        ({"action": "CORRECT", "conversion": {}}, 422, "invalid"),
    ]
    for fields, status, code in cases:
        body = {"action": "MARK_FAILED", "ids": [job_id], **fields}
        error = refused(site.report("queue-actions", site.operator, **body), status)
        assert error["code"] == code, fields
        if code == "unknown_action":
            assert all(action in error["message"] for action in ("MARK_FAILED", "ENQUEUE_FIX"))
        assert site.state(job_id) == "QUEUED"


# Which rows


def test_ids_may_carry_their_seal_and_count_once(site: OwnSite):
    ids = site.enqueue(2)
    site.pause()  # a paused site can be acted on
    assert site.act("MARK_FAILED", [ids[0], *seals(ids)])["affected"] == 2


def test_foreign_ids_and_those_that_do_not_exist_are_unknown_alike(site: OwnSite, neighbour: OwnSite):
    [mine], [theirs] = site.enqueue(), neighbour.enqueue()
    unknown = [theirs, NOWHERE, "nonsense"]
    body = site.act("MARK_FAILED", [mine, *unknown])
    assert (body["asked"], body["affected"], body["refusedCount"]) == (4, 1, 3)
    assert body["refused"] == [{"id": job_id, "reason": UNKNOWN} for job_id in unknown]
    of_all_sites = site.request_action("MARK_FAILED", site.oci.operator, ids=[theirs])
    assert of_all_sites.json()["affected"] == 0
    assert neighbour.state(theirs) == "QUEUED"


def test_a_filter_chooses_by_state_code_and_category(site: OwnSite):
    ids = site.claim(4)
    site.ack_failed(ids[:2], errorCode="A", errorCategory="TRANSIENT")
    site.ack_failed(ids[2:3], errorCode="B", errorCategory="TRANSIENT")
    chosen = {"status": ["FAILED"], "code": ["A"], "category": ["TRANSIENT", "RATE_LIMIT"]}
    assert site.act("RETRY_SELECTED", filter=chosen)["affected"] == 2
    assert site.states(ids) == ["QUEUED", "QUEUED", "FAILED", "PROCESSING"]


def test_an_empty_filter_is_the_whole_site_and_no_other(site: OwnSite, neighbour: OwnSite):
    mine, theirs = site.enqueue(3), neighbour.enqueue(2)
    assert refused(site.request_action("MARK_FAILED", filter={}), 422)["code"] == "bad_selection"
    assert set(site.states(mine)) == {"QUEUED"}
    assert site.act("MARK_FAILED", filter={}, all=True)["affected"] == 3
    assert set(site.states(mine)) == {"FAILED"}
    assert set(neighbour.states(theirs)) == {"QUEUED"}


def test_a_dry_run_says_what_would_move_by_state_and_reason_and_moves_nothing(shared: Oci):
    for by_filter in (False, True):
        site = OwnSite(shared)
        done, failed, waiting = site.claim(3)
        site.ack([done])
        site.ack_failed([failed])
        chosen = {"filter": {}, "all": True} if by_filter else {"ids": [done, failed, waiting, NOWHERE]}
        before = site.jobs()
        body = site.act("MARK_FAILED", dryRun=True, **chosen)
        assert site.jobs() == before
        planned = [
            {"state": "PROCESSING", "rows": 1},
            {"state": "COMPLETED", "reason": "it is already COMPLETED", "rows": 1},
            {"state": "FAILED", "reason": "already", "rows": 1},
            {"reason": UNKNOWN, "rows": 1},
        ]
        assert body.pop("planned") == planned[: 3 if by_filter else 4]
        real = site.act("MARK_FAILED", **chosen)
        assert body == real | {"refused": []}
        assert real["affected"] + real["already"] + real["refusedCount"] == real["asked"]


# Who


def test_an_action_leaves_an_audit_line_with_who_and_how_many(site: OwnSite):
    ids = site.enqueue(2)
    fields = {"ids": [*ids, NOWHERE], "reason": "spam"}
    [line] = site.audit_lines(lambda: site.request_action("MARK_FAILED", **fields))
    assert (line.action, line.allowed, line.site) == ("queue.MARK_FAILED", True, site.id)
    assert line.actor.startswith("key:")
    assert json.loads(line.details or "") == {"moved": 2, "already": 0, "refused": {"unknown": 1}, "reason": "spam"}


# Corrections


def test_correct_changes_a_failed_row_in_place_and_not_into_another(site: OwnSite):
    first, second = site.fail(2)
    changes = {"externalId": "sale-2", "conversionValue": "9,50"}
    assert site.act("CORRECT", [first], conversion=changes, reason="a comma too many") == MOVED_ONE
    job = site.job(first)
    assert (job.payload["externalId"], job.payload["conversionValue"]) == ("sale-1", 9.5)
    assert (job.error_code, site.states([first, second])) == (None, ["QUEUED", "FAILED"])
    event = site.events(first)[-1]
    assert (event.move, json.loads(event.note or "")["reason"]) == ("correct", "a comma too many")
    assert json.loads(event.old_payload or "")["conversionValue"] == 101


def test_a_row_in_the_wrong_state_is_left_as_it_is(shared: Oci):
    for state in ("QUEUED", "RETRY", "PROCESSING", "FAILED"):  # row_in fails as TRANSIENT
        site = OwnSite(shared)
        job_id = site.row_in(state)
        before = site.job(job_id)
        for action, changes in (("CORRECT", {"conversion": {"conversionValue": 9}}), ("ENQUEUE_FIX", {})):
            body = site.act(action, [job_id], **changes)
            assert (body["affected"], body["refused"][0]["id"]) == (0, job_id), (action, state)
            assert (site.job(job_id), len(site.jobs())) == (before, 1), (action, state)


def test_correct_with_wrong_data_says_what_is_wrong(site: OwnSite):
    [job_id] = site.fail()
    for change, reason in (({"gclid": "?"}, "gclid must be"), ({"conversionTime": "2099-01-01T00:00:00Z"}, "future")):
        body = site.act("CORRECT", [job_id], conversion=change)
        assert (body["affected"], reason in body["refused"][0]["reason"]) == (0, True)
    assert site.state(job_id) == "FAILED"


def test_one_change_is_for_one_row(site: OwnSite):
    ids = site.fail(2)
    response = site.request_action("CORRECT", ids=ids, conversion={"conversionValue": 9})
    assert refused(response, 400)["code"] == "bad_selection"
    assert site.states(ids) == ["FAILED", "FAILED"]


def test_enqueue_fix_sends_a_delivered_row_again_under_an_order_id_of_its_own(site: OwnSite):
    changes: dict[str, Any] = {}
    for job_id in site.claim(2):
        site.ack([job_id])
        before = site.job(job_id)
        [sealed] = seals([job_id])
        assert site.act("ENQUEUE_FIX", [sealed], reason="Google lost it", **changes)["affected"] == 1
        [item] = site.export()
        assert item["id"] != sealed
        assert item["orderId"] != before.payload["orderId"]
        assert item["gclid"] == before.payload["gclid"]
        assert item["conversionName"] == ("Other sale" if changes else "Phone sale")
        assert site.job(job_id) == before
        changes = {"conversion": {"conversionName": "Other sale"}}


@pytest.mark.parametrize("action", ["CORRECT", "ENQUEUE_FIX"])
def test_corrections_find_foreign_rows_unknown_and_leave_an_audit_line(site: OwnSite, neighbour: OwnSite, action: str):
    [theirs], [mine] = neighbour.fail(), site.fail()
    for job_id in (theirs, NOWHERE, "nonsense"):
        body = site.act(action, [job_id], conversion={"conversionValue": 9})
        assert body["refused"] == [{"id": job_id, "reason": UNKNOWN}]
    assert neighbour.state(theirs) == "FAILED"
    fields = {"ids": [mine], "conversion": {"conversionValue": 9}, "reason": "a typo"}
    correction, line = site.audit_lines(lambda: site.request_action(action, **fields))
    assert (line.action, line.allowed, line.site) == ("oci.fix", True, site.id)
    assert json.loads(line.details or "") == {"changed": 1, "reason": "a typo"}
    changed = {mine: {"conversionValue": {"new": 9, "old": 101}}}
    assert correction.action == "oci.correct"
    assert json.loads(correction.details or "") == {"corrected": 1, "changed": changed}
    note = json.loads(site.events(mine)[-1].note or "")
    assert note == {"reason": "a typo", "changed": changed[mine]}


# The generic queue routes


def post_generic(site: OwnSite, path: str, **body: Any) -> Any:
    return site.client.post(f"/api/queues/oci/{path}", json=body, headers=site.oci.key("admin"))


def test_a_conversion_is_not_enqueued_through_the_generic_route(site: OwnSite):
    jobs = [{"payload": site.row(), "site": site.id}]
    assert refused(post_generic(site, "jobs", jobs=jobs), 409)["code"] == "needs_stamps"
    assert site.rows() == []


def test_a_failed_job_is_shown_with_its_actions_and_advice_and_is_not_corrected_there(site: OwnSite):
    [job_id] = site.claim()
    site.ack_failed([job_id], errorCode="INVALID_TIME_FORMAT")
    shown = ok(site.client.get(f"/api/jobs/{job_id}", headers=site.operator))
    assert shown["actions"] == ["RETRY_SELECTED", "RESET_TO_QUEUED"]
    assert set(shown["advice"]) == {"who", "en", "tr"}
    assert set(shown["advice"]["tr"]) == {"means", "act", "next"}
    response = post_generic(site, "actions", action="correct", ids=[job_id])
    assert refused(response, 422)["code"] == "needs_payload"


def test_mark_failed_has_the_same_defaults_there(site: OwnSite):
    [job_id] = site.enqueue()
    post_generic(site, "actions", action="MARK_FAILED", ids=[job_id])
    job = site.job(job_id)
    assert (job.error_code, job.error_category) == ("MANUAL_FAIL", "PERMANENT")
    assert job.error_message == "MANUALLY_MARKED_FAILED"
