"""Advice: every code has a text in both languages."""

import tomllib
from importlib.resources import files

import pytest

from kesin.workloads.optiplan import advice as module
from kesin.workloads.optiplan.advice import LANGUAGES, advice_json, find_advice
from kesin.workloads.optiplan.errors import OptiCode

LONGEST = 240


@pytest.mark.parametrize("code", OptiCode)
def test_every_code_says_what_happened_and_what_to_do(code: OptiCode):
    by_language = {language: find_advice(code, language) for language in LANGUAGES}
    for advice in by_language.values():
        assert advice.code == code
        for text in (advice.means, advice.act):
            assert text.endswith(".")
            assert 10 < len(text) <= LONGEST
    assert by_language["en"].means != by_language["tr"].means
    assert by_language["en"].act != by_language["tr"].act


def test_the_book_holds_the_codes_and_nothing_else():
    texts = tomllib.loads(
        files(module.__package__ or "").joinpath("advice.toml").read_text("utf-8")
    )
    assert set(texts) == set(OptiCode)
    for text in texts.values():
        assert {language: sorted(text[language]) for language in text} == {
            "en": ["act", "means"],
            "tr": ["act", "means"],
        }


def test_no_two_codes_say_the_same():
    for language in LANGUAGES:
        assert len({find_advice(code, language).means for code in OptiCode}) == len(OptiCode)


@pytest.mark.parametrize("code", ["E_NEW_ONE", "", None, "x" * 1000])
def test_a_code_without_a_text_gets_the_general_advice(code: str | None):
    assert find_advice(code).means == find_advice("E_UNKNOWN").means


def test_a_code_is_described_in_every_language_at_once():
    by_language = advice_json("E_CRM_NO_MATCH")
    assert sorted(by_language) == ["en", "tr"]
    assert "müşteri" in by_language["tr"]["means"]
