"""An operator's actions from every state: what moves, what is refused, what is recorded."""

import json

import pytest

from tests.workloads.oci import own_site
from tests.workloads.oci.conftest import bare, seals
from tests.workloads.oci.own_site import OwnSite, refused

shared, site, neighbour = own_site.shared, own_site.site, own_site.neighbour
MINUTE = 60
NOWHERE = "00000000-0000-7000-8000-000000000000"
MOVED_ONE = {"ok": True, "affected": 1, "refused": []}
UNKNOWN = "no such row of this site"


def row_in(site: OwnSite, state: str) -> str:
    """A row in this state; an error is left in all but QUEUED and PROCESSING."""
    [job_id] = site.queued()
    if state != "QUEUED":
        site.export()
    if state == "RETRY":
        site.wait(16 * MINUTE, "recover")
    elif state == "COMPLETED":
        site.ack([job_id])
    elif state == "FAILED":
        site.ack_failed([job_id], errorCode="BROKEN", errorCategory="TRANSIENT")
    assert site.state(job_id) == state
    return job_id


@pytest.mark.parametrize(
    ("action", "state", "after"),
    [
        ("RETRY_SELECTED", "FAILED", "QUEUED"),
        ("RETRY_SELECTED", "RETRY", "QUEUED"),
        ("RESET_TO_QUEUED", "QUEUED", "QUEUED"),
        ("RESET_TO_QUEUED", "RETRY", "QUEUED"),
        ("RESET_TO_QUEUED", "PROCESSING", "QUEUED"),
        ("RESET_TO_QUEUED", "FAILED", "QUEUED"),
        ("MARK_FAILED", "PROCESSING", "FAILED"),
        ("MARK_FAILED", "QUEUED", "FAILED"),
        ("MARK_FAILED", "RETRY", "FAILED"),
    ],
)
def test_what_an_action_moves(site: OwnSite, action: str, state: str, after: str):
    job_id = row_in(site, state)
    assert site.act(action, [job_id]) == MOVED_ONE
    assert site.state(job_id) == after
    assert site.events(job_id)[-1].move == action


@pytest.mark.parametrize(
    ("action", "state"),
    [
        ("RETRY_SELECTED", "PROCESSING"),
        ("RETRY_SELECTED", "COMPLETED"),
        ("RESET_TO_QUEUED", "COMPLETED"),
        ("MARK_FAILED", "COMPLETED"),
    ],
)
def test_what_an_action_refuses_it_refuses_with_the_state(site: OwnSite, action: str, state: str):
    job_id = row_in(site, state)
    before = site.look(job_id)
    body = site.act(action, [job_id])
    assert body["affected"] == 0
    assert body["refused"] == [{"id": job_id, "reason": f"it is {state} already"}]
    assert site.look(job_id) == before


@pytest.mark.parametrize(
    ("action", "state"), [("RETRY_SELECTED", "QUEUED"), ("MARK_FAILED", "FAILED")]
)
def test_a_row_that_is_there_already_is_neither_moved_nor_refused(
    site: OwnSite, action: str, state: str
):
    job_id = row_in(site, state)
    before = site.look(job_id)
    assert site.act(action, [job_id]) == MOVED_ONE | {"affected": 0}
    assert site.look(job_id) == before


@pytest.mark.parametrize("action", ["RETRY_SELECTED", "RESET_TO_QUEUED"])
def test_sending_back_renews_the_budget_and_keeps_the_count(site: OwnSite, action: str):
    job_id = row_in(site, "FAILED")
    site.act(action, [job_id])
    job = site.look(job_id)
    assert (job.attempt_count, job.attempts_left) == (1, 5)


def test_a_row_taken_out_of_processing_is_nobodys_any_more(site: OwnSite):
    job_id = row_in(site, "PROCESSING")
    site.act("RESET_TO_QUEUED", [job_id])
    row = site.shown(job_id)
    assert (row["claimed_at"], site.look(job_id).lease_until) == (None, None)
    assert bare(site.export()) == [job_id]


def test_a_failure_marked_by_hand_is_not_revived_by_the_clock(site: OwnSite):
    [job_id] = site.queued()
    site.act("MARK_FAILED", [job_id], errorCategory="TRANSIENT")
    site.wait(3_600, "revive")
    row = site.shown(job_id)
    assert (row["status"], row["next_retry_at"]) == ("FAILED", None)


# What is said


