"""A process that forks, such as a server that loads its program first: nothing crosses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kesin import Queue, task_lifecycle
from kesin.store.open import open_store
from tests.redis_server import RedisServer
from tests.store.conftest import _drop
from tests.store.forked import JOBS

pytestmark = pytest.mark.starts


Reports = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("forks") / "left.db"


@pytest.fixture(scope="module")
def reports(file: Path, postgres_url: str, redis_server: RedisServer) -> Iterator[Reports]:
    """What one process tells, which forks with a fresh store of each kind, one after the other."""
    schema, both = f"forked{os.getpid()}", ["inside", "together"]
    stores = [
        ["sqlite", both, str(file.with_name("k.db")), None],
        ["postgres", both, postgres_url, schema],
        ["redis", both, redis_server.empty_url(), None],
        ["left", ["left_alone"], str(file), None],
    ]
    command = [sys.executable, "-m", "tests.store.forked", json.dumps(stores)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    yield json.loads(done.stdout)
    _drop(postgres_url, schema)


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_parent_and_child_use_a_store_at_the_same_time_and_a_transaction_stays_with_one(reports: Reports, kind: str):
    inside, together = reports[kind]["inside"], reports[kind]["together"]
    assert inside["jobs"] == sorted(inside["wanted"])
    assert "transaction" in inside["refused"][0]
    assert len(inside["refused"]) == 2  # the child cannot commit it either
    parent, child = together["parent"], together["child"]
    assert not set(parent["made"]) & set(child["made"])
    enqueued = parent["enqueued"] + child["enqueued"]
    assert len(set(enqueued)) == len(enqueued) == 4 * JOBS
    claimed = parent["claimed"] + child["claimed"] + together["rest"]
    assert len(set(claimed)) == len(claimed) == 4 * JOBS + 1
    assert set(enqueued) < set(claimed)
    assert together["differences"] == []


def test_a_child_writes_on_when_its_parent_has_closed_the_file(reports: Reports, file: Path):
    report = reports["left"]["left_alone"]
    with closing(open_store(file)) as store:
        jobs = Queue("work", task_lifecycle(), store).jobs().jobs
    assert sorted(job.id for job in jobs) == sorted(report["ids"])
