"""An operator's actions: what moves, what is refused, what is recorded.

The actions on each state are in test_lifecycle and test_locks, the permissions in the matrix.
"""

import json

import pytest

from tests.workloads.oci.own_site import NOWHERE, UNKNOWN, OwnSite, bare, refused, seals

MOVED_ONE = {"ok": True, "asked": 1, "affected": 1, "already": 0, "refusedCount": 0, "refused": []}


@pytest.mark.parametrize("action", ["RETRY_SELECTED", "RESET_TO_QUEUED"])
def test_sending_a_row_back_renews_its_budget_and_notes_the_reason(site: OwnSite, action: str):
    job_id = site.row_in("FAILED")
    assert site.act(action, [job_id], reason="the shop called") == MOVED_ONE
    job, event = site.job(job_id), site.events(job_id)[-1]
    assert (job.state, job.attempt_count, job.attempts_left) == ("QUEUED", 1, 5)
    assert (event.move, json.loads(event.note or "")) == (action, {"reason": "the shop called"})
    assert job.error_message == "BROKEN"


def test_a_row_reset_in_processing_is_claimed_by_nobody(site: OwnSite):
    job_id = site.row_in("PROCESSING")
    assert site.act("RETRY_SELECTED", [job_id])["refused"] == [{"id": job_id, "reason": "it is already PROCESSING"}]
    assert site.act("RESET_TO_QUEUED", [job_id]) == MOVED_ONE
    job = site.job(job_id)
    assert (job.state, job.claimed_at, job.lease_until) == ("QUEUED", None, None)
    assert bare(site.export()) == [job_id]


@pytest.mark.parametrize(("action", "state"), [("RETRY_SELECTED", "QUEUED"), ("MARK_FAILED", "FAILED")])
def test_a_row_that_is_there_already_is_neither_moved_nor_refused(site: OwnSite, action: str, state: str):
    job_id = site.row_in(state)
    before = site.job(job_id)
    assert site.act(action, [job_id]) == MOVED_ONE | {"affected": 0, "already": 1}
    assert site.job(job_id) == before


@pytest.mark.parametrize(
    ("fields", "stored"),
    [
        ({"reason": "spam"}, ("MANUAL_FAIL", "PERMANENT", "spam")),
        ({"errorCode": "SPAM"}, ("SPAM", "PERMANENT", "MANUALLY_MARKED_FAILED")),
        ({"errorCategory": "AUTH"}, ("MANUAL_FAIL", "AUTH", "MANUALLY_MARKED_FAILED")),
        ({"reason": "r" * 2_000}, ("MANUAL_FAIL", "PERMANENT", "r" * 1_000)),
        ({"reason": None, "errorCode": None}, ("MANUAL_FAIL", "PERMANENT", "MANUALLY_MARKED_FAILED")),
    ],
)
def test_each_value_that_mark_failed_is_not_given_has_a_default(site: OwnSite, fields: dict, stored: tuple):
    job_id = site.row_in("FAILED")
    site.act("RETRY_SELECTED", [job_id])
    site.act("MARK_FAILED", [job_id], **fields)
    job = site.job(job_id)
    assert (job.error_code, job.error_category, job.error_message) == stored


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
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
    ],
)
def test_what_makes_no_sense_is_refused_and_moves_nothing(site: OwnSite, fields: dict, status: int, code: str):
    [job_id] = site.enqueue()
    body = {"action": "MARK_FAILED", "ids": [job_id], **fields}
    error = refused(site.report("queue-actions", site.operator, **body), status)
    assert error["code"] == code
    if code == "unknown_action":
        known = ("MARK_FAILED", "ENQUEUE_FIX")
        assert all(action in error["message"] for action in known)
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


@pytest.mark.parametrize("by_filter", [False, True])
def test_a_dry_run_says_what_would_move_by_state_and_reason_and_moves_nothing(site: OwnSite, by_filter: bool):
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


def test_more_than_a_thousand_rows_move_at_once(site: OwnSite):
    ids = site.enqueue(1_100)
    assert site.act("MARK_FAILED", ids)["affected"] == 1_100
    assert site.act("RETRY_SELECTED", filter={"status": ["FAILED"]})["affected"] == 1_100


# Who


