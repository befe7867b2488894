"""`kesin doctor`: whether this machine has everything Kesin needs, and what to do if not."""

import os
import platform
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from kesin.cli.support import inspection
from kesin.cli.support.arguments import AsJson, flag
from kesin.cli.support.errors import FAILED, explain
from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.access.vault import unopened_secrets
from kesin.engine.proof_cache import proof_of
from kesin.engine.transfer.queue_copy import was_moved_elsewhere
from kesin.engine.workload import WorkloadContext
from kesin.foundation.check import DoctorCheck, Status
from kesin.foundation.clock import wall_clock_us
from kesin.foundation.encryption import key_ring
from kesin.foundation.extras import LIBRARIES, PURPOSES, install_command, missing_libraries
from kesin.foundation.logs import set_up_logs
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import (
    PREFIX,
    BadSettings,
    Settings,
    describe_settings,
    load_settings,
    mask_secrets,
    unknown_variables,
)
from kesin.foundation.terminal import format_duration, pluralize, print_table, say, say_json
from kesin.lifecycle.budget import SECOND_US
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.errors import StoreError, StoreTrouble, StoreUnreachable
from kesin.store.postgres.reachability import check_reachable
from kesin.store.routed import RoutedStore
from kesin.store.rules import jobs_by_state, known_states
from kesin.store.sql.migrate import MigrationRefused
from kesin.store.sqlite.connections import OLDEST_SQLITE
from kesin.web.health import check_workload, find_disk_problems
from kesin.workloads import lifecycles, workloads
from kesin.workloads.common import stores

MEBIBYTE: Final = 1024 * 1024
LITTLE_SPACE: Final = 1024 * MEBIBYTE
LARGE_WAL: Final = 1024 * MEBIBYTE
SKEW_S: Final = 1.0
OLD_SNAPSHOT_S: Final = 600
UNSERVED_S: Final = 60
DAMAGE_CHECK_S: Final = 10.0  # a large file of SQLite is checked in part
_warned: Final = partial(DoctorCheck.result, otherwise="warning")


def doctor(
    show_all: Annotated[bool, flag("--all", "Also list settings with default values.")] = False, as_json: AsJson = False
) -> None:
    """Check settings, folders, database, lifecycles and workloads.

    Lists problems first, each with its remedy. Exits with 1 if a required check fails. Changes
    nothing.
    """
    set_up_logs()
    checks = list(run_checks())
    failures = [check for check in checks if not check.ok]
    warnings = [check for check in checks if check.status == "warning"]
    if as_json:
        say_json({"ok": not failures, "checks": [asdict(check) for check in checks]})
    else:
        defaults = [each for each in checks if each.found.endswith("(default)")]
        checks.sort(key=lambda check: "✗!–✓".index(check.sign))
        rows = [
            (check.sign, check.name, check.found, check.remedy or " ")
            for check in checks
            if show_all or check not in defaults
        ]
        print_table(("", "check", "found", "what to do"), rows)
        counts = {"failure": failures, "warning": warnings, "check": checks}
        say(", ".join(pluralize(len(items), thing) for thing, items in counts.items()))
        if defaults and not show_all:
            say(f"{pluralize(len(defaults), 'setting')} at the default: --all lists them")
    if failures:
        raise typer.Exit(FAILED)


def run_checks() -> Iterator[DoctorCheck]:
    """All checks, in the order in which problems are best solved."""
    yield DoctorCheck("python", "ok", platform.python_version())
    is_new, version = sqlite3.sqlite_version_info >= OLDEST_SQLITE, sqlite3.sqlite_version
    remedy = f"use a Python that comes with SQLite {'.'.join(map(str, OLDEST_SQLITE))} or newer"
    yield DoctorCheck.result("sqlite", ok=is_new, found=version, remedy=remedy)
    settings: Settings | None = None
    try:
        settings = load_settings()
        for name, (value, source) in describe_settings(settings).items():
            yield DoctorCheck(name, "ok", f"{value or 'not set'} ({source})")
    except BadSettings as problem:
        yield DoctorCheck("settings", "failure", str(problem), "correct the variable, or unset it")
    own = tuple(f"{PREFIX}{name.upper().replace('-', '_')}_" for name in workloads())
    for name, meant in unknown_variables().items():
        if not name.upper().startswith(own):  # a workload checks its own variables itself
            remedy = f"did you mean {meant}?" if meant else "unset it: Kesin does not use it"
            yield DoctorCheck(name, "warning", "no setting has this name", remedy)
    yield from _lifecycles()
    yield from _packages()
    if settings is not None:
        yield _key_ring(settings)
        yield from _folder(settings)
        yield from _redis(settings)
        yield from _database(settings)


