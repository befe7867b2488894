"""The files of a job, in folders others write into: bounded reads, no links, no names as paths."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kesin.foundation.messages import Message
from kesin.foundation.problems import TooLarge
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Job
from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.labels import code128
from kesin.workloads.optiplan.labels.ids import order_code
from kesin.workloads.optiplan.optimizer import model
from kesin.workloads.optiplan.optimizer.checker import find_faults
from kesin.workloads.optiplan.optimizer.input import read_batch
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Layout, Rect, Unplannable
from kesin.workloads.optiplan.optimizer.output.shapes import TEXTS, PaperHead
from kesin.workloads.optiplan.optimizer.output.svg import draw_svg
from kesin.workloads.optiplan.optimizer.output.xml import GENERATOR, board_attributes, profile_attributes
from kesin.workloads.optiplan.orders.numbers import format_number
from kesin.workloads.optiplan.orders.payload import CuttingOrder, Payload
from kesin.workloads.optiplan.pipeline import shared_folder
from kesin.workloads.optiplan.pipeline.progress import OrderProgress
from kesin.workloads.optiplan.pipeline.solution import HARDENED_PARSER
from kesin.workloads.optiplan.pipeline.workbook import file_stems
from kesin.workloads.optiplan.workshop.paths import Paths

MAX_DOWNLOAD_BYTES: Final = 100_000_000  # of one download


@dataclass(frozen=True, slots=True)
class JobArtifacts:
    """The files of a job, by name; reading them raises OrderProblem or FolderUnavailable."""

    paths: Paths
    job: Job
    progress: OrderProgress

    def read_xml_files(self) -> dict[str, bytes]:
        return self._read_files(self.paths.export_folder, self.progress.xml, "XML")

    def read_import_files(self) -> dict[str, bytes]:
        return self._read_files(self.paths.import_folder, self.progress.files, "import file")

    def read_plans(self, language: Language = "en") -> list[CuttingPlan]:
        """Read the job's plans, one per material; each is named as in the order."""
        names = batch_names(self.job.id, CuttingOrder.from_job(self.job).payload, language)
        names = {stem: names.get(stem, stem) for stem in self.progress.stems}
        return parse_plans(self.paths.import_folder, self.read_xml_files(), names)

    def _read_files(self, folder: Path, names: Sequence[str], kind: str) -> dict[str, bytes]:
        state = self.job.state
        if not names:
            why = Message("the order is %(state)s: it has no %(what)s", state=state, what=kind)
            raise _not_found(why, state=state)
        files: dict[str, bytes] = {}
        for name in names:
            files[name] = _read_file(folder, name)
            if sum(map(len, files.values())) > MAX_DOWNLOAD_BYTES:
                message = "the files exceed %(most)s bytes: fetch them from the folder"
                raise TooLarge(message, most=MAX_DOWNLOAD_BYTES)
        return files


def parse_plans(import_folder: Path, xml: Mapping[str, bytes], names: Mapping[str, str]) -> list[CuttingPlan]:
    """Parse the plans of batches, given by their stems with the names for papers."""
    plans: list[CuttingPlan] = []
    for file, data in xml.items():
        root = _parse_xml(file, data)
        stem = root.get("batch", "")
        if root.get("generator") != GENERATOR or stem not in names:
            message = "%(file)s was made by another program: only that program can draw it"
            raise _not_found(Message(message, file=file), file=file)
        plans += _parse_plans(import_folder / f"{stem}.xlsx", root, names[stem])
    return plans


def batch_names(job_id: str, order: Payload, language: Language) -> dict[str, str]:
    """Return what papers call each batch, by its stem: ``Açık Meşe 18 mm``."""
    parts = order.parts
    batches = {(part.part_type, part.color, part.thickness_mm): part for part in parts}.values()
    names = (
        f"{part.color} {format_number(part.thickness_mm)} mm"
        + (f" · {TEXTS[language]['ARKALIK']}" if part.part_type == "ARKALIK" else "")
        for part in batches
    )
    return dict(zip(file_stems(job_id, batches), names, strict=True))


def _read_file(folder: Path, name: str) -> bytes:
    path = folder / Path(name).name
    try:
        return shared_folder.read_shared_file(path)
    except shared_folder.MissingFile:
        message = Message("%(file)s no longer exists", file=path.name)
    except shared_folder.UnusableFile as problem:
        message = Message("%(field)s: %(problem)s", field=path.name, problem=Message(str(problem)))
    raise _not_found(message, file=path.name)


def _not_found(message: str, **details: Any) -> OrderProblem:
    return OrderProblem(OptiCode.FILE_NOT_FOUND, message, details)


MAX_DRAWN_BOARDS: Final = 500  # drawn at once
_SIZE_MM: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,2})?")


