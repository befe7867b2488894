"""An order's solutions, found in the folder that OptiPlanning writes into.

OptiPlanning says nothing when it has finished, and its files grow before our eyes. So a file counts
when it was the same at two looks; what was seen is remembered by the caller, as JSON. Other orders'
files lie in the same folder and are never taken: a name must hold this job's id and no other.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from kesin.foundation.ids import is_id
from kesin.workloads.optiplan.folders import Entry, minding, move, plain_files

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
