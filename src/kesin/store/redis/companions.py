"""What stands beside a job in Redis: the jobs it comes after, how far it is; titles and counts."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kesin.foundation.ids import is_id
from kesin.lifecycle.failures import failure_states, ready_states
from kesin.lifecycle.model import Job
from kesin.store.counters import FailureKey, count_failure
from kesin.store.limits import (
    FIRST_ID,
    LAST_ID,
    MAX_BATCH,
    MAX_FAILURES_READ,
    MAX_PAGE,
    moves_for,
    valid_ids,
)
from kesin.store.records import FailureCount, Filter, HeldClaim, JobCount, Listing, Progress
from kesin.store.redis.program import SEPARATOR
from kesin.store.redis.reader import RedisReader, conditions_of, parse_job, scan_params


class RedisCompanions(RedisReader):
    """The part of the Redis store that knows parents, progress and counts."""

    def settle(self, queue: str, *, limit: int, now: int | None = None) -> int:
        program = self.program(queue)
        if not program.lifecycle.waiting_states:
            return 0
        moves = program.alternatives(moves_for(program.lifecycle, "settle", "clock", queue))
        moved, looked = 0, 1
        while moved < limit and looked:  # one that fails is news for those that come after it
            params = {"queue": queue, "actor": "clock", "limit": limit - moved, "now": now}
            done, looked = self._execute("settle", params, program, moves=moves)
            moved += done
        return moved

    def parents(
        self, queue: str, job_id: str, *, limit: int = MAX_PAGE, after: str = FIRST_ID
    ) -> list[Job]:
        return self._related("parents", queue, job_id, limit, after=after)

    def meters(self, queue: str) -> dict[str, int]:
        rows = self._execute("meters", {"queue": queue, "limit": MAX_BATCH})
        return {tenant: int(free_at) for tenant, free_at in rows}

    def children(self, queue: str, job_id: str, *, limit: int) -> list[Job]:
        return self._related("children", queue, job_id, limit)

    def _related(self, op: str, queue: str, job_id: str, limit: int, **more: str) -> list[Job]:
        self.program(queue)
        params = {"queue": queue, "id": job_id, "limit": min(limit, MAX_BATCH), **more}
        return list(map(parse_job, self._execute(op, params) if is_id(job_id) else ()))

    def _write_progress(self, queue: str, claim: HeldClaim, said: dict[str, Any]) -> bool:
        self.program(queue)
        job_id, token = claim
        text = json.dumps([token, said["fraction"], said["message"]])
        params = {"queue": queue, "id": job_id, "token": token, "said": text, "now": said["now"]}
        return bool(self._execute("report", params))

    def progress(self, queue: str, ids: Sequence[str]) -> dict[str, Progress]:
        self.program(queue)
        found: dict[str, Progress] = {}
        answers = self._execute("progress", {"queue": queue}, items=valid_ids(ids))
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

    def failures(
        self,
        queue: str,
        *,
        tenants: Sequence[str] | None = None,
        states: Sequence[str] | None = None,
        recent_from: int = 0,
    ) -> list[FailureCount]:
        lifecycle = self.program(queue).lifecycle
        every = (*ready_states(lifecycle), *failure_states(lifecycle))
        chosen = tuple(state for state in every if states is None or state in states)
        where = Filter(states=chosen, tenants=None if tenants is None else tuple(tenants))
        params = scan_params(queue, {"coded": True})
        params["limit"] = params["most_looked"]
        found: dict[FailureKey, FailureCount] = {}
        pairs, read = self.pairs(queue, where) if chosen else [], 0
        next_cursor: str | None = ""
        while next_cursor is not None and read < MAX_FAILURES_READ:
            rows, next_cursor = self._execute("jobs", params, items=pairs)
            params["cursor"], read = next_cursor, read + len(rows)
            for job in map(parse_job, rows):
                count_failure(lifecycle, job, found, recent_from)
        return sorted(found.values())

    def count_matching(
        self, queue: str, where: Filter, *, limit: int, above: str = FIRST_ID, below: str = LAST_ID
    ) -> JobCount:
        if where.text or where.search is not None:  # compared in Python: the jobs are read
            where = replace(where, oldest_first=False)
            page = self.jobs(queue, where, limit=min(limit, MAX_PAGE), cursor=below)
            jobs = [job for job in page.jobs if job.id > above]
            return JobCount(len(jobs), page.cursor is None or len(jobs) < len(page.jobs))
        pairs, fitting, examined, cursor = self.pairs(queue, where), 0, 0, below
        while cursor and examined <= limit:
            params = scan_params(queue, conditions_of(where), cursor=cursor, above=above)
            params["most_looked"] = min(limit + 1 - examined, params["most_looked"])
            found, looked, cursor = self._execute("count", params, items=pairs)
            fitting, examined = fitting + found, examined + looked
        return JobCount(min(fitting, limit), examined <= limit)
