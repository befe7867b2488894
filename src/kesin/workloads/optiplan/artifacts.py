"""The files of a job, as its dossier names them: import files for the optimiser, XML for the saw.

They lie in folders that others write into, so a name is only a name, a link is not followed, and
everything has a bound.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from kesin.foundation.problems import TooLarge
from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.optimizer import (
    GENERATOR,
    Cut,
    Demand,
    Layout,
    Placement,
    Plan,
    Rect,
    Unplannable,
    draw,
    draw_board,
    faults,
    hundredths,
    read_batch,
)
from kesin.workloads.optiplan.optimizer.model import Runs
from kesin.workloads.optiplan.optimizer.output.texts import Language
from kesin.workloads.optiplan.optimizer.problem import task_of
from kesin.workloads.optiplan.orders.payload import Order
from kesin.workloads.optiplan.pipeline.progress import Dossier
from kesin.workloads.optiplan.pipeline.shared_folder import NotWhole, minding, read_whole
from kesin.workloads.optiplan.pipeline.solution import HARDENED
from kesin.workloads.optiplan.workshop.paths import Paths

MOST_BYTES: Final = 100_000_000  # of one download
_ZIP_DAY: Final = (1980, 1, 1, 0, 0, 0)  # the same files give the same bytes


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file and what is in it."""

    name: str
    data: bytes


def xml_files(paths: Paths, job: Job, dossier: Dossier) -> list[Artefact]:
    """The solutions that were found for a job; raises OrderProblem (404), or FolderAway."""
    if not dossier.xml:
        raise _none(job, "XML")
    return _read(paths.export_folder, dossier.xml)


def import_files(paths: Paths, job: Job, dossier: Dossier) -> list[Artefact]:
    """What was written for the optimiser; raises OrderProblem (404), or FolderAway."""
    if not dossier.files:
        raise _none(job, "import file")
    return _read(paths.import_folder, dossier.files)


