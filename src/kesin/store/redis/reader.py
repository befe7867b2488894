"""Reading from Redis, many jobs in several scripts: other clients are served in between."""

import json
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import redis

from kesin.foundation.ids import is_id
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import JOB_COLUMNS, Job
from kesin.store import limits
from kesin.store.contract import Moves, Store
from kesin.store.counters import count_jobs
from kesin.store.declarations import Edge, Effects
from kesin.store.errors import StoreUnreachable
from kesin.store.records import (
    AgedSince,
    Backlog,
    Definition,
    Event,
    Filter,
    MoveCount,
    Note,
    Page,
    Pause,
    QueueStats,
    RulesVersion,
    ScheduleRow,
)
from kesin.store.redis.connection import Params, RedisConnection
from kesin.store.redis.program import NUMBERS, SEPARATOR, Program
from kesin.store.search import is_found

HISTORIES_PER_SCRIPT: Final = 200  # histories that one script reads
MAX_LISTED_PER_SCRIPT: Final = 5_000  # jobs that one script reads for a page
MAX_SEARCHED: Final = 10_000  # newest jobs whose fields a search looks at: Redis has no terms
_NUMBERS: Final = tuple(JOB_COLUMNS.index(name) for name in NUMBERS)
_EVENT_NUMBERS: Final = frozenset(name for name, kind in Event.__annotations__.items() if "int" in str(kind))


def parse_job(row: list[Any]) -> Job:
    for index in _NUMBERS:
        value = row[index]
        if value is not None:
            row[index] = int(value)
    row[-2:] = row[-2] or 0, row[-1] or 0  # once and priority, which older jobs lack
    return Job._make(row)


def parse_event(job_id: str, entry: tuple[str, Any]) -> Event:
    """An event from an entry of the job's stream; its id is the event's number."""
    number, fields = entry
    values_by_name = dict(zip(fields[::2], fields[1::2], strict=True))
    values: dict[str, Any] = {**dict.fromkeys(Event._fields), "priority": 0}
    for name, value in values_by_name.items():
        values[name] = int(value) if name in _EVENT_NUMBERS else value
    values |= {"job_id": job_id, "seq": int(number.partition("-")[0])}
    return Event(**values)


def parse_note(job_id: str | None, text: str) -> Note:
    at, kind, actor, details = json.loads(text)
    return Note(job_id, int(at), kind, actor, details)


