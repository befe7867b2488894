import json
import signal

import pytest

from kesin.engine.queue import Queue
from kesin.foundation.settings import load_settings
from kesin.lifecycle.task import task_lifecycle
from kesin.store.open import open_store

OWN = """
from kesin import task_lifecycle

def quick():
    return task_lifecycle("quick", lease_seconds=1, keep_days=1)

def same():
    return task_lifecycle("same")
"""


@pytest.fixture
def own(module) -> str:
    return module(OWN)


@pytest.fixture
def abandoned(kesin, fill, own) -> list[str]:
    """Jobs claimed by a dead worker, their leases about to end."""
    ids = fill("quick", 3, "--lifecycle", f"{own}:quick")
    store = open_store(load_settings().database, migrate=False)
    queue = Queue("quick", task_lifecycle("quick", lease_seconds=1), store)
    assert len(queue.claim("gone", limit=3, lease_seconds=0.001)) == 3
    store.close()
    return ids


def test_the_claims_of_a_dead_worker_are_recovered_by_their_stage(kesin, either_database, abandoned, own):
    words = ("sweep", "quick", "--lifecycle", f"{own}:quick", "--json")
    assert kesin(*words, "--stage", "cap", "--stage", "prune").json["moved"] == 0
    answer = kesin(*words, "--stage", "recover")
    assert answer.code == 0
    assert answer.json == {"moved": 3, "moves": [{"queue": "quick", "move": "recover", "jobs": 3}]}
    assert kesin("stats", "--json").json[0]["states"]["ready"] == 3


def test_every_repeats_the_sweep_and_without_json_the_result_is_a_table_or_a_sentence(kesin, abandoned, own):
    words = ("sweep", "quick", "--lifecycle", f"{own}:quick")
    assert kesin(*words).lines[1].split() == ["quick", "recover", "3"]
    assert kesin(*words).out == "nothing was due\n"
    answer = kesin(*words, "--json", "--every", "0.01", "--count", "3")
    assert [json.loads(line)["moved"] for line in answer.lines] == [0, 0, 0]
    answer = kesin("sweep", "--stage", "recovery")
    assert (answer.code, "no stage 'recovery': did you mean 'recover'?" in answer.err) == (2, True)
    assert kesin("sweep", "--lifecycle", "task").code == 2, "a lifecycle without queues"


def test_all_queues_are_swept_by_default_and_unknown_lifecycles_skipped_with_a_warning(kesin, fill, abandoned):
    fill("task", 1)
    answer = kesin("sweep", "--json")
    assert (answer.code, answer.json["moved"]) == (0, 0)
    assert "skipped quick" in answer.err
    assert "task" not in answer.err.split("skipped quick")[0]


def test_sigterm_ends_the_sweeper_with_success(programs, kesin, fill):
    fill("task", 1)
    program = programs.start("sweep", "--every", "60", "--json")
    assert program.process.stdout.readline()
    program.signal(signal.SIGTERM)
    assert program.end() == 0


def test_the_sweeper_survives_an_unreachable_database(programs, kesin, postgres_server, empty_postgres):
    assert kesin("migrate").code == 0
    assert kesin("enqueue", "task", "1").code == 0
    program = programs.start("sweep", "--every", "0.05", "--json")
    assert program.process.stdout.readline()
    postgres_server.stop()  # not killed: without fsync it would lose the migration
    try:
        while "is retried in" not in (line := program.read_line()):
            assert line
    finally:
        postgres_server.start()
    assert program.process.stdout.readline()
    program.signal(signal.SIGTERM)
    assert program.end() == 0
