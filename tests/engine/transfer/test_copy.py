"""Queues taken from store to store: nothing is lost, nothing is changed, and it is proved."""

import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import pairwise

import psycopg
import pytest

from kesin.engine.queue import New, Queue
from kesin.engine.replay import verify
from kesin.engine.transfer import queue_copy
from kesin.engine.transfer.copy import CopyRun, copy_queue
from kesin.engine.transfer.copy_pauses import ACTOR
from kesin.engine.transfer.queue_copy import CopyRefused, NamedStore
from kesin.engine.worker import Worker
from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.store.transfer import copier_for
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.engine.conftest import PATIENCE_S
from tests.store.conftest import opened
from tests.store.model.lockstep import Lockstep
from tests.store.model.test_histories import Chance
from tests.store.scene import DAY

SEEDS = {"oci": 0, "pdf": 2, "optiplan": 1}  # they get everywhere soon
RULES = {"oci": oci_lifecycle, "pdf": pdf_lifecycle, "optiplan": optiplan_lifecycle}


@pytest.fixture
def place(request):
    """Makes empty stores: ``place("redis")``."""
    with ExitStack() as stack:
        yield lambda kind: NamedStore(stack.enter_context(opened(kind, request)), kind)


def filled(store, name):
    """A queue with a long history, in which every state was reached and nobody holds a job."""
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


def everything(store, queue):
    """All that a store knows about a queue, in one order."""
    copier = copier_for(store, queue)
    ids, cursor = [], None
    while True:
        heads, cursor = copier.job_versions(queue, cursor, 7)
        ids += [head.id for head in heads]
        if cursor is None:
            break
    assert len(ids) == len(set(ids))
    return sorted(copier.histories(queue, ids)), sorted(store.move_counts(queue))


def prune(store):
    """Whatever is over is forgotten; how many jobs."""
    late = max(job.created_at for job, _ in store.scan("pdf")) + 400 * DAY
    moves = [move for move in pdf_lifecycle().scheduled_moves if move.prunes]
    return sum(store.sweep("pdf", move, limit=100, now=late) for move in moves)


def test_three_lifecycles_go_round_all_stores_and_come_back_the_same(place, monkeypatch):
    monkeypatch.setattr(queue_copy, "BATCH", 30)
    ring = [place(kind) for kind in ("sqlite-file", "postgres", "redis", "sqlite-memory")]
    rules = {name: make() for name, make in RULES.items()}
    states, pruned = set(), set()
    for name in RULES:
        filled(ring[0].store, name)
        ring[0].store.pause(name, tenant="b", actor="op", reason="holiday", now=9)
    before = {name: everything(ring[0].store, name) for name in RULES}
    stats = {name: ring[0].store.stats(name, now=1) for name in RULES}
    for histories, flows in before.values():
        assert any(history.notes for history in histories)
        pruned |= {flow.move for flow in flows if not flow.to_state}
        states |= {one.job.phase for one in histories}
    assert pruned
    assert states >= {0, 2, 3}
    digests = []
    for source, target in pairwise(ring):
        copied = CopyRun(source, target, rules).run()
        digests.append({one.queue: (one.jobs, one.events, one.notes, one.digest) for one in copied})
        for name in RULES:
            assert everything(target.store, name) == before[name]
            assert target.store.stats(name, now=1) == stats[name]
            assert verify(target.store, name).counters == "agree"
            assert verify(target.store, name)
            assert [(pause.tenant, pause.reason) for pause in target.store.paused(name)] == [
                ("b", "holiday")
            ]
            left = next(pause for pause in source.store.paused(name) if not pause.tenant)
            assert (left.actor, left.reason) == (ACTOR, f"moved to {target.name}")
    assert digests[0] == digests[1] == digests[2]
    assert [one[0] for one in digests[0].values()] == [len(before[name][0]) for name in digests[0]]


