"""Where OptiPlanning and the machine are; kept in ``paths.json``.

Out of the box everything lies below the folder of that file and the built-in optimiser runs in
OptiPlanning's place. A path that is not absolute counts from there too, so the whole data directory
can be moved.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from kesin.workloads.optiplan.orders.payload import Strict, filled, one_line
from kesin.workloads.optiplan.workshop.json_file import (
    in_our_words,
    naming,
    read_json_file,
    write_json_file,
    write_whole,
)

BUILT_IN: Final = "built-in"
INBOX, PROCESSED, FAILED = "inbox", "processed", "failed"  # in the machine's folder
_HERE: Final = {
    "optiplanningExePath": BUILT_IN,
    "optiplanningImportFolder": "optiplan/import",
    "optiplanningExportFolder": "optiplan/export",
    "optiplanningRulesFolder": "optiplan/rules",
    "machineDropFolder": "optiplan/machine",
    "tempFolder": "optiplan/temp",
    "xlsxTemplatePath": "optiplan/templates/Excel_sablon.xlsx",
}
_ON_WINDOWS: Final = {
    "optiplanningExePath": "C:/Biesse/OptiPlanning/System/OptiPlanning.exe",
    "optiplanningImportFolder": "C:/Biesse/OptiPlanning/ImpFile",
    "optiplanningExportFolder": "C:/Biesse/OptiPlanning/Tmp/Sol",
    "optiplanningRulesFolder": "C:/Biesse/OptiPlanning/Opf",
    "machineDropFolder": "C:/Biesse/OptiPlanning/Tx",
    "tempFolder": "C:/Biesse/OptiPlanning/Tmp",
    "xlsxTemplatePath": "optiplan/templates/Excel_sablon.xlsx",
}

_Place = Annotated[str, Field(max_length=1_000), AfterValidator(one_line), AfterValidator(filled)]


class _PathsFile(Strict):
    exe: _Place = Field(alias="optiplanningExePath")
    import_folder: _Place = Field(alias="optiplanningImportFolder")
    export_folder: _Place = Field(alias="optiplanningExportFolder")
    rules_folder: _Place = Field(alias="optiplanningRulesFolder")
    machine_drop_folder: _Place = Field(alias="machineDropFolder")
    temp_folder: _Place = Field(alias="tempFolder")
    template: _Place = Field(alias="xlsxTemplatePath")


@dataclass(frozen=True, slots=True)
class Paths:
    """The places, absolute. ``exe`` is None for the built-in optimiser."""

    exe: Path | None
    import_folder: Path
    export_folder: Path
    rules_folder: Path
    machine_drop_folder: Path  # with inbox, processed and failed in it
    temp_folder: Path
    template: Path

    @property
    def built_in_optimiser(self) -> bool:
        return self.exe is None

    @property
    def inbox(self) -> Path:
        return self.machine_drop_folder / INBOX

    @property
    def processed(self) -> Path:
        return self.machine_drop_folder / PROCESSED

    @property
    def failed(self) -> Path:
        return self.machine_drop_folder / FAILED


def read_paths(body: Any, base: Path) -> Paths:
    """Check paths somebody sends; raises OrderProblem with every key that is wrong."""
    with in_our_words():
        given = _PathsFile.model_validate(body)
    told = given.model_dump()
    exe = told.pop("exe")
    places = {name: _place(base, text) for name, text in told.items()}
    return Paths(exe=None if exe == BUILT_IN else _place(base, exe), **places)


def paths_json(paths: Paths) -> dict[str, str]:
    """As the file spells them, absolute."""
    return {
        "optiplanningExePath": BUILT_IN if paths.exe is None else str(paths.exe),
        "optiplanningImportFolder": str(paths.import_folder),
        "optiplanningExportFolder": str(paths.export_folder),
        "optiplanningRulesFolder": str(paths.rules_folder),
        "machineDropFolder": str(paths.machine_drop_folder),
        "tempFolder": str(paths.temp_folder),
        "xlsxTemplatePath": str(paths.template),
    }


def load_paths(file: Path, *, windows: bool = os.name == "nt") -> Paths:
    """The paths in force. On first start the file is made, and the shipped template laid out.

    Then everything is below its folder; on Windows, OptiPlanning is where it installs itself.
    """
    first = not file.exists()
    if first:
        write_json_file(file, _ON_WINDOWS if windows else _HERE)
    given = read_json_file(file)
    with naming(file):
        paths = read_paths(given, file.parent)
    if first and not paths.template.exists():
        ship_template(paths.template)
    return paths


def ship_template(path: Path) -> None:
    """Write the template that comes with Kesin to the path."""
    shipped = files("kesin.workloads.optiplan").joinpath("templates", "Excel_sablon.xlsx")
    write_whole(path, shipped.read_bytes())


def make_folders(paths: Paths) -> None:
    """Make what is missing, the machine's three among them."""
    for folder in (
        paths.import_folder,
        paths.export_folder,
        paths.rules_folder,
        paths.temp_folder,
        paths.inbox,
        paths.processed,
        paths.failed,
    ):
        folder.mkdir(parents=True, exist_ok=True)


def _place(base: Path, text: str) -> Path:
    return Path(os.path.abspath(base / text))  # noqa: PTH100 - links stay as they are given
