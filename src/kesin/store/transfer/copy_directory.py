"""Copies the directory tables and the metadata of workloads to another store."""

from collections.abc import Iterator
from typing import Any, Final

from kesin.store.audit_chain import AuditHead, AuditLine
from kesin.store.contract import Store
from kesin.store.directory import ApiKey, Secret, Site, User
from kesin.store.errors import StoreError
from kesin.store.metadata import metadata_for
from kesin.store.transfer import copier_for
from kesin.store.transfer.copier_sql import SqlCopier

AUDIT_BATCH: Final = 500  # lines of the audit log
_AUDIT_COLUMNS: Final = (*AuditLine._fields, *AuditHead._fields)
_TABLES: Final = {
    "site": Site._fields,
    "person": User._fields,
    "api_key": ApiKey._fields,
    "secret": Secret._fields,
}


def copy_directory(source: Store, target: Store) -> dict[str, int]:
    """Copy sites, users, keys, secrets and the audit log; return how many of each were read.

    Rows that exist in the target stay unchanged, and the audit log is copied only into an empty
    one, with its chain: what is missing in the source is missing in the copy. Sessions are not
    copied: users sign in again.
    """
    source_copier, target_copier = _sql_copier(source), _sql_copier(target)
    counts = {"audit": 0}
    with target.store_for("").transaction():
        for table, columns in _TABLES.items():
            rows = source_copier.rows(f"SELECT {', '.join(columns)} FROM {{}} ORDER BY 1", table)
            target_copier.insert(table, columns, rows, skip=True)
            counts[table] = len(rows)
        if not any(
            target_copier.rows("SELECT id FROM {} LIMIT 1", table)
            for table in ("audit", "audit_head")
        ):
            counts["audit"] = _copy_audit_log(source_copier, target_copier)
    return counts


def copy_metadata(source: Store, target: Store, workload: str, *, without: str) -> int:
    """Replace a workload's metadata in the target by the source's; return how many entries.

    Names that begin with ``without`` are ignored on both sides.
    """
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


def _copy_audit_log(source_copier: SqlCopier, target_copier: SqlCopier) -> int:
    """Copy the lines up to the head of the chain, then the head; return how many lines."""
    heads = source_copier.rows("SELECT seq, hash FROM {}", "audit_head")
    head = AuditHead._make(heads[0]) if heads else None
    copied = 0
    for rows in _audit_batches(source_copier, head):
        target_copier.insert("audit", _AUDIT_COLUMNS[1:], rows)
        copied += len(rows)
    if head is not None:
        target_copier.insert("audit_head", ("id", *AuditHead._fields), [(1, *head)])
    return copied


def _audit_batches(copier: SqlCopier, head: AuditHead | None) -> Iterator[list[tuple[Any, ...]]]:
    """The audit lines in order, without their ids: the target assigns new ones."""
    last, copied = 0, f"(seq IS NULL OR seq <= {head.seq if head else 0})"
    while True:
        select = f"SELECT {', '.join(_AUDIT_COLUMNS)} FROM {{}}"
        rows = copier.rows(
            f"{select} WHERE id > {last} AND {copied} ORDER BY id LIMIT {AUDIT_BATCH}", "audit"
        )
        if not rows:
            return
        last = rows[-1][0]
        yield [row[1:] for row in rows]


def _sql_copier(store: Store) -> SqlCopier:
    copier = copier_for(store, "")
    if not isinstance(copier, SqlCopier):
        raise StoreError("people and keys are kept in SQLite or PostgreSQL")
    return copier
