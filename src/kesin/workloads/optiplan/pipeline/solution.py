"""The solutions of an order: finding them in OptiPlanning's export folder, and checking them.

OptiPlanning does not say when it has finished, and its files grow while it writes. So a file counts
once it is the same at two polls; the caller stores the last states as JSON. Files of other orders
in the same folder are never taken: a name must hold this job's id and no other.
"""

import hashlib
import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, product
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from kesin.foundation.ids import is_id
from kesin.foundation.messages import Message
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline import shared_folder
from kesin.workloads.optiplan.pipeline.progress import ALL_BATCHES, batch_stem
from kesin.workloads.optiplan.pipeline.shared_folder import FolderEntry, move_file, read_plain_file
from kesin.workloads.optiplan.workshop.saw_rules import MachineFile

FileStates = dict[str, list[int]]  # by name: size in bytes, time of the last change in ns

_MAX_XMLS: Final = 200
SUFFIXES: Final[Mapping[MachineFile, tuple[str, ...]]] = {  # of the files beside an XML, and it
    "xml": (".xml",),
    "ptx": (".ptx",),
    "csv": (".csv", ".parts.csv"),
}


@dataclass(frozen=True, slots=True)
class FoundXml:
    """The solutions found so far, by stem; an XML for all batches appears under every stem."""

    files: Mapping[str, Path]
    complete: bool
    file_states: FileStates  # to be passed to the next poll

    @property
    def paths(self) -> tuple[Path, ...]:
        """The distinct files, in the order of the batches."""
        return tuple(dict.fromkeys(self.files.values()))


def find_xml(
    export_folder: Path, job_id: str, stems: Sequence[str], last_states: Mapping[str, Sequence[int]]
) -> FoundXml:
    """Poll once for XMLs that no longer change: one for each stem, or one for all."""
    return _match_batches(_list_candidates(export_folder, job_id, stems), last_states)


def has_all_xml(entries: Sequence[FolderEntry], job_id: str, stems: Sequence[str], xsd: Path | None = None) -> bool:
    """Whether there is a valid XML for every batch. Raises OrderProblem or FolderUnavailable."""
    xml = _match_batches(_group_by_batch(entries, job_id, stems), _states(entries))
    return xml.complete and all(_is_valid(path, tuple(xml.file_states[path.name]), xsd) for path in xml.paths)


@lru_cache(maxsize=_MAX_XMLS)
def _is_valid(path: Path, _state: tuple[int, ...], xsd: Path | None) -> bool:
    """Whether the file passes the check; not checked again until it changes."""
    try:
        check_xml(path, xsd)
    except OrderProblem as problem:
        if problem.code != OptiCode.XML_INVALID:
            raise
        return False
    return True


def _states(entries: Iterable[FolderEntry]) -> FileStates:
    return {entry.name: [entry.size_bytes, entry.modified_ns] for entry in entries}


# The XMLs of a job, newest first: of each batch, by its stem, and those for all batches.
_Candidates = Mapping[str, Sequence[FolderEntry]]


def _match_batches(candidates: _Candidates, last_states: Mapping[str, Sequence[int]]) -> FoundXml:
    states = _states(chain(*candidates.values()))
    stems = [stem for stem in candidates if stem != ALL_BATCHES]
    own = any(candidates[stem] for stem in stems)
    by_stem = {stem: candidates[stem if own else ALL_BATCHES] for stem in stems}
    newest = {stem: entries[0] for stem, entries in by_stem.items() if entries}
    files = {
        stem: entry.path
        for stem, entry in newest.items()
        if entry.size_bytes and list(last_states.get(entry.name, ())) == states[entry.name]
    }
    return FoundXml(files, complete=len(files) == len(stems), file_states=states)


def set_aside(export_folder: Path, job_id: str, stems: Sequence[str], reason: Literal["old", "failed"]) -> list[Path]:
    """Move this job's XMLs into a subfolder: ``old`` before a new run, ``failed`` to inspect.

    The machine's files beside them are deleted: they would not match the next plan.
    """
    folder = export_folder / reason
    moved = []
    with shared_folder.translate_os_errors(folder):
        for stem, suffix in product(stems, (*SUFFIXES["ptx"], *SUFFIXES["csv"])):
            if (file := export_folder / f"{stem}{suffix}").exists():
                shared_folder.remove_file(file)
        for entry in chain(*_list_candidates(export_folder, job_id, stems, limit=None).values()):
            folder.mkdir(exist_ok=True)
            target = folder / f"{entry.path.stem}.{secrets.token_hex(4)}{entry.path.suffix}"
            try:
                move_file(entry.path, target)
            except FileNotFoundError:
                continue  # already moved or deleted
            moved.append(target)
    return moved


