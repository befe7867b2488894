"""Queues copied from store to store: nothing is lost or changed, and the copy is verified."""

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.replay import verify
from kesin.engine.transfer import queue_copy
from kesin.engine.transfer.copy import copy_queues
from kesin.engine.transfer.queue_copy import ACTOR, CopyRefused, NamedStore
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import GuardRefused
from kesin.store.records import Outcome
from kesin.store.rules import UpgradeRefused
from kesin.store.transfer import copier_for
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.engine.conftest import PATIENCE_S
from tests.store.checking import checking_lifecycle
from tests.store.conftest import empty, opened
from tests.store.model.lockstep import Lockstep
from tests.store.model.test_histories import Chance
from tests.store.scene import DAY

SEEDS = {"oci": 0, "pdf": 2, "optiplan": 1}  # these reach every state soon
LONG = pytest.mark.long
# SQLite and PostgreSQL are written by the same code.
into_each = pytest.mark.parametrize("kind", ["redis", "postgres", pytest.param("sqlite-file", marks=LONG)])
RULES: dict[str, Callable[[], Lifecycle]] = {"oci": oci_lifecycle, "pdf": pdf_lifecycle, "optiplan": optiplan_lifecycle}


@pytest.fixture(scope="module")
def postgres(request):
    """A schema shared by all tests: emptying it is quicker than creating one."""
    with opened("postgres", request) as store:
        yield store


@pytest.fixture
def new_store(request):
    """Creates empty stores: ``new_store("redis")``."""
    with ExitStack() as stack:

        def make(kind):
            if kind != "postgres":
                return NamedStore(stack.enter_context(opened(kind, request)), kind)
            store = request.getfixturevalue("postgres")
            stack.callback(empty, store)
            stack.callback(store._rows, f"DELETE FROM {store.dialect.table('fact')}", {})
            return NamedStore(store, kind)

        yield make


def copy_pdf(source, target, **options):
    return copy_queues(source, target, {"pdf": pdf_lifecycle()}, **options)[0]


def pdf_queue(named, jobs=0):
    named.store.open("pdf", pdf_lifecycle(), virtual_time=True)  # ``prune`` is ahead of the clock
    queue = Queue("pdf", pdf_lifecycle(), named.store)
    queue.enqueue_many([NewJob(n, f"k{n}") for n in range(jobs)])
    return queue


def pause_reasons(named):
    return [pause.reason for pause in named.store.paused("pdf")]


def fill(store, name):
    """Give a queue a long history that reaches every state and leaves no job claimed."""
    lockstep = Lockstep(name, RULES[name](), {name: store}, SEEDS[name])
    chance = Chance(SEEDS[name], lockstep, [], Counter())
    wanted = set(lockstep.lifecycle.state)
    while not wanted <= {flow.to_state for flow in store.move_counts(name)}:
        for _ in range(50):
            chance.step()
    for pause in store.paused(name):
        store.resume(name, tenant=pause.tenant)
    for move in lockstep.lifecycle.scheduled_moves:
        if move.guard("lease_over"):
            store.sweep(name, move, limit=1_000, now=lockstep.now + 9 * DAY)
        if move.prunes:
            store.sweep(name, move, limit=3, now=lockstep.now + 400 * DAY)


def contents(store, queue):
    """All histories and counters of a queue, sorted."""
    copier = copier_for(store, queue)
    ids, cursor = [], None
    while True:
        heads, cursor = copier.job_versions(queue, cursor, 7)
        ids += [head.id for head in heads]
        if cursor is None:
            break
    assert len(ids) == len(set(ids))
    histories = [history._replace(slot=None) for history in copier.histories(queue, ids)]
    return sorted(histories), sorted(store.move_counts(queue))  # Redis names no slots


def prune(store):
    """Prune all finished jobs; how many there were."""
    late = max(job.created_at for job, _ in store.scan("pdf")) + 400 * DAY
    moves = [move for move in pdf_lifecycle().scheduled_moves if move.prunes]
    return sum(store.sweep("pdf", move, limit=100, now=late) for move in moves)


