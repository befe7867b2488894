"""What the commands of workloads share: open stores, the operator, options, results of checks."""

import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.check import DoctorCheck
from kesin.foundation.logs import Level, set_up_logs
from kesin.foundation.permissions import Actor, system_actor
from kesin.foundation.problems import Problem
from kesin.foundation.settings import Settings, load_settings
from kesin.foundation.terminal import cli_actor, print_table, say_json
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.postgres.reachability import check_reachable
from kesin.workloads import workloads
from kesin.workloads.common.stores import open_workload_stores

FAILED: Final = 1  # the exit code of a command that failed, also in part

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def command_group(summary: str, **options: Any) -> typer.Typer:
    options |= {"no_args_is_help": True, "add_completion": False}
    return typer.Typer(help=summary, rich_markup_mode="rich" if sys.stdout.isatty() else None, **options)


def read_settings(level: Level = "warning") -> Settings:
    settings = load_settings()
    set_up_logs(settings.log, level)
    return settings


@contextmanager
def open_stores(
    served: Collection[Workload], *, made_by: str | None, level: Level = "warning", wait_s: float = 0
) -> Iterator[tuple[Settings, Store]]:
    """Open the store with these queues; with ``made_by``, a missing database file is a Problem."""
    settings = read_settings(level)
    file = settings.database_file
    if made_by is not None and file is not None and not file.exists():
        raise Problem(f"there is no database at {file}: {made_by}, or set KESIN_DATA_DIR or KESIN_DATABASE_URL")
    check_reachable(settings, wait_s=wait_s)
    store = open_workload_stores(settings, served)
    try:
        yield settings, store
    finally:
        store.close()


@contextmanager
def open_workload(name: str, *, made_by: str | None = None) -> Iterator[WorkloadContext]:
    """Open a workload as the service would, with its own queue and those of its parts."""
    known = [each for each in workloads().values() if name in (each.name, each.part_of)]
    with open_stores(known, made_by=made_by) as (settings, store):
        queues = {each.name: each.open_queue(store) for each in known}
        commands = Commands(queues, Accounts(Directory(store)), workloads())
        yield WorkloadContext(settings, commands, queues[name])


def local_operator() -> Actor:
    """The user at the terminal: may do everything on this machine, and the audit log records it."""
    return system_actor(cli_actor())


def report_checks(checks: Iterable[DoctorCheck], *, as_json: bool) -> None:
    """Print the results of a workload's doctor; exits with 1 if a check failed."""
    results = list(checks)
    if as_json:
        say_json([{"name": each.name, "ok": each.ok, "detail": each.found} for each in results])
    else:
        print_table(("", "what", "found"), [(each.sign, each.name, each.found) for each in results])
    if not all(each.ok for each in results):
        raise typer.Exit(FAILED)
