"""The lists of workloads hold still while they are renewed, as a queue's list does."""

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from kesin.engine.queue import apply_changes
from kesin.engine.results import Failed
from kesin.engine.worker import Worker
from kesin.lifecycle.budget import DAY_S
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change
from kesin.store.records import QueueStats
from kesin.web.dashboard.queues import filters, listing
from kesin.web.failures import MAX_READS, FailureReader
from kesin.workloads.oci import script
from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.site import SiteContext
from kesin.workloads.pdf.services import open_job_store
from tests.web.conftest import ROOT, MakeWorld, World
from tests.web.dashboard.queues.test_listing import NO_JOB, count, news, row_of, stale
from tests.workloads.optiplan.orders_ready import held_order

HTMX = {"hx-request": "true"}
_numbers = itertools.count()


class ListedRows(NamedTuple):
    """A list of a workload: how a row comes into it, and how it leaves a filter."""

    world: World
    path: str
    part: str
    create: Callable[[], str]
    leave: Callable[[str], Any]
    filtered: str  # what created rows match until they leave
    left: str  # the state of a row that has left

    def get(self, query: str = "", who: str = "ayse") -> str:
        headers = self.world.cookie(who) | HTMX
        answer = self.world.client.get(self.path + query, headers=headers)
        assert answer.status_code == 200
        return str(answer.text)

    def renew(self, ids: list[str], query: str = "", cursor: str = "", who: str = "ayse") -> str:
        headers, data = self.world.cookie(who) | HTMX, {"ids": ",".join(ids), "cursor": cursor}
        path = f"{self.path}/renewal{query}"
        answer = self.world.client.post(path, headers=headers, data=data)
        assert answer.status_code == 200
        return str(answer.text)


def shown(text: str) -> list[str]:
    return re.findall(r'<tr id="row-([0-9a-f-]{36})"', text)


def conversions(world: World, home: str = "north") -> ListedRows:
    queue = world.service.workload_context("oci").queue

    def create(site: str = home) -> str:
        found = world.accounts.find_site(site)
        assert found
        row = {
            "externalId": f"sale-{next(_numbers)}",
            "gclid": "Cj0KCQiA_click-0001",
            "conversionName": "Sale",
            "conversionTime": "2023-11-13T10:00:00+00:00",
            "conversionValue": 1,
        }
        context = SiteContext(world.service.workload_context("oci"), found)
        [result] = ingest(context, [row], actor=ROOT)
        assert result.id, result
        return result.id.removeprefix("seal_")

    def leave(job: str) -> None:
        queue.act("MARK_FAILED", actor="user:ayse", ids=[job])

    path = f"/dashboard/site/{home}/oci-control"
    return ListedRows(world, path, "rows", create, leave, "status=QUEUED", "FAILED")


def pdfs(world: World) -> ListedRows:
    store = open_job_store(world.service.workload_context("pdf"))

    def create(owner: str = "user:ayse") -> str:
        values = {"variables": {"number": f"F-{next(_numbers)}"}}
        return store.create_job("invoice", values, owner=owner).job_id

    def leave(job: str) -> None:
        store.queue.act("cancel", actor="user:ayse", ids=[job])

    return ListedRows(world, "/dashboard/pdf", "jobs", create, leave, "", "expired")


def orders(world: World) -> ListedRows:
    queue = world.service.queues["optiplan"]

    def leave(job: str) -> None:
        queue.act("cancel", actor="user:ayse", ids=[job])

    return ListedRows(
        world, "/dashboard/optiplan", "orders", lambda: held_order(world.service), leave, "state=HOLD", "FAILED"
    )


WORKLOADS = {"oci": conversions, "pdf": pdfs, "optiplan": orders}
IN_EACH = pytest.mark.parametrize("listed", WORKLOADS, indirect=True)
IN_ORDERS = pytest.mark.parametrize(
    "listed", ["optiplan", *(pytest.param(name, marks=pytest.mark.long) for name in ("oci", "pdf"))], indirect=True
)


@pytest.fixture
def listed(request, make_world: MakeWorld) -> ListedRows:
    """The list of the workload that a test names: all are built on one frame."""
    world = make_world()
    world.person("ayse", "admin", all_sites=True)
    made: ListedRows = WORKLOADS[request.param](world)
    return made