@pytest.mark.parametrize("names", [("oci",), pytest.param(tuple(RULES), marks=LONG)])
def test_queues_are_copied_through_all_stores_unchanged(new_store, monkeypatch, names):
    monkeypatch.setattr(queue_copy, "BATCH", 30)
    ring = [new_store(kind) for kind in ("sqlite-file", "postgres", "redis", "sqlite-memory")]
    rules = {name: RULES[name]() for name in names}
    for name in names:
        fill(ring[0].store, name)
        ring[0].store.pause(name, tenant="b", actor="op", reason="holiday", now=9)
    before = {name: contents(ring[0].store, name) for name in names}
    stats = {name: ring[0].store.stats(name, now=1) for name in names}
    assert all(any(history.notes for history in histories) for histories, _ in before.values())
    assert any(not flow.to_state for _, flows in before.values() for flow in flows), "pruned jobs"
    phases = {history.job.phase for histories, _ in before.values() for history in histories}
    assert phases >= {0, 2, 3}
    digests = set()
    for source, target in pairwise(ring):
        for result in copy_queues(source, target, rules):
            name = result.queue
            assert result.jobs == len(before[name][0])
            digests.add((name, result.events, result.notes, result.digest))
            assert contents(target.store, name) == before[name]
            assert target.store.stats(name, now=1) == stats[name]
            verified = verify(target.store, name)
            assert verified
            assert verified.counters == "agree"
            pauses = [(pause.tenant, pause.reason) for pause in target.store.paused(name)]
            assert pauses == [("b", "holiday")]
            [pause] = [pause for pause in source.store.paused(name) if not pause.tenant]
            assert (pause.actor, pause.reason) == (ACTOR, f"moved to {target.name}")
    assert len(digests) == len(names), "the same in every store"


@pytest.mark.parametrize(
    "kinds", [("postgres", "redis"), ("redis", "sqlite-file"), pytest.param(("sqlite-file", "postgres"), marks=LONG)]
)
def test_a_copy_brings_the_versions_of_the_rules_and_the_retired_states(new_store, kinds):
    """So the moves of then are accounted for in the target, and its upgrades start from there."""
    source, target = map(new_store, kinds)
    queue = Queue("checked", checking_lifecycle(), source.store)
    job = queue.enqueue({}).id
    assert queue.act("check", ids=[job], actor="op").moved == 1
    queue = Queue("checked", checking_lifecycle(retiring=True), source.store)
    assert queue.act("checked", ids=[job], actor="op").moved == 1
    queue.retire("checking")
    latest = {"checked": task_lifecycle()}
    Queue("checked", latest["checked"], source.store)
    copy_queues(source, target, latest)
    assert target.store.rules("checked") == source.store.rules("checked")
    assert target.store.retired_states("checked") == {"checking"}
    assert [str(difference) for difference in verify(target.store, "checked").differences] == []
    with pytest.raises(UpgradeRefused, match="checking was retired"):
        target.store.open("checked", replace(checking_lifecycle(), flags=("again",)))
    assert [claimed.id for claimed in Queue("checked", latest["checked"], target.store).claim("w")]


def test_a_target_keeps_the_rules_it_has(new_store):
    source, target = new_store("sqlite-memory"), new_store("sqlite-file")
    pdf_queue(source, 1)
    target.store.open("pdf", pdf_lifecycle())
    before = target.store.rules("pdf")
    copy_pdf(source, target)
    assert target.store.rules("pdf") == before


def test_a_moved_queue_keeps_working_and_may_be_moved_back(new_store):
    """The old store gets its queue back, with all later moves."""
    old, new = new_store("sqlite-file"), new_store("redis")
    pdf_queue(old, 5)
    copy_pdf(old, new)
    queue = pdf_queue(new)
    jobs = [job.id for job in queue.jobs().jobs]
    assert queue.act("cancel", ids=jobs, actor="op").moved == 5
    with pytest.raises(CopyRefused, match="redis is ahead of sqlite-file"):
        copy_pdf(old, new)
    queue.enqueue({"n": 5})
    after = contents(new.store, "pdf")
    copy_pdf(new, old)
    assert contents(old.store, "pdf") == after
    assert pause_reasons(old) == []
    with pytest.raises(CopyRefused, match="was moved to sqlite-file"):
        copy_pdf(new, new_store("postgres"))


@pytest.mark.parametrize("kinds", [("sqlite-file", "redis"), ("redis", "postgres")])
def test_jobs_that_change_during_the_copy_are_copied_in_their_last_state(new_store, kinds, monkeypatch):
    """Keys pass to other jobs meanwhile: an outdated copy does not block the new holder."""
    monkeypatch.setattr(queue_copy, "BATCH", 20)
    source, target = map(new_store, kinds)
    queue = pdf_queue(source, 60)
    reported: Counter[str] = Counter()
    jobs = {job.dedup_key: job.id for job in queue.jobs(limit=60).jobs}

    def progress(stage, more):
        if not reported:
            for number in range(0, 60, 3):
                key = f"k{number}"
                assert queue.act("cancel", ids=[jobs[key]], actor="op").moved == 1
                assert queue.enqueue({"late": number}, key=key).result == "inserted"
                queue.store.add_note("pdf", kind="k", actor="op", job_id=jobs[f"k{number + 1}"])
            assert prune(source.store) == 20
        reported[stage] += more

    copied = copy_pdf(source, target, progress=progress)
    assert (copied.jobs, copied.notes) == (60, 20)
    assert copied.passes > 1
    assert reported["proved"] == 60 <= reported["copied"] <= 80, "in any number of passes"
    assert contents(target.store, "pdf") == contents(source.store, "pdf")
    assert pdf_queue(target).enqueue({}, key="k3").result == "duplicate"


