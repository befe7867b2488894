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
from kesin.store.postgres import PostgresStore
from kesin.store.sqlite import SqliteStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from tests.store.conftest import all_is_well, opened
from tests.store.scene import HOUR, NOBODY, NOW, Scene, error

LATER = NOW + HOUR
FOREIGN = "00000000-0000-7000-8000-00000000000f"
TABLES = ("job", "job_body", "event", "flow", "note")
KINDS = ("sqlite-file", "postgres")


class World:
    """Jobs of every sort, and a connection that does not go through the store."""

    def __init__(self, store: Store, raw: Any) -> None:
        self.store = store
        self.raw = raw
        self.names = {table: store.dialect.table(table) for table in TABLES}
        # PostgreSQL's jobs also say whether their body has a key.
        self.has_keyed = isinstance(store, PostgresStore)
        self.task = task = Scene(store, "task", task_lifecycle())
        oci = Scene(store, "oci", oci_lifecycle())
        optiplan = Scene(store, "optiplan", optiplan_lifecycle())
        Scene(store, "twin", task_lifecycle())
        self.ids = {
            "done": task.move("complete", task.running(), result="[1]").id,
            "failed": task.move("fail", task.running(key="freed"), **error()).id,
            "loser": task.move("fail", task.running(key="taken"), **error()).id,
            "running": task.running(key="held").id,
            "ready": task.one(key="taken"),
            "other": task.one(),
            "invalid": oci.move("ack_failed", oci.running(), **error("BAD", "VALIDATION")).id,
            "retry": oci.move("release", oci.running()).id,
        }
        holder, waiting, failed, started = optiplan.claimed(4)
        optiplan.apply("prepare", [holder, waiting])
        optiplan.apply("import", [holder, waiting])
        optiplan.move("run", holder)
        self.free_the_slot = lambda: optiplan.move("collect", holder)
        optiplan.move("fail", failed, **error("E_OPTI_RUNNER_FAILED"))
        self.ids |= {"holder": holder.id, "waiting": waiting.id, "unprunable": failed.id}
        self.ids |= {"started": started.id, "new": optiplan.one()}

    def execute(self, sql: str) -> None:
        """Run statements, parted by a line of dashes; ``<name>`` is a job's id."""
        for name, text in self.ids.items():
            sql = sql.replace(f"<{name}>", text)
        for name, table in self.names.items():
            sql = sql.replace(f"[{name}]", table)
        sql = sql.replace("[+keyed]", "keyed, " if self.has_keyed else "")
        sql = sql.replace("[+true]", "TRUE, " if self.has_keyed else "")
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
        all_is_well(store)


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


# Declared moves, written by hand

MINE = {"actor": "'me'", "seq": "seq + 1", "moved_at": str(LATER)}
FREE = {"worker": "NULL", "claimed_at": "NULL", "lease_until": "NULL"}
NO_ERROR = {"error_code": "NULL", "error_category": "NULL", "error_message": "NULL"}
CLAIM = MINE | {
    "state": "'running'",
    "phase": "1",
    "move": "'claim'",
    "claim_seq": "seq + 1",
    "attempt_count": "attempt_count + 1",
    "worker": "'me'",
    "claimed_at": str(LATER),
    "lease_until": str(LATER + 1),
}
COMPLETE = (
    MINE
    | FREE
    | NO_ERROR
    | {
        "state": "'done'",
        "phase": "3",
        "move": "'complete'",
        "result": "'[2]'",
        "finished_at": str(LATER),
    }
)
RETRY = (
    MINE
    | FREE
    | {
        "state": "'ready'",
        "phase": "0",
        "move": "'retry'",
        "error_code": "'X'",
        "error_category": "'TRANSIENT'",
        "error_message": "'by hand'",
        "run_at": str(LATER),
    }
)
REQUEUE = MINE | {
    "state": "'ready'",
    "phase": "0",
    "move": "'requeue'",
    "attempt_base": "attempt_count",
    "return_count": "0",
    "run_at": str(LATER),
    "finished_at": "NULL",
}
CORRECT = (
    MINE
    | NO_ERROR
    | {
        "state": "'QUEUED'",
        "phase": "0",
        "move": "'correct'",
        "attempt_base": "attempt_count",
        "return_count": "0",
        "run_at": str(LATER),
        "timer_at": "NULL",
        "new_payload": "'[2]'",
        "payload_seq": "seq + 1",
        "finished_at": "NULL",
        "stamp_1": str(NOW),
        "stamp_3": "NULL",
    }
)
RUN = MINE | {
    "state": "'OPTI_RUNNING'",
    "move": "'run'",
    "slot": "'OPTI_RUNNING'",
    "timer_at": str(LATER),
}
PREPARE = MINE | {"state": "'PREPARED'", "move": "'prepare'", "timer_at": "NULL"}
BIRTH = {
    "id": f"'{FOREIGN}'",
    "queue": "'task'",
    "tenant": "'default'",
    "state": "'ready'",
    "phase": "0",
    "move": "'enqueue'",
    "actor": "'me'",
    "seq": "1",
    "max_attempts": "5",
    "salt": "7",
    "created_at": str(NOW),
    "moved_at": str(NOW),
    "run_at": str(NOW),
}
BODY = {
    "id": f"'{FOREIGN}'",
    "queue": "'task'",
    "tenant": "'default'",
    "dedup_key": "'mine'",
    "held_key": "'mine'",
    "payload": "'[]'",
}