def packed(files: Iterable[Artefact]) -> bytes:
    """All of them as one archive."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for one in files:
            entry = zipfile.ZipInfo(one.name, _ZIP_DAY)
            archive.writestr(entry, one.data, zipfile.ZIP_DEFLATED)
    return written.getvalue()


def _read(folder: Path, names: Sequence[str]) -> list[Artefact]:
    found: list[Artefact] = []
    size = 0
    for name in names:
        found.append(Artefact(name, _content(folder, name)))
        size += len(found[-1].data)
        if size > MOST_BYTES:
            raise TooLarge(
                f"the files have more than {MOST_BYTES} bytes: fetch them where they are"
            )
    return found


def _content(folder: Path, name: str) -> bytes:
    path = folder / Path(name).name
    with minding(path):
        try:
            return read_whole(path)
        except FileNotFoundError:
            if not folder.is_dir():
                raise
            raise OrderProblem(
                OptiCode.FILE_NOT_FOUND, f"{path.name} is not there any more", {"file": path.name}
            ) from None
        except NotWhole as problem:
            raise OrderProblem(
                OptiCode.FILE_NOT_FOUND, f"{path.name}: {problem}", {"file": path.name}
            ) from None


def _none(job: Job, what: str) -> OrderProblem:
    return OrderProblem(
        OptiCode.FILE_NOT_FOUND, f"the job is {job.state}: it has no {what}", {"state": job.state}
    )


MOST_BOARDS: Final = 500  # drawn at once
_SIZE: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,2})?")


def plans_of(paths: Paths, job: Job, dossier: Dossier) -> list[Plan]:
    """The plans of a job, one a material; raises OrderProblem or FolderAway."""
    plans: list[Plan] = []
    for file in xml_files(paths, job, dossier):
        root = _root(file.name, file.data)
        stem = root.get("batch", "")
        if root.get("generator") != GENERATOR or stem not in dossier.stems:
            raise OrderProblem(
                OptiCode.FILE_NOT_FOUND,
                f"{file.name} was made by another program: only that one draws it",
                {"file": file.name},
            )
        name = _name(Order.of(job), stem.removeprefix(f"{job.id}_"))
        plans += [
            replace(plan, demand=replace(plan.demand, name=name))
            for plan in _plans(paths.import_folder / f"{stem}.xlsx", root)
        ]
    return plans


def _name(order: Order, batch: str) -> str:
    """What is written over a plan: the shop knows its orders by their own ids, not by ours."""
    revision = f" r{order.revision}" if order.revision > 1 else ""
    return f"{order.payload.order_id}{revision} · {batch}"


def drawing(plans: Sequence[Plan], board: int | None, language: Language) -> str:
    """All boards, or the one of this number; the boards of all plans are counted from 1."""
    boards = [(plan, number) for plan in plans for number in range(1, len(plan.layouts) + 1)]
    if board is None:
        check_countable(plans)
        return draw(plans, language)
    if board > len(boards):
        raise OrderProblem(
            OptiCode.FILE_NOT_FOUND,
            f"there is no board {board}: there are {len(boards)}",
            {"boards": len(boards)},
        )
    plan, number = boards[board - 1]
    return draw_board(plan, number, language)


def check_countable(plans: Sequence[Plan]) -> None:
    """Refuse drawings that no screen or printer could show."""
    boards = sum(len(plan.layouts) for plan in plans)
    if boards > MOST_BOARDS:
        raise OrderProblem(
            OptiCode.FILE_NOT_FOUND,
            f"{boards} different boards are too many for one drawing: ask for each with ?board=",
            {"boards": boards},
        )


def _root(name: str, data: bytes) -> Any:
    from lxml import etree  # type: ignore[import-untyped]

    try:
        return etree.fromstring(data, etree.XMLParser(**HARDENED))
    except etree.LxmlError:
        raise OrderProblem(OptiCode.XML_INVALID, f"{name} cannot be read", {"file": name}) from None


def _plans(batch: Path, root: Any) -> list[Plan]:
    try:
        demands = read_batch(batch)
        best = root.find("Solution[@best='1']")
        layouts: dict[str, list[Layout]] = {one.material: [] for one in demands}
        for element in () if best is None else best.findall("Layout"):
            layouts[element.get("material", "")].append(_layout(element))
        algo = "" if best is None else best.get("algo", "")
        plans = [_plan(demand, algo, layouts[demand.material]) for demand in demands]
    except Unplannable as problem:  # the import file is gone, or is none
        raise OrderProblem(OptiCode.FILE_NOT_FOUND, str(problem), {"file": batch.name}) from None
    except (KeyError, ValueError, ArithmeticError):
        plans = []
    if not plans or any(faults(plan) for plan in plans):
        raise OrderProblem(
            OptiCode.XML_INVALID,
            f"the XML and {batch.name} do not belong together: one of them was changed",
            {"file": batch.name},
        )
    return plans


def _plan(demand: Demand, algo: str, layouts: Sequence[Layout]) -> Plan:
    least = task_of(demand)[0].least_boards()
    return Plan(demand, algo, tuple(layouts), least)


def _layout(element: Any) -> Layout:
    return Layout(
        times=int(element.attrib["times"]),
        placements=tuple(
            Placement(int(one.attrib["number"]) - 1, _rect(one), one.attrib["turned"] == "1")
            for one in element.findall("Piece")
        ),
        offcuts=tuple(_rect(one) for one in element.findall("Drop")),
        cuts=tuple(
            Cut(
                _rect(one),
                cast("Runs", one.attrib["runs"]),
                _mm(one.attrib["at"]),
                int(one.attrib["stage"]),
            )
            for one in element.findall("Cut")
        ),
    )


def _rect(element: Any) -> Rect:
    return Rect(*(_mm(element.attrib[name]) for name in ("x", "y", "length", "width")))


def _mm(text: str) -> int:
    """A size as we write it; ``1e999999`` is a number too, but one that takes for ever."""
    if not _SIZE.fullmatch(text):
        raise ValueError("no size in millimetres")
    return hundredths(text)
