"""The numbers everybody is given alike."""

from __future__ import annotations

WORKERS = 2  # processes
AT_ONCE = 4  # jobs at the same time in each, where a queue can be told so
LEASE_S = 5.0  # how long a worker may be silent before its jobs are somebody else's
BEAT_S = LEASE_S / 3  # how often it says that it lives
LOOK_S = 2  # how often somebody looks for work and for silent workers
RESTART_S = 1.0  # a worker process that is gone is started again after it, as by systemd
PATIENCE_S = 60.0  # after the last fault; what is not at rest by then is stuck
LONGEST_S = 480.0  # of everything; a run that might end later is not begun

JOBS = 1_500
JOB_S = 0.02
SENT_AHEAD = 500  # jobs there before the first worker; the others come while it works
BATCH = 20  # jobs in one call of the producer's
BATCH_EVERY_S = 0.1

LONG_JOBS = 12  # for the worker that stops and comes back: it must be in the middle of something
LONG_JOB_S = 2.0

KILLS_AT = (0.2, 0.4, 0.6)  # parts of the work done
OUTAGE_AT = 0.3
DOWN_S = 2.0  # from the end of the server to its start
