"""Rules that somebody changes: checked as a whole, written in one go, with who changed what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kesin.foundation.access import Actor
from kesin.workloads.optiplan.order_desk import QUEUE, OrderDesk
from kesin.workloads.optiplan.rules import Rules, read_rules, rules_json, save_rules

# What belongs to the lifecycle, which is declared when a process starts.
FROM_NEXT_START: Final = frozenset({"retry_count_max", "retry_backoff_minutes", "timeouts"})


@dataclass(frozen=True, slots=True)
class Change:
    """The rules as they are now, and which keys differ from before."""

    rules: Rules
    changed: tuple[str, ...]

    @property
    def from_next_start(self) -> tuple[str, ...]:
        return tuple(key for key in self.changed if key in FROM_NEXT_START)


def change_rules(desk: OrderDesk, actor: Actor, body: Any) -> Change:
    """Put these rules in the place of those in force; raises OrderProblem.

    The audit line is written first and stands only if the file could be written.
    """
    house = desk.house
    house.commands.queue(actor, QUEUE, "operate", "rules")
    new = read_rules(body)
    before, after = rules_json(desk.workshop.rules()), rules_json(new)
    changed = tuple(
        sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    )
    if changed:
        told = {key: {"from": before.get(key), "to": after.get(key)} for key in changed}
        with desk.queue.store.transaction():
            house.commands.accounts.note(
                actor, "optiplan.rules", queue=QUEUE, target="rules.json", details=told
            )
            save_rules(desk.workshop.rules_file, new)
    return Change(new, changed)
