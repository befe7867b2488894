"""The workshop's own files: rules, paths and the folder programs run in.

Read anew at every pass: who changes a rule need not restart anything, but for the deadlines and
the retries, which belong to the lifecycle and count from the next start.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kesin.foundation.settings import Settings
from kesin.foundation.text import canonical_json
from kesin.workloads.optiplan.atomic import write_whole
from kesin.workloads.optiplan.lifecycle import RULES_FILE
from kesin.workloads.optiplan.paths import Paths, load_paths, make_folders, paths_json
from kesin.workloads.optiplan.program_child import read_json
from kesin.workloads.optiplan.rules import Rules, load_rules

PATHS: Final = "paths.json"


@dataclass(frozen=True, slots=True)
class Workshop:
    """What the operator set up."""

    settings: Settings

    @property
    def rules_file(self) -> Path:
        return self.settings.data_dir.absolute() / RULES_FILE

    @property
    def paths_file(self) -> Path:
        return self.settings.data_dir.absolute() / PATHS

    @property
    def run_folder(self) -> Path:
        """Where programs leave their traces, on this machine."""
        return self.settings.data_dir.absolute() / "optiplan" / "run"

    def rules(self) -> Rules:
        """The rules in force; raises OrderProblem."""
        return load_rules(self.rules_file)

    def paths(self) -> Paths:
        """The paths in force; raises OrderProblem.

        Their folders are made once. One that is missing later is a share that is away: made anew,
        it would look like an empty one, and what lies on the share would be sent again. A folder
        that cannot be made is told by whoever needs it.
        """
        paths = load_paths(self.paths_file)
        made = self.settings.data_dir.absolute() / "optiplan" / "folders.json"
        told = paths_json(paths)
        with suppress(OSError):
            if read_json(made) != told:
                make_folders(paths)
                write_whole(made, canonical_json(told).encode())
        return paths
