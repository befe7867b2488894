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

from kesin.engine.replay import verify
from kesin.foundation.clock import wall_clock_us
from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.store.declarations import DECLARED_COLUMNS
from kesin.store.postgres.store import PostgresStore
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from tests.store.attacks import (
    ATTACKS,
    CLAIM,
    COMPLETE,
    CORRECT,
    EDITS,
    FOREIGN,
    LATER,
    NEW_BODY,
    NEW_JOB,
    POSTGRES_ATTACKS,
    PREPARE,
    REQUEUE,
    RETRY,
    RUN,
    SQLITE_ATTACKS,
    SQLITE_IGNORED,
    WRONG_CLAIMS,
    WRONG_JOBS,
    insert,
    then,
    together,
    update,
)
from tests.store.checking import checking_lifecycle
from tests.store.conftest import check_histories_and_counts, empty, opened
from tests.store.declaration_attacks import (
    DECLARATION_ATTACKS,
    EDITED,
    MAY_CHANGE,
    NEAR_ENOUGH,
    POSTGRES_DECLARATION_ATTACKS,
    SQLITE_DECLARATION_ATTACKS,
    TOO_FAR,
    moves_at,
)
from tests.store.scene import DAY, NOW, SECOND, Scene, error, rows

TABLES = ("job", "job_body", "event", "flow", "note", "declared", "rules", "state")
KINDS = ("sqlite-file", "postgres")


class World:
    """Jobs of every sort, and a connection that does not go through the store."""

    def __init__(self, store: Any, raw: Any) -> None:
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
        store.add_note("task", kind="seen", actor="op", job_id=self.ids["done"], now=NOW)
        self._add_real_time()
        self._add_retired_state()

    def _add_real_time(self) -> None:
        """A queue whose times are those of the database."""
        self.store.open("real", task_lifecycle())
        for name, now in (("fresh", None), ("long_done", wall_clock_us() - 40 * DAY)):
            self.ids[name] = self._enqueue_in_real_time(now)
            (job,) = self.store.claim("real", worker="w", limit=1, lease_us=SECOND, now=now)
            change = Change(job.id, job.claim_seq)
            self.store.apply("real", "complete", [change], role="worker", actor="w", now=now)
        self.ids["now_ready"] = self._enqueue_in_real_time(None)

    def _enqueue_in_real_time(self, now: int | None) -> str:
        return self.store.enqueue("real", [self.task.new()], actor="p", now=now)[0].id

    def _add_retired_state(self) -> None:
        for queue, job in (("checked", "kept_out"), ("unchecked", "let_in")):
            scene = Scene(self.store, queue, checking_lifecycle())
            self.ids[job] = scene.create_job()
        Scene(self.store, "checked", checking_lifecycle(retiring=True))
        self.store.retire("checked", "checking")

    def execute(self, sql: str) -> None:
        """Run statements, parted by a line of dashes; ``<name>`` is a job's id."""
        for name, text in self.ids.items():
            sql = sql.replace(f"<{name}>", text)
        for name, table in self.names.items():
            sql = sql.replace(f"[{name}]", table)
        for statement in sql.split("\n---\n"):
            self.raw.execute(statement)

    def everything(self) -> list[list[tuple[Any, ...]]]:
        tables = []
        for table in self.names.values():
            rows = self.raw.execute(f"SELECT * FROM {table}").fetchall()
            tables.append(sorted((tuple(row) for row in rows), key=repr))
        return tables

    def job(self, name: str) -> Any:
        return self.store.job(self.ids.get(name, name))

    @property
    def refusal(self) -> tuple[type[Exception], ...]:
        """What a constraint or the guard raises; a slip in the SQL raises something else."""
        if isinstance(self.store, SqliteStore):
            return (sqlite3.IntegrityError,)
        return psycopg.IntegrityError, psycopg.errors.GeneratedAlways

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
    with opened(kind, request) as store, world_in(store, request) as world:
        yield world


@contextmanager
def world_in(store: Any, request: Any) -> Iterator[World]:
    with ExitStack() as stack:
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
    with world_on(request.param, request) as world:
        yield world


@pytest.fixture(scope="module", params=KINDS)
def worked_on(request):
    """Shared by moves that are made, each of another job."""
    with world_on(request.param, request) as world:
        yield world


@pytest.fixture(params=KINDS)
def own_world(request):
    """For moves whose jobs others need as they were."""
    if request.param != "postgres":
        with world_on(request.param, request) as world:
            yield world
        return
    store = request.getfixturevalue("postgres_store")
    with ExitStack() as stack:
        stack.callback(empty, store)
        yield stack.enter_context(world_in(store, request))


def not_refused(world, attacks):
    """The attacks that the database does not refuse; not one of them may change a row."""
    before = world.everything()
    passed = []
    for name, sql in attacks.items():
        with world.undone():
            try:
                world.execute(sql)
                world.settle()
            except world.refusal:
                continue
            assert world.everything() == before, name
        passed.append(name)
    assert world.everything() == before
    return passed


