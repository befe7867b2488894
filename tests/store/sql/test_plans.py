"""Every statement reaches rows by an index, whatever the statistics say and whatever ran before.

PostgreSQL shows the plan it really used, of the statement and of every statement inside the
guard's triggers, through auto_explain. SQLite shows its plan on request, and how many steps its
virtual machine took. Everything is rolled back, so each call meets the same rows.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kesin.lifecycle.declare import Move
from kesin.lifecycle.model import Change, Job, MoveContext, failing_guard
from kesin.store.contract import Store
from kesin.store.postgres.store import PostgresStore
from kesin.store.records import Filter, NewJob
from kesin.store.sqlite.store import SqliteStore
from tests.store.crowd import DAY, NOW, QUEUES, TENANTS, crowd_postgres, crowd_sqlite

BATCH = 50
SMALL, LARGE = 10_000, 100_000  # ten times as many: what grows with the rows shows
GROWTH_MOST = 1.5
MOST_SHOWN = 60
COMPILED_ABOVE = 100_000  # PostgreSQL's jit_above_cost: compiling takes longer than any of these
TABLES = {"job", "job_body", "event"}


class RolledBack(Exception):
    """Ends a transaction whose rows are wanted again."""


@dataclass(frozen=True)
class Scene:
    """The jobs that calls are made of, looked up once."""

    held: dict[str, list[Job]]  # queue → jobs under a live claim, of each state enough for a batch
    at_rest: dict[str, list[Job]]


def scene(store: Store) -> Scene:
    held: dict[str, list[Job]] = {}
    at_rest: dict[str, list[Job]] = {}
    for queue, lifecycle in QUEUES.items():
        working = [state.name for state in lifecycle.states if state.working]
        pages = [store.jobs(queue, Filter(states=(name,)), limit=1_000).jobs for name in working]
        held[queue] = [job for page in pages for job in page if (job.lease_until or 0) > NOW]
        resting = [state.name for state in lifecycle.states if state.resting]
        asked = [
            Filter(states=(name,), categories=(category,))
            for name in resting
            for category in ("VALIDATION", "TRANSIENT")
        ]
        pages = [store.jobs(queue, where, limit=BATCH).jobs for where in asked]
        at_rest[queue] = [job for page in pages for job in page]
    return Scene(held, at_rest)


@dataclass(frozen=True)
class Call:
    """One thing to ask of a store; ``size`` is how many jobs it is about, ``uses`` its way in."""

    name: str
    uses: frozenset[str]
    make: Callable[[Store, int], Any]
    moves: int = BATCH  # jobs that it must find when it is asked for a batch
    visits: int = 20 * BATCH  # rows that any step of its plan may touch


def calls(now: Scene) -> Iterator[Call]:
    for queue, lifecycle in QUEUES.items():
        yield from _claims(queue)
        yield from _finishes(queue, now)
        yield from _listings(queue, now)
        yield from _looks(queue, now)
        for number, move in enumerate(lifecycle.scheduled_moves):
            yield _sweep(queue, number, move)
    yield from _births()


def _claims(queue: str) -> Iterator[Call]:
    for what, tenants in (
        ("named", ["t1"]),
        ("three", ["t0", "t1", "nowhere"]),
        ("shared", None),
    ):
        yield Call(
            f"{queue} claim {what}",
            frozenset({"job_ready", "job_pkey", "job_body_pkey"}),
            lambda store, size, tenants=tenants: store.claim(
                queue, worker="w", limit=size, lease_us=60_000_000, tenants=tenants, now=NOW
            ),
        )


BY_ID = frozenset({"job_pkey"})


def _finishes(queue: str, now: Scene) -> Iterator[Call]:
    lifecycle = QUEUES[queue]

    def apply(
        call: str, jobs: list[Job], role: str, *, apart: bool = False, **told: Any
    ) -> Callable[[Store, int], Any]:
        fenced = role == "worker" and jobs and jobs[0].worker
        changes = [Change(job.id, job.claim_seq if fenced else None, **told) for job in jobs]
        if apart:
            changes = [one._replace(note=str(n)) for n, one in enumerate(changes)]
        return lambda store, size: store.apply(
            queue,
            call,
            changes[:size],
            role=role,
            actor="w",
            now=NOW,  # type: ignore[arg-type]
        )

    for call in lifecycle.actions_of("worker"):
        moves = lifecycle.actions[call]
        sources = {source for move in moves for source in move.sources}
        jobs = [job for job in now.held[queue] if job.state in sources]
        if jobs and not moves[0].claims:
            told = {"error_code": "E", "error_category": "TRANSIENT", "result": "1"}
            slot = any(lifecycle.state[m.to].exclusive for m in moves if m.to in lifecycle.state)
            for how, apart in (("alike", False), ("apart", True)):
                made = apply(call, jobs, "worker", apart=apart, **told)
                yield Call(f"{queue} {call} told {how}", BY_ID, made, 1 if slot else BATCH)
    asked = MoveContext(NOW, "operator")
    for call in lifecycle.actions_of("operator"):
        jobs = [
            job
            for job in now.at_rest[queue]
            for move in lifecycle.actions[call]
            if job.state in move.sources and not failing_guard(move, job, lifecycle, asked, None)
        ]
        if jobs:
            made = apply(call, jobs, "operator", payload='{"new":1}')
            yield Call(f"{queue} {call} by people", BY_ID, made)
    held = now.held[queue]
    wrong = [job._replace(claim_seq=1) for job in held]
    first = next(
        call for call in lifecycle.actions_of("worker") if _fenced(lifecycle.actions[call])
    )
    yield Call(f"{queue} {first} of lost claims", BY_ID, apply(first, wrong, "worker"), 0)
    yield Call(
        f"{queue} renew",
        BY_ID,
        lambda store, size: store.renew(
            queue, [(job.id, 2) for job in held[:size]], lease_us=2 * 3_600_000_000, now=NOW
        ),
    )


def _fenced(moves: tuple[Move, ...]) -> bool:
    return any(move.guard("holds_claim") for move in moves)


def _sweep(queue: str, number: int, move: Move) -> Call:
    aged = move.guard("age_over")
    way = "job_state"
    if move.guard("lease_over"):
        way = "job_owned"
    elif move.guard("timer_over"):
        way = "job_timer"
    elif move.guard("budget_spent"):
        way = "job_spent"
    elif aged and aged.names[0] in QUEUES[queue].stamps:
        way = "job_aged"
    none_due = move.name == "xml_timeout" or _too_young(queue, move)
    return Call(
        f"{queue} sweep {number} {move.name} {'/'.join(move.sources)}",
        BY_ID if none_due else frozenset({way, "job_pkey"}),
        lambda store, size: store.sweep(queue, move, limit=size, now=NOW),
        moves=0 if none_due else BATCH,
    )


def _too_young(queue: str, move: Move) -> bool:
    """Retention longer than the crowd's sixty days."""
    aged = move.guard("age_over")
    return move.prunes and aged is not None and aged.number > 60 * 86_400


