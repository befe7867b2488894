"""Every statement reaches rows by an index, whatever the statistics say and whatever ran before.

PostgreSQL shows the plan it really used, of the statement and of every statement inside the
guard's triggers, through auto_explain. SQLite shows its plan on request, and how many steps its
virtual machine took. Everything is rolled back, so each call meets the same rows.
"""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kesin.store.postgres.store import PostgresStore
from kesin.store.sqlite.store import SqliteStore
from tests.store.crowd import QUEUES, crowd_postgres, crowd_sqlite
from tests.store.sql.plan_calls import BATCH, SMALL, Call, calls, moved_by, read_rows

FEW, MEDIUM, LARGE = 8_000, 16_000, 100_000  # what grows with the rows shows
GROWTH_MOST = 1.5
MOST_SHOWN = 60
STEPS = 100  # of SQLite's virtual machine, counted at once
COMPILED_ABOVE = 100_000  # PostgreSQL's jit_above_cost: compiling takes longer than any of these
TABLES = {"job", "job_body", "event", "search_term"}


# PostgreSQL

EXPLAINED = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "auto_explain.log_nested_statements": "on",
    "client_min_messages": "log",
    "jit": "off",
}


class Explained:
    """A store of one session that keeps the plan of everything it was asked."""

    def __init__(self, url: str, schema: str, *, generic: bool = False) -> None:
        settings = EXPLAINED | ({"plan_cache_mode": "force_generic_plan"} if generic else {})
        options = "%20".join(f"-c%20{name}%3D{value}" for name, value in settings.items())
        self.store = PostgresStore(f"{url}&options={options}", schema=schema, pool_size=1, listen=False)
        for queue, lifecycle in QUEUES.items():
            self.store.open(queue, lifecycle, virtual_time=True)
        self.plans: list[dict[str, Any]] = []
        with self.store._pool.connection() as connection:
            connection.add_notice_handler(self._keep)
            if generic:
                connection.prepare_threshold = 0

    def _keep(self, notice: psycopg.errors.Diagnostic) -> None:
        text = notice.message_primary or ""
        if "plan:" in text:
            self.plans.append(json.loads(text.partition("plan:")[2]))

    def problems(self, call: Call) -> Iterator[str]:
        """What is wrong with a batch of this call, statement by statement."""
        self.plans.clear()
        moved = moved_by(self.store, call, BATCH)
        if moved < call.moves:
            yield f"moved {moved} jobs, {call.moves} were there"
        used: set[str] = set()
        for plan in self.plans:
            if plan["Plan"]["Total Cost"] > COMPILED_ABOVE:
                yield f"is compiled first, at a cost of {plan['Plan']['Total Cost']:.0f}"
            for node in nodes(plan["Plan"]):
                used |= {node.get("Index Name", "")}
                complaint = wrong_with(node, call.visits)
                if complaint:
                    yield f"{complaint} in {plan['Query Text'].strip()[:60]!r}"
        if not call.uses <= used:
            yield f"does not use {sorted(call.uses - used)}, but {sorted(used)}"


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def wrong_with(node: dict[str, Any], most: int) -> str:
    what = f"{node['Node Type']} {node.get('Relation Name') or node.get('CTE Name') or ''}".strip()
    if node["Node Type"] == "Seq Scan" and node["Relation Name"] in TABLES:
        return what
    removed = sum(value for name, value in node.items() if name.startswith("Rows Removed by"))
    visited = round((node["Actual Rows"] + removed) * node["Actual Loops"])
    return f"{what} visits {visited} rows" if visited > most else ""


def listed_if(*, long: bool) -> dict[str, Any]:
    """Pages of every queue, in the long form."""
    return {"listed": QUEUES} if long else {}


