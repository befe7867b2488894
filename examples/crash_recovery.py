"""A worker is killed in the middle of a job; the lease runs out and the sweeper takes it back."""

import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from kesin import Job, Queue, Sweeper, Worker, open_store, set_up_logs, task_lifecycle

LEASE_S = 0.5  # short, so that this ends soon; the default is 60 s


def hang(job: Job) -> None:
    """Begin and never end."""
    print("begun", job.id, flush=True)
    threading.Event().wait()


def as_victim(file: str) -> None:
    """Be the process that gets killed."""
    Worker(Queue("work", task_lifecycle(), open_store(file)), hang, lease_seconds=LEASE_S).run()


def main() -> None:
    """Kill it, sweep, and do the work over."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "kesin.db")
        queue = Queue("work", task_lifecycle(), open_store(file))
        job = queue.enqueue("count the stars").id

        victim = subprocess.Popen([sys.executable, __file__, file], stdout=subprocess.PIPE)
        with victim:
            victim.stdout.readline()  # it has the job, and renews its lease while it lives
            victim.send_signal(signal.SIGKILL)
        print("killed:", queue.stats().states)

        sweeper = Sweeper([queue])
        while not sweeper.sweep().total:  # until the lease is over
            threading.Event().wait(0.05)
        print("swept: ", queue.stats().states)

        Worker(queue, lambda one: print("worked:", one.payload)).drain()
        print("moves: ", [event.move for event in queue.events(job)])
        queue.store.close()


set_up_logs()  # to standard error, and only warnings
if sys.argv[1:]:
    as_victim(sys.argv[1])
else:
    main()
