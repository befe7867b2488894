"""The store for many machines that share a Redis: every call runs one Lua script atomically.

A queue's keys begin with its name: ``pdf:job:{id}``, ``pdf:key:{key}`` (the job that holds it),
``pdf:jobs:{state}`` by creation, ``pdf:events:{id}``. Redis has no guard against writes that bypass
the scripts, and its durability depends on its persistence settings: see docs/operations.md.
"""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, Literal

import redis

from kesin.foundation.ids import is_id
from kesin.foundation.logs import Logger
from kesin.foundation.text import canonical_json
from kesin.lifecycle.codec import rules_fingerprint
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import STAMP_COLUMNS, Change, Job
from kesin.store import limits
from kesin.store.contract import Moves
from kesin.store.counters import FailureKey, count_failure
from kesin.store.declarations import check_compatible, declared_moves
from kesin.store.errors import StoreUnreachable, UnknownParents, UnknownQueue
from kesin.store.notify import Notifier
from kesin.store.records import (
    Definition,
    FailureCount,
    Filter,
    HeldClaim,
    JobCount,
    Listing,
    NewJobRow,
    Outcome,
    Progress,
    ScheduleRow,
)
from kesin.store.redis.connection import (
    SCHEMA_VERSION,
    QueueUndeclared,
    RedisConnection,
    RedisListener,
    RulesOutdated,
    check_version,
    parse_outcome,
)
from kesin.store.redis.program import SEPARATOR, Program
from kesin.store.redis.reader import RedisReader, conditions_of, parse_job, scan_params
from kesin.store.rules import is_stored, next_version, refuse_occupied, require_upgrade, warn_of_two

log = Logger("kesin.redis")

MAX_SWEPT_PER_SCRIPT: Final = 20_000  # jobs that one script checks before other clients are served