def _listings(queue: str, now: Scene) -> Iterator[Call]:
    ways = frozenset({"job_state", "job_pkey", "job_body_pkey"})
    ended = tuple(state.name for state in QUEUES[queue].states if state.terminal)
    asked = {
        "everything": Filter(),
        "one state": Filter(states=ended),
        "a tenant": Filter(tenants=("t1", "nowhere")),
        "a state of a tenant": Filter(states=ended, tenants=("t1",)),
        "since": Filter(created_before=NOW),
    }
    middle = now.at_rest[queue][-1].id
    for name, where in asked.items():
        for cursor in (None, middle):
            yield Call(
                f"{queue} list {name}{' from the middle' if cursor else ''}",
                ways,
                lambda store, size, where=where, cursor=cursor: store.jobs(
                    queue, where, limit=size, cursor=cursor
                ),
                moves=0,
                visits=SMALL // 2,  # among few jobs, sorting them is the cheaper way
            )
    yield Call(
        f"{queue} list a rare code",
        frozenset({"job_error", "job_pkey", "job_body_pkey"}),
        lambda store, size: store.jobs(queue, Filter(codes=("NOBODY_HAS_IT",)), limit=size),
        moves=0,
    )
    some = now.at_rest[queue][0].id
    yield Call(f"{queue} one job", BY_ID, lambda store, _: store.job(some), 0)
    yield Call(
        f"{queue} its events", frozenset({"event_pkey"}), lambda store, _: store.events(some), 0
    )
    yield Call(f"{queue} stats", frozenset(), lambda store, _: store.stats(queue, now=NOW), moves=0)