def _list_candidates(folder: Path, job_id: str, stems: Sequence[str], limit: int | None = _MAX_XMLS) -> _Candidates:
    with shared_folder.translate_os_errors(folder):
        return _group_by_batch(shared_folder.list_plain_files(folder), job_id, stems, limit)


def _group_by_batch(
    entries: Sequence[FolderEntry], job_id: str, stems: Sequence[str], limit: int | None = _MAX_XMLS
) -> _Candidates:
    _check_arguments(job_id, stems)
    candidates: dict[str, list[FolderEntry]] = {stem: [] for stem in (*stems, ALL_BATCHES)}
    newest_first = sorted(entries, key=lambda entry: (entry.modified_ns, entry.name), reverse=True)
    for entry in newest_first:
        stem = batch_stem(stems, entry.name)
        is_own = not entry.name.startswith(".") and entry.job_ids == {job_id}
        if entry.name.lower().endswith(".xml") and (stem != ALL_BATCHES or is_own):
            candidates[stem].append(entry)
    return {stem: found[:limit] for stem, found in candidates.items()}


def _check_arguments(job_id: str, stems: Sequence[str]) -> None:
    if not is_id(job_id):
        raise ValueError(f"expected the id of a job, got {job_id!r}")
    folded = {stem.lower() for stem in stems}
    if not stems or len(folded) != len(stems):
        raise ValueError(f"expected one stem or more, all different, got {list(stems)}")
    if not all(stem.startswith(f"{job_id}_") for stem in folded):
        raise ValueError(f"every stem begins with the job's id and _, got {list(stems)}")


MAX_DEPTH: Final = 100
_CHUNK_BYTES: Final = 4096
_MAX_FIGURE_LENGTH: Final = 64
_FIGURES: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("name", "algo"), str),
    **dict.fromkeys(("mqBoards", "jobCost", "mqDrops"), float),
    **dict.fromkeys(("patterns", "cycles", "zcuts", "jobTime", "diffDrops"), int),
}
_OFF: Final = ("resolve_entities", "load_dtd", "dtd_validation", "huge_tree", "recover")
HARDENED_PARSER: Final[Mapping[str, bool]] = {**dict.fromkeys(_OFF, False), "no_network": True}


def check_xml(path: Path, xsd: Path | None = None) -> dict[str, Any]:
    """Return hash, size and figures of a valid XML; raises OrderProblem or FolderUnavailable."""
    from lxml import etree  # type: ignore[import-untyped]

    data = _read_file(path)
    reader = _SolutionReader()
    parser = etree.XMLParser(target=reader, **HARDENED_PARSER)
    fed = 0
    try:
        while fed < len(data):
            fed += _CHUNK_BYTES
            parser.feed(data[fed - _CHUNK_BYTES : fed])
        parser.close()
    except _ForbiddenXml as forbidden:
        _raise_invalid(path, str(forbidden), 1 + data.count(b"\n", 0, fed))
    except etree.XMLSyntaxError as problem:
        why = Message("it is not well-formed: %(problem)s", problem=_error_name(problem.code))
        _raise_invalid(path, why, problem.lineno or 1)
    if reader.children == 0:
        _raise_invalid(path, "its root contains no elements", 1)
    if xsd is not None:
        _check_schema(path, data, xsd)
    sha256, best = hashlib.sha256(data).hexdigest(), _figures(reader.best or {})
    count = {"size_bytes": len(data), "solutions": reader.solutions}
    return {"sha256": sha256, **count, "best": best}


def check_machine_files(
    export_folder: Path, xml_hashes: Mapping[str, str], kinds: Iterable[MachineFile]
) -> list[dict[str, str]]:
    """Return name and hash of each file that the machine reads; raises OrderProblem if one is gone.

    Only Kesin's optimiser writes other files than the XML.
    """
    files: list[dict[str, str]] = []
    for xml, kind in product(xml_hashes, kinds):
        if kind == "xml":
            files.append({"name": xml, "sha256": xml_hashes[xml]})
            continue
        for suffix in SUFFIXES[kind]:
            path = (export_folder / xml).with_suffix(suffix)
            try:
                data = shared_folder.read_shared_file(path)
            except shared_folder.UnusableFile:
                why = (
                    "%(xml)s came without %(file)s, which the saw profile requires. Only the"
                    " built-in optimiser writes %(kind)s files: plan with it, or set"
                    " machine_files to xml; then retry"
                )
                code, names = OptiCode.MACHINE_FILE_MISSING, {"xml": xml, "file": path.name}
                message = Message(why, **names, kind=kind.upper())
                raise OrderProblem(code, message, names) from None
            files.append({"name": path.name, "sha256": hashlib.sha256(data).hexdigest()})
    return files