def analyze(url: str, schema: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for table in ("job", "job_body", "event", "flow", "declared", "paused"):
            connection.execute(f"ANALYZE {schema}.{table}")


@pytest.mark.parametrize("jobs", [SMALL, pytest.param(LARGE, marks=pytest.mark.long)])
def test_postgres_reaches_rows_by_index_whatever_the_statistics_say(
    postgres_url: str, jobs: int, request: pytest.FixtureRequest
):
    schema = f"plans_{jobs}"
    crowd_postgres(postgres_url, schema, jobs)
    problems: list[str] = []

    plain = Explained(postgres_url, schema)
    long = request.config.getoption("--long")
    with closing(plain.store):
        todo = list(calls(read_rows(plain.store), **listed_if(long=long)))

    def check(when: str, *, first: int = 0, generic: bool = False) -> None:
        explained = Explained(postgres_url, schema, generic=generic)
        with closing(explained.store):
            for call in todo:
                if first:
                    moved_by(explained.store, call, first)
                problems.extend(f"{when}: {call.name}: {p}" for p in explained.problems(call))

    for statistics in ("no statistics", "analyzed"):
        if statistics == "analyzed":
            analyze(postgres_url, schema)
        if long or statistics == "analyzed":
            check(statistics)
        if long:
            check(f"{statistics}, after a batch of one", first=1)
        if long or statistics == "no statistics":
            check(f"{statistics}, generic plans", first=1, generic=True)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE")
    assert not problems, "\n".join([f"{len(problems)} problems", *problems[:MOST_SHOWN]])


# SQLite

SCANNED = re.compile(r"^SCAN (job|job_body|event|search_term|st|[jcsbhe])\b")


class Watched:
    """A connection that records its statements, and counts the steps it took."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.sent: list[tuple[str, Any]] = []
        self.steps = 0
        connection.set_progress_handler(self._step, STEPS)

    def _step(self) -> int:
        self.steps += STEPS
        return 0

    def execute(self, sql: str, params: Any = ()) -> sqlite3.Cursor:
        self.sent.append((sql, params))
        return self.connection.execute(sql, params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def plan(self) -> list[str]:
        lines = []
        for sql, params in self.sent:
            if sql.lstrip().upper().startswith(("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")):
                rows = self.connection.execute(f"EXPLAIN QUERY PLAN {sql}", params)
                lines += [row[3] for row in rows]
        return lines


def sqlite_steps(path: Path, when: str, problems: list[str], **listed: Any) -> dict[str, int]:
    """The steps each call takes; scans and missing indexes go to ``problems``."""
    store = SqliteStore(path)
    steps: dict[str, int] = {}
    with closing(store):
        for queue, lifecycle in QUEUES.items():
            store.open(queue, lifecycle, virtual_time=True)
        todo = list(calls(read_rows(store), **listed))
        store._connections._writer = watched = Watched(store._writer)  # type: ignore[assignment]
        for call in todo:
            watched.sent.clear()
            watched.steps = 0
            moved = moved_by(store, call, BATCH)
            steps[call.name] = watched.steps
            plan = watched.plan()
            text = "\n".join(plan)
            complaints = [f"a full {line}" for line in plan if SCANNED.match(line)]
            missing = {way for way in call.uses if not way.endswith("_pkey") and way not in text}
            if moved < call.moves:
                complaints.append(f"moved {moved} jobs, {call.moves} were there")
            if missing:
                complaints.append(f"does not use {sorted(missing)}:\n{text}")
            problems.extend(f"{when}: {call.name}: {text}" for text in complaints)
    return steps


@pytest.mark.parametrize(("least", "most"), [(FEW, MEDIUM), pytest.param(SMALL, LARGE, marks=pytest.mark.long)])
def test_sqlite_reaches_rows_by_index_and_takes_as_many_steps_among_more(
    tmp_path: Path, least: int, most: int, request: pytest.FixtureRequest
):
    listed = listed_if(long=request.config.getoption("--long"))
    problems: list[str] = []
    steps: dict[tuple[str, int], dict[str, int]] = {}
    for jobs in (least, most):
        path = tmp_path / f"{jobs}.db"
        crowd_sqlite(path, jobs)
        steps["no statistics", jobs] = sqlite_steps(path, f"{jobs} jobs, no statistics", problems, **listed)
        if most in (jobs, LARGE):
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("PRAGMA analysis_limit = 1000")
                connection.execute("ANALYZE")
            steps["analyzed", jobs] = sqlite_steps(path, f"{jobs} jobs, analyzed", problems, **listed)
    for statistics, jobs in steps:
        if jobs == least:
            few, many = steps[statistics, least], steps[statistics, most]
            problems += [
                f"{statistics}: {name}: {few[name]} steps among {least}, {many[name]} among {most}"
                for name in few
                if many[name] > GROWTH_MOST * few[name] + 1_000
            ]
    assert not problems, "\n".join([f"{len(problems)} problems", *problems[:MOST_SHOWN]])
