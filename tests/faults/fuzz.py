"""What parsers are given: valid input that was damaged on the way, or by somebody with intent.

Random bytes are refused at the first sign. A valid input that was cut, doubled or pierced gets
deeper, so each strategy begins with some that are valid.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import hypothesis
from hypothesis import strategies as st

# What somewhere means something, or nothing, or more than it seems.
TOKENS = (
    *("", " ", "\t", "\n", "\r\n", "\x00", "\x1f", "\x7f", "\u2028", "\ufeff", "\ufffd", "İ", "²"),
    *("٣", "😀", "e\u0301", "'", '"', "`", "\\", "/", "//", ".", "..", "*", "?", "#", "%", "%00"),
    *("%2e", "&", "&amp;", "&x;", "&#0;", "<", ">", "<!--", "]]>", "<![CDATA[", "<!DOCTYPE a>"),
    *("<a b=", "</", "/>", "[", "]", "{", "}", "(", ")", ":", ";", ",", "=", "-", "+", "@", "$"),
    *("0", "-0", "1", "-1", "007", "0x1f", "1_0", "1e999", "1e-999", "NaN", "Infinity", "null"),
    *("true", "9" * 19, "9" * 400, "9" * 5_000, "[" * 2_000, '{"a":' * 2_000, "W/", "q=", "::"),
    *("=cmd|' /C calc'!A0", "${jndi:x}", "{{7*7}}", "'; DROP TABLE job; --", "idna''x", "*0*="),
)
# Bytes that are no text at all.
PIECES = (b"\xff", b"\x80", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe", b"PK\x03\x04")
# What stands where something else is awaited.
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 10**18, 10**400, -0.0, 0.1, 1e308, float("inf"), float("nan")),
    *("", " ", "\x00", "\ud800", "0", "9" * 5_000, "²", "x" * 3_000, [], {}, [[]], [None], {"": 0}),
    *({"\x00": "\ud800"}, {"9" * 5_000: 1}, ["a", "a"], {"a": {"b": {"c": []}}}),
)
Read = TypeVar("Read")
Refusal = TypeVar("Refusal", bound=Exception)
_MOST = 5  # damages at once
_PLACE = st.integers(0, 1_000_000)


def given(*strategies: Any, few: int = 10, **named: Any) -> Callable[[Any], Any]:
    """``hypothesis.given`` with few examples, except under the profile ``long``."""
    most = hypothesis.settings().max_examples
    settings = hypothesis.settings(max_examples=most if most > 50 else few)
    return lambda test: settings(hypothesis.given(*strategies, **named)(test))


def answered(refusal: type[Refusal], parse: Callable[..., Read], *given: Any) -> Read | Refusal:
    """What a parser makes of it: a value, or the one refusal it has; nothing else may be raised."""
    try:
        return parse(*given)
    except refusal as problem:
        return problem


@st.composite
def broken(draw: st.DrawFn, *valid: bytes) -> bytes:
    """One of these with a few damages; sometimes none."""
    data = draw(st.sampled_from(valid))
    for _ in range(draw(st.integers(0, _MOST))):
        data = _damaged(draw, data)
    return data


@st.composite
def broken_text(draw: st.DrawFn, *valid: str) -> str:
    """The same for what is text already; half characters are in it too."""
    text = draw(st.sampled_from(valid))
    for _ in range(draw(st.integers(0, _MOST))):
        at = draw(_PLACE) % (len(text) + 1)
        end = min(at + draw(st.integers(0, 8)), len(text))
        piece = draw(st.sampled_from((*TOKENS, "\ud800")) | st.text(max_size=3))
        kind = draw(st.sampled_from(("put", "put", "put instead", "double", "cut")))
        match kind:
            case "put":
                text = text[:at] + piece + text[at:]
            case "put instead":
                text = text[:at] + piece + text[end:]
            case "double":
                text = text[:end] + text[at:]
            case _:
                text = text[:at]
    return text


@st.composite
def broken_json(draw: st.DrawFn, *valid: Any) -> Any:
    """The same for values: something is gone, doubled, renamed, or of another kind."""
    value = json.loads(json.dumps(draw(st.sampled_from(valid))))
    for _ in range(draw(st.integers(0, _MOST))):
        value = _with_a_stranger(draw, value)
    return value


@st.composite
def broken_parts(draw: st.DrawFn, packed: bytes, *names: str) -> bytes:
    """A ZIP whose parts of these names are damaged, and which is whole otherwise."""
    made = io.BytesIO()
    name = draw(st.sampled_from(names))
    with zipfile.ZipFile(io.BytesIO(packed)) as old, zipfile.ZipFile(made, "w") as new:
        for one in old.namelist():
            data = old.read(one)
            new.writestr(one, draw(broken(data)) if one == name else data)
    return made.getvalue()


def _damaged(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(_PLACE) % (len(data) + 1)
    end = min(at + draw(st.integers(0, 16)), len(data))
    kind = draw(st.sampled_from(("put", "put", "put instead", "flip", "double", "drop", "cut")))
    match kind:
        case "put":
            return data[:at] + draw(_piece) + data[at:]
        case "put instead":
            return data[:at] + draw(_piece) + data[end:]
        case "flip" if at < len(data):
            return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
        case "double":
            return data[:end] + data[at:]
        case "drop":
            return data[:at] + data[end:]
        case _:
            return data[:at]


_piece = st.one_of(st.sampled_from(TOKENS).map(str.encode), st.sampled_from(PIECES), st.binary(max_size=4))


def _with_a_stranger(draw: st.DrawFn, value: Any) -> Any:
    """Walk down a random way, and spoil what is there."""
    if isinstance(value, dict | list) and value and draw(st.integers(0, 5)):
        keys: Sequence[Any] = list(value) if isinstance(value, dict) else range(len(value))
        key = keys[draw(_PLACE) % len(keys)]
        value = value.copy()
        kind = draw(st.sampled_from(("below", "below", "below", "drop", "rename", "double")))
        match kind, value:
            case "drop", _:
                del value[key]
            case "rename", dict():
                value[draw(st.sampled_from(TOKENS))] = value.pop(key)
            case "double", list():
                value += value[: 200 // len(value)]
            case _:
                value[key] = _with_a_stranger(draw, value[key])
        return value
    if isinstance(value, str) and draw(st.booleans()):
        return draw(broken_text(value))
    return draw(st.sampled_from(STRANGE))
