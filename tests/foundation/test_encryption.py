import sys
import traceback
from base64 import urlsafe_b64encode

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kesin.foundation.encryption import (
    MAX_SECRET_BYTES,
    KeyRing,
    SecretAltered,
    SecretKeyMissing,
    SecretNotOpened,
    key_ring,
    new_key,
    sealing_key_id,
)
from kesin.foundation.problems import Invalid, TooLarge, Unavailable
from kesin.foundation.settings import BadSettings, Settings
from tests.tables import table

CANARY = "canary-7f3a"
KEY_A, KEY_B = bytes(range(32)), bytes(range(32, 64))
A, B, BOTH = KeyRing({"a": KEY_A}), KeyRing({"b": KEY_B}), KeyRing({"b": KEY_B, "a": KEY_A})
SPELLED = urlsafe_b64encode(KEY_A).decode()
OTHER = urlsafe_b64encode(KEY_B).decode().rstrip("=")

any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates too


@given(name=any_text, text=any_text)
@example(name="token", text="\x00\ud800 ş")
def test_what_was_sealed_opens(name, text):
    assert A.open(name, A.seal(name, text)) == text


@given(text=any_text, place=st.integers(0), character=st.characters())
def test_no_character_can_be_changed(text, place, character):
    sealed = A.seal("token", text)
    place %= len(sealed)
    assume(sealed[place] != character)
    with pytest.raises(SecretNotOpened):
        A.open("token", sealed[:place] + character + sealed[place + 1 :])


@given(place=st.integers(0))
def test_no_spelling_of_the_same_bits_is_taken_either(place):
    """The last character of base64 has bits that are not used."""
    sealed = A.seal("token", "x" * (1 + place % 3))
    for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=":
        if last != sealed[-1]:
            with pytest.raises(SecretAltered):
                A.open("token", sealed[:-1] + last)


@given(text=any_text, cut=st.integers(1))
def test_a_part_does_not_open(text, cut):
    sealed = A.seal("token", text)
    with pytest.raises(SecretNotOpened):
        A.open("token", sealed[: -(1 + cut % len(sealed))])


@given(name=any_text, other=any_text, text=any_text)
@example(name="a", other="", text="x")
def test_it_opens_under_no_other_name(name, other, text):
    assume(name != other)
    with pytest.raises(SecretAltered):
        A.open(other, A.seal(name, text))


@given(text=any_text, key=st.binary(min_size=32, max_size=32))
def test_another_key_of_the_same_name_does_not_open_it(text, key):
    assume(key != KEY_A)
    with pytest.raises(SecretAltered):
        KeyRing({"a": key}).open("token", A.seal("token", text))


def test_the_first_key_seals_and_all_open_what_was_sealed_with_them_and_nothing_else():
    assert BOTH.open("token", A.seal("token", CANARY)) == CANARY
    assert BOTH.first == sealing_key_id(BOTH.seal("token", CANARY)) == "b"
    assert B.open("token", BOTH.seal("token", CANARY)) == CANARY
    with pytest.raises(SecretKeyMissing, match="'token' is sealed with the key 'a', which is not in"):
        B.open("token", A.seal("token", CANARY))
    with pytest.raises(SecretAltered):  # the same key under another name
        KeyRing({"z": KEY_A}).open("token", A.seal("token", CANARY).replace("v1.a.", "v1.z."))
    assert len({A.seal("token", CANARY) for _ in range(100)}) == 100, "never alike"
    assert [sealing_key_id(text) for text in ("", CANARY, "v1.a.b.c", "v2" + A.seal("x", "y")[2:])] == [None] * 4


def test_a_secret_that_is_too_large_is_refused_by_its_size():
    assert A.open("x", A.seal("x", "y" * MAX_SECRET_BYTES)) == "y" * MAX_SECRET_BYTES
    with pytest.raises(TooLarge, match=r"at most 65536 bytes; this one is 65538"):
        A.seal("x", "ş" * (MAX_SECRET_BYTES // 2 + 1))


@table("sealed", [CANARY, f"v1.a.{CANARY}", f"v1.a.{'A' * 16}.{CANARY}"])
def test_neither_an_error_nor_a_ring_tells_the_text_or_the_key(sealed):
    """A row into which somebody wrote the plain value, say."""
    assert repr(BOTH) == "KeyRing(b, a)"
    assert repr(KEY_A)[2:-1] not in repr(vars(BOTH))
    with pytest.raises(SecretNotOpened) as caught:
        A.open("token", sealed)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value.body())
    assert CANARY not in told
    assert SPELLED[:8] not in told


# The setting


def test_a_new_key_is_an_entry_of_the_setting():
    entry = new_key("k1")
    ring = KeyRing.from_setting(f"{entry},{new_key()}")
    assert ring.first == "k1"
    assert len(ring.ids) == 2
    assert new_key("k1") != entry
    with pytest.raises(Invalid):
        new_key("a:b")  # a name that does not fit into the setting
    ring = KeyRing.from_setting(f" a:{SPELLED} , b:{OTHER}\n")
    assert ring.ids == ("a", "b"), "padding and spaces are taken"
    assert ring.open("x", A.seal("x", CANARY)) == CANARY


def test_a_ring_comes_from_the_settings_or_not_at_all(monkeypatch):
    monkeypatch.setenv("KESIN_SECRET_KEYS", "")
    assert key_ring(Settings()) is None
    monkeypatch.setenv("KESIN_SECRET_KEYS", f"a:{SPELLED}")
    ring = key_ring(Settings())
    assert ring is not None
    assert ring.ids == ("a",)


@table(
    ("text", "sentence"),
    [
        (SPELLED, "entry 1 must be name:key, but has no ':'"),
        (f"a:{SPELLED},", "entry 2 must be name:key, but has no ':'"),
        (f"{OTHER}:a", "the name in entry 1 must be 1…32 letters, digits, '-' or '_'"),
        (f":{SPELLED}", "the name in entry 1 must be 1…32 letters, digits, '-' or '_'"),
        (f"a.b:{SPELLED}", "the name in entry 1 must be 1…32 letters, digits, '-' or '_'"),
        (f"a:{OTHER[:-1]}", "the key in entry 1 must be 32 bytes in base64url"),
        (f"a:{OTHER}AA", "the key in entry 1 must be 32 bytes in base64url"),
        (f"a:{OTHER[:-1]}/", "the key in entry 1 must be 32 bytes in base64url"),
        (f"a:{OTHER[:-1]}9", "the key in entry 1 must be 32 bytes in base64url"),
        (f"a:{SPELLED},a:{OTHER}", "entry 2 has the name of another entry"),
        (f"a:{SPELLED},b:{SPELLED}", "entry 2 has the key of another entry"),
        (f"x,a:{SPELLED},b", "entry 1 must be name:key, but has no ':'; entry 3 must be name:key"),
    ],
)
def test_a_wrong_entry_is_told_by_its_number_and_not_shown(text, sentence):
    with pytest.raises(BadSettings) as caught:
        KeyRing.from_setting(text)
    told = "".join(traceback.format_exception(caught.value))
    assert f"KESIN_SECRET_KEYS: {sentence}" in str(caught.value)
    assert "`kesin secrets new-key` prints a valid entry" in str(caught.value)
    assert SPELLED[:8] not in told
    assert OTHER[:8] not in told


def test_without_cryptography_it_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(Unavailable, match=r"pip install 'kesin\[web\]'"):
        KeyRing({"a": KEY_A})
