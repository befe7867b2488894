"""What Google's errors mean for a row: judged by the table in `google_errors.py`.

Judged is the ``errorCode``, never the prose beside it: messages change, enums do not. The names
that people use for the same things are aliases; they are looked for in a message only where an
error brings no code at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kesin.foundation.text import storable
from kesin.lifecycle.errors import Category, Code
from kesin.store.limits import MAX_CODE, MAX_MESSAGE
from kesin.workloads.oci.google.channel import Accepted, Refused, TroubleKind
from kesin.workloads.oci.google.error_table import (
    ACCOUNT,
    ALIASES,
    HAD,
    LATER,
    OUR_FAULT,
    OWN,
    QUOTA,
    ROW,
    STATUSES,
    TABLE,
    YOUNG,
    Says,
)

OURS: Final = ("api", "data_manager")  # where our own worker hears what Google says

_GRAVEST: Final = (ACCOUNT, ROW, OUR_FAULT, YOUNG, QUOTA, LATER, HAD)
_RANK: Final = {says: rank for rank, says in enumerate(_GRAVEST)} | {
    OUR_FAULT: _GRAVEST.index(ROW)  # neither is graver
}
_GROUPS: Final = {name.lower(): name for name in TABLE}
_BY_ALIAS: Final = {name.casefold(): (name, says) for name, says in ALIASES.items()}
_WORD: Final = re.compile(r"\w+")


class GoogleError(NamedTuple):
    """One error as Google told it; ``group`` is the enum's key in ``errorCode``."""

    group: str
    value: str
    message: str
    raw: Any = None


def code_of(group: str, value: str) -> str:
    """The code that is stored: the enum's value, with its group where it would mislead alone."""
    if group and (group == "dateError" or group not in TABLE or value.isdecimal()):
        value = f"{group[:1].upper()}{group[1:]}_{value}"
    return value[:MAX_CODE]


def _names() -> dict[str, Says]:
    """Every code that says the same in every group; of the others the caller knows more."""
    said: dict[str, set[Says]] = {}
    for group, (_, values) in TABLE.items():
        for value, says in values.items():
            said.setdefault(code_of(group, value), set()).add(says)
    for name, says in (*ALIASES.items(), *STATUSES.items(), *OWN.items()):
        said.setdefault(name, set()).add(says)
    return {name: next(iter(ways)) for name, ways in said.items() if len(ways) == 1}


_NAMES: Final = _names()
CODES: Final[tuple[Code, ...]] = tuple(
    Code(name, says.category, says.verdict, says.move, OURS if says.verdict else ())
    for name, says in _NAMES.items()
)


def read_error(error: Any) -> GoogleError:
    """An error of a `GoogleAdsFailure`, however its keys are spelled; never raises."""
    told = error if isinstance(error, Mapping) else {}
    group, value = _error_code(either(told, "errorCode", "error_code"))
    message = told.get("message")
    message = message if isinstance(message, str) else ""
    details = told.get("details")
    if isinstance(details, Mapping):
        hidden = either(details, "unpublishedErrorCode", "unpublished_error_code")
        if hidden:
            message = f"{message} (unpublished code: {hidden})".strip()
    return GoogleError(group, value, storable(message), error)


def either(told: Mapping[str, Any], camel: str, snake: str) -> Any:
    """A field by the name REST gives it, or else by the one of the proto."""
    found = told.get(camel)
    return told.get(snake) if found is None else found


def _error_code(given: Any) -> tuple[str, str]:
    """Group and value; both empty where there is no code."""
    if isinstance(given, str):
        return "", storable(given)
    if isinstance(given, Mapping):
        for key, value in given.items():
            if value and isinstance(value, str | int) and not isinstance(value, bool):
                name = str(key)
                return _GROUPS.get(name.replace("_", "").lower(), name), storable(str(value))
    return "", ""


def look_up(error: GoogleError) -> tuple[str, Says]:
    """The stored code and what it says."""
    known = TABLE.get(error.group)
    if known:
        return code_of(error.group, error.value), known.values.get(error.value, known.default)
    if error.value:
        alias = _BY_ALIAS.get(error.value.casefold())
        if alias:
            return alias
        code = code_of(error.group, error.value)
        return code, _NAMES.get(code, LATER)
    found = [_BY_ALIAS[word] for word in _words(error.message) if word in _BY_ALIAS]
    if found:
        return min(found, key=lambda one: _RANK[one[1]])
    return "UNKNOWN", LATER


def _words(message: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(message[: 10 * MAX_MESSAGE])]


