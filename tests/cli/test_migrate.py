import sqlite3

from kesin.store.sql.migrate import migrations

SQLITE = [f"{one.version:04d}_{one.name}" for one in migrations("sqlite")]
POSTGRES = [f"{one.version:04d}_{one.name}" for one in migrations("postgres")]


def test_migrate_makes_the_embedded_database_and_says_what_was_applied(kesin, tmp_path):
    answer = kesin("migrate")
    assert answer.code == 0
    assert answer.lines == [
        *(f"applied {name}" for name in SQLITE),
        f"{tmp_path}/data/kesin.db is up to date",
    ]


def test_a_second_time_there_is_nothing_to_apply(kesin):
    kesin("migrate")
    assert kesin("migrate", "--json").json["applied"] == []


def test_a_dry_run_of_a_database_that_is_not_there_makes_none(kesin, tmp_path):
    answer = kesin("migrate", "--dry-run", "--json")
    assert answer.json["outstanding"] == SQLITE
    assert not (tmp_path / "data").exists()


def test_postgres_is_migrated_only_when_asked(kesin, empty_postgres):
    refused = kesin("stats")
    assert refused.code == 1
    assert "run `kesin migrate` first" in refused.err
    assert kesin("migrate", "--dry-run", "--json").json["outstanding"] == POSTGRES
    assert kesin("migrate", "--json").json["applied"] == POSTGRES
    assert kesin("migrate", "--dry-run").lines[-1].endswith("is up to date")
    assert kesin("stats").code == 0


def test_every_command_that_moves_asks_for_the_migration_first(kesin, empty_postgres):
    for words in (("enqueue", "task", "1"), ("sweep",), ("audit", "verify"), ("pause", "task")):
        answer = kesin(*words)
        assert answer.code == 1
        assert "kesin migrate" in answer.err, words
        assert answer.err.count("\n") == 1


def test_a_newer_schema_is_refused_with_a_sentence(kesin, tmp_path):
    kesin("migrate")
    with sqlite3.connect(tmp_path / "data" / "kesin.db") as database:
        database.execute("INSERT INTO schema_migration VALUES (9999, 'future', 'x', 0)")
    database.close()
    answer = kesin("migrate")
    assert answer.code == 1
    assert "upgrade kesin" in answer.err