@IN_EACH
def test_a_renewal_shows_the_same_rows_with_their_state_and_counts_the_new_ones(listed):
    jobs = [listed.create() for _ in range(3)][::-1]
    assert shown(listed.get()) == jobs
    assert count(listed.get()) == "3 of 3 jobs"
    late = [listed.create() for _ in range(2)]
    text = listed.renew(jobs)
    assert shown(text) == jobs
    assert news(text) == "2 new"
    assert count(text) == "3 of 5 jobs"
    assert f'hx-get="{listed.path}?part={listed.part}&amp;rows=5"' in text
    assert shown(listed.get(f"?part={listed.part}&rows=5")) == [*late[::-1], *jobs]
    query = f"?{listed.filtered}" if listed.filtered else ""
    listed.leave(jobs[0])
    text = listed.renew(jobs, query)
    assert shown(text) == jobs  # a row that left the filter stays
    assert listed.left in row_of(text, jobs[0])
    assert listed.left not in row_of(text, jobs[1])
    assert stale(text) == ([jobs[0]] if query else [])
    assert count(text) == ("2 of 4 jobs · 1 no longer match" if query else "3 of 5 jobs")


@IN_ORDERS
def test_a_pruned_row_and_a_forged_one_look_alike(listed):
    job, other = listed.create(), listed.world.job("south")  # a job of another queue
    text = listed.renew([other, job, NO_JOB, "nonsense", "../x"])
    assert shown(text) == [other, job, NO_JOB]
    assert "Deleted" in row_of(text, other)
    assert "Deleted" in row_of(text, NO_JOB)
    assert "Deleted" not in row_of(text, job)


@IN_ORDERS
def test_the_order_goes_both_ways_and_rows_follow(listed, monkeypatch):
    monkeypatch.setattr(filters, "PAGE", 2)
    jobs = [listed.create() for _ in range(3)]
    for order, wanted, sorted_ in (("", jobs[::-1], "descending"), ("oldest", jobs, "ascending")):
        text = listed.get(f"?order={order}")
        assert shown(text) == wanted[:2]
        assert re.findall(r'aria-sort="(\w+)"', text) == [sorted_]
        assert count(text) == "2 of 3 jobs"
        assert "data-sort=" not in text, "only a part of the rows is here"
        assert '<thead title="More jobs match than are shown, so they' in text
        assert "Only sorting by Created covers all matching jobs." in text
        assert f'data-cursor="{wanted[1]}"' in text
        after = f"?part=more&cursor={wanted[1]}&shown=2&order={order}"
        assert shown(listed.get(after)) == wanted[2:]
        renewed = listed.renew(wanted[:2], f"?order={order}", cursor=wanted[1])
        assert shown(renewed) == wanted[:2]
        assert news(renewed) == ""
        assert count(renewed) == "2 of 3 jobs"
    whole = listed.get("?rows=3")
    assert shown(whole) == jobs[::-1]
    assert 'data-sort="Sorts this page, which shows all matching rows."' in whole
    assert "<thead>" in whole
    listed.create()
    assert "data-sort=" not in listed.renew(jobs[::-1]), "a new one is not here"


# Sites, owners, codes


def test_rows_of_another_site_are_as_if_they_did_not_exist(make_world):
    world = make_world()
    world.person("ayse", "admin", all_sites=True)
    rows = conversions(world)
    mine, other = rows.create(), rows.create("south")  # type: ignore[call-arg]
    text = rows.renew([mine, other])  # even for a user who may see both
    assert "Deleted" in row_of(text, other)
    assert len(re.findall(r"sale-\d+ ·", text)) == 1
    assert count(text) == "1 of 1 jobs · 1 no longer match"


def test_pdfs_of_another_owner_are_as_if_they_did_not_exist(make_world):
    world = make_world()
    for name in ("ayse", "bora"):
        world.person(name, "admin", all_sites=True)
    rows = pdfs(world)
    mine, other = rows.create(), rows.create("user:bora")  # type: ignore[call-arg]
    assert shown(rows.get()) == [mine]
    assert "Deleted" in row_of(rows.renew([mine, other]), other)
    assert "Deleted" in row_of(rows.renew([mine, other], who="bora"), mine)
    assert stale(rows.renew([mine, other], "?everybody=1")) == []