def _looks(queue: str, now: Scene) -> Iterator[Call]:
    for what, tenants in (("named", ["t1"]), ("shared", None)):
        yield Call(
            f"{queue} peek {what}",
            frozenset({"job_ready", "job_pkey", "job_body_pkey"}),
            lambda store, size, tenants=tenants: store.peek(
                queue, limit=size, tenants=tenants, now=NOW
            ),
            moves=1 if queue == "optiplan" else BATCH,
        )
    some = [job.id for job in now.at_rest[queue]]
    yield Call(
        f"{queue} find",
        frozenset({"job_pkey", "job_body_pkey"}),
        lambda store, size: list(store.find(queue, some[:size]).values()),
    )
    keys = [f"key-{number}" for number in range(0, 4 * BATCH, 2)]
    yield Call(
        f"{queue} holders",
        frozenset({"job_body_key"}),
        lambda store, size: store.ids_by_key(queue, "t0", keys[:size]),
        moves=0,
    )
    stamps = QUEUES[queue].stamps[:1]
    aged = (stamps[0], NOW - 90 * DAY) if stamps else None
    for tenant in ("t1", "stranger"):  # of whom there is no row in any state
        yield Call(
            f"{queue} waiting of {tenant}",
            frozenset({"job_ready", "job_state", "job_owned"} | ({"job_aged"} if aged else set())),
            lambda store, _, tenant=tenant: store.backlog(queue, tenant, aged=aged, now=NOW),
            moves=0,
        )
    if queue == "oci":
        key = Filter(dedup_key="key-4", tenants=("t0", "t1"))
        yield Call(
            "oci list a key of tenants",
            frozenset({"job_body_key", "job_pkey", "job_body_pkey"}),
            lambda store, size: store.jobs(queue, key, limit=size).jobs,
            moves=1,
        )


def _births() -> Iterator[Call]:
    def enqueue(store: Store, size: int) -> Any:
        news = [
            NewJob(
                f"01a31700-0000-7000-8000-{number:012x}",
                "{}",
                5,
                number,
                f"t{number % TENANTS}",
                f"key-{number}" if number % 4 == 0 else None,
            )
            for number in range(size)
        ]
        return store.enqueue("oci", news, actor="producer", now=NOW)

    yield Call(
        "oci enqueue, some of them duplicates", frozenset({"job_body_key"}), enqueue, BATCH // 2
    )


def made(answer: Any) -> int:
    """How many jobs a call moved or claimed."""
    if isinstance(answer, int):
        return answer
    if isinstance(answer, set):
        return len(answer)
    if isinstance(answer, list):
        return sum(isinstance(one, Job) or one.result in ("moved", "inserted") for one in answer)
    return 0


def rolled_back(store: Store, call: Call, size: int) -> int:
    answers = []
    with suppress(RolledBack), store.transaction():
        answers.append(call.make(store, size))
        raise RolledBack
    return made(answers[0])


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
        told = EXPLAINED | ({"plan_cache_mode": "force_generic_plan"} if generic else {})
        options = "%20".join(f"-c%20{name}%3D{value}" for name, value in told.items())
        self.store = PostgresStore(
            f"{url}&options={options}", schema=schema, pool_size=1, listen=False
        )
        for queue, lifecycle in QUEUES.items():
            self.store.open(queue, lifecycle)
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
        moved = rolled_back(self.store, call, BATCH)
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


