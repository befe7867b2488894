"""A process that forks, such as a server that loads its program first: nothing crosses."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kesin import Queue, task_lifecycle
from kesin.store.open import open_store

pytestmark = pytest.mark.starts


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """A fresh store of each kind, as the process takes it."""
    if request.param == "sqlite":
        return [str(tmp_path / "k.db")]
    if request.param == "redis":
        return [request.getfixturevalue("redis_server").empty_url()]
    schema = request.getfixturevalue("fresh_schema")()
    return [request.getfixturevalue("postgres_url"), schema]


def run(address: list[str], *modes: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.store.forked", ",".join(modes), *address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_parent_and_child_use_a_store_at_the_same_time_and_a_transaction_stays_with_one(address):
    reports = run(address, "inside", "together")
    inside, together = reports["inside"], reports["together"]
    assert inside["jobs"] == sorted(inside["wanted"])
    assert "transaction" in inside["refused"][0]
    assert len(inside["refused"]) == 2  # the child cannot commit it either
    parent, child = together["parent"], together["child"]
    assert not set(parent["made"]) & set(child["made"])
    enqueued = parent["enqueued"] + child["enqueued"]
    assert len(set(enqueued)) == len(enqueued) == 80
    claimed = parent["claimed"] + child["claimed"] + together["rest"]
    assert len(set(claimed)) == len(claimed) == 81
    assert set(enqueued) < set(claimed)
    assert together["differences"] == []


def test_a_child_writes_on_when_its_parent_has_closed_the_file(tmp_path):
    file = tmp_path / "k.db"
    report = run([str(file)], "left_alone")["left_alone"]
    with closing(open_store(file)) as store:
        jobs = Queue("work", task_lifecycle(), store).jobs().jobs
    assert sorted(job.id for job in jobs) == sorted(report["ids"])
