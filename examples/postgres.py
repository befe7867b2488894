"""The same program on PostgreSQL: only the address differs.

    KESIN_DATABASE_URL=postgresql://user:password@host/database python examples/postgres.py

It makes a schema `kesin` in that database, and a queue `example` in it.
"""

import os
import sys

from kesin import Job, Queue, StoreError, Worker, open_store, task_lifecycle

address = os.environ.get("KESIN_DATABASE_URL", "")
if not address.startswith(("postgresql://", "postgres://")):
    print("skipped: set KESIN_DATABASE_URL to a postgresql:// address to run this one")
    sys.exit()


def greet(job: Job) -> None:
    """Work as on SQLite: a worker never knows where its jobs are kept."""
    print("hello", job.payload)


try:
    store = open_store(address)  # brings the schema up to date; migrate=False leaves that to you
except StoreError as problem:
    sys.exit(f"{problem}: is the server there, the password in PGPASSWORD?")
example = Queue("example", task_lifecycle(), store)
example.enqueue("Ankara")
example.enqueue("İzmir")
Worker(example, greet).drain()
print(example.stats().states["done"], "done on", store.health()["store"])
store.close()
