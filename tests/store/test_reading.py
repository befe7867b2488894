"""Reading: one job, pages of jobs, counts and flows, pauses, and the store itself."""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import closing

import pytest

from kesin.lifecycle.task import task_lifecycle
from kesin.store.contract import Filter, Flow, Note, Pause, StoreError, UnknownQueue
from kesin.store.sqlite import SqliteStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.store.conftest import counted, listed
from tests.store.scene import DAY, HOUR, LEASE_S, NOBODY, NOW, OPERATOR, SECOND, Scene, error
from tests.store.traffic import traffic

NO_IDS = ["", "nope", "0" * 32, "' OR 1=1 --", "ü", "\x00"]


# One job


def test_a_job_is_read_whole(task):
    job = task.running(key="k", payload='{"a":1}')
    assert task.store.job(job.id) == job


def test_a_job_nobody_has_is_none(task):
    assert task.store.job(NOBODY) is None


@pytest.mark.parametrize("text", NO_IDS)
def test_an_id_that_is_none_has_no_job_no_events_and_no_notes(task, text):
    assert (task.store.job(text), task.events(text), task.notes(text)) == (None, [], [])


def test_events_come_in_the_order_they_happened(task):
    job = task.running()
    task.move("fail", job, **error())
    task.move("requeue", job.id, **OPERATOR)
    assert [(one.seq, one.move) for one in task.events(job)] == [
        (1, "enqueue"),
        (2, "claim"),
        (3, "fail"),
        (4, "requeue"),
    ]


def test_events_are_only_the_jobs_own(task):
    first, second = task.born(2)
    assert [one.job_id for one in task.events(first)] == [first]
    assert [one.job_id for one in task.events(second)] == [second]


def test_a_job_without_remarks_has_no_notes(task):
    assert task.notes(task.one()) == []


def test_a_remark_is_read_as_it_was_made(oci):
    job = oci.one(tenant="a")
    oci.store.add_note(
        "oci", kind="remark", actor="op", tenant="a", job_id=job, details='{"a":1}', now=NOW + 5
    )
    assert oci.notes(job) == [Note(job, NOW + 5, "remark", "op", '{"a":1}')]


def test_remarks_come_in_the_order_they_were_made(task):
    job = task.one()
    for kind in ("b", "a", "c"):
        task.store.add_note("task", kind=kind, actor="op", job_id=job, now=NOW)
    assert [one.kind for one in task.notes(job)] == ["b", "a", "c"]


def test_a_remark_on_the_queue_belongs_to_no_job(task):
    job = task.one()
    task.store.add_note("task", kind="remark", actor="op", now=NOW)
    assert task.notes(job) == []


def test_a_remark_changes_neither_the_job_nor_its_history(task):
    job = task.running()
    before = task.events(job)
    task.store.add_note("task", kind="remark", actor="op", job_id=job.id, now=NOW)
    assert (task.job(job), task.events(job)) == (job, before)


# Pages


def pages(scene, where=None, limit=100):
    """Every page of a listing, from the first to the last."""
    found, cursor = [], None
    for _ in range(1_000):
        page = scene.store.jobs(scene.queue, where or Filter(), limit=limit, cursor=cursor)
        found.append(page.jobs)
        cursor = page.cursor
        if cursor is None:
            return found
    raise AssertionError("the pages do not end")


def walk(scene, where=None, limit=100):
    return [job for page in pages(scene, where, limit) for job in page]


@pytest.fixture(scope="module")
def thousands(shared_store):
    """Two thousand jobs of four tenants in all five states, some of them claimed."""
    oci = Scene(shared_store, "thousands", oci_lifecycle())
    chance = random.Random(3)
    with oci.store.transaction():
        for _ in range(4):
            oci.enqueue(*(oci.new(tenant=chance.choice("abcd")) for _ in range(500)))
            oci.clock.advance(1)
        for call in ("ack", "ack_failed", "retry_later", ""):
            jobs = oci.claim(300)
            assert len(jobs) == 300
            if call:
                oci.apply(call, jobs, **error())
    return oci


