"""The advice on error codes: complete, short, in both languages."""

import re
import tomllib
from collections import Counter
from importlib.resources import files

import pytest

from kesin.lifecycle.errors import Category
from kesin.store.limits import MAX_CODE
from kesin.workloads.common.advice import LANGUAGES, Advice
from kesin.workloads.oci.google.classify import ADJUSTMENT_CODES, CODES
from kesin.workloads.oci.lifecycle import ADVICE, adjustment_lifecycle, oci_lifecycle
from tests.workloads.oci import fake_data_manager
from tests.workloads.oci.google.test_classify import ENUMS, values_of

LONGEST = 240
PARTS = ("means", "act", "next")
PEOPLE = {"you", "producer", "google_admin", "none", "us"}
OURS = [  # which are in no table
    *("MISSING_EXTERNAL_ID", "INVALID_EXTERNAL_ID", "MISSING_CLICK_ID"),
    *("INVALID_CLICK_ID_FORMAT", "MISSING_TIME", "INVALID_TIME_FORMAT", "TIME_IN_FUTURE"),
    *("MISSING_CONVERSION_VALUE", "INVALID_CONVERSION_VALUE", "INVALID_CURRENCY"),
    *("MISSING_CONVERSION_NAME", "INVALID_CONVERSION_NAME", "INVALID_REVISION"),
    *("NOT_AN_OBJECT", "NOT_JSON", "TOO_LARGE", "BAD_PAYLOAD", "CREDENTIALS_UNREADABLE"),
    *("HTTP_401", "HTTP_403", "HTTP_404", "HTTP_429", "HTTP_5XX", "NO_ANSWER", "BAD_ANSWER"),
    *("REQUEST_REJECTED", "UNSPECIFIED", "UNKNOWN", "ADJUSTED", "NOT_ADJUSTABLE", "INVALID_TYPE"),
    *("VALUE_NOT_ALLOWED", "VALUE_MISSING", "INVALID_ADJUSTED_VALUE", "MISSING_ADJUSTMENT_ID"),
    "INVALID_ADJUSTMENT_ID",
]
ENGLISH = re.compile(
    r"\b(the|is|are|was|were|this|that|with|from|of|and|until|for|has|have|must|it|you|your|our|"
    r"google's|row|rows|account|nothing|because|where|which|who|when|by|to|does|again|"
    r"but|though|although|than|too|unspecified|cannot|without|or|as)\b",
    re.IGNORECASE,
)
NAMES = re.compile(r"“[^”]*”|\b[A-Z][A-Z_]+\b|\b[a-z]+_[a-z_]+\b|customers/\S+|\(\w+\)")
TOLD = tomllib.loads(files("kesin.workloads.oci").joinpath("advice.toml").read_text("utf-8"))
TEXTS = {
    **{name: text for name, text in TOLD.items() if name not in {"enum", "category", "who"}},
    **{f"enum.{name}": text for name, text in TOLD["enum"].items()},
    **{f"category.{name}": text for name, text in TOLD["category"].items()},
}
WRITTEN = {name: text for name, text in TEXTS.items() if "same_as" not in text}
GENERAL = ADVICE.find(None)


def codes_of(enum: str) -> set[str]:
    """What Google's own package knows, as stored; but for the two that say nothing."""
    prefix = "DateError_" if enum == "dateError" else ""
    return {prefix + value for value in values_of(enum) if value not in {"UNSPECIFIED", "UNKNOWN"}}


def has_a_text(code: str) -> bool:
    return all(ADVICE.find(code, None, one).means != ADVICE.find(None, None, one).means for one in LANGUAGES)


def test_every_code_of_ours_of_the_error_table_and_of_google_has_a_text():
    codes = {*OURS, *(code.name for code in (*CODES, *ADJUSTMENT_CODES))}
    codes.update(code.name for code in (*oci_lifecycle().errors.codes, *adjustment_lifecycle().errors.codes))
    codes.update(*map(codes_of, ENUMS))
    codes.update(*map(fake_data_manager.values_of, ("ErrorReason", "ProcessingErrorReason")))
    assert sorted(code for code in codes if not has_a_text(code)) == []


def test_every_value_that_can_meet_an_upload_has_a_text_of_its_own():
    shared = {name[0].lower() + name[1:] for name in TOLD["enum"]} - {"dateError"}
    wanted = {code for enum in ENUMS if enum not in shared for code in codes_of(enum)}
    assert {"UNPARSEABLE_GCLID"} <= wanted <= set(WRITTEN)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_text_is_three_short_sentences(language):
    assert [name for name, text in WRITTEN.items() if tuple(text[language]) != PARTS] == []
    sentences = [text[language][part] for text in WRITTEN.values() for part in PARTS]
    assert [one for one in sentences if not one.endswith(".") or one != one.strip()] == []
    assert [one for one in sentences if "  " in one] == []
    most = {"tr": 2}.get(language, 1)  # Turkish: a second thought has a sentence of its own
    assert [one for one in sentences if len(re.findall(r"[.!?](?=\s|$)", one)) > most] == []
    assert [one for one in sentences if len(one) > LONGEST] == []