class RedisReader(Store):
    """The reading half of the Redis store."""

    client: redis.Redis
    _connection: RedisConnection

    def _execute(
        self, op: str, params: Params, program: Program | None = None, *, moves: str = "", items: Any = None
    ) -> Any:
        """Run one operation of the script, with the lifecycle of its queue if it needs one."""
        rules = program.lifecycle_json if program else ""
        return self._connection.execute(op, params, rules=rules, moves=moves, items=items)

    @abstractmethod
    def program(self, queue: str) -> Program:
        """The queue's lifecycle as the script reads it."""

    def _lifecycle(self, queue: str) -> Lifecycle:
        return self.program(queue).lifecycle

    def declared(self, queue: str) -> dict[Edge, Effects]:
        flat, *_ = self._execute("declared", {"queue": queue})
        declared: dict[Edge, Effects] = {}
        for name, text in zip(flat[::2], flat[1::2], strict=True):
            move, source, target = name.split(SEPARATOR)
            effects = Effects(*json.loads(text))
            if effects.slot is not None:  # older versions did not store the number
                effects = effects._replace(slots=effects.slots or 1)
            declared[queue, move, source, target] = effects
        return declared

    def rules(self, queue: str) -> list[RulesVersion]:
        return self._stored_rules(queue) or self._unversioned_rules(queue)

    def _stored_rules(self, queue: str) -> list[RulesVersion]:
        texts = self._execute("rules", {"queue": queue})
        return [RulesVersion(*json.loads(text)) for text in texts]

    def _unversioned_rules(self, queue: str) -> list[RulesVersion]:
        """What was declared before versions were stored, as version 0."""
        names = self.definition(queue)
        if names is None:
            return []
        text = json.dumps({**names._asdict(), "edges": [edge[1:] for edge in self.declared(queue)]})
        return [RulesVersion(queue, 0, "", text, virtual_time=False, declared_at=0)]

    def retired_states(self, queue: str) -> frozenset[str]:
        return frozenset(self._execute("retired_states", {"queue": queue}))

    # Jobs

    def job(self, job_id: str) -> Job | None:
        if not is_id(job_id):
            return None
        row = self._execute("job", {"id": job_id})
        return parse_job(row) if row else None

    def find(self, queue: str, ids: Sequence[str]) -> dict[str, Job]:
        self.program(queue)
        requested = limits.valid_ids(ids)
        rows = self._execute("find", {"queue": queue}, items=requested) if requested else ()
        return {job.id: job for job in map(parse_job, rows)}

    def states(self, queue: str, ids: Sequence[str]) -> dict[str, str]:
        self.program(queue)
        requested = limits.valid_ids(ids)
        answers = self._execute("states", {"queue": queue}, items=requested) if requested else ()
        return {job_id: state for job_id, state in zip(requested, answers, strict=True) if state}

    def ids_by_key(self, queue: str, tenant: str, keys: Sequence[str]) -> dict[str, str]:
        program = self.program(queue)
        limits.check_batch_size(keys)
        requested = list(dict.fromkeys(keys))
        if not requested:
            return {}
        params = {"queue": queue, "tenant": tenant}
        answers = self._execute("holders", params, program, items=requested)
        return {key: holder for key, holder in zip(requested, answers, strict=True) if holder}

    def ready_tenants(self, queue: str, limit: int) -> list[str]:
        self.program(queue)
        return sorted(self._execute("ready_tenants", {"queue": queue}))[:limit]

    def jobs(self, queue: str, where: Filter, *, limit: int = 100, cursor: str | None = None) -> Page:
        self.program(queue)
        limits.check_page(limit, cursor)
        pairs = self.pairs(queue, where)
        params = scan_params(queue, conditions_of(where), oldest_first=where.oldest_first)
        params["limit"] = limit + 1 if where.search is None else limits.MAX_PAGE
        params["cursor"] = cursor or (limits.FIRST_ID if where.oldest_first else limits.LAST_ID)
        fields = self.listing(queue).search if where.search is not None else ()
        jobs, looked = list[Job](), 0
        next_cursor: str | None = ""
        while next_cursor is not None and len(jobs) <= limit:
            rows, next_cursor = self._execute("jobs", params, items=pairs)
            jobs += [job for job in map(parse_job, rows) if _matches(job, where, fields)]
            params["cursor"] = next_cursor
            looked += len(rows)
            if where.search is not None and looked >= MAX_SEARCHED:
                next_cursor = None
        return Page(jobs[:limit], jobs[limit - 1].id if len(jobs) > limit else None)

    def pairs(self, queue: str, where: Filter) -> list[tuple[str, str]]:
        """(state, tenant) for every list that holds jobs and matches the filter."""
        return [
            (state, tenant)
            for tenant, states in count_jobs(queue, self.move_counts(queue)).tenants.items()
            if where.tenants is None or tenant in where.tenants
            for state, n in states.items()
            if n > 0 and (not where.states or state in where.states)
        ]

    def _preview(
        self, queue: str, moves: Moves, where: Filter, ids: Sequence[str] | None, params: dict[str, Any]
    ) -> dict[tuple[str, str], int]:
        program, now = self.program(queue), params["now"]
        options = program.options(moves, params["options"])
        conditions = conditions_of(where)
        if where.search is not None:
            found = [job.id for job in self.jobs(queue, where, limit=limits.MAX_PAGE).jobs]
            ids = found if ids is None else [job_id for job_id in found if job_id in set(ids)]
        if ids is not None:
            ids = sorted(limits.valid_ids(ids), reverse=True)
            conditions |= {"states": dict.fromkeys(where.states, True)} if where.states else {}
            if where.tenants is not None:
                conditions["tenants"] = dict.fromkeys(where.tenants, True)
        params = scan_params(queue, conditions, ids=ids, now=now, text=bool(where.text))
        params["options"] = options
        pairs = self.pairs(queue, where) if ids is None else []
        counts: Counter[tuple[str, str]] = Counter()
        winning_states: dict[str, deque[str]] = {}  # a key or slot → states of the oldest that want
        next_cursor: str | None = ""
        while next_cursor is not None:
            answers, next_cursor = self._execute(
                "foresee", params, program, moves=program.alternatives(moves), items=pairs
            )
            params["cursor"] = next_cursor
            for state, reason, message, contested_name, free in answers:
                if where.text and where.text.lower() not in (message or "").lower():
                    continue
                if contested_name:  # jobs come newest first, and the oldest get it
                    winners = winning_states.setdefault(contested_name, deque())
                    winners.append(state)
                    if len(winners) > free:
                        is_slot = contested_name.startswith(f"{queue}:inside:")
                        loser = winners.popleft()
                        counts[loser, ""] -= 1
                        counts[loser, "busy" if is_slot else "duplicate"] += 1
                counts[state, reason] += 1
        return dict(+counts)

    # Events, notes, counts and health

    def events(self, job_id: str) -> list[Event]:
        if not is_id(job_id):
            return []
        return [parse_event(job_id, entry) for entry in self._execute("events", {"id": job_id})]

    def notes(self, *job_ids: str) -> list[Note]:
        found = {each: self._execute("notes", {"id": each}) for each in limits.valid_ids(job_ids)}
        return [parse_note(job_id, text) for job_id, texts in found.items() for text in texts]

    def move_counts(self, queue: str) -> list[MoveCount]:
        numbers, times = self._execute("flows", {"queue": queue})
        at = dict(zip(times[::2], times[1::2], strict=True))
        flows = []
        for edge, n in zip(numbers[::2], numbers[1::2], strict=True):
            move, source, target, tenant = edge.split(SEPARATOR, 3)
            if int(n):
                flows.append(MoveCount(tenant, move, source, target, int(n), int(at[edge])))
        return sorted(flows)

    def stats(self, queue: str, *, now: int | None = None) -> QueueStats:
        known = self.program(queue).lifecycle.state
        oldest, overdue, at = self._execute("overdue", {"queue": queue, "now": now})
        due = None if oldest is None else int(oldest)
        return count_jobs(queue, self.move_counts(queue), known, (due, overdue, int(at)))

    def backlog(self, queue: str, tenant: str, *, aged: AgedSince | None = None, now: int | None = None) -> Backlog:
        lifecycle = self.program(queue).lifecycle
        limits.check_age_stamp(lifecycle, queue, aged)
        working_states = [state.name for state in lifecycle.states if state.working]
        params = {"queue": queue, "tenant": tenant, "aged": aged and aged[1], "now": now}
        due, first, over, aging = self._execute("waiting", params, items=working_states)
        first_created_at = {s: int(at) for s, at in zip(working_states, first, strict=True) if at}
        return Backlog(None if due is None else int(due), first_created_at, over, aging)

    def count_ahead(self, queue: str, job_id: str, *, limit: int) -> int | None:
        self.program(queue)
        if not is_id(job_id):
            return None
        count: int | None = self._execute("ahead", {"queue": queue, "id": job_id, "most": limit})
        return count

    def paused(self, queue: str) -> list[Pause]:
        rows = self._decoded("paused", queue)
        return sorted(Pause(queue, tenant, int(at), *said) for tenant, (at, *said) in rows)

    def schedules(self, queue: str, *, lock: Sequence[str] = ()) -> list[ScheduleRow]:
        rows = self._decoded("schedules", queue)
        schedules = (ScheduleRow(name, definition, int(at)) for name, (definition, at) in rows)
        return sorted(row for row in schedules if not lock or row.name in lock)

    def _decoded(self, op: str, queue: str) -> Iterator[tuple[str, Any]]:
        """The fields of a hash that an operation returns, each with its decoded value."""
        flat = self._execute(op, {"queue": queue})
        return zip(flat[::2], map(json.loads, flat[1::2]), strict=True)

    def ping(self) -> None:
        self._execute("version", {"queue": ""})

    def definition(self, queue: str) -> Definition | None:
        text = self._execute("definition", {"queue": queue})
        return None if text is None else Definition.parse(text)

    def queues(self) -> list[str]:
        return sorted(self._execute("queues", {"queue": ""}))

    def scan(self, queue: str) -> Iterator[tuple[Job, list[Event]]]:
        """Each job with its events, consistent job by job; Redis has no snapshot of all jobs."""
        states = {flow.to_state for flow in self.move_counts(queue)} - {""}
        ids = self._execute("ids", {"queue": queue}, items=sorted(states))
        for start in range(0, len(ids), HISTORIES_PER_SCRIPT):
            chunk = ids[start : start + HISTORIES_PER_SCRIPT]
            for row, entries, *_ in self._execute("histories", {"queue": queue}, items=chunk):
                job = parse_job(row)
                yield job, [parse_event(job.id, entry) for entry in entries]

    def health(self) -> dict[str, str | int]:
        with redis_errors_translated():
            info: Any = self.client.info()
        return {
            "store": "redis",
            "version": info["redis_version"],
            "bytes": info["used_memory"],
            "max_bytes": info.get("maxmemory", 0),
            "eviction": info.get("maxmemory_policy", ""),
            "append_only": "yes" if info.get("aof_enabled") else "no",
            "last_save_s": int(info.get("rdb_last_save_time", 0)),
        }


