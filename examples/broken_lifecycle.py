"""Lifecycles that break a rule: the proof shows the path, and the queue does not start."""

from dataclasses import replace

from kesin import Queue, Unproved, open_store, prove, task_lifecycle

sound = task_lifecycle(max_attempts=2)
print(prove(sound), end="\n\n")

# Without the sweeper's move `recover`, the job of a dead worker stays claimed.
forgetful = replace(sound, moves=tuple(move for move in sound.moves if move.name != "recover"))
for broken in prove(forgetful).broken:
    print(broken, end="\n\n")  # the rule, and the shortest path that breaks it

# If a claim counts no attempt, a failing job is retried forever.
endless = replace(
    sound,
    moves=tuple(
        replace(move, attempt="keep") if move.name == "claim" else move for move in sound.moves
    ),
)
for broken in prove(endless).broken:
    print(broken, end="\n\n")

try:
    Queue("work", forgetful, open_store(":memory:"))
except Unproved as refused:
    print("refused:", str(refused).splitlines()[0])
