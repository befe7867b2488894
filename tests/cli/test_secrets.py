from collections.abc import Callable
from pathlib import Path

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.vault import Vault
from kesin.foundation.encryption import MAX_SECRET_BYTES, KeyRing, key_ring, new_key
from kesin.foundation.settings import load_settings
from kesin.store.directory import Directory
from kesin.store.open import open_store

CANARY = "canary-7f3a"
NO_KEYS = "set KESIN_SECRET_KEYS to what `kesin secrets new-key` prints"


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


def value_of(name: str) -> str:
    """The value as a worker reads it."""
    settings = load_settings()
    store = open_store(settings.database, migrate=False)
    try:
        return Vault(Accounts(Directory(store)), key_ring(settings)).get(name)
    finally:
        store.close()


def listed(kesin) -> list[tuple[str, str, bool]]:
    secrets = kesin("secrets", "list", "--json").json
    return [(secret["name"], secret["key"], secret["opens"]) for secret in secrets]


def test_a_new_key_is_a_line_for_the_setting(kesin):
    answer = kesin("secrets", "new-key")
    assert (answer.code, answer.err, len(answer.lines)) == (0, "", 1)
    assert len(KeyRing.from_setting(answer.out).ids) == 1
    assert not Path("data").exists()


def test_a_new_key_may_have_a_name(kesin):
    made = kesin("secrets", "new-key", "--name", "k-2027", "--json").json
    assert made["name"] == "k-2027"
    assert KeyRing.from_setting(made["entry"]).ids == ("k-2027",)
    answer = kesin("secrets", "new-key", "--name", "a:b")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "kesin: a key's name must be 1…32 letters, digits, '-' or '_'\n"


def test_put_list_and_drop(kesin, database, old):
    answer = kesin("secrets", "put", "ads/token", text=f"{CANARY}\n")
    assert (answer.code, answer.out, answer.err) == (0, "kept ads/token\n", "")
    assert value_of("ads/token") == CANARY
    assert listed(kesin) == [("ads/token", "old", True)]
    head, row = kesin("secrets", "list").lines
    assert head.split() == ["NAME", "KEY", "OPENS", "CHANGED", "BY"]
    assert row.split()[:3] == ["ads/token", "old", "yes"]
    assert kesin("secrets", "drop", "ads/token").out == "dropped ads/token\n"
    assert kesin("secrets", "list").out == "there are no secrets\n"
    answer = kesin("secrets", "drop", "ads/token")
    assert (answer.code, answer.err) == (1, "kesin: there is no secret 'ads/token'\n")


def test_standard_input_without_its_last_line_break_is_the_value(kesin, old):
    for text, value in (
        ("a", "a"),
        ("a\r\n", "a"),
        ("a\n\n", "a\n"),
        ("a\r", "a\r"),
        ('{\n "ş": 1\n}\n', '{\n "ş": 1\n}'),
        ("x" * MAX_SECRET_BYTES + "\r\n", "x" * MAX_SECRET_BYTES),
    ):
        assert kesin("secrets", "put", "token", text=text).code == 0
        assert value_of("token") == value


def test_an_empty_or_too_long_value_is_refused(kesin, old):
    for text in ("", "\n", CANARY * 10_000, "ş" * MAX_SECRET_BYTES):
        answer = kesin("secrets", "put", "token", text=text)
        assert answer.code in {1, 2}
        assert answer.err.count("\n") == 1
        assert CANARY not in answer.err
    assert listed(kesin) == []


def test_bytes_that_are_no_text_are_refused_and_not_repeated(kesin, old):
    answer = kesin("secrets", "put", "token", text=CANARY.encode() + b"\xff\xfe")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("kesin: the value must be UTF-8 text of at most 65536 bytes")
    assert CANARY not in answer.err


@pytest.mark.parametrize(
    "words", [("token", CANARY), ("token", f"--value={CANARY}"), ("token", f"-v{CANARY}")]
)
def test_a_value_on_the_command_line_is_refused(kesin, old, words):
    answer = kesin("secrets", "put", *words, text="x")
    assert (answer.code, answer.out) == (2, "")
    assert "not taken from the command line" in answer.err
    assert CANARY not in answer.err
    assert not Path("data").exists()


