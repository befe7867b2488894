"""The claim of a queue whose claims are limited, in PostgreSQL: it counts slots and rates itself.

Slots have numbers, so that the unique index keeps the limit whatever happens. A claim takes numbers
that no job has and whose advisory lock it gets: others skip them. A lock is for a block of
numbers, so that a large claim needs few. A tenant's rate is a row of ``meter``, which the claim
locks; others skip a locked tenant. What still slips between the snapshot and the lock is a
unique violation, and the claim is repeated.

While a job has a number above a lowered limit, claims take the lowest free ones without a lock:
claims at the same moment take the same ones, and the index lets one of them pass.
"""

from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.declare import Move
from kesin.lifecycle.model import CLOCK_WENT_BACK_S, Meter, meter_of
from kesin.store.sql.compiler import Compiler

LOCKS_OF_CLAIM = 256  # at most, for blocks of slots: PostgreSQL has room for 6,400 by default
BLOCKS_OF_QUEUE = 64  # of the slots of a queue
BLOCKS_OF_TENANT = 8  # of those of a tenant


class LimitedClaim:
    """The fragments of ``due_limited.sql``."""

    def __init__(self, compiler: Compiler, move: Move) -> None:
        self._compiler = compiler
        self._move = move
        self._meter = meter_of(move)
        slots = compiler.lifecycle.capacity_of(move)
        self._per_tenant = bool(slots) and compiler.lifecycle.state[move.to].per_tenant
        self._per_queue = bool(slots) and not self._per_tenant

    def fragments(self, *, lock: str, among: bool) -> dict[str, str]:
        """All but the turns and the condition; without ``lock`` nothing is taken."""
        most, slot, allowed = "%(limit)s", "NULL::text", ["s.n"]
        numbers, open_to, allowance = "", "", ""
        if self._per_queue:
            free = self._free_numbers("''", most, lock=bool(lock))
            numbers = f"numbers AS MATERIALIZED (SELECT {free} AS slots),"
            most = "(SELECT cardinality(slots) FROM numbers)"
            slot = "(SELECT slots FROM numbers)[row_number() OVER ()]"
        elif self._per_tenant:
            free = self._free_numbers("t.tenant", "s.n", lock=bool(lock))
            open_to += f" AND {self._used('t.tenant')} < {self._slots}"
            allowance += f"CROSS JOIN LATERAL (SELECT {free} AS slots OFFSET 0) f\n    "
            allowed.append("cardinality(f.slots)")
            slot = "c.slots[c.nth]"
        if self._meter:
            free_at = f"coalesce((SELECT m.free_at FROM {self._meter_row('t.tenant')}), 0)"
            open_to += f" AND {_left(self._meter, free_at)} > 0"
            allowance += self._tenant_meter(lock=lock.replace(" OF j", ""))
            allowed.append(_left(self._meter, "m.free_at"))
        least = allowed[0] if len(allowed) == 1 else f"least({', '.join(allowed)})"
        due_order = "ORDER BY d.priority DESC, d.run_at, d.id"
        equal = f"{most} / greatest(count(*), 1) AS n, mod({most}, greatest(count(*), 1)) AS more"
        return {
            "numbers": numbers,
            "open_to": open_to,
            "most": most,
            "share": f"{most} AS n, 0 AS more" if among else equal,
            "served": "" if among else f"FROM (SELECT 1 FROM open LIMIT {most}) served",
            "allowance": allowance,
            "allowed": least,
            "tenant_slots": "f.slots" if self._per_tenant else "NULL::text[]",
            "slot": slot,
            "among": " AND j.id = ANY(%(ids)s::uuid[])" if among else "",
            "order": due_order if among else "",
            "written": self._written() if lock else "",
        }

    @property
    def _slots(self) -> str:
        return self._compiler.slots(self._move.to, "%(queue)s")

    def _used(self, tenant: str) -> str:
        return self._compiler.slots_used(self._move.to, "%(queue)s", tenant)

    def _free_numbers(self, tenant: str, wanted: str, *, lock: bool) -> str:
        """An array of free slots, at most as many as wanted."""
        free = self._compiler.free_slots(self._move.to, "%(queue)s", tenant, ", n.n")
        slots = self._compiler.lifecycle.capacity_of(self._move)
        blocks = min(slots, BLOCKS_OF_TENANT if self._per_tenant else BLOCKS_OF_QUEUE)
        block = f"hashtext({tenant})::bigint + (n.n - 1) * {blocks} / {slots}"
        name = "hashtextextended('{schema}:slots:' || %(queue)s, 0)"
        key = f"{name} # ({block} & {LOCKS_OF_CLAIM - 1})"
        locked = f" WHERE n.free > room.n OR pg_try_advisory_xact_lock({key})" if lock else ""
        return (
            "coalesce((SELECT array_agg(g.slot)"
            f" FROM (SELECT {self._slots} - {self._used(tenant)} AS n OFFSET 0) room"
            " CROSS JOIN LATERAL (SELECT n.slot"
            f" FROM (SELECT f.*, count(*) OVER () AS free FROM ({free}) f OFFSET 0) n{locked}"
            f" LIMIT greatest(least({wanted}, room.n), 0)) g), ARRAY[]::text[])"
        )

    def _meter_row(self, tenant: str) -> str:
        move = self._compiler.literal(self._move.name)
        table = self._compiler.dialect.table("meter")
        return f"{table} m WHERE m.queue = %(queue)s AND m.tenant = {tenant} AND m.move = {move}"

    def _tenant_meter(self, *, lock: str) -> str:
        """The tenant's meter, locked; a tenant without one has used nothing."""
        row = self._meter_row("t.tenant")
        return (
            f"LEFT JOIN LATERAL (SELECT m.free_at FROM {row} {lock}) k ON TRUE\n"
            "    CROSS JOIN LATERAL (SELECT coalesce(k.free_at, 0) AS free_at\n"
            f"      WHERE k.free_at IS NOT NULL OR NOT EXISTS (SELECT 1 FROM {row})\n"
            "      OFFSET 0) m\n    "
        )

    def _written(self) -> str:
        """What the claim takes: the slot of each job, and of each tenant's rate what it used."""
        slots = "SELECT jsonb_object_agg(p.id::text, p.slot) AS slots FROM pick p"
        parts = [f"chosen AS MATERIALIZED (\n  {slots}\n)"]
        if self._meter:
            row = self._meter_row("p.tenant")
            table = self._compiler.dialect.table("meter")
            move = self._compiler.literal(self._move.name)
            counted = "(SELECT tenant, count(*) AS n FROM pick GROUP BY tenant) p"
            after = _after(self._meter, "m.free_at", "p.n")
            parts.append(
                f"spent AS (\n  UPDATE {table} m SET free_at = {after}\n  FROM {counted}"
                f" WHERE m.queue = %(queue)s AND m.tenant = p.tenant AND m.move = {move}\n)"
            )
            parts.append(
                f"begun AS (\n  INSERT INTO {table} (queue, tenant, move, free_at)\n"
                f"  SELECT %(queue)s, p.tenant, {move}, {_after(self._meter, '0', 'p.n')}\n"
                f"  FROM {counted} WHERE NOT EXISTS (SELECT 1 FROM {row})\n)"
            )
        return ",\n" + ",\n".join(parts)


_NOW = "(SELECT t FROM clock)"


def _since(meter: Meter, free_at: str) -> str:
    ahead = f"{free_at} > {_NOW} + {meter.per_us + CLOCK_WENT_BACK_S * SECOND_US}"
    near = f"least(greatest({free_at}, {_NOW}), {_NOW} + {meter.per_us})"
    return f"CASE WHEN {ahead} THEN {_NOW} ELSE {near} END"


def _left(meter: Meter, free_at: str) -> str:
    """``Meter.left`` in SQL."""
    unused = f"({_NOW} + {meter.per_us} - {_since(meter, free_at)})"
    return f"({unused} * {meter.claims} / {meter.per_us})"


def _after(meter: Meter, free_at: str, taken: str) -> str:
    """``Meter.after`` in SQL."""
    paid = f"({taken} * {meter.per_us} + {meter.claims - 1}) / {meter.claims}"
    return f"{_since(meter, free_at)} + {paid}"
