"""Every example runs as its readers run it, and says what its page promises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LONGEST_S = 120

# A line of output that only appears when the example did what it is about.
TELLING = {
    "audit_replay": "replayed 5 events of 1 job: equal is True",
    "batch_handler": "{'ready': 0, 'running': 0, 'done': 290, 'failed': 10}",
    "broken_lifecycle": "refused: the lifecycle 'task' is not proved to end:",
    "crash_recovery": "moves:  ['enqueue', 'claim', 'recover', 'claim', 'complete']",
    "dedup": "first: inserted, second: duplicate, the same job: True",
    "first_queue": "{'ready': 0, 'running': 0, 'done': 2, 'failed': 0}",
    "own_lifecycle": "['enqueue', 'claim', 'hold', 'approve', 'claim', 'pay']",
    "postgres": "2 done on postgres",
    "retries": " 70 s  attempt 3: the line is busy",
    "tenants_and_pause": "a claim of 10: {'ankara': 5, 'izmir': 5}",
    "transactional": "after the failure: 0 orders, 0 invoices",
    "waiting": "failed after 10 waits and 1 attempt: no file came within ten minutes",
}


def run(name: str, folder: Path, **settings: str) -> list[str]:
    """The lines an example prints, run in a folder where it must leave nothing."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("KESIN_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"],
        cwd=folder,
        env={**own, "PYTHONIOENCODING": "utf-8", **settings},
        capture_output=True,
        encoding="utf-8",
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    return done.stdout.splitlines()


def test_every_example_is_run_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(TELLING)


@pytest.mark.parametrize("name", sorted(TELLING.keys() - {"postgres"}))
def test_the_example_runs(name, tmp_path):
    assert TELLING[name] in run(name, tmp_path)


def test_the_example_runs_on_postgresql(postgres_server, tmp_path):
    url = postgres_server.create_database("example")
    assert TELLING["postgres"] in run("postgres", tmp_path, KESIN_DATABASE_URL=url)


def test_the_postgresql_example_skips_kindly_without_a_server(tmp_path):
    assert run("postgres", tmp_path) == [
        "skipped: set KESIN_DATABASE_URL to a postgresql:// address to run this one"
    ]
