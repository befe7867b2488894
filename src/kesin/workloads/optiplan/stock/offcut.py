"""The record of an offcut, and how offcuts are looked for."""

import base64
import hashlib
from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kesin.store.search import is_found
from kesin.workloads.optiplan.orders.numbers import InBounds, format_number
from kesin.workloads.optiplan.orders.payload import Name, PlateSideMm, StrictModel, TextLine, ThicknessMm

OffcutState = Literal["FREE", "RESERVED", "IN_DOUBT", "USED", "SCRAPPED"]
FINAL: Final = frozenset({"USED", "SCRAPPED"})
Text = Annotated[str, Field(max_length=100)]
_SEARCHED: Final = ("id", "material", "color", "place")
CANDIDATE: Final = {"id", "material", "length_mm", "width_mm", "trim_needed", "price"}  # offered
CENT: Final = Decimal("0.01")


def offcut_id(made_key: str) -> str:
    """Return the id of the offcut with this key; scanners type it alike on every keyboard."""
    digest = base64.b32encode(hashlib.sha256(made_key.encode()).digest()).decode()
    return f"R{digest[:8].replace('I', '8').replace('O', '9')}"  # I is typed as i without its dot


class OffcutSize(StrictModel):
    """The size of an offcut; its length runs along the grain."""

    length_mm: PlateSideMm
    width_mm: PlateSideMm

    @property
    def area(self) -> Decimal:
        return self.length_mm * self.width_mm

    @property
    def size_text(self) -> str:
        return f"{format_number(self.length_mm)} × {format_number(self.width_mm)}"

    def holds(self, one_mm: Decimal, other_mm: Decimal) -> bool:
        """Whether a piece of these sides fits, turned or not."""
        sides, room = sorted((one_mm, other_mm)), sorted((self.length_mm, self.width_mm))
        return sides[0] <= room[0] and sides[1] <= room[1]


class OffcutPlace(StrictModel):
    """Where an offcut lies."""

    place: TextLine = ""


class OffcutGiven(OffcutSize, OffcutPlace):
    """An offcut as an operator describes it; the same ``made_key`` adds it only once."""

    material: Name  # as material_code in an order
    color: Name
    thickness_mm: ThicknessMm
    trim_needed: bool = True  # its edges are not sawn
    price: Annotated[Decimal, InBounds("0", "1000000")] = Decimal(0)
    made_key: Text = ""

    @property
    def material_text(self) -> str:
        return f"{self.material}, {self.color}, {format_number(self.thickness_mm)} mm"


class Offcut(OffcutGiven):
    """An offcut as it is stored; times are microseconds since 1970."""

    id: str
    state: OffcutState = "FREE"
    made_by_job: str | None = None
    reserved_by_job: str | None = None
    reserved_attempt: int = 0  # the run of the optimiser whose plan uses it
    reserved_batch: str = ""  # the batch of that plan
    used_by_job: str | None = None
    created_at: int
    changed_at: int

    def is_reserved_for(self, job_id: str, attempt: int) -> bool:
        reservation = (self.state, self.reserved_by_job, self.reserved_attempt)
        return reservation == ("RESERVED", job_id, attempt)


class OffcutFilter(BaseModel):
    """Which offcuts are shown: those in the rack, or those in a state; from after an id on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: Annotated[OffcutState | None, BeforeValidator(lambda text: text or None)] = None
    search: Text = ""
    cursor: Text = ""

    def matches(self, offcut: Offcut) -> bool:
        fits = not self.search.strip() or is_found(dict(offcut), _SEARCHED, self.search)
        return fits and self.state in {None, offcut.state}
