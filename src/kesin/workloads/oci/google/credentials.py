"""What a site needs to upload by itself: sealed at rest, never shown again.

One JSON document a site, kept in the vault under ``oci/SITE``. Changing any part means putting the
whole document anew, so nothing is ever read back to be edited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self

from kesin.foundation.problems import Invalid

_DIGITS: Final = re.compile(r"[0-9]{6,20}")
_ACTION: Final = re.compile(r"customers/[0-9]+/conversionActions/[0-9]+")
_LONGEST: Final = 4_096


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """An OAuth client, a refresh token, and what to upload to."""

    customer_id: str
    client_id: str
    client_secret: str
    refresh_token: str
    conversion_action_resource_name: str
    developer_token: str = ""  # ignored by Google since September 2026
    login_customer_id: str = ""  # the manager account, where access comes through one

    def __repr__(self) -> str:
        """Nothing that is a secret: these may end in a log."""
        return f"Credentials(customer_id={self.customer_id!r}, …)"

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Check what somebody typed; raises Invalid naming the field and never its value."""
        names = [one.name for one in fields(cls)]
        for name in given:
            if name not in names:
                raise _wrong(name[:64], f"is no credential: there are {', '.join(names)}")
        told = {}
        for name in names:
            value = given.get(name)
            value = str(value) if isinstance(value, int) else value
            value = value.strip() if isinstance(value, str) else value
            if value is None or value == "":
                if name not in {"developer_token", "login_customer_id"}:
                    raise _wrong(name, "is missing")
                value = ""
            if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
                raise _wrong(name, "must be one line of text")
            told[name] = value
        for name in ("customer_id", "login_customer_id"):
            given_none = not told[name]  # which the check above allows for one of the two
            told[name] = told[name].replace("-", "").replace(" ", "")
            if not given_none and not _DIGITS.fullmatch(told[name]):
                raise _wrong(name, "must be the digits of a Google Ads account, 123-456-7890")
        if not _ACTION.fullmatch(told["conversion_action_resource_name"]):
            raise _wrong(
                "conversion_action_resource_name",
                "must look like customers/1234567890/conversionActions/987654321",
            )
        return cls(**told)

    @classmethod
    def opened(cls, text: str) -> Self:
        """From the vault."""
        return cls.read(json.loads(text))

    def sealed_text(self) -> str:
        """For the vault."""
        return json.dumps(asdict(self), sort_keys=True)


def vault_name(site_id: str) -> str:
    """Where a site's credentials are kept."""
    return f"oci/{site_id}"


def _wrong(field: str, what: str) -> Invalid:
    return Invalid(f"{field} {what}", code="bad_credentials", details={"field": field})
