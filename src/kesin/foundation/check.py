"""The result of a check of `kesin doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check; its fields are the JSON of `kesin doctor --json`."""

    name: str
    status: Status
    found: str
    remedy: str = ""
