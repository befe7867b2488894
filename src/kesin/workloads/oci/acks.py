"""What a script reports: delivered, or failed and why.

Reports may be late, repeated, or about rows of others. A delivery is never lost: whatever happened
to the row meanwhile, Google has it. A failure only ends a row that is still being worked on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kesin.foundation.ids import is_id
from kesin.foundation.problems import Problem
from kesin.foundation.text import canonical_json, storable
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change
from kesin.store.directory import Site
from kesin.store.limits import MAX_CODE, MAX_MESSAGE
from kesin.store.records import Outcome
from kesin.workloads.oci.conversions import SEAL
from kesin.workloads.workload import House

CATEGORIES: Final = (
    Category.VALIDATION,
    Category.TRANSIENT,
    Category.AUTH,
    Category.RATE_LIMIT,
)
DEFAULT_CODE: Final = "VALIDATION_FAILED"

# Why a row stayed as it was, for whoever reads the answer.
_WHY: Final = {
    "unknown": "no such row of this site",
    "was_claimed": "it was never exported since its data last changed",
    "state": "it is {state} already",
}


@dataclass(frozen=True, slots=True)
class Report:
    """What a report changed, and which rows stayed as they were."""

    updated: int
    refused: list[tuple[str, str]]  # (id as it was named, why)


def ack(house: House, site: Site, queue_ids: Sequence[str], *, actor: str) -> Report:
    """Google has these; a repeated report is a success that changes nothing."""
    ids = sealed(queue_ids)
    result = canonical_json({"channel": "script"})
    changes = [Change(one, result=result) for one in ids]
    return _report(house, site, "ack", changes, actor, done="COMPLETED")


def ack_failed(
    house: House,
    site: Site,
    queue_ids: Sequence[str],
    *,
    code: str | None,
    message: str | None,
    category: str | None,
    actor: str,
) -> Report:
    """These failed at the script; every category rests in FAILED, and revive takes on two."""
    known = {one.value for one in CATEGORIES}
    category = Category.VALIDATION.value if category is None else category
    if category not in known:
        raise Problem(
            f"errorCategory is one of {', '.join(sorted(known))}, not {category[:64]!r}",
            code="bad_error_category",
            details={"field": "errorCategory"},
        )
    code = storable((code or "").strip())[:MAX_CODE] or DEFAULT_CODE
    message = storable((message or "").strip())[:MAX_MESSAGE] or code
    changes = [
        Change(one, error_code=code, error_category=category, error_message=message)
        for one in sealed(queue_ids)
    ]
    return _report(house, site, "ack_failed", changes, actor, done="FAILED")


def sealed(queue_ids: Sequence[str]) -> list[str]:
    """The rows' ids; raises Problem naming what carries no seal. Each is taken once."""
    strange = [one for one in queue_ids if not one.startswith(SEAL)]
    if strange:
        raise Problem(
            f"ids begin with {SEAL!r}; these do not: {', '.join(one[:80] for one in strange[:20])}",
            code="bad_queue_id",
            details={"ids": [one[:80] for one in strange[:100]]},
        )
    return list(dict.fromkeys(one.removeprefix(SEAL) for one in queue_ids))


def _report(
    house: House, site: Site, call: str, changes: list[Change], actor: str, *, done: str
) -> Report:
    known = [one for one in changes if is_id(one.id)]
    outcomes = house.queue.apply(call, known, actor=actor, tenants=[site.id]) if known else []
    refused = [(f"{SEAL}{one.id}", _WHY["unknown"]) for one in changes if not is_id(one.id)]
    refused += [
        (f"{SEAL}{one.id}", why(one))
        for one in outcomes
        if one.result != "moved" and (one.result == "unknown" or one.state != done)
    ]
    return Report(sum(one.result == "moved" for one in outcomes), refused)


def why(outcome: Outcome) -> str:
    """A refusal as a sentence."""
    cause = "unknown" if outcome.result == "unknown" else outcome.reason
    text = _WHY.get(cause, cause or outcome.result)
    return text.format(state=outcome.state) if "{" in text else text
