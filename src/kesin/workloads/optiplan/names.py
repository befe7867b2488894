"""Names of import files: read by people, safe on every disk, never the same for two batches.

OptiPlanning names its XML after the import file, and an XML belongs to the batch whose name it
begins with. So no name may be the beginning of another: pieces are joined by ``_`` and hold none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from kesin.workloads.optiplan.numbers import key_of
from kesin.workloads.optiplan.transform import Batch

_COLOR_MAX: Final = 40
_JOB_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9]+")
_LETTERS: Final = str.maketrans(
    {
        "ı": "i",
        "ø": "o",
        "Ø": "O",
        "ł": "l",
        "Ł": "L",
        "đ": "d",
        "Đ": "D",
        "ß": "ss",
        "æ": "ae",
        "Æ": "AE",
        "œ": "oe",
        "Œ": "OE",
    }
)


def file_stems(job_id: str, batches: Iterable[Batch]) -> list[str]:
    """``<job_id>_<part_type>_<color>_<thickness>mm`` for each, in order.

    Colours that look alike in plain letters are numbered, upper and lower case alike: the disk of
    the machine may not tell them apart.
    """
    if not _JOB_ID.fullmatch(job_id):
        raise ValueError(f"a job id is letters, digits and dashes, got {job_id!r}")
    stems: list[str] = []
    taken: set[str] = set()
    for batch in batches:
        thickness = key_of(batch.thickness_mm).replace(".", "-")
        color, number = plain_letters(batch.color), 1
        stem = f"{job_id}_{batch.part_type}_{color}_{thickness}mm"
        while stem.lower() in taken:
            number += 1
            stem = f"{job_id}_{batch.part_type}_{color}-{number}_{thickness}mm"
        taken.add(stem.lower())
        stems.append(stem)
    return stems


def plain_letters(text: str) -> str:
    """``Açık Meşe`` as ``Acik-Mese``; never empty."""
    folded = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    letters = "".join(sign for sign in folded if not unicodedata.combining(sign))
    return _NOT_PLAIN.sub("-", letters)[:_COLOR_MAX].strip("-") or "color"