def _read_file(path: Path) -> bytes:
    try:
        return shared_folder.read_shared_file(path)
    except shared_folder.MissingFile:
        why = "%(file)s is no longer in the folder where it was found: create it again"
        code, name = OptiCode.OPTI_RUNNER_FAILED, path.name
        raise OrderProblem(code, why, {"file": name}, file=name) from None
    except shared_folder.UnusableFile as problem:
        _raise_invalid(path, str(problem), None)


class _ForbiddenXml(Exception):
    """The XML has something that a solution never has."""


class _SolutionReader:
    """A parser target that counts elements without storing them."""

    def __init__(self) -> None:
        self.children = self.solutions = self._depth = 0
        self.best: dict[str, str] | None = None  # the first with best="1", else the first

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _ForbiddenXml(f"its elements are nested deeper than {MAX_DEPTH}")
        if self._depth != 2:  # noqa: PLR2004 - a child of the root
            return
        self.children += 1
        if tag.rpartition("}")[2] == "Solution":
            self.solutions += 1
            is_best = attributes.get("best") == "1"
            if self.best is None or (is_best and self.best.get("best") != "1"):
                self.best = dict(attributes)

    def end(self, _tag: str) -> None:
        self._depth -= 1

    def doctype(self, *_: object) -> NoReturn:
        raise _ForbiddenXml("it has a DTD, which is never accepted")

    def close(self) -> None:
        """Do nothing: the parser requires the method."""


def _figures(attributes: Mapping[str, str]) -> dict[str, str | int | float]:
    figures: dict[str, str | int | float] = {}
    for name, read in _FIGURES.items():
        text = attributes.get(name, "").strip()
        if not text or len(text) > _MAX_FIGURE_LENGTH:
            continue
        try:
            value = read(text)
        except ValueError:
            continue
        if isinstance(value, str) or (math.isfinite(value) and (value or name != "jobCost")):
            figures[name] = value  # no price is known: a job costs something, or it is not said
    return figures


def load_schema(xsd: Path) -> Any:
    """Load an XSD; raises OrderProblem (E_CONFIG_UNAVAILABLE)."""
    from lxml import etree

    try:
        file = xsd.resolve()  # follows a link, so that relative includes work
        parser = etree.XMLParser(no_network=True)
        return etree.XMLSchema(etree.fromstring(read_plain_file(file), parser, base_url=str(file)))
    except (OSError, shared_folder.UnusableFile, etree.LxmlError) as problem:
        why = "the XSD %(xsd)s cannot be used: %(problem)s"
        raise OrderProblem(OptiCode.CONFIG_UNAVAILABLE, why, xsd=xsd, problem=problem) from None


def _check_schema(path: Path, data: bytes, xsd: Path) -> None:
    from lxml import etree

    schema = load_schema(xsd)
    if not schema.validate(etree.fromstring(data, etree.XMLParser(**HARDENED_PARSER))):
        first = schema.error_log[0]
        name = _error_name(first.type)
        why = Message("it does not match %(xsd)s: %(problem)s", xsd=xsd.name, problem=name)
        _raise_invalid(path, why, first.line)


def _error_name(code: int) -> str:
    """Return the parser's name of an error; its messages would repeat content of the file."""
    from lxml import etree

    name = str(etree.ErrorTypes._getName(code, "unreadable"))  # noqa: SLF001 - no public way
    return name.removeprefix("ERR_").replace("_", " ").lower()


def _raise_invalid(path: Path, reason: str, line: int | None) -> NoReturn:
    where = "" if line is None else Message(", near line %(n)s", n=line)
    why = "%(file)s cannot be sent to the saw: %(problem)s%(line)s"
    message = Message(why, file=path.name, problem=Message(reason), line=where)
    details = {"file": path.name, "line": line, "reason": reason}
    raise OrderProblem(OptiCode.XML_INVALID, message, details) from None
