"""Every code has its words, in both languages."""

import tomllib
from importlib.resources import files

import pytest

from kesin.workloads.optiplan import advice as module
from kesin.workloads.optiplan.advice import LANGUAGES, advice, describe
from kesin.workloads.optiplan.errors import OptiCode

LONGEST = 240


@pytest.mark.parametrize("code", OptiCode)
def test_every_code_says_what_happened_and_what_to_do(code: OptiCode):
    told = {language: advice(code, language) for language in LANGUAGES}
    for one in told.values():
        assert one.code == code
        for text in (one.means, one.act):
            assert text.endswith(".")
            assert 10 < len(text) <= LONGEST
    assert told["en"].means != told["tr"].means
    assert told["en"].act != told["tr"].act


def test_the_book_holds_the_codes_and_nothing_else():
    book = tomllib.loads(files(module.__package__ or "").joinpath("advice.toml").read_text("utf-8"))
    assert set(book) == set(OptiCode)
    for text in book.values():
        assert {language: sorted(text[language]) for language in text} == {
            "en": ["act", "means"],
            "tr": ["act", "means"],
        }


def test_no_two_codes_say_the_same():
    for language in LANGUAGES:
        assert len({advice(code, language).means for code in OptiCode}) == len(OptiCode)


@pytest.mark.parametrize("code", ["E_NEW_ONE", "", None, "x" * 1000])
def test_a_code_nobody_wrote_about_gets_the_general_advice(code: str | None):
    assert advice(code).means == advice("E_UNKNOWN").means


def test_a_code_is_described_in_every_language_at_once():
    told = describe("E_CRM_NO_MATCH")
    assert sorted(told) == ["en", "tr"]
    assert "müşteri" in told["tr"]["means"]
