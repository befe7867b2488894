import sqlite3

from kesin.store.sql.migrate import migrations

SQLITE, POSTGRES = (
    [f"{migration.version:04d}_{migration.name}" for migration in migrations(dialect)]
    for dialect in ("sqlite", "postgres")
)


def test_migrate_creates_the_database_and_lists_what_was_applied(kesin, tmp_path):
    answer = kesin("migrate")
    assert answer.code == 0
    assert answer.lines == [*(f"applied {name}" for name in SQLITE), f"{tmp_path}/data/kesin.db is up to date"]
    assert kesin("migrate", "--json").json["applied"] == []


def test_a_dry_run_creates_no_database(kesin, tmp_path):
    answer = kesin("migrate", "--dry-run", "--json")
    assert answer.json["outstanding"] == SQLITE
    assert not (tmp_path / "data").exists()


def test_postgres_is_migrated_only_by_the_command(kesin, empty_postgres):
    refused = kesin("stats")
    assert refused.code == 1
    assert "run `kesin migrate` first" in refused.err
    assert kesin("migrate", "--dry-run", "--json").json["outstanding"] == POSTGRES
    assert kesin("migrate", "--json").json["applied"] == POSTGRES
    assert kesin("migrate", "--dry-run").lines[-1].endswith("is up to date")
    assert kesin("stats").code == 0


NEEDS_SCHEMA = (
    *("enqueue task 1", "sweep", "audit verify", "pause task"),
    *("key create --name n --scope read", "key list", "key revoke abcd2345"),
    *("site add north", "site list", "site set north --name x"),
    *("user add a --role admin --password-stdin", "user list", "user passwd a"),
    "user set a --disable",
)


def test_every_command_needs_the_migration_first(kesin, empty_postgres):
    for command in NEEDS_SCHEMA:
        answer = kesin(*command.split(), text="a long password\n")
        assert (answer.code, answer.out) == (1, ""), command
        assert "run `kesin migrate` first" in answer.err, command
        assert answer.err.count("\n") == 1, command


def test_a_newer_schema_is_refused(kesin, tmp_path):
    kesin("migrate")
    with sqlite3.connect(tmp_path / "data" / "kesin.db") as database:
        database.execute("INSERT INTO schema_migration VALUES (9999, 'future', 'x', 0)")
    database.close()
    answer = kesin("migrate")
    assert answer.code == 1
    assert "upgrade kesin" in answer.err