def test_somebody_is_named():
    assert [name for name, text in WRITTEN.items() if text["who"] not in PEOPLE] == []
    assert [name for name, text in WRITTEN.items() if set(text) - {"who", "en", "tr", "values"}] == []


def test_the_turkish_is_turkish():
    pairs = [(text["en"][part], text["tr"][part]) for text in WRITTEN.values() for part in PARTS]
    assert [english for english, _ in pairs if not ENGLISH.search(english)] == []
    assert [turkish for _, turkish in pairs if ENGLISH.search(NAMES.sub("", turkish))] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_says_something_of_its_own(language):
    sentences = Counter(text[language]["means"] for text in WRITTEN.values())
    assert [sentence for sentence, times in sentences.items() if times > 1] == []


def test_the_two_languages_name_the_same_states_and_actions():
    def named(sentence: str) -> set[str]:
        return set(re.findall(r"FAILED|COMPLETED|RETRY_SELECTED|MARK_FAILED", sentence))

    for name, text in WRITTEN.items():
        for part in PARTS:
            assert named(text["en"][part]) == named(text["tr"][part]), (name, part)


def test_another_name_leads_to_a_written_text():
    for text in TEXTS.values():
        assert text.get("same_as", "general") in WRITTEN
    old_name, same = ADVICE.find("INVALID_GCLID"), ADVICE.find("UNPARSEABLE_GCLID")
    assert old_name.code == "INVALID_GCLID"
    assert (old_name.who, old_name.means) == (same.who, same.means)


def test_codes_are_told_apart_though_they_are_stored_cut_off():
    assert len({code[:MAX_CODE] for code in ADVICE.codes}) == len(ADVICE.codes)
    for code in ADVICE.codes:
        assert ADVICE.find(code[:MAX_CODE]).means == ADVICE.find(code).means


def test_what_follows_is_what_the_verdict_does():
    """A row that fails rests, one that waits comes back by itself, one Google had is done."""
    by_itself = re.compile(r"automatically|when the breaker closes")
    for code in CODES:
        following = ADVICE.find(code.name).next
        verdict = code.verdict.name if code.verdict else ""
        if code.name.startswith("PROCESSING_ERROR_"):  # of rows that were delivered long ago
            assert "stay COMPLETED" in following, code.name
        elif verdict == "COMPLETE":
            assert "COMPLETED" in following, code.name
            assert ADVICE.find(code.name).who == "none", code.name
        elif verdict == "WAIT":
            assert "six hours" in following, code.name
        elif code.category in {Category.TRANSIENT, Category.RATE_LIMIT}:
            assert by_itself.search(following), code.name
        else:
            assert "FAILED" in following, code.name


def test_a_status_falls_back_to_its_class():
    for code in ("HTTP_500", "HTTP_503", "HTTP_599"):
        assert ADVICE.find(code).means == ADVICE.find("HTTP_5XX").means
        assert ADVICE.find(code).code == code


def test_a_value_without_a_text_falls_back_to_its_enum():
    assert ADVICE.find("TOO_HIGH").means == TOLD["enum"]["RangeError"]["en"]["means"]
    assert ADVICE.find("DateError_NEXT_YEARS_ERROR").means == TOLD["enum"]["DateError"]["en"]["means"]


def test_a_reason_of_the_data_manager_that_comes_later_falls_back_to_those_of_its_kind():
    means = TOLD["enum"]["PROCESSING"]["en"]["means"]
    assert ADVICE.find("PROCESSING_ERROR_REASON_NEXT_YEARS_ERROR").means == means


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_unknown_code_falls_back_to_its_category(language):
    for category in Category:
        advice = ADVICE.find("NEXT_YEARS_ERROR", category, language)
        assert advice.code == "NEXT_YEARS_ERROR"
        assert advice.means == TOLD["category"][category.value][language]["means"]


@pytest.mark.parametrize("code", [None, "", "nonsense", "enum", "category", "é" * 500, "HTTP_", "_"])
def test_nonsense_gets_the_general_advice(code):
    for language in LANGUAGES:
        for category in (None, "", "NO_CATEGORY"):
            advice = ADVICE.find(code, category, language)
            assert isinstance(advice, Advice)
            assert advice.means == TOLD["general"][language]["means"]
    assert ADVICE.describe(code or "")["who"] == GENERAL.who


def test_describe_tells_both_languages():
    texts = ADVICE.describe("MISSING_CLICK_ID")
    assert set(texts) == {"who", "en", "tr"}
    assert texts["who"] == "producer"
    assert tuple(texts["tr"]) == PARTS
    texts["tr"]["means"] = "changed"
    assert ADVICE.describe("MISSING_CLICK_ID")["tr"]["means"] != "changed"
