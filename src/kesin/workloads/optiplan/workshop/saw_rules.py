"""The part of ``rules.json`` that describes the saw, the boards in store, and what cutting costs.

All of it is optional, so that a file of an older version stays valid. Lengths are millimetres;
prices are in the currency of the rates.
"""

from decimal import Decimal
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from kesin.foundation.messages import MessageError
from kesin.workloads.optiplan.orders.list_cells import read_heading
from kesin.workloads.optiplan.orders.numbers import InBounds, format_number, format_value
from kesin.workloads.optiplan.orders.payload import Name, PlateSideMm, StrictModel, ThicknessMm

MachineFile = Literal["xml", "ptx", "csv"]
LabelLayout = Literal["100x50", "80x50", "a4-3x8"]
Size = tuple[Decimal, Decimal]  # along the grain of a board, and across it
A4_MM: Final = (210, 297)
MAX_PTX_STAGES: Final = 4  # as deep as sample files go

KerfMm = Annotated[Decimal, InBounds("0", "20")]
_LimitMm = Annotated[Decimal, InBounds("0", "10000")]  # 0: no limit
SmallMm = Annotated[Decimal, InBounds("0", "500")]
_PitchMm = Annotated[Decimal, InBounds("20", "105")]
Price = Annotated[Decimal, InBounds("0", "1000000")]


class ProfileTrims(StrictModel):
    """What the saw trims off each side of a board, blade included; a board lies on its length."""

    left_mm: SmallMm
    right_mm: SmallMm
    bottom_mm: SmallMm
    top_mm: SmallMm


class SawProfileRules(StrictModel):
    """A saw: what it can cut, and the files its machine reads."""

    max_stages: Annotated[int, InBounds("0", "9")] = 3  # 0: no limit
    first_cut: Literal["any", "rip", "cross"] = "any"
    kerf_rip_mm: KerfMm | None = None  # not set: kerf_mm of the rules
    kerf_cross_mm: KerfMm | None = None
    trims: ProfileTrims | None = None  # not set: trimByThickness
    smallest_strip_mm: SmallMm = Decimal(0)
    smallest_piece_mm: SmallMm = Decimal(0)
    largest_cut_mm: _LimitMm = Decimal(0)
    largest_rip_mm: _LimitMm = Decimal(0)
    head_cut: bool = False
    book_height_mm: SmallMm = Decimal(0)
    machine_files: Annotated[tuple[MachineFile, ...], Field(min_length=1, max_length=3, strict=False)] = ("xml",)

    @model_validator(mode="after")
    def _check(self) -> Self:
        stages = self.max_stages + self.head_cut
        if self.head_cut and not self.max_stages:
            raise MessageError("head_cut has no effect if max_stages is 0")
        if "ptx" in self.machine_files and not 1 <= stages <= MAX_PTX_STAGES:
            why = "PTX files need 1 to %(most)s stages (max_stages plus any head cut), got %(given)s"
            raise MessageError(why, most=MAX_PTX_STAGES, given=stages)
        least = max(self.smallest_strip_mm, self.smallest_piece_mm)
        if least > min(self.largest_cut_mm or least, self.largest_rip_mm or least):
            raise MessageError(
                "largest_cut_mm or largest_rip_mm is below smallest_strip_mm or smallest_piece_mm: nothing could be cut"
            )
        return self


class SawSettings(SawProfileRules):
    """A profile in use: it has a name, and a kerf in both directions."""

    name: Name

    @property
    def limits(self) -> str:
        names = "max_stages", "first_cut", "largest_cut_mm", "largest_rip_mm", "smallest_strip_mm"
        return ", ".join(f"{name} {format_value(getattr(self, name))}" for name in names)

    def can_free(self, way: Size, board: Size, room: Size) -> bool:
        """Whether a piece, along and across, can be cut from the room inside a board's trims."""
        if way[0] > room[0] or way[1] > room[1] or way == room:
            return way == room
        across = (way[1], way[0]), (board[1], board[0]), (room[1], room[0])
        return self._can_start("rip", way, board, room) or self._can_start("cross", *across)

    def _can_start(self, runs: str, way: Size, board: Size, room: Size) -> bool:
        """Whether the first cut may run so, along the first of all sizes; or else the head cut."""
        is_head = self.head_cut and self.first_cut != runs
        if self.first_cut not in {"any", runs} and not is_head:
            return False
        limits = self.largest_cut_mm or board[0], self.largest_rip_mm or board[1]
        if board[0] > limits[0] or board[1] > limits[1] or way[1] == room[1]:
            return False
        is_narrow, needs_end = way[1] < self.smallest_strip_mm, way[0] < room[0]
        if is_narrow and not (needs_end and room[1] >= self.smallest_strip_mm):
            return False
        return not self.max_stages or 1 + needs_end + is_narrow <= self.max_stages + is_head


class BoardRules(StrictModel):
    """A size in which a material is bought."""

    code: Name
    material: Name  # as material_code in an order
    thickness_mm: ThicknessMm
    length_mm: PlateSideMm
    width_mm: PlateSideMm
    price: Price = Decimal(0)  # of one board
    quantity: Annotated[int, InBounds("0", "100000")] | None = None  # not set: any number
    supplier: Name | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if read_heading([[self.material]]).plate_mm:
            why = "the name of the material %(material)s contains a board size, so it is never cut from this board"
            raise MessageError(why, material=format_value(self.material))
        return self


class RateRules(StrictModel):
    """What the shop charges, without the boards."""

    currency: Annotated[Name, Field(max_length=3)] = "TRY"
    cut_metre: Price = Decimal(0)
    band_metre: Price = Decimal(0)  # of any band that is not named
    bands: Annotated[dict[Name, Price], Field(max_length=1_000)] = Field(default_factory=dict)


class RackRules(StrictModel):
    """When orders are cut from the offcuts in the rack."""

    use: bool = True
    except_materials: Annotated[tuple[Name, ...], Field(max_length=1_000, strict=False)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.except_materials and not self.use:
            raise ValueError("except_materials has no effect if use is false")
        return self

    def serves(self, material: str) -> bool:
        return self.use and material not in self.except_materials


class LabelRules(StrictModel):
    """How labels are printed; an A4 sheet of 3 × 8 labels without margins, unless set."""

    layout: LabelLayout = "100x50"
    margin_left_mm: SmallMm = Decimal(0)  # of a sheet
    margin_top_mm: SmallMm = Decimal("0.5")
    pitch_x_mm: _PitchMm = Decimal(70)
    pitch_y_mm: _PitchMm = Decimal(37)

    @model_validator(mode="after")
    def _check(self) -> Self:
        right, bottom = (self.margin_left_mm + 3 * self.pitch_x_mm, self.margin_top_mm + 8 * self.pitch_y_mm)
        if right > A4_MM[0] or bottom > A4_MM[1]:
            why = "the labels extend to %(right)s × %(bottom)s mm, beyond the 210 × 297 mm sheet"
            raise MessageError(why, right=format_number(right), bottom=format_number(bottom))
        return self


SHIPPED_PROFILES: Final[dict[str, SawProfileRules]] = {
    "beam saw": SawProfileRules(
        smallest_strip_mm=Decimal(40),
        largest_cut_mm=Decimal(4_300),
        largest_rip_mm=Decimal(4_300),
        book_height_mm=Decimal(75),
    ),
    "sliding saw": SawProfileRules(max_stages=4, largest_cut_mm=Decimal(3_200), largest_rip_mm=Decimal(3_200)),
}
