import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

from kesin.engine.queue import Queue
from kesin.foundation.encryption import new_key
from kesin.foundation.settings import load_settings
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.task import task_lifecycle
from kesin.store.open import open_store
from kesin.workloads import lifecycles
from kesin.workloads.pdf.doctor import _check_storage
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from kesin.workloads.pdf.lifecycle import configured_lifecycle
from tests.cli.conftest import ON_BOTH
from tests.cli.sealing import put_secret


def checks_of(answer):
    return {check["name"]: check for check in answer.json["checks"]}


def test_a_fresh_folder_is_healthy_and_nothing_is_created(kesin, tmp_path):
    answer = kesin("doctor", "--json")
    assert (answer.code, answer.json["ok"]) == (0, True)
    checks = checks_of(answer)
    assert {check["status"] for check in checks.values()} == {"ok"}
    assert "first use creates it" in checks["database"]["found"]
    assert not (tmp_path / "data").exists()


@ON_BOTH
def test_settings_lifecycles_and_database_are_checked(kesin, either_database):
    checks = checks_of(kesin("doctor", "--json"))
    assert {
        *("python", "sqlite", "data folder", "disk space", "database", "schema"),
        *("lifecycle oci", "lifecycle pdf", "lifecycle optiplan", "lifecycle task"),
        *("KESIN_DATA_DIR", "KESIN_DATABASE_URL", "KESIN_LOG"),
    } <= checks.keys()
    assert checks["schema"]["found"] == "up to date"
    assert checks["KESIN_DATA_DIR"]["found"].endswith("(environment)")
    assert checks["KESIN_LOG"]["found"] == "console (default)"
    if either_database.startswith("postgresql"):
        assert checks["clocks"]["status"] == "ok"
        assert checks["oldest snapshot"]["status"] == "ok"
        assert checks["database"]["found"].startswith("postgres 1")
    else:
        assert "clocks" not in checks
        assert checks["database"]["found"].startswith("sqlite 3.")


def test_without_json_what_needs_attention_comes_first_and_defaults_are_left_out(kesin, monkeypatch):
    monkeypatch.setenv("KESIN_ZZZ", "x")
    monkeypatch.setattr("kesin.cli.commands.doctor.missing_libraries", lambda _: ["lib"])
    lines = kesin("doctor").lines
    assert lines[0].split() == ["CHECK", "FOUND", "WHAT", "TO", "DO"]
    signs = [line[0] for line in lines[1:-2]]
    assert signs == sorted(signs, key="!–✓".index)
    assert lines[1].startswith("!  KESIN_ZZZ")
    assert next(line for line in lines if "extra pdf" in line).startswith("–")
    assert "(default)" not in "".join(lines)
    assert lines[-2].startswith("0 failures, 1 warning")
    assert lines[-1].endswith("at the default: --all lists them")
    assert "console (default)" in kesin("doctor", "--all").out


def test_a_bad_setting_fails_a_misspelt_one_is_a_warning_and_the_rest_is_still_checked(kesin, monkeypatch):
    monkeypatch.setenv("KESIN_DATABSE_URL", "x")
    monkeypatch.setenv("KESIN_SECRET_KEYS", "canary-7f3a")
    answer = kesin("doctor", "--json")
    checks = checks_of(answer)
    assert checks["KESIN_DATABSE_URL"]["status"] == "warning"
    assert checks["KESIN_DATABSE_URL"]["remedy"] == "did you mean KESIN_DATABASE_URL?"
    assert (answer.code, checks["secret keys"]["status"]) == (1, "failure")
    assert "canary" not in answer.out
    monkeypatch.setenv("KESIN_PORT", "http")
    answer = kesin("doctor", "--json")
    checks = checks_of(answer)
    assert (answer.code, checks["settings"]["status"]) == (1, "failure")
    assert "KESIN_PORT" in checks["settings"]["found"]
    assert checks["lifecycle oci"]["status"] == "ok"


def test_files_and_folders_that_are_none_and_a_newer_schema_fail(kesin, monkeypatch, tmp_path):
    kesin("migrate")
    with closing(sqlite3.connect(tmp_path / "data" / "kesin.db")) as database, database:
        database.execute("INSERT INTO schema_migration VALUES (9999, 'future', 'x', 0)")
    answer = kesin("doctor", "--json")
    assert (answer.code, "upgrade Kesin" in checks_of(answer)["schema"]["remedy"]) == (1, True)
    (tmp_path / "notes.txt").write_text("no database, but long enough to be checked\n" * 9)
    monkeypatch.setenv("KESIN_DATABASE_URL", str(tmp_path / "notes.txt"))
    answer = kesin("doctor", "--json")
    assert (answer.code, checks_of(answer)["database"]["status"]) == (1, "failure")
    for below in ("", "below"):
        monkeypatch.setenv("KESIN_DATA_DIR", str(tmp_path / "notes.txt" / below))
        answer = kesin("doctor", "--json")
        assert (answer.code, checks_of(answer)["data folder"]["remedy"]) == (1, "set KESIN_DATA_DIR")