@pytest.mark.parametrize("action", ["RETRY_SELECTED", "RESET_TO_QUEUED"])
def test_the_reason_goes_into_the_event_and_not_over_the_error(site: OwnSite, action: str):
    job_id = row_in(site, "FAILED")
    site.act(action, [job_id], reason="the shop called")
    event = site.events(job_id)[-1]
    assert json.loads(event.note or "") == {"reason": "the shop called"}
    assert site.shown(job_id)["last_error"] == "BROKEN"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({}, ("MANUAL_FAIL", "PERMANENT", "MANUALLY_MARKED_FAILED")),
        ({"reason": "spam"}, ("MANUAL_FAIL", "PERMANENT", "spam")),
        ({"errorCode": "SPAM"}, ("SPAM", "PERMANENT", "MANUALLY_MARKED_FAILED")),
        ({"errorCategory": "AUTH"}, ("MANUAL_FAIL", "AUTH", "MANUALLY_MARKED_FAILED")),
        ({"reason": "r" * 2_000}, ("MANUAL_FAIL", "PERMANENT", "r" * 1_000)),
        (
            {"reason": None, "errorCode": None},
            ("MANUAL_FAIL", "PERMANENT", "MANUALLY_MARKED_FAILED"),
        ),
    ],
)
def test_what_mark_failed_does_not_hear_it_fills_in(site: OwnSite, said: dict, kept: tuple):
    [job_id] = site.queued()
    site.act("MARK_FAILED", [job_id], **said)
    job = site.look(job_id)
    assert (job.error_code, job.error_category, job.error_message) == kept


def test_mark_failed_replaces_the_error_of_before(site: OwnSite):
    job_id = row_in(site, "FAILED")
    site.act("RETRY_SELECTED", [job_id])
    site.act("MARK_FAILED", [job_id])
    assert site.look(job_id).error_code == "MANUAL_FAIL"


@pytest.mark.parametrize(
    ("told", "status", "code"),
    [
        ({"errorCategory": "BAD"}, 400, "bad_error_category"),
        ({"errorCode": "c" * 65}, 422, "invalid"),
        ({"errorCode": ""}, 422, "invalid"),
        ({"filter": {}}, 422, "bad_selection"),
        ({"ids": []}, 422, "invalid"),
        ({"ids": None}, 422, "bad_selection"),
        ({"action": "DELETE"}, 400, "unknown_action"),
        ({"action": "expire"}, 400, "unknown_action"),
        ({"action": "ack"}, 400, "unknown_action"),
        ({"siteId": ""}, 422, "invalid"),
        ({"clearErrors": "perhaps"}, 422, "invalid"),
    ],
)
def test_what_makes_no_sense_is_refused_and_moves_nothing(
    site: OwnSite, told: dict, status: int, code: str
):
    [job_id] = site.queued()
    body = {"siteId": site.id, "action": "MARK_FAILED", "ids": [job_id], **told}
    answer = site.client.post("/api/oci/queue-actions", json=body, headers=site.operator)
    assert refused(answer, status)["code"] == code
    assert site.state(job_id) == "QUEUED"


def test_an_unknown_action_is_answered_with_all_there_are(site: OwnSite):
    message = refused(site.ask_act("DELETE", ids=["x"]), 400)["message"]
    assert all(one in message for one in ("MARK_FAILED", "ENQUEUE_FIX", "DISMISS_WARNING"))


# Which rows


def test_ids_may_carry_their_seal(site: OwnSite):
    ids = site.queued(2)
    assert site.act("MARK_FAILED", [ids[0], f"seal_{ids[1]}", f"seal_{ids[0]}"])["affected"] == 2


def test_foreign_ids_and_those_nobody_has_are_unknown_alike(site: OwnSite, neighbour: OwnSite):
    [mine], [theirs] = site.queued(), neighbour.queued()
    body = site.act("MARK_FAILED", [mine, theirs, NOWHERE, "nonsense"])
    assert body["affected"] == 1
    assert body["refused"] == [
        {"id": one, "reason": UNKNOWN} for one in (theirs, NOWHERE, "nonsense")
    ]
    assert neighbour.state(theirs) == "QUEUED"


def test_an_operator_of_all_sites_still_acts_on_one(site: OwnSite, neighbour: OwnSite):
    [theirs] = neighbour.queued()
    answer = site.ask_act("MARK_FAILED", site.oci.operator, ids=[theirs])
    assert answer.json()["affected"] == 0
    assert neighbour.state(theirs) == "QUEUED"


def test_a_filter_chooses_by_state_code_and_category(site: OwnSite):
    ids = site.exported(4)
    site.ack_failed(ids[:2], errorCode="A", errorCategory="TRANSIENT")
    site.ack_failed(ids[2:3], errorCode="B", errorCategory="TRANSIENT")
    chosen = {"status": ["FAILED"], "code": ["A"], "category": ["TRANSIENT", "RATE_LIMIT"]}
    assert site.act("RETRY_SELECTED", filter=chosen)["affected"] == 2
    assert site.states(ids) == ["QUEUED", "QUEUED", "FAILED", "PROCESSING"]


