"""The versions of a queue's rules: one is written only if the jobs under the stored one fit it."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from kesin.foundation.clock import wall_clock_us
from kesin.foundation.logs import Logger
from kesin.lifecycle.codec import lifecycle_from_json, lifecycle_json, rules_fingerprint
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.proof.rules import BrokenRule, Proof
from kesin.lifecycle.proof.upgrade import StoredNames, check_names, job_count, prove_upgrade
from kesin.store.counters import count_jobs
from kesin.store.declarations import Effects, declared_moves
from kesin.store.errors import StoreError
from kesin.store.records import Definition, MoveCount, RulesVersion

log = Logger("kesin.store")


class UpgradeRefused(StoreError):
    """The declared rules do not fit the stored ones; the message lists the reasons."""

    def __init__(self, queue: str, broken: Sequence[BrokenRule]) -> None:
        reasons = "\n".join(map(str, broken))
        super().__init__(f"queue {queue!r}: its stored jobs do not fit the new rules:\n{reasons}")
        self.broken = tuple(broken)


def is_stored(versions: Sequence[RulesVersion], lifecycle: Lifecycle, *, virtual_time: bool) -> bool:
    """Whether these rules are stored; logs when they are an older version, as in a rollout."""
    fingerprint = rules_fingerprint(lifecycle)
    known = [version for version in versions if version.fingerprint == fingerprint]
    if not known or (virtual_time and not any(version.virtual_time for version in versions)):
        return False
    if known[-1] != versions[-1] and versions[-1].fingerprint != fingerprint:
        log.warning("older_rules_opened", queue=known[-1].queue, version=known[-1].version, newest=versions[-1].version)
    return True


def warn_of_two(queue: str, opened: Lifecycle, lifecycle: Lifecycle) -> None:
    """Log that a process opens a queue under another lifecycle: its calls follow the last one."""
    if opened is not lifecycle and rules_fingerprint(opened) != rules_fingerprint(lifecycle):
        log.warning("another_lifecycle_opened", queue=queue, before=opened.name, lifecycle=lifecycle.name)


def require_upgrade(
    queue: str, lifecycle: Lifecycle, stored: RulesVersion | None, retired: frozenset[str], counts: Iterable[MoveCount]
) -> None:
    """Raise UpgradeRefused unless the rules can follow the newest stored ones."""
    if stored is not None and stored.fingerprint != rules_fingerprint(lifecycle):
        proof = upgrade_proof(lifecycle, stored, retired, counts)
        if not proof:
            raise UpgradeRefused(queue, proof.broken)


def upgrade_proof(
    lifecycle: Lifecycle, stored: RulesVersion, retired: frozenset[str], counts: Iterable[MoveCount]
) -> Proof:
    """Whether jobs under the stored rules fit these; ``counts`` say how many each state holds."""
    jobs = jobs_by_state(counts)
    if stored.version:
        proof = proof_between(stored.definition, lifecycle, retired)
        before = lifecycle_from_json(stored.definition)
        return proof or prove_upgrade(before, lifecycle, retired=retired, jobs=jobs)
    known = Definition.parse(stored.definition)  # only names were stored then
    names = StoredNames(known.flags, known.stamps, known.states, retired)
    return Proof(lifecycle.name, tuple(check_names(lifecycle, names, jobs)), 0, None)


@lru_cache(maxsize=64)
def proof_between(definition: str, lifecycle: Lifecycle, retired: frozenset[str]) -> Proof:
    """A proof takes up to a second, and a process may open the same rules in many stores."""
    return prove_upgrade(lifecycle_from_json(definition), lifecycle, retired=retired)


def known_states(version: RulesVersion) -> frozenset[str]:
    if version.version:
        return frozenset(lifecycle_from_json(version.definition).state)
    return frozenset(Definition.parse(version.definition).states)


def next_version(queue: str, lifecycle: Lifecycle, stored: RulesVersion | None, *, virtual_time: bool) -> RulesVersion:
    """The version of these rules that follows the stored one, declared now."""
    number = 1 if stored is None else stored.version + 1
    text, fingerprint = lifecycle_json(lifecycle), rules_fingerprint(lifecycle)
    return RulesVersion(queue, number, fingerprint, text, virtual_time, wall_clock_us())


def state_rows(version: RulesVersion) -> list[dict[str, Any]]:
    """A version's states as the stores keep them, with the phase of unclaimed jobs; 0 has none."""
    if not version.version:
        return []
    lifecycle = lifecycle_from_json(version.definition)
    phase, waits = lifecycle.unowned_phase, lifecycle.waiting_states
    return [
        {"name": s.name, "phase": phase(s.name), "success": s.success, "waits": s.name in waits}
        for s in lifecycle.states
    ]


def accounted_effects(versions: Sequence[RulesVersion]) -> dict[tuple[str, str, str], list[Effects] | None]:
    """The effects of every edge (move, from, to); None if it is of version 0, which stored none."""
    known: dict[tuple[str, str, str], list[Effects] | None] = {}
    for version in versions:
        if version.version == 0:
            known |= dict.fromkeys(version.edges)
            continue
        for edge, effects in declared_moves("", lifecycle_from_json(version.definition)).items():
            declared = known.setdefault(edge[1:], [])
            if declared is not None:
                declared.append(effects)
    return known


def jobs_by_state(counts: Iterable[MoveCount]) -> dict[str, int]:
    """The number of jobs in each state, whatever rules are open."""
    return {state: n for state, n in count_jobs("", list(counts)).states.items() if n}


def refuse_occupied(queue: str, state: str, jobs: int) -> None:
    if jobs:
        raise StoreError(
            f"the state {state} of {queue} holds {job_count(jobs)}: wait until it is empty or move"
            " them out, then retire it"
        )