def test_pages_hold_every_job_once_newest_first(thousands):
    expected = sorted(thousands.all().values(), key=lambda job: job.id, reverse=True)
    assert walk(thousands, limit=97) == expected


def test_pages_of_one_state_hold_exactly_its_jobs(thousands):
    everything = sorted(thousands.all().values(), key=lambda job: job.id, reverse=True)
    for state, size in {"QUEUED": 800, "PROCESSING": 300, "COMPLETED": 300}.items():
        expected = [job for job in everything if job.state == state]
        assert len(expected) == size
        assert walk(thousands, Filter(states=(state,)), limit=61) == expected


def test_pages_are_full_but_for_the_last(task):
    task.born(11)
    assert [len(page) for page in pages(task, limit=4)] == [4, 4, 3]


def test_no_job_is_missed_or_met_twice_while_jobs_move_between_pages(oci):
    ids = oci.born(60)
    seen, cursor = [], None
    while True:
        page = oci.store.jobs("oci", Filter(), limit=10, cursor=cursor)
        seen += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
        oci.apply("ack", oci.claim(4))
        oci.claim(3)
        oci.born(2)
    assert seen == ids[::-1]


def test_the_last_page_says_so_even_when_it_is_full(task):
    task.born(10)
    assert [len(page) for page in pages(task, limit=5)] == [5, 5]


def test_an_empty_queue_has_one_empty_page(task):
    assert pages(task) == [[]]


def test_a_page_holds_a_hundred_jobs_unless_told(task):
    task.born(101)
    assert len(task.store.jobs("task", Filter()).jobs) == 100


def test_a_page_shows_only_jobs_of_its_queue(task, pdf):
    pdf.one()
    assert walk(task) == []


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_bad_page_size_is_refused(task, limit):
    with pytest.raises(StoreError, match=f"a page holds 1…1000 jobs, got {limit}"):
        task.store.jobs("task", Filter(), limit=limit)


@pytest.mark.parametrize("cursor", NO_IDS)
def test_a_bad_cursor_is_refused(task, cursor):
    with pytest.raises(StoreError, match="is no cursor: take it from the page before"):
        task.store.jobs("task", Filter(), cursor=cursor)


