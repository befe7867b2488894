"""Every error code has three sentences that say what to do, in two languages."""

import re
from collections import Counter

from kesin.lifecycle.vocabulary import Fixed
from kesin.workloads.common.advice import LANGUAGES
from kesin.workloads.pdf import PDF, PDF_BATCHES, PDF_WEBHOOKS
from kesin.workloads.pdf.api.download import ARTIFACT_GONE
from kesin.workloads.pdf.errors import ADVICE, PdfErrorCode
from kesin.workloads.pdf.jobs.submit import BACKPRESSURE_ACTIVE, PDF_RENDER_UNAVAILABLE
from kesin.workloads.pdf.lifecycle import RETRYABLE
from kesin.workloads.pdf.storage.base import STORAGE_DOWN

LONGEST = 120
PARTS = ("means", "act", "next")
PEOPLE = {"you", "producer", "author", "receiver", "none", "us"}
WORKLOADS = (PDF, PDF_BATCHES, PDF_WEBHOOKS)
ENGLISH = re.compile(
    r"\b(the|is|are|was|this|that|with|from|of|and|until|for|has|must|it|you|again|by|to)\b", re.IGNORECASE
)
NAMES = re.compile(r"`[^`]*`|\b[A-Z][A-Z_]+\b")


def used() -> set[str]:
    """Every code that a queue or a route of the workload returns."""
    lifecycles = [workload.lifecycle() for workload in WORKLOADS]
    declared = {code.name for lifecycle in lifecycles for code in lifecycle.errors.codes}
    moves = [move for lifecycle in lifecycles for move in lifecycle.moves]
    fixed = {move.error.code for move in moves if isinstance(move.error, Fixed)}
    routes = {PDF_RENDER_UNAVAILABLE, BACKPRESSURE_ACTIVE, ARTIFACT_GONE, STORAGE_DOWN}
    return declared | fixed | routes | {code.value for code in PdfErrorCode}


def test_every_code_has_a_text_and_every_text_a_code():
    assert set(ADVICE.codes) == used()


def test_a_text_has_three_short_sentences_and_says_who_must_act():
    for code in (*ADVICE.codes, "NEXT_YEARS_ERROR"):
        texts = ADVICE.describe(code)
        assert set(texts) == {"who", *LANGUAGES}, code
        assert texts["who"] in PEOPLE, code
        for language in LANGUAGES:
            assert tuple(texts[language]) == PARTS, code
            for sentence in texts[language].values():
                assert sentence == sentence.strip()
                assert sentence[0].isupper()
                assert sentence[-1] in ".?"
                assert len(sentence) <= LONGEST, sentence


def test_the_turkish_is_turkish():
    pairs = [
        (ADVICE.describe(code)["en"][part], ADVICE.describe(code)["tr"][part])
        for code in ADVICE.codes
        for part in PARTS
    ]
    assert [turkish for _, turkish in pairs if ENGLISH.search(NAMES.sub("", turkish))] == []
    assert [english for english, turkish in pairs if english == turkish] == []


def test_both_languages_name_the_same_settings_and_words():
    for code in ADVICE.codes:
        texts = ADVICE.describe(code)
        for part in PARTS:
            english, turkish = (
                set(re.findall(r"`[^`]*`|[A-Z]+_[A-Z_]+", texts[language][part])) for language in LANGUAGES
            )
            assert english == turkish, (code, part)


def test_no_two_codes_have_the_same_text():
    for language in LANGUAGES:
        counts = Counter(ADVICE.describe(code)[language]["means"] for code in ADVICE.codes)
        assert [sentence for sentence, times in counts.items() if times > 1] == []


def test_the_text_says_whether_a_job_is_retried():
    for code in (declared.name for declared in PDF.lifecycle().errors.codes):
        by_itself = "automatically" in ADVICE.describe(code)["en"]["next"]
        assert by_itself == (code in {*RETRYABLE, "INTERRUPTED"}), code


def test_an_unknown_code_gets_the_general_text():
    assert ADVICE.describe("")["en"] == ADVICE.describe("general")["en"] == ADVICE.describe("x" * 500)["en"]


def test_callers_cannot_change_the_texts():
    ADVICE.describe("UNKNOWN")["tr"]["means"] = "changed"
    assert ADVICE.describe("UNKNOWN")["tr"]["means"] != "changed"
