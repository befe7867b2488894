"""`kesin store`: queues taken from one store to another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from kesin.cli.support.arguments import AsJson, LifecycleName
from kesin.cli.support.errors import Failure, Usage, check_choice
from kesin.foundation.terminal import examples

if TYPE_CHECKING:
    from kesin.engine.transfer.queue_copy import Copied, Side
    from kesin.lifecycle.declare import Lifecycle
    from kesin.store.contract import Store

app = typer.Typer(help="Take queues from one store to another.", no_args_is_help=True)

_ADDRESS = "a file, postgresql://… or redis://…"


@app.command(
    "copy",
    epilog=examples(
        "kesin store copy kesin.db postgresql://kesin@db.example/kesin",
        "kesin store copy kesin.db redis://127.0.0.1:6379 --queue pdf --wait 60",
    ),
)
def copy_store(
    source: Annotated[str, typer.Argument(metavar="FROM", help=f"Where jobs are: {_ADDRESS}.")],
    target: Annotated[str, typer.Argument(metavar="TO", help=f"Where they go: {_ADDRESS}.")],
    *,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="QUEUE", help="Only this one; repeatable."),
    ] = None,
    lifecycle: LifecycleName = None,
    wait: Annotated[
        float,
        typer.Option("--wait", min=0, metavar="SECONDS", help="Wait for jobs that are claimed."),
    ] = 0.0,
    keep_source_running: Annotated[
        bool,
        typer.Option(
            "--keep-source-running", help="Only copy: the source works on, the copy is paused."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Move queues to another store, and prove it by replay.

    Jobs go with their whole history, remarks, counters and pauses, and with what their workload
    knows beside them. Between SQLite and PostgreSQL, people, keys, sites, secrets and the audit log
    go too, unless queues are named. The source hands out no jobs meanwhile, and is left paused at
    the end. A copy that was broken off is run again.
    """
    from kesin.cli.support.output import bars, say_json
    from kesin.engine.transfer.copy import Copying
    from kesin.engine.transfer.queue_copy import Stage
    from kesin.foundation.logs import set_up_logs
    from kesin.foundation.settings import load_settings

    set_up_logs(load_settings().log, "warning")
    with _opened(source, target) as (here, there):
        rules = _chosen(here.store, there, queues, lifecycle)
        total = sum(_size(here.store, name, one) for name, one in rules.items())
        if not yes:
            _confirm(here, there, rules, total, keep=keep_source_running)
        with bars(shown=not as_json) as bar:
            done = {stage: bar(stage, total) for stage in get_args(Stage)}
            copied = Copying(
                here, there, rules, wait_s=wait, progress=lambda stage, jobs: done[stage](jobs)
            ).run(
                keep_source_running=keep_source_running,
                beside=lambda: _copy_rest(here.store, there.store, list(rules), whole=not queues),
            )
    if as_json:
        say_json([_record(one) for one in copied])
    else:
        _tell(here, there, copied, keep=keep_source_running)


@contextmanager
def _opened(source: str, target: str) -> Iterator[tuple[Side, Side]]:
    from kesin.engine.transfer.queue_copy import Side
    from kesin.foundation.settings import Settings, masked
    from kesin.store.open import open_store

    with ExitStack() as stack:
        sides = []
        for address, is_target in ((source, False), (target, True)):
            if not _is_redis(address):
                settings = Settings(database_url=address)
                _check(settings, is_target=is_target)
            store = open_store(address, migrate=is_target)
            stack.enter_context(closing(store))
            if is_target:
                store.migrate()
            store.ping()
            sides.append(Side(store, masked(address)))
        yield sides[0], sides[1]


def _is_redis(address: str) -> bool:
    return address.startswith(("redis://", "rediss://", "unix://"))


def _check(settings: Any, *, is_target: bool) -> None:
    """A server must answer, and a file to copy from must be there."""
    from kesin.cli.support import context

    file = settings.database_file
    if file is not None and not is_target and not file.exists():
        raise Failure(f"there is no database at {file}")
    context.check_reachable(settings)


def _chosen(
    source: Store, there: Side, names: list[str] | None, lifecycle: str | None
) -> dict[str, Lifecycle]:
    """The queues with their rules; Redis is a home of the PDF workload's alone."""
    from kesin.cli.support.context import Desk
    from kesin.engine.transfer.copy_pauses import left_behind
    from kesin.foundation.settings import load_settings
    from kesin.store.open import PDF_QUEUES
    from kesin.store.sql.store import SqlStore

    known = source.queues()
    by_redis = not (isinstance(source, SqlStore) and isinstance(there.store, SqlStore))
    if by_redis:
        known = [name for name in known if name in PDF_QUEUES]
    here = [name for name in known if not left_behind(source, name, there.name)]
    chosen = [check_choice("queue", name, known) for name in names or here]
    if not chosen:
        where = "queue of the PDF workload, and only those live in Redis" if by_redis else "queue"
        raise Failure(f"there is nothing to copy: the source has no {where}")
    left = [name for name in here if name in PDF_QUEUES and name not in chosen]
    if left and set(chosen) & set(PDF_QUEUES):
        raise Usage(f"the queues of the PDF workload move together: add --queue {left[0]}")
    desk = Desk(load_settings(), source)
    return {name: desk.rules(name, lifecycle) for name in chosen}


def _size(store: Store, queue: str, lifecycle: Lifecycle) -> int:
    store.open(queue, lifecycle)
    return store.stats(queue).total


def _copy_rest(source: Store, target: Store, queues: list[str], *, whole: bool) -> None:
    """What workloads know beside their jobs, without signs of life; and who may come in."""
    from kesin.store.open import PDF_QUEUES
    from kesin.store.sql.store import SqlStore
    from kesin.store.transfer.copy_directory import copy_directory, copy_facts

    for workload in dict.fromkeys("pdf" if name in PDF_QUEUES else name for name in queues):
        copy_facts(source, target, workload, without="worker:")
    if whole and isinstance(source, SqlStore) and isinstance(target, SqlStore):
        copy_directory(source, target)


def _confirm(
    here: Side, there: Side, queues: dict[str, Lifecycle], total: int, *, keep: bool
) -> None:
    names = ", ".join(queues)
    if not sys.stdin.isatty():
        raise Usage(f"copying {total} jobs of {names} needs a confirmation: add --yes")
    after = "goes on afterwards" if keep else "is left paused"
    typer.confirm(
        f"copy {total} jobs of {names} from {here.name} to {there.name}? The source hands out no"
        f" jobs meanwhile, and {after}.",
        abort=True,
        err=True,
    )


def _record(one: Copied) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(one)


def _tell(here: Side, there: Side, copied: list[Copied], *, keep: bool) -> None:
    from kesin.cli.support.output import print_table, say

    print_table(
        ("queue", "jobs", "events", "remarks", "passes", "digest of both sides"),
        [
            (one.queue, one.jobs, one.events, one.notes, one.passes, one.digest[:16])
            for one in copied
        ],
        empty="nothing was copied",
    )
    if keep:
        say(f"{here.name} works on; the copy in {there.name} is paused")
    else:
        say(
            f"{there.name} works from now on; {here.name} is paused: `kesin resume` there undoes it"
        )


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
    from kesin.cli.support import context
    from kesin.cli.support.output import say, say_json
    from kesin.foundation.logs import set_up_logs
    from kesin.foundation.settings import load_settings, masked
    from kesin.store.open import open_stores

    settings = load_settings()
    set_up_logs(settings.log)
    context.check_reachable(settings)
    todo = context.outstanding(settings)
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
