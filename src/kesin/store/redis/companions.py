"""What stands beside a job in Redis: the jobs it comes after, how far it is, its title."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kesin.foundation.ids import is_id
from kesin.lifecycle.model import Job
from kesin.store.limits import MAX_BATCH, check_batch_size
from kesin.store.records import Listing, Progress
from kesin.store.redis.program import SEPARATOR
from kesin.store.redis.reader import RedisReader, parse_job


class RedisCompanions(RedisReader):
    """The part of the Redis store that knows parents and progress."""

    def settle(self, queue: str, *, limit: int, now: int | None = None) -> int:
        program = self.program(queue)
        if not program.lifecycle.waiting_states:
            return 0
        moves = program.moves_for("settle", "clock", queue)
        moved, looked = 0, 1
        while moved < limit and looked:  # one that fails is news for those that come after it
            params = {"queue": queue, "actor": "clock", "limit": limit - moved, "now": now}
            done, looked = self._execute(
                "settle",
                params,
                lifecycle_json=program.lifecycle_json,
                moves=program.alternatives(moves),
            )
            moved += done
        return moved

    def parents(self, queue: str, job_id: str) -> list[Job]:
        self.program(queue)
        rows = self._execute("parents", {"queue": queue, "id": job_id}) if is_id(job_id) else []
        return [parse_job(row) for row in rows]

    def children(self, queue: str, job_id: str, *, limit: int) -> list[Job]:
        self.program(queue)
        params = {"queue": queue, "id": job_id, "limit": min(limit, MAX_BATCH)}
        rows = self._execute("children", params) if is_id(job_id) else []
        return [parse_job(row) for row in rows]

    def report_progress(
        self,
        queue: str,
        claim: tuple[str, int],
        fraction: float | None,
        message: str | None,
        *,
        now: int | None = None,
    ) -> bool:
        self.program(queue)
        said = json.dumps([claim[1], fraction, message])
        params = {"queue": queue, "id": claim[0], "token": claim[1], "said": said, "now": now}
        return bool(self._execute("report", params))

    def progress(self, queue: str, ids: Sequence[str]) -> dict[str, Progress]:
        self.program(queue)
        check_batch_size(ids)
        found: dict[str, Progress] = {}
        asked = [job_id for job_id in ids if is_id(job_id)]
        for job_id, text, token in self._execute("progress", {"queue": queue}, items=asked):
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
