"""The guard: with a SQL prompt, too, a job changes only by a declared move.

Each attack runs on a connection of its own, past the store, against jobs of every sort. It must be
refused, and every row must be as it was. A declared move made by hand passes and leaves its event.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest

from kesin.lifecycle.task import task_lifecycle
from kesin.store.contract import Store
from kesin.store.postgres.store import PostgresStore
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from tests.store.attacks import (
    ATTACKS,
    BIRTH,
    BODY,
    CLAIM,
    COMPLETE,
    CORRECT,
    EDITS,
    FOREIGN,
    LATER,
    POSTGRES_ATTACKS,
    PREPARE,
    REQUEUE,
    RETRY,
    RUN,
    SQLITE_ATTACKS,
    SQLITE_IGNORED,
    WRONG_BIRTHS,
    WRONG_CLAIMS,
    insert,
    then,
    together,
    update,
)
from tests.store.conftest import check_histories_and_counts, opened
from tests.store.scene import NOW, Scene, error, rows

TABLES = ("job", "job_body", "event", "flow", "note")
KINDS = ("sqlite-file", "postgres")


class World:
    """Jobs of every sort, and a connection that does not go through the store."""

    def __init__(self, store: Store, raw: Any) -> None:
        self.store = store
        self.raw = raw
        self.names = {table: store.dialect.table(table) for table in TABLES}
        self.task = task = Scene(store, "task", task_lifecycle())
        oci = Scene(store, "oci", oci_lifecycle())
        optiplan = Scene(store, "optiplan", optiplan_lifecycle())
        Scene(store, "twin", task_lifecycle())
        self.ids = {
            "done": task.move("complete", task.claim_new_job(), result="[1]").id,
            "failed": task.move("fail", task.claim_new_job(key="freed"), **error()).id,
            "loser": task.move("fail", task.claim_new_job(key="taken"), **error()).id,
            "running": task.claim_new_job(key="held").id,
            "ready": task.create_job(key="taken"),
            "other": task.create_job(),
            "invalid": oci.move("ack_failed", oci.claim_new_job(), **error("BAD", "VALIDATION")).id,
            "retry": oci.move("release", oci.claim_new_job()).id,
        }
        holder, waiting, failed, started = optiplan.claim_new_jobs(4)
        optiplan.apply("prepare", [holder, waiting])
        optiplan.apply("import", [holder, waiting])
        optiplan.move("run", holder)
        self.free_the_slot = lambda: optiplan.move("collect", holder)
        optiplan.move("fail", failed, **error("E_OPTI_RUNNER_FAILED"))
        self.ids |= {"holder": holder.id, "waiting": waiting.id, "unprunable": failed.id}
        self.ids |= {"started": started.id, "new": optiplan.create_job()}

    def execute(self, sql: str) -> None:
        """Run statements, parted by a line of dashes; ``<name>`` is a job's id."""
        for name, text in self.ids.items():
            sql = sql.replace(f"<{name}>", text)
        for name, table in self.names.items():
            sql = sql.replace(f"[{name}]", table)
        for statement in sql.split("\n---\n"):
            self.raw.execute(statement)

    def everything(self) -> list[list[tuple[Any, ...]]]:
        found = []
        for table in self.names.values():
            rows = self.raw.execute(f"SELECT * FROM {table}").fetchall()
            found.append(sorted((tuple(row) for row in rows), key=repr))
        return found

    def job(self, name: str) -> Any:
        return self.store.job(self.ids.get(name, name))

    @property
    def refusal(self) -> type[Exception]:
        """What a constraint or the guard raises; a slip in the SQL raises something else."""
        if isinstance(self.store, SqliteStore):
            return sqlite3.IntegrityError
        return psycopg.IntegrityError

    @contextmanager
    def undone(self) -> Iterator[None]:
        """A transaction that is rolled back, after every check that waits for its end."""
        self.raw.execute("BEGIN")
        try:
            yield
        finally:
            self.raw.execute("ROLLBACK")

    def settle(self) -> None:
        if isinstance(self.store, PostgresStore):
            self.raw.execute("SET CONSTRAINTS ALL IMMEDIATE")


@contextmanager
def world_on(kind: str, request: Any) -> Iterator[World]:
    with opened(kind, request) as store, ExitStack() as stack:
        if isinstance(store, SqliteStore):
            raw: Any = sqlite3.connect(store.path, isolation_level=None)
        else:
            raw = psycopg.connect(request.getfixturevalue("postgres_url"), autocommit=True)
        stack.callback(raw.close)
        yield World(store, raw)
        check_histories_and_counts(store)


