"""What is known beside the jobs, taken from one store to another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kesin.store.contract import Store
from kesin.store.directory import ApiKey, AuditLine, Person, Secret, Site
from kesin.store.errors import StoreError
from kesin.store.metadata import facts_of
from kesin.store.transfer import copier_for
from kesin.store.transfer.copier_sql import SqlCopier

AT_ONCE: Final = 500  # lines of the audit log
_TABLES: Final = {
    "site": Site._fields,
    "person": Person._fields,
    "api_key": ApiKey._fields,
    "secret": Secret._fields,
}


def copy_directory(source: Store, target: Store) -> dict[str, int]:
    """Sites, people, keys, sealed secrets, and the audit log into a store that has none yet.

    What the target knows by the same name stays as it is there. Sessions are left: people sign in
    again. How many there are of each in the source.
    """
    here, there = _sql(source), _sql(target)
    counts = {}
    with target.home("").transaction():
        for table, columns in _TABLES.items():
            rows = here.rows(f"SELECT {', '.join(columns)} FROM {{}} ORDER BY 1", table)
            there.insert(table, columns, rows)
            counts[table] = len(rows)
        counts["audit"] = 0
        if not there.rows("SELECT id FROM {} LIMIT 1", "audit"):
            for rows in _audit(here):
                there.insert("audit", AuditLine._fields[1:], rows)
                counts["audit"] += len(rows)
    return counts


def copy_facts(source: Store, target: Store, workload: str, *, without: str) -> int:
    """What a workload knows beside its jobs, in place of what the target knew; how many.

    Names that begin with ``without`` are left alone on both sides.
    """
    there = facts_of(target)
    wanted = {
        (one.site, one.name): one
        for one in facts_of(source).facts(workload)
        if not one.name.startswith(without)
    }
    with there.transaction():
        for one in there.facts(workload):
            if (one.site, one.name) not in wanted and not one.name.startswith(without):
                there.drop_fact(workload, one.site, one.name)
        for one in wanted.values():
            there.put_fact(one)
    return len(wanted)


def _audit(here: SqlCopier) -> Iterator[list[tuple[Any, ...]]]:
    """The lines in their order; they are numbered anew where they go."""
    last = 0
    while True:
        wanted = f"SELECT {', '.join(AuditLine._fields)} FROM {{}}"
        rows = here.rows(f"{wanted} WHERE id > {last} ORDER BY id LIMIT {AT_ONCE}", "audit")
        if not rows:
            return
        last = rows[-1][0]
        yield [row[1:] for row in rows]


def _sql(store: Store) -> SqlCopier:
    copier = copier_for(store, "")
    if not isinstance(copier, SqlCopier):
        raise StoreError("people and keys are kept in SQLite or PostgreSQL")
    return copier
