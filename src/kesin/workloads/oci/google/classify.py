"""Classifies Google's errors by ``errorCode``; by message, which may change, only without one.

`error_table.toml` says what each means for a conversion.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kesin.foundation.messages import Message
from kesin.foundation.text import storable
from kesin.lifecycle.errors import Category, Code, Verdict
from kesin.store.limits import MAX_CODE, MAX_MESSAGE
from kesin.workloads.oci.google.channel import RowAccepted, RowRefused, TroubleKind
from kesin.workloads.oci.google.http import dig, objects, text_at


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


_BY_KEY: Final = {
    "row": ROW,
    "account": ACCOUNT,
    "later": LATER,
    "quota": QUOTA,
    "our_fault": OUR_FAULT,
    "too_recent": TOO_RECENT,
    "already_recorded": ALREADY_RECORDED,
}


def _meanings(lines: Mapping[str, str]) -> dict[str, Meaning]:
    return {name: _BY_KEY[key] for key, names in lines.items() for name in names.split()}


def _group(default: str, **lines: str) -> ErrorGroup:
    unnamed = dict.fromkeys(("UNSPECIFIED", "UNKNOWN"), _BY_KEY[default])
    return ErrorGroup(_BY_KEY[default], MappingProxyType(unnamed | _meanings(lines)))


_TABLE: Final = tomllib.loads(files(__package__).joinpath("error_table.toml").read_text("utf-8"))
ALIASES, STATUSES, OWN_CODES = map(_meanings, _TABLE.pop("names").values())
ERROR_TABLE: Final[Mapping[str, ErrorGroup]] = {name: _group(**row) for name, row in _TABLE.items()}

ADJUSTMENTS: Final = "conversionAdjustmentUploadError"  # the group that no conversion meets
# Codes of the channels themselves.
PARTIAL_FAILURE_UNREADABLE: Final = "PARTIAL_FAILURE_UNREADABLE"
UNREADABLE_RESPONSE: Final = "UNREADABLE_RESPONSE"
REQUEST_REFUSED: Final = "REQUEST_REFUSED"
CIRCUIT_OPEN: Final = "CIRCUIT_OPEN"


Match = tuple[str, Meaning]  # a stored code, and what it means
WORKER_CHANNELS: Final = ("api", "data_manager")  # the channels of our own worker

_WORST_FIRST: Final = (ACCOUNT, ROW, TOO_RECENT, QUOTA, LATER, ALREADY_RECORDED)
_SEVERITY: Final = {meaning: rank for rank, meaning in enumerate(_WORST_FIRST)} | {
    OUR_FAULT: _WORST_FIRST.index(ROW)  # equally severe
}
_GROUPS: Final = {name.lower(): name for name in ERROR_TABLE}
_BY_ALIAS: Final = {name.casefold(): (name, each) for name, each in ALIASES.items()}
_WORD: Final = re.compile(r"\w+")


class GoogleError(NamedTuple):
    """An error as Google reported it; ``group`` is the enum's key in ``errorCode``."""

    group: str
    value: str
    message: str
    raw: Any = None


def stored_code(group: str, value: str) -> str:
    """The code to store: the enum's value, with its group where the value alone would mislead."""
    if group and (group == "dateError" or group not in ERROR_TABLE or value.isdecimal()):
        value = f"{group[:1].upper()}{group[1:]}_{value}"
    return value[:MAX_CODE]


def _unambiguous_codes() -> dict[str, Meaning]:
    """The codes that mean the same in every group."""
    meanings: dict[str, set[Meaning]] = {}
    for group, (_, values) in ERROR_TABLE.items():
        for value, meaning in values.items() if group != ADJUSTMENTS else ():
            meanings.setdefault(stored_code(group, value), set()).add(meaning)
    names = (ALIASES, STATUSES, OWN_CODES)
    for name, meaning in chain.from_iterable(each.items() for each in names):
        meanings.setdefault(name, set()).add(meaning)
    return {name: found.pop() for name, found in meanings.items() if len(found) == 1}


def _codes(meanings: Mapping[str, Meaning]) -> tuple[Code, ...]:
    return tuple(Code(name, *meaning, WORKER_CHANNELS if meaning.verdict else ()) for name, meaning in meanings.items())


_MEANINGS: Final = _unambiguous_codes()
CODES: Final = _codes(_MEANINGS)
# The same names may mean something else for an adjustment.
ADJUSTMENT_CODES: Final = _codes(
    _MEANINGS | {name[:MAX_CODE]: each for name, each in ERROR_TABLE[ADJUSTMENTS].values.items()}
)


def read_error(error: Any) -> GoogleError:
    """Read an error of a `GoogleAdsFailure`, with REST or proto keys; never raises."""
    group, value = _error_code(get_either(error, "errorCode", "error_code"))
    message = text_at(error, "message")
    hidden = get_either(dig(error, "details"), "unpublishedErrorCode", "unpublished_error_code")
    if hidden:
        message = f"{message} (unpublished code: {hidden})".strip()
    return GoogleError(group, value, storable(message), error)


