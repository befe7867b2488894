"""Statistics that know one state only: a state with few jobs is still read by its index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from kesin.lifecycle.task import task_lifecycle
from kesin.store.postgres.store import PostgresStore
from kesin.store.records import Filter
from tests.store.scene import Scene

OF_ONE_STATE = (
    "ALTER TABLE {schema}.job ALTER COLUMN state SET (n_distinct = 1)",
    "ANALYZE {schema}.job",
    "SET enable_indexonlyscan = off",  # as for rows that changed since the last vacuum
    "SET enable_seqscan = off",  # as for more rows than these
    "SET enable_bitmapscan = off",
    "SET enable_sort = off",
)
JOBS = 300
LATER = 2**60
FAILED = Filter(states=("failed",), moved_before=LATER)  # which all jobs fit


CALLS: dict[str, Callable[[Scene], object]] = {
    "newest": lambda scene: scene.store.jobs("task", FAILED),
    "oldest": lambda scene: scene.store.jobs("task", Filter(moved_before=LATER, oldest_first=True)),
    "count": lambda scene: scene.store.count_matching("task", FAILED, limit=100),
}


@pytest.fixture
def scene(postgres_url: str, fresh_schema: Callable[[], str]) -> Iterator[Scene]:
    store = PostgresStore(postgres_url, schema=fresh_schema(), migrate=True, listen=False)
    with closing(store):
        scene = Scene(store, "task", task_lifecycle())
        jobs = scene.claim_new_jobs(JOBS)
        scene.apply("complete", jobs)
        yield scene


def test_jobs_of_a_state_are_read_in_the_order_of_their_states_index(
    scene: Scene, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    store: Any = scene.store
    sent: list[tuple[str, dict[str, Any]]] = []
    rows = store._rows

    def spied(sql: str, params: dict[str, Any]) -> Any:
        sent.append((sql, params))
        return rows(sql, params)

    monkeypatch.setattr(store, "_rows", spied)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for statement in OF_ONE_STATE:
            connection.execute(statement.format(schema=store.schema))
        for name, call in CALLS.items():
            sent.clear()
            call(scene)
            [plan] = (
                "\n".join(line for (line,) in connection.execute(f"EXPLAIN {sql}", params))
                for sql, params in sent
                if "pairs" in sql
            )
            assert "using job_state on job" in plan, (name, plan)
            assert "Backward using job_pkey" not in plan, (name, plan)
            scanned = re.findall(r"using job_state on job j\w*  \(cost=\S+ rows=(\d+)", plan)
            assert max(map(int, scanned)) < JOBS / 20, (name, plan)  # expected in a state, though there is but one
