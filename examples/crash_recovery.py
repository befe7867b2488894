"""A worker is killed while it runs a job; when the lease expires, the sweeper recovers the job."""

import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from kesin import Job, Queue, Sweeper, Worker, open_store, set_up_logs, task_lifecycle

LEASE_S = 0.5  # short, so that the example ends soon; the default is 60 s


def hang(job: Job) -> None:
    """Start and never return."""
    print("begun", job.id, flush=True)
    threading.Event().wait()


def as_victim(file: str) -> None:
    """Run the worker that is killed."""
    Worker(Queue("work", task_lifecycle(), open_store(file)), hang, lease_seconds=LEASE_S).run()


def main() -> None:
    """Kill the worker, sweep, and run the job again."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "kesin.db")
        queue = Queue("work", task_lifecycle(), open_store(file))
        job = queue.enqueue("count the stars").id

        victim = subprocess.Popen([sys.executable, __file__, file], stdout=subprocess.PIPE)
        with victim:
            victim.stdout.readline()  # the worker has claimed the job and renews its lease
            victim.send_signal(signal.SIGKILL)
        print("killed:", queue.stats().states)

        sweeper = Sweeper([queue])
        while not sweeper.sweep().total:  # until the lease has expired
            threading.Event().wait(0.05)
        print("swept: ", queue.stats().states)

        Worker(queue, lambda one: print("worked:", one.payload)).drain()
        print("moves: ", [event.move for event in queue.events(job)])
        queue.store.close()


set_up_logs()  # logs warnings to standard error
if sys.argv[1:]:
    as_victim(sys.argv[1])
else:
    main()
