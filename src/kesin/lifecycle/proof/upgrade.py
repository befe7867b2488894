"""The proof of an upgrade: every job that the stored rules can leave anywhere still ends.

During a rollout processes of both versions move jobs, so the places a job can be in are those that
moves of both reach together. From each of them the new moves alone must bring it to rest. Not
proved: that moves of both versions mixed never go round in a circle while the rollout lasts.
docs/backup.md lists the rules U1 to U4.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from kesin.lifecycle.declare import Lifecycle, State
from kesin.lifecycle.proof.rules import SMALL_ATTEMPT_CAPS, BrokenRule, Proof, check_parents, check_walk, longest_from
from kesin.lifecycle.proof.walk import Walk


class StoredNames(NamedTuple):
    """The names of stored rules, and which of the states were retired since."""

    flags: tuple[str, ...]
    stamps: tuple[str, ...]
    states: tuple[str, ...]
    retired: frozenset[str]


def check_names(lifecycle: Lifecycle, stored: StoredNames, jobs: Mapping[str, int] | None) -> Iterator[BrokenRule]:
    """Check U1 and U2 against stored names; ``jobs`` counts the jobs of each state."""
    flags = ("flags", stored.flags, lifecycle.flags)
    for kind, before, after in (flags, ("stamps", stored.stamps, lifecycle.stamps)):
        if after[: len(before)] != before:
            yield BrokenRule(
                "U1",
                f"the stored {kind} are {_listed(before)}, the declared ones {_listed(after)}: jobs"
                f" store {kind} by position, so keep the existing order and add new ones at the end"
                f"{_stored(jobs)}",
            )
    for state in stored.states:
        if state not in lifecycle.state and state not in stored.retired:
            count = "" if jobs is None else f" (it holds {job_count(jobs.get(state, 0))})"
            yield BrokenRule(
                "U2",
                f"the state {state} is gone{count}: declare it with retiring=True, wait until it is"
                " empty, retire it (kesin lifecycle retire), and then leave it out; or use another"
                " queue",
            )
    for name in sorted(stored.retired & lifecycle.state.keys()):
        if not lifecycle.state[name].retiring:
            yield BrokenRule("U2", f"the state {name} was retired: give the new one another name")


def prove_upgrade(
    stored: Lifecycle,
    lifecycle: Lifecycle,
    *,
    retired: frozenset[str] = frozenset(),
    jobs: Mapping[str, int] | None = None,
) -> Proof:
    """Check U1 to U4 from one declaration to the next; pure, and quick enough for a start."""
    states = tuple(state.name for state in stored.states)
    names = StoredNames(stored.flags, stored.stamps, states, retired)
    broken = list(check_names(lifecycle, names, jobs))
    broken += _check_kept_states(stored, lifecycle, jobs)
    if broken:  # the walk would only repeat it, at length
        return Proof(lifecycle.name, tuple(broken), 0, None)
    configurations, bound = 0, 0
    for cap in dict.fromkeys((lifecycle.max_attempts, stored.max_attempts, *SMALL_ATTEMPT_CAPS)):
        walk = Walk(lifecycle.with_limits(max_attempts=cap), stored.with_limits(max_attempts=cap))
        found = [*check_walk(walk), *check_parents(lifecycle)]
        if found:
            subject = f"a job with max_attempts={cap}{_stored(jobs)}"
            broken += [replace(rule, rule=f"U4/{rule.rule}", why=f"{subject}: {rule.why}") for rule in found]
            return Proof(lifecycle.name, tuple(broken), len(walk.configurations), None)
        if cap == lifecycle.max_attempts:
            configurations = len(walk.configurations)
            bound = max(longest_from(walk).values())
    return Proof(lifecycle.name, (), configurations, bound)


def _check_kept_states(stored: Lifecycle, lifecycle: Lifecycle, jobs: Mapping[str, int] | None) -> Iterator[BrokenRule]:
    for before in stored.states:
        after = lifecycle.state.get(before.name)
        if after is None:
            continue
        count = _stored(jobs, before.name)
        phases = stored.unowned_phase(before.name), lifecycle.unowned_phase(before.name)
        if phases[0] != phases[1]:
            names = ("ready", "claimed", "resting", "finished", "waiting")
            was, is_now = (names[phase] for phase in phases)
            why = f"jobs in {before.name} are {was} but would have to be {is_now}, and stored rows do not change"
            yield BrokenRule("U3", f"{why}{count}")
        waits = before.name in stored.waiting_states, before.name in lifecycle.waiting_states
        for had, has, what in (
            (before.holds_key, after.holds_key, "{} holds the key, but stored rows do not change"),
            (before.success, after.success, "is {} a success, but jobs that come after others depend on this mark"),
            (*waits, "{} waits for other jobs, but stored rows do not change"),
        ):
            if had != has:
                said = what.format("now" if has else "no longer")
                yield BrokenRule("U3", f"{before.name} {said}{count}")
        if _scope(before) != _scope(after):
            why = f"{before.name} had {_scope(before)} but would have {_scope(after)}"
            yield BrokenRule("U3", f"{why}, and stored rows do not change{count}")


def _scope(state: State) -> str:
    """Whose slots a state has; how many they are may change."""
    return f"slots per {state.slots_per}" if state.capacity else "no slots"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def _stored(jobs: Mapping[str, int] | None, state: str | None = None) -> str:
    """How many jobs the refusal is about, in brackets; nothing if there is no store to count in."""
    if jobs is None:
        return ""
    return f" ({job_count(sum(jobs.values()) if state is None else jobs.get(state, 0))} stored)"


def job_count(jobs: int) -> str:
    return "1 job" if jobs == 1 else f"{jobs} jobs"
