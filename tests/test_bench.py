"""The benches load rows past the guard, and their queues do what they are asked to; no timing."""

from __future__ import annotations

import shutil
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from bench import drained, filling, instructions
from bench.concepts import CONCEPTS, IN_TRANSACTION, ONE_A_TENANT, PRIORITY, SQL_FUNCTION, WITHIN, Concept
from bench.features import ROOT, compare, revision_runs
from bench.lanes import QUEUE, open_queue
from bench.loaded import load
from kesin import Queue, open_store, task_lifecycle
from kesin.engine.replay import verify
from kesin.store.errors import GuardRefused
from kesin.store.postgres.store import PostgresStore

# What differs by the store: transactions, the function, and two threads that share one claim. The
# long form drains every concept on every store that has it.
ON_POSTGRES = (WITHIN, ONE_A_TENANT, SQL_FUNCTION, IN_TRANSACTION)
ON_REDIS = (PRIORITY, IN_TRANSACTION)
KINDS = {"SQLite": CONCEPTS, "PostgreSQL": ON_POSTGRES, "Redis": ON_REDIS}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_loaded_rows_are_counted_and_the_guard_is_on_again(kind: str, tmp_path: Path, request: pytest.FixtureRequest):
    if kind == "sqlite":
        queue = open_queue(str(tmp_path / "grow.db"))
    else:
        server = request.getfixturevalue("postgres_server")
        queue = open_queue(server.create_database("bench_load"))
    load(queue, 30)
    queue.enqueue({})
    assert (queue.stats().states["done"], queue.stats().states["ready"]) == (30, 1)
    for change in ("UPDATE {}job SET seq = 9", "UPDATE {}flow SET n = 9", "DELETE FROM {}flow"):
        assert_refused(queue, change)
    queue.store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_copies_of_a_job_are_as_the_engine_writes_them(kind: str, tmp_path: Path, request: pytest.FixtureRequest):
    address = str(tmp_path / "grown.db")
    if kind == "postgres":
        address = request.getfixturevalue("postgres_server").create_database("bench_copies")
    filling.fill(address, 30, tmp_path)
    queue = filling.open_grown(address)
    filling.check(queue, 30, sample=30)
    assert verify(queue.store, filling.QUEUE).jobs == 31
    assert not verify(queue.store, filling.QUEUE).differences
    schema = "kesin." if kind == "postgres" else ""
    with pytest.raises(GuardRefused):
        queue.store._rows(f"UPDATE {schema}job SET seq = 9", {})  # type: ignore[attr-defined]
    queue.store.close()


@pytest.mark.parametrize(
    ("concept", "kind"),
    [
        pytest.param(
            concept,
            kind,
            id=f"{concept.name}-{kind}",
            marks=[pytest.mark.long] * (concept not in (*always, ONE_A_TENANT)),
        )
        for concept in (*CONCEPTS, ONE_A_TENANT)
        for kind, always in KINDS.items()
        if kind in concept.stores
    ],
)
def test_every_job_of_a_concept_is_done(
    concept: Concept, kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(drained, "WARM", 5)
    names = iter(f"bench_concept_{number}" for number in count())

    def address() -> str:
        if kind == "Redis":
            return str(request.getfixturevalue("redis_server").empty_url())
        if kind == "SQLite":
            ready = request.getfixturevalue("ready_file")
            return str(shutil.copyfile(ready, tmp_path / f"{next(names)}.db"))
        ready = request.getfixturevalue("ready_postgres")
        server = request.getfixturevalue("postgres_server")
        return server.create_database(next(names), like=ready)

    found = compare(concept, address, jobs=12, rounds=1)
    assert [run.jobs for run in found.with_it] == [run.jobs for run in found.without]


def test_the_plain_queue_of_a_checked_out_tree_is_drained(tmp_path: Path):
    with revision_runs(ROOT, str(tmp_path / "plain.db")) as run:
        assert [run(20).jobs, run(30).jobs] == [20, 30]


def test_the_jobs_whose_instructions_are_counted_are_drained(tmp_path: Path):
    instructions.run(f"{tmp_path}/counted.db", 20, "drain")
    with closing(open_store(tmp_path / "counted.db")) as store:
        assert Queue(drained.QUEUE, task_lifecycle(), store).stats().states["done"] == 20 + drained.WARM


def assert_refused(queue: Queue, change: str) -> None:
    schema = "kesin." if isinstance(queue.store, PostgresStore) else ""
    with pytest.raises(GuardRefused):
        queue.store._rows(f"{change.format(schema)} WHERE queue = '{QUEUE}'", {})  # type: ignore[attr-defined]
