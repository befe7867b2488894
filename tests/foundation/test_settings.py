import os
from pathlib import Path

import pytest

from kesin.foundation.settings import BadSettings, describe_settings, load_settings, mask_secrets, unknown_variables
from tests.tables import table


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch):
    """None of the settings of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("KESIN_")]:
        monkeypatch.delenv(name)


def test_without_any_setting_jobs_are_kept_in_a_file_of_the_data_folder():
    settings = load_settings()
    assert settings.database == "kesin-data/kesin.db"
    assert settings.database_file == Path("kesin-data/kesin.db")
    assert (settings.host, settings.port, settings.log) == ("127.0.0.1", 8000, "console")


DATABASES = {
    "jobs.db": Path("jobs.db"),
    "sqlite:///var/jobs.db": Path("var/jobs.db"),
    "sqlite:////var/jobs.db": Path("/var/jobs.db"),
    "postgresql://host/db": None,
    "postgres://host/db": None,
}
BAD = (
    ("KESIN_PORT", "eighty", "a whole number from 1 to 65535, got 'eighty'"),
    ("KESIN_PORT", "65536", "a whole number from 1 to 65535, got '65536'"),
    ("KESIN_LOG", "xml", "console or json, got 'xml'"),
    ("KESIN_REDIS_URL", "http://x", "redis://…, for the PDF workload, got 'http://x'"),
)


def test_a_database_is_a_file_or_a_server(monkeypatch):
    for address, file in DATABASES.items():
        monkeypatch.setenv("KESIN_DATABASE_URL", address)
        assert load_settings().database_file == file
    monkeypatch.setenv("KESIN_DATABASE_URL", "mysql://me:hush@host/db")
    with pytest.raises(BadSettings) as problem:
        load_settings()
    assert "mysql://me:…@host/db" in str(problem.value)
    assert "hush" not in str(problem.value)


def test_a_bad_setting_is_refused_with_what_it_takes_and_an_empty_one_counts_as_not_set(monkeypatch):
    for name, value, takes in BAD:
        monkeypatch.setenv(name, value)
        with pytest.raises(BadSettings) as problem:
            load_settings()
        assert str(problem.value) == f"{name} must be {takes}"
        monkeypatch.delenv(name)
    monkeypatch.setenv("KESIN_PORT", "")
    settings = load_settings()
    assert settings.port == 8000
    assert describe_settings(settings)["KESIN_PORT"] == ("8000", "default")


def test_every_setting_is_shown_with_its_source_and_without_secrets(monkeypatch):
    monkeypatch.setenv("KESIN_DATABASE_URL", "postgresql://me:hush@host/db")
    shown = describe_settings(load_settings())
    assert shown["KESIN_DATABASE_URL"] == ("postgresql://me:…@host/db", "environment")
    assert shown["KESIN_HOST"][1] == "default"


@table(
    ("address", "shown"),
    [
        ("postgresql://me:a%40b@host/db", "postgresql://me:…@host/db"),
        ("postgresql://host/db?user=me&password=hush", "postgresql://host/db?user=me&password=…"),
        ("redis://:hush@host:6379/0", "redis://:…@host:6379/0"),
        ("postgresql://[bad", "…"),
        ("/var/kesin.db", "/var/kesin.db"),
    ],
)
def test_passwords_are_masked_wherever_an_address_can_hold_one(address, shown):
    assert mask_secrets(address) == shown


def test_a_variable_nobody_reads_is_found_with_the_one_it_may_be_meant_for(monkeypatch):
    for name in ("KESIN_DATADIR", "KESIN_COLOUR", "KESIN_PORT", "OTHER"):
        monkeypatch.setenv(name, "1")
    assert unknown_variables() == {"KESIN_COLOUR": None, "KESIN_DATADIR": "KESIN_DATA_DIR"}
