"""What a validated trial upload tells of a site: token, account, conversion action."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from kesin.lifecycle.errors import Category
from kesin.workloads.oci.batches import Reply
from kesin.workloads.oci.channel import Finding, Refused
from kesin.workloads.oci.conversions import Conversion
from kesin.workloads.oci.google_errors import REQUEST_REFUSED
from kesin.workloads.oci.line import Failure

# Obviously no click: it is validated and never recorded, and it must belong to nobody.
TRIAL: Final = Conversion(
    external_id="kesin-check",
    order_id="kesin-check",
    gclid="KesinChecksThisAccountNoRealClick",
    wbraid="",
    gbraid="",
    name="Kesin check",
    at=datetime(2026, 1, 1, 12, tzinfo=UTC),
    value=Decimal(1),
    currency="USD",
)

_TOKEN: Final = ("INVALID_GRANT", "TOKEN_", "OAUTH_TOKEN", "ACCESS_TOKEN", "UNAUTHENTICATED")
_ACTION: Final = (
    "NO_CONVERSION_ACTION",
    "INVALID_CONVERSION_ACTION",
    "RESOURCE_NAME_",
    "RESOURCE_NOT_",
    "BAD_RESOURCE_ID",
)
_ADVICE: Final = {
    "token": "Consent again and put the new refresh token; a consent screen in testing gives"
    " tokens of seven days",
    "account": "Check customer_id, login_customer_id and that the user may use this account",
    "action": "The action must exist in this account, be enabled and import from clicks",
    "later": "Google could not say; try again in a few minutes",
}
_FINE: Final = {
    "token": "Google gives access tokens",
    "account": "the account may be used",
    "action": "the conversion action takes uploads",
}


def findings(outcome: Failure | Reply) -> list[Finding]:
    """One line for each thing, up to the first that is wrong.

    Complaints about the trial conversion itself are what is hoped for: account and action passed.
    """
    refused = outcome.refused if isinstance(outcome, Failure) else _gravest(outcome)
    if refused is None or _about_the_row(outcome, refused):
        return [_fine(name) for name in _FINE]
    name = _subject(refused.code)
    passed = [_fine(one) for one in list(_FINE)[: list(_FINE).index(name)]]
    mendable = refused.category is Category.AUTH
    detail = f"{refused.code}: {refused.message}"
    advice = _ADVICE[name if mendable else "later"]
    return [*passed, Finding(name, ok=False, detail=detail, advice=advice, code=refused.code)]


def _gravest(reply: Reply) -> Refused | None:
    refused = [one for one in reply.rows if isinstance(one, Refused)]
    faults = [one for one in refused if one.category is Category.AUTH]
    return next(iter(faults or refused), None)


def _about_the_row(outcome: Failure | Reply, refused: Refused) -> bool:
    if isinstance(outcome, Failure):
        return outcome.trouble is None and refused.code != REQUEST_REFUSED
    young = refused.code.startswith("TOO_RECENT_") or refused.code.endswith("_NOT_FOUND")
    return refused.category in {Category.VALIDATION, Category.PERMANENT} or (
        young and refused.category is Category.TRANSIENT
    )


def _subject(code: str) -> str:
    if code.startswith(_TOKEN):
        return "token"
    return "action" if code.startswith(_ACTION) else "account"


def _fine(name: str) -> Finding:
    return Finding(name, ok=True, detail=_FINE[name])