class RedisStore(RedisReader):
    """Jobs in Redis. ``keys_name_tenant``: queues whose dedup keys are unique across tenants."""

    def __init__(self, url: str, *, keys_name_tenant: frozenset[str] = frozenset(), listen: bool = True) -> None:
        self.url = url
        self._keys_name_tenant = keys_name_tenant
        self._queues: dict[str, Program] = {}
        self._undeclared: dict[str, Lifecycle] = {}  # opened while Redis was unreachable
        self._virtual_time: dict[str, bool] = {}  # by queue
        self._notifier = Notifier()
        self._connection = RedisConnection(url, self._declare_again)
        self.client = self._connection.client
        self._listener = RedisListener(self.client, self._notifier) if listen else None

    # Calls and transactions

    def transaction(self) -> AbstractContextManager[redis.Redis]:
        return self._connection.transaction()

    def _items_of(self, program: Program, records: Sequence[Any]) -> list[dict[str, Any]]:
        names = dict(zip(program.lifecycle.stamps, STAMP_COLUMNS, strict=False))
        items = []
        for record in records:
            item = {k: v for k, v in record._asdict().items() if v is not None and k != "stamps"}
            item |= {names[k]: v for k, v in record.stamps.items() if v is not None and k in names}
            items.append(item)
        return items

    def program(self, queue: str) -> Program:
        if queue in self._undeclared:
            self._declare(queue, self._undeclared[queue])
        try:
            return self._queues[queue]
        except KeyError:
            raise UnknownQueue(queue) from None

    def execute_metadata(self, op: str, workload: str, **details: str) -> Any:
        """Run an operation on a workload's metadata, for ``RedisMetadata``."""
        return self._execute(op, {"queue": "", "workload": workload, **details})

    # Schema and queues

    def migrate(self) -> list[str]:
        """Record the version of the key layout; Redis has no tables to migrate."""
        version = self._execute("version", {"queue": ""})
        check_version(version)
        if version == SCHEMA_VERSION:
            return []
        self._execute("put_version", {"queue": "", "version": SCHEMA_VERSION})
        return [f"{int(SCHEMA_VERSION):04d}_keys"]

    def open(self, queue: str, lifecycle: Lifecycle, *, virtual_time: bool = False) -> None:
        """Declare the queue, or at its first use: a service can start while Redis is down."""
        limits.check_queue_name(queue, reserved=("kesin", "rq"))
        self._virtual_time[queue] = virtual_time
        try:
            self._declare(queue, lifecycle)
        except StoreUnreachable:
            self._undeclared[queue] = lifecycle

    def _declare_again(self, queue: str, undeclared: QueueUndeclared) -> None:
        """Declare an open queue again after Redis lost its data; refuse any other queue."""
        program = self._queues.get(queue)
        if program is None:
            raise StoreUnreachable(str(undeclared)) from None
        log.warning("redis_is_empty", queue=queue, why="declared again; its jobs are lost")
        self._declare(queue, program.lifecycle)

    def _declare(self, queue: str, lifecycle: Lifecycle) -> None:
        while not self._declare_once(queue, lifecycle):
            pass  # another version was declared meanwhile: look at it, and judge again

    def _declare_once(self, queue: str, lifecycle: Lifecycle) -> bool:
        moves = declared_moves(queue, lifecycle)
        declared = self.declared(queue)
        new_rules = self._new_rules(queue, lifecycle)  # its refusal says more than the next
        check_compatible(moves, declared)
        stored = rules_fingerprint(lifecycle) if new_rules else self.rules(queue)[-1].fingerprint
        outdated = stored != rules_fingerprint(lifecycle)
        merged = {
            edge: effects._replace(
                mask=effects.mask | declared[edge].mask, slots=declared[edge].slots if outdated else effects.slots
            )
            if edge in declared
            else effects
            for edge, effects in {**declared, **moves}.items()
        }
        masks = {SEPARATOR.join(edge[1:]): effects.mask for edge, effects in merged.items()}
        program = Program(lifecycle, masks, keys_name_tenant=queue in self._keys_name_tenant)
        changed = {edge for edge in moves if declared.get(edge) != merged[edge]}
        states = tuple(state.name for state in lifecycle.states)
        definition = Definition(lifecycle.name, states, lifecycle.stamps, lifecycle.flags)
        _, indexed, version, has_states = self._execute("declared", {"queue": queue})
        check_version(version)
        ages = [age for age in program.indexed_ages() if SEPARATOR.join(age) not in indexed]
        if changed or ages or new_rules or version is None or not has_states:
            items = [(SEPARATOR.join(edge[1:]), canonical_json(list(merged[edge]))) for edge in sorted(changed)]
            params = {"queue": queue, "ages": ages, "version": SCHEMA_VERSION, **new_rules}
            params["definition"] = canonical_json(definition._asdict())
            params["slots"] = {} if outdated else program.slots
            try:
                self._execute("declare", params, program, items=items)
            except RulesOutdated:
                return False
        if queue in self._queues:
            warn_of_two(queue, self._queues[queue].lifecycle, lifecycle)
        self._queues[queue] = program
        self._undeclared.pop(queue, None)
        return True

    def _new_rules(self, queue: str, lifecycle: Lifecycle) -> dict[str, Any]:
        """What stores these rules as a version, if they are none yet and the jobs fit them."""
        stored, virtual_time = self._stored_rules(queue), self._virtual_time.get(queue, False)
        unversioned = [] if stored else self._unversioned_rules(queue)
        versions = [*stored, *unversioned]
        if is_stored(versions, lifecycle, virtual_time=virtual_time):
            return {}
        newest = versions[-1] if versions else None
        retired, counts = self.retired_states(queue), self.move_counts(queue) if versions else []
        require_upgrade(queue, lifecycle, newest, retired, counts)
        rules = next_version(queue, lifecycle, newest, virtual_time=virtual_time)
        return {
            "rules": [json.dumps(version) for version in (*unversioned, rules)],
            "versions": len(stored),
            "retired": len(retired),
            "fingerprint": rules.fingerprint,
        }

    def retire(self, queue: str, state: str, *, now: int | None = None) -> None:
        jobs = self._execute("retire", {"queue": queue, "state": state, "now": now})
        refuse_occupied(queue, state, jobs)

    # Enqueueing

    def enqueue(self, queue: str, jobs: Sequence[NewJobRow], *, actor: str, now: int | None = None) -> list[Outcome]:
        program = self.program(queue)
        limits.check_batch_size(jobs)
        if not jobs:
            return []
        params = {"queue": queue, "actor": actor, "now": now}
        items = self._items_of(program, jobs)
        missing, answers = self._execute("enqueue", params, program, items=items)
        if missing:
            raise UnknownParents(set(missing))
        if any(answer[0] == "inserted" for answer in answers):
            self._notifier.notify(queue)
        return [Outcome(*answer) for answer in answers]

    # Claims

    def _due_jobs(self, queue: str, what: Literal["claim", "peek"], params: dict[str, Any]) -> list[Job]:
        program = self.program(queue)
        params["limit"] = min(params["limit"], program.max_claim)
        rows = self._execute(what, params, program, moves=program.claims)
        return [parse_job(row) for row in rows]

    def renew(self, queue: str, claims: Sequence[HeldClaim], *, lease_us: int, now: int | None = None) -> set[str]:
        program = self.program(queue)
        limits.check_batch_size(claims)
        items = [{"id": job_id, "token": token} for job_id, token in claims if is_id(job_id)]
        params = {"queue": queue, "lease_us": lease_us, "now": now}
        return set(self._execute("renew", params, program, items=items))

    # Moves

    def _apply(self, queue: str, moves: Moves, changes: list[Change], params: dict[str, Any]) -> dict[str, Outcome]:
        program, tenants = self.program(queue), params["tenants"]
        params |= {"call": moves[0].action, "options": program.options(moves, params["options"])}
        params["tenants"] = None if tenants is None else dict.fromkeys(tenants, True)
        if not changes:
            return {}
        items, choice = self._items_of(program, changes), program.alternatives(moves)
        answers = self._execute("apply", params, program, moves=choice, items=items)
        outcomes = {answer[1]: parse_outcome(answer) for answer in answers}
        if any(outcome.result == "moved" for outcome in outcomes.values()):
            self._notifier.notify(queue)
        return outcomes

    def _sweep(self, queue: str, move: Move, params: dict[str, Any]) -> int:
        program, limit = self.program(queue), params["limit"]
        if program.lifecycle.capacity_of(move):
            limit = min(limit, 1)
        params |= {"options": {}, "cap": params.pop("max_attempts")}
        params["most_looked"] = MAX_SWEPT_PER_SCRIPT
        moves = program.alternatives((move,), "clock")
        moved, skip, more = 0, 0, 1
        while more and moved < limit:
            params |= {"limit": limit - moved, "skip": skip}
            done, skip, more = self._execute("sweep", params, program, moves=moves)
            moved += done
        if moved:
            self._notifier.notify(queue)
        return moved

    def settle(self, queue: str, *, limit: int, now: int | None = None) -> int:
        program = self.program(queue)
        if not program.lifecycle.waiting_states:
            return 0
        moves = program.alternatives(limits.moves_for(program.lifecycle, "settle", "clock", queue))
        moved, looked = 0, 1
        while moved < limit and looked:  # one that fails is news for those that come after it
            params = {"queue": queue, "actor": "clock", "limit": limit - moved, "now": now}
            done, looked = self._execute("settle", params, program, moves=moves)
            moved += done
        return moved

    # Beside a job, and counts

    def meters(self, queue: str) -> dict[str, int]:
        rows = self._execute("meters", {"queue": queue, "limit": limits.MAX_BATCH})
        return {tenant: int(free_at) for tenant, free_at in rows}

    def _related(self, queue: str, what: str, params: dict[str, Any]) -> list[Job]:
        self.program(queue)
        rows = self._execute(what, {"queue": queue, **params}) if is_id(params["id"]) else ()
        return list(map(parse_job, rows))

    def _write_progress(self, queue: str, claim: HeldClaim, said: dict[str, Any]) -> bool:
        self.program(queue)
        params = {"queue": queue, "id": claim[0], "token": claim[1], "now": said["now"]}
        text = json.dumps([claim[1], said["fraction"], said["message"]])
        return bool(self._execute("report", {**params, "said": text}))

    def progress(self, queue: str, ids: Sequence[str]) -> dict[str, Progress]:
        self.program(queue)
        found: dict[str, Progress] = {}
        answers = self._execute("progress", {"queue": queue}, items=limits.valid_ids(ids))
        for job_id, text, token in answers:
            said, _, at = (text or "").partition(SEPARATOR)
            claim, fraction, message = json.loads(said) if said else (None, None, None)
            if said and claim == int(token):
                found[job_id] = Progress(int(at), fraction, message)
        return found

    def listing(self, queue: str) -> Listing:
        text = self._execute("listing", {"queue": queue})
        title, search = json.loads(text) if text else ("", ())
        return Listing(title, tuple(search))

    def write_listing(self, queue: str, listing: Listing) -> None:
        self._execute("put_listing", {"queue": queue, "listing": json.dumps(listing)})

    def _failures(self, queue: str, where: Filter, recent_from: int) -> list[FailureCount]:
        lifecycle = self.program(queue).lifecycle
        params = scan_params(queue, {"coded": True})
        params["limit"] = params["most_looked"]
        found: dict[FailureKey, FailureCount] = {}
        pairs, read = self.pairs(queue, where), 0
        next_cursor: str | None = ""
        while next_cursor is not None and read < limits.MAX_FAILURES_READ:
            rows, next_cursor = self._execute("jobs", params, items=pairs)
            params["cursor"], read = next_cursor, read + len(rows)
            for job in map(parse_job, rows):
                count_failure(lifecycle, job, found, recent_from)
        return sorted(found.values())

    def count_matching(
        self, queue: str, where: Filter, *, limit: int, above: str = limits.FIRST_ID, below: str = limits.LAST_ID
    ) -> JobCount:
        if where.text or where.search is not None:  # compared in Python: the jobs are read
            where = replace(where, oldest_first=False)
            page = self.jobs(queue, where, limit=min(limit, limits.MAX_PAGE), cursor=below)
            jobs = [job for job in page.jobs if job.id > above]
            return JobCount(len(jobs), page.cursor is None or len(jobs) < len(page.jobs))
        pairs, fitting, examined, cursor = self.pairs(queue, where), 0, 0, below
        while cursor and examined <= limit:
            params = scan_params(queue, conditions_of(where), cursor=cursor, above=above)
            params["most_looked"] = min(limit + 1 - examined, params["most_looked"])
            found, looked, cursor = self._execute("count", params, items=pairs)
            fitting, examined = fitting + found, examined + looked
        return JobCount(min(fitting, limit), examined <= limit)

    # Notes, counters, pauses and notifications

    def _write(self, queue: str, what: str, row: dict[str, Any]) -> bool:
        return bool(self._execute(what, {"queue": queue, **row}))

    def compact(self, queue: str) -> int:
        """Nothing to merge: Redis keeps one number for each edge."""
        self.program(queue)
        return 0

    def write_schedules(self, queue: str, rows: Sequence[ScheduleRow], *, gone: Sequence[str] = ()) -> None:
        items = [row._asdict() for row in rows]
        self._execute("put_schedules", {"queue": queue, "gone": list(gone)}, items=items)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.stop()
        self._connection.close()
