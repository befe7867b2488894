"""`kesin store` and `kesin migrate`: copy queues between stores, bring a schema up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from kesin.cli.support.arguments import AsJson, LifecycleName
from kesin.cli.support.errors import CommandError, UsageError, check_choice
from kesin.foundation.terminal import format_examples

if TYPE_CHECKING:
    from kesin.engine.transfer.queue_copy import CopyResult, NamedStore
    from kesin.lifecycle.declare import Lifecycle
    from kesin.store.contract import Store

app = typer.Typer(help="Take queues from one store to another.", no_args_is_help=True)

_ADDRESS = "a file, postgresql://… or redis://…"


@app.command(
    "copy",
    epilog=format_examples(
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
    from kesin.engine.transfer.copy import CopyRun
    from kesin.engine.transfer.queue_copy import CopyStage
    from kesin.foundation.logs import set_up_logs
    from kesin.foundation.settings import load_settings

    set_up_logs(load_settings().log, "warning")
    with _open_both(source, target) as (source_store, target_store):
        lifecycles = _choose_queues(source_store.store, target_store, queues, lifecycle)
        total = sum(
            _count_jobs(source_store.store, name, rules) for name, rules in lifecycles.items()
        )
        if not yes:
            _confirm(source_store, target_store, lifecycles, total, keep=keep_source_running)
        with bars(shown=not as_json) as bar:
            advance = {stage: bar(stage, total) for stage in get_args(CopyStage)}
            copied = CopyRun(
                source_store,
                target_store,
                lifecycles,
                wait_s=wait,
                progress=lambda stage, jobs: advance[stage](jobs),
            ).run(
                keep_source_running=keep_source_running,
                copy_other_data=lambda: _copy_metadata(
                    source_store.store, target_store.store, list(lifecycles), whole=not queues
                ),
            )
    if as_json:
        say_json([_record(queue) for queue in copied])
    else:
        _print_copied(source_store, target_store, copied, keep=keep_source_running)


@contextmanager
def _open_both(source: str, target: str) -> Iterator[tuple[NamedStore, NamedStore]]:
    from kesin.engine.transfer.queue_copy import NamedStore
    from kesin.foundation.settings import Settings, mask_secrets
    from kesin.store.open import open_store
    from kesin.workloads import workloads
    from kesin.workloads.common.stores import queues_with_tenant_keys

    tenant_keys = queues_with_tenant_keys(workloads().values())
    with ExitStack() as stack:
        sides = []
        for address, is_target in ((source, False), (target, True)):
            if not _is_redis(address):
                settings = Settings(database_url=address)
                _check(settings, is_target=is_target)
            store = open_store(address, migrate=is_target, keys_name_tenant=tenant_keys)
            stack.enter_context(closing(store))
            if is_target:
                store.migrate()
            store.ping()
            sides.append(NamedStore(store, mask_secrets(address)))
        yield sides[0], sides[1]


def _is_redis(address: str) -> bool:
    return address.startswith(("redis://", "rediss://", "unix://"))


def _check(settings: Any, *, is_target: bool) -> None:
    """A server must answer, and a file to copy from must be there."""
    from kesin.store.postgres.reachability import check_reachable

    file = settings.database_file
    if file is not None and not is_target and not file.exists():
        raise CommandError(f"there is no database at {file}")
    check_reachable(settings)


def _choose_queues(
    source: Store, target: NamedStore, names: list[str] | None, lifecycle: str | None
) -> dict[str, Lifecycle]:
    """The queues to copy, with their lifecycles; only those of some workloads may live in Redis.

    The queues of a workload and of those that complete it move together.
    """
    from kesin.cli.support.context import CommandContext
    from kesin.engine.transfer.copy_pauses import was_moved_elsewhere
    from kesin.foundation.settings import load_settings
    from kesin.store.sql.store import SqlStore
    from kesin.workloads import workloads

    groups = {workload.name: workload.group for workload in workloads().values()}
    in_redis = [workload for workload in workloads().values() if workload.in_redis]
    eligible = source.queues()
    by_redis = not (isinstance(source, SqlStore) and isinstance(target.store, SqlStore))
    if by_redis:
        eligible = [name for name in eligible if name in {workload.name for workload in in_redis}]
    present = [name for name in eligible if not was_moved_elsewhere(source, name, target.name)]
    chosen = [check_choice("queue", name, eligible) for name in names or present]
    if not chosen:
        of = _of_workloads(dict.fromkeys(workload.group for workload in in_redis))
        missing = f"queue {of}, and only those live in Redis" if by_redis else "queue"
        raise CommandError(f"there is nothing to copy: the source has no {missing}")
    moving = {groups.get(name, name) for name in chosen}
    left = [name for name in present if groups.get(name, name) in moving and name not in chosen]
    if left:
        of = _of_workloads([groups[left[0]]])
        raise UsageError(f"the queues {of} move together: add --queue {left[0]}")
    context = CommandContext(load_settings(), source)
    return {name: context.lifecycle_of(name, lifecycle) for name in chosen}


def _of_workloads(groups: Iterable[str]) -> str:
    return f"of the {' and '.join(group.upper() for group in groups)} workload"


def _count_jobs(store: Store, queue: str, lifecycle: Lifecycle) -> int:
    store.open(queue, lifecycle)
    return store.stats(queue).total


def _copy_metadata(source: Store, target: Store, queues: list[str], *, whole: bool) -> None:
    """Copy what workloads know beside their jobs, without heartbeats; and users, keys and sites."""
    from kesin.store.sql.store import SqlStore
    from kesin.store.transfer.copy_directory import copy_directory, copy_metadata
    from kesin.workloads import workloads

    groups = {workload.name: workload.group for workload in workloads().values()}
    for group in dict.fromkeys(groups.get(name, name) for name in queues):
        copy_metadata(source, target, group, without="worker:")
    if whole and isinstance(source, SqlStore) and isinstance(target, SqlStore):
        copy_directory(source, target)


def _confirm(
    source: NamedStore, target: NamedStore, queues: dict[str, Lifecycle], total: int, *, keep: bool
) -> None:
    names = ", ".join(queues)
    if not sys.stdin.isatty():
        raise UsageError(f"copying {total} jobs of {names} needs a confirmation: add --yes")
    after = "goes on afterwards" if keep else "is left paused"
    typer.confirm(
        f"copy {total} jobs of {names} from {source.name} to {target.name}? The source hands out no"
        f" jobs meanwhile, and {after}.",
        abort=True,
        err=True,
    )


def _record(result: CopyResult) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(result)


def _print_copied(
    source: NamedStore, target: NamedStore, copied: list[CopyResult], *, keep: bool
) -> None:
    from kesin.cli.support.output import print_table, say

    print_table(
        ("queue", "jobs", "events", "remarks", "passes", "digest of both sides"),
        [
            (
                result.queue,
                result.jobs,
                result.events,
                result.notes,
                result.passes,
                result.digest[:16],
            )
            for result in copied
        ],
        empty="nothing was copied",
    )
    if keep:
        say(f"{source.name} works on; the copy in {target.name} is paused")
    else:
        undo = "`kesin resume` there undoes it"
        say(f"{target.name} works from now on; {source.name} is paused: {undo}")


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
    from kesin.cli.support import inspection
    from kesin.cli.support.output import say, say_json
    from kesin.foundation.logs import set_up_logs
    from kesin.foundation.settings import load_settings, mask_secrets
    from kesin.store.postgres.reachability import check_reachable
    from kesin.workloads import workloads
    from kesin.workloads.common.stores import open_workload_stores

    settings = load_settings()
    set_up_logs(settings.log)
    check_reachable(settings)
    todo = inspection.outstanding_migrations(settings)
    where = mask_secrets(settings.database)
    if dry_run:
        if as_json:
            say_json({"database": where, "applied": [], "outstanding": todo})
            return
        for name in todo:
            say(f"would apply {name}")
        say(f"{len(todo)} to apply to {where}" if todo else f"{where} is up to date")
        return
    store = open_workload_stores(settings, workloads().values())
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
