"""Which jobs a claim takes from a SQLite file: tenants take turns."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from kesin.store.sql.statements import Statements


def due_jobs(
    statements: Statements, params: dict[str, Any], connection: sqlite3.Connection
) -> list[tuple[Any, ...]]:
    """The rows of the due jobs, as the claim sets them, in the order they became due."""
    if "ids" in params:
        return connection.execute(statements.claim_among, params).fetchall()
    limit = params["limit"]
    rows: list[tuple[Any, ...]] = []
    with closing(_open_tenants(statements, params, connection)) as turns:
        served = list(islice(turns, limit))
        share, more = divmod(limit, max(len(served), 1))
        for nth, tenant in enumerate(chain(served, turns)):
            most = min(share + (nth < more), limit - len(rows))
            picked = {**params, "tenant": tenant, "share": most}
            rows += connection.execute(statements.claim_pick, picked).fetchall()
            if len(rows) == limit:
                break
    if len(served) > 1:
        rows.sort(key=itemgetter(-1, 0))
    return [row[:-1] for row in rows]


def _open_tenants(
    statements: Statements, params: dict[str, Any], connection: sqlite3.Connection
) -> Generator[str, None, None]:
    """The tenants with due jobs that are not paused, in the order of their turns."""
    tenants = connection.execute(statements.turns(named="tenants" in params), params)
    with closing(tenants):
        for (tenant,) in tenants:
            if connection.execute(statements.claim_open, {**params, "tenant": tenant}).fetchone():
                yield tenant