def test_every_column_is_tried(world):
    def columns(table):
        rows = world.raw.execute(f"SELECT * FROM {world.names[table]}")
        return {column[0] for column in rows.description}

    assert columns("job") == {*EDITS, "keyed", "lease_until"}
    for table in EDITED:
        assert columns(table) == EDITED[table].keys() | MAY_CHANGE.get(table, set()), table


def test_no_column_can_be_edited(world):
    attacks = {
        f"{column} of {job}": update(job, {column: value})
        for column, value in EDITS.items()
        for job in ("ready", "running", "done")
    }
    assert not_refused(world, attacks) == []


def test_a_declared_move_may_change_nothing_else(world):
    attacks = {column: update("ready", CLAIM, **{column: value}) for column, value in WRONG_CLAIMS.items()}
    assert not_refused(world, attacks) == []


def test_no_job_is_created_otherwise_than_declared(world):
    attacks = {column: insert("job", NEW_JOB, **{column: value}) for column, value in WRONG_JOBS.items()}
    assert not_refused(world, attacks) == []


def test_no_attack_gets_past_the_guard(world):
    of_the_kind = SQLITE_ATTACKS if isinstance(world.store, SqliteStore) else POSTGRES_ATTACKS
    assert not_refused(world, ATTACKS | of_the_kind) == []


def test_counters_notes_and_declarations_are_not_for_editing(world):
    of_the_kind = SQLITE_DECLARATION_ATTACKS if isinstance(world.store, SqliteStore) else POSTGRES_DECLARATION_ATTACKS
    assert not_refused(world, DECLARATION_ATTACKS | of_the_kind) == []


def test_no_move_is_dated_more_than_a_day_ahead(world):
    assert not_refused(world, moves_at(wall_clock_us() + TOO_FAR)) == []


@pytest.mark.parametrize("world", ["sqlite-file"], indirect=True)
def test_a_statement_that_sqlite_ignores_changes_nothing(world):
    not_refused(world, SQLITE_IGNORED)


# By hand, as declared


def test_a_claim_by_hand_passes_leaves_its_event_and_the_store_goes_on_with_the_job(worked_on):
    worked_on.execute(update("ready", CLAIM))
    job, event = worked_on.job("ready"), worked_on.store.events(worked_on.ids["ready"])[-1]
    assert (job.state, job.worker, job.attempt_count) == ("running", "me", 1)
    assert (event.seq, event.move, event.actor, event.at) == (2, "claim", "me", LATER)
    assert (event.from_state, event.to_state) == ("ready", "running")
    assert worked_on.task.move("complete", job).state == "done"


def test_a_move_by_hand_keeps_what_it_is_declared_to_keep(worked_on):
    worked_on.execute(update("new", CLAIM, state="'NEW'"))
    assert (worked_on.job("new").state, worked_on.job("new").worker) == ("NEW", "me")
    before = worked_on.job("started")
    worked_on.execute(update("started", PREPARE))
    after = worked_on.job("started")
    assert (after.state, after.worker, after.claim_seq) == ("PREPARED", "w1", before.claim_seq)
    before = worked_on.job("running")
    worked_on.execute(update("running", {"lease_until": str(LATER)}))
    assert worked_on.job("running") == before._replace(lease_until=LATER)
    assert len(worked_on.store.events(before.id)) == 2, "a renewed lease is no event"
    worked_on.execute(update("running", RETRY))
    event = worked_on.store.events(before.id)[-1]
    assert (event.move, event.error_code, event.error_message) == ("retry", "X", "by hand")


def test_a_finish_by_hand_is_counted_and_frees_the_key(own_world):
    before = own_world.store.stats("task", now=NOW).states
    own_world.execute(update("running", COMPLETE))
    after = own_world.store.stats("task", now=NOW).states
    assert (after["done"], after["running"]) == (before["done"] + 1, before["running"] - 1)
    task = own_world.task
    assert task.enqueue(task.new(key="held"))[0].result == "inserted"


def test_a_free_slot_and_a_free_key_may_be_taken_by_hand(worked_on):
    worked_on.free_the_slot()
    worked_on.execute(update("waiting", RUN))
    assert worked_on.job("waiting").state == "OPTI_RUNNING"
    worked_on.execute(update("failed", REQUEUE))
    task = worked_on.task
    assert task.enqueue(task.new(key="freed"))[0].id == worked_on.ids["failed"]


def test_a_correction_by_hand_replaces_the_payload_and_keeps_the_old_one(worked_on):
    worked_on.execute(update("invalid", CORRECT))
    event = worked_on.store.events(worked_on.ids["invalid"])[-1]
    assert worked_on.job("invalid").payload_json == event.payload == "[2]"
    assert event.old_payload == "{}"


