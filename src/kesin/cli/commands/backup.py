"""`kesin backup`: the whole installation in a folder, while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kesin.cli.support.arguments import AsJson
from kesin.cli.support.errors import FAILED

if TYPE_CHECKING:
    from kesin.engine.transfer.backup import Kept, Manifest, Watch
    from kesin.engine.transfer.restore import Backup
    from kesin.foundation.settings import Settings

DATA: Final = "data"  # in a backup, what lies below the data folder


def backup(
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="A folder that is not there yet.")
    ],
    as_json: AsJson = False,
) -> None:
    """Write a backup into a new folder.

    Everything goes on meanwhile, and the backup is of one moment: jobs with their history, people,
    keys, sites, sealed secrets, the audit log, and files of the workloads. The keys of
    KESIN_SECRET_KEYS are not in it. Tells what else is not.
    """
    from kesin.cli.support import context
    from kesin.cli.support.output import say_json
    from kesin.engine.transfer.backup import back_up
    from kesin.foundation.logs import set_up_logs
    from kesin.foundation.settings import load_settings
    from kesin.store.transfer import dump_for

    settings = load_settings()
    set_up_logs(settings.log, "warning")
    context.check_reachable(settings)
    kept, left_out = belongings(settings)
    with watching("backing up", shown=not as_json) as watch:
        manifest = back_up(dump_for(settings.database), target, kept, left_out, watch)
    if as_json:
        say_json({"backup": str(target.absolute()), **record(manifest)})
    else:
        _print_backup(target, manifest)


def belongings(settings: Settings) -> tuple[list[Kept], list[str]]:
    """The files that belong to the jobs, and a sentence for each thing that no backup holds."""
    from kesin.foundation.settings import masked
    from kesin.workloads import workloads

    kept: list[Kept] = []
    left_out: list[str] = []
    for workload in workloads().values():
        for one in workload.backup_files(settings) if workload.backup_files else ():
            if isinstance(one, str):
                left_out.append(one)
            else:
                kept.append(one)
    if settings.redis_url:
        left_out.append(
            f"PDF jobs in {masked(settings.redis_url)}: Redis' own files are their backup, or "
            "`kesin store copy --keep-source-running`"
        )
    if settings.secret_keys:
        left_out.append("KESIN_SECRET_KEYS: keep a copy elsewhere, without it no secret opens")
    return kept, left_out


@contextmanager
def watching(what: str, *, shown: bool) -> Iterator[Watch]:
    """A bar over the bytes there will be."""
    from kesin.cli.support.output import bars

    with bars(shown=shown, of_bytes=True) as bar:
        yield lambda total: nullcontext(bar(what, total))


def record(manifest: Manifest) -> dict[str, Any]:
    """The manifest, for scripts."""
    import json

    told: dict[str, Any] = json.loads(manifest.spelled())
    return told


def _print_backup(target: Path, manifest: Manifest) -> None:
    from kesin.cli.support.output import say, visible, warn

    print_counts(manifest)
    for name in manifest.vanished:
        warn(f"{visible(name)} was swept away while it was copied")
    for one in manifest.left_out:
        say(f"not in it: {visible(one)}")
    say(f"{target} holds {manifest.bytes} bytes in {manifest.files} files and the database")


def print_counts(manifest: Manifest) -> None:
    """The jobs of a backup."""
    from kesin.cli.support.output import print_table, tally

    print_table(
        ("queue", "jobs", "states"),
        [
            (queue, sum(states.values()), tally(states))
            for queue, states in manifest.dumped.queues.items()
        ],
        empty="no queue has been opened yet",
    )


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
    from kesin.cli.commands.audit import print_reports
    from kesin.cli.support import context
    from kesin.cli.support.context import operator
    from kesin.cli.support.output import say_json
    from kesin.engine.transfer.restore import Return, checked
    from kesin.engine.transfer.restore import restore as put_back
    from kesin.foundation.logs import set_up_logs
    from kesin.foundation.settings import load_settings
    from kesin.store.transfer import dump_for

    settings = load_settings()
    set_up_logs(settings.log, "warning")
    backup = checked(source)
    if check:
        _tell_whole(source, backup, as_json=as_json)
        return
    context.check_reachable(settings)
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
        _print_restored(backup, closed, resume=resume)
    if any(one["different"] for one in reports):
        raise typer.Exit(FAILED)


def _places(settings: Settings) -> list[Kept]:
    """Where files go: by today's settings, and else below the data folder as they lay."""
    from kesin.engine.transfer.backup import Kept

    kept, _ = belongings(settings)
    named = [one for one in kept if not one.name.startswith(f"{DATA}/")]
    return [*named, Kept(DATA, settings.data_dir.absolute())]


def _verified(settings: Settings, *, shown: bool) -> tuple[list[dict[str, Any]], list[str]]:
    from kesin.cli.commands.audit import replayed
    from kesin.cli.support.context import Desk
    from kesin.engine.transfer.restore import unopened
    from kesin.foundation.encryption import key_ring
    from kesin.store.open import open_store

    with closing(open_store(settings.database, migrate=False)) as store:
        reports = replayed(store, Desk(settings, store).all_or(None), shown=shown)
        return reports, unopened(store, key_ring(settings))


def _tell_whole(source: Path, backup: Backup, *, as_json: bool) -> None:

    from kesin.cli.support.output import say, say_json

    if as_json:
        say_json({**record(backup.manifest), "outstanding": list(backup.todo)})
        return
    print_counts(backup.manifest)
    made = f"of {backup.manifest.made_at} by kesin {backup.manifest.kesin}"
    say(f"{source} is whole: {backup.manifest.bytes} bytes, {made}")


def _print_restored(backup: Backup, closed: list[str], *, resume: bool) -> None:
    from kesin.cli.support.output import say, visible, warn

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
