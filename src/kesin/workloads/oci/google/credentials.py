"""A site's Google credentials: one sealed document, replaced as a whole and never shown again."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid
from kesin.workloads.oci.conversions.actions import ConversionAction

_DIGITS: Final = re.compile(r"[0-9]{6,20}")
_ACTION: Final = re.compile(r"customers/[0-9]+/conversionActions/[0-9]+")
_MAX_LENGTH: Final = 4_096


@dataclass(frozen=True, slots=True, repr=False)
class GoogleCredentials:
    """An OAuth client, a refresh token and the conversion action to upload to."""

    customer_id: str
    client_id: str
    client_secret: str
    refresh_token: str
    conversion_action_resource_name: str
    developer_token: str = ""  # ignored by Google since September 2026
    login_customer_id: str = ""  # the manager account, if access goes through one

    def __repr__(self) -> str:
        """Without secrets: this may end up in a log."""
        return f"GoogleCredentials(customer_id={self.customer_id!r}, …)"

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Validate a document; raises Invalid naming the field, never its value."""
        names = [*cls.__dataclass_fields__]
        for name in document:
            if name not in names:
                why = Message("is not a credential: expected %(known)s", known=", ".join(names))
                raise _invalid(name[:64], why)
        values = {}
        for name in names:
            value = document.get(name)
            value = str(value) if isinstance(value, int) else value
            value = value.strip() if isinstance(value, str) else value
            if value is None or value == "":
                if name not in {"developer_token", "login_customer_id"}:
                    raise _invalid(name, "is missing")
                value = ""
            if not isinstance(value, str) or len(value) > _MAX_LENGTH or not value.isprintable():
                raise _invalid(name, "must be one line of text")
            values[name] = value
        for name in ("customer_id", "login_customer_id"):
            is_empty = not values[name]  # allowed above for login_customer_id
            values[name] = values[name].replace("-", "").replace(" ", "")
            if not is_empty and not _DIGITS.fullmatch(values[name]):
                raise _invalid(name, "must be a Google Ads account such as 123-456-7890")
        if not _ACTION.fullmatch(values[name := "conversion_action_resource_name"]):
            shape = Message("must look like customers/1234567890/conversionActions/987654321")
            raise _invalid(name, shape)
        return cls(**values)

    def resource_name(self, action: ConversionAction | None) -> str:
        """Google's name of a conversion action; without one, of the only one of the site."""
        if action is None:
            return self.conversion_action_resource_name
        return f"customers/{self.customer_id}/conversionActions/{action.id}"

    def to_text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def vault_name(site_id: str) -> str:
    return f"oci/{site_id}"


def _invalid(field: str, problem: str) -> Invalid:
    why, details = Message(problem), {"field": field}
    return Invalid(
        "%(field)s %(problem)s", code="bad_credentials", details=details, field=field, problem=why
    )
