"""What `kesin doctor` checks for the service: packages, the key ring, Redis, who can sign in."""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from kesin.cli.support.inspection import open_for_reading
from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.access.vault import unopened_secrets
from kesin.engine.transfer.queue_copy import was_moved_elsewhere
from kesin.engine.workload import WorkloadContext
from kesin.foundation.check import DoctorCheck, Status
from kesin.foundation.encryption import key_ring
from kesin.foundation.extras import LIBRARIES, PURPOSES, install_command, missing_libraries
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import BadSettings, Settings, mask_secrets
from kesin.foundation.terminal import pluralize
from kesin.lifecycle.budget import SECOND_US
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.routed import RoutedStore
from kesin.store.rules import jobs_by_state, known_states
from kesin.web.health import check_workload
from kesin.workloads import lifecycles, workloads
from kesin.workloads.common.stores import open_as_stored, open_workload_redis

UNSERVED_S: Final = 60


def check_packages() -> Iterator[DoctorCheck]:
    """Which extras are installed. No installation needs all, so a missing extra is no fault."""
    for extra, purpose in PURPOSES.items():
        if lacking := missing_libraries(LIBRARIES[extra]):
            remedy = f"{install_command(extra)}, if {purpose} here"
            yield DoctorCheck(f"extra {extra}", "ok", f"lacks {', '.join(lacking)}", remedy)
        else:
            yield DoctorCheck(f"extra {extra}", "ok", "installed")


def check_key_ring(settings: Settings) -> DoctorCheck:
    """Whether secrets can be sealed."""
    try:
        keys = key_ring(settings)
    except BadSettings as problem:
        return DoctorCheck("secret keys", "failure", str(problem), "correct KESIN_SECRET_KEYS")
    if keys is None:
        remedy = "run `kesin secrets new-key` if you want to store credentials here"
        return DoctorCheck("secret keys", "ok", "not set", remedy)
    return DoctorCheck("secret keys", "ok", f"new secrets are sealed with {keys.first}")


def check_redis(settings: Settings) -> Iterator[DoctorCheck]:
    """Whether Redis answers and is durable, and workers take the jobs that live there."""
    if not settings.redis_url:
        return
    try:
        with closing(open_workload_redis(settings.redis_url, workloads().values())) as store:
            health = store.health()
            yield DoctorCheck("redis", "ok", f"{health['version']}, {health['bytes']} bytes")
            if health["append_only"] != "yes":
                remedy = "set appendonly yes: a crash loses all jobs since the last snapshot"
                yield DoctorCheck("redis persistence", "warning", "no append-only file", remedy)
            if health["eviction"] != "noeviction":
                remedy = "set maxmemory-policy noeviction, or Redis deletes jobs when it is full"
                yield DoctorCheck("redis eviction", "failure", str(health["eviction"]), remedy)
            if not settings.pdf_processes:
                yield _check_redis_workers(store)
    except StoreError as problem:
        remedy = "start Redis, or correct KESIN_REDIS_URL: PDFs wait until then"
        yield DoctorCheck("redis", "failure", mask_secrets(str(problem)), remedy)


def _check_redis_workers(store: Store) -> DoctorCheck:
    """Whether workers poll the queues in Redis whose jobs no transport pushes."""
    in_redis = [workload for workload in workloads().values() if workload.in_redis]
    pushed = [workload.name for workload in in_redis if workload.push_worker is not None]
    polled = [workload.name for workload in in_redis if workload.push_worker is None]
    present = [name for name in polled if name in store.queues()]
    for name in present:
        open_for_reading(store, name)
    stats = {name: store.stats(name) for name in present}
    due = {name: queue.oldest_due_at or queue.now for name, queue in stats.items()}
    late = [name for name in due if stats[name].now - due[name] > UNSERVED_S * SECOND_US]
    if late:
        detail = f"no worker runs {' and '.join(late)}: jobs have waited over {UNSERVED_S} s"
        remedy = f"run `kesin worker {' '.join([*pushed, *polled])} --rq`"
        return DoctorCheck("redis workers", "warning", detail, remedy)
    names = " and ".join(polled)
    detail = f"KESIN_PDF_PROCESSES is 0: {names} need a `kesin worker` in another process"
    return DoctorCheck("redis workers", "ok", detail)


def stranded_jobs(store: Store) -> dict[str, int]:
    """Queue that lives in Redis now → how many of its jobs still wait in the database."""
    if not isinstance(store, RoutedStore):
        return {}
    main, waiting = store.main, {}
    for name in sorted(store.stores_by_queue.keys() & set(main.queues())):
        if was_moved_elsewhere(main, name, ""):  # it was copied: only history is left
            continue
        jobs = jobs_by_state(main.move_counts(name))
        states = lifecycles()[name]().states
        waiting[name] = sum(jobs.get(state.name, 0) for state in states if state.working)
    return {name: jobs for name, jobs in waiting.items() if jobs}


def check_stranded_jobs(store: Store) -> Iterator[DoctorCheck]:
    """Whether jobs were left in the database when their queue moved to Redis."""
    for name, jobs in stranded_jobs(store).items():
        detail = f"jobs left in the database, where no worker runs them: {jobs}"
        remedy = "move them to Redis with `kesin store copy DATABASE REDIS`"
        yield DoctorCheck(f"{name} before redis", "warning", detail, remedy)


def check_unknown_states(store: Store, queue: str) -> Iterator[DoctorCheck]:
    """Whether jobs are in states that the newest rules do not know: nothing moves them."""
    jobs, versions = jobs_by_state(store.move_counts(queue)), store.rules(queue)
    known = known_states(versions[-1]) if versions else frozenset(jobs)
    for state in sorted(jobs.keys() - known):
        detail = f"jobs in {state}, which the lifecycle does not have: {jobs[state]}"
        remedy = "declare the state again, with moves out of it, and run `kesin lifecycle check`"
        yield DoctorCheck(f"states of {queue}", "failure", detail, remedy)


def check_access(settings: Settings, store: Store) -> Iterator[DoctorCheck]:
    """Who can sign in, and whether every sealed secret opens."""
    accounts = Accounts(Directory(store))
    doctor = system_actor("doctor")
    users, keys = len(accounts.users(doctor)), len(accounts.keys(doctor))
    detail = f"{pluralize(users, 'user')}, {pluralize(keys, 'key')}"
    if accounts.has_usable_account():
        yield DoctorCheck("access", "ok", detail)
    else:
        remedy = "run `kesin user add NAME --role admin`, or let `kesin serve` create an admin"
        yield DoctorCheck("access", "warning", f"no user can sign in ({detail})", remedy)
    try:
        ring = key_ring(settings)
    except BadSettings:
        return
    if unopened := unopened_secrets(accounts.directory, ring):
        remedy = "put their key back into KESIN_SECRET_KEYS, or store the secrets again"
        yield DoctorCheck("secrets", "failure", f"cannot be opened: {', '.join(unopened)}", remedy)


def check_workloads(settings: Settings, store: Store) -> Iterator[DoctorCheck]:
    """What the workloads report to `/health/ready`; changes nothing in the store."""
    if missing_libraries(LIBRARIES["web"]):
        return
    for name, workload in workloads().items():
        try:
            queue = open_as_stored(store, name, workload.lifecycle())
        except StoreUnreachable:  # reported above
            continue
        if queue is None:
            continue
        commands = Commands({name: queue}, Accounts(Directory(store)), workloads())
        check = check_workload(workload, WorkloadContext(settings, commands, queue))
        if check is not None:
            status: Status = "ok" if check.ok else "failure" if check.needed else "warning"
            yield DoctorCheck(name, status, check.detail)