@into_each
def test_an_interrupted_copy_can_be_repeated(new_store, kind, monkeypatch):
    monkeypatch.setattr(queue_copy, "BATCH", 10)
    source, target = new_store("sqlite-memory"), new_store(kind)
    queue, reported = pdf_queue(source, 40), []

    def interrupt(_stage, jobs):
        reported.append(jobs)
        if len(reported) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_pdf(source, target, progress=interrupt)
    assert pause_reasons(source) == [], "it keeps working"
    assert pause_reasons(target) == ["being filled from sqlite-memory"]
    assert len(contents(target.store, "pdf")[0]) == 30
    gone = queue.jobs(limit=40).jobs[-1].id
    queue.act("cancel", ids=[gone], actor="op")
    assert queue.enqueue({}, key="k0").result == "inserted"
    assert prune(source.store) == 1
    assert target.store.job(gone), "the earlier copy brought it"
    reason_after_a_crash = f"being copied to {kind}; if no copy is under way, resume it"
    source.store.pause("pdf", actor=ACTOR, reason=reason_after_a_crash)
    assert copy_pdf(source, target).jobs == 40
    assert contents(target.store, "pdf") == contents(source.store, "pdf")
    assert pause_reasons(target) == []


@pytest.mark.parametrize("stage", ["copied", "proved"])
@into_each
def test_a_job_enqueued_in_the_target_survives(new_store, kind, stage, monkeypatch):
    """Even if its key belongs to a job of the source."""
    monkeypatch.setattr(queue_copy, "BATCH", 10)
    source, target = new_store("sqlite-memory"), new_store(kind)
    pdf_queue(source, 20)
    queue = pdf_queue(target)
    outcomes: list[Outcome] = []

    def enqueue_in_target(current, _jobs):
        if current == stage and not outcomes:
            outcomes.extend([queue.enqueue({}, key="k19"), queue.enqueue({}, key="other")])

    with pytest.raises(CopyRefused) as raised:
        copy_pdf(source, target, progress=enqueue_in_target)
    accepted = [outcome.id for outcome in outcomes if outcome.result == "inserted"]
    assert len(accepted) == (2 if stage == "copied" else 1)
    refusal = f"{kind} has jobs of pdf that sqlite-memory does not have: {len(accepted)}, such as "
    assert str(raised.value).startswith(refusal)
    assert any(job_id in str(raised.value) for job_id in accepted)
    assert pause_reasons(source) == [], "it keeps working"
    before = contents(target.store, "pdf")
    assert set(accepted) <= {history.job.id for history in before[0]}
    created = sum(flow.n for flow in before[1] if not flow.from_state)
    assert created == len(accepted), "their creation is counted"
    with pytest.raises(CopyRefused, match="does not have"):
        copy_pdf(source, target)
    assert contents(target.store, "pdf") == before
    assert pause_reasons(source) == []


