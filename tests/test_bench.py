"""The benches load rows past the guard, which is there again before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.growth import load
from bench.lanes import QUEUE, open_queue
from kesin import Queue
from kesin.store.errors import GuardRefused
from kesin.store.postgres.store import PostgresStore


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_loaded_rows_are_counted_and_the_guard_is_on_again(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
):
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


def assert_refused(queue: Queue, change: str) -> None:
    schema = "kesin." if isinstance(queue.store, PostgresStore) else ""
    with pytest.raises(GuardRefused):
        queue.store._rows(f"{change.format(schema)} WHERE queue = '{QUEUE}'", {})  # type: ignore[attr-defined]
