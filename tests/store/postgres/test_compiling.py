"""PostgreSQL compiles statements that seem costly; for a claim that takes longer than the claim."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg

from kesin import NewJob, Queue, task_lifecycle
from kesin.store.postgres.store import PostgresStore

# Everything is compiled that may be, and every plan says under which settings it was made.
EXPLAINED = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_settings": "on",
    "auto_explain.log_format": "json",
    "client_min_messages": "log",
    "jit": "on",
    "jit_above_cost": "0",
}


def test_no_claim_of_a_tenants_slots_is_compiled(postgres_url: str, fresh_schema: Callable[[], str]):
    options = "%20".join(f"-c%20{name}%3D{value}" for name, value in EXPLAINED.items())
    plans: list[dict[str, Any]] = []

    def keep(notice: psycopg.errors.Diagnostic) -> None:
        text = notice.message_primary or ""
        if "plan:" in text:
            plans.append(json.loads(text.partition("plan:")[2]))

    def made() -> list[dict[str, Any]]:
        claims = [plan for plan in plans if "SKIP LOCKED" in plan["Query Text"]]
        plans.clear()
        return claims

    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}options={options}"
    store = PostgresStore(url, schema=fresh_schema(), pool_size=1, migrate=True)
    with closing(store):
        queue = Queue("q", task_lifecycle(concurrency=2, per="tenant"), store)
        queue.enqueue_many([NewJob({}, tenant=f"t{n % 3}") for n in range(9)])
        with store._pool.connection() as connection:
            connection.add_notice_handler(keep)
            assert connection.execute("SHOW jit").fetchone() == ("on",)
        ids = [job.id for job in queue.jobs().jobs]
        ways: list[dict[str, Any]] = [{}, {"tenants": ["t0"]}, {"ids": ids}]
        for how in ways:
            queue.claim("w", limit=1, **how)
            [claim] = made()
            assert (claim["Settings"]["jit"], "JIT" in claim) == ("off", False), how
        store.wait("q", store.notification_count("q"), 0)
        assert store._planned_claims is not None
        assert store._planned_claims._connection is not None
        store._planned_claims._connection.add_notice_handler(keep)
        queue.claim("w", limit=1)
        [claim] = made()
        assert (claim["Settings"]["jit"], "JIT" in claim) == ("off", False)
