"""`kesin restore`: an installation made again from a backup."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kesin.cli.failures import FAILED
from kesin.cli.options import AsJson

if TYPE_CHECKING:
    from kesin.engine.backup import Kept
    from kesin.engine.restore import Backup
    from kesin.foundation.settings import Settings


def restore(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="The folder of a backup.")],
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only read the backup, and say whether it is whole.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Lose what the database holds now.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Let the queues work at once, and not rest paused.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put a backup where the settings say.

    Reads all of it first. Nothing may run there. The queues are left paused: what was done since
    the backup is about to be done again. Ends every session, applies the migrations that the
    backup lacks, replays all events, and exits with 1 if anything differs.
    """
    from kesin.cli import bridge
    from kesin.cli.audit import print_reports
    from kesin.cli.backup import record, watching
    from kesin.cli.desk import operator
    from kesin.cli.output import say_json
    from kesin.engine.restore import Return, checked
    from kesin.engine.restore import restore as put_back
    from kesin.foundation.logs import set_up_logs
    from kesin.foundation.settings import load_settings
    from kesin.store.transfer import dump_for

    settings = load_settings()
    set_up_logs(settings.log, "warning")
    backup = checked(source)
    if check:
        _tell_whole(source, backup, as_json=as_json)
        return
    bridge.check_reachable(settings)
    reason = f"restored from {source.name}, a backup of {backup.manifest.made_at}"
    told = Return(operator(), reason, paused=not resume)
    with watching("restoring", shown=not as_json) as watch:
        dump = dump_for(settings.database)
        put_back(backup, dump, _places(settings), told.tell, watch, replace=replace)
    reports, closed = _verified(settings, shown=not as_json)
    if as_json:
        body = {**record(backup.manifest), "applied": list(backup.todo), "closed_secrets": closed}
        say_json({**body, "paused": not resume, "queues": reports})
    else:
        print_reports(reports)
        _tell(backup, closed, resume=resume)
    if any(one["different"] for one in reports):
        raise typer.Exit(FAILED)


def _places(settings: Settings) -> list[Kept]:
    """Where files go: by today's settings, and else below the data folder as they lay."""
    from kesin.cli.backup import DATA, belongings
    from kesin.engine.backup import Kept

    kept, _ = belongings(settings)
    named = [one for one in kept if not one.name.startswith(f"{DATA}/")]
    return [*named, Kept(DATA, settings.data_dir.absolute())]


def _verified(settings: Settings, *, shown: bool) -> tuple[list[dict[str, Any]], list[str]]:
    from kesin.cli.audit import replayed
    from kesin.cli.desk import Desk
    from kesin.engine.restore import unopened
    from kesin.foundation.secrets import key_ring
    from kesin.store.open import open_store

    with closing(open_store(settings.database, migrate=False)) as store:
        reports = replayed(store, Desk(settings, store).all_or(None), shown=shown)
        return reports, unopened(store, key_ring(settings))


def _tell_whole(source: Path, backup: Backup, *, as_json: bool) -> None:
    from kesin.cli.backup import print_counts, record
    from kesin.cli.output import say, say_json

    if as_json:
        say_json({**record(backup.manifest), "outstanding": list(backup.todo)})
        return
    print_counts(backup.manifest)
    made = f"of {backup.manifest.made_at} by kesin {backup.manifest.kesin}"
    say(f"{source} is whole: {backup.manifest.bytes} bytes, {made}")


def _tell(backup: Backup, closed: list[str], *, resume: bool) -> None:
    from kesin.cli.output import say, visible, warn

    for name in backup.todo:
        say(f"applied {name}")
    for one in backup.manifest.left_out:
        say(f"was not in it: {visible(one)}")
    if closed:
        keys = ", ".join(backup.manifest.dumped.secret_keys)
        warn(
            f"{len(closed)} secrets do not open, like {visible(closed[0])}: KESIN_SECRET_KEYS needs"
            f" the keys {keys}"
        )
    say(f"restored what was there at {backup.manifest.made_at}; everybody signs in again")
    if not resume:
        say("the queues are paused: `kesin resume QUEUE` when what was done since may be repeated")
