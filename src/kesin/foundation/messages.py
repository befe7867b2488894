"""Messages that pages show in the reader's language: a sentence, and the values in its places."""

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, Final, Self

from kesin.foundation.text import canonical_json, decode_json

_PLACE: Final = re.compile(r"%\((\w+)\)s")
_PARTS: Final = "message_parts"  # where a stored record has id and values beside its text
_TRACEBACK: Final = "traceback"  # beside it, where an exception failed the job
_MAX_STORED: Final = 1_000  # characters; a longer text is cut when it is stored


class Message(str):
    """An English sentence with its values, maybe messages too; it keeps both for translations."""

    __slots__ = ("id", "values")
    id: str  # the sentence with places such as ``%(site)s``
    values: Mapping[str, str]

    def __new__(cls, sentence: str, /, **values: object) -> Self:
        """Fill in the values, one for each place; a message without new values stays itself."""
        if isinstance(sentence, cls) and not values:
            return sentence
        if values and set(_PLACE.findall(sentence)) != values.keys():
            raise ValueError(f"{sentence!r} has placeholders other than {', '.join(values)}")
        texts = {name: str(value) for name, value in values.items()}
        message = super().__new__(cls, sentence % texts if texts else sentence)
        message.id, message.values = sentence, texts
        return message

    @classmethod
    def fill(cls, sentence: str, values: Mapping[str, object]) -> Self:
        """A message with those of the values that the sentence has places for."""
        return cls(sentence, **{name: values[name] for name in _PLACE.findall(sentence)})

    def __str__(self) -> str:
        """The message itself, so that ``str(problem)`` of an exception keeps it."""
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, str]]:
        return (self.id,), dict(self.values)

    def to_json(self) -> dict[str, Any]:
        values = {name: value.to_json() if isinstance(value, Message) else value for name, value in self.values.items()}
        return {"id": self.id, "values": values}

    @classmethod
    def from_json(cls, stored: Any) -> Self:
        """Raises TypeError, ValueError or KeyError for anything but the JSON of a message."""
        values = {
            name: value if isinstance(value, str) else cls.from_json(value)
            for name, value in dict(stored["values"]).items()
        }
        return cls(stored["id"], **values)


class MessageError(ValueError):
    """An error whose message a person reads; ``values`` fill the places of its message."""

    def __init__(self, message: str, /, **values: object) -> None:
        super().__init__(Message(message, **values))


def join_messages(messages: Iterable[str]) -> Message:
    return reduce(lambda first, then: Message("%(first)s; %(then)s", first=first, then=then), map(Message, messages))


def shorten(message: str, max_length: int) -> str:
    """The beginning of a longer text; a message that fits stays a message."""
    return message if len(message) <= max_length else message[:max_length]


def parts_of(message: str | None) -> dict[str, Any]:
    """What a record stores beside the text of a message: its id and values."""
    if not isinstance(message, Message) or not message.values or len(message) > _MAX_STORED:
        return {}
    return {_PARTS: message.to_json()}


def restore(text: str, record: Any) -> str:
    """The message that was stored with this text and record; the plain text if none was."""
    try:
        message = Message.from_json(record[_PARTS])
    except (TypeError, ValueError, KeyError, RecursionError):
        return text
    return message if message == text else text


def note_json(message: str | None, note: Mapping[str, Any] | None = None, *, traceback: str = "") -> str | None:
    """The note of a move that records this message, as it is stored."""
    record = {**(note or {}), **parts_of(message)}
    if traceback:
        record[_TRACEBACK] = traceback
    return canonical_json(record) if record else None


def decode_note(text: str | None) -> Any:
    """The note of a move, without the parts of its message and the traceback."""
    note = decode_json(text)
    if isinstance(note, dict):
        note.pop(_PARTS, None)
        if isinstance(note.get(_TRACEBACK), str):
            del note[_TRACEBACK]
        return note or None
    return note


def recorded_traceback(note: str | None) -> str:
    """The traceback that the note of a move holds, or nothing."""
    value = decode_json(note)
    text = value.get(_TRACEBACK) if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


def recorded_message(text: str | None, note: str | None) -> str:
    return restore(text or "", decode_json(note))
