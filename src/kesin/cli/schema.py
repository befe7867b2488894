"""`kesin migrate`: bring the database's tables up to date."""

from __future__ import annotations

from typing import Annotated

import typer

from kesin.cli.options import AsJson


def migrate(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be applied.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the database up to date.

    Safe to run twice and at the same time on several machines. Forward only: a schema newer than
    this version is refused.
    """
    from kesin.cli import bridge
    from kesin.cli.output import say, say_json
    from kesin.foundation.logs import set_up_logs
    from kesin.foundation.settings import load_settings, masked
    from kesin.store.open import open_stores

    settings = load_settings()
    set_up_logs(settings.log)
    bridge.check_reachable(settings)
    todo = bridge.outstanding(settings)
    where = masked(settings.database)
    if dry_run:
        if as_json:
            say_json({"database": where, "applied": [], "outstanding": todo})
            return
        for name in todo:
            say(f"would apply {name}")
        say(f"{len(todo)} to apply to {where}" if todo else f"{where} is up to date")
        return
    store = open_stores(settings)
    try:
        # The embedded store applied them when it was opened; what another process did counts.
        applied = store.migrate() or (todo if settings.database_file is not None else [])
    finally:
        store.close()
    if as_json:
        say_json({"database": where, "applied": applied, "outstanding": []})
        return
    for name in applied:
        say(f"applied {name}")
    say(f"{where} is up to date")