def test_what_arrives_works_on_and_may_go_back(place):
    """The old home takes its queue back, with what happened meanwhile."""
    old, new = place("sqlite-file"), place("redis")
    old.store.open("task", task_lifecycle())
    Queue("task", task_lifecycle(), old.store).enqueue_many([New(n) for n in range(5)])
    copy_queue(old, new, "task", task_lifecycle())
    queue = Queue("task", task_lifecycle(), new.store)
    assert Worker(queue, lambda _job: None).drain() == 5
    with pytest.raises(CopyRefused, match="redis is further than sqlite-file"):
        copy_queue(old, new, "task", task_lifecycle())
    queue.enqueue({"n": 5})
    after = everything(new.store, "task")
    copy_queue(new, old, "task", task_lifecycle())
    assert everything(old.store, "task") == after
    assert old.store.paused("task") == []
    with pytest.raises(CopyRefused, match="was moved to sqlite-file"):
        copy_queue(new, place("postgres"), "task", task_lifecycle())


@pytest.mark.parametrize("kinds", [("sqlite-file", "redis"), ("redis", "postgres")])
def test_jobs_that_come_and_end_during_the_copy_arrive_as_they_are_last(place, kinds, monkeypatch):
    """Keys change hands meanwhile: an outdated copy does not keep the new holder out."""
    monkeypatch.setattr(queue_copy, "BATCH", 20)
    source, target = map(place, kinds)
    queue = Queue("pdf", pdf_lifecycle(), source.store)
    queue.enqueue_many([New(n, f"k{n}") for n in range(60)])
    jobs = {job.dedup_key: job.id for job in queue.jobs(limit=60).jobs}
    begun, enough = threading.Event(), threading.Event()

    def bustle():
        assert begun.wait(PATIENCE_S)
        for number in range(0, 60, 3):
            key = f"k{number}"
            assert queue.act("cancel", ids=[jobs[key]], actor="op").moved == 1
            assert queue.enqueue({"late": number}, key=key).result == "inserted"
            queue.store.add_note("pdf", kind="said", actor="op", job_id=jobs[f"k{number + 1}"])
        assert prune(source.store) == 20
        enough.set()

    reported = Counter()

    def progress(stage, jobs):
        reported[stage] += jobs
        begun.set()
        assert enough.wait(PATIENCE_S)

    other = threading.Thread(target=bustle)
    other.start()
    copied = copy_queue(source, target, "pdf", pdf_lifecycle(), progress=progress)
    other.join(PATIENCE_S)
    assert (copied.jobs, copied.notes) == (60, 20)
    assert copied.passes > 1
    assert reported["proved"] == 60 <= reported["copied"] <= 80, "however many passes"
    assert everything(target.store, "pdf") == everything(source.store, "pdf")
    late = Queue("pdf", pdf_lifecycle(), target.store).enqueue({}, key="k3")
    assert late.result == "duplicate"


@pytest.mark.parametrize("kind", ["postgres", "redis", "sqlite-file"])
def test_a_copy_that_was_broken_off_is_run_again(place, kind, monkeypatch):
    monkeypatch.setattr(queue_copy, "BATCH", 10)
    source, target = place("sqlite-memory"), place(kind)
    queue = Queue("pdf", pdf_lifecycle(), source.store)
    queue.enqueue_many([New(n, f"k{n}") for n in range(40)])
    seen = []

    def die(stage, jobs):
        seen.append(jobs)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_queue(source, target, "pdf", pdf_lifecycle(), progress=die)
    assert source.store.paused("pdf") == [], "it works on"
    [held] = target.store.paused("pdf")
    assert (held.actor, held.reason) == (ACTOR, "being filled from sqlite-memory")
    assert len(everything(target.store, "pdf")[0]) == 30
    gone = queue.jobs(limit=40).jobs[-1].id
    queue.act("cancel", ids=[gone], actor="op")
    assert queue.enqueue({}, key="k0").result == "inserted"
    assert prune(source.store) == 1
    assert target.store.job(gone), "and the earlier run brought it"
    as_a_crash_leaves_it = f"being copied to {kind}; if no copy is under way, resume it"
    source.store.pause("pdf", actor=ACTOR, reason=as_a_crash_leaves_it)
    copied = copy_queue(source, target, "pdf", pdf_lifecycle())
    assert copied.jobs == 40
    assert everything(target.store, "pdf") == everything(source.store, "pdf")
    assert target.store.paused("pdf") == []


