"""File names: readable, safe, distinct, and none a prefix of another."""

import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.workloads.optiplan.pipeline.transform import ImportBatch
from kesin.workloads.optiplan.pipeline.workbook import file_stems, plain_letters

JOB = "01890a5d-ac96-774b-bcce-b302099a8057"


def batch(color: str, thickness_mm: str = "18", part_type: Any = "GOVDE") -> ImportBatch:
    return ImportBatch(part_type, color, Decimal(thickness_mm), Decimal(10), ())


@pytest.mark.parametrize(
    ("color", "plain"),
    [
        ("Beyaz", "Beyaz"),
        ("Meşe", "Mese"),
        ("Açık Gri", "Acik-Gri"),
        ("İNCİ IŞIĞI", "INCI-ISIGI"),
        ("şçğüöıŞÇĞÜÖİ", "scguoiSCGUOI"),
        ("../../etc/passwd", "etc-passwd"),
        ("C:\\x", "C-x"),
        ("Beyaz_18mm", "Beyaz-18mm"),
        ("白", "color"),
        ("...", "color"),
        ("straße", "strasse"),
        ("x" * 100, "x" * 40),
    ],
)
def test_a_colour_in_plain_letters(color: str, plain: str):
    assert plain_letters(color) == plain


def test_a_name_holds_job_type_colour_and_thickness_without_a_point():
    batches = [batch("Meşe"), batch("Beyaz", "8", "ARKALIK"), batch("Beyaz", "18.50"), batch("Beyaz", "18.0")]
    assert file_stems(JOB, batches) == [
        f"{JOB}_GOVDE_Mese_18mm",
        f"{JOB}_ARKALIK_Beyaz_8mm",
        f"{JOB}_GOVDE_Beyaz_18-5mm",
        f"{JOB}_GOVDE_Beyaz_18mm",
    ]


def test_colours_that_look_alike_are_numbered():
    colors = ["Meşe", "Mese", "MEŞE", "Mese-2", "Meşe!"]
    assert [stem.split("_")[2] for stem in file_stems(JOB, map(batch, colors))] == [
        "Mese",
        "Mese-2",
        "MESE-3",
        "Mese-2-2",
        "Mese-4",
    ]


@settings(max_examples=settings.default.max_examples // 2)
@given(
    st.lists(
        st.tuples(
            st.text(max_size=50) | st.sampled_from(["Meşe", "Mese", "mese_18mm", "Mese-2", ""]),
            st.sampled_from(["1", "8", "18", "18.5", "1.8"]),
            st.sampled_from(["GOVDE", "ARKALIK"]),
        ),
        unique=True,
        max_size=12,
    )
)
def test_names_are_unique_safe_and_never_the_beginning_of_another(several: list[Any]):
    stems = file_stems(JOB, [batch(*args) for args in several])
    folded = [stem.lower() for stem in stems]
    for index, stem in enumerate(folded):
        assert re.fullmatch(r"[a-z0-9_-]{1,150}", stem, re.ASCII)
        assert not any(other.startswith(stem) for place, other in enumerate(folded) if place != index)


def test_a_strange_job_id_names_no_file():
    for job_id in ("", "../x", "a/b", "a_b", "a.b", "x" * 65, "ş", "a\n"):
        with pytest.raises(ValueError, match="job id"):
            file_stems(job_id, [batch("Beyaz")])
