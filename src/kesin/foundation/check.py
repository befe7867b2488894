"""The result of a check of `kesin doctor` and of the doctors of workloads."""

from dataclasses import dataclass
from typing import Final, Literal, Self

Status = Literal["ok", "warning", "failure"]

_SIGNS: Final[dict[Status, str]] = {"ok": "✓", "warning": "!", "failure": "✗"}


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check; its fields are the JSON of `kesin doctor --json`."""

    name: str
    status: Status
    found: str
    remedy: str = ""

    @classmethod
    def result(cls, name: str, *, ok: bool, found: str, remedy: str = "", otherwise: Status = "failure") -> Self:
        """The result of a check that either passes, or has this remedy."""
        return cls(name, "ok", found) if ok else cls(name, otherwise, found, remedy)

    @property
    def ok(self) -> bool:
        """Whether nothing failed; a warning is no failure."""
        return self.status != "failure"

    @property
    def sign(self) -> str:
        """A tick, unless something is to be done; a dash for an optional part that is missing."""
        return "–" if self.remedy and self.status == "ok" else _SIGNS[self.status]
