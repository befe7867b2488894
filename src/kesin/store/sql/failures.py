"""Fragments of the statement that counts failures: three parts, each read from one index."""

from collections.abc import Collection

from kesin.lifecycle.declare import Move
from kesin.lifecycle.failures import ERROR_GUARDS, failure_states, ready_states, revivals
from kesin.store.sql.conditions import MoveConditions
from kesin.store.sql.dialect import fill, template

_NEVER = "CAST(NULL AS bigint)"


def failures_sql(
    conditions: MoveConditions, filters: str, states: Collection[str] | None = None
) -> str:
    """Jobs with an error that are not over, counted; all of them, or those in these states."""
    dialect = conditions.dialect
    text, shared = template(dialect.name, "failures"), {"job": dialect.table("job")}
    shared["filters"] = filters
    parts = [fill(text, {**shared, **part}) for part in _parts(conditions, states)]
    return "\nUNION ALL\n".join(parts)


def _parts(conditions: MoveConditions, only: Collection[str] | None) -> list[dict[str, str]]:
    lifecycle = conditions.lifecycle
    ready, failing = (
        conditions.name_list(tuple(name for name in names if only is None or name in only))
        for names in (ready_states(lifecycle), failure_states(lifecycle))
    )
    moves = revivals(lifecycle)
    by_error = " OR ".join(_both(conditions, move, by_error=True) for move in moves)
    by_job = " OR ".join(_both(conditions, move) for move in moves)
    parts = [
        {"states": ready, "wanted": "j.phase = 0", "retries": "TRUE", "next_at": "j.run_at"},
        {"states": failing, "retries": "FALSE", "next_at": _NEVER}
        | {"wanted": f"NOT ({by_error})" if moves else "TRUE"},
    ]
    if moves:
        next_at = f"CASE WHEN {by_job} THEN j.timer_at END"
        parts.append(
            {"states": failing, "wanted": f"({by_error})", "retries": f"({by_job})"}
            | {"next_at": next_at}
        )
    return [part for part in parts if part["states"] != "()"]


def _both(conditions: MoveConditions, move: Move, *, by_error: bool = False) -> str:
    """The move's state and guards once its time has come; ``by_error``: what the error decides."""
    timed = {"timer_over": "j.timer_at IS NOT NULL", "due": "j.run_at IS NOT NULL"}
    guards = [guard for guard in move.when if not by_error or guard.kind in ERROR_GUARDS]
    tests = [f"j.state IN {conditions.name_list(move.sources)}"]
    tests += [timed.get(guard.kind) or conditions.guard(guard) for guard in guards]
    return f"({' AND '.join(tests)})"