def test_a_job_created_by_hand_has_its_event(own_world):
    own_world.raw.execute("BEGIN")
    own_world.execute(then(insert("job", NEW_JOB), insert("job_body", NEW_BODY)))
    own_world.raw.execute("COMMIT")
    assert own_world.job(FOREIGN).dedup_key == "mine"
    assert [event.move for event in own_world.store.events(FOREIGN)] == ["enqueue"]


def test_a_prune_by_hand_takes_everything_and_leaves_its_count(worked_on):
    worked_on.execute("DELETE FROM [job] WHERE id = '<done>'")
    assert worked_on.job("done") is None
    assert worked_on.store.events(worked_on.ids["done"]) == []
    flows = {flow[1:4]: flow.n for flow in worked_on.store.move_counts("task")}
    assert flows["prune", "done", ""] == 1


def test_a_move_by_hand_may_be_dated_less_than_a_day_ahead(worked_on):
    for sql in moves_at(wall_clock_us() + NEAR_ENOUGH).values():
        worked_on.raw.execute("BEGIN")
        worked_on.execute(sql)
        worked_on.raw.execute("COMMIT")
    assert (worked_on.job("now_ready").state, worked_on.job(FOREIGN).state) == ("running", "ready")


def test_a_job_finished_long_ago_may_be_deleted_by_hand(worked_on):
    worked_on.execute("DELETE FROM [job] WHERE id = '<long_done>'")
    assert worked_on.job("long_done") is None


def test_a_state_that_is_not_retired_may_be_entered_by_hand(worked_on):
    attack = DECLARATION_ATTACKS["a retired state is entered"]
    worked_on.execute(attack.replace("<kept_out>", "<let_in>"))
    assert worked_on.job("let_in").state == "checking"


def test_what_may_change_by_hand_leaves_a_note(worked_on):
    notes = "SELECT count(*) FROM {note} WHERE queue = 'twin' AND kind = 'declared'"
    before = rows(worked_on.store, notes)[0][0]
    for sql in (
        "UPDATE [declared] SET min_age_us = 0 WHERE queue = 'twin' AND min_age_us > 0",
        "UPDATE [state] SET retired_at = 1 WHERE queue = 'twin' AND name = 'failed'",
        "INSERT INTO [rules] VALUES ('twin', 9, 'x', '{\"edges\":[]}', TRUE, 1)",
    ):
        with worked_on.undone():
            worked_on.execute(sql)
            after = worked_on.raw.execute(notes.format(note=worked_on.names["note"])).fetchall()
            assert after[0][0] > before, sql


def test_a_move_declared_or_counted_by_hand_is_named_by_the_audit(own_world):
    columns = DECLARED_COLUMNS.replace("move,", "'steal',", 1)
    own_world.execute(
        f"INSERT INTO [declared] ({DECLARED_COLUMNS}) SELECT {columns} FROM [declared]"
        " WHERE queue = 'twin' AND move = 'complete'"
    )
    (difference,) = verify(own_world.store, "twin").differences
    assert "steal (running → done)" in str(difference)
    own_world.store._queues.pop("twin")
    if isinstance(own_world.store, SqliteStore):
        own_world.execute("UPDATE [flow] SET n = n + 1 WHERE queue = 'task' AND move = 'claim'")
        assert {difference.subject for difference in verify(own_world.store, "task").differences} == {
            "the count of default/ready",
            "the count of default/running",
        }
        own_world.store._queues.pop("task")


def test_many_jobs_may_be_moved_several_ways_in_one_statement(own_world):
    """In SQLite a conflict clause changes nothing of it; in PostgreSQL a renewal is none of the moves."""

    def changes(sql):
        before = own_world.store.stats("task", now=NOW).states
        own_world.execute(sql)
        after = own_world.store.stats("task", now=NOW).states
        return {state: n - before[state] for state, n in after.items() if n != before[state]}

    moves = together(running=COMPLETE, failed=REQUEUE, ready=CLAIM, other=CLAIM)
    assert changes(moves) == {"done": 1, "running": 1, "ready": -1, "failed": -1}
    states = [own_world.job(name).state for name in ("running", "failed", "ready", "other")]
    assert states == ["done", "ready", "running", "running"]
    if isinstance(own_world.store, SqliteStore):
        for name, how in (("a", "UPDATE OR IGNORE"), ("b", "UPDATE OR REPLACE")):
            own_world.ids[name] = own_world.task.claim_new_job().id
            assert changes(update(name, COMPLETE).replace("UPDATE", how)) == {"done": 1, "running": -1}
        return
    own_world.execute(together(new=CLAIM | {"state": "'NEW'"}, started={"lease_until": str(LATER)}))
    assert (own_world.job("new").worker, own_world.job("started").lease_until) == ("me", LATER)
    counted = "SELECT sum(n) FROM {flow} WHERE queue = 'optiplan' AND move = 'claim'"
    made = (
        "SELECT count(*) FROM {event} e JOIN {job} j ON j.id = e.job_id WHERE j.queue = 'optiplan' AND e.move = 'claim'"
    )
    assert rows(own_world.store, counted) == rows(own_world.store, made)
