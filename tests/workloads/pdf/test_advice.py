"""Whoever meets a code reads three sentences that say what to do, in two languages."""

import re
from collections import Counter

import pytest

from kesin.workloads.pdf import PDF, PDF_BATCHES, PDF_WEBHOOKS
from kesin.workloads.pdf.advice import LANGUAGES, describe, documented_codes
from kesin.workloads.pdf.api.download import ARTIFACT_GONE, STORAGE_DOWN
from kesin.workloads.pdf.errors import PdfErrorCode
from kesin.workloads.pdf.jobs.submit import BACKPRESSURE_ACTIVE, PDF_RENDER_UNAVAILABLE
from kesin.workloads.pdf.lifecycle import RETRYABLE

LONGEST = 120
PARTS = ("means", "act", "next")
PEOPLE = {"you", "producer", "receiver", "nobody", "us"}
WORKLOADS = (PDF, PDF_BATCHES, PDF_WEBHOOKS)
ENGLISH = re.compile(
    r"\b(the|is|are|was|this|that|with|from|of|and|until|for|has|must|it|you|again|by|to)\b",
    re.IGNORECASE,
)
NAMES = re.compile(r"`[^`]*`|\b[A-Z][A-Z_]+\b")


def used() -> set[str]:
    """Every code that a queue or a door of the workload tells."""
    declared = {code.name for one in WORKLOADS for code in one.lifecycle().errors.codes}
    fixed = {
        move.error.code
        for one in WORKLOADS
        for move in one.lifecycle().moves
        if hasattr(move.error, "code")
    }
    doors = {PDF_RENDER_UNAVAILABLE, BACKPRESSURE_ACTIVE, ARTIFACT_GONE, STORAGE_DOWN}
    return declared | fixed | doors | {one.value for one in PdfErrorCode}


def test_every_code_has_a_text_and_every_text_a_code():
    assert set(documented_codes()) == used()


@pytest.mark.parametrize("code", [*documented_codes(), "NEXT_YEARS_ERROR"])
def test_a_text_says_whose_turn_it_is_and_three_short_sentences(code):
    told = describe(code)
    assert set(told) == {"who", *LANGUAGES}
    assert told["who"] in PEOPLE
    for language in LANGUAGES:
        assert tuple(told[language]) == PARTS
        for sentence in told[language].values():
            assert sentence == sentence.strip()
            assert sentence[0].isupper()
            assert sentence[-1] in ".?"
            assert len(sentence) <= LONGEST, sentence


def test_the_turkish_is_turkish():
    pairs = [
        (describe(code)["en"][part], describe(code)["tr"][part])
        for code in documented_codes()
        for part in PARTS
    ]
    assert [turkish for _, turkish in pairs if ENGLISH.search(NAMES.sub("", turkish))] == []
    assert [english for english, turkish in pairs if english == turkish] == []


def test_both_languages_name_the_same_settings_and_words():
    for code in documented_codes():
        told = describe(code)
        for part in PARTS:
            english, turkish = (
                set(re.findall(r"`[^`]*`|[A-Z]+_[A-Z_]+", told[one][part])) for one in LANGUAGES
            )
            assert english == turkish, (code, part)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_says_something_of_its_own(language):
    said = Counter(describe(code)[language]["means"] for code in documented_codes())
    assert [sentence for sentence, times in said.items() if times > 1] == []


def test_what_is_tried_again_is_said_to_be_and_nothing_else_of_the_jobs():
    for code in (one.name for one in PDF.lifecycle().errors.codes):
        by_itself = "by itself" in describe(code)["en"]["next"]
        assert by_itself == (code in {*RETRYABLE, "INTERRUPTED"}), code


def test_a_code_nobody_wrote_about_gets_an_answer():
    assert describe("")["en"] == describe("general")["en"] == describe("x" * 500)["en"]


def test_nobody_can_change_the_texts():
    describe("UNKNOWN")["tr"]["means"] = "changed"
    assert describe("UNKNOWN")["tr"]["means"] != "changed"