@pytest.fixture(scope="module", params=KINDS)
def world(request):
    """Shared by all attacks: none may change it."""
    with world_on(request.param, request) as one:
        before = one.everything()
        yield one
        assert one.everything() == before


@pytest.fixture(params=KINDS)
def own_world(request):
    """For the moves that are made."""
    with world_on(request.param, request) as one:
        yield one


def is_refused(world, sql):
    """Whether the database refuses it; asserts that nothing has changed either way."""
    before = world.everything()
    refused = False
    with world.undone():
        try:
            world.execute(sql)
            world.settle()
        except world.refusal:
            refused = True
        else:
            assert world.everything() == before
    assert world.everything() == before
    return refused


def test_every_column_is_tried(world):
    rows = world.raw.execute(f"SELECT * FROM {world.names['job']}")
    assert {one[0] for one in rows.description} == {*EDITS, "keyed", "lease_until"}


@pytest.mark.parametrize("job", ["ready", "running", "done"])
@pytest.mark.parametrize("column", EDITS)
def test_no_column_can_be_edited(world, column, job):
    assert is_refused(world, update(job, {column: EDITS[column]}))


@pytest.mark.parametrize("column", WRONG_CLAIMS)
def test_a_declared_move_may_change_nothing_else(world, column):
    assert is_refused(world, update("ready", CLAIM, **{column: WRONG_CLAIMS[column]}))


@pytest.mark.parametrize("column", WRONG_BIRTHS)
def test_no_job_is_born_otherwise_than_declared(world, column):
    assert is_refused(world, insert("job", BIRTH, **{column: WRONG_BIRTHS[column]}))


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_changes_anything(world, attack):
    assert is_refused(world, ATTACKS[attack])


@pytest.mark.parametrize("attack", SQLITE_ATTACKS)
@pytest.mark.parametrize("world", ["sqlite-file"], indirect=True)
def test_no_conflict_clause_gets_past_the_guard(world, attack):
    assert is_refused(world, SQLITE_ATTACKS[attack])


@pytest.mark.parametrize("attack", SQLITE_IGNORED)
@pytest.mark.parametrize("world", ["sqlite-file"], indirect=True)
def test_what_is_ignored_changes_nothing(world, attack):
    is_refused(world, SQLITE_IGNORED[attack])


@pytest.mark.parametrize("attack", POSTGRES_ATTACKS)
@pytest.mark.parametrize("world", ["postgres"], indirect=True)
def test_no_other_statement_gets_past_the_guard(world, attack):
    assert is_refused(world, POSTGRES_ATTACKS[attack])


# By hand, as declared


def test_a_claim_by_hand_passes_and_leaves_its_event(own_world):
    own_world.execute(update("ready", CLAIM))
    job, event = own_world.job("ready"), own_world.store.events(own_world.ids["ready"])[-1]
    assert (job.state, job.worker, job.attempt_count) == ("running", "me", 1)
    assert (event.seq, event.move, event.from_state, event.to_state, event.actor, event.at) == (
        2,
        "claim",
        "ready",
        "running",
        "me",
        LATER,
    )


def test_a_claim_by_hand_may_keep_the_state_where_that_is_declared(own_world):
    own_world.execute(update("new", CLAIM, state="'NEW'"))
    assert (own_world.job("new").state, own_world.job("new").worker) == ("NEW", "me")


def test_a_step_by_hand_keeps_the_claim(own_world):
    before = own_world.job("started")
    own_world.execute(update("started", PREPARE))
    after = own_world.job("started")
    assert (after.state, after.worker, after.claim_seq) == ("PREPARED", "w1", before.claim_seq)


def test_a_finish_by_hand_is_counted(own_world):
    before = own_world.store.stats("task", now=NOW).states
    own_world.execute(update("running", COMPLETE))
    after = own_world.store.stats("task", now=NOW).states
    assert (after["done"], after["running"]) == (before["done"] + 1, before["running"] - 1)


def test_a_finish_by_hand_frees_the_key(own_world):
    own_world.execute(update("running", COMPLETE))
    task = own_world.task
    assert task.enqueue(task.new(key="held"))[0].result == "inserted"


def test_a_retry_by_hand_keeps_what_it_says_of_the_error(own_world):
    own_world.execute(update("running", RETRY))
    event = own_world.store.events(own_world.ids["running"])[-1]
    assert (event.move, event.error_code, event.error_message) == ("retry", "X", "by hand")