def update(job, sets, **changes):
    pairs = ", ".join(f"{column} = {value}" for column, value in (sets | changes).items())
    return f"UPDATE [job] SET {pairs} WHERE id = '<{job}>'"


def insert(table, values, *, how="INSERT", **changes):
    values = values | changes
    keyed, true = ("[+keyed]", "[+true]") if table == "job" else ("", "")
    columns, given = ", ".join(values), ", ".join(values.values())
    return f"{how} INTO [{table}] ({keyed}{columns}) VALUES ({true}{given})"


def then(*statements):
    return "\n---\n".join(statements)


# Attacks

EDITS = {
    "id": f"'{NOBODY}'",
    "queue": "'twin'",
    "tenant": "'other'",
    "state": "'done'",
    "phase": "2",
    "move": "'cancel'",
    "actor": "'me'",
    "worker": "'me'",
    "slot": "'mine'",
    "seq": "7",
    "claim_seq": "1",
    "payload_seq": "9",
    "attempt_count": "attempt_count + 1",
    "attempt_base": "attempt_base + 1",
    "return_count": "2",
    "max_attempts": "99",
    "retry_count": "1",
    "salt": "1",
    "flags": "1",
    "error_code": "'FORGED'",
    "error_category": "'AUTH'",
    "error_message": "'forged'",
    "note": "'forged'",
    "result": "'[9]'",
    "new_payload": "'[9]'",
    "created_at": "1",
    "moved_at": str(LATER),
    "run_at": "1",
    "timer_at": "1",
    "claimed_at": "1",
    "finished_at": "1",
    "stamp_1": "1",
    "stamp_2": "1",
    "stamp_3": "1",
    "stamp_4": "1",
}
WRONG_CLAIMS = {
    column: value
    for column, value in EDITS.items()
    if column not in ("actor", "worker", "note", "moved_at")
} | {
    "state": "'failed'",
    "phase": "0",
    "move": "'complete'",
    "moved_at": str(NOW - 1),
    "seq": "seq + 2",
    "attempt_count": "attempt_count",
    "claim_seq": "seq",
    "claimed_at": str(NOW),
    "worker": "NULL",
    "lease_until": "NULL",
}
WRONG_BIRTHS = {
    "queue": "'never'",
    "state": "'running'",
    "move": "'claim'",
    "phase": "3",
    "seq": "2",
    "moved_at": str(LATER),
    "claim_seq": "1",
    "payload_seq": "2",
    "attempt_count": "1",
    "attempt_base": "1",
    "return_count": "1",
    "retry_count": "1",
    "max_attempts": "-1",
    "flags": "1",
    "slot": "'mine'",
    "worker": "'me'",
    "error_code": "'FORGED'",
    "error_category": "'AUTH'",
    "error_message": "'forged'",
    "result": "'[9]'",
    "new_payload": "'[9]'",
    "timer_at": "1",
    "claimed_at": "1",
    "lease_until": "1",
    "finished_at": "1",
    "run_at": "NULL",
    **dict.fromkeys(("stamp_1", "stamp_2", "stamp_3", "stamp_4"), "1"),
}
FORGED_EVENT = (
    "INSERT INTO [event] (job_id, seq, at, move, from_state, to_state, phase, claim, actor,"
    " attempt, attempt_base, return_count, max_attempts, retry_count, flags, mask) VALUES"
    " ('<{job}>', {seq}, {at}, '{move}', 'ready', '{to}', 0, -1, 'me', 0, 0, 0, 5, 0, 0, 0)"
)
ATTACKS = {
    "a finished job is revived": update("done", {"state": "'ready'", "phase": "0"}),
    "a finished job is revived with a number": update("done", REQUEUE, return_count="return_count"),
    "a move that is declared elsewhere": update("ready", COMPLETE),
    "a move nobody declared": update("ready", CLAIM, move="'steal'"),
    "a move of another lifecycle": update("ready", CLAIM, move="'RESET_TO_QUEUED'"),
    "a claim of a claimed job": update("running", CLAIM),
    "a claim stolen where claims keep the state": update("started", CLAIM, state="'NEW'"),
    "a finish that keeps the claim": update("running", COMPLETE | {"worker": "'me'"}),
    "a finish that counts an attempt": update(
        "running", COMPLETE, attempt_count="attempt_count + 1"
    ),
    "a finish that gives an attempt back": update("running", COMPLETE, attempt_base="1"),
    "a finish that forgets its claim": update("running", COMPLETE, claim_seq="0"),
    "a finish that skips a number": update("running", COMPLETE, seq="seq + 2"),
    "a finish that takes a number again": update("running", COMPLETE, seq="seq - 1"),
    "a step that changes hands": update("started", PREPARE, worker="'thief'"),
    "a step that changes the claim": update("started", PREPARE, claim_seq="seq + 1"),
    "a step that makes the claim younger": update("started", PREPARE, claimed_at=str(LATER)),
    "a step that drops the claim": update("started", PREPARE | FREE, phase="4"),
    "a finish at the wrong phase": update("running", COMPLETE, phase="2"),
    "a finish in the past": update("running", COMPLETE, moved_at="1"),
    "a finish for another tenant": update("running", COMPLETE, tenant="'other'"),
    "a finish for another queue": update("running", COMPLETE, queue="'twin'"),
    "a finish under another id": update("running", COMPLETE, id=f"'{NOBODY}'"),
    "a finish that replaces the payload": update(
        "running", COMPLETE, new_payload="'[9]'", payload_seq="seq + 1"
    ),
    "a retry that records a result": update("running", RETRY, result="'[9]'"),
    "a retry that says it is finished": update("running", RETRY, finished_at=str(LATER)),
    "a retry that renews the budget": update(
        "running", RETRY, attempt_base="attempt_count", max_attempts="99"
    ),
    "a requeue that takes a taken key": update("loser", REQUEUE),
    "a requeue that counts a return": update("failed", REQUEUE, return_count="1"),
    "a correction without a payload": update("invalid", CORRECT, new_payload="NULL"),
    "a correction that hides when": update("invalid", CORRECT, payload_seq="payload_seq"),
    "a second job in the slot": update("waiting", RUN),
    "a run past the slot": update("waiting", RUN, slot="NULL"),
    "a run into a slot of another name": update("waiting", RUN, slot="'another'"),
    "a slot left by hand": update("holder", {"slot": "NULL"}),
    "a prune by update": update("done", MINE, state="''", phase="3", move="'prune'"),
    "a lease for a job nobody claimed": update("ready", {"lease_until": str(LATER)}),
    "a lease taken from a claimed job": update("running", {"lease_until": "NULL"}),
    "a claim taken from its worker": update("running", {"worker": "'thief'"}),
    "a claim thrown away": update("running", FREE | {"phase": "0"}),
    "two jobs of which one move is declared": "UPDATE [job] SET "
    + ", ".join(f"{column} = {value}" for column, value in CLAIM.items())
    + " WHERE id IN ('<ready>', '<done>')",
    "every job at once": "UPDATE [job] SET state = 'done', seq = seq + 1",
    "a second birth of a job": insert("job", BIRTH, id="'<ready>'"),
    "a birth that overwrites": insert("job", BIRTH, id="'<done>'")
    + " ON CONFLICT (id) DO UPDATE SET state = 'ready', phase = 0",
    "a birth that overwrites by a number": insert("job", BIRTH, id="'<done>'")
    + " ON CONFLICT (id) DO UPDATE SET seq = job.seq + 1",
    "a ready job is deleted": "DELETE FROM [job] WHERE id = '<ready>'",
    "a claimed job is deleted": "DELETE FROM [job] WHERE id = '<running>'",
    "a waiting job is deleted": "DELETE FROM [job] WHERE id = '<retry>'",
    "a job that is kept for good is deleted": "DELETE FROM [job] WHERE id = '<unprunable>'",
    "a finished and a live job are deleted": "DELETE FROM [job] WHERE id IN ('<done>', '<ready>')",
    "all jobs are deleted": "DELETE FROM [job]",
    "a next event is forged": FORGED_EVENT.format(
        job="ready", seq=2, at=NOW, move="claim", to="running"
    ),
    "a first event is forged": FORGED_EVENT.format(
        job="ready", seq=0, at=NOW, move="enqueue", to="ready"
    ),
    "an event is forged twice": FORGED_EVENT.format(
        job="ready", seq=1, at=NOW, move="enqueue", to="ready"
    ),
    "an event of no job is forged": FORGED_EVENT.format(
        job="ready", seq=1, at=NOW, move="enqueue", to="ready"
    ).replace("<ready>", NOBODY),
    "an event is edited": "UPDATE [event] SET actor = 'somebody else' WHERE job_id = '<done>'",
    "an event is dated back": "UPDATE [event] SET at = 1 WHERE job_id = '<done>' AND seq = 2",
    "an event is given to another job": "UPDATE [event] SET job_id = '<ready>', seq = 9"
    " WHERE job_id = '<done>' AND seq = 3",
    "an event is deleted": "DELETE FROM [event] WHERE job_id = '<done>' AND seq = 3",
    "all events are deleted": "DELETE FROM [event]",
    "a payload is edited": "UPDATE [job_body] SET payload = '[9]' WHERE id = '<ready>'",
    "a payload of a finished job is edited": "UPDATE [job_body] SET payload = '[9]'"
    " WHERE id = '<done>'",
    "a key is edited": "UPDATE [job_body] SET dedup_key = 'x' WHERE id = '<ready>'",
    "a key is let go": "UPDATE [job_body] SET held_key = NULL WHERE id = '<ready>'",
    "a freed key is taken": "UPDATE [job_body] SET held_key = dedup_key WHERE id = '<failed>'",
    "a body is given to another tenant": "UPDATE [job_body] SET tenant = 'x' WHERE id = '<ready>'",
    "a body is given to another queue": "UPDATE [job_body] SET queue = 'x' WHERE id = '<ready>'",
    "a body is given to another job": f"UPDATE [job_body] SET id = '{NOBODY}' WHERE id = '<ready>'",
    "a body is deleted": "DELETE FROM [job_body] WHERE id = '<ready>'",
    "all bodies are deleted": "DELETE FROM [job_body]",
    "a body without a job": insert("job_body", BODY),
    "a second body for a job": insert("job_body", BODY, id="'<other>'"),
    "a body that overwrites": insert("job_body", BODY, id="'<ready>'")
    + " ON CONFLICT (id) DO UPDATE SET payload = '[9]'",
    "a body whose key is not held": then(
        insert("job", BIRTH), insert("job_body", BODY, held_key="NULL")
    ),
    "a body that holds another key": then(
        insert("job", BIRTH), insert("job_body", BODY, held_key="'another'")
    ),
    "a body for another tenant than its job": then(
        insert("job", BIRTH), insert("job_body", BODY, tenant="'another'")
    ),
    "a body whose key is taken": then(
        insert("job", BIRTH), insert("job_body", BODY, dedup_key="'taken'", held_key="'taken'")
    ),
    "a declared move and then an edit": then(
        update("running", COMPLETE), update("running", {"result": "'[9]'"})
    ),
}
SWAP = (
    "UPDATE [job] SET id = CASE id WHEN '<ready>' THEN {other} ELSE {ready} END"
    " WHERE id IN ('<ready>', '<other>')"
)
SQLITE_ATTACKS = {
    "two jobs that swap ids": SWAP.format(ready="'<ready>'", other="'<other>'"),
    "a birth that replaces": insert("job", BIRTH, how="INSERT OR REPLACE", id="'<done>'"),
    "a replace": insert("job", BIRTH, how="REPLACE", id="'<ready>'"),
    "a birth that replaces the holder of a slot": insert(
        "job", BIRTH, how="INSERT OR REPLACE", slot="'OPTI_RUNNING'", queue="'optiplan'"
    ),
    "an update that replaces another job": update("ready", CLAIM, id="'<other>'").replace(
        "UPDATE", "UPDATE OR REPLACE"
    ),
    "an edit that replaces another job": update("ready", {"id": "'<other>'"}).replace(
        "UPDATE", "UPDATE OR REPLACE"
    ),
    "a run that replaces the holder of the slot": update("waiting", RUN).replace(
        "UPDATE", "UPDATE OR REPLACE"
    ),
    "a requeue that replaces the holder of its key": update("loser", REQUEUE).replace(
        "UPDATE", "UPDATE OR REPLACE"
    ),
    "a body that replaces": insert("job_body", BODY, how="INSERT OR REPLACE", id="'<ready>'"),
    "a body that replaces the holder of its key": then(
        insert("job", BIRTH),
        insert("job_body", BODY, how="INSERT OR REPLACE", dedup_key="'taken'", held_key="'taken'"),
    ),
    "an event that replaces": FORGED_EVENT.format(
        job="ready", seq=1, at=NOW, move="enqueue", to="ready"
    ).replace("INSERT", "INSERT OR REPLACE"),
    "an event edited by replacing": "UPDATE OR REPLACE [event] SET seq = 1 WHERE job_id = '<done>'",
    "an edit with ignore": update("ready", {"state": "'done'"}).replace(
        "UPDATE", "UPDATE OR IGNORE"
    ),
    "a move nobody declared with ignore": update("ready", COMPLETE).replace(
        "UPDATE", "UPDATE OR IGNORE"
    ),
    "an edit with fail": update("ready", {"state": "'done'"}).replace("UPDATE", "UPDATE OR FAIL"),
}
SQLITE_IGNORED = {
    "a second job in the slot with ignore": update("waiting", RUN).replace(
        "UPDATE", "UPDATE OR IGNORE"
    ),
    "a lease for a job nobody claimed with ignore": update("ready", {"lease_until": "1"}).replace(
        "UPDATE", "UPDATE OR IGNORE"
    ),
    "a birth that is ignored": insert("job", BIRTH, how="INSERT OR IGNORE", id="'<ready>'"),
    "a body that is ignored": insert("job_body", BODY, how="INSERT OR IGNORE", id="'<ready>'"),
}
POSTGRES_ATTACKS = {
    "two jobs that swap ids": SWAP.format(ready="'<ready>'::uuid", other="'<other>'::uuid"),
    "a job that hides its key": update("ready", {"keyed": "FALSE"}),
    "a finish that hides its key": update("running", COMPLETE, keyed="FALSE"),
    "a birth that hides its key": then(
        insert("job", BIRTH).replace("[+true]", "FALSE, "), insert("job_body", BODY)
    ),
    "jobs are truncated": "TRUNCATE [job]",
    "jobs are truncated with all that hangs on them": "TRUNCATE [job], [job_body], [event] CASCADE",
    "bodies are truncated": "TRUNCATE [job_body]",
    "events are truncated": "TRUNCATE [event]",
    "a merge that edits": "MERGE INTO [job] j USING (VALUES ('<ready>'::uuid)) v (id)"
    " ON j.id = v.id WHEN MATCHED THEN UPDATE SET state = 'done'",
    "a merge that deletes": "MERGE INTO [job] j USING (VALUES ('<ready>'::uuid)) v (id)"
    " ON j.id = v.id WHEN MATCHED THEN DELETE",
    "an edit inside a query": "WITH x AS (UPDATE [job] SET state = 'done' WHERE id = '<ready>'"
    " RETURNING id) SELECT * FROM x",
    "a declared and another move in one query": "WITH x AS ("
    + update("running", COMPLETE)
    + " RETURNING id), y AS ("
    + update("ready", COMPLETE)
    + " RETURNING id) SELECT * FROM x, y",
    "an event forged from a block": "DO $$ BEGIN "
    + FORGED_EVENT.format(job="ready", seq=2, at=NOW, move="claim", to="running")
    + "; END $$",
    "a birth that overwrites several": "INSERT INTO [job] SELECT * FROM [job]"
    " ON CONFLICT (id) DO UPDATE SET attempt_count = 0",
    "a payload edited by a query": "UPDATE [job_body] b SET payload = '[9]' FROM [job] j"
    " WHERE j.id = b.id AND j.state = 'ready'",
}


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
    flows = {flow[1:4]: flow.n for flow in own_world.store.flows("task")}
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
