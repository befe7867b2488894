"""The same program on PostgreSQL: only the address differs.

    KESIN_DATABASE_URL=postgresql://user:password@host/database python examples/postgres.py

It creates the schema `kesin` in that database, with a queue `example`.
"""

import os
import sys

from kesin import Job, Queue, StoreError, Worker, open_store, task_lifecycle

address = os.environ.get("KESIN_DATABASE_URL", "")
if not address.startswith(("postgresql://", "postgres://")):
    print("skipped: set KESIN_DATABASE_URL to a postgresql:// address to run this one")
    sys.exit()


def greet(job: Job) -> None:
    """Greet; the handler is the same on every store."""
    print("hello", job.payload)


try:
    store = open_store(address)  # migrates the schema, unless you pass migrate=False
except StoreError as problem:
    sys.exit(f"{problem}: check that the server runs and that PGPASSWORD is set")
example = Queue("example", task_lifecycle(), store)
example.enqueue("Ankara")
example.enqueue("İzmir")
Worker(example, greet).drain()
print(example.stats().states["done"], "done on", store.health()["store"])
store.close()