@into_each
def test_of_two_concurrent_copies_the_later_continues(new_store, kind, monkeypatch):
    monkeypatch.setattr(queue_copy, "BATCH", 10)
    source, target = new_store("sqlite-memory"), new_store(kind)
    other, empty_source = (NamedStore(new_store("sqlite-memory").store, name) for name in "oe")
    pdf_queue(source, 20)
    pdf_queue(other, 1)
    begun, overtaken = threading.Event(), threading.Event()
    late_ids: list[str] = []

    def stop(_stage, _jobs):
        raise KeyboardInterrupt

    def copy_meanwhile():
        with pytest.raises(KeyboardInterrupt):
            copy_pdf(source, target, progress=stop)

    with pytest.raises(CopyRefused, match="another copy into pdf"):
        copy_pdf(empty_source, target, copy_other_data=copy_meanwhile)
    assert pause_reasons(empty_source) == [], "the later copy has another source"

    def be_overtaken(_stage, _jobs):
        begun.set()
        assert overtaken.wait(PATIENCE_S)

    def overtake(_stage, _jobs):
        overtaken.set()
        assert "another copy into pdf" in str(earlier.exception(PATIENCE_S))
        assert pause_reasons(source), "for the later copy"
        raise KeyboardInterrupt

    with ThreadPoolExecutor() as pool:
        earlier = pool.submit(copy_pdf, source, target, progress=be_overtaken)
        assert begun.wait(PATIENCE_S)
        with pytest.raises(KeyboardInterrupt):
            copy_pdf(source, target, progress=overtake)
    assert pause_reasons(source) == []

    def copy_from_elsewhere(_stage, _jobs):
        with pytest.raises(CopyRefused, match="does not have"):
            copy_pdf(other, target)

    copied = copy_pdf(source, target, keep_source_running=True, progress=copy_from_elsewhere)
    assert copied.jobs == 20
    assert pause_reasons(other) == pause_reasons(source) == []

    def move_first(_stage, _jobs):
        if not late_ids:
            copy_pdf(source, target)
            late_ids.append(pdf_queue(target).enqueue({}).id)

    with pytest.raises(CopyRefused, match="another copy into pdf"):
        copy_pdf(source, target, progress=move_first)
    assert target.store.job(late_ids[0]), "accepted where the queue is now"
    assert pause_reasons(target) == []
    assert pause_reasons(source) == [f"moved to {kind}"]


def test_a_refused_copy_changes_nothing(new_store):
    source, target = new_store("sqlite-memory"), new_store("redis")
    queue = pdf_queue(source, 2)
    pdf_queue(target, 1)
    with pytest.raises(CopyRefused, match="redis has jobs of pdf that sqlite-memory does not have"):
        copy_pdf(source, target)
    with pytest.raises(CopyRefused, match="the same store"):
        copy_pdf(source, NamedStore(source.store, "elsewhere"))
    [job] = queue.claim(worker="w", limit=1)
    with pytest.raises(CopyRefused, match="claimed jobs of pdf: 1"):
        copy_pdf(source, new_store("sqlite-memory"))
    assert pause_reasons(source) == []
    assert len(contents(target.store, "pdf")[0]) == 1

    def finish(_seconds):
        queue.move(job, "succeed")

    copy = new_store("sqlite-file")
    assert copy_pdf(source, copy, wait_s=1, idle=finish, keep_source_running=True).jobs == 2
    assert len(queue.claim(worker="w", limit=1)) == 1, "the source keeps working, the copy is paused"
    assert copy.store.claim("pdf", worker="w", limit=1, lease_us=1) == []
    assert pause_reasons(copy) == ["a copy of sqlite-memory"]


@pytest.mark.parametrize("kind", ["sqlite-file", "postgres"])
def test_the_guard_is_off_only_within_the_transaction_of_a_copy(new_store, kind):
    """Rows written by hand are refused after a copy, and no setting turns the guard off."""
    source, target = new_store("redis"), new_store(kind)
    pdf_queue(source, 1)
    copy_pdf(source, target)
    store, table = target.store, target.store.dialect.table
    [(job, _)] = store.scan("pdf")
    copier: Any = copier_for(store, "pdf")
    wrong = (GuardRefused, sqlite3.IntegrityError, psycopg.errors.IntegrityError)
    delete = f"DELETE FROM {table('job')}"
    for attack in (
        f"UPDATE {table('job')} SET state = 'done'",
        f"INSERT INTO {table('event')} SELECT * FROM {table('event')}",
        f"UPDATE {table('job_body')} SET payload = '2'",
    ):
        with pytest.raises(wrong), store.transaction():
            store._rows(attack, {})
        with pytest.raises(wrong), store.transaction(), copier._copying("pdf"):
            store._rows(attack, {})
    [history] = copier.histories("pdf", [job.id])
    undeclared = [history.events[0]._replace(to_state="done")]
    for crafted in ({"events": undeclared}, {"job": job._replace(queue="other")}):
        with pytest.raises(wrong):
            copier.put("pdf", [history._replace(**crafted)])
    with pytest.raises(wrong), store.transaction():
        store._rows(delete, {})
    if kind == "sqlite-file":
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"), store.transaction():
            store._rows("INSERT INTO copying (queue) VALUES ('pdf')", {})
        with closing(sqlite3.connect(store.path)) as raw, pytest.raises(sqlite3.IntegrityError):
            raw.execute("INSERT INTO copying (queue) VALUES ('pdf')")
    else:
        with store.transaction():
            for name, value in (("copying", "txid_current()::text"), ("copied_queue", "'pdf'")):
                store._rows(f"SELECT set_config('kesin.{name}', {value}, false)", {})
    with pytest.raises(wrong), store.transaction():
        store._rows(delete, {})
    assert store.job(job.id) == job
