"""`kesin doctor`: is everything here that Kesin needs, and if not, what to do."""

from __future__ import annotations

from dataclasses import asdict

import typer

from kesin.cli.support.arguments import AsJson
from kesin.cli.support.errors import FAILED


def doctor(as_json: AsJson = False) -> None:
    """Check everything Kesin needs here.

    Settings, folders, database, lifecycles; each problem comes with what to do about it. Exits
    with 1 when something that is needed fails. Changes nothing.
    """
    from kesin.cli.support.output import print_table, say, say_json
    from kesin.cli.support.store_checks import all_checks
    from kesin.foundation.logs import set_up_logs
    from kesin.foundation.terminal import counted

    set_up_logs()
    checks = list(all_checks())
    bad = [one for one in checks if one.status == "failure"]
    doubtful = [one for one in checks if one.status == "warning"]
    if as_json:
        say_json({"ok": not bad, "checks": [asdict(one) for one in checks]})
    else:
        signs = {"ok": "✓", "warning": "!", "failure": "✗"}
        print_table(
            ("", "check", "found", "what to do"),
            [(signs[one.status], one.name, one.found, one.remedy or " ") for one in checks],
        )
        found = {"failure": bad, "warning": doubtful, "check": checks}
        say(", ".join(counted(len(some), thing) for thing, some in found.items()))
    if bad:
        raise typer.Exit(FAILED)