def test_an_empty_filter_is_the_whole_site_and_no_other(site: OwnSite, neighbour: OwnSite):
    mine, theirs = site.queued(3), neighbour.queued(2)
    assert site.act("MARK_FAILED", filter={})["affected"] == 3
    assert set(site.states(mine)) == {"FAILED"}
    assert set(neighbour.states(theirs)) == {"QUEUED"}


@pytest.mark.parametrize(
    "chosen", [{"status": ["SENT"]}, {"state": ["FAILED"]}, {"status": "FAILED"}]
)
def test_a_filter_that_says_something_else_is_refused(site: OwnSite, chosen: dict):
    [job_id] = site.queued()
    assert site.ask_act("MARK_FAILED", filter=chosen).status_code in {400, 422}
    assert site.state(job_id) == "QUEUED"


def test_a_thousand_rows_and_more_move_at_once(site: OwnSite):
    ids = site.queued(1_100)
    assert site.act("MARK_FAILED", ids)["affected"] == 1_100
    assert site.act("RETRY_SELECTED", filter={"status": ["FAILED"]})["affected"] == 1_100


# Who


@pytest.mark.parametrize("scope", ["read", "oci:script", "oci:ingest", "metrics"])
def test_a_key_that_may_not_operate_is_refused(site: OwnSite, scope: str):
    [job_id] = site.queued()
    key = site.oci.key(scope, site=site.id)
    assert refused(site.ask_act("MARK_FAILED", key, ids=[job_id]), 403)["code"] == "forbidden"
    assert site.state(job_id) == "QUEUED"


def test_a_viewer_may_look_and_not_act(site: OwnSite):
    [job_id] = site.queued()
    name = site.oci.known(f"viewer-of-{site.id}", sites=[site.id])
    cookie = site.oci.cookie(name)
    answer = site.ask_act("MARK_FAILED", cookie, ids=[job_id])
    assert refused(answer, 403)["details"] == {"needs": "operate"}
    assert site.client.get(f"/api/oci/queue-rows?siteId={site.id}", headers=cookie).is_success


def test_an_operator_acts_on_their_own_site_alone(site: OwnSite, neighbour: OwnSite):
    name = site.oci.known(f"operator-of-{site.id}", "operator", sites=[site.id])
    cookie = site.oci.cookie(name)
    [mine], [theirs] = site.queued(), neighbour.queued()
    assert site.ask_act("MARK_FAILED", cookie, ids=[mine]).json()["affected"] == 1
    foreign = neighbour.ask_act("MARK_FAILED", cookie, ids=[theirs])
    nowhere = site.ask_act("MARK_FAILED", cookie, siteId="nowhere", ids=[theirs])
    assert (foreign.status_code, foreign.content) == (403, nowhere.content)


def test_an_action_is_written_down_with_who_and_how_many(site: OwnSite):
    ids = site.queued(2)
    said = {"ids": [*ids, NOWHERE], "reason": "spam"}
    [line] = site.said(lambda: site.ask_act("MARK_FAILED", **said))
    assert (line.action, line.allowed, line.site) == ("queue.MARK_FAILED", True, site.id)
    assert line.actor.startswith("key:")
    assert json.loads(line.details or "") == {
        "moved": 2,
        "already": 0,
        "refused": {"unknown": 1},
        "reason": "spam",
    }


def test_an_action_that_is_refused_is_written_down_too(site: OwnSite):
    [job_id] = site.queued()
    [line] = site.said(lambda: site.ask_act("MARK_FAILED", site.script, ids=[job_id]))
    assert (line.action, line.allowed, line.site) == ("queue.MARK_FAILED", False, site.id)


# Mending


def test_correct_changes_a_failed_row_in_place(site: OwnSite):
    [job_id] = site.failed()
    body = site.act(
        "CORRECT", [job_id], conversion={"conversionValue": "9,50"}, reason="a comma too many"
    )
    assert body == MOVED_ONE
    job = site.look(job_id)
    assert (job.state, job.data["conversionValue"], job.error_code) == ("QUEUED", 9.5, None)
    event = site.events(job_id)[-1]
    assert (event.move, json.loads(event.note or "")["reason"]) == ("correct", "a comma too many")
    assert json.loads(event.old_payload or "")["conversionValue"] == 101


@pytest.mark.parametrize("state", ["QUEUED", "RETRY", "PROCESSING"])
def test_correct_leaves_a_row_that_is_on_its_way(site: OwnSite, state: str):
    job_id = row_in(site, state)
    before = site.look(job_id)
    body = site.act("CORRECT", [job_id], conversion={"conversionValue": 9})
    assert (body["affected"], body["refused"][0]["id"]) == (0, job_id)
    assert site.look(job_id) == before