def test_orders_and_pdfs_are_found_by_title_id_and_error(world):
    for name, role in (("ayse", "admin"), ("olga", "operator"), ("vera", "viewer")):
        world.person(name, role, all_sites=True)
    rows = orders(world)
    named = {"order_id": "W-7", "customer_snapshot_name": "Özgür Yılmaz"}
    other, order = held_order(world.service), held_order(world.service, **named)
    for who in ("ayse", "olga", "vera"):
        for text in ("w-7", order):
            assert shown(rows.get(f"?text={text}&state=HOLD", who)) == [order], (who, text)
        assert shown(rows.get("?text=yilm", who)) == ([] if who == "vera" else [order]), "masked"
        assert shown(rows.get("?text=w-7&state=DONE", who)) == []
        assert count(rows.get("?text=w-7", who)) == "1 of 1 jobs"
    assert shown(rows.renew([order], "?text=w-7")) == [order]
    assert stale(rows.renew([order, other], f"?text={order}")) == [other]
    assert "?state=HOLD&amp;text=w-7" in rows.get("?text=w-7"), "a state keeps the search"
    papers = pdfs(world)
    mine, foreign = papers.create(), papers.create("user:bora")  # type: ignore[call-arg]
    made = (world.found(job).payload for job in (mine, foreign))
    number, of_bora = (body["payload"]["variables"]["number"] for body in made)
    for text in (number, mine, "invoice"):
        assert shown(papers.get(f"?text={text}")) == [mine], text
    assert shown(papers.get(f"?text={foreign}")) == shown(papers.get(f"?text={of_bora}")) == []
    assert shown(papers.get(f"?everybody=1&text={of_bora}")) == [foreign]
    empty = papers.get("?text=nothing-like-it")
    assert "No job matches" in empty
    assert 'name="text" value="nothing-like-it"' in empty


def test_a_cancelled_pdf_stays_where_it_is(make_world):
    world = make_world()
    world.person("ayse", "admin", all_sites=True)
    rows = pdfs(world)
    jobs = [rows.create() for _ in range(2)][::-1]
    late = rows.create()
    headers = world.cookie("ayse") | HTMX
    path = f"{rows.path}/jobs/{jobs[0]}/cancel?everybody=1"
    text = world.client.post(path, headers=headers, data={"ids": ",".join(jobs)}).text
    assert shown(text) == jobs
    assert "expired" in row_of(text, jobs[0])
    assert news(text) == "1 new"
    assert late not in shown(text)
    assert "My PDFs" in text, "the list of all users stays one"


def test_the_codes_of_a_site_are_offered_with_their_counts(make_world, monkeypatch):
    world = make_world()
    world.person("ayse", "admin", all_sites=True)
    rows = conversions(world)
    jobs = [rows.create() for _ in range(3)]
    found = world.accounts.find_site("north")
    assert found
    context = SiteContext(world.service.workload_context("oci"), found)
    script.export(context, limit=10, actor="tests")
    codes = ["BAD_CLICK", "BAD_CLICK", "TOO_OLD"]
    changes = [Change(job, error_code=code, error_category="VALIDATION") for job, code in zip(jobs, codes, strict=True)]
    apply_changes(context.queue, "ack_failed", changes, actor="tests")
    text = rows.get("?code=TOO_OLD")
    options = re.findall(r"<option value=\"\w+\"( selected)?>(\w+ \(\d\))", text)
    assert options == [("", "BAD_CLICK (2)"), (" selected", "TOO_OLD (1)")]
    assert count(text) == "1 of 1 jobs"
    monkeypatch.setattr(filters, "PAGE", 1)
    assert count(rows.get("?code=BAD_CLICK")) == "1 of 2 jobs"
    monkeypatch.setattr(listing, "MAX_EXAMINED", 1)
    assert count(rows.get("?code=BAD_CLICK")) == "1 of more than 1 jobs"


