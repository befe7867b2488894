"""Copies the directory tables and the metadata of workloads to another store."""

from itertools import islice
from typing import Final

from kesin.store.audit_log import AuditHead, AuditLine, AuditLog
from kesin.store.contract import Store
from kesin.store.directory import ApiKey, Directory, Secret, Site, User
from kesin.store.errors import StoreError
from kesin.store.metadata import metadata_for
from kesin.store.transfer import copier_for
from kesin.store.transfer.copier_sql import SqlCopier

AUDIT_BATCH: Final = 500  # lines of the audit log
_AUDIT_COLUMNS: Final = (*AuditLine._fields[1:], *AuditHead._fields)
_TABLES: Final = {
    "site": Site._fields,
    "person": User._fields,
    "api_key": ApiKey._fields,
    "secret": Secret._fields,
}  # no sessions: users sign in again


def copy_directory(source: Store, target: Store) -> dict[str, int]:
    """Copy sites, users, keys and secrets that are new, and the audit log into an empty one."""
    source_copier, target_copier = _sql_copier(source), _sql_copier(target)
    counts = {"audit": 0}
    with target.store_for("").transaction():
        for table, columns in _TABLES.items():
            rows = source_copier.rows(f"SELECT {', '.join(columns)} FROM {{}} ORDER BY 1", table)
            target_copier.insert(table, columns, rows, skip=True)
            counts[table] = len(rows)
        if not any(target_copier.rows("SELECT id FROM {} LIMIT 1", table) for table in ("audit", "audit_head")):
            counts["audit"] = _copy_audit_log(Directory(source), target_copier)
    return counts


def copy_metadata(source: Store, target: Store, workload: str, *, without: str) -> int:
    """Replace a workload's metadata by the source's, except names that begin with ``without``."""
    target_metadata = metadata_for(target)
    kept = metadata_for(source).metadata_entries(workload)
    kept = [entry for entry in kept if not entry.name.startswith(without)]
    entries = {(entry.site, entry.name): entry for entry in kept}
    with target_metadata.transaction():
        for entry in target_metadata.metadata_entries(workload):
            if (entry.site, entry.name) not in entries and not entry.name.startswith(without):
                target_metadata.delete_metadata(workload, entry.site, entry.name)
        for entry in entries.values():
            target_metadata.put_metadata(entry)
    return len(entries)


def _copy_audit_log(source: AuditLog, target_copier: SqlCopier) -> int:
    """Copy the lines up to the head without their ids, then the head; return how many lines."""
    head, copied = source.audit_head(), 0
    end = head.seq if head else 0
    rows = (
        (*line[1:4], int(line.allowed), *line[5:], seq, line_hash)
        for line, seq, line_hash in source.audit_chain()
        if (seq or 0) <= end
    )
    while batch := list(islice(rows, AUDIT_BATCH)):
        target_copier.insert("audit", _AUDIT_COLUMNS, batch)
        copied += len(batch)
    if head is not None:
        target_copier.insert("audit_head", ("id", *AuditHead._fields), [(1, *head)])
    return copied


def _sql_copier(store: Store) -> SqlCopier:
    copier = copier_for(store, "")
    if not isinstance(copier, SqlCopier):
        raise StoreError("users and keys are kept in SQLite or PostgreSQL")
    return copier