def _lifecycles() -> Iterator[DoctorCheck]:
    for name, make in lifecycles().items():
        proof = proof_of(make())
        if proof:
            result = f"proved, {proof.bound} automatic moves at most"
            yield DoctorCheck(f"lifecycle {name}", "ok", result)
        else:
            rules = ", ".join(sorted({rule.rule for rule in proof.broken}))
            remedy = f"see `kesin lifecycle prove {name}`"
            yield DoctorCheck(f"lifecycle {name}", "failure", f"breaks {rules}", remedy)


def _folder(settings: Settings) -> Iterator[DoctorCheck]:
    folder = settings.data_dir
    parents = (folder.absolute(), *folder.absolute().parents)
    nearest = next(parent for parent in parents if parent.exists())
    if not nearest.is_dir():
        yield DoctorCheck("data folder", "failure", f"{nearest} is a file", "set KESIN_DATA_DIR")
        return
    if not os.access(nearest, os.W_OK | os.X_OK):
        remedy = f"let this user write to {nearest}, or set KESIN_DATA_DIR"
        yield DoctorCheck("data folder", "failure", f"{folder} cannot be written", remedy)
    elif folder.exists():
        yield DoctorCheck("data folder", "ok", f"{folder} can be written")
    else:
        yield DoctorCheck("data folder", "ok", f"{folder} does not exist yet; first use creates it")
    yield from _disks(settings, nearest)


def _disks(settings: Settings, data_folder: Path) -> Iterator[DoctorCheck]:
    """The disks as `/health/ready` checks them, by name."""
    problems = list(find_disk_problems(settings, workloads().values()))
    for location, problem in problems:
        remedy = "free up disk space, or let this user write there: writes fail, or will soon"
        yield DoctorCheck("disk space", "failure", f"{location} {problem}", remedy)
    free = shutil.disk_usage(data_folder).free
    if not problems:
        enough, room = free >= LITTLE_SPACE, f"{free // MEBIBYTE} MiB free"
        yield _warned("disk space", ok=enough, found=room, remedy="free up disk space soon")


def _database(settings: Settings) -> Iterator[DoctorCheck]:
    file = settings.database_file
    if file is not None and not file.exists():
        yield DoctorCheck("database", "ok", f"{file} does not exist yet; first use creates it")
        return
    try:
        check_reachable(settings)
        todo = inspection.outstanding_migrations(settings)
        yield _schema(todo, embedded=file is not None)
        if todo:
            return
        if file is not None:
            yield (about := _file(file))
            if about.status == "failure":
                return
        store = stores.open_workload_stores(settings, workloads().values())
    except MigrationRefused as problem:
        yield DoctorCheck("schema", "failure", "does not fit this version of kesin", str(problem))
        return
    except StoreTrouble as problem:
        yield DoctorCheck("database", "failure", problem.what, problem.remedy)
        return
    except Exception as problem:
        report = explain(problem)
        if report is None:
            raise
        remedy = "start the server, or correct KESIN_DATABASE_URL"
        yield DoctorCheck("database", "failure", mask_secrets(report[0]), remedy)
        return
    try:
        yield from _store(store)
        yield from _access(settings, store)
        yield from _workloads(settings, store)
    finally:
        store.close()


def _file(file: Path) -> DoctorCheck:
    if not os.access(file, os.W_OK):
        remedy = f"let this user write to {file}"
        return DoctorCheck("database file", "failure", f"{file} cannot be written", remedy)
    damage = inspection.find_damage(file.resolve(), DAMAGE_CHECK_S)
    if damage is None:
        return DoctorCheck("database file", "ok", "can be written, and no damage was found")
    remedy = "stop kesin, copy the file and the files next to it, then restore a backup"
    return DoctorCheck("database file", "failure", f"{file} is damaged ({damage})", remedy)


def _schema(todo: list[str], *, embedded: bool) -> DoctorCheck:
    if not todo:
        return DoctorCheck("schema", "ok", "up to date")
    pending = f"to apply: {', '.join(todo)}"
    if embedded:
        remedy = "no action needed: they are applied at the next start"
        return DoctorCheck("schema", "warning", pending, remedy)
    return DoctorCheck("schema", "failure", pending, "run `kesin migrate`")


