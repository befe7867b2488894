"""`kesin store` and `kesin migrate`: copy queues between stores, bring a schema up to date."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from functools import partial
from typing import Annotated, get_args

import typer

from kesin.cli.support import arguments, inspection
from kesin.cli.support.arguments import AsJson, Several, argument, flag, option
from kesin.cli.support.context import CommandContext
from kesin.cli.support.errors import CommandError, UsageError, check_choice
from kesin.cli.support.records import cells
from kesin.engine.transfer.copy import copy_queues
from kesin.engine.transfer.queue_copy import CopyStage, NamedStore, was_moved_elsewhere
from kesin.foundation.settings import Settings, load_settings, mask_secrets
from kesin.foundation.terminal import bars, pluralize, print_table, say, say_json
from kesin.lifecycle.declare import Lifecycle
from kesin.store.contract import Store
from kesin.store.open import open_store
from kesin.store.postgres.reachability import check_reachable
from kesin.store.sql.store import SqlStore
from kesin.store.transfer.copy_directory import copy_directory, copy_metadata
from kesin.workloads import workloads
from kesin.workloads.common.cli import read_settings
from kesin.workloads.common.stores import open_workload_stores, queues_with_tenant_keys

app = typer.Typer(no_args_is_help=True)

_ADDRESS = "a file, postgresql://… or redis://…"


@app.command("copy")
def copy_store(
    source: Annotated[str, argument("FROM", f"The source: {_ADDRESS}.")],
    target: Annotated[str, argument("TO", f"The target: {_ADDRESS}.")],
    *,
    queues: Annotated[Several, option("QUEUE", "Only this queue; repeatable.", "--queue")] = None,
    lifecycle: arguments.LifecycleName = None,
    wait: Annotated[float, option("SECONDS", "How long to wait for claimed jobs to finish.", min=0)] = 0.0,
    keep_source_running: Annotated[
        bool, flag("--keep-source-running", "Copy the queues without moving them; the source stays in use.")
    ] = False,
    yes: arguments.Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move queues to another store, and verify the result by replay.

    Jobs move with their history, notes, counters and pauses, and with their workload's other data.
    Between SQLite and PostgreSQL, users, keys, sites, secrets and the audit log also move, unless
    you name queues. The source is paused during the copy and stays paused. If the command is
    interrupted, run it again.
    """
    read_settings()
    with _open_both(source, target) as (old, new):
        lifecycles = _choose_queues(old.store, new, queues, lifecycle)
        total = 0
        for name, rules in lifecycles.items():
            old.store.open(name, rules)
            total += old.store.stats(name).total
        if not yes:
            listed = ", ".join(lifecycles)
            after = "continues" if keep_source_running else "stays paused"
            arguments.confirm(
                f"Copy {pluralize(total, 'job')} of {listed} from {old.name} to {new.name}? The"
                f" source is paused during the copy and then {after}.",
                f"copying {pluralize(total, 'job')} of {listed} needs confirmation",
            )
        stores, names = (old.store, new.store), list(lifecycles)
        with bars(shown=not as_json) as bar:
            advance = {stage: bar(stage, total) for stage in get_args(CopyStage)}
            copied = copy_queues(
                old,
                new,
                lifecycles,
                wait_s=wait,
                keep_source_running=keep_source_running,
                progress=lambda stage, jobs: advance[stage](jobs),
                copy_other_data=partial(_copy_metadata, *stores, names, whole=not queues),
            )
    if as_json:
        say_json([asdict(result) for result in copied])
        return
    fields = ("queue", "jobs", "events", "notes", "passes")
    rows = [[*cells(copy, *fields), copy.digest[:16]] for copy in copied]
    columns = ("queue", "jobs", "events", "notes", "passes", "digest of both sides")
    print_table(columns, rows, empty="nothing was copied")
    if keep_source_running:
        say(f"{old.name} continues; the copy in {new.name} is paused")
    else:
        say(f"{new.name} is in use now; {old.name} is paused: `kesin resume` there reverses this")


@contextmanager
def _open_both(source: str, target: str) -> Iterator[tuple[NamedStore, NamedStore]]:
    tenant_keys = queues_with_tenant_keys(workloads().values())
    with ExitStack() as stack:
        sides = []
        for address, is_target in ((source, False), (target, True)):
            if not address.startswith(("redis://", "rediss://", "unix://")):
                settings = Settings(database_url=address)
                file = settings.database_file
                if file is not None and not is_target and not file.exists():
                    raise CommandError(f"there is no database at {file}")
                check_reachable(settings)
            store = open_store(address, migrate=is_target, keys_name_tenant=tenant_keys)
            stack.enter_context(closing(store))
            if is_target:
                store.migrate()
            store.ping()
            sides.append(NamedStore(store, mask_secrets(address)))
        yield sides[0], sides[1]


def _choose_queues(
    source: Store, target: NamedStore, names: list[str] | None, lifecycle: str | None
) -> dict[str, Lifecycle]:
    """The queues to copy, with their lifecycles; the queues of a workload's group move together."""
    groups = {workload.name: workload.group for workload in workloads().values()}
    in_redis = {name: groups[name] for name, each in workloads().items() if each.in_redis}
    by_redis = not (isinstance(source, SqlStore) and isinstance(target.store, SqlStore))
    eligible = [name for name in source.queues() if name in in_redis or not by_redis]
    present = [name for name in eligible if not was_moved_elsewhere(source, name, target.name)]
    chosen = [check_choice("queue", name, eligible) for name in names or present]
    if not chosen:
        of = _of_workloads(dict.fromkeys(in_redis.values()))
        missing = f"queue {of}, and only those can be in Redis" if by_redis else "queue"
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


def _copy_metadata(source: Store, target: Store, queues: list[str], *, whole: bool) -> None:
    """Copy what workloads know beside their jobs, without heartbeats; and users, keys and sites."""
    groups = {workload.name: workload.group for workload in workloads().values()}
    for group in dict.fromkeys(groups.get(name, name) for name in queues):
        copy_metadata(source, target, group, without="worker:")
    if whole and isinstance(source, SqlStore) and isinstance(target, SqlStore):
        copy_directory(source, target)


def migrate(
    dry_run: Annotated[bool, flag("--dry-run", "Only list the migrations to apply.")] = False, as_json: AsJson = False
) -> None:
    """Bring the database up to date.

    Running the command twice, or on several machines at once, is safe. A schema that is newer than
    this version of Kesin is refused.
    """
    settings = read_settings()
    check_reachable(settings)
    outstanding = inspection.outstanding_migrations(settings)
    where = mask_secrets(settings.database)
    applied: list[str] = []
    if not dry_run:
        with closing(open_workload_stores(settings, workloads().values())) as store:
            # The embedded store applied them when it was opened; what another process did counts.
            applied = store.migrate() or (outstanding if settings.database_file is not None else [])
        outstanding = []
    if as_json:
        say_json({"database": where, "applied": applied, "outstanding": outstanding})
        return
    for name in outstanding:
        say(f"would apply {name}")
    for name in applied:
        say(f"applied {name}")
    say(f"{len(outstanding)} to apply to {where}" if outstanding else f"{where} is up to date")