@pytest.mark.parametrize("reading", ["jobs", "stats", "compact"])
def test_an_unknown_queue_is_refused_by_name(store, reading):
    calls = {
        "jobs": lambda: store.jobs("nope", Filter()),
        "stats": lambda: store.stats("nope", now=NOW),
        "compact": lambda: store.compact("nope"),
    }
    with pytest.raises(UnknownQueue, match="'nope'"):
        calls[reading]()


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
            oci.one(tenant="abc"[n % 3], key=f"key{n % 10}-{n // 10}", payload=payload)
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
    "one tenant": (Filter(tenants=("b",)), lambda j: j.tenant == "b"),
    "several tenants": (Filter(tenants=("a", "c", "z")), lambda j: j.tenant in "ac"),
    "one code": (Filter(codes=("UPLOAD",)), lambda j: j.error_code == "UPLOAD"),
    "several codes": (
        Filter(codes=("UPLOAD", "TOKEN", "other")),
        lambda j: j.error_code in ("UPLOAD", "TOKEN"),
    ),
    "a category": (Filter(categories=("AUTH",)), lambda j: j.error_category == "AUTH"),
    "several categories": (
        Filter(categories=("AUTH", "VALIDATION")),
        lambda j: j.error_category in ("AUTH", "VALIDATION"),
    ),
    "born from": (Filter(created_from=MIDDLE), lambda j: j.created_at >= MIDDLE),
    "born before": (Filter(created_before=MIDDLE), lambda j: j.created_at < MIDDLE),
    "moved before": (Filter(moved_before=MIDDLE), lambda j: j.moved_at < MIDDLE),
    "a key": (Filter(dedup_key="key4-2"), lambda j: j.dedup_key == "key4-2"),
    "a key of a tenant": (
        Filter(dedup_key="key4-2", tenants=("a", "b", "c", "z")),
        lambda j: j.dedup_key == "key4-2",
    ),
    "part of the payload": (Filter(contains='"n":1'), lambda j: '"n":1' in j.payload),
    "part of the payload, by the letter": (
        Filter(contains="izmir"),
        lambda j: "izmir" in j.payload,
    ),
    "Turkish letters of the payload": (
        Filter(contains="İzmir", states=("QUEUED",)),
        lambda j: "İzmir" in j.payload and j.state == "QUEUED",
    ),
    "signs of the payload": (Filter(contains="100%_"), lambda j: "100%_" in j.payload),
    "some words": (Filter(text="try again"), lambda j: "try again" in (j.error_message or "")),
    "words in other letters": (
        Filter(text="UPLOAD_FAILED"),
        lambda j: "Upload_failed" in (j.error_message or ""),
    ),
    "words in other Turkish letters": (
        Filter(text="şablon"),
        lambda j: "ŞABLON" in (j.error_message or ""),
    ),
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


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_finds_exactly_the_jobs_it_describes(mixed, name):
    where, fits = FILTERS[name]
    expected = sorted((job.id for job in mixed.all().values() if fits(job)), reverse=True)
    assert 0 < len(expected) < 40, "the filter does not divide these jobs"
    assert [job.id for job in walk(mixed, where, limit=7)] == expected


@pytest.mark.parametrize(
    "where",
    [
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
    ],
    ids=str,
)
def test_a_filter_that_fits_nobody_finds_nobody(mixed, where):
    assert walk(mixed, where) == []


def test_a_filter_by_key_finds_jobs_that_no_longer_hold_it(task):
    old = task.move("complete", task.running(key="k"))
    new = task.one(key="k")
    for tenants in (None, ("default",)):
        where = Filter(dedup_key="k", tenants=tenants)
        assert [job.id for job in walk(task, where)] == [new, old.id]


@pytest.mark.sql
def test_a_filter_by_key_and_tenant_goes_by_the_index_where_no_state_lets_go_of_it(oci, pdf):
    assert oci.store.statements("oci").keys_kept
    assert not pdf.store.statements("pdf").keys_kept
    done = oci.move("ack", oci.running(key="k", tenant="a"))
    oci.one(key="k", tenant="b")
    where = Filter(dedup_key="k", tenants=("a",), states=("COMPLETED", "FAILED"))
    assert walk(oci, where) == [done]


def test_a_queue_that_once_had_a_state_without_keys_still_finds_its_jobs(store, open_queue):
    older = open_queue(task_lifecycle(), "mixed")
    done = older.move("complete", older.running(key="k"))
    oci = open_queue(oci_lifecycle(), "mixed")
    assert [job.id for job in walk(oci, Filter(dedup_key="k", tenants=("default",)))] == [done.id]


# Counts


@pytest.mark.parametrize(
    "lifecycle",
    [task_lifecycle(), oci_lifecycle(), pdf_lifecycle(), optiplan_lifecycle()],
    ids=lambda one: one.name,
)
def test_counts_are_right_after_random_traffic(open_queue, lifecycle):
    scene = open_queue(lifecycle)
    for seed in (1, 2):
        traffic(scene, random.Random(seed), steps=60)
        assert counted(scene.store, scene.queue) == listed(scene.store, scene.queue)
        scene.store.compact(scene.queue)
    assert counted(scene.store, scene.queue) == listed(scene.store, scene.queue)
    assert sum(listed(scene.store, scene.queue).values()) > 20


