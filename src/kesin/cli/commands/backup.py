"""`kesin backup` and `kesin restore`: write the installation into a folder, and restore it."""

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kesin.cli.commands.audit import print_audit_log, print_reports, replay_queues
from kesin.cli.support.arguments import AsJson, argument, flag
from kesin.cli.support.context import CommandContext, local_operator
from kesin.cli.support.errors import FAILED
from kesin.engine.access.audit_verification import AuditVerification, verify_audit_log
from kesin.engine.access.vault import unopened_secrets
from kesin.engine.transfer import restore as restoring
from kesin.engine.transfer.backup import BackupFile, Manifest, back_up
from kesin.foundation.encryption import SETTING, key_ring, signing_key_id
from kesin.foundation.settings import Settings, mask_secrets
from kesin.foundation.terminal import bars, format_counts, print_table, say, say_json, visible, warn
from kesin.store.audit_log import AuditHead
from kesin.store.directory import Directory
from kesin.store.open import open_store
from kesin.store.postgres.reachability import check_reachable
from kesin.store.transfer import dump_for
from kesin.workloads import workloads
from kesin.workloads.common.cli import read_settings

DATA: Final = "data"  # in a backup, what lies below the data folder


def backup(target: Annotated[Path, argument("TARGET", "The folder to create.")], as_json: AsJson = False) -> None:
    """Write a backup into a new folder.

    Queues keep running. The backup contains the state at a single point in time: jobs with their
    history, users, API keys, sites, sealed secrets, the audit log, and the workloads' files. The
    backup is signed with the first key of KESIN_SECRET_KEYS but does not contain these keys. The
    command lists what else is not included.
    """
    settings = read_settings()
    check_reachable(settings)
    files, left_out = files_to_back_up(settings)
    ring = key_ring(settings)
    with bars(shown=not as_json, of_bytes=True) as bar:
        watch = partial(bar, "backing up")
        manifest = back_up(dump_for(settings.database), target, files, left_out, watch, ring=ring)
    signed_with = ring.first if ring else None
    if as_json:
        record = {"backup": str(target.absolute()), **manifest.as_record()}
        say_json({**record, "signed_with": signed_with})
        return
    _print_jobs(manifest)
    for name in manifest.vanished:
        warn(f"{visible(name)} was deleted while it was being copied")
    for sentence in manifest.left_out:
        say(f"not included: {visible(sentence)}")
    say(f"{target} contains {manifest.bytes} bytes in {manifest.files} files and the database")
    if signed_with is None:
        warn(f"the backup is not signed, so a later change would not be noticed: set {SETTING}")


def files_to_back_up(settings: Settings) -> tuple[list[BackupFile], list[str]]:
    """The files that belong to the jobs, and a sentence for each thing that no backup holds."""
    files: list[BackupFile] = []
    left_out: list[str] = []
    for workload in workloads().values():
        for item in workload.backup_files(settings) if workload.backup_files else ():
            if isinstance(item, str):
                left_out.append(item)
            else:
                files.append(item)
    if settings.redis_url:
        address = mask_secrets(settings.redis_url)
        instead = "back up the files of Redis, or use `kesin store copy --keep-source-running`"
        left_out.append(f"PDF jobs in {address}: {instead}")
    if settings.secret_keys:
        left_out.append("KESIN_SECRET_KEYS: keep a copy elsewhere; these keys open the secrets")
    return files, left_out


def _print_jobs(manifest: Manifest) -> None:
    counts = manifest.queues.items()
    rows = [(queue, sum(states.values()), format_counts(states)) for queue, states in counts]
    print_table(("queue", "jobs", "states"), rows, empty="no queue has been opened yet")


