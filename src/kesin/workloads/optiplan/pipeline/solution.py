"""An order's solutions, found in the folder that OptiPlanning writes into.

OptiPlanning says nothing when it has finished, and its files grow before our eyes. So a file counts
when it was the same at two looks; what was seen is remembered by the caller, as JSON. Other orders'
files lie in the same folder and are never taken: a name must hold this job's id and no other.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from kesin.foundation.ids import is_id
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline.shared_folder import (
    Entry,
    NotWhole,
    minding,
    move,
    plain_files,
    read_whole,
)

Seen = dict[str, list[int]]  # by name: size in bytes, time of the last change in ns

_CANDIDATES_MAX: Final = 200
_ENDING: Final = ".xml"


@dataclass(frozen=True, slots=True)
class Found:
    """The solutions so far; one XML for all batches stands under each of their stems."""

    files: Mapping[str, Path]
    complete: bool
    seen: Seen  # to be handed in at the next look

    @property
    def paths(self) -> tuple[Path, ...]:
        """Each file once, in the order of the batches."""
        return tuple(dict.fromkeys(self.files.values()))


def find_xml(
    export_folder: Path, job_id: str, stems: Sequence[str], seen: Mapping[str, Sequence[int]]
) -> Found:
    """Look once; raises FolderAway if the folder cannot be read, which does not mean no.

    Every batch has an XML whose name begins with its stem, or all have one together. As long as
    the newest candidate for a batch still changes, the batch is waited for.
    """
    return _found(*_candidates(export_folder, job_id, stems), stems, seen)


def are_there(entries: Sequence[Entry], job_id: str, stems: Sequence[str]) -> bool:
    """Whether a list of files holds an XML for every batch; one of them may still be growing."""
    by_stem, for_all = _among(entries, job_id, stems)
    seen = {one.name: [one.size_bytes, one.changed_ns] for one in entries}
    return _found(by_stem, for_all, stems, seen).complete


def _found(
    by_stem: Mapping[str, Sequence[Entry]],
    for_all: Sequence[Entry],
    stems: Sequence[str],
    seen: Mapping[str, Sequence[int]],
) -> Found:
    everything = [one for some in (*by_stem.values(), for_all) for one in some]
    now = {one.name: [one.size_bytes, one.changed_ns] for one in everything}
    if any(by_stem.values()):
        newest = {stem: _newest(some) for stem, some in by_stem.items()}
    else:
        newest = dict.fromkeys(stems, _newest(for_all))
    files = {
        stem: one.path
        for stem, one in newest.items()
        if one is not None and one.size_bytes and list(seen.get(one.name, ())) == now[one.name]
    }
    return Found(files, complete=len(files) == len(stems), seen=now)


def set_aside(
    export_folder: Path, job_id: str, stems: Sequence[str], why: Literal["old", "failed"]
) -> list[Path]:
    """Move this job's XMLs, finished or not, into a folder of that name; where they are now.

    Before a program is started again, so that nobody takes the old for the new, and after
    E_XML_INVALID, so that somebody can look at it. Nothing there is overwritten. Raises FolderAway.
    """
    by_stem, for_all = _candidates(export_folder, job_id, stems, at_most=None)
    aside = export_folder / why
    moved = []
    with minding(aside):
        for one in (*(one for some in by_stem.values() for one in some), *for_all):
            aside.mkdir(exist_ok=True)
            place = aside / f"{one.path.stem}.{secrets.token_hex(4)}{one.path.suffix}"
            try:
                move(one.path, place)
            except FileNotFoundError:
                continue  # somebody else was faster
            moved.append(place)
    return moved


def _candidates(
    folder: Path, job_id: str, stems: Sequence[str], at_most: int | None = _CANDIDATES_MAX
) -> tuple[dict[str, list[Entry]], list[Entry]]:
    """The XMLs of this job: those of each batch, and those that belong to none."""
    with minding(folder):
        entries = plain_files(folder)
    return _among(entries, job_id, stems, at_most)


def _among(
    entries: Sequence[Entry],
    job_id: str,
    stems: Sequence[str],
    at_most: int | None = _CANDIDATES_MAX,
) -> tuple[dict[str, list[Entry]], list[Entry]]:
    _check(job_id, stems)
    ours = (one for one in entries if one.name.lower().endswith(_ENDING))
    by_stem: dict[str, list[Entry]] = {stem: [] for stem in stems}
    for_all = []
    for one in ours:
        name = one.name.lower()
        fitting = [stem for stem in stems if name.startswith(stem.lower())]
        if fitting:
            by_stem[max(fitting, key=len)].append(one)
        elif not name.startswith(".") and one.job_ids == {job_id}:
            for_all.append(one)
    by_stem = {stem: _latest(some)[:at_most] for stem, some in by_stem.items()}
    return by_stem, _latest(for_all)[:at_most]


def _check(job_id: str, stems: Sequence[str]) -> None:
    if not is_id(job_id):
        raise ValueError(f"expected the id of a job, got {job_id!r}")
    folded = {stem.lower() for stem in stems}
    if not stems or len(folded) != len(stems):
        raise ValueError(f"expected one stem or more, all different, got {list(stems)}")
    if not all(stem.startswith(f"{job_id}_") for stem in folded):
        raise ValueError(f"every stem begins with the job's id and _, got {list(stems)}")


def _latest(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda one: (one.changed_ns, one.name), reverse=True)


def _newest(entries: Sequence[Entry]) -> Entry | None:
    return entries[0] if entries else None


DEPTH_MAX: Final = 100
_PIECE_BYTES: Final = 4096
_WORD_MAX: Final = 64
_FIGURES: Final[Mapping[str, Callable[[str], Any]]] = {
    "name": str,
    "algo": str,
    "mqBoards": float,
    "patterns": int,
    "cycles": int,
    "zcuts": int,
    "jobTime": int,
    "jobCost": float,
    "mqDrops": float,
    "diffDrops": int,
}
HARDENED: Final[Mapping[str, bool]] = {
    "resolve_entities": False,
    "load_dtd": False,
    "dtd_validation": False,
    "no_network": True,
    "huge_tree": False,
    "recover": False,
}


@dataclass(frozen=True, slots=True)
class Checked:
    """A solution that may be delivered, as long as its content is this one."""

    sha256: str
    size_bytes: int
    solutions: int
    best: Mapping[str, str | int | float]  # figures of the solution taken, those it tells


def check_xml(path: Path, xsd: Path | None = None) -> Checked:
    """Check a solution; raises OrderProblem (E_XML_INVALID), or FolderAway if it cannot be read.

    A file that is gone is E_OPTI_RUNNER_FAILED: the program can be asked for it again.
    """
    from lxml import etree  # type: ignore[import-untyped]

    data = _content(path)
    reader = _Reader()
    parser = etree.XMLParser(target=reader, **HARDENED)
    fed = 0
    try:
        while fed < len(data):
            fed += _PIECE_BYTES
            parser.feed(data[fed - _PIECE_BYTES : fed])
        parser.close()
    except _Unwanted as unwanted:
        _refuse(path, str(unwanted), 1 + data.count(b"\n", 0, fed))
    except etree.XMLSyntaxError as problem:
        _refuse(path, f"it is not well-formed: {_kind(problem.code)}", problem.lineno or 1)
    if reader.children == 0:
        _refuse(path, "its root has no elements in it", 1)
    if xsd is not None:
        _check_schema(path, data, xsd)
    best = reader.best or reader.first or {}
    return Checked(hashlib.sha256(data).hexdigest(), len(data), reader.solutions, _figures(best))


def _content(path: Path) -> bytes:
    with minding(path):
        try:
            return read_whole(path)
        except NotWhole as problem:
            _refuse(path, str(problem), None)
        except FileNotFoundError:
            if not path.parent.is_dir():
                raise
            raise OrderProblem(
                OptiCode.OPTI_RUNNER_FAILED,
                f"{path.name} has gone from the folder it was found in: have it made again",
                {"file": path.name},
            ) from None


class _Unwanted(Exception):
    """Something a solution never has."""


class _Reader:
    """Follows the elements without keeping them."""

    def __init__(self) -> None:
        self.children = self.solutions = self._depth = 0
        self.first: dict[str, str] | None = None
        self.best: dict[str, str] | None = None

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise _Unwanted(f"its elements are nested deeper than {DEPTH_MAX}")
        if self._depth != 2:  # noqa: PLR2004 - a child of the root
            return
        self.children += 1
        if tag.rpartition("}")[2] == "Solution":
            self.solutions += 1
            if self.first is None:
                self.first = dict(attributes)
            if self.best is None and attributes.get("best") == "1":
                self.best = dict(attributes)

    def end(self, _tag: str) -> None:
        self._depth -= 1

    def doctype(self, *_: object) -> NoReturn:
        raise _Unwanted("it has a DTD, which is never taken")

    def close(self) -> None:
        """Nothing was kept."""


def _figures(attributes: Mapping[str, str]) -> dict[str, str | int | float]:
    told: dict[str, str | int | float] = {}
    for name, read in _FIGURES.items():
        text = attributes.get(name, "").strip()
        if not text or len(text) > _WORD_MAX:
            continue
        try:
            value = read(text)
        except ValueError:
            continue
        if isinstance(value, str) or math.isfinite(value):
            told[name] = value
    return told


def _check_schema(path: Path, data: bytes, xsd: Path) -> None:
    from lxml import etree

    try:
        file = xsd.resolve()  # a link may lead to it, and it may include what lies beside it
        parser = etree.XMLParser(no_network=True)
        schema = etree.XMLSchema(etree.fromstring(read_whole(file), parser, base_url=str(file)))
    except (OSError, NotWhole, etree.LxmlError) as problem:
        raise OrderProblem(
            OptiCode.CONFIG_UNAVAILABLE, f"the XSD {xsd} cannot be used: {problem}"
        ) from None
    if not schema.validate(etree.fromstring(data, etree.XMLParser(**HARDENED))):
        first = schema.error_log[0]
        _refuse(path, f"it is not as {xsd.name} wants it: {_kind(first.type)}", first.line)


def _kind(code: int) -> str:
    """The parser's own word for an error: its messages would repeat what stands in the file."""
    from lxml import etree

    name = str(etree.ErrorTypes._getName(code, "unreadable"))  # noqa: SLF001 - no public way
    return name.removeprefix("ERR_").replace("_", " ").lower()


def _refuse(path: Path, reason: str, line: int | None) -> NoReturn:
    where = "" if line is None else f", near line {line}"
    raise OrderProblem(
        OptiCode.XML_INVALID,
        f"{path.name} cannot be given to the machine: {reason}{where}",
        {"file": path.name, "line": line, "reason": reason},
    ) from None