def test_every_state_is_counted_even_when_it_is_empty(oci):
    oci.one()
    assert oci.store.stats("oci", now=NOW).states == {
        "QUEUED": 1,
        "RETRY": 0,
        "PROCESSING": 0,
        "COMPLETED": 0,
        "FAILED": 0,
    }


def test_tenants_are_counted_apart(oci):
    oci.move("ack", oci.running(tenant="b"))
    oci.born(2, tenant="a")
    tenants = oci.store.stats("oci", now=NOW).tenants
    assert {name: {s: n for s, n in states.items() if n} for name, states in tenants.items()} == {
        "a": {"QUEUED": 2},
        "b": {"COMPLETED": 1},
    }


def test_the_total_is_all_jobs_in_the_store(oci):
    oci.move("ack", oci.running())
    oci.born(3)
    assert oci.store.stats("oci", now=NOW).total == 4


def test_an_empty_queue_counts_nothing(oci):
    stats = oci.store.stats("oci", now=NOW)
    assert (stats.total, stats.tenants, stats.oldest_due_at, stats.lease_over) == (0, {}, None, 0)


def test_counts_are_of_one_queue(oci, task):
    task.born(2)
    assert oci.store.stats("oci", now=NOW).total == 0


def test_the_oldest_due_job_is_told_among_all_tenants(oci):
    oci.one(tenant="a", run_at=NOW - 5)
    oci.one(tenant="b", run_at=NOW - HOUR)
    oci.one(tenant="c", run_at=NOW + HOUR)
    assert oci.store.stats("oci", now=NOW).oldest_due_at == NOW - HOUR


def test_jobs_for_later_and_claimed_jobs_are_not_due(oci):
    oci.running(run_at=NOW - HOUR)
    oci.one(run_at=NOW + 1)
    assert oci.store.stats("oci", now=NOW).oldest_due_at is None
    assert oci.store.stats("oci", now=NOW + 1).oldest_due_at == NOW + 1


def test_claims_past_their_lease_are_counted(oci):
    oci.claimed(2)
    until = NOW + LEASE_S * SECOND
    overdue = [oci.store.stats("oci", now=now).lease_over for now in (until - 1, until)]
    assert overdue == [0, 2]


def test_the_counts_say_what_time_it_was(oci):
    assert oci.store.stats("oci", now=NOW + 7).now == NOW + 7


def test_flows_count_every_move_by_tenant(oci):
    oci.move("ack", oci.running(tenant="a"))
    oci.born(2, tenant="b")
    assert oci.store.flows("oci") == [
        Flow("a", "ack", "PROCESSING", "COMPLETED", 1, NOW),
        Flow("a", "claim", "QUEUED", "PROCESSING", 1, NOW),
        Flow("a", "enqueue", "", "QUEUED", 1, NOW),
        Flow("b", "enqueue", "", "QUEUED", 2, NOW),
    ]


def test_a_flow_says_when_it_last_moved_and_compacting_keeps_it(oci):
    jobs = oci.claimed(3)
    for job, late in zip(jobs, (0, 20, 0), strict=True):
        oci.clock.advance(late)
        oci.move("ack", job)
    oci.clock.advance(5)
    oci.one()
    for _ in range(2):
        at = {flow.move: flow.at - NOW for flow in oci.store.flows("oci")}
        assert at == {"enqueue": 25 * SECOND, "claim": 0, "ack": 20 * SECOND}
        oci.store.compact("oci")


def test_flows_are_the_events_counted(optiplan):
    traffic(optiplan, random.Random(4), steps=80)
    counts = Counter(
        (job.tenant, event.move, event.from_state, event.to_state)
        for job, events in optiplan.store.scan("optiplan")
        for event in events
    )
    assert {flow[:4]: flow.n for flow in optiplan.store.flows("optiplan")} == counts


def test_compacting_keeps_every_sum(oci):
    for _ in range(5):
        oci.apply("ack", oci.claimed(3))
    before = oci.store.flows("oci")
    oci.store.compact("oci")
    assert oci.store.flows("oci") == before


