"""The files that a job's progress record names: import files for the optimiser, XML for the saw.

Other programs write into the same folders. Therefore a name is never used as a path, links are not
followed, and every read is bounded.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from kesin.foundation.messages import Message
from kesin.foundation.problems import TooLarge
from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.optimizer.checker import find_faults
from kesin.workloads.optiplan.optimizer.input import read_batch
from kesin.workloads.optiplan.optimizer.model import (
    Cut,
    CutDirection,
    CuttingPlan,
    Layout,
    Placement,
    Rect,
    Unplannable,
    hundredths,
)
from kesin.workloads.optiplan.optimizer.output.svg import draw_board_svg, draw_svg
from kesin.workloads.optiplan.optimizer.output.texts import Language
from kesin.workloads.optiplan.optimizer.output.xml import GENERATOR
from kesin.workloads.optiplan.optimizer.problem import build_task
from kesin.workloads.optiplan.orders.payload import CuttingOrder
from kesin.workloads.optiplan.pipeline.progress import OrderProgress
from kesin.workloads.optiplan.pipeline.shared_folder import (
    UnusableFile,
    read_plain_file,
    translate_os_errors,
)
from kesin.workloads.optiplan.pipeline.solution import HARDENED_PARSER
from kesin.workloads.optiplan.workshop.paths import Paths

MAX_DOWNLOAD_BYTES: Final = 100_000_000  # of one download
_ZIP_DATE: Final = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same files give the same bytes


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file's name and content."""

    name: str
    data: bytes


def read_xml_files(paths: Paths, job: Job, progress: OrderProgress) -> list[JobFile]:
    """Read a job's solutions; raises OrderProblem (404) or FolderUnavailable."""
    if not progress.xml:
        raise _no_files(job, "XML")
    return _read_files(paths.export_folder, progress.xml)


def read_import_files(paths: Paths, job: Job, progress: OrderProgress) -> list[JobFile]:
    """Read a job's import files; raises OrderProblem (404) or FolderUnavailable."""
    if not progress.files:
        raise _no_files(job, "import file")
    return _read_files(paths.import_folder, progress.files)


def build_zip(files: Iterable[JobFile]) -> bytes:
    """Pack the files into a ZIP archive."""
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w") as archive:
        for file in files:
            entry = zipfile.ZipInfo(file.name, _ZIP_DATE)
            archive.writestr(entry, file.data, zipfile.ZIP_DEFLATED)
    return output.getvalue()


def _read_files(folder: Path, names: Sequence[str]) -> list[JobFile]:
    files: list[JobFile] = []
    size = 0
    for name in names:
        files.append(JobFile(name, _read_file(folder, name)))
        size += len(files[-1].data)
        if size > MAX_DOWNLOAD_BYTES:
            raise TooLarge(
                "the files have more than %(most)s bytes: fetch them where they are",
                most=MAX_DOWNLOAD_BYTES,
            )
    return files


def _read_file(folder: Path, name: str) -> bytes:
    path = folder / Path(name).name
    with translate_os_errors(path):
        try:
            return read_plain_file(path)
        except FileNotFoundError:
            if not folder.is_dir():
                raise
            message = Message("%(file)s is not there any more", file=path.name)
        except UnusableFile as problem:
            why = Message(str(problem))
            message = Message("%(field)s: %(problem)s", field=path.name, problem=why)
    raise _not_found(message, file=path.name)


def _no_files(job: Job, kind: str) -> OrderProblem:
    message = Message("the job is %(state)s: it has no %(what)s", state=job.state, what=kind)
    return _not_found(message, state=job.state)


def _not_found(message: str, **details: Any) -> OrderProblem:
    return OrderProblem(OptiCode.FILE_NOT_FOUND, message, details)


MAX_DRAWN_BOARDS: Final = 500  # drawn at once
_SIZE_MM: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,2})?")