def restore(
    source: Annotated[Path, argument("SOURCE", "The backup's folder.")],
    *,
    check: Annotated[bool, flag("--check", "Only check that the backup is complete.")] = False,
    replace: Annotated[bool, flag("--replace", "Replace the contents of the database.")] = False,
    allow_unsigned: Annotated[
        bool, flag("--allow-unsigned", "Accept a backup that is unsigned, or signed with an unknown key.")
    ] = False,
    resume: Annotated[bool, flag("--resume", "Resume the queues after the restore.")] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into the configured database.

    First stop every Kesin process that uses the database. The command reads the whole backup and
    checks its signature with KESIN_SECRET_KEYS before it changes anything. It ends all sessions,
    applies missing migrations, replays all events, verifies the audit log, and exits with 1 if it
    finds a difference. Queues stay paused, because jobs that ran after the backup would run again.
    """
    settings = read_settings()
    backup = restoring.read_backup(source)
    manifest, ring = backup.manifest, key_ring(settings)
    signed_with = restoring.check_signature(backup, ring, allow_unsigned=allow_unsigned or check)
    if check and as_json:
        record = {**manifest.as_record(), "outstanding": list(backup.pending)}
        say_json({**record, "signed_with": signed_with})
        return
    if check:
        _print_jobs(manifest)
        made = f"created at {manifest.made_at} by kesin {manifest.kesin}"
        say(f"{source} is complete: {manifest.bytes} bytes, {made}")
        say(_describe_signature(backup, signed_with))
        return
    check_reachable(settings)
    reason = f"restored from {source.name}, a backup of {manifest.made_at}"
    actor, paused = local_operator(), not resume
    secure = partial(restoring.secure_restored, actor=actor, reason=reason, paused=paused)
    with bars(shown=not as_json, of_bytes=True) as bar:
        dump, watch = dump_for(settings.database), partial(bar, "restoring")
        restoring.restore(backup, dump, _restore_paths(settings), secure, watch, replace=replace)
    reports, log, closed = _verify(settings, backup.audit_head, shown=not as_json)
    if as_json:
        outcome = {"applied": list(backup.pending), "closed_secrets": closed}
        checks = {"signed_with": signed_with, "audit_log": log.as_record(), "queues": reports}
        say_json({**manifest.as_record(), **outcome, "paused": not resume, **checks})
    else:
        print_reports(reports)
        print_audit_log(log)
        _print_restored(backup, closed, resume=resume)
    if log.problems or any(report["different"] for report in reports):
        raise typer.Exit(FAILED)


def _describe_signature(backup: restoring.Backup, signed_with: str | None) -> str:
    if signed_with is not None:
        return f"it was signed with the key {signed_with} and has not changed since"
    if backup.signature is None:
        return "it is not signed, so a later change would not be noticed"
    key_id = signing_key_id(backup.signature)
    return f"its signature was not checked: the key {key_id} is not in {SETTING}"


def _restore_paths(settings: Settings) -> list[BackupFile]:
    """Where files go: by the present settings, and else below the data folder as before."""
    files, _ = files_to_back_up(settings)
    named = [file for file in files if not file.name.startswith(f"{DATA}/")]
    return [*named, BackupFile(DATA, settings.data_dir.absolute())]


def _verify(
    settings: Settings, audit_head: AuditHead | None, *, shown: bool
) -> tuple[list[dict[str, Any]], AuditVerification, list[str]]:
    with closing(open_store(settings.database, migrate=False)) as store:
        queues = CommandContext(settings, store).readable_queues(None)
        reports = replay_queues(store, queues, shown=shown)
        directory = Directory(store)
        log = verify_audit_log(directory, audit_head)
        return reports, log, unopened_secrets(directory, key_ring(settings))


def _print_restored(backup: restoring.Backup, closed: list[str], *, resume: bool) -> None:
    for name in backup.pending:
        say(f"applied {name}")
    for sentence in backup.manifest.left_out:
        say(f"not included: {visible(sentence)}")
    if closed:
        keys = ", ".join(backup.manifest.secret_keys)
        remedy = f"KESIN_SECRET_KEYS needs the keys {keys}"
        warn(f"unreadable secrets: {len(closed)}, such as {visible(closed[0])}; {remedy}")
    say(f"restored the state of {backup.manifest.made_at}; all users must sign in again")
    if not resume:
        say("queues are paused: after `kesin resume QUEUE`, jobs that ran since the backup run again")
