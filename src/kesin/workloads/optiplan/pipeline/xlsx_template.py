"""The XLSX template: OptiPlanning's tags in its first row, a contract, misspelling included."""

import io
from functools import lru_cache
from pathlib import Path
from typing import Final

from kesin.foundation.messages import Message
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.numbers import format_value
from kesin.workloads.optiplan.orders.safe_xlsx import UnreadableSpreadsheet, XlsxBounds, check_xlsx

SHEET: Final = "\u015eABLON"  # Ş as one character, as the sheet is named
TAGS: Final = (  # EGDE is OptiPlanning's own spelling
    *("[P_CODE_MAT]", "[P_LENGTH]", "[P_WIDTH]", "[P_MINQ]", "[P_GRAIN]", "[P_IDESC]"),
    *("[P_EDGE_MAT_UP]", "[P_EGDE_MAT_LO]", "[P_EDGE_MAT_SX]", "[P_EDGE_MAT_DX]"),
    *("[P_IIDESC]", "[P_DESC1]"),
)
FIRST_DATA_ROW: Final = 3
_TEMPLATE_BOUNDS: Final = XlsxBounds(max_bytes=2_000_000, max_unpacked_bytes=10_000_000)


def read_template(path: Path) -> bytes:
    """Read and check the template; raises OrderProblem (E_TEMPLATE_INVALID) for any failure."""
    try:
        with path.open("rb") as file:
            data = file.read(_TEMPLATE_BOUNDS.max_bytes + 1)
        check_xlsx(data, _TEMPLATE_BOUNDS)
        row = _first_row(data)
    except UnreadableSpreadsheet as problem:
        raise _template_problem(path, str(problem)) from None
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        why = "the file cannot be read: %(problem)s"
        raise _template_problem(path, Message(why, problem=reason)) from None
    except Exception as problem:  # noqa: BLE001 - the library raises anything on a broken file
        why = "the workbook cannot be read: %(problem)s"
        raise _template_problem(path, Message(why, problem=type(problem).__name__)) from None
    if row is None:
        raise _template_problem(path, Message("there is no sheet named %(sheet)s", sheet=SHEET))
    if len(row) != len(TAGS):
        why = "row 1 must contain %(n)s tags; it has %(m)s"
        raise _template_problem(path, Message(why, n=len(TAGS), m=len(row)))
    for number, (cell, tag) in enumerate(zip(row, TAGS, strict=True), 1):
        if cell != tag:
            why, found = "row 1, cell %(n)s must be %(tag)s; it is %(found)s", format_value(cell)
            raise _template_problem(path, Message(why, n=number, tag=tag, found=found))
    return data


@lru_cache(maxsize=1)  # the template rarely changes, and every order needs it
def _first_row(data: bytes) -> list[object] | None:
    """Read row 1 without the empty cells at its end; None if the sheet is missing."""
    import openpyxl

    workbook = openpyxl.load_workbook(io.BytesIO(data))
    if SHEET not in workbook.sheetnames:
        return None
    row: list[object] = list(next(workbook[SHEET].iter_rows(max_row=1, values_only=True)))
    end = max((n for n, cell in enumerate(row, 1) if cell not in {None, ""}), default=0)
    return row[:end]


def _template_problem(path: Path, reason: str) -> OrderProblem:
    why, details = "the template %(file)s cannot be used: %(problem)s", {"template": str(path)}
    message = Message(why, file=path.name, problem=Message(reason))
    return OrderProblem(OptiCode.TEMPLATE_INVALID, message, details | {"reason": reason})
