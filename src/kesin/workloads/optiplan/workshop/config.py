"""The workshop's own files: rules, paths and the folder programs run in.

Read anew at every pass: who changes a rule need not restart anything, but for the deadlines and
the retries, which belong to the lifecycle and count from the next start.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kesin.foundation.settings import BadSettings, Settings, load_settings
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import MINUTE_S
from kesin.lifecycle.declare import Lifecycle
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.lifecycle import Limits, optiplan_lifecycle
from kesin.workloads.optiplan.workshop.json_file import read_object, write_whole
from kesin.workloads.optiplan.workshop.paths import (
    Paths,
    load_paths,
    make_folders,
    paths_json,
)
from kesin.workloads.optiplan.workshop.rules import Rules, load_rules

RULES_FILE: Final = "rules.json"
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
            if read_object(made) != told:
                make_folders(paths)
                write_whole(made, canonical_json(told).encode())
        return paths


def configured_lifecycle() -> Lifecycle:
    """The lifecycle with the workshop's own deadlines and retries, as its rules.json has them.

    Settings or rules that cannot be read give the defaults: other commands report them.
    """
    try:
        file = load_settings().data_dir / RULES_FILE
        if not file.exists():
            return optiplan_lifecycle()
        rules = load_rules(file)
    except (BadSettings, OrderProblem):
        return optiplan_lifecycle()
    return optiplan_lifecycle(
        Limits(
            retry_count_max=rules.retry_count_max,
            retry_backoff_s=tuple(round(one * MINUTE_S) for one in rules.retry_backoff_minutes),
            xml_timeout_s=round(rules.timeouts.opti_xml_minutes * MINUTE_S),
            ack_timeout_s=round(rules.timeouts.osi_ack_minutes * MINUTE_S),
        )
    )
