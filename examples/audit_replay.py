"""Replay a job's history, and see how the database refuses changes from a SQL prompt."""

import sqlite3
import tempfile
from pathlib import Path

from kesin import Done, Failed, Job, ManualClock, Queue, Worker, open_store, task_lifecycle, verify

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "kesin.db"
    clock = ManualClock()
    store = open_store(file)
    parcels = Queue("parcels", task_lifecycle(), store, clock=clock)

    def deliver(job: Job) -> Done:
        """Fail on the first attempt."""
        if job.attempt_count == 1:
            raise Failed("NOT_AT_HOME", "no answer after two rings")
        return Done({"signed": "M. Yıldız"})

    parcel = parcels.enqueue({"street": "Gül Sokak 7"}).id
    worker = Worker(parcels, deliver, name="van-1")
    worker.drain()
    clock.advance(60)
    worker.drain()

    for event in parcels.events(parcel):
        why = f"  {event.error_code}: {event.error_message}" if event.error_code else ""
        print(f"{event.seq}  {event.move:9} {event.from_state or '(new)':8}→ {event.to_state}{why}")

    outcome = verify(store, "parcels")
    print(f"replayed {outcome.events} events of {outcome.jobs} job: equal is {bool(outcome)}")

    with sqlite3.connect(file) as prompt:  # like a SQL prompt
        for sql in ("UPDATE job SET state = 'ready'", "DELETE FROM event"):
            try:
                prompt.execute(sql)
            except sqlite3.IntegrityError as refused:
                print(f"{sql} → {refused}")
    prompt.close()
    store.close()
