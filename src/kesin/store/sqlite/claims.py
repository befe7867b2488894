"""Which jobs a claim takes from a SQLite file: tenants take turns."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator
from contextlib import closing
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from kesin.store.sql.statements import Statements

LEVELS = (2, 1, 0, -1)  # priorities, the highest first


def due_jobs(
    statements: Statements, params: dict[str, Any], connection: sqlite3.Connection
) -> list[tuple[Any, ...]]:
    """The rows of the due jobs, as the claim sets them, in the order they became due."""
    if "ids" in params:
        return connection.execute(statements.claim_among, params).fetchall()
    limit = params["limit"]
    has_levels = connection.execute(statements.claim_levels, params).fetchone()
    levels = LEVELS if has_levels else (0,)
    params = {**params, "levels": json.dumps(levels)}
    rows: list[tuple[Any, ...]] = []
    with closing(_open_tenants(statements, params, connection)) as turns:
        served = list(islice(turns, limit))
        share, more = divmod(limit, max(len(served), 1))
        for nth, tenant in enumerate(chain(served, turns)):
            most = min(share + (nth < more), limit - len(rows))
            rows += _picked(statements, {**params, "tenant": tenant}, most, levels, connection)
            if len(rows) == limit:
                break
    if len(served) > 1:
        rows.sort(key=itemgetter(-2, -1, 0))
    return [row[:-2] for row in rows]


def _picked(
    statements: Statements,
    params: dict[str, Any],
    most: int,
    levels: tuple[int, ...],
    connection: sqlite3.Connection,
) -> list[tuple[Any, ...]]:
    """The due jobs of a tenant, those of a higher priority first."""
    rows: list[tuple[Any, ...]] = []
    for level in levels:
        picked = {**params, "level": level, "share": most - len(rows)}
        rows += connection.execute(statements.claim_pick, picked).fetchall()
        if len(rows) == most:
            break
    return rows


def _open_tenants(
    statements: Statements, params: dict[str, Any], connection: sqlite3.Connection
) -> Generator[str, None, None]:
    """The tenants with due jobs that are not paused, in the order of their turns."""
    tenants = connection.execute(statements.turns(named="tenants" in params), params)
    with closing(tenants):
        for (tenant,) in tenants:
            if connection.execute(statements.claim_open, {**params, "tenant": tenant}).fetchone():
                yield tenant