def test_a_renewal_of_orders_is_no_new_look_at_them(make_world):
    world = make_world()
    world.person("ayse", "admin", all_sites=True)
    rows = orders(world)
    job = rows.create()

    def looks() -> int:
        return len(world.accounts.directory.audit(action="queue.reveal"))

    rows.get()
    before = looks()
    assert before
    rows.renew([job])
    assert looks() == before


# Failures while jobs move


@contextmanager
def moving(world: World, monkeypatch, jobs: list[str]) -> Iterator[None]:
    """A failed job is withdrawn between the counters and the counts, as long as there are any."""
    store, read = world.store, world.store.failures

    def failures(*args: Any, **how: Any) -> Any:
        if jobs:
            world.task.act("requeue", actor="user:ece", ids=[jobs.pop()])
        return read(*args, **how)

    with monkeypatch.context() as patch:
        patch.setattr(store, "failures", failures)
        yield


def test_a_job_that_moves_between_two_reads_never_looks_like_one_without_a_code(make_world, monkeypatch):
    world = make_world()
    jobs = [world.job() for _ in range(16)]
    Worker(world.task, lambda _job: Failed("BROKEN", "it broke", category=Category.VALIDATION)).drain()
    for moved in (1, 2 * MAX_READS):  # each read counts twice: at rest, and what retries
        for sites in (None, ("north",)):
            stats: QueueStats = world.task.stats()
            moves = [jobs.pop() for _ in range(moved)]
            with moving(world, monkeypatch, moves):
                groups = FailureReader({}).of(world.task, stats, sites).groups
            assert {group.code for group in groups if not group.retries} == {"BROKEN"}, (moved, sites)


def test_failures_at_rest_are_counted_again_only_when_one_came_or_went(make_world, monkeypatch):
    world = make_world()
    world.broken()
    reader, read, asked = FailureReader({}), world.store.failures, list[Any]()

    def failures(*args: Any, **how: Any) -> Any:
        asked.append(how["states"])
        return read(*args, **how)

    monkeypatch.setattr(world.store, "failures", failures)
    assert reader.of(world.task, world.task.totals()).needs_you == 1
    resting, ready = asked
    world.job()
    Worker(world.task, lambda _job: None).drain()
    asked.clear()
    assert reader.of(world.task, world.task.stats()).needs_you == 1
    assert asked == [ready]
    world.broken()
    assert reader.of(world.task, world.task.totals()).needs_you == 2
    assert asked == [ready, resting, ready]


def test_the_failures_of_a_code_have_a_curve_of_the_last_day_unless_it_is_a_single_bar(make_world):
    world = make_world()
    world.person("ayse", "admin", all_sites=True)
    world.broken(code="ONCE")
    for jobs in (1, 2):
        for _ in range(jobs):
            world.broken()
        world.clock.advance(1_801)
    path, headers = "/dashboard/queues/task", world.cookie("ayse")
    text = world.client.get(path, headers=headers).text
    [curve] = re.findall(r'class="trend"><svg class="spark" role="img" (.*?)</svg>', text, re.DOTALL)
    assert curve.startswith(
        'aria-label="The last 24 hours in half-hour steps, from left to right: 3 of these jobs arrived,'
        ' with a peak of 2 in half an hour, and 2 in the last hour"'
    )
    assert curve.count("<rect") == 2

    def group() -> Any:
        groups = world.service.failures.of(world.task, world.task.stats()).groups
        return next(one for one in groups if one.code == "BAD")

    assert group().trend[-3:] == (1, 2, 0)
    assert group().recent == 2
    world.clock.advance(DAY_S)
    assert sum(group().trend) == 0
    assert group().n == 3


def test_a_filter_that_is_too_long_is_refused_and_not_cut(world):
    """Cut, it would be the filter of other rows."""
    world.person("ayse", "admin", all_sites=True)
    headers = world.cookie("ayse")
    for path in ("site/north/oci-control?code", "site/north/oci-control?q", "optiplan?text", "pdf?text"):
        answer = world.client.get(f"/dashboard/{path}={'x' * 513}", headers=headers)
        assert answer.status_code == 422, path
        assert "String should have at most" in answer.text
