"""Advice: every code has a text in both languages."""

import pytest

from kesin.workloads.common.advice import LANGUAGES
from kesin.workloads.optiplan.errors import ADVICE, OptiCode
from tests.tables import table

LONGEST = 240


@table("code", OptiCode)
def test_every_code_says_what_happened_and_what_to_do(code: OptiCode):
    by_language = {language: ADVICE.find(code, language=language) for language in LANGUAGES}
    for advice in by_language.values():
        assert advice.code == code
        for text in (advice.means, advice.act):
            assert text.endswith(".")
            assert 10 < len(text) <= LONGEST
    assert by_language["en"].means != by_language["tr"].means
    assert by_language["en"].act != by_language["tr"].act


def test_every_code_and_no_other_has_advice():
    assert set(ADVICE.codes) == set(OptiCode)
    assert {part: sorted(text) for part, text in ADVICE.describe("E_UNKNOWN").items()} == {
        "en": ["act", "means"],
        "tr": ["act", "means"],
    }


def test_no_two_codes_say_the_same():
    for language in LANGUAGES:
        assert len({ADVICE.find(code, language=language).means for code in OptiCode}) == len(OptiCode)


@pytest.mark.parametrize("code", ["E_NEW_ONE", "", None, "x" * 1000])
def test_a_code_without_a_text_gets_the_general_advice(code: str | None):
    assert ADVICE.find(code).means == ADVICE.find("E_UNKNOWN").means