def analyze(url: str, schema: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for table in ("job", "job_body", "event", "flow", "declared", "paused"):
            connection.execute(f"ANALYZE {schema}.{table}")


@pytest.mark.parametrize("jobs", [SMALL, pytest.param(LARGE, marks=pytest.mark.long)])
def test_postgres_reaches_rows_by_index_whatever_the_statistics_say(postgres_url: str, jobs: int):
    schema = f"plans_{jobs}"
    crowd_postgres(postgres_url, schema, jobs)
    problems: list[str] = []

    plain = Explained(postgres_url, schema)
    with closing(plain.store):
        todo = list(calls(scene(plain.store)))

    def check(when: str, *, first: int = 0, generic: bool = False) -> None:
        explained = Explained(postgres_url, schema, generic=generic)
        with closing(explained.store):
            for call in todo:
                if first:
                    rolled_back(explained.store, call, first)
                problems.extend(f"{when}: {call.name}: {p}" for p in explained.problems(call))

    for statistics in ("no statistics", "analyzed"):
        if statistics == "analyzed":
            analyze(postgres_url, schema)
        check(statistics)
        check(f"{statistics}, after a batch of one", first=1)
        check(f"{statistics}, generic plans", first=1, generic=True)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE")
    assert not problems, "\n".join([f"{len(problems)} problems", *problems[:MOST_SHOWN]])


# SQLite

SCANNED = re.compile(r"^SCAN (job|job_body|event|[jcsbhe])\b")


class Watched:
    """A connection that keeps what it was asked, and counts the steps it took."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.asked: list[tuple[str, Any]] = []
        self.steps = 0
        connection.set_progress_handler(self._step, 10)

    def _step(self) -> int:
        self.steps += 10
        return 0

    def execute(self, sql: str, params: Any = ()) -> sqlite3.Cursor:
        self.asked.append((sql, params))
        return self.connection.execute(sql, params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def plan(self) -> list[str]:
        lines = []
        for sql, params in self.asked:
            if sql.lstrip().upper().startswith(("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")):
                rows = self.connection.execute(f"EXPLAIN QUERY PLAN {sql}", params)
                lines += [row[3] for row in rows]
        return lines


def sqlite_steps(path: Path, when: str, problems: list[str]) -> dict[str, int]:
    """The steps each call takes; scans and missing indexes go to ``problems``."""
    store = SqliteStore(path)
    steps: dict[str, int] = {}
    with closing(store):
        for queue, lifecycle in QUEUES.items():
            store.open(queue, lifecycle)
        todo = list(calls(scene(store)))
        store._writer = watched = Watched(store._writer)  # type: ignore[assignment]
        for call in todo:
            watched.asked.clear()
            watched.steps = 0
            moved = rolled_back(store, call, BATCH)
            steps[call.name] = watched.steps
            plan = watched.plan()
            text = "\n".join(plan)
            found = [f"a full {line}" for line in plan if SCANNED.match(line)]
            missing = {way for way in call.uses if not way.endswith("_pkey") and way not in text}
            if moved < call.moves:
                found.append(f"moved {moved} jobs, {call.moves} were there")
            if missing:
                found.append(f"does not use {sorted(missing)}:\n{text}")
            problems.extend(f"{when}: {call.name}: {one}" for one in found)
    return steps


def test_sqlite_reaches_rows_by_index_and_takes_as_many_steps_among_ten_times_more(tmp_path: Path):
    problems: list[str] = []
    steps: dict[tuple[str, int], dict[str, int]] = {}
    for jobs in (SMALL, LARGE):
        path = tmp_path / f"{jobs}.db"
        crowd_sqlite(path, jobs)
        for statistics in ("no statistics", "analyzed"):
            if statistics == "analyzed":
                with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                    connection.execute("PRAGMA analysis_limit = 1000")
                    connection.execute("ANALYZE")
            when = f"{jobs} jobs, {statistics}"
            steps[statistics, jobs] = sqlite_steps(path, when, problems)
    for statistics in ("no statistics", "analyzed"):
        few, many = steps[statistics, SMALL], steps[statistics, LARGE]
        problems += [
            f"{statistics}: {name}: {few[name]} steps among {SMALL}, {many[name]} among {LARGE}"
            for name in few
            if many[name] > GROWTH_MOST * few[name] + 1_000
        ]
    assert not problems, "\n".join([f"{len(problems)} problems", *problems[:MOST_SHOWN]])
