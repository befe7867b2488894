"""Declared moves and attacks as they are typed at a SQL prompt.

``<ready>`` stands for the id of the job of that name, ``[job]`` for the table.
"""

from __future__ import annotations

from tests.store.scene import HOUR, NOW, UNKNOWN_ID

LATER = NOW + HOUR
FOREIGN = "00000000-0000-7000-8000-00000000000f"


def columns(text: str, *others: dict[str, str]) -> dict[str, str]:
    """The columns of a list as it stands after SET, and those of other lists."""
    pairs = (pair.strip().split(" = ", 1) for pair in text.split(","))
    return {name: value for sets in (*others, dict(pairs)) for name, value in sets.items()}


MINE = columns(f"actor = 'me', seq = seq + 1, moved_at = {LATER}")
FREE = columns("worker = NULL, claimed_at = NULL, lease_until = NULL")
NO_ERROR = columns("error_code = NULL, error_category = NULL, error_message = NULL")
CLAIM = columns(
    f"""
    state = 'running', phase = 1, move = 'claim', claim_seq = seq + 1,
    attempt_count = attempt_count + 1, worker = 'me', claimed_at = {LATER},
    lease_until = {LATER + 1}
    """,
    MINE,
)
COMPLETE = columns(
    f"""
    state = 'done', phase = 3, move = 'complete', result = '[2]', finished_at = {LATER}
    """,
    MINE,
    FREE,
    NO_ERROR,
)
RETRY = columns(
    f"""
    state = 'ready', phase = 0, move = 'retry', error_code = 'X', error_category = 'TRANSIENT',
    error_message = 'by hand', run_at = {LATER}
    """,
    MINE,
    FREE,
)
REQUEUE = columns(
    f"""
    state = 'ready', phase = 0, move = 'requeue', attempt_base = attempt_count, return_count = 0,
    run_at = {LATER}, finished_at = NULL
    """,
    MINE,
)
CORRECT = columns(
    f"""
    state = 'QUEUED', phase = 0, move = 'correct', attempt_base = attempt_count,
    return_count = 0, run_at = {LATER}, timer_at = NULL, new_payload = '[2]',
    payload_seq = seq + 1, finished_at = NULL, stamp_1 = {NOW}, stamp_3 = NULL
    """,
    MINE,
    NO_ERROR,
)
RUN = columns(
    f"""
    state = 'OPTI_RUNNING', move = 'run', slot = 'OPTI_RUNNING', timer_at = {LATER}
    """,
    MINE,
)
PREPARE = columns("state = 'PREPARED', move = 'prepare', timer_at = NULL", MINE)
NEW_JOB = columns(
    f"""
    id = '{FOREIGN}', queue = 'task', tenant = 'default', state = 'ready', phase = 0,
    move = 'enqueue', actor = 'me', seq = 1, max_attempts = 5, salt = 7, keyed = TRUE,
    created_at = {NOW}, moved_at = {NOW}, run_at = {NOW}
    """
)
NEW_BODY = columns(
    f"""
    id = '{FOREIGN}', queue = 'task', tenant = 'default', dedup_key = 'mine', held_key = 'mine',
    payload = '[]'
    """
)


def update(job, sets, **changes):
    pairs = ", ".join(f"{column} = {value}" for column, value in (sets | changes).items())
    return f"UPDATE [job] SET {pairs} WHERE id = '<{job}>'"


def update_or(clause, job, sets, **changes):
    """An update of SQLite with a conflict clause."""
    return update(job, sets, **changes).replace("UPDATE", f"UPDATE OR {clause}")


def insert(table, values, *, how="INSERT", **changes):
    values = values | changes
    names, given = ", ".join(values), ", ".join(values.values())
    return f"{how} INTO [{table}] ({names}) VALUES ({given})"


def then(*statements):
    return "\n---\n".join(statements)


