"""Keys: of all jobs on their way, only one can hold a key; the others are told which."""

from kesin import Queue, Worker, open_store, task_lifecycle

reports = Queue("reports", task_lifecycle(), open_store(":memory:"))

first = reports.enqueue({"month": "2026-10"}, key="2026-10")
twin = reports.enqueue({"month": "2026-10"}, key="2026-10")
print(f"first: {first.result}, second: {twin.result}, the same job: {first.id == twin.id}")

# Keys belong to a tenant: another tenant's report is another report.
other = reports.enqueue({"month": "2026-10"}, key="2026-10", tenant="izmir")
print(f"another tenant: {other.result}")

# What was refused is not forgotten: a note stands beside the job's history.
print("notes:", [(note.kind, note.actor) for note in reports.notes(first.id)])

# The states `ready` and `running` hold the key. Once the job is done, the key is free again.
Worker(reports, lambda _: None).drain()
later = reports.enqueue({"month": "2026-10"}, key="2026-10")
print(f"after it was done: {later.result}")
