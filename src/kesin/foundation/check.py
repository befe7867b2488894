"""What a look of `kesin doctor` at one thing finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    status: Status
    found: str
    remedy: str = ""