def read_plans(paths: Paths, job: Job, progress: OrderProgress) -> list[CuttingPlan]:
    """Read a job's plans, one per material; raises OrderProblem or FolderUnavailable."""
    plans: list[CuttingPlan] = []
    for file in read_xml_files(paths, job, progress):
        root = _parse_xml(file.name, file.data)
        stem = root.get("batch", "")
        if root.get("generator") != GENERATOR or stem not in progress.stems:
            message = Message(
                "%(file)s was made by another program: only that one draws it", file=file.name
            )
            raise _not_found(message, file=file.name)
        name = _plan_name(CuttingOrder.from_job(job), stem.removeprefix(f"{job.id}_"))
        plans += [
            replace(plan, demand=replace(plan.demand, name=name))
            for plan in _parse_plans(paths.import_folder / f"{stem}.xlsx", root)
        ]
    return plans


def _plan_name(order: CuttingOrder, batch: str) -> str:
    """The title of a plan: it names the order by the shop's own id, not by the job id."""
    revision = f" r{order.revision}" if order.revision > 1 else ""
    return f"{order.payload.order_id}{revision} · {batch}"


def draw_plans(plans: Sequence[CuttingPlan], board: int | None, language: Language) -> str:
    """Draw all boards, or only the given one; boards are numbered from 1 across all plans."""
    boards = [(plan, number) for plan in plans for number in range(1, len(plan.layouts) + 1)]
    if board is None:
        check_board_count(plans)
        return draw_svg(plans, language)
    if board > (count := len(boards)):
        message = Message("there is no board %(board)s: there are %(n)s", board=board, n=count)
        raise _not_found(message, boards=count)
    plan, number = boards[board - 1]
    return draw_board_svg(plan, number, language)


def check_board_count(plans: Sequence[CuttingPlan]) -> None:
    """Raise OrderProblem if there are more boards than a screen or a printer can show."""
    boards = sum(len(plan.layouts) for plan in plans)
    if boards > MAX_DRAWN_BOARDS:
        message = Message(
            "%(n)s different boards are too many for one drawing: ask for each with ?board=",
            n=boards,
        )
        raise _not_found(message, boards=boards)


def _parse_xml(name: str, data: bytes) -> Any:
    from lxml import etree  # type: ignore[import-untyped]

    try:
        return etree.fromstring(data, etree.XMLParser(**HARDENED_PARSER))
    except etree.LxmlError:
        raise OrderProblem(
            OptiCode.XML_INVALID, Message("%(file)s cannot be read", file=name), {"file": name}
        ) from None


def _parse_plans(batch: Path, root: Any) -> list[CuttingPlan]:
    try:
        demands = read_batch(batch)
        best = root.find("Solution[@best='1']")
        layouts: dict[str, list[Layout]] = {demand.material: [] for demand in demands}
        for element in () if best is None else best.findall("Layout"):
            layouts[element.get("material", "")].append(_parse_layout(element))
        algo = "" if best is None else best.get("algo", "")
        plans = [
            CuttingPlan(
                demand, algo, tuple(layouts[demand.material]), build_task(demand)[0].least_boards()
            )
            for demand in demands
        ]
    except Unplannable as problem:  # the import file is missing or not a workbook
        raise _not_found(str(problem), file=batch.name) from None
    except (KeyError, ValueError, ArithmeticError):
        plans = []
    if not plans or any(find_faults(plan) for plan in plans):
        raise OrderProblem(
            OptiCode.XML_INVALID,
            Message(
                "the XML and %(file)s do not belong together: one of them was changed",
                file=batch.name,
            ),
            {"file": batch.name},
        )
    return plans


def _parse_layout(element: Any) -> Layout:
    return Layout(
        times=int(element.attrib["times"]),
        placements=tuple(
            Placement(
                int(child.attrib["number"]) - 1, _parse_rect(child), child.attrib["turned"] == "1"
            )
            for child in element.findall("Piece")
        ),
        offcuts=tuple(_parse_rect(child) for child in element.findall("Drop")),
        cuts=tuple(
            Cut(
                _parse_rect(child),
                cast("CutDirection", child.attrib["runs"]),
                _parse_mm(child.attrib["at"]),
                int(child.attrib["stage"]),
            )
            for child in element.findall("Cut")
        ),
    )


def _parse_rect(element: Any) -> Rect:
    return Rect(*(_parse_mm(element.attrib[name]) for name in ("x", "y", "length", "width")))


def _parse_mm(text: str) -> int:
    """Parse a size as we write it; accepting ``1e999999`` would take forever to convert."""
    if not _SIZE_MM.fullmatch(text):
        raise ValueError("no size in millimetres")
    return hundredths(text)
