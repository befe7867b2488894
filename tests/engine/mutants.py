"""Deliberate bugs: a store whose own SQL is changed in one place, for the simulator to catch.

The database's guard would refuse most of them at once. It is changed to check only the names of
moves, so that the checker has to find the bug by itself.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.task import task_lifecycle
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle

Edit = tuple[str, str]  # a pattern in a statement, and what stands there instead

DISARMED: tuple[Edit, ...] = (
    (r"AND NEW\.seq = OLD\.seq \+ 1 .*?OR d\.mask & 64\)", ""),
    (r"AND \(NEW\.timer_at IS OLD\.timer_at OR.*?OR d\.mask & 1024\)\)", ")"),
    (r"RAISE\(ABORT, 'kesin: UNIQUE (?:slot|key)[^']*'\)", "1"),
    (r"(guard_prunes BEFORE DELETE ON job\s+(?:WHEN [^\n]*\s+)?BEGIN\s+SELECT) RAISE\([^)]*\)", r"\1 1"),
    (r"\(NEW\.n <> OLD\.n \+ 1 OR NEW\.at < OLD\.at\)", "FALSE"),
)


class Mutant(NamedTuple):
    """A bug: the edits, the rules that may report it, the steps it needs, and a seed for fewer."""

    bug: str
    edits: tuple[Edit, ...]
    seen_as: set[str]
    lifecycle: Callable[[], Lifecycle] = task_lifecycle
    within: int = 2_000  # steps
    seed: int = 2


class _Edited:
    """A connection that edits some statements."""

    def __init__(self, real: sqlite3.Connection, edits: tuple[Edit, ...], made: set[Edit]) -> None:
        self._real = real
        self._edits = [(re.compile(edit[0], re.DOTALL), edit) for edit in edits]
        self._made = made
        self._cache: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def execute(self, sql: str, *params: Any) -> sqlite3.Cursor:
        return self._real.execute(self._cache.get(sql) or self._edited(sql), *params)

    def _edited(self, sql: str) -> str:
        text = sql
        for pattern, edit in self._edits:
            text, count = pattern.subn(edit[1], text)
            if count:
                self._made.add(edit)
        self._cache[sql] = text
        return text


# Edits → a database with the edited schema, to be copied, and the edits that matched in it.
_READY: dict[tuple[Edit, ...], tuple[sqlite3.Connection, set[Edit]]] = {}


class MutantStore(SqliteStore):
    """An in-memory store with a bug; ``made`` collects the edits that matched."""

    def __init__(self, edits: tuple[Edit, ...], made: set[Edit]) -> None:
        self._edits = (*DISARMED, *edits)
        self._made = made
        super().__init__(":memory:")

    def migrate(self) -> list[str]:
        """Edit the triggers as well: the only connection is replaced before they are made."""
        real = self._connections.writer
        writer = _Edited(real, self._edits, self._made)
        self._connections._writer = writer  # type: ignore[assignment]
        ready = _READY.get(self._edits)
        if ready is None:
            applied = super().migrate()
            ready = _READY[self._edits] = sqlite3.connect(":memory:"), {*self._made}
            real.backup(ready[0])
            return applied
        ready[0].backup(real)
        self._made |= ready[1]
        return []


class KeepsWhatWasRolledBack(SqliteStore):
    """A store whose transactions commit whatever happens in them."""

    def __init__(self) -> None:
        super().__init__(":memory:")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        problem: BaseException | None = None
        with super().transaction() as connection:
            try:
                yield connection
            except BaseException as raised:  # noqa: BLE001  # raised after the commit
                problem = raised
        if problem is not None:
            raise problem


MUTANTS = (
    Mutant(
        "a finish without its fence",
        ((r"j\.claim_seq = coalesce\((?:i\.|:same_)token, -1\)", "TRUE"),),
        {"fence", "guard"},
        seed=54,
    ),
    Mutant(
        "a finish that does not ask whether the job is claimed",
        ((r"\(j\.phase = 1 AND j\.claim_seq = coalesce\((?:i\.|:same_)token, -1\)\)", "TRUE"),),
        {"fence", "guard", "refusal"},
        seed=2,
    ),
    Mutant("a sweep without its lease", ((r"j\.lease_until <= :now", "TRUE"),), {"guard"}),
    Mutant(
        "a sweep without its age", ((r"coalesce\(j\.finished_at <= :now - \d+, FALSE\)", "TRUE"),), {"guard"}, seed=39
    ),
    Mutant(
        "a sweep that leaves the last one",
        ((r"LIMIT :limit\)\s+RETURNING", "LIMIT :limit - 1)\nRETURNING"),),
        {"sweep"},
        seed=7,
    ),
    Mutant(
        "a claim that forgets to count",
        ((r"attempt_count = j\.attempt_count \+ 1", "attempt_count = j.attempt_count"),),
        {"effect", "answer"},
    ),
    Mutant(
        "a claim beyond the budget",
        ((r"j\.phase <> 1 AND j\.attempt_count - j\.attempt_base < j\.max_attempts", "j.phase <> 1"),),
        {"error", "guard", "budget"},
        optiplan_lifecycle,
        seed=0,  # of a run that begins under the newest rules: to prove an upgrade takes seconds
    ),
    Mutant("a claim before its time", ((r"j\.run_at <= :now", "TRUE"),), {"guard"}),
    Mutant("a claim that ignores a pause", ((r"p\.tenant IN \('', :tenant\)", "FALSE"),), {"pause"}, seed=3),
    Mutant(
        "a claim whose token is an old one",
        ((r"claim_seq = j\.seq \+ 1", "claim_seq = j.claim_seq + 1"),),
        {"effect", "answer", "replay", "error"},
    ),
    Mutant(
        "an event not written",
        ((r"result, new_payload ON job", "result, new_payload ON job WHEN NEW.move <> 'release'"),),
        {"event", "replay"},
    ),
    Mutant(
        "an event that forgets the error",
        ((r"NEW\.error_message, NEW\.note, NEW\.run_at", "NULL, NEW.note, NEW.run_at"),),
        {"replay"},
    ),
    Mutant(
        "a count not written",
        ((r"DO UPDATE SET n = n \+ 1", "DO UPDATE SET n = n + (n <> 3)"),),
        {"counters", "effect", "sweep"},
        seed=0,
    ),
    Mutant("a retry that comes too soon", ((r"WHEN 0 THEN 15000000", "WHEN 0 THEN 5000000"),), {"effect"}, seed=7),
    Mutant("a release without an end", ((r"j\.return_count < 2", "TRUE"),), {"guard", "budget"}, seed=3),
    Mutant(
        "one job more than there are slots",
        ((r"SELECT max\(d\.slots\)", "SELECT max(d.slots) + 1"),),
        {"slot"},
        lifecycle=partial(task_lifecycle, concurrency=2, per="tenant"),
        seed=4,
    ),
    Mutant(
        "a rate that is counted once",
        ((r"DO UPDATE SET free_at = excluded\.free_at", "DO NOTHING"),),
        {"rate", "claim"},
        lifecycle=partial(task_lifecycle, rate=(2, 60)),
        seed=18,
    ),
    Mutant(
        "a job that runs before those it comes after",
        ((r"NOT EXISTS \(SELECT 1 FROM parent p JOIN job k .*?success, FALSE\)\)", "1"),),
        {"settle", "guard", "sweep"},
        lifecycle=partial(task_lifecycle, parents=True),
        seed=1,
    ),
    Mutant(
        "a job that never hears of those it comes after",
        ((r"SET news = 1, done = done OR", "SET done = done OR"),),
        {"settle", "guard", "sweep"},
        lifecycle=partial(task_lifecycle, parents=True),
        seed=7,
    ),
    Mutant(
        "a parent that is pruned too early",
        ((r"AND \(c\.phase NOT IN \(2, 3\) OR s\.waits\)", "AND FALSE"),),
        {"parents"},
        lifecycle=partial(task_lifecycle, parents=True, keep_days=1),
        within=6_000,
        seed=37,
    ),
    Mutant(
        "a requeue that keeps the old budget",
        ((r"attempt_base = j\.attempt_count,", "attempt_base = j.attempt_base,"),),
        {"effect"},
        seed=0,
    ),
    Mutant(
        "a renewal of a lost claim", ((r"j\.phase = 1 AND j\.claim_seq = i\.token", "j.phase = 1"),), {"lease"}, seed=11
    ),
    Mutant(
        "a renewal beyond the longest run",
        ((r"min\(:now \+ :lease_us, [^)]*\)", ":now + :lease_us"),),
        {"effect"},
        within=6_000,
        seed=49,
    ),
    Mutant(
        "a claim that takes the youngest first",
        ((r"ORDER BY j\.run_at, j\.id\s+LIMIT :share", "ORDER BY j.run_at DESC, j.id LIMIT :share"),),
        {"claim"},
        seed=25,
    ),
    Mutant(
        "a claim that forgets whose turn it is",
        ((r"j\.tenant > :after", "j.tenant > ''"), (r"j\.tenant <= :after", "FALSE")),
        {"turn"},
        seed=5,
    ),
    Mutant(
        "a claim that begins with the tenant served last",
        ((r"j\.tenant > :after", "j.tenant >= :after"), (r"j\.tenant <= :after", "j.tenant < :after")),
        {"turn"},
    ),
    Mutant(
        "two jobs with one key",
        (
            (r"h\.held_key = i\.dedup_key\)", "FALSE)"),
            (r"CREATE UNIQUE INDEX job_body_key", "CREATE INDEX job_body_key"),
        ),
        {"key"},
        seed=1,
    ),
    Mutant("a key held for good that is let go", ((r"AND NOT once AND EXISTS", "AND EXISTS"),), {"key"}, seed=7),
    Mutant(
        "a claim that ignores priorities",
        (
            (r"(queue = :queue AND phase = 0 AND priority <> 0)", r"\1 AND FALSE"),
            (r"j\.priority = l\.value", "TRUE"),
            (r"j\.priority = :level", "TRUE"),
        ),
        {"claim"},
        seed=4,
    ),
    Mutant(
        "a schedule that stays at its tick", ((r"next_at = excluded\.next_at", "next_at = next_at"),), {"tick"}, seed=1
    ),
    Mutant(
        "two jobs in one slot",
        (
            (r"NOT EXISTS \(SELECT 1 FROM job s WHERE[^)]*\)", "TRUE"),
            (r"CREATE UNIQUE INDEX job_slot", "CREATE INDEX job_slot"),
        ),
        {"slot", "guard"},
        optiplan_lifecycle,
        6_000,
        seed=8,
    ),
    Mutant(
        "time that runs backwards",
        ((r"iif\(:now > j\.moved_at, :now, j\.moved_at\)", ":now"),),
        {"effect", "answer"},
        oci_lifecycle,
        seed=3,
    ),
)