def test_a_free_slot_may_be_taken_by_hand(own_world):
    own_world.free_the_slot()
    own_world.execute(update("waiting", RUN))
    assert own_world.job("waiting").state == "OPTI_RUNNING"


def test_a_requeue_by_hand_takes_the_key_back(own_world):
    own_world.execute(update("failed", REQUEUE))
    task = own_world.task
    assert task.enqueue(task.new(key="freed"))[0].id == own_world.ids["failed"]


def test_a_correction_by_hand_replaces_the_payload_and_keeps_the_old_one(own_world):
    own_world.execute(update("invalid", CORRECT))
    event = own_world.store.events(own_world.ids["invalid"])[-1]
    assert (own_world.job("invalid").payload, event.payload, event.old_payload) == (
        "[2]",
        "[2]",
        "{}",
    )


def test_a_birth_by_hand_passes_and_leaves_its_event(own_world):
    own_world.raw.execute("BEGIN")
    own_world.execute(then(insert("job", BIRTH), insert("job_body", BODY)))
    own_world.raw.execute("COMMIT")
    assert own_world.job(FOREIGN).dedup_key == "mine"
    assert [event.move for event in own_world.store.events(FOREIGN)] == ["enqueue"]


def test_a_prune_by_hand_takes_everything_and_leaves_its_count(own_world):
    own_world.execute("DELETE FROM [job] WHERE id = '<done>'")
    assert own_world.job("done") is None
    assert own_world.store.events(own_world.ids["done"]) == []
    flows = {flow[1:4]: flow.n for flow in own_world.store.move_counts("task")}
    assert flows["prune", "done", ""] == 1


def test_a_lease_may_be_renewed_by_hand_and_leaves_no_event(own_world):
    before = own_world.job("running")
    own_world.execute(update("running", {"lease_until": str(LATER)}))
    assert own_world.job("running") == before._replace(lease_until=LATER)
    assert len(own_world.store.events(before.id)) == 2


def test_many_jobs_may_be_moved_by_hand_in_one_statement(own_world):
    own_world.execute(
        update("ready", CLAIM).replace("WHERE id = '<ready>'", "WHERE id IN ('<ready>', '<other>')")
    )
    assert (own_world.job("ready").state, own_world.job("other").state) == ("running", "running")


def test_jobs_may_go_several_ways_in_one_statement(own_world):
    before = own_world.store.stats("task", now=NOW).states
    own_world.execute(together(running=COMPLETE, failed=REQUEUE, ready=CLAIM, other=CLAIM))
    names = ("running", "failed", "ready", "other")
    assert [own_world.job(one).state for one in names] == ["done", "ready", "running", "running"]
    after = own_world.store.stats("task", now=NOW).states
    assert {one: n - before[one] for one, n in after.items() if n != before[one]} == {
        "done": 1,
        "running": 1,
        "ready": -1,
        "failed": -1,
    }


@pytest.mark.parametrize("own_world", ["postgres"], indirect=True)
def test_a_claim_and_a_renewal_in_one_statement_count_as_one_move(own_world):
    claim = CLAIM | {"state": "'NEW'"}
    own_world.execute(together(new=claim, started={"lease_until": str(LATER)}))
    assert (own_world.job("new").worker, own_world.job("started").lease_until) == ("me", LATER)
    counted = "SELECT sum(n) FROM {flow} WHERE queue = 'optiplan' AND move = 'claim'"
    made = (
        "SELECT count(*) FROM {event} e JOIN {job} j ON j.id = e.job_id"
        " WHERE j.queue = 'optiplan' AND e.move = 'claim'"
    )
    assert rows(own_world.store, counted) == rows(own_world.store, made)


def test_the_store_takes_on_a_job_that_was_moved_by_hand(own_world):
    own_world.execute(update("ready", CLAIM))
    task = own_world.task
    assert task.move("complete", own_world.job("ready")).state == "done"


@pytest.mark.parametrize("own_world", ["sqlite-file"], indirect=True)
@pytest.mark.parametrize("how", ["UPDATE OR IGNORE", "UPDATE OR REPLACE"])
def test_a_declared_move_with_a_conflict_clause_is_counted_like_any_other(own_world, how):
    before = own_world.store.stats("task", now=NOW).states
    own_world.execute(update("running", COMPLETE).replace("UPDATE", how))
    after = own_world.store.stats("task", now=NOW).states
    assert (after["done"], after["running"]) == (before["done"] + 1, before["running"] - 1)