@pytest.mark.parametrize("stage", ["copied", "proved"])
@pytest.mark.parametrize("kind", ["redis", "sqlite-file", "postgres"])
def test_a_job_that_came_to_the_target_by_itself_survives(place, kind, stage, monkeypatch):
    """Even one that has a key which a job of the source is to have there."""
    monkeypatch.setattr(queue_copy, "BATCH", 10)
    source, target = place("sqlite-memory"), place(kind)
    queue = Queue("pdf", pdf_lifecycle(), source.store)
    queue.enqueue_many([New(n, f"k{n}") for n in range(20)])
    new, came = Queue("pdf", pdf_lifecycle(), target.store), []

    def early(now, _jobs):
        if now == stage and not came:
            came.extend([new.enqueue({}, key="k19"), new.enqueue({}, key="other")])

    with pytest.raises(CopyRefused) as raised:
        copy_queue(source, target, "pdf", pdf_lifecycle(), progress=early)
    accepted = [one.id for one in came if one.result == "inserted"]
    assert len(accepted) == (2 if stage == "copied" else 1)
    said = f"{kind} has jobs of pdf that sqlite-memory does not have: {len(accepted)}, like "
    assert str(raised.value).startswith(said)
    assert any(job_id in str(raised.value) for job_id in accepted)
    assert source.store.paused("pdf") == [], "it works on"
    before = everything(target.store, "pdf")
    assert [one.job.id for one in before[0] if one.job.id in accepted] == sorted(accepted)
    created = sum(flow.n for flow in before[1] if not flow.from_state)
    assert created == (2 if stage == "copied" else 21), "their creation is counted"
    with pytest.raises(CopyRefused, match="does not have"):
        copy_queue(source, target, "pdf", pdf_lifecycle())
    assert everything(target.store, "pdf") == before
    assert source.store.paused("pdf") == []


@pytest.mark.parametrize("kind", ["redis", "sqlite-file", "postgres"])
def test_of_two_copies_at_once_the_later_goes_on(place, kind, monkeypatch):
    monkeypatch.setattr(queue_copy, "BATCH", 10)
    rules = pdf_lifecycle()
    source, target, stranger = place("sqlite-memory"), place(kind), place("sqlite-memory")
    Queue("pdf", rules, source.store).enqueue_many([New(n) for n in range(20)])
    elsewhere = NamedStore(stranger.store, "elsewhere")
    Queue("pdf", rules, stranger.store).enqueue(1)
    new, came = Queue("pdf", rules, target.store), []

    begun, overtaken = threading.Event(), threading.Event()

    def be_overtaken(_stage, _jobs):
        begun.set()
        assert overtaken.wait(PATIENCE_S)

    def overtake(_stage, _jobs):
        overtaken.set()
        assert "another copy into pdf" in str(earlier.exception(PATIENCE_S))
        assert source.store.paused("pdf"), "for the later one"
        raise KeyboardInterrupt

    def meet(_stage, _jobs):
        if came:
            return
        with pytest.raises(CopyRefused, match="does not have"):
            copy_queue(elsewhere, target, "pdf", rules)
        came.append(None)

    def come_late(_stage, _jobs):
        if len(came) == 1:
            copy_queue(source, target, "pdf", rules)
            came.append(new.enqueue({}).id)

    empty = NamedStore(place("sqlite-memory").store, "empty")

    def break_off(_stage, _jobs):
        raise KeyboardInterrupt

    def break_in():
        with pytest.raises(KeyboardInterrupt):
            copy_queue(source, target, "pdf", rules, progress=break_off)

    with pytest.raises(CopyRefused, match="another copy into pdf"):
        CopyRun(empty, target, {"pdf": rules}).run(copy_other_data=break_in)
    assert empty.store.paused("pdf") == [], "the later one is not of this source"
    with ThreadPoolExecutor() as pool:
        earlier = pool.submit(copy_queue, source, target, "pdf", rules, progress=be_overtaken)
        assert begun.wait(PATIENCE_S)
        with pytest.raises(KeyboardInterrupt):
            copy_queue(source, target, "pdf", rules, progress=overtake)
    assert source.store.paused("pdf") == []
    assert (
        copy_queue(source, target, "pdf", rules, keep_source_running=True, progress=meet).jobs == 20
    )
    assert stranger.store.paused("pdf") == source.store.paused("pdf") == []
    with pytest.raises(CopyRefused, match="another copy into pdf"):
        copy_queue(source, target, "pdf", rules, progress=come_late)
    assert new.job(came[1]), "accepted where the queue lives now"
    assert target.store.paused("pdf") == []
    assert [pause.reason for pause in source.store.paused("pdf")] == [f"moved to {kind}"]


