"""Every example runs, prints what it is about, and leaves nothing behind."""

import os
import runpy
import subprocess
import sys
import warnings
from contextlib import closing
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from kesin import Filter, Worker, open_store
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import Settings
from kesin.web.app import create_app
from kesin.web.service import Service
from tests.cli.fork_server import ForkedProcess
from tests.web.client import Client

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 120
RUN_TESTS = """
import sys
sys.dont_write_bytecode = True
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider"]))
"""
# A line that an example prints only if it did what it is about.
PRINTED = {
    "audit_replay": "replayed 5 events of 1 job: equal is True",
    "batch_handler": "{'ready': 0, 'running': 0, 'done': 290, 'failed': 10}",
    "broken_lifecycle": "refused: the lifecycle 'task' could not be proved to end:",
    "crash_recovery": "moves:  ['enqueue', 'claim', 'recover', 'claim', 'complete']",
    "dedup": "first: inserted, second: duplicate, the same job: True",
    "first_queue": "{'ready': 0, 'running': 0, 'done': 2, 'failed': 0}",
    "own_lifecycle": "['enqueue', 'claim', 'hold', 'approve', 'claim', 'pay']",
    "postgres": "2 done on postgres",
    "retries": " 70 s  attempt 3: the line is busy",
    "tenants_and_pause": "a claim of 10: {'ankara': 5, 'izmir': 5}",
    "transactional": "after the failure: 0 orders, 0 invoices",
    "waiting": "failed after 10 waits and 1 attempt: no file arrived within ten minutes",
}
AS_PROCESS = "crash_recovery"  # is about processes; the others run in this one


def run(name: str) -> None:
    """As ``python -W error`` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder without settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("KESIN_")]:
        monkeypatch.delenv(name)
    return tmp_path


def test_every_example_is_run_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PRINTED)


@pytest.mark.parametrize("name", sorted(PRINTED.keys() - {"postgres", AS_PROCESS}))
def test_the_example_runs(name, folder, capsys):
    run(name)
    assert PRINTED[name] in capsys.readouterr().out.splitlines()
    assert list(folder.iterdir()) == []


def test_the_example_runs_in_a_process_of_its_own(folder):
    process = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{AS_PROCESS}.py"],
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=True,
    )
    assert PRINTED[AS_PROCESS] in process.stdout.splitlines()
    assert list(folder.iterdir()) == []


def test_the_example_runs_on_postgresql(postgres_server, monkeypatch, capsys):
    monkeypatch.setenv("KESIN_DATABASE_URL", postgres_server.create_database("example"))
    run("postgres")
    assert PRINTED["postgres"] in capsys.readouterr().out.splitlines()


def test_the_postgresql_example_is_skipped_without_a_server(capsys):
    with pytest.raises(SystemExit) as ended:
        run("postgres")
    assert ended.value.code is None  # which is success
    assert capsys.readouterr().out.splitlines() == [
        "skipped: set KESIN_DATABASE_URL to a postgresql:// address to run this one"
    ]


@pytest.mark.parametrize("app", ["fastapi_shop", "django_shop"])
@pytest.mark.parametrize("start", [ForkedProcess, pytest.param(subprocess.Popen, marks=pytest.mark.long)])
def test_the_tests_of_an_app_pass(app, start, tmp_path):
    """Each is tried as its author would, in its own folder and without the plug-ins of ours.

    The short form forks a process that has imported the libraries.
    """
    script = tmp_path / "run_tests.py"
    script.write_text(RUN_TESTS)
    command = [*([sys.executable] if start is subprocess.Popen else ["", ""]), str(script)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with start(command, cwd=EXAMPLES / app, env=env, **pipes) as process:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, output
    assert " passed" in output


def test_the_dashboard_opens_on_the_database_of_an_app(folder, monkeypatch):
    """It shows the app's queue, its titles, its failure and its schedule, and needs none of it."""
    database = folder / "shop.db"
    monkeypatch.setenv("KESIN_DATABASE_URL", str(database))
    monkeypatch.setenv("MAIL_SERVER", "127.0.0.1:1")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec = spec_from_file_location("shop_of_the_example", EXAMPLES / "fastapi_shop" / "shop.py")
    assert spec is not None
    assert spec.loader is not None
    shop = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, shop)
    spec.loader.exec_module(shop)
    with closing(shop.store):
        for price in (5, 0):
            Client(shop.app).post("/orders", json={"email": "ada@example.org", "price": price})
        shop.mails.enqueue(shop.Mail(to="nowhere"))
        Worker(shop.mails, shop.send).drain()
    shop.engine.dispose()
    settings = Settings(data_dir=folder, database_url=str(database))
    with closing(open_store(database)) as store:
        service = Service(settings, store, {}, work=False)
        key, _ = service.accounts.create_key(system_actor("test"), "looks", ["read"])
        client = Client(create_app(service))

        def page(address: str) -> str:
            answer = client.get(address, headers={"x-api-key": key})
            assert answer.status_code == 200, address
            return str(answer.text)

        assert "mails" in page("/dashboard")
        listed = page("/dashboard/queues/mails")
        for shown in ("Order 1", "NO_ADDRESS", "summary"):
            assert shown in listed, shown
        for job in store.jobs("mails", Filter(), limit=9).jobs:
            assert job.state in page(f"/dashboard/jobs/{job.id}")
