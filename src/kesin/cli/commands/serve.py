"""`kesin serve`: the API, the workers and the sweeper in one process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kesin.cli.support.errors import Failure

if TYPE_CHECKING:
    from kesin.cli.support.supervisor import Crew
    from kesin.engine.access.accounts import Accounts
    from kesin.foundation.settings import Settings
    from kesin.store.contract import Store
    from kesin.workloads import Workload

PASSWORD_FILE = "first-password.txt"  # noqa: S105  # a file's name
ADMIN = "admin"


def serve(
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Listen on this address; else KESIN_HOST.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            metavar="PORT",
            help="On this port, 0 for a free one; else KESIN_PORT.",
        ),
    ] = None,
    workers: Annotated[
        bool,
        typer.Option("--workers/--no-workers", help="Run workers and sweeper here, or elsewhere."),
    ] = True,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Listen to others although nobody can sign in yet."),
    ] = False,
) -> None:
    """Serve the API, work and sweep, until SIGTERM or Ctrl-C.

    A stop finishes what runs within KESIN_GRACE_S and gives back the rest; a second one stops at
    once. On PostgreSQL, run `kesin migrate` first. Where the store is, who may sign in and all
    else is told by KESIN_ variables; `kesin doctor` shows each with its value.
    """
    try:
        from kesin.web.app import create_app
        from kesin.web.server import bound, run
        from kesin.web.service import Service
    except ImportError as problem:
        raise Failure(
            f"the service needs {problem.name}: install it with `pip install 'kesin[web]'`"
        ) from None
    from kesin.cli.support.context import open_desk
    from kesin.workloads import workloads

    with open_desk(make=True, level="info") as desk:
        settings = desk.settings
        address = host or settings.host
        known = workloads()
        crew = crew_of(settings, known) if workers else None
        _warn_of_stranded(desk.store)
        service = Service(settings, desk.store, known, work=workers, crew=crew)
        with bound(address, settings.port if port is None else port) as sockets:
            _let_somebody_in(service.accounts, settings, address, insecure=insecure)
            run(create_app(service), service, sockets)


def _warn_of_stranded(store: Store) -> None:
    """Redis was set while jobs waited in the database: only whoever starts it can move them."""
    from kesin.cli.commands.doctor_service import stranded
    from kesin.foundation.logs import Logger

    log, remedy = Logger("kesin.cli"), "kesin store copy"
    for queue, jobs in stranded(store).items():
        log.warning("jobs_left_in_database", queue=queue, jobs=jobs, remedy=remedy)


def crew_of(
    settings: Settings, known: Mapping[str, Workload], stderr: int | None = None
) -> Crew | None:
    """Processes for the workloads that want none of this one."""
    from kesin.cli.support.supervisor import Crew

    apart = [
        one.name
        for one in known.values()
        if one.needs_own_process and one.worker and not one.missing_libraries
    ]
    if not apart or not settings.pdf_processes:
        return None
    rq = bool(settings.redis_url)
    return Crew(apart, settings.pdf_processes, settings.grace_s, rq=rq, stderr=stderr)


def _let_somebody_in(
    accounts: Accounts, settings: Settings, address: str, *, insecure: bool
) -> None:
    """Make the first admin on this machine; refuse to be open to others without one."""
    if accounts.anybody():
        return
    if not _is_loopback(address):
        if insecure:
            return
        raise Failure(
            f"nobody can sign in yet, and {address} can be reached by others: add a user with "
            "`kesin user add NAME --role admin` or a key with `kesin key create`, "
            "or start it on 127.0.0.1 first"
        )
    from kesin.cli.support.output import say
    from kesin.foundation.logs import Logger
    from kesin.foundation.passwords import one_time_password
    from kesin.foundation.permissions import system

    password = one_time_password()
    file = settings.data_dir / PASSWORD_FILE
    if not sys.stdout.isatty():  # first of all: a password nobody has locks everybody out
        _write_private(file, f"{ADMIN}\n{password}\n")
    accounts.add_person(system("service"), ADMIN, password, role="admin", all_sites=True)
    if sys.stdout.isatty():
        say(f"First start. Sign in as {ADMIN} with the password {password}")
        say("It is shown this once: change it with `kesin user passwd admin`.")
        return
    Logger("kesin.service").info("first_password_written", file=str(file))


def _write_private(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
