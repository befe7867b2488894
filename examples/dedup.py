"""Keys: only one open job can have a key; a duplicate returns the id of that job."""

from kesin import Queue, Worker, open_store, task_lifecycle

reports = Queue("reports", task_lifecycle(), open_store(":memory:"))

first = reports.enqueue({"month": "2026-10"}, key="2026-10")
twin = reports.enqueue({"month": "2026-10"}, key="2026-10")
print(f"first: {first.result}, second: {twin.result}, the same job: {first.id == twin.id}")

# Each tenant has its own keys: the same key of another tenant is no duplicate.
other = reports.enqueue({"month": "2026-10"}, key="2026-10", tenant="izmir")
print(f"another tenant: {other.result}")

# The duplicate is recorded as a note of the first job.
print("notes:", [(note.kind, note.actor) for note in reports.notes(first.id)])

# A job has its key in the states `ready` and `running`. When it is done, the key is free.
Worker(reports, lambda _: None).drain()
later = reports.enqueue({"month": "2026-10"}, key="2026-10")
print(f"after it was done: {later.result}")
