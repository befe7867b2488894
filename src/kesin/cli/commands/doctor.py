"""`kesin doctor`: whether this machine has everything Kesin needs, and what to do if not."""

from __future__ import annotations

from dataclasses import asdict

import typer

from kesin.cli.support.arguments import AsJson
from kesin.cli.support.errors import FAILED
from kesin.cli.support.store_checks import run_checks
from kesin.foundation.logs import set_up_logs
from kesin.foundation.terminal import pluralize, print_table, say, say_json


def doctor(as_json: AsJson = False) -> None:
    """Check everything Kesin needs here.

    Settings, folders, database, lifecycles; each problem comes with what to do about it. Exits
    with 1 when something that is needed fails. Changes nothing.
    """
    set_up_logs()
    checks = list(run_checks())
    failures = [check for check in checks if not check.ok]
    warnings = [check for check in checks if check.status == "warning"]
    if as_json:
        say_json({"ok": not failures, "checks": [asdict(check) for check in checks]})
    else:
        print_table(
            ("", "check", "found", "what to do"),
            [(check.sign, check.name, check.found, check.remedy or " ") for check in checks],
        )
        counts = {"failure": failures, "warning": warnings, "check": checks}
        say(", ".join(pluralize(len(items), thing) for thing, items in counts.items()))
    if failures:
        raise typer.Exit(FAILED)
