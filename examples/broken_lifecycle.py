"""A lifecycle with a hole in it: the proof finds the hole, and the queue does not start."""

from dataclasses import replace

from kesin import Queue, Unproved, open_store, prove, task_lifecycle

sound = task_lifecycle(max_attempts=2)
print(prove(sound), end="\n\n")

# Somebody finds the sweeper's move superfluous: "our workers never die".
forgetful = replace(sound, moves=tuple(move for move in sound.moves if move.name != "recover"))
for broken in prove(forgetful).broken:
    print(broken, end="\n\n")  # the rule, and the shortest way a job gets there

# Somebody forgets to count the attempts: a job that fails goes round for ever.
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