def test_on_a_terminal_the_value_is_prompted_for_and_not_shown(programs, old):
    answer = programs.on_terminal("secrets", "put", "token", after="value: ", type_in=f"{CANARY}\n")
    assert answer.code == 0, answer.out
    assert "kept token" in answer.out
    assert CANARY not in answer.out
    assert value_of("token") == CANARY


def test_without_keys_put_and_rotate_say_what_to_set(kesin):
    kesin("migrate")
    for words in (("put", "token"), ("rotate",)):
        answer = kesin("secrets", *words, text=CANARY)
        assert (answer.code, answer.out) == (1, "")
        assert answer.err == f"kesin: there is no key for secrets: {NO_KEYS}\n"
    assert kesin("secrets", "list", "--json").json == []


def test_rotation_seals_everything_with_the_first_key(kesin, keys, old):
    for name in "ab":
        kesin("secrets", "put", name, text=f"{CANARY}-{name}")
    new = new_key("new")
    keys(new, old)
    kesin("secrets", "put", "c", text=f"{CANARY}-c")
    answer = kesin("secrets", "rotate")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "2 sealed again with new, 1 already under it\n"
    keys(new)
    assert kesin("secrets", "rotate", "--json").json == {
        "key": "new",
        "resealed": 0,
        "current": 3,
        "busy": 0,
        "unopened": [],
    }
    assert [value_of(name) for name in "abc"] == [f"{CANARY}-{name}" for name in "abc"]


def test_rotation_reports_what_it_could_not_open_and_does_the_rest(kesin, keys, old):
    lost, new = new_key("lost"), new_key("new")
    kesin("secrets", "put", "a", text=CANARY)
    keys(lost)
    kesin("secrets", "put", "b", text=CANARY)
    keys(new, old)
    answer = kesin("secrets", "rotate")
    assert (answer.code, answer.out) == (1, "1 sealed again with new, 0 already under it\n")
    assert answer.err == (
        "kesin: b was left as it is: its key 'lost' is not in KESIN_SECRET_KEYS\n"
    )
    answer = kesin("secrets", "rotate", "--json")
    assert answer.code == 1
    assert answer.json["unopened"] == [{"name": "b", "key": "lost", "code": "secret_key_missing"}]
    assert listed(kesin) == [("a", "new", True), ("b", "lost", False)]


def test_a_bad_setting_is_a_usage_error_and_shows_no_key(kesin, monkeypatch):
    kesin("migrate")
    key = new_key("x").split(":")[1]
    for setting in (key, f"{key}:x", f"x:{key}A", f"x:{key},x:{key}"):
        monkeypatch.setenv("KESIN_SECRET_KEYS", setting)
        answer = kesin("secrets", "list")
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith("kesin: KESIN_SECRET_KEYS: ")
        assert key[:12] not in answer.err


def test_neither_values_nor_keys_are_written_anywhere(kesin, programs, keys, tmp_path, monkeypatch):
    """Output, errors, logs, the audit log and every byte of the data folder."""
    old, new, lost = new_key("old"), new_key("new"), new_key("lost")
    monkeypatch.setenv("KESIN_LOG", "json")
    outputs = []

    def run(*words: str, text: str = "", command=kesin) -> None:
        answer = command(*words, text=text)
        outputs.append(answer.out + answer.err)

    secret_keys = keys(old)
    run("secrets", "put", "a", text=CANARY, command=programs.run)
    run("secrets", "put", "a b", text=CANARY)
    run("secrets", "put", "a", CANARY)
    secret_keys += keys(lost)
    run("secrets", "put", "b", text=CANARY)
    secret_keys += keys(new, old)
    run("secrets", "rotate", command=programs.run)
    run("secrets", "rotate", "--json")
    run("secrets", "list")
    run("secrets", "list", "--json")
    run("doctor")
    run("secrets", "drop", "a")
    contents = [path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert len(outputs) == 10
    assert contents
    for canary in (CANARY, *secret_keys):
        assert [text for text in outputs if canary in text] == []
        assert [data for data in contents if canary.encode() in data] == []
