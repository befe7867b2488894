"""Processes that are killed and servers that crash, for real, and what is left afterwards.

- ``promise``: the one checker. Asked after every fault: is a job lost, done twice, over its budget,
  does the history give the rows, do the counters agree. ``test_promise`` shows that it can fail.
- ``cast``: what the processes do, and the named points at which they kill themselves.
- ``load``: a producer, a worker and a sweeper in this process, which go on through a crash.
- ``test_points``: producer, worker and sweeper die before a call, inside its transaction and after
  its commit, on every store; and between the links of a chain.
- ``test_frozen``: a worker stopped past its lease comes back, and its answer is refused.
- ``test_servers``: PostgreSQL stopped at once, crashed, its connections cut; Redis killed; nobody
  of the load is started again.
- ``test_lost_seconds``: Redis comes back without the end of its file, cut at any byte.
- ``test_serve_kill``: every job that `kesin serve` answered for is there after ``kill -9``.
- ``test_clock``: clocks that jump. ``test_poison``: jobs that harm whoever works on them.
- ``small_disk`` with ``disk_parts``, ``test_disk``: a disk that is full or cannot be written.
  ``test_artifacts``: files that were changed behind our back.
- ``proxy``: a line to a server that is cut, held or falls silent at a call the test names, before
  it arrives or after it was carried out; ``wires``: a store at the far end of it.
- ``test_wire_cuts``: every call cut at every exchange, and asked again. ``test_wire_silence``:
  half-open and slow lines. ``test_wire_storm``: whoever is at work, on a line that fails by chance.
  ``test_wire_away``: PostgreSQL is away for longer than its pool tries to reach it.
- ``test_random_kills``: kills at random times. Long: `make soak`.
- ``fuzz``: valid input, damaged; ``test_parsers_*``: whatever reads input of others gives a value
  that keeps its promise, or its own refusal.

How long a recovery takes is measured by ``python -m bench.recovery``.
"""