def test_what_cannot_be_moved_is_left_as_it_was(place):
    source, target = place("sqlite-memory"), place("redis")
    rules = task_lifecycle()
    queue, other = Queue("task", rules, source.store), Queue("task", rules, target.store)
    queue.enqueue_many([New(1), New(2)])
    other.enqueue(3)
    with pytest.raises(
        CopyRefused, match="redis has jobs of task that sqlite-memory does not have"
    ):
        copy_queue(source, target, "task", rules)
    with pytest.raises(CopyRefused, match="the same store"):
        copy_queue(source, NamedStore(source.store, "elsewhere"), "task", rules)
    [job] = queue.claim(worker="w", limit=1)
    with pytest.raises(CopyRefused, match="1 jobs of task are with workers"):
        copy_queue(source, place("sqlite-memory"), "task", rules)
    assert source.store.paused("task") == []
    assert len(everything(target.store, "task")[0]) == 1

    def finish(_seconds):
        queue.apply("complete", [Change(job.id, job.token)], role="worker", actor="w")

    there = place("sqlite-file")
    assert copy_queue(source, there, "task", rules, wait_s=1, idle=finish).jobs == 2
    assert {job.state for job, _ in there.store.scan("task")} == {"ready", "done"}


def test_a_backup_leaves_the_source_at_work_and_its_copy_asleep(place):
    source, target = place("sqlite-memory"), place("sqlite-file")
    queue = Queue("task", task_lifecycle(), source.store)
    queue.enqueue(1)
    copy_queue(source, target, "task", task_lifecycle(), keep_source_running=True)
    assert len(queue.claim(worker="w", limit=1)) == 1
    assert target.store.claim("task", worker="w", limit=1, lease_us=1) == []
    assert [pause.reason for pause in target.store.paused("task")] == ["a copy of sqlite-memory"]


@pytest.mark.parametrize("kind", ["sqlite-file", "postgres"])
def test_the_way_in_closes_with_its_transaction(place, kind):
    """Rows written by hand are refused after a copy, and whoever opens the way cannot stay."""
    source, target = place("redis"), place(kind)
    Queue("task", task_lifecycle(), source.store).enqueue(1)
    copy_queue(source, target, "task", task_lifecycle())
    store = target.store
    [(job, _)] = store.scan("task")
    table = store.dialect.table
    attacks = (
        f"DELETE FROM {table('job')}",
        f"UPDATE {table('job')} SET state = 'done'",
        f"INSERT INTO {table('event')} SELECT * FROM {table('event')}",
        f"UPDATE {table('job_body')} SET payload = '2'",
    )
    wrong = (sqlite3.IntegrityError, psycopg.errors.IntegrityError)
    for attack in attacks:
        with pytest.raises(wrong), store.transaction():
            store._rows(attack, {})
    copier = copier_for(store, "task")
    for attack in attacks[1:]:
        with pytest.raises(wrong), store.transaction(), copier._copying("task"):
            store._rows(attack, {})
    [history] = copier.histories("task", [job.id])
    undeclared = history._replace(events=[history.events[0]._replace(to_state="done")])
    with pytest.raises(wrong):
        copier.put("task", [undeclared])
    elsewhere = history._replace(job=job._replace(queue="other"))
    with pytest.raises(wrong):
        copier.put("task", [elsewhere])
    if kind == "sqlite-file":
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"), store.transaction():
            store._rows("INSERT INTO copying (queue) VALUES ('task')", {})
        with closing(sqlite3.connect(store.path)) as raw, pytest.raises(sqlite3.IntegrityError):
            raw.execute("INSERT INTO copying (queue) VALUES ('task')")
    else:
        with store.transaction():
            for name, value in (("copying", "txid_current()::text"), ("copied_queue", "'task'")):
                store._rows(f"SELECT set_config('kesin.{name}', {value}, false)", {})
    with pytest.raises(wrong), store.transaction():
        store._rows(attacks[0], {})
    assert store.job(job.id) == job
