"""Attacks on what the guard itself relies on: counters, notes, declarations, and the clock.

As in `attacks.py`: ``<fresh>`` stands for the id of that job, ``[flow]`` for the table.
"""

from __future__ import annotations

from tests.store.attacks import CLAIM, COMPLETE, LATER, MINE, NEW_BODY, NEW_JOB, insert, then, update
from tests.store.scene import DAY, NOW

WHERE = {
    "flow": "queue = 'task' AND move = 'claim'",
    "note": "job_id = '<done>'",
    "declared": "queue = 'task' AND move = 'complete'",
    "rules": "queue = 'task'",
    "state": "queue = 'task' AND name = 'done'",
}
EDITED: dict[str, dict[str, str]] = {
    "flow": {
        "queue": "'twin'",
        "tenant": "'other'",
        "move": "'other'",
        "from_state": "'failed'",
        "to_state": "'done'",
        "n": "n + 2",
        "at": "at - 1",
    },
    "note": {
        "id": "id + 1000",
        "queue": "'twin'",
        "tenant": "'other'",
        "job_id": "'<ready>'",
        "at": "1",
        "kind": "'other'",
        "actor": "'other'",
        "details": "'forged'",
    },
    "declared": {
        "queue": "'never'",
        "move": "'other'",
        "from_state": "'failed'",
        "to_state": "'failed'",
        "phase": "0",
        "claim": "1",
        "counts": "1",
        "base": "2",
        "returns": "1",
        "retries": "1",
        "mask": "0",
        "slot": "'mine'",
        "holds_key": "TRUE",
        "slots": "9",
        "slots_per": "1",
    },
    "rules": {
        "queue": "'never'",
        "version": "9",
        "fingerprint": "'x'",
        "definition": "'{}'",
        "virtual_time": "FALSE",
        "declared_at": "1",
    },
    "state": {"queue": "'never'", "name": "'other'", "phase": "0", "success": "FALSE", "waits": "TRUE"},
}
MAY_CHANGE = {"declared": {"min_age_us", "retired_at"}, "state": {"retired_at"}}
COPIED = "SELECT * FROM [{table}] WHERE {where}"


DECLARATION_ATTACKS = {
    f"{column} of {table} is edited": f"UPDATE [{table}] SET {column} = {value} WHERE {WHERE[table]}"
    for table, columns in EDITED.items()
    for column, value in columns.items()
}
DECLARATION_ATTACKS |= {
    f"rows of {table} are deleted": f"DELETE FROM [{table}] WHERE {where}" for table, where in WHERE.items()
}
DECLARATION_ATTACKS |= {f"{table} is emptied": f"DELETE FROM [{table}]" for table in WHERE}
DECLARATION_ATTACKS |= {
    f"{table} has a row twice": f"INSERT INTO [{table}] {COPIED}".format(table=table, where=WHERE[table])
    for table in ("note", "declared", "rules", "state")
}
DECLARATION_ATTACKS |= {
    "a counter is invented": "INSERT INTO [flow] (queue, tenant, move, from_state, to_state, n, at)"
    f" VALUES ('task', 'new', 'claim', 'ready', 'running', 3, {NOW})",
    "a counter is lowered": f"UPDATE [flow] SET n = n - 1 WHERE {WHERE['flow']}",
    "a note about the queue is deleted": "DELETE FROM [note] WHERE job_id IS NULL",
    "a job just finished is deleted": "DELETE FROM [job] WHERE id = '<fresh>'",
    "a job just finished is deleted with an old one": "DELETE FROM [job] WHERE id IN ('<fresh>', '<long_done>')",
    "a retired state is entered": update(
        "kept_out", MINE, state="'checking'", phase="2", move="'check'", finished_at=str(LATER)
    ),
    "a retired state is opened again": "UPDATE [state] SET retired_at = NULL WHERE queue = 'checked'",
    "moves into a retired state are opened again": "UPDATE [declared] SET retired_at = NULL WHERE queue = 'checked'",
    "a renewal that changes the priority": update("running", {"priority": "1", "lease_until": "lease_until + 1"}),
    "a finish that changes the priority": update("running", COMPLETE, priority="2"),
    "a priority beyond the highest": update("ready", CLAIM, priority="9"),
    "a key is held for good": "UPDATE [job_body] SET once = TRUE WHERE id = '<ready>'",
}
SQLITE_DECLARATION_ATTACKS = {
    f"{table} has a row replaced": f"INSERT OR REPLACE INTO [{table}] {COPIED}".format(table=table, where=WHERE[table])
    for table in WHERE
}
SQLITE_DECLARATION_ATTACKS |= {
    f"{column} of {table} is edited, replacing": f"UPDATE OR REPLACE [{table}]"
    f" SET {column} = {value} WHERE {WHERE[table]}"
    for table, columns in EDITED.items()
    for column, value in columns.items()
}
SQLITE_DECLARATION_ATTACKS |= {
    "a counter begins anew": "INSERT OR REPLACE INTO flow"
    f" SELECT queue, tenant, move, from_state, to_state, 1, at FROM flow WHERE {WHERE['flow']}",
    "a counter is forgotten, to begin anew": f"DELETE FROM counter WHERE {WHERE['flow']}",
    "a counter is renamed": f"UPDATE counter SET tenant = 'other' WHERE {WHERE['flow']}",
    "a counter is kept from being made": "INSERT INTO counter VALUES ('task', 'new', 'claim', 'ready', 'running')",
}
POSTGRES_DECLARATION_ATTACKS = {f"{table} is truncated": f"TRUNCATE [{table}]" for table in WHERE}
POSTGRES_DECLARATION_ATTACKS |= {
    "a counter is raised by one": f"UPDATE [flow] SET n = n + 1 WHERE {WHERE['flow']}",
    "a counter of nothing is invented": "INSERT INTO [flow]"
    " (queue, tenant, move, from_state, to_state, n, at)"
    f" VALUES ('task', 'new', 'claim', 'ready', 'running', 0, {NOW})",
    "a move is overwritten": f"INSERT INTO [declared] {COPIED} ON CONFLICT (queue, move,"
    " from_state, to_state) DO UPDATE SET claim = 1".format(table="declared", where=WHERE["declared"]),
    "a version is overwritten": f"INSERT INTO [rules] {COPIED} ON CONFLICT (queue, version)"
    " DO UPDATE SET virtual_time = TRUE".format(table="rules", where=WHERE["rules"]),
}


def moves_at(time: int) -> dict[str, str]:
    """A claim and a birth in a queue whose time is the database's, dated ``time``."""
    when = {"moved_at": str(time), "claimed_at": str(time), "lease_until": str(time + 1)}
    birth = {"queue": "'real'", "created_at": str(time), "moved_at": str(time)}
    return {
        "a claim": update("now_ready", CLAIM, **when),
        "a birth": then(insert("job", NEW_JOB, **birth), insert("job_body", NEW_BODY, queue="'real'")),
    }


TOO_FAR = 2 * DAY
NEAR_ENOUGH = DAY - DAY // 24