def paper_head(shown: Job, customer: str, language: Language) -> PaperHead:
    """Return what names the order on its papers, as far as the viewer may see it."""
    order = CuttingOrder.from_job(shown)
    revision = f" r{order.revision}" if order.revision > 1 else ""
    date, code = date_text(shown.created_at, language), order_code(shown.id)
    bars = tuple(code128.bars(code))
    return PaperHead(f"{order.payload.order_id}{revision}", customer, date, code, bars)


def date_text(at_us: int, language: Language) -> str:
    made = datetime.fromtimestamp(at_us / SECOND_US, UTC)
    return made.strftime("%d.%m.%Y" if language == "tr" else "%Y-%m-%d")


def draw_plans(plans: Sequence[CuttingPlan], board: int | None, language: Language, head: PaperHead) -> str:
    """Draw all boards, or only the given one; boards are numbered from 1 across all plans."""
    if board is None:
        check_board_count(plans)
    elif board > (count := sum(len(plan.layouts) for plan in plans)):
        message = Message("there is no board %(board)s: the number of boards is %(n)s", board=board, n=count)
        raise _not_found(message, boards=count)
    return draw_svg(plans, language, only=board, head=head)


def check_board_count(plans: Sequence[CuttingPlan]) -> None:
    """Raise OrderProblem if there are more boards than a screen or a printer can show."""
    boards = sum(len(plan.layouts) for plan in plans)
    if boards > MAX_DRAWN_BOARDS:
        message = "%(n)s board layouts are too many for one drawing: request each with ?board="
        raise _not_found(Message(message, n=boards), boards=boards)


def _parse_xml(name: str, data: bytes) -> Any:
    from lxml import etree  # type: ignore[import-untyped]

    try:
        return etree.fromstring(data, etree.XMLParser(**HARDENED_PARSER))
    except etree.LxmlError:
        raise _invalid_xml("%(file)s cannot be read", name) from None


def _invalid_xml(message: str, file: str) -> OrderProblem:
    return OrderProblem(OptiCode.XML_INVALID, Message(message, file=file), {"file": file})


def _parse_plans(batch: Path, root: Any, name: str) -> list[CuttingPlan]:
    plans: list[CuttingPlan] = []
    try:
        demands = {each.material: replace(each, name=name) for each in read_batch(batch)}
        layouts: dict[str, list[Layout]] = {material: [] for material in demands}
        for element in root.findall("Solution[@best='1']/Layout"):
            material, layout = element.get("material", ""), _parse_layout(element)
            layouts[material].append(layout)
            _check_stated(element, {"offcut": "", **board_attributes(demands[material], layout)})
        plans = [CuttingPlan(demand, tuple(layouts[of])) for of, demand in demands.items()]
        _check_stated(root.find("Solution[@best='1']"), profile_attributes(plans))
    except Unplannable as problem:  # the import file is missing or not a workbook
        raise _not_found(str(problem), file=batch.name) from None
    except (LookupError, ValueError, ArithmeticError):
        plans = []
    if not plans or any(find_faults(plan) for plan in plans):
        message = "the XML and %(file)s do not match: one of them has been changed"
        raise _invalid_xml(message, batch.name)
    return plans


def _check_stated(element: Any, expected: Mapping[str, str]) -> None:
    """Raise ValueError for another saw, effort or board; an older XML may leave them out."""
    if any(element.get(name, value) != value for name, value in expected.items()):
        raise ValueError("not as in the settings of the batch")


def _parse_layout(element: Any) -> Layout:
    return Layout(
        times=int(element.attrib["times"]),
        board=int(element.get("board", "0")),
        placements=tuple(
            model.Placement(int(piece["number"]) - 1, rect, piece["turned"] == "1")
            for piece, rect in _parse_rects(element, "Piece")
        ),
        offcuts=tuple(rect for _, rect in _parse_rects(element, "Drop")),
        cuts=tuple(
            model.Cut(rect, cut["runs"], _parse_mm(cut["at"]), int(cut["stage"]))
            for cut, rect in _parse_rects(element, "Cut")
        ),
    )


def _parse_rects(element: Any, name: str) -> Iterator[tuple[Any, Rect]]:
    """Yield the attributes of each child with this name, and the rectangle among them."""
    for child in element.findall(name):
        sizes = (child.attrib[name] for name in ("x", "y", "length", "width"))
        yield child.attrib, Rect(*map(_parse_mm, sizes))


def _parse_mm(text: str) -> int:
    """Parse a size as we write it; accepting ``1e999999`` would take forever to convert."""
    if not _SIZE_MM.fullmatch(text):
        raise ValueError("no size in millimetres")
    return model.hundredths(text)
