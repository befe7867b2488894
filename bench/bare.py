"""A bare FastAPI handler that makes one durable insert: what `bench.requests` holds Kesin against.

No users, no keys, no limits, no history, no log: the same server and settings, the same body and
one row in a table of SQLite, committed with `synchronous=FULL` before the answer.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI
from pydantic import BaseModel

from kesin.web.app import SQLITE_THREADS

TABLE = """CREATE TABLE job (id TEXT PRIMARY KEY, queue TEXT NOT NULL, key TEXT,
payload TEXT NOT NULL, created_at REAL NOT NULL, UNIQUE (queue, key)) STRICT"""


class Job(BaseModel):
    payload: dict
    key: str | None = None


class Jobs(BaseModel):
    jobs: list[Job]


class Created(BaseModel):
    id: str
    result: str = "inserted"


class Answer(BaseModel):
    jobs: list[Created]


def bare_app(path: str) -> FastAPI:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute(TABLE)
    lock = threading.Lock()

    @asynccontextmanager
    async def running(_app: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = SQLITE_THREADS
        yield

    app = FastAPI(lifespan=running)

    @app.post("/api/queues/{queue}/jobs", status_code=201)
    def enqueue(queue: str, new: Jobs) -> Answer:
        created = []
        with lock:
            database.execute("BEGIN IMMEDIATE")
            for job in new.jobs:
                row = (uuid.uuid4().hex, queue, job.key, json.dumps(job.payload), time.time())
                database.execute("INSERT INTO job VALUES (?, ?, ?, ?, ?)", row)
                created.append(Created(id=row[0]))
            database.execute("COMMIT")
        return Answer(jobs=created)

    return app


def main(path: str) -> None:
    config = uvicorn.Config(bare_app(path), port=0, log_config=None, access_log=False, ws="none")
    server = uvicorn.Server(config)
    original = server.startup

    async def startup(sockets=None):
        await original(sockets)
        port = server.servers[0].sockets[0].getsockname()[1]
        print(f"http://127.0.0.1:{port}", flush=True)

    server.startup = startup
    server.run()


if __name__ == "__main__":
    main(sys.argv[1])
