from kesin.foundation.ids import first_id_at

UNREACHABLE = "postgresql://me:hush@127.0.0.1:1/nowhere"
READING = [("stats",), ("jobs", "list", "task"), ("jobs", "show", first_id_at(1)), ("audit", "verify")]


def test_reading_creates_no_database_and_names_the_missing_one(kesin, tmp_path):
    for words in READING:
        answer = kesin(*words)
        assert (answer.code, answer.out) == (1, ""), words
        assert f"there is no database at {tmp_path}/data/kesin.db" in answer.err
    assert not (tmp_path / "data").exists()


def test_an_unreachable_postgres_is_an_error_without_the_password(kesin, monkeypatch):
    monkeypatch.setenv("KESIN_DATABASE_URL", UNREACHABLE)
    monkeypatch.setattr("kesin.cli.commands.worker.OPEN_WAIT_S", 0.1)
    for words in (("stats",), ("migrate",), ("worker", "task", "--handler", "json:dumps")):
        answer = kesin(*words)
        assert answer.code == 1
        assert "PostgreSQL is not reachable" in answer.err
        assert "hush" not in answer.err
        assert answer.err.count("\n") == 1


def test_a_bad_setting_or_file_is_a_one_line_error(kesin, monkeypatch, tmp_path):
    (tmp_path / "notes.txt").write_text("this is no database, but long enough to be looked at\n" * 9)
    monkeypatch.setenv("KESIN_DATABASE_URL", str(tmp_path / "notes.txt"))
    answer = kesin("stats")
    assert (answer.code, answer.err.count("\n"), "not a database" in answer.err) == (1, 1, True)
    monkeypatch.delenv("KESIN_DATABASE_URL")
    monkeypatch.setenv("KESIN_DATA_DIR", str(tmp_path / "notes.txt" / "below"))
    answer = kesin("enqueue", "task", "1")
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    monkeypatch.setenv("KESIN_PORT", "http")
    answer = kesin("stats")
    assert answer.code == 2
    assert answer.err == "kesin: KESIN_PORT must be a whole number from 1 to 65535, got 'http'\n"


def test_an_unknown_queue_gets_a_suggestion_and_a_bad_name_is_refused(kesin):
    kesin("enqueue", "task", "1")
    answer = kesin("enqueue", "No Name", "1", "--lifecycle", "task")
    assert (answer.code, "is not a queue name" in answer.err) == (1, True)
    for words in (("stats", "tusk"), ("jobs", "list", "tusk"), ("pause", "tusk"), ("sweep", "tusk")):
        answer = kesin(*words)
        assert answer.code == 2
        assert "there is no queue 'tusk': did you mean 'task'?" in answer.err


def test_a_reader_that_closes_the_pipe_causes_no_traceback(fill, programs):
    fill("task", 1_000)  # more than a pipe holds
    program = programs.start("audit", "export")
    program.process.stdout.read(10)
    program.process.stdout.close()
    program.end()
    assert "Traceback" not in program.rest()
