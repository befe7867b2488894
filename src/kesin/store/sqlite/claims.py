"""Which jobs a claim takes from a SQLite file: tenants take turns, within slots and rates."""

import json
import sqlite3
from collections import Counter
from collections.abc import Generator
from contextlib import closing
from itertools import chain, islice
from typing import Any

from kesin.lifecycle.model import meter_of, slot_name
from kesin.store.sql.statements import Statements

LEVELS = (2, 1, 0, -1)  # priorities, the highest first
MAX_WALKED = 1_000  # tenants that a transaction looks at
Row = tuple[Any, ...]
_TENANTS = "SELECT DISTINCT tenant FROM job WHERE id IN (SELECT value FROM json_each(:ids)) AND queue = :queue"
_METER = "SELECT free_at FROM meter WHERE queue = :queue AND tenant = :tenant AND move = :move"
_SPEND = (
    "INSERT INTO meter (queue, tenant, move, free_at) VALUES (:queue, :tenant, :move, :free_at)"
    " ON CONFLICT DO UPDATE SET free_at = excluded.free_at"
)


class Claim:
    """The due jobs of a claim, and what it takes of slots and rates."""

    def __init__(self, statements: Statements, params: dict[str, Any], connection: sqlite3.Connection) -> None:
        self._statements = statements
        self._connection = connection
        self._limited = statements.lifecycle.limited_claim is not None
        self._move = statements.lifecycle.claims[0]  # the only one, if it is limited
        self._meter = meter_of(self._move) if self._limited else None
        self._taken: Counter[str] = Counter()  # by tenant
        self._free: dict[str, list[str]] = {}  # tenant, or '' for the queue → free slots
        self._params = params
        self.walked_to: str | None = None  # the last tenant looked at, where others follow
        self.slots: dict[str, str] = {}  # by job
        self.rows = self._among() if "ids" in params else self._by_turns()

    # The due jobs

    def _by_turns(self) -> list[Row]:
        """The rows of the due jobs, as the claim sets them, in the order they became due."""
        limit = self._most()
        rows: list[Row] = []
        with closing(self._open_tenants()) as turns:
            served = list(islice(turns, limit))
            share, more = divmod(limit, max(len(served), 1))
            for nth, (tenant, levels) in enumerate(chain(served, turns)):
                most = min(share + (nth < more), limit - len(rows), self._left(tenant))
                rows += self._take(tenant, self._picked(tenant, most, levels))
                if len(rows) == limit:
                    break
        if len(served) > 1:
            rows.sort(key=self._statements.claim_decoder.due_order)
        return rows

    def _among(self) -> list[Row]:
        """Those of the named jobs that are due, in the same order."""
        if not self._limited:
            return self._all(self._statements.due("claim_among"), {"tenant": None})
        limit = self._most()
        found: list[Row] = []
        for (tenant,) in self._all(_TENANTS, {}):
            most = {"tenant": tenant, "limit": min(limit, self._left(tenant))}
            found += self._all(self._statements.due("claim_among"), most)
        decoder = self._statements.claim_decoder
        found.sort(key=decoder.due_order)
        return [self._take(decoder.tenant(row), [row])[0] for row in found[:limit]]

    def _picked(self, tenant: str, most: int, levels: tuple[int, ...]) -> list[Row]:
        """The due jobs of a tenant, those of a higher priority first."""
        rows: list[Row] = []
        for level in levels:
            if len(rows) == most:
                break
            picked = {"tenant": tenant, "level": level, "share": most - len(rows)}
            rows += self._all(self._statements.due("claim_pick"), picked)
        return rows

    def _open_tenants(self) -> Generator[tuple[str, tuple[int, ...]], None, None]:
        """The tenants with due jobs that are not paused, in turn, and the queue's priorities."""
        turns = self._statements.turns(named="tenants" in self._params)
        is_open = self._statements.plain("claim_open")
        with closing(self._connection.execute(turns, self._params)) as tenants:
            for walked, (tenant, prior) in enumerate(tenants, 1):
                given = {"tenant": tenant, "levels": "[2, 1, 0, -1]" if prior else "[0]"}
                if self._one(is_open, given) and self._left(tenant):
                    yield tenant, LEVELS if prior else (0,)
                if walked == MAX_WALKED:
                    self.walked_to = tenant
                    return

    def _one(self, sql: str, more: dict[str, Any]) -> Row | None:
        row: Row | None = self._connection.execute(sql, {**self._params, **more}).fetchone()
        return row

    def _all(self, sql: str, more: dict[str, Any]) -> list[Row]:
        return self._connection.execute(sql, {**self._params, **more}).fetchall()

    # Slots and rates

    @property
    def _slots_per(self) -> str | None:
        state = self._statements.lifecycle.state.get(self._move.to) if self._limited else None
        return state.slots_per if state and state.capacity else None

    def _most(self) -> int:
        """The jobs that the claim may take in all."""
        limit: int = self._params["limit"]
        return min(limit, len(self._free_slots(""))) if self._slots_per == "queue" else limit

    def _left(self, tenant: str) -> int:
        """The jobs that it may take of a tenant."""
        left: int = self._params["limit"]
        if self._slots_per == "tenant":
            left = min(left, len(self._free_slots(tenant)))
        if self._meter:
            left = min(left, self._meter.left(self._free_at(tenant), self._params["now"]))
        return left

    def _take(self, tenant: str, rows: list[Row]) -> list[Row]:
        """Give each of these jobs a slot, and count them."""
        self._taken[tenant] += len(rows)
        if self._slots_per:
            free = self._free_slots(tenant if self._slots_per == "tenant" else "")
            self.slots |= {row[0]: free.pop(0) for row in rows}
        return rows

    def _free_slots(self, tenant: str) -> list[str]:
        if tenant not in self._free:
            state, compiler = self._move.to, self._statements.compiler
            [(slots,)] = self._all(f"SELECT {compiler.slots(state, ':queue')}", {})
            rows = f"SELECT s.slot {compiler.slot_rows(state, ':queue', ':tenant')}"
            taken = {row[0] for row in self._all(rows, {"tenant": tenant})}
            names = (slot_name(state, number, tenant) for number in range(1, slots + 1))
            free = (name for name in names if name not in taken)
            most = max(min(slots - len(taken), self._params["limit"]), 0)
            self._free[tenant] = list(islice(free, most))
        return self._free[tenant]

    def _free_at(self, tenant: str) -> int:
        row = self._one(_METER, {"tenant": tenant, "move": self._move.name})
        return row[0] if row else 0

    def goes_on(self, first: str) -> bool:
        """Whether nothing was due so far, and turns that began behind ``first`` are left."""
        start, end = self._params["after"], self.walked_to
        if self.rows or end is None or end == first:
            return False
        return start == first or (end <= first, end) > (start <= first, start)

    def chosen(self) -> dict[str, str]:
        """The jobs, or their slots, as the parameter of the statement that claims them."""
        if self.slots:
            return {"slots": json.dumps(self.slots)}
        return {"ids": json.dumps([row[0] for row in self.rows])}

    def spend(self) -> None:
        """Write what the claim used of each tenant's rate."""
        for tenant, taken in self._taken.items():
            if self._meter:
                free_at = self._meter.after(self._free_at(tenant), self._params["now"], taken)
                self._all(_SPEND, {"tenant": tenant, "move": self._move.name, "free_at": free_at})
