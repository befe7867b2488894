"""Paths in ``paths.json``, relative to its folder; by default the built-in optimiser is used."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from kesin.workloads.optiplan.orders import payload
from kesin.workloads.optiplan.orders.payload import StrictModel, check_not_blank, check_one_line
from kesin.workloads.optiplan.workshop import json_file

BUILT_IN: Final = "built-in"
MACHINE_FOLDERS = INBOX, PROCESSED, FAILED = "inbox", "processed", "failed"

_PathText = Annotated[str, Field(max_length=1_000), AfterValidator(check_one_line), AfterValidator(check_not_blank)]


class _PathsFile(StrictModel):
    exe: _PathText = Field(alias="optiplanningExePath")
    import_folder: _PathText = Field(alias="optiplanningImportFolder")
    export_folder: _PathText = Field(alias="optiplanningExportFolder")
    rules_folder: _PathText = Field(alias="optiplanningRulesFolder")
    machine_drop_folder: _PathText = Field(alias="machineDropFolder")
    temp_folder: _PathText = Field(alias="tempFolder")
    template: _PathText = Field(alias="xlsxTemplatePath")


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths, absolute. ``exe`` is None for the built-in optimiser."""

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
    """Validate paths; raises OrderProblem with every invalid key."""
    fields = payload.validate_model(_PathsFile, body).model_dump()
    exe = fields.pop("exe")
    folders = {name: _absolute_path(base, text) for name, text in fields.items()}
    return Paths(exe=None if exe == BUILT_IN else _absolute_path(base, exe), **folders)


def paths_json(paths: Paths) -> dict[str, str]:
    """Return the absolute paths with the keys of the file."""
    return {
        field.alias or name: str(getattr(paths, name) or BUILT_IN) for name, field in _PathsFile.model_fields.items()
    }


def load_paths(file: Path, *, windows: bool = os.name == "nt") -> Paths:
    """Load the paths in force; the first start creates the file and the shipped template."""
    is_first_start = not file.exists()
    if is_first_start:
        shipped = json_file.read_shipped("paths-windows.json" if windows else "paths.json")
        json_file.write_json_file(file, json.loads(shipped))
    paths = json_file.read_settings_file(file, lambda body: read_paths(body, file.parent))
    if is_first_start and not paths.template.exists():
        json_file.write_atomically(paths.template, json_file.read_shipped("Excel_sablon.xlsx"))
    return paths


def create_folders(paths: Paths, base: Path) -> list[Path]:
    """Create missing folders, the machine's own only below ``base``; raises OSError elsewhere."""
    machine = paths.machine_drop_folder
    own = [paths.import_folder, paths.export_folder, paths.rules_folder, paths.temp_folder]
    # Elsewhere, a machine folder that is missing is a wrong path or an unavailable share.
    own += [machine] if machine.is_relative_to(base) else []
    created = []
    for folder in (*own, paths.inbox, paths.processed, paths.failed):
        if not folder.is_dir():
            folder.mkdir(parents=folder in own, exist_ok=True)
            created.append(folder)
    return created


def _absolute_path(base: Path, text: str) -> Path:
    return Path(os.path.abspath(base / text))  # noqa: PTH100 - does not resolve links
