"""The files of a job, as its dossier names them: import files for the optimiser, XML for the saw.

They lie in folders that others write into, so a name is only a name, a link is not followed, and
everything has a bound.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kesin.foundation.problems import TooLarge
from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.codes import OptiCode, OrderProblem
from kesin.workloads.optiplan.dossier import Dossier
from kesin.workloads.optiplan.folders import NotWhole, minding, read_whole
from kesin.workloads.optiplan.paths import Paths

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