def test_compacting_again_folds_nothing(oci):
    for _ in range(5):
        oci.apply("ack", oci.claimed(3))
    oci.store.compact("oci")
    assert oci.store.compact("oci") == 0


def test_compacting_leaves_other_queues_alone(oci, task):
    for _ in range(3):
        task.one()
    before = task.store.flows("task")
    oci.store.compact("oci")
    assert task.store.flows("task") == before


def test_counting_goes_on_after_compacting(oci):
    oci.born(3)
    oci.store.compact("oci")
    oci.born(2)
    assert oci.counts() == {"QUEUED": 5}


# Pauses


def test_a_pause_says_who_and_why(oci):
    oci.store.pause("oci", actor="op", reason="Google is down", now=NOW)
    oci.store.pause("oci", tenant="a", actor="boss", now=NOW + 1)
    assert oci.store.paused("oci") == [
        Pause("oci", "", NOW, "op", "Google is down"),
        Pause("oci", "a", NOW + 1, "boss", None),
    ]


def test_a_queue_paused_twice_is_resumed_once(oci):
    for _ in range(2):
        oci.store.pause("oci", actor="op", now=NOW)
    assert [oci.store.resume("oci") for _ in range(2)] == [True, False]
    assert oci.store.paused("oci") == []


def test_resuming_what_is_not_paused_is_no_mistake(oci):
    oci.store.pause("oci", tenant="a", actor="op", now=NOW)
    assert oci.store.resume("oci", tenant="b") is False
    assert len(oci.store.paused("oci")) == 1


def test_pauses_of_another_queue_are_not_shown(oci, task):
    oci.store.pause("oci", actor="op", now=NOW)
    assert task.store.paused("task") == []


# The whole


def test_a_scan_brings_every_job_with_its_events(oci, task):
    ids = oci.born(3)
    task.one()
    oci.claim(2)
    assert [(job.id, len(events)) for job, events in oci.store.scan("oci")] == list(
        zip(ids, [2, 2, 1], strict=True)
    )


def test_a_scan_may_be_left_early(oci):
    oci.born(3)
    scan = oci.store.scan("oci")
    next(scan)
    scan.close()
    assert len(oci.claim(3)) == 3


def test_the_queues_ever_opened_are_known(store, open_queue):
    for name in ("pdf", "oci"):
        open_queue(task_lifecycle(), name)
    assert store.queues() == ["oci", "pdf"]


def test_opening_a_queue_again_changes_nothing(task):
    job = task.running()
    task.store.open("task", task.lifecycle)
    assert task.store.queues() == ["task"]
    assert task.move("complete", job).state == "done"


def test_a_queue_opened_under_richer_rules_keeps_its_jobs_and_old_moves(store, open_queue):
    job = open_queue(pdf_lifecycle(), "mixed").one()
    open_queue(task_lifecycle(), "mixed")
    scene = open_queue(pdf_lifecycle(), "mixed")
    assert [one.id for one in scene.claim()] == [job]


def test_health_names_the_store_its_version_and_its_size(store):
    health = store.health()
    assert health["store"] in ("sqlite", "postgres", "redis")
    assert str(health["version"])[0].isdigit()
    assert int(health["bytes"]) > 0


@pytest.mark.sql
def test_a_sqlite_file_keeps_a_write_ahead_log(store):
    health = store.health()
    if health["store"] != "sqlite":
        assert int(health["oldest_snapshot_s"]) >= 0
    else:
        assert health["journal"] == ("memory" if health["path"] == ":memory:" else "wal")


def test_readers_of_ended_threads_are_closed(tmp_path):
    with closing(SqliteStore(tmp_path / "k.db")) as store:
        for _ in range(20):
            thread = threading.Thread(target=store.ping)
            thread.start()
            thread.join()
        assert len(store._readers) == 1
