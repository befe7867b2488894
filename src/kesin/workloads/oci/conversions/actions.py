"""The actions of a site, chosen by exact name; one that Google's list lacks is only marked."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple, Self

from kesin.foundation.problems import Invalid
from kesin.foundation.text import storable

MAX_NAME: Final = 100
MAX_ACTIONS: Final = 100
LOOKBACK_DAYS: Final = range(1, 91)
COUNTINGS: Final = ("ONE_PER_CLICK", "MANY_PER_CLICK")
_ID: Final = re.compile(r"[0-9]{1,20}")
_FIELDS: Final = {
    "name": "%(field)s must be one line of 1…100 characters",
    "id": "%(field)s must be the numeric id of a conversion action",
    "default": "%(field)s must be yes or no",
    "counting": "%(field)s must be ONE_PER_CLICK or MANY_PER_CLICK",
    "lookback_days": "%(field)s must be a whole number in 1…90",
}


@dataclass(frozen=True, slots=True)
class ConversionAction:
    """A conversion action of Google Ads that rows can name."""

    name: str
    id: str
    default: bool = False  # of rows without a name
    counting: str = "MANY_PER_CLICK"
    lookback_days: int = 30  # as Google has it unless it is changed there

    @classmethod
    def parse(cls, given: Any, where: str = "") -> Self:
        """Validate an entry; raises Invalid naming the field."""
        entry = given if isinstance(given, Mapping) else {"": given}
        name, number, days = (entry.get(key) for key in ("name", "id", "lookback_days"))
        fitting = {
            **dict.fromkeys(entry, False),
            "name": isinstance(name, str) and _is_name(name),
            "id": isinstance(number, str) and _ID.fullmatch(number),
            "default": isinstance(entry.get("default", False), bool),
            "counting": entry.get("counting") in (None, *COUNTINGS),
            "lookback_days": days is None or (type(days) is int and days in LOOKBACK_DAYS),
        }
        for key in (key for key, fits in fitting.items() if not fits):
            why = _FIELDS.get(key, "%(field)s is not a field of a conversion action")
            field = f"{where}{str(key)[:64]}"
            raise Invalid(why, details={"field": field}, field=field)
        return cls(**{key: value for key, value in entry.items() if value is not None})


Actions = tuple[ConversionAction, ...]


def parse_actions(given: Any) -> Actions:
    """Validate a list of actions; raises Invalid naming the entry and its field."""
    entries = given if isinstance(given, list) else [given]
    actions = [ConversionAction.parse(entry, f"actions[{n}].") for n, entry in enumerate(entries)]
    why = "at most 100 conversion actions per site" if len(actions) > MAX_ACTIONS else ""
    if len({action.name for action in actions}) < len(actions):
        why = "two conversion actions have the same name"
    if sum(action.default for action in actions) > 1:
        why = "only one conversion action can be the default"
    if why:
        raise Invalid(why, details={"field": "actions"})
    return tuple(actions)


def _is_name(text: str) -> bool:
    fits = 1 <= len(text) <= MAX_NAME and text.isprintable() and storable(text) == text
    return fits and text == text.strip()


ListedAction = tuple[str, Mapping[str, Any]]  # its status at Google, and its fields


class ActionChanges(NamedTuple):
    """What a list from Google makes of a site's actions; except for the first, names of actions."""

    actions: Actions
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()  # not ENABLED in the list; they stay
    omitted: tuple[str, ...] = ()  # with the reason


def merge_actions(
    current: Actions, listed: Iterable[ListedAction], usual: Iterable[str], *, shortens: bool = True
) -> ActionChanges:
    """Update actions from Google's list while there is room; ``shortens``: look-backs as well."""
    actions, seen = {action.name: action for action in current}, set[str]()
    names: dict[str, list[str]] = {"added": [], "changed": [], "omitted": []}
    for status, entry in listed:
        name, new = str(entry.get("name")), None
        with suppress(Invalid):
            new = ConversionAction.parse(entry) if status == "ENABLED" else None
        is_full = name not in actions and len(actions) == MAX_ACTIONS
        if new is None or name in seen or is_full:
            fault = "TOO_MANY" if is_full else "UNUSABLE"  # there twice, or cannot be kept
            why = fault if status == "ENABLED" else status
            names["omitted"].append(f"{storable(name)[:MAX_NAME]} ({why})")
            continue
        seen.add(name)
        old = actions.get(name)
        days = max(new.lookback_days, old.lookback_days if old and not shortens else 0)
        actions[name] = new = replace(new, default=bool(old and old.default), lookback_days=days)
        if new != old:
            names["changed" if old else "added"].append(name)
    if not current:  # the default: what rows without a name went to before (``usual``)
        known = [each.name for each in actions.values() if {each.name, each.id} & {*usual}]
        for name in (known or (list(actions) if len(actions) == 1 else []))[:1]:
            actions[name] = replace(actions[name], default=True)
    names["gone"] = [name for name in actions if name not in seen]
    merged = parse_actions([asdict(action) for action in actions.values()])
    return ActionChanges(merged, **{kind: tuple(each) for kind, each in names.items()})
