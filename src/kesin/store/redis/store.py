"""The store for many machines that share a Redis: one Lua script, one call, one atomic change.

A queue's keys begin with its name: ``pdf:job:{id}`` is a hash, ``pdf:key:{key}`` the job that
holds a key, ``pdf:jobs:{state}`` its jobs by birth, ``pdf:events:{id}`` a stream. Everything is
read and written by the scripts in ``lua/``; nothing is decided here.

Redis has no guard against those who write past the scripts, and keeps what its persistence
settings keep: docs/scaling.md says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import redis

from kesin.foundation.ids import is_id
from kesin.foundation.logs import Logger
from kesin.foundation.text import canonical_json
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import Role
from kesin.store.declarations import MASK_PLACE, declared_rows, only_added
from kesin.store.errors import StoreError, StoreUnreachable, UnknownQueue
from kesin.store.limits import MAX_BATCH, QUEUE_NAME, askable, bounded
from kesin.store.notify import Pulses
from kesin.store.records import Definition, NewJob, Outcome
from kesin.store.redis.connection import RedisConnection
from kesin.store.redis.program import SEPARATOR, Program
from kesin.store.redis.reader import RedisReader, job_of
from kesin.store.redis.replies import (
    SCHEMA,
    RedisListener,
    Undeclared,
    check_version,
    outcome_of,
)

log = Logger("kesin.redis")

MOST_LOOKED: Final = 20_000  # jobs one script looks at before others get their turn
_STAMPS: Final = ("stamp_1", "stamp_2", "stamp_3", "stamp_4")


class RedisStore(RedisReader):
    """Jobs in Redis. ``own_keys`` names queues whose dedup keys say themselves whose they are."""

    def __init__(
        self, url: str, *, own_keys: frozenset[str] = frozenset(), listen: bool = True
    ) -> None:
        self.url = url
        self._own_keys = own_keys
        self._queues: dict[str, Program] = {}
        self._unsaid: dict[str, Lifecycle] = {}  # opened while Redis was away
        self._pulses = Pulses()
        self._connection = RedisConnection(url, self._declare_again)
        self.client = self._connection.client
        self._listener = RedisListener(self.client, self._pulses) if listen else None

    # Calls and transactions

    def _ask(
        self,
        op: str,
        ask: Mapping[str, Any],
        *,
        life: str = "",
        moves: str = "",
        items: Any = None,
    ) -> Any:
        """Run one call; wait while another transaction is under way."""
        return self._connection.ask(op, ask, life=life, moves=moves, items=items)

    def transaction(self) -> AbstractContextManager[redis.Redis]:
        return self._connection.transaction()

    def _items_of(self, program: Program, things: Sequence[Any]) -> list[dict[str, Any]]:
        names = dict(zip(program.lifecycle.stamps, _STAMPS, strict=False))
        items = []
        for thing in things:
            item = {k: v for k, v in thing._asdict().items() if v is not None and k != "stamps"}
            item |= {names[k]: v for k, v in thing.stamps.items() if v is not None and k in names}
            items.append(item)
        return items

    def program(self, queue: str) -> Program:
        """The queue's lifecycle as the scripts read it."""
        if queue in self._unsaid:
            self._declare(queue, self._unsaid[queue])
        try:
            return self._queues[queue]
        except KeyError:
            raise UnknownQueue(queue) from None

    def ask_facts(self, op: str, workload: str, **details: str) -> Any:
        """What ``RedisFacts`` asks."""
        return self._ask(op, {"queue": "", "workload": workload, **details})

    # Schema and queues

    def migrate(self) -> list[str]:
        """Redis has no tables: only the layout of its keys has a version."""
        found = self._ask("version", {"queue": ""})
        check_version(found)
        if found == SCHEMA:
            return []
        self._ask("put_version", {"queue": "", "version": SCHEMA})
        return [f"{int(SCHEMA):04d}_keys"]

    def open(self, queue: str, lifecycle: Lifecycle) -> None:
        """Where Redis is away it is declared at the first call: a service starts without it."""
        if not QUEUE_NAME.fullmatch(queue) or queue in ("kesin", "rq"):
            raise StoreError(
                f"{queue!r} is no queue name: lower-case letters, digits, - and _, at most 63"
            )
        try:
            self._declare(queue, lifecycle)
        except StoreUnreachable:
            self._unsaid[queue] = lifecycle

    def _declare_again(self, queue: str, forgotten: Undeclared) -> None:
        """Once; a queue that nobody opened here cannot have been forgotten."""
        program = self._queues.get(queue)
        if program is None:
            raise StoreUnreachable(str(forgotten)) from None
        log.warning("redis_is_empty", queue=queue, why="declared again; its jobs are gone")
        self._declare(queue, program.lifecycle)

    def _declare(self, queue: str, lifecycle: Lifecycle) -> None:
        rows = declared_rows(queue, lifecycle)
        known = self._declared(queue)
        for row in rows:
            only_added(row, known.get(row[:4]))
        masks: dict[str, int] = {}
        for (_, move, source, target), rest in {**known, **{r[:4]: r[4:] for r in rows}}.items():
            before = known.get((queue, move, source, target))
            mask = rest[MASK_PLACE] | (before[MASK_PLACE] if before else 0)
            masks[SEPARATOR.join((move, source, target))] = mask
        program = Program(lifecycle, masks, own_keys=queue in self._own_keys)
        changed = [row for row in rows if _missing(row, known)]
        states = tuple(state.name for state in lifecycle.states)
        definition = Definition(lifecycle.name, states, lifecycle.stamps, lifecycle.flags)
        _, indexed, version = self._ask("declared", {"queue": queue})
        check_version(version)
        ages = [one for one in program.ages() if SEPARATOR.join(one) not in indexed]
        if changed or ages or version is None:
            items = [
                (SEPARATOR.join(map(str, row[1:4])), canonical_json(_with_mask(row, masks)))
                for row in changed
            ]
            told = canonical_json(definition._asdict())
            ask = {"queue": queue, "definition": told, "ages": ages, "version": SCHEMA}
            self._ask("declare", ask, life=program.life, items=items)
        self._queues[queue] = program
        self._unsaid.pop(queue, None)

    # Births

    def enqueue(
        self, queue: str, jobs: Sequence[NewJob], *, actor: str, now: int | None = None
    ) -> list[Outcome]:
        program = self.program(queue)
        bounded(jobs)
        if not jobs:
            return []
        ask = {"queue": queue, "actor": actor, "now": now}
        items = self._items_of(program, jobs)
        answers = self._ask("enqueue", ask, life=program.life, items=items)
        if any(answer[0] == "inserted" for answer in answers):
            self._pulses.beat(queue)
        return [Outcome(*answer) for answer in answers]

    # Claims

    def claim(
        self,
        queue: str,
        *,
        worker: str,
        limit: int,
        lease_us: int,
        tenants: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        now: int | None = None,
    ) -> list[Job]:
        program = self.program(queue)
        if ids is not None:
            bounded(ids)
            ids = [one for one in dict.fromkeys(ids) if is_id(one)]
        ask = {
            "queue": queue,
            "worker": worker,
            "actor": worker,
            "limit": min(limit, 1 if program.claims_slot else MAX_BATCH),
            "lease_us": lease_us,
            "tenants": None if tenants is None or ids is not None else list(tenants),
            "ids": ids,
            "now": now,
        }
        rows = self._ask("claim", ask, life=program.life, moves=program.claims)
        return [job_of(row) for row in rows]

    def renew(
        self,
        queue: str,
        claims: Sequence[tuple[str, int]],
        *,
        lease_us: int,
        now: int | None = None,
    ) -> set[str]:
        program = self.program(queue)
        bounded(claims)
        items = [{"id": one, "token": token} for one, token in claims if is_id(one)]
        ask = {"queue": queue, "lease_us": lease_us, "now": now}
        return set(self._ask("renew", ask, life=program.life, items=items))

    # Moves

    def apply(
        self,
        queue: str,
        call: str,
        changes: Sequence[Change],
        *,
        role: Role,
        actor: str,
        options: frozenset[str] = frozenset(),
        tenants: Sequence[str] | None = None,
        now: int | None = None,
    ) -> list[Outcome]:
        program = self.program(queue)
        moves = program.asked(call, role, queue)
        asked = askable(call, moves, changes)
        ask = {
            "queue": queue,
            "actor": actor,
            "call": moves[0].call,
            "now": now,
            "options": program.options(moves, options),
            "tenants": None if tenants is None else dict.fromkeys(tenants, True),
        }
        answers: list[Any] = []
        if asked:
            items = self._items_of(program, asked)
            answers = self._ask(
                "apply", ask, life=program.life, moves=program.call(moves), items=items
            )
        judged = {answer[1]: outcome_of(answer) for answer in answers}
        if any(one.result == "moved" for one in judged.values()):
            self._pulses.beat(queue)
        return [judged.get(change.id) or Outcome("unknown", change.id) for change in changes]

    def sweep(
        self,
        queue: str,
        move: Move,
        *,
        limit: int,
        now: int | None = None,
        min_age_us: int = 0,
        max_attempts: int | None = None,
    ) -> int:
        program = self.program(queue)
        limit = min(limit, 1 if program.takes_slot(move) else MAX_BATCH)
        ask: dict[str, Any] = {
            "queue": queue,
            "actor": "clock",
            "now": now,
            "min_age_us": min_age_us,
            "cap": max_attempts,
            "options": {},
            "most_looked": MOST_LOOKED,
        }
        moved, skip, more = 0, 0, 1
        while more and moved < limit:
            ask |= {"limit": limit - moved, "skip": skip}
            done, skip, more = self._ask("sweep", ask, life=program.life, moves=program.sweep(move))
            moved += done
        if moved:
            self._pulses.beat(queue)
        return moved

    # The rest

    def add_note(
        self,
        queue: str,
        *,
        kind: str,
        actor: str,
        tenant: str = "default",  # noqa: ARG002  # Redis keeps a note with its job
        job_id: str | None = None,
        details: str | None = None,
        now: int | None = None,
    ) -> None:
        ask = {
            "queue": queue,
            "kind": kind,
            "actor": actor,
            "job_id": job_id,
            "details": details,
            "now": now,
        }
        self._ask("add_note", ask)

    def compact(self, queue: str) -> int:
        """Nothing to fold: a counter is one number an edge."""
        self.program(queue)
        return 0

    def pause(
        self,
        queue: str,
        *,
        tenant: str = "",
        actor: str,
        reason: str | None = None,
        now: int | None = None,
    ) -> None:
        ask = {"queue": queue, "tenant": tenant, "actor": actor, "reason": reason, "now": now}
        self._ask("pause", ask)

    def resume(self, queue: str, *, tenant: str = "") -> bool:
        gone = self._ask("resume", {"queue": queue, "tenant": tenant})
        self._pulses.beat(queue)
        return bool(gone)

    def pulse(self, queue: str) -> int:
        if self._listener is not None:
            self._listener.start()
        return self._pulses.read(queue)

    def wait(self, queue: str, since: int, timeout_s: float) -> None:
        self._pulses.wait(queue, since, timeout_s)

    def wake(self, queue: str) -> None:
        self._pulses.beat(queue)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.stop()
        self._connection.close()


def _missing(row: tuple[Any, ...], known: Mapping[tuple[Any, ...], tuple[Any, ...]]) -> bool:
    before = known.get(row[:4])
    return before is None or (before[MASK_PLACE] | row[4 + MASK_PLACE]) != before[MASK_PLACE]


def _with_mask(row: tuple[Any, ...], masks: Mapping[str, int]) -> list[Any]:
    rest = list(row[4:])
    rest[MASK_PLACE] = masks[SEPARATOR.join(row[1:4])]
    return rest
