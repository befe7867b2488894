"""Pages of jobs, and the filters that choose among them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kesin.store.errors import StoreError
from kesin.store.records import Filter
from kesin.store.redis.store import RedisStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.store.checking import checking_lifecycle
from tests.store.scene import DAY, NO_IDS, NOW, OPERATOR, SECOND, Scene, error

# Pages


def pages(scene, where=None, limit=100):
    """Every page of a listing, from the first to the last."""
    pages, cursor = [], None
    for _ in range(1_000):
        page = scene.store.jobs(scene.queue, where or Filter(), limit=limit, cursor=cursor)
        pages.append(page.jobs)
        cursor = page.cursor
        if cursor is None:
            return pages
    raise AssertionError("the pages do not end")


def walk(scene, where=None, limit=100):
    return [job for page in pages(scene, where, limit) for job in page]


@pytest.fixture(scope="module")
def hundreds(shared_store):
    """Three hundred jobs of four tenants in all five states, some of them claimed."""
    oci = Scene(shared_store, "hundreds", oci_lifecycle())
    chance = random.Random(3)
    with oci.store.transaction():
        for _ in range(4):
            oci.enqueue(*(oci.new(tenant=chance.choice("abcd")) for _ in range(75)))
            oci.clock.advance(1)
        for action in ("ack", "ack_failed", "retry_later", ""):
            jobs = oci.claim(45)
            assert len(jobs) == 45
            if action:
                oci.apply(action, jobs, **error())
    return oci


def test_pages_hold_every_job_once_newest_first(hundreds):
    jobs = sorted(hundreds.all().values(), key=lambda job: job.id, reverse=True)
    assert walk(hundreds, limit=97) == jobs
    # Fewer than tenants and states: most of them have no job on a page.
    assert walk(hundreds, limit=11) == jobs
    assert walk(hundreds, Filter(oldest_first=True), limit=11) == jobs[::-1]
    for state, size in {"QUEUED": 120, "PROCESSING": 45, "COMPLETED": 45}.items():
        expected = [job for job in jobs if job.state == state]
        assert len(expected) == size
        assert walk(hundreds, Filter(states=(state,)), limit=31) == expected


def test_pages_are_full_except_the_last_and_of_one_queue(task, pdf):
    pdf.create_job()
    assert pages(task) == [[]], "an empty queue has one empty page"
    task.create_jobs(10)
    for limit, sizes in ((4, [4, 4, 2]), (5, [5, 5]), (100, [10])):
        assert [len(page) for page in pages(task, limit=limit)] == sizes
    task.create_jobs(91)
    assert len(task.store.jobs("task", Filter()).jobs) == 100, "by default"
    assert {job.queue for job in walk(task)} == {"task"}


def test_no_job_is_missed_or_met_twice_while_jobs_move_between_pages(oci):
    ids = oci.create_jobs(60)
    seen, cursor = [], None
    while True:
        page = oci.store.jobs("oci", Filter(), limit=10, cursor=cursor)
        seen += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
        oci.apply("ack", oci.claim(4))
        oci.claim(3)
        oci.create_jobs(2)
    assert seen == ids[::-1]


def test_a_bad_page_is_refused(task):
    for limit in (0, -1, 1_001):
        with pytest.raises(StoreError, match=f"a page can have 1…1000 jobs, got {limit}"):
            task.store.jobs("task", Filter(), limit=limit)
    for cursor in NO_IDS:
        with pytest.raises(StoreError, match="is not a cursor: use the cursor of"):
            task.store.jobs("task", Filter(), cursor=cursor)


# Filters


@pytest.fixture(scope="module")
def mixed(shared_store):
    """Forty jobs that differ in everything a filter can ask for."""
    oci = Scene(shared_store, "mixed", oci_lifecycle())
    chance = random.Random(5)
    causes = [
        error("BAD_CLICK", "VALIDATION", "the click is 100% unknown"),
        error("UPLOAD", "TRANSIENT", "Upload_failed: try again!"),
        error("TOKEN", "AUTH", "ŞABLON bulunamad\u0131"),
    ]
    with oci.store.transaction():
        for n in range(40):
            payload = f'{{"city":"{("İzmir", "izmir", "100%_")[n % 3]}","n":{n}}}'
            oci.create_job(tenant="abc"[n % 3], key=f"key{n % 10}-{n // 10}", payload=payload)
            oci.clock.advance(60)
            if n % 3:
                (job,) = oci.claim(tenants=["abc"[n % 3]])
                oci.clock.advance(60)
                if n % 4:
                    oci.move(("ack_failed", "retry_later")[n % 2], job, **chance.choice(causes))
    return oci


MIDDLE = NOW + 2_400 * SECOND
FILTERS = {
    "one state": (Filter(states=("FAILED",)), lambda j: j.state == "FAILED"),
    "a claimed state": (Filter(states=("PROCESSING",)), lambda j: j.state == "PROCESSING"),
    "several states": (
        Filter(states=("QUEUED", "PROCESSING", "RETRY")),
        lambda j: j.state in ("QUEUED", "PROCESSING", "RETRY"),
    ),
    "no claimed ones": (Filter(unclaimed=True), lambda j: j.state != "PROCESSING"),
    "no claimed ones with a code": (
        Filter(unclaimed=True, codes=("UPLOAD", "TOKEN")),
        lambda j: j.error_code in ("UPLOAD", "TOKEN") and j.state != "PROCESSING",
    ),
    "one tenant": (Filter(tenants=("b",)), lambda j: j.tenant == "b"),
    "several tenants": (Filter(tenants=("a", "c", "z")), lambda j: j.tenant in "ac"),
    "one code": (Filter(codes=("UPLOAD",)), lambda j: j.error_code == "UPLOAD"),
    "several codes": (Filter(codes=("UPLOAD", "TOKEN", "other")), lambda j: j.error_code in ("UPLOAD", "TOKEN")),
    "a category": (Filter(categories=("AUTH",)), lambda j: j.error_category == "AUTH"),
    "several categories": (
        Filter(categories=("AUTH", "VALIDATION")),
        lambda j: j.error_category in ("AUTH", "VALIDATION"),
    ),
    "created from": (Filter(created_from=MIDDLE), lambda j: j.created_at >= MIDDLE),
    "created before": (Filter(created_before=MIDDLE), lambda j: j.created_at < MIDDLE),
    "moved before": (Filter(moved_before=MIDDLE), lambda j: j.moved_at < MIDDLE),
    "a key": (Filter(dedup_key="key4-2"), lambda j: j.dedup_key == "key4-2"),
    "a key of a tenant": (Filter(dedup_key="key4-2", tenants=("a", "b", "c", "z")), lambda j: j.dedup_key == "key4-2"),
    "part of the payload": (Filter(contains='"n":1'), lambda j: '"n":1' in j.payload_json),
    "part of the payload, by the letter": (Filter(contains="izmir"), lambda j: "izmir" in j.payload_json),
    "Turkish letters of the payload": (
        Filter(contains="İzmir", states=("QUEUED",)),
        lambda j: "İzmir" in j.payload_json and j.state == "QUEUED",
    ),
    "signs of the payload": (Filter(contains="100%_"), lambda j: "100%_" in j.payload_json),
    "some words": (Filter(text="try again"), lambda j: "try again" in (j.error_message or "")),
    "words in other letters": (Filter(text="UPLOAD_FAILED"), lambda j: "Upload_failed" in (j.error_message or "")),
    "words in other Turkish letters": (Filter(text="şablon"), lambda j: "ŞABLON" in (j.error_message or "")),
    "a percent sign": (Filter(text="100%"), lambda j: "100%" in (j.error_message or "")),
    "an underscore": (Filter(text="d_f"), lambda j: "d_f" in (j.error_message or "")),
    "an exclamation mark": (Filter(text="again!"), lambda j: "again!" in (j.error_message or "")),
    "state and tenant": (
        Filter(states=("FAILED", "PROCESSING"), tenants=("b", "c")),
        lambda j: j.state in ("FAILED", "PROCESSING") and j.tenant in "bc",
    ),
    "state and code": (
        Filter(states=("FAILED",), codes=("UPLOAD",)),
        lambda j: j.state == "FAILED" and j.error_code == "UPLOAD",
    ),
    "a span of time": (
        Filter(created_from=NOW + 900 * SECOND, created_before=MIDDLE),
        lambda j: NOW + 900 * SECOND <= j.created_at < MIDDLE,
    ),
    "everything at once": (
        Filter(
            states=("FAILED", "RETRY"),
            tenants=("b", "c"),
            codes=("UPLOAD", "BAD_CLICK", "TOKEN"),
            categories=("TRANSIENT", "VALIDATION"),
            created_from=NOW + 60 * SECOND,
            created_before=NOW + DAY,
            moved_before=NOW + DAY,
            text="C",
        ),
        lambda j: (
            j.state in ("FAILED", "RETRY")
            and j.tenant in "bc"
            and j.error_code == "BAD_CLICK"
            and j.created_at >= NOW + 60 * SECOND
        ),
    ),
}


def test_a_filter_selects_exactly_the_jobs_it_describes(mixed):
    jobs = sorted(mixed.all().values(), key=lambda job: job.id, reverse=True)
    for name, (where, fits) in FILTERS.items():
        expected = [job.id for job in jobs if fits(job)]
        assert 0 < len(expected) < 40, f"{name}: the filter does not divide these jobs"
        assert [job.id for job in walk(mixed, where, limit=7)] == expected, name
        backwards = replace(where, oldest_first=True)
        assert [job.id for job in walk(mixed, backwards, limit=15)] == expected[::-1], name


def test_a_count_is_that_of_the_pages(mixed):
    jobs = mixed.all()
    ids = sorted(jobs)
    for name, (where, fits) in FILTERS.items():
        fitting = [job.id for job in jobs.values() if fits(job)]
        assert mixed.store.count_matching("mixed", where, limit=40) == (len(fitting), True), name
        between = sum(ids[5] < job_id < ids[30] for job_id in fitting)
        bounds = {"above": ids[5], "below": ids[30]}
        assert mixed.store.count_matching("mixed", where, limit=40, **bounds) == (between, True)


def test_a_count_examines_no_more_jobs_than_it_is_allowed_to(mixed):
    count = mixed.store.count_matching
    assert count("mixed", Filter(), limit=39) == (39, False)
    assert count("mixed", Filter(), limit=40) == (40, True)
    [n, exact] = count("mixed", Filter(categories=("AUTH",)), limit=20)
    assert n < 20
    assert not exact
    assert not count("mixed", Filter(text="try again"), limit=1).exact
    assert count("mixed", Filter(tenants=("nowhere",)), limit=1) == (0, True)


def test_a_filter_that_fits_no_job_selects_none(mixed):
    for where in (
        Filter(states=("NONE",)),
        Filter(states=("it's",)),
        Filter(states=("100%",)),
        Filter(states=("%s", "%(now)s", "{schema}", ":now")),
        Filter(tenants=()),
        Filter(tenants=("nobody",)),
        Filter(tenants=("it's %s",)),
        Filter(codes=("none",)),
        Filter(dedup_key="key"),
        Filter(dedup_key="key", tenants=("a",)),
        Filter(dedup_key="key4-2", tenants=()),
        Filter(dedup_key="key4-2", tenants=("z",)),
        Filter(contains="IZMIR"),
        Filter(contains="100%%"),
        Filter(contains="' OR 1=1 --"),
        Filter(text="__"),
        Filter(text="%%"),
        Filter(text="' OR 1=1 --"),
        Filter(created_from=NOW + DAY),
        Filter(created_before=NOW),
        Filter(moved_before=0),
    ):
        assert walk(mixed, where) == [], where


def test_a_filter_by_key_finds_jobs_that_no_longer_hold_it(task, oci):
    old = task.move("complete", task.claim_new_job(key="k"))
    new = task.create_job(key="k")
    for tenants in (None, ("default",)):
        where = Filter(dedup_key="k", tenants=tenants)
        assert [job.id for job in walk(task, where)] == [new, old.id]
    done = oci.move("ack", oci.claim_new_job(key="k", tenant="a"))
    oci.create_job(key="k", tenant="b")
    assert walk(oci, Filter(dedup_key="k", tenants=("a",), states=("COMPLETED", "FAILED"))) == [done]
    if not isinstance(oci.store, RedisStore):  # which goes by the index where no state lets go of a key
        assert [scene.store.statements(scene.queue).keeps_keys for scene in (oci, task)] == [True, False]


def test_a_queue_that_once_had_a_state_without_keys_still_finds_its_jobs(open_queue):
    before, after = (
        replace(version, states=tuple(replace(s, holds_key=s.name != "checking") for s in version.states))
        for version in (checking_lifecycle(), checking_lifecycle(retiring=True))
    )
    older = open_queue(before, "mixed")
    job = older.move("check", older.create_job(key="k"), **OPERATOR)
    newer = open_queue(after, "mixed")
    assert walk(newer, Filter(dedup_key="k", tenants=("default",))) == [job]
