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
from kesin.lifecycle.model import CLOCK_WENT_BACK_S, meter_of
from kesin.store.sql.compiler import Compiler
from kesin.store.sql.dialect import fill, shared_statements

LOCKS_OF_CLAIM = 256  # at most, for blocks of slots: PostgreSQL has room for 6,400 by default
BLOCKS_OF_QUEUE = 64  # of the slots of a queue
BLOCKS_OF_TENANT = 8  # of those of a tenant


class LimitedClaim:
    """The fragments of ``due_limited.sql``."""

    def __init__(self, compiler: Compiler, move: Move) -> None:
        self._compiler = compiler
        self._move = move
        self._capacity = compiler.lifecycle.capacity_of(move)
        self._per_tenant = bool(self._capacity) and compiler.lifecycle.state[move.to].per_tenant
        self._fixed = {"schema": "{schema}", "move": compiler.literal(move.name)}
        if meter := meter_of(move):
            ahead = meter.per_us + CLOCK_WENT_BACK_S * SECOND_US
            numbers = {"per_us": meter.per_us, "claims": meter.claims, "to_round": meter.claims - 1, "ahead": ahead}
            self._fixed |= {name: str(number) for name, number in numbers.items()}
        self._has_meter = meter is not None

    def _part(self, name: str, **gaps: str) -> str:
        return fill(shared_statements("postgres/limited")[name], self._fixed | gaps)

    def fragments(self, *, lock: str, among: bool) -> dict[str, str]:
        """All but the turns and the condition; without ``lock`` nothing is taken."""
        most, slot, allowed = "%(limit)s", "NULL::text", ["s.n"]
        numbers, open_to, allowance = "", "", []
        if self._per_tenant:
            open_to += f" AND {self._used('t.tenant')} < {self._slots}"
            allowance.append(self._part("tenant_slots", free=self._free("t.tenant", "s.n", lock=lock)))
            allowed.append("cardinality(f.slots)")
            slot = "c.slots[c.nth]"
        elif self._capacity:
            numbers = self._part("queue_slots", free=self._free("''", most, lock=lock))
            most = "(SELECT cardinality(slots) FROM numbers)"
            slot = "(SELECT slots FROM numbers)[row_number() OVER ()]"
        if self._has_meter:
            meter = self._part("meter", tenant="t.tenant")
            open_to += f" AND {self._left(f'coalesce((SELECT m.free_at FROM {meter}), 0)')} > 0"
            allowance.append(self._part("tenant_meter", meter=meter, lock=lock.replace(" OF j", "")))
            allowed.append(self._left("m.free_at"))
        return {
            "numbers": numbers,
            "open_to": open_to,
            "most": most,
            "share": f"{most} AS n, 0 AS more" if among else self._part("equal_share", most=most),
            "served": "" if among else f"FROM (SELECT 1 FROM open LIMIT {most}) served",
            "allowance": "\n    ".join(allowance),
            "allowed": allowed[0] if len(allowed) == 1 else f"least({', '.join(allowed)})",
            "tenant_slots": "f.slots" if self._per_tenant else "NULL::text[]",
            "slot": slot,
            "among": " AND j.id = ANY(%(ids)s::uuid[])" if among else "",
            "order": "ORDER BY d.priority DESC, d.run_at, d.id" if among else "",
            "written": self._written() if lock else "",
        }

    @property
    def _slots(self) -> str:
        return self._compiler.slots(self._move.to, "%(queue)s")

    def _used(self, tenant: str) -> str:
        return self._compiler.slots_used(self._move.to, "%(queue)s", tenant)

    def _free(self, tenant: str, wanted: str, *, lock: str) -> str:
        """An array of free slots, at most as many as wanted."""
        free = self._compiler.free_slots(self._move.to, "%(queue)s", tenant, ", n.n")
        blocks = min(self._capacity, BLOCKS_OF_TENANT if self._per_tenant else BLOCKS_OF_QUEUE)
        numbers = {"blocks": str(blocks), "most": str(self._capacity), "locks": str(LOCKS_OF_CLAIM - 1)}
        locked = self._part("locked", tenant=tenant, **numbers) if lock else ""
        return self._part("free", slots=self._slots, used=self._used(tenant), free=free, wanted=wanted, locked=locked)

    def _written(self) -> str:
        """What the claim takes: the slot of each job, and of each tenant's rate what it used."""
        if not self._has_meter:
            return self._part("chosen")
        again, first = self._after("m.free_at"), self._after("0")
        meter = self._part("meter", tenant="p.tenant")
        return self._part("chosen") + self._part("spent", again=again, first=first, meter=meter)

    def _left(self, free_at: str) -> str:
        """``Meter.left`` in SQL."""
        return self._part("left", since=self._part("since", free_at=free_at))

    def _after(self, free_at: str) -> str:
        """``Meter.after`` in SQL, for the jobs that a tenant's claim takes."""
        return self._part("after", since=self._part("since", free_at=free_at), taken="p.n")
