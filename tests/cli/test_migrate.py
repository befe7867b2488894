import sqlite3
from contextlib import closing

from kesin.store.sql.migrate import migrations

SQLITE, POSTGRES = (
    [f"{migration.version:04d}_{migration.name}" for migration in migrations(dialect)]
    for dialect in ("sqlite", "postgres")
)


def test_migrate_creates_the_database_lists_what_was_applied_and_refuses_a_newer_schema(kesin, tmp_path):
    assert kesin("migrate", "--dry-run", "--json").json["outstanding"] == SQLITE
    assert not (tmp_path / "data").exists()
    answer = kesin("migrate")
    assert answer.code == 0
    assert answer.lines == [*(f"applied {name}" for name in SQLITE), f"{tmp_path}/data/kesin.db is up to date"]
    assert kesin("migrate", "--json").json["applied"] == []
    with closing(sqlite3.connect(tmp_path / "data" / "kesin.db")) as database, database:
        database.execute("INSERT INTO schema_migration VALUES (9999, 'future', 'x', 0)")
    answer = kesin("migrate")
    assert (answer.code, "upgrade Kesin" in answer.err) == (1, True)


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
