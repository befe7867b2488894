from collections.abc import Callable
from pathlib import Path

import pytest

from kesin.foundation.encryption import KeyRing, new_key
from tests.cli.sealing import put_secret, secret_value

CANARY = "canary-7f3a"
NO_KEYS = "set KESIN_SECRET_KEYS to the output of `kesin secrets new-key`"


@pytest.fixture
def keys(monkeypatch) -> Callable[..., list[str]]:
    """Set KESIN_SECRET_KEYS to these entries; the keys in them."""

    def use(*entries: str) -> list[str]:
        monkeypatch.setenv("KESIN_SECRET_KEYS", ",".join(entries))
        return [entry.split(":")[1] for entry in entries]

    return use


@pytest.fixture
def old(keys) -> str:
    entry = new_key("old")
    keys(entry)
    return entry


def test_a_new_key_is_a_line_for_the_setting(kesin):
    answer = kesin("secrets", "new-key")
    assert (answer.code, answer.err, len(answer.lines)) == (0, "", 1)
    assert len(KeyRing.from_setting(answer.out).ids) == 1
    made = kesin("secrets", "new-key", "--name", "k-2027", "--json").json
    assert made["name"] == "k-2027"
    assert KeyRing.from_setting(made["entry"]).ids == ("k-2027",)
    answer = kesin("secrets", "new-key", "--name", "a:b")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "kesin: a key's name must be 1…32 letters, digits, '-' or '_'\n"
    assert not Path("data").exists()


def test_without_keys_or_with_a_bad_setting_rotate_says_what_to_set_and_shows_no_key(kesin, monkeypatch):
    kesin("migrate")
    answer = kesin("secrets", "rotate")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == f"kesin: there is no key for secrets: {NO_KEYS}\n"
    key = new_key("x").split(":")[1]
    for setting in (key, f"{key}:x", f"x:{key}A", f"x:{key},x:{key}"):
        monkeypatch.setenv("KESIN_SECRET_KEYS", setting)
        answer = kesin("secrets", "rotate")
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith("kesin: KESIN_SECRET_KEYS: ")
        assert key[:12] not in answer.err


def test_rotation_seals_with_the_first_key_and_reports_what_it_could_not_open(kesin, keys, old):
    lost, new = new_key("lost"), new_key("new")
    put_secret("a", CANARY)
    keys(lost)
    put_secret("b", CANARY)
    keys(new, old)
    put_secret("c", CANARY)
    answer = kesin("secrets", "rotate")
    assert (answer.code, answer.out) == (1, "1 sealed again with new, 1 already up to date\n")
    assert answer.err == ("kesin: b was left as it is: its key 'lost' is not in KESIN_SECRET_KEYS\n")
    answer = kesin("secrets", "rotate", "--json")
    unopened = [{"name": "b", "key": "lost", "code": "secret_key_missing"}]
    assert (answer.code, answer.json["unopened"]) == (1, unopened)
    assert secret_value("a") == CANARY
    keys(new, lost)
    answer = kesin("secrets", "rotate", "--json")
    assert answer.json == {"key": "new", "resealed": 1, "current": 2, "busy": 0, "unopened": []}
    assert (answer.code, secret_value("b")) == (0, CANARY)


def test_neither_values_nor_keys_are_written_anywhere(kesin, programs, keys, tmp_path, monkeypatch):
    """Output, errors, logs, the audit log and every byte of the data folder."""
    old, new, lost = new_key("old"), new_key("new"), new_key("lost")
    monkeypatch.setenv("KESIN_LOG", "json")
    outputs = []

    def run(*words: str, command=kesin) -> None:
        answer = command(*words)
        outputs.append(answer.out + answer.err)

    secret_keys = keys(old)
    put_secret("a", CANARY)
    secret_keys += keys(lost)
    put_secret("b", CANARY)
    secret_keys += keys(new, old)
    run("secrets", "rotate", command=programs.run)
    run("secrets", "rotate", "--json")
    run("doctor")
    contents = [path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert len(outputs) == 3
    assert contents
    for canary in (CANARY, *secret_keys):
        assert [text for text in outputs if canary in text] == []
        assert [data for data in contents if canary.encode() in data] == []
