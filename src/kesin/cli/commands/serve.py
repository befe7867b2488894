"""`kesin serve`: the API, the workers and the sweeper in one process."""

import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated

from kesin.cli.support.arguments import flag, option
from kesin.cli.support.context import open_context
from kesin.cli.support.errors import CommandError
from kesin.cli.support.supervisor import WorkerSupervisor, worker_command
from kesin.engine.access.accounts import Accounts
from kesin.engine.workload import Workload
from kesin.foundation.files import write_atomically
from kesin.foundation.logs import Logger
from kesin.foundation.passwords import one_time_password
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import Settings
from kesin.foundation.terminal import say
from kesin.store.open import OPEN_WAIT_S
from kesin.workloads import has_plug_ins, workloads

PASSWORD_FILE = "first-password.txt"  # noqa: S105  # a file's name
ADMIN = "admin"


def serve(
    host: Annotated[str | None, option("ADDRESS", "The address to listen on; defaults to KESIN_HOST.")] = None,
    port: Annotated[
        int | None, option("PORT", "The port, or 0 for any free one; defaults to KESIN_PORT.", min=0, max=65_535)
    ] = None,
    workers: Annotated[
        bool, flag("--workers/--no-workers", "Also run workers and the sweeper, or only the API.")
    ] = True,
    insecure: Annotated[bool, flag("--insecure", "Listen beyond loopback even if there are no users.")] = False,
) -> None:
    """Run the API, the dashboard, the workers and the sweeper.

    On SIGTERM or Ctrl-C, running jobs have KESIN_GRACE_S seconds to finish, and unfinished jobs are
    released. A second signal stops the service immediately. On PostgreSQL, run `kesin migrate`
    first. All settings are KESIN_ variables; `kesin doctor --all` lists them.
    """
    _import_fastapi()
    from kesin.web.app import create_app
    from kesin.web.server import bind_sockets, run
    from kesin.web.service import Service

    with open_context(create=True, level="info", wait_s=OPEN_WAIT_S) as context:
        settings = context.settings
        address = host or settings.host
        known = workloads()
        supervisor = supervisor_for(settings, known) if workers else None
        if settings.redis_url:  # jobs that were left in the database: an operator must move them
            from kesin.cli.commands.doctor import stranded_jobs  # few services have Redis

            for queue, jobs in stranded_jobs(context.store).items():
                log, remedy = Logger("kesin.cli"), "kesin store copy"
                log.warning("jobs_left_in_database", queue=queue, jobs=jobs, remedy=remedy)
        service = Service(settings, context.store, known, work=workers, supervisor=supervisor)
        with bind_sockets(address, settings.port if port is None else port) as sockets:
            ensure = partial(_ensure_admin, service.accounts, settings, address, insecure=insecure)
            with ThreadPoolExecutor(1) as pool:  # the hash of a first password takes time
                ensured = pool.submit(ensure)
                # A plug-in's router may have a lifespan, which begins with the app's.
                app = create_app(service, late=not has_plug_ins())
            ensured.result()
            run(app, service, sockets)


def _import_fastapi() -> None:
    """Import it without building the validators of its OpenAPI models, which no route needs."""
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True
    try:
        import fastapi  # noqa: F401
    finally:
        del BaseModel.model_config["defer_build"]


def supervisor_for(
    settings: Settings, known: Mapping[str, Workload], stderr: int | None = None
) -> WorkerSupervisor | None:
    """The supervisor of the workloads that need processes of their own; None if there are none."""
    apart = [workload for workload in known.values() if workload.needs_own_process]
    queues = [each.name for each in apart if each.worker and not each.missing_libraries]
    if not queues or not settings.pdf_processes:
        return None
    grace_s, rq = settings.grace_s, bool(settings.redis_url)
    command = worker_command(queues, grace=grace_s, rq=rq, no_sweep=True)  # the service sweeps
    opens_secrets, count = any(known[each].opens_secrets for each in queues), settings.pdf_processes
    return WorkerSupervisor(command, count, grace_s, opens_secrets, stderr, restart_always=True)


def _ensure_admin(accounts: Accounts, settings: Settings, address: str, *, insecure: bool) -> None:
    """Create the first admin on this machine; refuse to listen to others without any user."""
    if accounts.has_usable_account():
        return
    from kesin.workloads.common.api_client import is_loopback

    if not is_loopback(f"http://[{address}]" if ":" in address else f"http://{address}"):
        if insecure:
            return
        raise CommandError(
            f"no user can sign in yet, and {address} can be reached by others: add a user with "
            "`kesin user add NAME --role admin` or a key with `kesin key create`, "
            "or start the service on 127.0.0.1 first"
        )
    password = one_time_password()
    file = settings.data_dir / PASSWORD_FILE
    if not sys.stdout.isatty():  # before anything else: a lost password locks everyone out
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, f"{ADMIN}\n{password}\n".encode(), mode=0o600)
    accounts.add_user(system_actor("service"), ADMIN, password, role="admin", all_sites=True)
    if sys.stdout.isatty():
        say(f"First start. Sign in as {ADMIN} with the password {password}")
        say("It is shown only once: change it with `kesin user passwd admin`.")
        return
    Logger("kesin.service").info("first_password_written", file=str(file))
