"""The operator's table: every row once, found by any of its ids."""

import pytest

from kesin.foundation.clock import iso
from tests.workloads.oci import own_site
from tests.workloads.oci.own_site import OwnSite, refused, well

shared, site, neighbour = own_site.shared, own_site.site, own_site.neighbour
MINUTE = 60
COLUMNS = [
    *("id", "orderId", "externalId", "status", "attempt_count", "claimed_at", "next_retry_at"),
    *("last_error", "provider_error_code", "provider_error_category", "uploaded_at"),
    *("failed_at", "created_at", "updated_at"),
]


def ids_of(rows: list[dict]) -> list[str]:
    return [row["id"] for row in rows]


def test_a_page_has_the_columns_of_the_table(site: OwnSite):
    site.queued()
    body = well(site.page())
    assert list(body) == ["siteId", "rows", "nextCursor"]
    assert (body["siteId"], body["nextCursor"]) == (site.id, None)
    assert list(body["rows"][0]) == COLUMNS


def test_a_new_row_says_so(site: OwnSite):
    [job_id] = site.queued()
    born = iso(site.clock.time_us)
    [row] = site.rows()
    assert row == {
        **dict.fromkeys(COLUMNS),
        "id": job_id,
        "orderId": site.look(job_id).data["orderId"],
        "externalId": "sale-1",
        "status": "QUEUED",
        "attempt_count": 0,
        "created_at": born,
        "updated_at": born,
    }


def test_a_claimed_row_says_since_when(site: OwnSite):
    [job_id] = site.queued()
    site.wait(5)
    site.export()
    row = site.shown(job_id)
    now = iso(site.clock.time_us)
    assert (row["status"], row["claimed_at"], row["updated_at"]) == ("PROCESSING", now, now)
    assert row["created_at"] != now


def test_a_row_that_may_be_tried_again_says_when(site: OwnSite):
    [job_id] = site.failed(category="TRANSIENT")
    job = site.look(job_id)
    assert site.shown(job_id)["next_retry_at"] == iso(job.timer_at)
    assert 300 <= ((job.timer_at or 0) - site.clock.time_us) / 1e6 <= 360


@pytest.mark.parametrize("state", ["QUEUED", "PROCESSING", "COMPLETED", "FAILED"])
def test_no_other_row_has_a_next_try(site: OwnSite, state: str):
    [job_id] = site.queued()
    if state != "QUEUED":
        site.export()
    if state == "COMPLETED":
        site.ack([job_id])
    if state == "FAILED":
        site.ack_failed([job_id])
    row = site.shown(job_id)
    assert (row["status"], row["next_retry_at"]) == (state, None)


def test_a_row_that_holds_no_conversion_is_shown_all_the_same(site: OwnSite):
    job_id = site.raw(["not", "ours"])
    row = site.shown(job_id)
    assert (row["orderId"], row["externalId"]) == (None, None)


# Pages


def test_pages_are_newest_first_and_visit_each_row_once(site: OwnSite):
    ids = site.queued(7)
    seen, cursor = [], None
    while True:
        page = well(site.page(limit=3, **({"cursor": cursor} if cursor else {})))
        seen += ids_of(page["rows"])
        cursor = page["nextCursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]


def test_each_row_is_met_once_while_rows_move_and_come(site: OwnSite):
    ids = site.queued(6)
    first = well(site.page(limit=2))
    site.export()
    site.ack(ids[:3])
    site.act("RESET_TO_QUEUED", ids[3:])
    site.queued(2, first=50)
    second = well(site.page(limit=2, cursor=first["nextCursor"]))
    site.act("MARK_FAILED", ids[3:])
    third = well(site.page(limit=200, cursor=second["nextCursor"]))
    seen = [*ids_of(first["rows"]), *ids_of(second["rows"]), *ids_of(third["rows"])]
    assert seen == ids[::-1]


def test_a_hundred_rows_are_a_page_where_nobody_says_otherwise(site: OwnSite):
    site.queued(201)
    assert len(site.rows()) == 100
    assert len(site.rows(limit=200)) == 200


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 201}, "limit"),
        ({"cursor": "next"}, "cursor"),
        ({"q": "x" * 513}, "q"),
        ({"code": "x" * 65}, "code"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(site: OwnSite, wanted: dict, field: str):
    error = refused(site.page(**wanted), 422)
    assert error["details"]["fields"][0]["field"].startswith(field)


# Filters


def mixed(site: OwnSite) -> list[str]:
    """One row each: QUEUED, PROCESSING, COMPLETED, FAILED for its data, FAILED in passing."""
    ids = site.exported(4)
    site.ack(ids[1:2])
    site.ack_failed(ids[2:3], errorCode="BAD")
    site.ack_failed(ids[3:], errorCode="LATER", errorCategory="TRANSIENT")
    return [*site.queued(1, first=9), *ids]


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        ({"status": "QUEUED"}, [0]),
        ({"status": ["PROCESSING", "COMPLETED"]}, [1, 2]),
        ({"status": "FAILED"}, [3, 4]),
        ({"code": "BAD"}, [3]),
        ({"code": ["BAD", "LATER"]}, [3, 4]),
        ({"category": "TRANSIENT"}, [4]),
        ({"status": "FAILED", "category": "VALIDATION"}, [3]),
        ({"status": "COMPLETED", "category": "VALIDATION"}, []),
        ({"code": "NOBODYS"}, []),
    ],
)
def test_rows_are_chosen_by_state_code_and_category(site: OwnSite, wanted: dict, places: list[int]):
    ids = mixed(site)
    assert set(ids_of(site.rows(**wanted))) == {ids[n] for n in places}


