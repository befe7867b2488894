"""Orders and files to test with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import xlsxwriter
from hypothesis import reject
from hypothesis import strategies as st

from kesin.workloads.optiplan.optimizer.model import (
    Board,
    CutPart,
    Demand,
    FirstCut,
    SawProfile,
    Trims,
    Unplannable,
    hundredths,
)
from kesin.workloads.optiplan.optimizer.optimise import Effort
from kesin.workloads.optiplan.optimizer.problem import build_task
from kesin.workloads.optiplan.pipeline.xlsx_template import SHEET, TAGS

QUICK = Effort(looks=12_000)
HEADINGS = tuple(tag.strip("[]") for tag in TAGS)


def order(*parts: tuple[Any, ...], board: Board | None = None, kerf_mm: float = 4) -> Demand:
    """An order from (length, width, pieces, grain) in millimetres; the grain may be left out."""
    return Demand(
        "order",
        board or Board.of(2800, 2100),
        tuple(
            CutPart(f"p{number}", hundredths(part[0]), hundredths(part[1]), part[2], part[3] if len(part) > 3 else 0)
            for number, part in enumerate(parts, start=1)
        ),
        SawProfile.of(hundredths(kerf_mm)),
    )


def sizes(most: int) -> st.SearchStrategy[int]:
    return st.integers(1, most)


@st.composite
def orders(draw: st.DrawFn) -> Demand:
    """Any order that can be cut: odd boards, uneven trims, any kerf, any grain, any saw."""
    trims = Trims(*(draw(st.integers(0, 1_500)) for _ in range(4)))
    length, width = draw(st.integers(20_000, 90_000)), draw(st.integers(20_000, 60_000))
    board = Board(max(length, width), min(length, width), trims)
    room = board.usable
    parts = draw(
        st.lists(
            st.builds(
                CutPart,
                name=st.text(max_size=6),
                length=sizes(room.length),
                width=sizes(room.width),
                quantity=st.integers(1, 6),
                grain=st.integers(0, 3),
            ),
            min_size=1,
            max_size=9,
        )
    )
    demand = Demand("any", board, tuple(parts), draw(saws()))
    try:
        build_task(demand)
    except Unplannable:
        reject()
    return demand


@st.composite
def saws(draw: st.DrawFn) -> SawProfile:
    """Any saw whose limits leave something to cut."""
    kerfs = st.sampled_from([0, 1, 320, 400, 1_000])
    stages = draw(st.sampled_from([3, 2, 4, 0, 1]))
    return SawProfile(
        "any",
        kerf_rip=draw(kerfs),
        kerf_cross=draw(kerfs),
        max_stages=stages,
        first_cut=draw(st.sampled_from(get_args(FirstCut))),
        smallest_strip=draw(st.sampled_from([0, 4_000])),
        largest_cut=draw(st.sampled_from([0, 60_000])),
        head_cut=stages > 0 and draw(st.booleans()),
    )


def batch(path: Path, rows: Sequence[Sequence[Any]], *, tags: Sequence[str] = TAGS) -> Path:
    """A batch file as the workload writes it."""
    book = xlsxwriter.Workbook(str(path))
    sheet = book.add_worksheet(SHEET)
    for number, row in enumerate((tags, HEADINGS, *rows)):
        for column, value in enumerate(row):
            if value is not None:
                sheet.write(number, column, value)
    book.close()
    return path


def row(
    name: str = "p1",
    length: Any = 600,
    width: Any = 450,
    pieces: Any = 1,
    grain: Any = 0,
    *,
    material: str = "M18",
    trim: str = "10.00",
    edges: Sequence[Any] = (None, None, None, None),
) -> list[Any]:
    """A line of a batch file."""
    described = f"GOVDE_{name}_TRIM_{trim}"
    return [material, length, width, pieces, grain, described, *edges, None, None]