def test_passwords_are_not_shown(kesin, monkeypatch):
    monkeypatch.setenv("KESIN_DATABASE_URL", "postgresql://me:hush@127.0.0.1:1/nowhere")
    answer = kesin("doctor")
    assert answer.code == 1
    assert "me:…@" in answer.out
    assert "hush" not in answer.out + answer.err
    assert "PostgreSQL is not reachable" in answer.out


def test_a_missing_schema_fails_with_the_command_to_run(kesin, empty_postgres):
    answer = kesin("doctor", "--json")
    assert answer.code == 1
    assert checks_of(answer)["schema"]["remedy"] == "run `kesin migrate`"


def test_a_pause_is_a_warning_with_the_command_to_resume(kesin, fill):
    fill("task", 1)
    kesin("pause", "task", "--reason", "inventory")
    kesin("pause", "task", "--tenant", "north")
    answer = kesin("doctor", "--json")
    assert answer.code == 0
    checks = checks_of(answer)
    assert checks["paused task"]["remedy"] == "`kesin resume task`"
    assert checks["paused task"]["found"].endswith(": inventory")
    assert checks["paused north of task"]["remedy"] == "`kesin resume task --tenant north`"


def test_a_broken_lifecycle_fails(kesin, monkeypatch):
    plain = task_lifecycle()
    moves = tuple(move for move in plain.moves if move.name != "recover")
    known = {**lifecycles(), "task": lambda: replace(plain, moves=moves)}
    monkeypatch.setattr("kesin.cli.commands.doctor.lifecycles", lambda: known)
    answer = kesin("doctor", "--json")
    assert answer.code == 1
    assert checks_of(answer)["lifecycle task"]["remedy"] == "see `kesin lifecycle prove task`"


def test_little_disk_space_is_found(kesin, monkeypatch):
    for free, status in ((10, "failure"), (500 * 1024**2, "warning"), (5 * 1024**3, "ok")):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert checks_of(kesin("doctor", "--json"))["disk space"]["status"] == status


def test_a_full_disk_of_the_pdfs_is_found(kesin, monkeypatch, tmp_path):
    folder = tmp_path / "pdfs"
    folder.mkdir()
    monkeypatch.setenv("KESIN_PDF_ARTIFACTS", str(folder))
    usage = shutil.disk_usage(tmp_path)
    full = {str(folder): usage._replace(free=0)}
    monkeypatch.setattr(shutil, "disk_usage", lambda place: full.get(str(place), usage))
    check = checks_of(kesin("doctor", "--json"))["disk space"]
    assert (check["status"], check["found"]) == ("failure", f"{folder} is nearly full")
    assert not _check_storage(load_settings()).ok


def test_what_a_workload_reports_to_the_readiness_check_is_reported(kesin, either_database):
    assert not {"pdf", "optiplan"} & checks_of(kesin("doctor", "--json")).keys()
    with closing(open_store(either_database)) as store:
        queue = Queue("pdf", configured_lifecycle(), store)
        assert checks_of(kesin("doctor", "--json"))["pdf"]["status"] == "ok"
        Heartbeat(store, "frozen", now=lambda: queue.now() - 60 * SECOND_US).beat()
        queue.enqueue({})
        assert queue.claim("frozen", limit=1)
        check = checks_of(kesin("doctor", "--json"))["pdf"]
    assert (check["status"], "stuck" in check["found"]) == ("failure", True)


def test_a_store_without_accounts_is_a_warning(kesin):
    kesin("migrate")
    assert checks_of(kesin("doctor", "--json"))["access"]["status"] == "warning"
    kesin("key", "create", "--name", "watch", "--scope", "metrics")
    assert checks_of(kesin("doctor", "--json"))["access"]["found"] == "0 users, 1 key"


def test_a_secret_without_its_key_is_found(kesin, monkeypatch):
    monkeypatch.setenv("KESIN_SECRET_KEYS", new_key("old"))
    put_secret("google", "hush")
    assert "secrets" not in checks_of(kesin("doctor", "--json"))
    monkeypatch.setenv("KESIN_SECRET_KEYS", new_key("new"))
    assert checks_of(kesin("doctor", "--json"))["secrets"]["found"] == "cannot be opened: google"


def test_jobs_in_a_state_that_the_rules_do_not_know_are_a_failure(kesin, fill, tmp_path):
    """As a file may hold them whose rows were changed past the guard."""
    fill("task", 2)
    assert "states of task" not in checks_of(kesin("doctor", "--json"))
    with closing(sqlite3.connect(tmp_path / "data" / "kesin.db")) as database:
        triggers = database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        for (name,) in triggers.fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("UPDATE flow SET to_state = 'limbo' WHERE to_state = 'ready'")
        database.commit()
    answer = kesin("doctor", "--json")
    assert answer.code == 1
    check = checks_of(answer)["states of task"]
    assert check["status"] == "failure"
    assert check["found"] == "jobs in limbo, which the lifecycle does not have: 2"
    assert "kesin lifecycle check" in check["remedy"]
