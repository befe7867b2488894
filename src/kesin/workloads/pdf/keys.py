"""A job's key: two requests with the same key want the same bytes, so one job serves both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.security import MAX_DEPTH

VERSION: Final = 1
_AROUND: Final = 4  # layers around what was sent


def compute_job_key(template_name: str, payload: Mapping[str, Any]) -> str:
    """The sha256 over canonical JSON of a template and everything that changes the bytes.

    ``1`` and ``1.0`` differ, because a template prints them differently; lists keep their order;
    nothing is normalised. What does not change the bytes (a time-out, a webhook) has no place in
    ``payload``.
    """
    told = {"v": VERSION, "template": template_name, "payload": payload}
    return hashlib.sha256(canonical(told).encode("ascii")).hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys at every depth, without spaces, NaN or anything that is not JSON."""
    _check(value, 0)
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def _check(value: Any, depth: int) -> None:
    """Refuse what JSON would bend: keys that are no text, numbers that are none, endless depth."""
    if depth > MAX_DEPTH + _AROUND:
        raise RenderFailed(PdfErrorCode.TEMPLATE_ERROR, f"values nest deeper than {MAX_DEPTH}")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise RenderFailed(PdfErrorCode.TEMPLATE_ERROR, "names of variables are text")
            _check(inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check(inner, depth + 1)
    elif isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124
            raise RenderFailed(PdfErrorCode.TEMPLATE_ERROR, "NaN and Infinity are no JSON")
    elif value is not None and not isinstance(value, str | int | bool):
        raise RenderFailed(
            PdfErrorCode.TEMPLATE_ERROR, f"a {type(value).__name__} is no JSON value"
        )
