"""What `kesin doctor` checks about the machine, the settings and the store."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kesin.cli.commands import doctor_service
from kesin.cli.support import context
from kesin.cli.support.errors import explain
from kesin.cli.support.lifecycles import registry
from kesin.cli.support.output import lasting
from kesin.foundation.check import Check
from kesin.foundation.clock import wall_clock_us
from kesin.foundation.settings import (
    PREFIX,
    BadSettings,
    Settings,
    described,
    load_settings,
    masked,
    strangers,
)
from kesin.lifecycle.proof.rules import prove
from kesin.store.contract import Store
from kesin.store.errors import StoreTrouble
from kesin.store.open import open_stores
from kesin.store.sql.migrate import MigrationRefused

OLDEST_PYTHON: Final = (3, 11)


MEBIBYTE: Final = 1024 * 1024


LITTLE_SPACE: Final = 1024 * MEBIBYTE


NO_SPACE: Final = 64 * MEBIBYTE


LARGE_WAL: Final = 1024 * MEBIBYTE


SKEW_S: Final = 1.0


OLD_SNAPSHOT_S: Final = 600


LOOK_THROUGH_S: Final = 10.0  # for damage in the file of SQLite; a large one is looked at in part


def all_checks() -> Iterator[Check]:
    """Every check, in the order in which one would mend things."""
    yield _python()
    yield _sqlite()
    settings: Settings | None = None
    try:
        settings = load_settings()
        yield from _settings(settings)
    except BadSettings as problem:
        yield Check("settings", "failure", str(problem), "correct the variable, or unset it")
    yield from _strangers()
    yield from _lifecycles()
    yield from doctor_service.packages()
    if settings is not None:
        yield doctor_service.ring(settings)
        yield from _folder(settings)
        yield from doctor_service.redis(settings)
        yield from _database(settings)
    yield _server_programs()


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Check("python", "failure", version, "install Python 3.11 or newer")
    return Check("python", "ok", version)


def _sqlite() -> Check:
    from kesin.store.sqlite.connection import OLDEST_SQLITE

    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        remedy = f"use a Python that comes with SQLite {needed} or newer"
        return Check("sqlite", "failure", sqlite3.sqlite_version, remedy)
    return Check("sqlite", "ok", sqlite3.sqlite_version)


def _settings(settings: Settings) -> Iterator[Check]:
    for one in described(settings):
        yield Check(one.name, "ok", f"{one.value or 'not set'} ({one.source})")


def _strangers() -> Iterator[Check]:
    from kesin.workloads import workloads

    theirs = tuple(f"{PREFIX}{name.upper().replace('-', '_')}_" for name in workloads())
    for name, meant in strangers().items():
        if name.upper().startswith(theirs):  # a workload's own: it knows them itself
            continue
        remedy = f"did you mean {meant}?" if meant else "unset it: nothing reads it"
        yield Check(name, "warning", "no setting of this name", remedy)


def _lifecycles() -> Iterator[Check]:
    for name, make in registry().items():
        proof = prove(make())
        if proof:
            found = f"proved, {proof.bound} automatic moves at most"
            yield Check(f"lifecycle {name}", "ok", found)
        else:
            rules = ", ".join(sorted({one.rule for one in proof.broken}))
            remedy = f"see `kesin lifecycle prove {name}`"
            yield Check(f"lifecycle {name}", "failure", f"breaks {rules}", remedy)


def _folder(settings: Settings) -> Iterator[Check]:
    folder = settings.data_dir
    nearest = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    if not nearest.is_dir():
        yield Check("data folder", "failure", f"{nearest} is a file", "set KESIN_DATA_DIR")
        return
    if not os.access(nearest, os.W_OK | os.X_OK):
        remedy = f"let this user write to {nearest}, or set KESIN_DATA_DIR"
        yield Check("data folder", "failure", f"{folder} cannot be written", remedy)
    elif folder.exists():
        yield Check("data folder", "ok", f"{folder} can be written")
    else:
        yield Check("data folder", "ok", f"{folder} is not there yet; it is made at first use")
    yield _space(nearest)


def _space(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    found = f"{free // MEBIBYTE} MiB free"
    if free < NO_SPACE:
        return Check("disk space", "failure", found, "make room: writes are about to fail")
    if free < LITTLE_SPACE:
        return Check("disk space", "warning", found, "make room soon")
    return Check("disk space", "ok", found)


def _database(settings: Settings) -> Iterator[Check]:
    file = settings.database_file
    if file is not None and not file.exists():
        yield Check("database", "ok", f"{file} is not there yet; it is made at first use")
        return
    try:
        context.check_reachable(settings)
        todo = context.outstanding(settings)
        yield _schema(todo, embedded=file is not None)
        if todo:
            return
        if file is not None:
            yield (about := _file(file))
            if about.status == "failure":
                return
        store = open_stores(settings)
    except MigrationRefused as problem:
        yield Check("schema", "failure", "does not fit this version of kesin", str(problem))
        return
    except StoreTrouble as problem:
        yield Check("database", "failure", problem.what, problem.remedy)
        return
    except Exception as problem:
        told = explain(problem)
        if told is None:
            raise
        remedy = "start the server, or correct KESIN_DATABASE_URL"
        yield Check("database", "failure", masked(told.sentence), remedy)
        return
    try:
        yield from _store(store)
        yield from doctor_service.people(settings, store)
    finally:
        store.close()


def _file(file: Path) -> Check:
    if not os.access(file, os.W_OK):
        remedy = f"let this user write to {file}"
        return Check("database file", "failure", f"{file} cannot be written", remedy)
    found = context.damage(file.resolve(), LOOK_THROUGH_S)
    if found is None:
        return Check("database file", "ok", "can be written, and no damage was found")
    remedy = "stop kesin, keep a copy of the file and what lies beside it, and restore a backup"
    return Check("database file", "failure", f"{file} is damaged ({found})", remedy)


def _schema(todo: list[str], *, embedded: bool) -> Check:
    if not todo:
        return Check("schema", "ok", "up to date")
    found = f"{len(todo)} migrations to apply: {', '.join(todo)}"
    if embedded:
        return Check("schema", "warning", found, "nothing: they are applied at the next start")
    return Check("schema", "failure", found, "run `kesin migrate`")


def _store(store: Store) -> Iterator[Check]:
    health = store.health()
    size = int(health.get("bytes", 0)) // MEBIBYTE
    yield Check("database", "ok", f"{health['store']} {health['version']}, {size} MiB")
    wal = int(health.get("wal_bytes", 0))
    if wal > LARGE_WAL:
        remedy = "close readers that stay open, so that SQLite can fold its journal"
        yield Check("journal", "warning", f"{wal // MEBIBYTE} MiB", remedy)
    if "oldest_snapshot_s" in health:
        yield _snapshot(int(health["oldest_snapshot_s"]))
    before = wall_clock_us()
    there = context.database_time_us(store)
    if there is not None:
        yield _skew((there - (before + wall_clock_us()) / 2) / 1_000_000)
    yield from doctor_service.moved(store)
    for queue in store.queues():
        for pause in doctor_service.pauses(store, queue):
            what = f"{pause.tenant} of {queue}" if pause.tenant else queue
            found = f"by {pause.actor}" + (f": {pause.reason}" if pause.reason else "")
            tenant = f" --tenant {pause.tenant}" if pause.tenant else ""
            yield Check(f"paused {what}", "warning", found, f"`kesin resume {queue}{tenant}`")


def _snapshot(age_s: int) -> Check:
    if age_s > OLD_SNAPSHOT_S:
        remedy = "end the session that holds it (pg_stat_activity): it keeps dead rows alive"
        return Check("oldest snapshot", "warning", lasting(age_s), remedy)
    return Check("oldest snapshot", "ok", lasting(age_s))


def _skew(skew_s: float) -> Check:
    found = f"the database is {abs(skew_s):.3f} s {'ahead' if skew_s > 0 else 'behind'}"
    if abs(skew_s) > SKEW_S:
        return Check("clocks", "warning", found, "synchronise both machines with NTP")
    return Check("clocks", "ok", found)


def _server_programs() -> Check:
    name = "PostgreSQL programs"
    found = shutil.which("initdb") or next(
        (str(path) for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")), None
    )
    if found is None:
        return Check(name, "ok", "none; only the tests of Kesin itself need them")
    return Check(name, "ok", str(Path(found).resolve().parent))
