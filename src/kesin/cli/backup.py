"""`kesin backup`: the whole installation in a folder, while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kesin.cli.options import AsJson

if TYPE_CHECKING:
    from kesin.engine.backup import Kept, Manifest, Watch
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
    from kesin.cli import bridge
    from kesin.cli.output import say_json
    from kesin.engine.backup import back_up
    from kesin.foundation.logs import set_up_logs
    from kesin.foundation.settings import load_settings
    from kesin.store.transfer import dump_for

    settings = load_settings()
    set_up_logs(settings.log, "warning")
    bridge.check_reachable(settings)
    kept, left_out = belongings(settings)
    with watching("backing up", shown=not as_json) as watch:
        manifest = back_up(dump_for(settings.database), target, kept, left_out, watch)
    if as_json:
        say_json({"backup": str(target.absolute()), **record(manifest)})
    else:
        _tell(target, manifest)


def belongings(settings: Settings) -> tuple[list[Kept], list[str]]:
    """The files that belong to the jobs, and a sentence for each thing that no backup holds."""
    from kesin.foundation.settings import masked
    from kesin.workloads import workloads

    kept: list[Kept] = []
    left_out: list[str] = []
    for workload in workloads().values():
        for one in workload.keeps(settings) if workload.keeps else ():
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
    from kesin.cli.output import bars

    with bars(shown=shown, of_bytes=True) as bar:
        yield lambda total: nullcontext(bar(what, total))


def record(manifest: Manifest) -> dict[str, Any]:
    """The manifest, for scripts."""
    import json

    told: dict[str, Any] = json.loads(manifest.spelled())
    return told


def _tell(target: Path, manifest: Manifest) -> None:
    from kesin.cli.output import say, visible, warn

    print_counts(manifest)
    for name in manifest.vanished:
        warn(f"{visible(name)} was swept away while it was copied")
    for one in manifest.left_out:
        say(f"not in it: {visible(one)}")
    say(f"{target} holds {manifest.bytes} bytes in {manifest.files} files and the database")


def print_counts(manifest: Manifest) -> None:
    """The jobs of a backup."""
    from kesin.cli.output import print_table, tally

    print_table(
        ("queue", "jobs", "states"),
        [
            (queue, sum(states.values()), tally(states))
            for queue, states in manifest.dumped.queues.items()
        ],
        empty="no queue has been opened yet",
    )
