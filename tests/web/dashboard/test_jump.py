"""The jump dialog finds pages, queues, sites and jobs, and only what its user may see."""

import re

import pytest

from kesin.engine.worker import Worker
from kesin.web.dashboard import jump
from tests.browser.sample_data import conversions, pdfs
from tests.web.conftest import ROOT, World
from tests.workloads.optiplan.orders_ready import held_order


@pytest.fixture
def people(shared_world: World) -> World:
    """Users of every kind, and the sites north and south."""
    world = shared_world
    world.known("jump-admin", "admin", all_sites=True)
    world.known("jump-all", "viewer", all_sites=True)
    world.known("jump-north", "operator", sites=["north"])
    world.known("jump-none", "viewer")
    return world


def found(world: World, text: str, who: str = "jump-admin") -> list[str]:
    """Where the results lead."""
    answer = world.client.get(
        "/dashboard/jump", params={"q": text}, headers={**world.cookie(who), "hx-request": "true"}
    )
    assert answer.status_code == 200
    options = re.findall(r'<a role="option" id="jump-(\d+)" href="([^"]*)"', answer.text)
    assert [int(number) for number, _ in options] == list(range(1, len(options) + 1))
    assert bool(options) != ("Nothing found." in answer.text)
    return [path for _, path in options]


def test_pages_of_the_navigation_are_found_by_their_titles(people):
    assert found(people, "OVERV") == ["/dashboard"]
    assert found(people, "Audit") == ["/dashboard/audit"]
    assert found(people, "audit", "jump-all") == []
    assert found(people, "audit", "jump-none") == []
    assert found(people, "", "jump-none")[0] == "/dashboard"
    assert "/dashboard/queues/task" in found(people, "")


def test_queues_are_found_by_title_and_by_name(people):
    assert found(people, "task") == ["/dashboard/queues/task"]
    assert "/dashboard/queues/oci" in found(people, "Conver")
    assert "/dashboard/queues/oci" in found(people, "queues/oci")
    assert found(people, "task", "jump-none") == []


def test_sites_are_found_by_those_who_may_see_them(people):
    north, south = (f"/dashboard/site/{site}/oci-control" for site in ("north", "south"))
    assert found(people, "north") == [north]
    assert found(people, "oci-control", "jump-all") == [north, south]
    assert found(people, "oci-control", "jump-north") == [north]
    assert found(people, "south", "jump-north") == []
    assert found(people, "north", "jump-none") == []


def test_any_of_many_sites_is_found_and_jobs_of_its_by_key_and_title(world):
    world.known("jump-admin", "admin", all_sites=True)
    sites = [f"shop-{n:03}" for n in range(260)]
    with world.store.transaction():
        for site in sites:
            world.accounts.add_site(ROOT, site, name=f"Shop {site[-3:]} of Ürgüp")
            world.task.enqueue({}, key=f"key of {site}", tenant=site)
    for site in (sites[0], sites[201], sites[-1]):
        path = f"/dashboard/site/{site}/oci-control"
        assert found(world, site) == found(world, f"{site[-3:]} of Ürg") == [path]
        [job] = world.task.holders(site, [f"key of {site}"]).values()
        assert found(world, f"key of {site}") == [f"/dashboard/jobs/{job}"]
    assert len(found(world, "ürgüp")) == jump.MAX_FOUND
    assert found(world, "shop-260") == []


def test_a_job_is_found_by_its_id_its_beginning_or_its_end_as_listed_and_by_its_key(people):
    job = people.job("south", key="invoice 4711")
    path, ends = f"/dashboard/jobs/{job}", (job[-8:], f"…{job[-8:]}")
    for text in (job, job.upper(), f" {job} ", "invoice 4711", job[:35], job[:20], *ends):
        assert found(people, text) == [path], text
        assert found(people, text, "jump-all") == [path], text
        assert found(people, text, "jump-north") == [], text
        assert found(people, text, "jump-none") == [], text
    assert path in found(people, job[:8])
    assert path in found(people, job[:6])
    for text in (job[:5], "invoice 471", "invoice", job[8:], f"{job}0", f"{job[:8]}-zz"):
        assert path not in found(people, text), text


def test_the_last_of_the_ids_that_begin_so_is_found_too(people):
    job = next(job for job in iter(people.job, "") if job.endswith("f"))
    assert found(people, job[:-1]) == [f"/dashboard/jobs/{job}"]