def _store(store: Store) -> Iterator[DoctorCheck]:
    health = store.health()
    size = int(health.get("bytes", 0)) // MEBIBYTE
    yield DoctorCheck("database", "ok", f"{health['store']} {health['version']}, {size} MiB")
    wal = int(health.get("wal_bytes", 0))
    if wal > LARGE_WAL:
        remedy = "close readers that stay open, so that SQLite can checkpoint its journal"
        yield DoctorCheck("journal", "warning", f"{wal // MEBIBYTE} MiB", remedy)
    if "oldest_snapshot_s" in health:
        age_s = int(health["oldest_snapshot_s"])
        remedy = "end its session (see pg_stat_activity), so that vacuum can remove dead rows"
        young, age = age_s <= OLD_SNAPSHOT_S, format_duration(age_s)
        yield _warned("oldest snapshot", ok=young, found=age, remedy=remedy)
    before = wall_clock_us()
    database_us = inspection.database_time_us(store)
    if database_us is not None:
        skew_s = (database_us - (before + wall_clock_us()) / 2) / 1_000_000
        found = f"the database is {abs(skew_s):.3f} s {'ahead' if skew_s > 0 else 'behind'}"
        remedy = "synchronise both machines with NTP"
        yield _warned("clocks", ok=abs(skew_s) <= SKEW_S, found=found, remedy=remedy)
    for name, jobs in stranded_jobs(store).items():
        detail = f"jobs left in the database, where no worker runs them: {jobs}"
        remedy = "move them to Redis with `kesin store copy DATABASE REDIS`"
        yield DoctorCheck(f"{name} before redis", "warning", detail, remedy)
    for queue in store.queues():
        with suppress(StoreUnreachable):  # reported above
            yield from _unknown_states(store, queue)
            for pause in store.paused(queue):
                what = f"{pause.tenant} of {queue}" if pause.tenant else queue
                detail = f"by {pause.actor}" + (f": {pause.reason}" if pause.reason else "")
                tenant = f" --tenant {pause.tenant}" if pause.tenant else ""
                remedy = f"`kesin resume {queue}{tenant}`"
                yield DoctorCheck(f"paused {what}", "warning", detail, remedy)


def _packages() -> Iterator[DoctorCheck]:
    """Which extras are installed. No installation needs all, so a missing extra is no fault."""
    for extra, purpose in PURPOSES.items():
        if lacking := missing_libraries(LIBRARIES[extra]):
            remedy = f"{install_command(extra)}, if {purpose} here"
            yield DoctorCheck(f"extra {extra}", "ok", f"lacks {', '.join(lacking)}", remedy)
        else:
            yield DoctorCheck(f"extra {extra}", "ok", "installed")


def _key_ring(settings: Settings) -> DoctorCheck:
    """Whether secrets can be sealed."""
    try:
        keys = key_ring(settings)
    except BadSettings as problem:
        return DoctorCheck("secret keys", "failure", str(problem), "correct KESIN_SECRET_KEYS")
    if keys is None:
        remedy = "run `kesin secrets new-key` if you want to store credentials here"
        return DoctorCheck("secret keys", "ok", "not set", remedy)
    return DoctorCheck("secret keys", "ok", f"new secrets are sealed with {keys.first}")


def _redis(settings: Settings) -> Iterator[DoctorCheck]:
    """Whether Redis answers and is durable, and workers take the jobs that live there."""
    if not settings.redis_url:
        return
    try:
        redis = stores.open_workload_redis(settings.redis_url, workloads().values())
        with closing(redis) as store:
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
        inspection.open_for_reading(store, name)
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


def _unknown_states(store: Store, queue: str) -> Iterator[DoctorCheck]:
    """Whether jobs are in states that the newest rules do not know: nothing moves them."""
    jobs, versions = jobs_by_state(store.move_counts(queue)), store.rules(queue)
    known = known_states(versions[-1]) if versions else frozenset(jobs)
    for state in sorted(jobs.keys() - known):
        detail = f"jobs in {state}, which the lifecycle does not have: {jobs[state]}"
        remedy = "declare the state again, with moves out of it, and run `kesin lifecycle check`"
        yield DoctorCheck(f"states of {queue}", "failure", detail, remedy)


def _access(settings: Settings, store: Store) -> Iterator[DoctorCheck]:
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


def _workloads(settings: Settings, store: Store) -> Iterator[DoctorCheck]:
    """What the workloads report to `/health/ready`; changes nothing in the store."""
    if missing_libraries(LIBRARIES["web"]):
        return
    for name, workload in workloads().items():
        try:
            queue = stores.open_as_stored(store, name, workload.lifecycle())
        except StoreUnreachable:  # reported above
            continue
        if queue is None:
            continue
        commands = Commands({name: queue}, Accounts(Directory(store)), workloads())
        check = check_workload(workload, WorkloadContext(settings, commands, queue))
        if check is not None:
            status: Status = "ok" if check.ok else "failure" if check.needed else "warning"
            yield DoctorCheck(name, status, check.detail)