def together(**moves: dict[str, str]) -> str:
    """One statement that sets for each of these jobs what is said of it."""
    sets_of_columns = []
    for column in dict.fromkeys(column for sets in moves.values() for column in sets):
        whens = [f"WHEN id = '<{job}>' THEN {sets[column]}" for job, sets in moves.items() if column in sets]
        sets_of_columns.append(f"{column} = CASE {' '.join(whens)} ELSE {column} END")
    ids = ", ".join(f"'<{job}>'" for job in moves)
    return f"UPDATE [job] SET {', '.join(sets_of_columns)} WHERE id IN ({ids})"


# Attacks

EDITS = columns(
    f"""
    id = '{UNKNOWN_ID}', queue = 'twin', tenant = 'other', state = 'done', phase = 2,
    move = 'cancel', actor = 'me', worker = 'me', slot = 'mine', seq = 7, claim_seq = 1,
    payload_seq = 9, attempt_count = attempt_count + 1, attempt_base = attempt_base + 1,
    return_count = 2, max_attempts = 99, retry_count = 1, salt = 1, flags = 1,
    error_code = 'FORGED', error_category = 'AUTH', error_message = 'forged', note = 'forged',
    result = '[9]', new_payload = '[9]', created_at = 1, moved_at = {LATER}, run_at = 1,
    timer_at = 1, claimed_at = 1, finished_at = 1, stamp_1 = 1, stamp_2 = 1, stamp_3 = 1,
    stamp_4 = 1, priority = 1
    """
)
WRONG_CLAIMS = {
    column: value for column, value in EDITS.items() if column not in ("actor", "worker", "note", "moved_at")
} | columns(f"""
    state = 'failed', phase = 0, move = 'complete', seq = seq + 2, claim_seq = seq,
    attempt_count = attempt_count, claimed_at = {NOW}, moved_at = {NOW - 1}, worker = NULL,
    lease_until = NULL
""")
WRONG_JOBS = columns(
    f"""
    queue = 'never', state = 'running', move = 'claim', phase = 3, seq = 2, moved_at = {LATER},
    claim_seq = 1, payload_seq = 2, attempt_count = 1, attempt_base = 1, return_count = 1,
    retry_count = 1, max_attempts = -1, flags = 1, slot = 'mine', worker = 'me',
    error_code = 'FORGED', error_category = 'AUTH', error_message = 'forged', result = '[9]',
    new_payload = '[9]', timer_at = 1, claimed_at = 1, lease_until = 1, finished_at = 1,
    run_at = NULL, stamp_1 = 1, stamp_2 = 1, stamp_3 = 1, stamp_4 = 1, priority = 3
    """
)
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
    "a finish that counts an attempt": update("running", COMPLETE, attempt_count="attempt_count + 1"),
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
    "a finish under another id": update("running", COMPLETE, id=f"'{UNKNOWN_ID}'"),
    "a finish that replaces the payload": update("running", COMPLETE, new_payload="'[9]'", payload_seq="seq + 1"),
    "a retry that records a result": update("running", RETRY, result="'[9]'"),
    "a retry that says it is finished": update("running", RETRY, finished_at=str(LATER)),
    "a retry that renews the budget": update("running", RETRY, attempt_base="attempt_count", max_attempts="99"),
    "a requeue that takes a taken key": update("loser", REQUEUE),
    "a requeue that counts a return": update("failed", REQUEUE, return_count="1"),
    "a correction without a payload": update("invalid", CORRECT, new_payload="NULL"),
    "a correction that hides when": update("invalid", CORRECT, payload_seq="payload_seq"),
    "a second job in the slot": update("waiting", RUN),
    "a run past the slot": update("waiting", RUN, slot="NULL"),
    "a run into a slot of another name": update("waiting", RUN, slot="'another'"),
    "a slot left by hand": update("holder", {"slot": "NULL"}),
    "a prune by update": update("done", MINE, state="''", phase="3", move="'prune'"),
    "a lease for an unclaimed job": update("ready", {"lease_until": str(LATER)}),
    "a lease taken from a claimed job": update("running", {"lease_until": "NULL"}),
    "a claim taken from its worker": update("running", {"worker": "'thief'"}),
    "a claim thrown away": update("running", FREE | {"phase": "0"}),
    "two jobs of which one move is declared": "UPDATE [job] SET "
    + ", ".join(f"{column} = {value}" for column, value in CLAIM.items())
    + " WHERE id IN ('<ready>', '<done>')",
    "every job at once": "UPDATE [job] SET state = 'done', seq = seq + 1",
    "a job created again": insert("job", NEW_JOB, id="'<ready>'"),
    "a new job that overwrites": insert("job", NEW_JOB, id="'<done>'")
    + " ON CONFLICT (id) DO UPDATE SET state = 'ready', phase = 0",
    "a new job that overwrites by a number": insert("job", NEW_JOB, id="'<done>'")
    + " ON CONFLICT (id) DO UPDATE SET seq = job.seq + 1",
    "a job that hides its key": update("ready", {"keyed": "FALSE"}),
    "a finish that hides its key": update("running", COMPLETE, keyed="FALSE"),
    "a new job that hides its key": then(insert("job", NEW_JOB, keyed="FALSE"), insert("job_body", NEW_BODY)),
    "a ready job is deleted": "DELETE FROM [job] WHERE id = '<ready>'",
    "a claimed job is deleted": "DELETE FROM [job] WHERE id = '<running>'",
    "a waiting job is deleted": "DELETE FROM [job] WHERE id = '<retry>'",
    "a job that is kept for good is deleted": "DELETE FROM [job] WHERE id = '<unprunable>'",
    "a finished and a live job are deleted": "DELETE FROM [job] WHERE id IN ('<done>', '<ready>')",
    "all jobs are deleted": "DELETE FROM [job]",
    "a next event is forged": FORGED_EVENT.format(job="ready", seq=2, at=NOW, move="claim", to="running"),
    "a first event is forged": FORGED_EVENT.format(job="ready", seq=0, at=NOW, move="enqueue", to="ready"),
    "an event is forged twice": FORGED_EVENT.format(job="ready", seq=1, at=NOW, move="enqueue", to="ready"),
    "an event of no job is forged": FORGED_EVENT.format(job="ready", seq=1, at=NOW, move="enqueue", to="ready").replace(
        "<ready>", UNKNOWN_ID
    ),
    "an event is edited": "UPDATE [event] SET actor = 'somebody else' WHERE job_id = '<done>'",
    "an event is dated back": "UPDATE [event] SET at = 1 WHERE job_id = '<done>' AND seq = 2",
    "an event is given to another job": "UPDATE [event] SET job_id = '<ready>', seq = 9"
    " WHERE job_id = '<done>' AND seq = 3",
    "an event is deleted": "DELETE FROM [event] WHERE job_id = '<done>' AND seq = 3",
    "all events are deleted": "DELETE FROM [event]",
    "a payload is edited": "UPDATE [job_body] SET payload = '[9]' WHERE id = '<ready>'",
    "a payload of a finished job is edited": "UPDATE [job_body] SET payload = '[9]' WHERE id = '<done>'",
    "a key is edited": "UPDATE [job_body] SET dedup_key = 'x' WHERE id = '<ready>'",
    "a key is let go": "UPDATE [job_body] SET held_key = NULL WHERE id = '<ready>'",
    "a freed key is taken": "UPDATE [job_body] SET held_key = dedup_key WHERE id = '<failed>'",
    "a body is given to another tenant": "UPDATE [job_body] SET tenant = 'x' WHERE id = '<ready>'",
    "a body is given to another queue": "UPDATE [job_body] SET queue = 'x' WHERE id = '<ready>'",
    "a body is given to another job": f"UPDATE [job_body] SET id = '{UNKNOWN_ID}' WHERE id = '<ready>'",
    "a body is deleted": "DELETE FROM [job_body] WHERE id = '<ready>'",
    "all bodies are deleted": "DELETE FROM [job_body]",
    "a body without a job": insert("job_body", NEW_BODY),
    "a second body for a job": insert("job_body", NEW_BODY, id="'<other>'"),
    "a body that overwrites": insert("job_body", NEW_BODY, id="'<ready>'")
    + " ON CONFLICT (id) DO UPDATE SET payload = '[9]'",
    "a body whose key is not held": then(insert("job", NEW_JOB), insert("job_body", NEW_BODY, held_key="NULL")),
    "a body that holds another key": then(insert("job", NEW_JOB), insert("job_body", NEW_BODY, held_key="'another'")),
    "a body for another tenant than its job": then(
        insert("job", NEW_JOB), insert("job_body", NEW_BODY, tenant="'another'")
    ),
    "a body whose key is taken": then(
        insert("job", NEW_JOB), insert("job_body", NEW_BODY, dedup_key="'taken'", held_key="'taken'")
    ),
    "a declared move and then an edit": then(update("running", COMPLETE), update("running", {"result": "'[9]'"})),
}
SWAP = "UPDATE [job] SET id = CASE id WHEN '<ready>' THEN {other} ELSE {ready} END WHERE id IN ('<ready>', '<other>')"
SQLITE_ATTACKS = {
    "two jobs that swap ids": SWAP.format(ready="'<ready>'", other="'<other>'"),
    "a new job that replaces": insert("job", NEW_JOB, how="INSERT OR REPLACE", id="'<done>'"),
    "a replace": insert("job", NEW_JOB, how="REPLACE", id="'<ready>'"),
    "a new job that replaces the holder of a slot": insert(
        "job", NEW_JOB, how="INSERT OR REPLACE", slot="'OPTI_RUNNING'", queue="'optiplan'"
    ),
    "an update that replaces another job": update_or("REPLACE", "ready", CLAIM, id="'<other>'"),
    "an edit that replaces another job": update_or("REPLACE", "ready", {"id": "'<other>'"}),
    "a run that replaces the holder of the slot": update_or("REPLACE", "waiting", RUN),
    "a requeue that replaces the holder of its key": update_or("REPLACE", "loser", REQUEUE),
    "a body that replaces": insert("job_body", NEW_BODY, how="INSERT OR REPLACE", id="'<ready>'"),
    "a body that replaces the holder of its key": then(
        insert("job", NEW_JOB),
        insert("job_body", NEW_BODY, how="INSERT OR REPLACE", dedup_key="'taken'", held_key="'taken'"),
    ),
    "an event that replaces": FORGED_EVENT.format(job="ready", seq=1, at=NOW, move="enqueue", to="ready").replace(
        "INSERT", "INSERT OR REPLACE"
    ),
    "an event edited by replacing": "UPDATE OR REPLACE [event] SET seq = 1 WHERE job_id = '<done>'",
    "an edit with ignore": update_or("IGNORE", "ready", {"state": "'done'"}),
    "a move nobody declared with ignore": update_or("IGNORE", "ready", COMPLETE),
    "an edit with fail": update_or("FAIL", "ready", {"state": "'done'"}),
}
SQLITE_IGNORED = {
    "a second job in the slot with ignore": update_or("IGNORE", "waiting", RUN),
    "a lease for an unclaimed job with ignore": update_or("IGNORE", "ready", {"lease_until": "1"}),
    "a new job that is ignored": insert("job", NEW_JOB, how="INSERT OR IGNORE", id="'<ready>'"),
    "a body that is ignored": insert("job_body", NEW_BODY, how="INSERT OR IGNORE", id="'<ready>'"),
}
POSTGRES_ATTACKS = {
    "two jobs that swap ids": SWAP.format(ready="'<ready>'::uuid", other="'<other>'::uuid"),
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
    "a new job that overwrites several": "INSERT INTO [job] SELECT * FROM [job]"
    " ON CONFLICT (id) DO UPDATE SET attempt_count = 0",
    "a payload edited by a query": "UPDATE [job_body] b SET payload = '[9]' FROM [job] j"
    " WHERE j.id = b.id AND j.state = 'ready'",
}