def judge(errors: Sequence[GoogleError]) -> Accepted | Refused:
    """All errors of one row: the gravest decides, and only "had it already" alone is a success."""
    if not errors:
        raise ValueError("a row without an error is not judged")
    code, says = min((look_up(error) for error in errors), key=lambda one: _RANK[one[1]])
    message = _joined(errors) or code
    if says == HAD:
        return Accepted(code, message)
    return Refused(code, message, says.category)


def _joined(errors: Sequence[GoogleError]) -> str:
    messages = dict.fromkeys(error.message for error in errors if error.message)
    return "; ".join(messages)[:MAX_MESSAGE]


class Judged(NamedTuple):
    """An HTTP error: what it says of every row, and whether it is the site's trouble.

    Without trouble it is about some of the rows, and nobody knows which.
    """

    refused: Refused
    trouble: TroubleKind | None


_LATER_STATUS: Final = frozenset({408, 409, 425, 499})
_SIZE: Final = frozenset(
    {"REQUEST_TOO_LARGE", "TOO_MANY_CONVERSIONS_IN_REQUEST", "TOO_MANY_EVENTS"}
)
_BAD_REQUEST, _TOO_LARGE, _TOO_MANY, _SERVER = 400, 413, 429, 500


def judge_status(http_status: int, body: Any) -> Judged:
    """An answer that is no 200; the body helps to name it, the status says how grave it is."""
    error = body.get("error") if isinstance(body, Mapping) else None
    told: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    errors = errors_in(body)
    status = told.get("status")
    named = [look_up(one) for one in errors]
    if isinstance(status, str) and (status := storable(status).strip()):
        named.append(_of_status(status))
    category, trouble = _category_of(http_status, named[: len(errors)] or named)
    code = next(
        (name for name, says in named if says.category is category and says != HAD),
        f"HTTP_{http_status}",
    )
    messages = [told.get("message"), *(one.message for one in errors)]
    text = "; ".join(dict.fromkeys(storable(one) for one in messages if isinstance(one, str)))
    text = text.strip("; ")[:MAX_MESSAGE] or f"Google answered {http_status}"
    return Judged(Refused(code, text, category), trouble)


def _of_status(status: str) -> tuple[str, Says]:
    code = status[:MAX_CODE]
    return _BY_ALIAS.get(code.casefold()) or (code, _NAMES.get(code, LATER))


def _category_of(status: int, found: list[tuple[str, Says]]) -> tuple[Category, TroubleKind | None]:
    said = {says.category for _, says in found}
    if status == _TOO_LARGE:
        return Category.TRANSIENT, None
    if status == _BAD_REQUEST:
        return _category_of_400(found)
    if status == _TOO_MANY:
        return (
            (Category.AUTH, "AUTH")
            if Category.AUTH in said
            else (Category.RATE_LIMIT, "RATE_LIMIT")
        )
    if status in _LATER_STATUS or status >= _SERVER or status < _BAD_REQUEST:
        return Category.TRANSIENT, "TRANSIENT"
    return Category.AUTH, "AUTH"


def _category_of_400(found: list[tuple[str, Says]]) -> tuple[Category, TroubleKind | None]:
    """Whose fault a bad request is: the configuration's, the moment's, or that of some rows."""
    if any(name in _SIZE for name, _ in found):
        return Category.TRANSIENT, None
    says = min((says for _, says in found), key=_RANK.__getitem__, default=ROW)
    match says.category:
        case Category.AUTH:
            return Category.AUTH, "AUTH"
        case Category.RATE_LIMIT:
            return Category.RATE_LIMIT, "RATE_LIMIT"
        case Category.TRANSIENT if says != YOUNG:
            return Category.TRANSIENT, "TRANSIENT"
        case Category.VALIDATION | Category.PERMANENT | Category.TRANSIENT:
            return says.category, None


def errors_in(body: Any) -> list[GoogleError]:
    """The errors in the details of an HTTP error: Google Ads' own, and the reasons of others."""
    error = body.get("error") if isinstance(body, Mapping) else None
    details = error.get("details") if isinstance(error, Mapping) else None
    found: list[GoogleError] = []
    for detail in details if isinstance(details, list) else ():
        if not isinstance(detail, Mapping):
            continue
        errors = detail.get("errors")
        found += [read_error(one) for one in errors] if isinstance(errors, list) else ()
        reason = detail.get("reason")
        if isinstance(reason, str) and reason:
            found.append(GoogleError("errorReason", reason, "", detail))
    return found