def get_either(fields: Any, camel: str, snake: str) -> Any:
    """A field by its REST name, or else by its proto name."""
    value = dig(fields, camel)
    return dig(fields, snake) if value is None else value


def _error_code(code: Any) -> tuple[str, str]:
    """Group and value; both empty if there is no code."""
    if isinstance(code, str):
        return "", storable(code)
    if isinstance(code, Mapping):
        for key, value in code.items():
            if value and isinstance(value, str | int) and not isinstance(value, bool):
                name = str(key)
                return _GROUPS.get(name.replace("_", "").lower(), name), storable(str(value))
    return "", ""


def look_up(error: GoogleError) -> Match:
    group = ERROR_TABLE.get(error.group)
    if group:
        return stored_code(error.group, error.value), group.values.get(error.value, group.default)
    if error.value:
        if alias := _BY_ALIAS.get(error.value.casefold()):
            return alias
        code = stored_code(error.group, error.value)
        return code, _MEANINGS.get(code, LATER)
    words = map(str.casefold, _WORD.findall(error.message[: 10 * MAX_MESSAGE]))
    matches = [_BY_ALIAS[word] for word in words if word in _BY_ALIAS]
    return min(matches, key=lambda match: _SEVERITY[match[1]], default=("UNKNOWN", LATER))


def classify_errors(errors: Sequence[GoogleError]) -> RowAccepted | RowRefused:
    """Classify all errors of a row: the worst decides; only "already recorded" is a success."""
    code, meaning = min((look_up(error) for error in errors), key=lambda match: _SEVERITY[match[1]])
    messages = dict.fromkeys(error.message for error in errors if error.message)
    message = "; ".join(messages)[:MAX_MESSAGE] or code
    if meaning == ALREADY_RECORDED:
        return RowAccepted(code, message)
    return RowRefused(code, message, meaning.category)


TROUBLES: Final[Mapping[Category, TroubleKind]] = {
    Category.AUTH: "AUTH", Category.RATE_LIMIT: "RATE_LIMIT", Category.TRANSIENT: "TRANSIENT",
}  # fmt: skip
_TRANSIENT_STATUSES: Final = frozenset({408, 409, 425, 499})
_SIZE_CODES: Final = ("REQUEST_TOO_LARGE", "TOO_MANY_CONVERSIONS_IN_REQUEST", "TOO_MANY_EVENTS")
_BAD_REQUEST, _TOO_LARGE, _TOO_MANY, _SERVER = 400, 413, 429, 500


def classify_response(http_status: int, body: Any) -> tuple[RowRefused, TroubleKind | None]:
    """Classify a response that is not 200; without trouble it is about unknown rows."""
    errors = read_errors(body)
    matches = [look_up(error) for error in errors]
    if status := storable(text_at(body, "error", "status")).strip()[:MAX_CODE]:
        meaning = _MEANINGS.get(status, LATER)
        matches.append(_BY_ALIAS.get(status.casefold(), (status, meaning)))
    category, trouble = _category_of(http_status, matches[: len(errors)] or matches)
    refusals = [match for match in matches if match[1] != ALREADY_RECORDED]
    names = (name for name, meaning in refusals if meaning.category is category)
    messages = (text_at(body, "error", "message"), *(error.message for error in errors))
    text = "; ".join(dict.fromkeys(map(storable, messages))).strip("; ")[:MAX_MESSAGE]
    unexplained = Message("Google returned %(status)s", status=http_status)
    return RowRefused(next(names, f"HTTP_{http_status}"), text or unexplained, category), trouble


def _category_of(status: int, matches: list[Match]) -> tuple[Category, TroubleKind | None]:
    is_bad = status == _BAD_REQUEST
    if status == _TOO_LARGE or (is_bad and any(name in _SIZE_CODES for name, _ in matches)):
        return Category.TRANSIENT, None
    if is_bad:  # due to the configuration, to the moment or to some rows
        worst = min((each for _, each in matches), key=_SEVERITY.__getitem__, default=ROW)
        return worst.category, None if worst == TOO_RECENT else TROUBLES.get(worst.category)
    if status in _TRANSIENT_STATUSES or status >= _SERVER or status < _BAD_REQUEST:
        return Category.TRANSIENT, "TRANSIENT"
    if status == _TOO_MANY and Category.AUTH not in {meaning.category for _, meaning in matches}:
        return Category.RATE_LIMIT, "RATE_LIMIT"
    return Category.AUTH, "AUTH"


def read_errors(body: Any) -> list[GoogleError]:
    """Read the details of an HTTP error: errors of Google Ads and reasons of other APIs."""
    result: list[GoogleError] = []
    for detail in objects(dig(body, "error", "details")):
        errors = detail.get("errors")
        result += [read_error(item) for item in errors] if isinstance(errors, list) else ()
        if reason := text_at(detail, "reason"):
            result.append(GoogleError("errorReason", reason, "", detail))
    return result
