"""Reading from Redis: one job, pages of jobs, histories, counts.

A page merges one list of ids per (tenant, state) that holds jobs, as the counters say. Whatever
has to look at many jobs does it in pieces, so that others get their turn in between.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import redis

from kesin.foundation.ids import is_id
from kesin.lifecycle.model import JOB_COLUMNS, Job
from kesin.lifecycle.vocabulary import Role
from kesin.store.contract import Store
from kesin.store.counters import tallied
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.limits import LAST_ID, MAX_BATCH, MAX_PAGE, bounded, check_aged
from kesin.store.records import (
    Definition,
    Event,
    Filter,
    Flow,
    Note,
    Page,
    Pause,
    QueueStats,
    Waiting,
)
from kesin.store.redis.program import NUMBERS, SEPARATOR, Program

SCAN_JOBS: Final = 200  # histories read at a time
MOST_LISTED: Final = 5_000  # jobs one script looks at for a page
_NUMBERS: Final = tuple(JOB_COLUMNS.index(name) for name in NUMBERS)
_EVENT_NUMBERS: Final = frozenset(
    {
        "at",
        "phase",
        "claim",
        "attempt",
        "attempt_base",
        "return_count",
        "max_attempts",
        "retry_count",
        "flags",
        "mask",
        "run_at",
        "timer_at",
        "finished_at",
        "stamp_1",
        "stamp_2",
        "stamp_3",
        "stamp_4",
    }
)


def job_of(row: list[Any]) -> Job:
    """A job from the values of its hash."""
    for place in _NUMBERS:
        value = row[place]
        if value is not None:
            row[place] = int(value)
    return Job._make(row)


def event_of(job_id: str, entry: tuple[str, Any]) -> Event:
    """An event from an entry of the job's stream; its id is the event's number."""
    number, fields = entry
    said = dict(zip(fields[::2], fields[1::2], strict=True))
    values: dict[str, Any] = dict.fromkeys(Event._fields)
    for name, value in said.items():
        values[name] = int(value) if name in _EVENT_NUMBERS else value
    values |= {"job_id": job_id, "seq": int(number.partition("-")[0])}
    return Event(**values)


def note_of(job_id: str | None, text: str) -> Note:
    """A remark from the list beside a job."""
    at, kind, actor, details = json.loads(text)
    return Note(job_id, int(at), kind, actor, details)


class RedisReader(Store):
    """The reading half of the Redis store."""

    client: redis.Redis
    _queues: dict[str, Program]

    @abstractmethod
    def _ask(
        self,
        op: str,
        ask: Mapping[str, Any],
        *,
        life: str = "",
        moves: str = "",
        items: Any = None,
    ) -> Any:
        """Run one call."""

    @abstractmethod
    def program(self, queue: str) -> Program:
        """The queue's lifecycle as the scripts read it."""

    def _declared(self, queue: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """(queue, move, from, to) → the rest of the declared row."""
        flat, _, _ = self._ask("declared", {"queue": queue})
        return {
            (queue, *edge.split(SEPARATOR)): tuple(json.loads(rest))
            for edge, rest in zip(flat[::2], flat[1::2], strict=True)
        }

    # Jobs

    def job(self, job_id: str) -> Job | None:
        if not is_id(job_id):
            return None
        row = self._ask("job", {"id": job_id})
        return job_of(row) if row else None

    def find(self, queue: str, ids: Sequence[str]) -> dict[str, Job]:
        self.program(queue)
        bounded(ids)
        asked = [one for one in dict.fromkeys(ids) if is_id(one)]
        if not asked:
            return {}
        found = map(job_of, self._ask("find", {"queue": queue}, items=asked))
        return {job.id: job for job in found}

    def states(self, queue: str, ids: Sequence[str]) -> dict[str, str]:
        self.program(queue)
        bounded(ids)
        asked = [one for one in dict.fromkeys(ids) if is_id(one)]
        if not asked:
            return {}
        answers = self._ask("states", {"queue": queue}, items=asked)
        return {one: state for one, state in zip(asked, answers, strict=True) if state}

    def holders(self, queue: str, tenant: str, keys: Sequence[str]) -> dict[str, str]:
        program = self.program(queue)
        bounded(keys)
        asked = list(dict.fromkeys(keys))
        if not asked:
            return {}
        ask = {"queue": queue, "tenant": tenant}
        answers = self._ask("holders", ask, life=program.life, items=asked)
        return {key: holder for key, holder in zip(asked, answers, strict=True) if holder}

    def peek(
        self,
        queue: str,
        *,
        limit: int,
        tenants: Sequence[str] | None = None,
        now: int | None = None,
    ) -> list[Job]:
        program = self.program(queue)
        ask = {
            "queue": queue,
            "limit": min(limit, 1 if program.claims_slot else MAX_BATCH),
            "tenants": None if tenants is None else list(tenants),
            "now": now,
        }
        rows = self._ask("peek", ask, life=program.life, moves=program.claims)
        return [job_of(row) for row in rows]

    def jobs(
        self, queue: str, where: Filter, *, limit: int = 100, cursor: str | None = None
    ) -> Page:
        self.program(queue)
        if not 1 <= limit <= MAX_PAGE:
            raise StoreError(f"a page holds 1…{MAX_PAGE} jobs, got {limit}")
        if cursor is not None and not is_id(cursor):
            raise StoreError(f"{cursor!r} is no cursor: take it from the page before")
        pairs = self._pairs(queue, where)
        ask = {
            "queue": queue,
            "where": _conditions(where),
            "most_looked": MOST_LISTED,
            "limit": limit + 1,
            "cursor": cursor or LAST_ID,
        }
        found: list[Job] = []
        last: str | None = ""
        while last is not None and len(found) <= limit:
            rows, last = self._ask("jobs", ask, items=pairs)
            found += [job for job in map(job_of, rows) if _says(job, where.text)]
            ask["cursor"] = last
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def _pairs(self, queue: str, where: Filter) -> list[tuple[str, str]]:
        """(state, tenant) for every list that holds jobs and is wanted."""
        held = tallied(self.flows(queue), ()).tenants
        return [
            (state, tenant)
            for tenant, states in held.items()
            if where.tenants is None or tenant in where.tenants
            for state, n in states.items()
            if n > 0 and (not where.states or state in where.states)
        ]

    def foresee(
        self,
        queue: str,
        call: str,
        where: Filter,
        *,
        role: Role,
        ids: Sequence[str] | None = None,
        options: frozenset[str] = frozenset(),
        now: int | None = None,
    ) -> dict[tuple[str, str], int]:
        program = self.program(queue)
        moves = program.asked(call, role, queue)
        conditions = _conditions(where)
        if ids is not None:
            bounded(ids)
            conditions |= {"states": dict.fromkeys(where.states, True)} if where.states else {}
            if where.tenants is not None:
                conditions["tenants"] = dict.fromkeys(where.tenants, True)
            ids = sorted({one for one in ids if is_id(one)}, reverse=True)
        ask = {
            "queue": queue,
            "where": conditions,
            "ids": ids,
            "most_looked": MOST_LISTED,
            "cursor": LAST_ID,
            "options": program.options(moves, options),
            "now": now,
            "text": bool(where.text),
        }
        pairs = self._pairs(queue, where) if ids is None else []
        counts: Counter[tuple[str, str]] = Counter()
        wanted: dict[str, str] = {}  # a key or slot → the state of the oldest job that wants it
        last: str | None = ""
        while last is not None:
            answers, last = self._ask(
                "foresee", ask, life=program.life, moves=program.call(moves), items=pairs
            )
            ask["cursor"] = last
            for state, reason, message, want in answers:
                if where.text and where.text.lower() not in (message or "").lower():
                    continue
                if want in wanted:  # jobs come newest first, and the oldest gets it
                    loses = "busy" if want.startswith(f"{queue}:slot:") else "duplicate"
                    counts[wanted[want], ""] -= 1
                    counts[wanted[want], loses] += 1
                if want:
                    wanted[want] = state
                counts[state, reason] += 1
        return dict(+counts)

    # Beside the jobs

    def events(self, job_id: str) -> list[Event]:
        if not is_id(job_id):
            return []
        return [event_of(job_id, entry) for entry in self._ask("events", {"id": job_id})]

    def notes(self, job_id: str) -> list[Note]:
        if not is_id(job_id):
            return []
        return [note_of(job_id, text) for text in self._ask("notes", {"id": job_id})]

    def flows(self, queue: str) -> list[Flow]:
        numbers, times = self._ask("flows", {"queue": queue})
        at = dict(zip(times[::2], times[1::2], strict=True))
        flows = []
        for edge, n in zip(numbers[::2], numbers[1::2], strict=True):
            move, source, target, tenant = edge.split(SEPARATOR, 3)
            if int(n):
                flows.append(Flow(tenant, move, source, target, int(n), int(at[edge])))
        return sorted(flows)

    def stats(self, queue: str, *, now: int | None = None) -> QueueStats:
        tally = tallied(self.flows(queue), self.program(queue).lifecycle.state)
        oldest, overdue, at = self._ask("overdue", {"queue": queue, "now": now})
        due = None if oldest is None else int(oldest)
        return QueueStats(queue, tally.states, tally.tenants, due, overdue, int(at), tally.moves)

    def waiting(
        self,
        queue: str,
        tenant: str,
        *,
        aged: tuple[str, int] | None = None,
        now: int | None = None,
    ) -> Waiting:
        lifecycle = self.program(queue).lifecycle
        check_aged(lifecycle, queue, aged)
        on_the_way = [state.name for state in lifecycle.states if state.working]
        ask = {"queue": queue, "tenant": tenant, "aged": aged and aged[1], "now": now}
        due, first, over, aging = self._ask("waiting", ask, items=on_the_way)
        born = {s: int(at) for s, at in zip(on_the_way, first, strict=True) if at}
        return Waiting(None if due is None else int(due), born, over, aging)

    def ahead(self, queue: str, job_id: str, *, most: int) -> int | None:
        self.program(queue)
        if not is_id(job_id):
            return None
        found: int | None = self._ask("ahead", {"queue": queue, "id": job_id, "most": most})
        return found

    def paused(self, queue: str) -> list[Pause]:
        flat = self._ask("paused", {"queue": queue})
        pauses = []
        for tenant, text in zip(flat[::2], flat[1::2], strict=True):
            at, actor, reason = json.loads(text)
            pauses.append(Pause(queue, tenant, int(at), actor, reason))
        return sorted(pauses)

    def ping(self) -> None:
        self._ask("version", {"queue": ""})

    def definition(self, queue: str) -> Definition | None:
        text = self._ask("definition", {"queue": queue})
        return None if text is None else Definition.read(text)

    def queues(self) -> list[str]:
        return sorted(self._ask("queues", {"queue": ""}))

    def scan(self, queue: str) -> Iterator[tuple[Job, list[Event]]]:
        """Each job with its events as they are together; Redis has no snapshot of all of them."""
        for job, events, _ in self.histories(queue):
            yield job, events

    def histories(self, queue: str) -> Iterator[tuple[Job, list[Event], list[Note]]]:
        """As ``scan``, with the remarks."""
        states = {flow.to_state for flow in self.flows(queue)} - {""}
        ids = self._ask("ids", {"queue": queue}, items=sorted(states))
        for start in range(0, len(ids), SCAN_JOBS):
            chunk = ids[start : start + SCAN_JOBS]
            for row, entries, texts in self._ask("histories", {"queue": queue}, items=chunk):
                job = job_of(row)
                events = [event_of(job.id, entry) for entry in entries]
                yield job, events, [note_of(job.id, text) for text in texts]

    def health(self) -> dict[str, str | int]:
        with reached():
            told: Any = self.client.info()
        return {
            "store": "redis",
            "version": told["redis_version"],
            "bytes": told["used_memory"],
            "max_bytes": told.get("maxmemory", 0),
            "eviction": told.get("maxmemory_policy", ""),
            "append_only": "yes" if told.get("aof_enabled") else "no",
            "last_save_s": int(told.get("rdb_last_save_time", 0)),
        }


@contextmanager
def reached() -> Iterator[None]:
    """Trouble with the connection, in the words of the contract."""
    try:
        yield
    except redis.RedisError as problem:
        raise StoreUnreachable(f"Redis is not reachable: {problem}") from problem


def _conditions(where: Filter) -> dict[str, Any]:
    """What the script can judge; text is compared here, for Lua knows only ASCII's cases."""
    asked: dict[str, Any] = {
        "created_from": where.created_from,
        "created_before": where.created_before,
        "moved_before": where.moved_before,
        "dedup_key": where.dedup_key,
        "contains": where.contains or None,
        "codes": dict.fromkeys(where.codes, True) or None,
        "categories": dict.fromkeys(where.categories, True) or None,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _says(job: Job, text: str | None) -> bool:
    return not text or text.lower() in (job.error_message or "").lower()
