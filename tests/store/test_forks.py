"""A process that forks, such as a server that loads its program first: nothing crosses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kesin import Queue, task_lifecycle
from kesin.store.open import open_store

pytestmark = pytest.mark.starts
Forks = Callable[[str], dict[str, Any]]


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """A fresh store of each kind, as the process takes it."""
    if request.param == "sqlite":
        return [str(tmp_path / "k.db")]
    if request.param == "redis":
        return [request.getfixturevalue("redis_server").empty_url()]
    schema = request.getfixturevalue("fresh_schema")()
    return [request.getfixturevalue("postgres_url"), schema]


def run(mode: str, address: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.store.forked", mode, *address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_parent_and_child_use_a_store_at_the_same_time(address):
    report = run("together", address)
    parent, child = report["parent"], report["child"]
    assert not set(parent["made"]) & set(child["made"])
    enqueued = parent["enqueued"] + child["enqueued"]
    assert len(set(enqueued)) == len(enqueued) == 160
    claimed = parent["claimed"] + child["claimed"] + report["rest"]
    assert len(set(claimed)) == len(claimed) == 161
    assert set(enqueued) < set(claimed)
    assert report["differences"] == []


def test_a_transaction_stays_with_the_parent(address):
    report = run("inside", address)
    assert report["jobs"] == sorted(report["wanted"])
    assert "transaction" in report["refused"][0]
    assert len(report["refused"]) == 2  # the child cannot commit it either


def test_a_child_writes_on_when_its_parent_has_closed_the_file(tmp_path):
    file = tmp_path / "k.db"
    report = run("left_alone", [str(file)])
    with closing(open_store(file)) as store:
        jobs = Queue("work", task_lifecycle(), store).jobs().jobs
    assert sorted(job.id for job in jobs) == sorted(report["ids"])