def test_a_job_that_is_done_is_found_by_the_key_it_had(people):
    job = people.job("south", key="letter 4712")
    Worker(people.task, lambda _: None).drain()
    assert not people.task.holders("south", ["letter 4712"])
    for who, seen in (("jump-admin", True), ("jump-all", True), ("jump-north", False)):
        assert (f"/dashboard/jobs/{job}" in found(people, "letter 4712", who)) is seen, who


def test_ids_that_begin_alike_are_listed_newest_first_and_few(people, monkeypatch):
    monkeypatch.setattr(jump, "MAX_JOBS", 3)
    jobs = [people.job() for _ in range(5)]
    start = jobs[-1][:8]
    assert found(people, start)[:3] == [f"/dashboard/jobs/{job}" for job in jobs[:1:-1]]
    monkeypatch.setattr(jump, "MAX_FOUND", 2)
    assert len(found(people, start)) == 2
    assert len(found(people, "")) == 2


def test_a_masked_key_is_not_found_by_those_who_may_not_see_it(people):
    key = "Cj0KCQiA_click-of-ayse"
    job = people.job("north", key=key, payload={"gclid": key})
    assert found(people, key) == [f"/dashboard/jobs/{job}"]
    assert found(people, key, "jump-all") == []


def test_orders_are_found_by_number_and_by_customer_of_those_who_may_see_both(people):
    name = {"order_id": "SP-2044", "customer_snapshot_name": "Gülşen Demir"}
    path = f"/dashboard/jobs/{held_order(people.service, **name)}"
    for who in ("jump-admin", "jump-all"):
        for text in ("SP-2044", "sp 20", "2044"):
            assert found(people, text, who) == [path], text
    for text in ("Gülşen", "gulsen d", "demir"):
        assert found(people, text) == [path], text
        assert found(people, text, "jump-all") == [], text  # masked for them
        assert found(people, text, "jump-north") == [], text
        assert found(people, text, "jump-none") == [], text
    for text in ("ülşen", "SP-2045", "S"):
        assert path not in found(people, text), text


def test_what_is_wanted_itself_comes_before_what_begins_so_and_that_before_the_rest(people):
    orders = [
        held_order(people.service, order_id="SP-900", customer_snapshot_name=name)
        for name in ("Ali 77310x", "Veli 77310", "Can x-77310")
    ]
    job = people.job("south", key="77310")
    ali, veli, can, task = (f"/dashboard/jobs/{one}" for one in (*orders, job))
    assert set(found(people, "77310")[:2]) == {veli, task}
    assert [one for one in found(people, "77310") if one in (ali, can)] == [ali, can]


def test_a_customer_who_is_found_again_and_again_is_one_look(people):
    held_order(people.service, order_id="SP-3001", customer_snapshot_name="Nilgün Ak")
    lines = people.said(lambda: [found(people, text) for text in ("Nil", "Nilg", "Nilgün")])
    [line] = [line for line in lines if line.action == "queue.reveal"]
    assert (line.queue, line.details) == ("optiplan", '{"jobs":1}')


def test_conversions_are_found_by_their_external_id_and_pdfs_by_their_title(people):
    [row, *_] = conversions(people, 4, first=7001, site="south")
    sale = f"/dashboard/jobs/{row}"
    assert found(people, "sale-7001") == [sale]
    assert found(people, "sale 7001", "jump-all") == [sale]
    assert found(people, "sale-7001", "jump-north") == []
    done = pdfs(people)["done"]
    pdf = f"/dashboard/jobs/{done}"
    assert pdf in found(people, "invoice", "jump-all")
    assert pdf not in found(people, "invoice", "jump-north")
    assert found(people, "F-1") == found(people, str(people.found(done).dedup_key)) == [pdf]
    assert found(people, "F-1", "jump-all") == []  # what the PDF is about is masked for them


def test_what_is_typed_comes_back_escaped_and_is_bounded(people):
    people.job(key="<b>&")
    headers = people.cookie("jump-admin")
    answer = people.client.get("/dashboard/jump", params={"q": "<b>&"}, headers=headers)
    assert "&lt;b&gt;&amp;" in answer.text
    assert "<b>" not in answer.text
    too_long = people.client.get("/dashboard/jump", params={"q": "x" * 201}, headers=headers)
    assert too_long.status_code == 422
