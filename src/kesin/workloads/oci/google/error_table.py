"""The table of Google's errors (`error_table.toml`): what each means for a conversion."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Final, NamedTuple

from kesin.lifecycle.errors import Category, Verdict


class Meaning(NamedTuple):
    """The meaning of an error: its category, and a verdict where the category is not enough."""

    category: Category
    verdict: Verdict | None = None
    move: str | None = None


ROW = Meaning(Category.VALIDATION)  # the conversion is wrong
ACCOUNT = Meaning(Category.AUTH)  # the account, the action or the access is wrong
LATER = Meaning(Category.TRANSIENT)
QUOTA = Meaning(Category.RATE_LIMIT)
OUR_FAULT = Meaning(Category.PERMANENT)  # we built a wrong request
TOO_RECENT = Meaning(Category.TRANSIENT, Verdict.WAIT)  # Google does not know about the click yet
# By an earlier request.
ALREADY_RECORDED = Meaning(Category.PERMANENT, Verdict.COMPLETE, "ack_duplicate")


class ErrorGroup(NamedTuple):
    """One enum: the meanings of its values, and the default of values not listed."""

    default: Meaning
    values: Mapping[str, Meaning]


_MEANINGS: Final = {
    "row": ROW,
    "account": ACCOUNT,
    "later": LATER,
    "quota": QUOTA,
    "our_fault": OUR_FAULT,
    "too_recent": TOO_RECENT,
    "already_recorded": ALREADY_RECORDED,
}


def _meanings(lines: Mapping[str, str]) -> dict[str, Meaning]:
    return {name: _MEANINGS[key] for key, names in lines.items() for name in names.split()}


def _group(default: str, **lines: str) -> ErrorGroup:
    unnamed = dict.fromkeys(("UNSPECIFIED", "UNKNOWN"), _MEANINGS[default])
    return ErrorGroup(_MEANINGS[default], MappingProxyType(unnamed | _meanings(lines)))


_TABLE: Final = tomllib.loads(files(__package__).joinpath("error_table.toml").read_text("utf-8"))
ALIASES, STATUSES, OWN_CODES = map(_meanings, _TABLE.pop("names").values())
ERROR_TABLE: Final[Mapping[str, ErrorGroup]] = {name: _group(**row) for name, row in _TABLE.items()}

ADJUSTMENTS: Final = "conversionAdjustmentUploadError"  # the group that no conversion meets
# Codes of the channels themselves.
PARTIAL_FAILURE_UNREADABLE: Final = "PARTIAL_FAILURE_UNREADABLE"
UNREADABLE_RESPONSE: Final = "UNREADABLE_RESPONSE"
REQUEST_REFUSED: Final = "REQUEST_REFUSED"
CIRCUIT_OPEN: Final = "CIRCUIT_OPEN"
