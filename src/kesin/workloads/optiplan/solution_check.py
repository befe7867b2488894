"""Whether a solution may go to the machine: XML from another program's folder is not trusted.

Nothing is believed that a file says about itself: no DTD, so no entities, nothing fetched, a bound
on bytes and depth. What is wrong is told with its line, never with what stands there. Which
elements OptiPlanning writes is its own affair; who knows better configures an XSD.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from kesin.workloads.optiplan.codes import OptiCode, OrderProblem
from kesin.workloads.optiplan.folders import NotWhole, minding, read_whole

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