def test_correct_leaves_a_row_that_failed_for_another_reason(site: OwnSite):
    job_id = row_in(site, "FAILED")
    body = site.act("CORRECT", [job_id], conversion={"conversionValue": 9})
    assert (body["affected"], site.state(job_id)) == (0, "FAILED")
    assert body["refused"][0]["id"] == job_id


def test_correct_with_wrong_data_says_what_is_wrong(site: OwnSite):
    [job_id] = site.failed()
    body = site.act("CORRECT", [job_id], conversion={"gclid": "?"})
    assert body["affected"] == 0
    assert "gclid must be" in body["refused"][0]["reason"]
    assert site.state(job_id) == "FAILED"


def test_correct_with_a_time_in_the_future_is_refused(site: OwnSite):
    [job_id] = site.failed()
    body = site.act("CORRECT", [job_id], conversion={"conversionTime": "2099-01-01T00:00:00Z"})
    assert (body["affected"], site.state(job_id)) == (0, "FAILED")


def test_correct_cannot_turn_a_row_into_another(site: OwnSite):
    first, second = site.failed(2)
    site.act("CORRECT", [first], conversion={"externalId": "sale-2", "conversionValue": 9})
    assert site.look(first).data["externalId"] == "sale-1"
    assert site.states([first, second]) == ["QUEUED", "FAILED"]


@pytest.mark.parametrize(
    "told",
    [
        {"conversion": {"conversionValue": 9}},
        {"filter": {}, "conversion": {"conversionValue": 9}},
        {"ids": [NOWHERE]},
        {"ids": [NOWHERE], "conversion": {}},
    ],
)
def test_correct_needs_rows_and_something_to_change(site: OwnSite, told: dict):
    assert site.ask_act("CORRECT", **told).status_code == 422


def test_one_change_is_for_one_row(site: OwnSite):
    ids = site.failed(2)
    answer = site.ask_act("CORRECT", ids=ids, conversion={"conversionValue": 9})
    assert refused(answer, 400)["code"] == "bad_selection"
    assert site.states(ids) == ["FAILED", "FAILED"]


def test_enqueue_fix_sends_a_delivered_row_again_under_an_order_id_of_its_own(site: OwnSite):
    job_id = row_in(site, "COMPLETED")
    before = site.look(job_id)
    assert site.act("ENQUEUE_FIX", [job_id], reason="Google lost it")["affected"] == 1
    [item] = site.export()
    assert item["id"] != f"seal_{job_id}"
    assert item["orderId"] != before.data["orderId"]
    assert item["gclid"] == before.data["gclid"]
    assert site.look(job_id) == before


def test_enqueue_fix_may_change_the_data(site: OwnSite):
    job_id = row_in(site, "COMPLETED")
    site.act("ENQUEUE_FIX", [f"seal_{job_id}"], conversion={"conversionName": "Other sale"})
    assert site.export()[0]["conversionName"] == "Other sale"
    assert site.look(job_id).data["conversionName"] == "Phone sale"


@pytest.mark.parametrize("state", ["QUEUED", "RETRY", "PROCESSING", "FAILED"])
def test_enqueue_fix_leaves_a_row_that_was_not_delivered(site: OwnSite, state: str):
    job_id = row_in(site, state)
    before = site.look(job_id)
    body = site.act("ENQUEUE_FIX", [job_id])
    assert (body["affected"], body["refused"][0]["id"]) == (0, job_id)
    assert (site.look(job_id), len(site.jobs())) == (before, 1)


@pytest.mark.parametrize("action", ["CORRECT", "ENQUEUE_FIX"])
def test_mending_finds_rows_of_others_unknown(site: OwnSite, neighbour: OwnSite, action: str):
    [theirs] = neighbour.failed()
    for job_id in (theirs, NOWHERE, "nonsense"):
        body = site.act(action, [job_id], conversion={"conversionValue": 9})
        assert body["refused"] == [{"id": job_id, "reason": UNKNOWN}]
    assert neighbour.state(theirs) == "FAILED"


@pytest.mark.parametrize("action", ["CORRECT", "ENQUEUE_FIX"])
def test_mending_is_written_down(site: OwnSite, action: str):
    [job_id] = site.failed()
    said = {"ids": [job_id], "conversion": {"conversionValue": 9}, "reason": "a typo"}
    [line] = site.said(lambda: site.ask_act(action, **said))
    assert (line.action, line.allowed, line.site) == ("oci.fix", True, site.id)
    assert json.loads(line.details or "") == {"changed": 1, "reason": "a typo"}


def test_a_paused_site_can_be_acted_on(site: OwnSite):
    ids = site.exported(2)
    site.pause()
    assert site.act("RESET_TO_QUEUED", seals(ids))["affected"] == 2
