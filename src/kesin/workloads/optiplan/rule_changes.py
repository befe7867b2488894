"""Changes to the workshop's rules: validated together, written atomically and audited."""

import hashlib
from typing import Any, Final

from kesin.foundation.permissions import Actor
from kesin.foundation.problems import RequestConflict
from kesin.foundation.text import canonical_json
from kesin.workloads.optiplan.orders.payload import FieldProblem
from kesin.workloads.optiplan.service import QUEUE, OrderService
from kesin.workloads.optiplan.workshop.rules import Rules, read_rules, rules_json, save_rules

# Rules of the lifecycle, which is declared when a process starts.
FROM_NEXT_START: Final = frozenset({"retry_count_max", "retry_backoff_minutes", "timeouts"})
_LOCK_WORKLOAD: Final = "optiplan_turns"  # stores nothing: its row is the lock


def rules_digest(rules: Rules) -> str:
    """Return a hash of the rules; an editor sends it back to show which rules it started from."""
    return hashlib.sha256(canonical_json(rules_json(rules)).encode()).hexdigest()


def check_unchanged(rules: Rules, expected_digest: str) -> None:
    """Raise RequestConflict if the rules are no longer those with the expected digest."""
    if expected_digest != rules_digest(rules):
        why = "the rules have changed in the meantime: review them again"
        raise RequestConflict(why, code="rules_changed")


def read_new_rules(body: Any) -> Rules:
    """Validate new rules; OrderProblem without a saw blade: its default would not be seen."""
    rules = read_rules(body)
    if "kerf_mm" not in rules.model_fields_set:
        raise FieldProblem(("kerf_mm",), "is missing").as_problem()
    return rules


def change_rules(
    service: OrderService, actor: Actor, body: Any, *, expected_digest: str | None = None
) -> tuple[Rules, list[str]]:
    """Replace the rules, one change at a time; returns them and the keys that changed."""
    context = service.context
    context.commands.queue(actor, QUEUE, "operate", "rules")
    new = read_new_rules(body)
    directory = context.commands.accounts.directory
    with directory.transaction():
        directory.lock_metadata(_LOCK_WORKLOAD, "", "rules.json", service.queue.now())
        old = service.workshop.rules()
        if expected_digest is not None:
            check_unchanged(old, expected_digest)
        before, after = rules_json(old), rules_json(new)
        keys = sorted(before.keys() | after.keys())
        changed = [key for key in keys if before.get(key) != after.get(key)]
        if changed:  # the audit entry is first: it is committed only if the file is written
            details = {key: {"from": before.get(key), "to": after.get(key)} for key in changed}
            context.commands.accounts.note(actor, "optiplan.rules", queue=QUEUE, target="rules.json", details=details)
            save_rules(service.workshop.rules_file, new)
    return new, changed
