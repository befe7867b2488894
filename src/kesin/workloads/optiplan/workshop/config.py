"""The workshop's files, read again on every pass; only deadlines and retries need a restart."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kesin.foundation.logs import Logger
from kesin.foundation.settings import BadSettings, Settings, load_settings
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import MINUTE_S
from kesin.lifecycle.declare import Lifecycle
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.lifecycle import OptiplanLimits, optiplan_lifecycle
from kesin.workloads.optiplan.workshop.json_file import write_atomically
from kesin.workloads.optiplan.workshop.paths import Paths, create_folders, load_paths, paths_json
from kesin.workloads.optiplan.workshop.rules import Rules, load_rules

RULES_FILE: Final = "rules.json"
log = Logger("kesin.optiplan")


@dataclass(frozen=True, slots=True)
class Workshop:
    """The rules and paths that the operator has configured."""

    settings: Settings

    @property
    def folder(self) -> Path:
        return self.settings.data_dir.absolute()

    @property
    def rules_file(self) -> Path:
        return self.folder / RULES_FILE

    @property
    def paths_file(self) -> Path:
        return self.folder / "paths.json"

    @property
    def run_folder(self) -> Path:
        """The folder of program records and logs, on this machine."""
        return self.folder / "optiplan" / "run"

    def rules(self) -> Rules:
        return load_rules(self.rules_file)

    def paths(self) -> Paths:
        """Return the paths in force; raises OrderProblem.

        Their folders are created once. A folder that is missing later is an unavailable share:
        created again, it would look empty, and files on the share would be sent again. If a folder
        cannot be created, the step that needs it reports that.
        """
        paths = load_paths(self.paths_file)
        marker = self.folder / "optiplan" / "folders.json"
        current = canonical_json(paths_json(paths)).encode()
        with suppress(OSError):
            if not marker.exists() or marker.read_bytes() != current:
                if created := create_folders(paths, self.folder):
                    log.info("folders_created", folders=[str(folder) for folder in created])
                write_atomically(marker, current)
        return paths


def configured_lifecycle() -> Lifecycle:
    """Declare the lifecycle by rules.json, or by default if others report it unreadable."""
    limits = None
    with suppress(BadSettings, OrderProblem):
        file = load_settings().data_dir / RULES_FILE
        if file.exists():
            rules = load_rules(file)
            pauses = tuple(round(pause * MINUTE_S) for pause in rules.retry_backoff_minutes)
            limits = OptiplanLimits(
                retry_count_max=rules.retry_count_max,
                retry_backoff_s=pauses,
                xml_timeout_s=round(rules.timeouts.opti_xml_minutes * MINUTE_S),
                ack_timeout_s=round(rules.timeouts.osi_ack_minutes * MINUTE_S),
            )
    return optiplan_lifecycle(limits)