@contextmanager
def redis_errors_translated() -> Iterator[None]:
    """Raise errors of Redis inside the block as StoreUnreachable."""
    try:
        yield
    except redis.RedisError as problem:
        raise StoreUnreachable(f"Redis is not reachable: {problem}") from problem


def scan_params(queue: str, conditions: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The parameters of a script that looks at jobs, newest first and not at too many at once."""
    most = {"most_looked": MAX_LISTED_PER_SCRIPT, "cursor": limits.LAST_ID}
    return {"queue": queue, "where": conditions, **most, **more}


def conditions_of(where: Filter) -> dict[str, Any]:
    """The conditions for the script; text is compared in Python: Lua folds only ASCII case."""
    conditions: dict[str, Any] = {
        "created_from": where.created_from,
        "created_before": where.created_before,
        "moved_before": where.moved_before,
        "dedup_key": where.dedup_key,
        "contains": where.contains or None,
        "unclaimed": where.unclaimed or None,
        "codes": dict.fromkeys(where.codes, True) or None,
        "categories": dict.fromkeys(where.categories, True) or None,
    }
    return {name: value for name, value in conditions.items() if value is not None}


def _matches(job: Job, where: Filter, fields: Sequence[str]) -> bool:
    said = (where.text or "").lower() in (job.error_message or "").lower()
    return said and (where.search is None or is_found(job.payload, fields, where.search))