def test_an_operator_acts_on_their_own_site_alone(site: OwnSite, neighbour: OwnSite):
    name = site.oci.known(f"operator-of-{site.id}", "operator", sites=[site.id])
    cookie = site.oci.cookie(name)
    [mine], [theirs] = site.enqueue(), neighbour.enqueue()
    assert site.request_action("MARK_FAILED", cookie, ids=[mine]).json()["affected"] == 1
    foreign = neighbour.request_action("MARK_FAILED", cookie, ids=[theirs])
    nowhere = site.request_action("MARK_FAILED", cookie, siteId="nowhere", ids=[theirs])
    assert (foreign.status_code, foreign.content) == (403, nowhere.content)
    assert neighbour.state(theirs) == "QUEUED"


def test_an_action_leaves_an_audit_line_with_who_and_how_many(site: OwnSite):
    ids = site.enqueue(2)
    fields = {"ids": [*ids, NOWHERE], "reason": "spam"}
    [line] = site.audit_lines(lambda: site.request_action("MARK_FAILED", **fields))
    assert (line.action, line.allowed, line.site) == ("queue.MARK_FAILED", True, site.id)
    assert line.actor.startswith("key:")
    assert json.loads(line.details or "") == {"moved": 2, "already": 0, "refused": {"unknown": 1}, "reason": "spam"}


def test_an_action_that_is_refused_leaves_an_audit_line_too(site: OwnSite):
    [job_id] = site.enqueue()
    ask = lambda: site.request_action("MARK_FAILED", site.script, ids=[job_id])  # noqa: E731
    [line] = site.audit_lines(ask)
    assert (line.action, line.allowed, line.site) == ("queue.MARK_FAILED", False, site.id)
    assert site.state(job_id) == "QUEUED"


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


@pytest.mark.parametrize(
    ("action", "states"),
    [
        ("CORRECT", ["QUEUED", "RETRY", "PROCESSING", "FAILED"]),  # row_in fails as TRANSIENT
        ("ENQUEUE_FIX", ["QUEUED", "RETRY", "PROCESSING", "FAILED"]),
    ],
)
def test_a_row_in_the_wrong_state_is_left_as_it_is(shared, action: str, states: list[str]):
    for state in states:
        site = OwnSite(shared)
        job_id = site.row_in(state)
        before = site.job(job_id)
        changes = {"conversion": {"conversionValue": 9}} if action == "CORRECT" else {}
        body = site.act(action, [job_id], **changes)
        assert (body["affected"], body["refused"][0]["id"]) == (0, job_id), state
        assert (site.job(job_id), len(site.jobs())) == (before, 1), state


def test_correct_with_wrong_data_says_what_is_wrong(site: OwnSite):
    [job_id] = site.fail()
    for change, reason in (({"gclid": "?"}, "gclid must be"), ({"conversionTime": "2099-01-01T00:00:00Z"}, "future")):
        body = site.act("CORRECT", [job_id], conversion=change)
        assert (body["affected"], reason in body["refused"][0]["reason"]) == (0, True)
    assert site.state(job_id) == "FAILED"


@pytest.mark.parametrize(
    "fields",
    [
        {"conversion": {"conversionValue": 9}},
        {"filter": {}, "conversion": {"conversionValue": 9}},
        {"ids": [NOWHERE]},
        {"ids": [NOWHERE], "conversion": {}},
    ],
)
def test_correct_needs_rows_and_something_to_change(site: OwnSite, fields: dict):
    assert site.request_action("CORRECT", **fields).status_code == 422


def test_one_change_is_for_one_row(site: OwnSite):
    ids = site.fail(2)
    response = site.request_action("CORRECT", ids=ids, conversion={"conversionValue": 9})
    assert refused(response, 400)["code"] == "bad_selection"
    assert site.states(ids) == ["FAILED", "FAILED"]


@pytest.mark.parametrize("changes", [{}, {"conversion": {"conversionName": "Other sale"}}])
def test_enqueue_fix_sends_a_delivered_row_again_under_an_order_id_of_its_own(site: OwnSite, changes: dict):
    job_id = site.row_in("COMPLETED")
    before = site.job(job_id)
    [sealed] = seals([job_id])
    assert site.act("ENQUEUE_FIX", [sealed], reason="Google lost it", **changes)["affected"] == 1
    [item] = site.export()
    assert item["id"] != sealed
    assert item["orderId"] != before.payload["orderId"]
    assert item["gclid"] == before.payload["gclid"]
    assert item["conversionName"] == ("Other sale" if changes else "Phone sale")
    assert site.job(job_id) == before


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
