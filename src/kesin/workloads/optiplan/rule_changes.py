"""Rules that somebody changes: checked as a whole, written in one go, with who changed what."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Clash
from kesin.foundation.text import canonical_json
from kesin.workloads.optiplan.service import QUEUE, OrderDesk
from kesin.workloads.optiplan.workshop.rules import Rules, read_rules, rules_json, save_rules

# What belongs to the lifecycle, which is declared when a process starts.
FROM_NEXT_START: Final = frozenset({"retry_count_max", "retry_backoff_minutes", "timeouts"})
_TURNS: Final = "optiplan_turns"  # nothing is kept there: a row to wait for each other at


@dataclass(frozen=True, slots=True)
class Change:
    """The rules as they are now, and which keys differ from before."""

    rules: Rules
    changed: tuple[str, ...]

    @property
    def from_next_start(self) -> tuple[str, ...]:
        return tuple(key for key in self.changed if key in FROM_NEXT_START)


def mark_of(rules: Rules) -> str:
    """The same for the same rules: whoever edits them sends back what they began with."""
    return hashlib.sha256(canonical_json(rules_json(rules)).encode()).hexdigest()


def check_seen(rules: Rules, seen: str) -> None:
    """Raise Clash if others are in force than somebody began with."""
    if seen != mark_of(rules):
        raise Clash(
            "somebody else has changed the rules meanwhile: look at them again",
            code="rules_changed",
        )


def change_rules(desk: OrderDesk, actor: Actor, body: Any, *, seen: str | None = None) -> Change:
    """Put these rules in the place of those in force; raises OrderProblem.

    With ``seen``, the mark of the rules somebody edited, raises Clash if others are in force by
    now: those who save take turns. The audit line is written first and stands only if the file
    could be written.
    """
    house = desk.house
    house.commands.queue(actor, QUEUE, "operate", "rules")
    new = read_rules(body)
    directory = house.commands.accounts.directory
    with directory.transaction():
        directory.hold_fact(_TURNS, "", "rules.json", desk.queue.now())
        old = desk.workshop.rules()
        if seen is not None:
            check_seen(old, seen)
        before, after = rules_json(old), rules_json(new)
        changed = tuple(
            sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
        )
        if changed:
            told = {key: {"from": before.get(key), "to": after.get(key)} for key in changed}
            house.commands.accounts.note(
                actor, "optiplan.rules", queue=QUEUE, target="rules.json", details=told
            )
            save_rules(desk.workshop.rules_file, new)
    return Change(new, changed)