def test_a_state_that_does_not_exist_is_refused(site: OwnSite):
    assert refused(site.page(status="SENT"), 400)["code"] == "bad_status"


# Searches


@pytest.mark.parametrize("name", ["id", "seal", "orderId", "externalId", "gclid"])
def test_a_row_is_found_by_any_of_its_names(site: OwnSite, name: str):
    ids = site.queued(3)
    data = site.look(ids[1]).data
    named = {"id": ids[1], "seal": f"seal_{ids[1]}", **data}[name]
    assert ids_of(site.rows(q=named)) == [ids[1]]


@pytest.mark.parametrize("kind", ["wbraid", "gbraid"])
def test_a_row_is_found_by_another_kind_of_click_id(site: OwnSite, kind: str):
    [job_id] = site.queued(1, gclid=None, **{kind: "Cl8KCQjw_braid"})
    site.queued(1, first=2)
    assert ids_of(site.rows(q="Cl8KCQjw_braid")) == [job_id]


def test_a_search_by_external_id_finds_its_revisions(site: OwnSite):
    [job_id] = site.exported()
    site.ack([job_id])
    site.act("ENQUEUE_FIX", [job_id])
    found = site.rows(q="sale-1")
    assert len(found) == 2
    assert found[1]["id"] == job_id
    assert {one["externalId"] for one in found} == {"sale-1"}


def test_a_search_and_a_filter_hold_together(site: OwnSite):
    [job_id] = site.queued()
    assert ids_of(site.rows(q=job_id, status="QUEUED")) == [job_id]
    for wanted in ({"status": "FAILED"}, {"code": "X"}, {"category": "AUTH"}):
        for name in (job_id, "sale-1", "Cj0KCQiA_click-000001"):
            assert site.rows(q=name, **wanted) == []


def test_rows_of_another_site_are_found_by_none_of_their_names(site: OwnSite, neighbour: OwnSite):
    [theirs] = neighbour.queued(1, first=77)
    data = neighbour.look(theirs).data
    for name in (theirs, f"seal_{theirs}", data["orderId"], data["externalId"], data["gclid"]):
        assert site.rows(q=name) == []


@pytest.mark.parametrize(
    "text", ["nothing like it", "%", "_", "'", '"', "\\", "seal_", "\0", "a\0"]
)
def test_any_search_is_answered(site: OwnSite, text: str):
    site.queued()
    assert site.page(q=text).status_code == 200


def test_signs_that_mean_something_to_a_database_mean_themselves(site: OwnSite):
    site.queued(2)
    assert site.rows(q="sale%") == []
    assert site.rows(q="sale_1") == []


def test_a_foreign_site_and_one_that_is_not_there_are_refused_alike(
    site: OwnSite, neighbour: OwnSite
):
    key = site.oci.key("read", site=site.id)
    answers = [
        site.client.get("/api/oci/queue-rows", params={"siteId": one}, headers=key)
        for one in (neighbour.id, "nowhere")
    ]
    assert [answer.status_code for answer in answers] == [403, 403]
    assert answers[0].content == answers[1].content


# What a code means


@pytest.mark.parametrize("code", ["EXPIRED", "MAX_ATTEMPTS", "SOMETHING_NEW"])
def test_a_code_is_explained_in_either_language(site: OwnSite, code: str):
    values = [
        well(site.client.get(f"/api/oci/codes/{code}", params={"lang": one}, headers=site.script))
        for one in ("en", "tr")
    ]
    assert [value["code"] for value in values] == [code, code]
    assert values[0].keys() == {"code", "who", "means", "act", "next"}
    assert values[0]["means"] != values[1]["means"]


def test_nobody_gets_no_explanation(site: OwnSite):
    assert refused(site.client.get("/api/oci/codes/EXPIRED"), 401)["code"] == "not_signed_in"
