"""Allow-lists of templates and URLs, and checks of template variables; all reject when in doubt.

A URL is parsed before it is matched, because a pattern alone is easy to bypass: with letters that
browsers fold, numbers that mean loopback, or a tail that looks like a host. A public name that
resolves to a private address is not detected here; the browser has no resolver of its own for that.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from itertools import chain
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from markupsafe import Markup, escape

from kesin.foundation.messages import Message
from kesin.workloads.pdf.errors import RenderFailed, TemplateError

MAX_DEPTH: Final = 32
MAX_NODES: Final = 100_000
MAX_URL_LENGTH: Final = 2048
# The policy that documents of the template library carry, for readers outside our engines.
LIBRARY_CSP: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"

_PLAIN: Final = (bool, int, float, Decimal, date, time, type(None))  # a datetime is a date
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_INTERNAL: Final = ("localhost", "local", "localdomain", "internal", "intranet", "lan", "home.arpa")
_TUNNELS: Final = tuple(  # translated or tunnelled: any address may be behind them
    IPv6Network(net) for net in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)


@dataclass
class PdfSecurityConfig:
    """Both lists begin empty, and an empty list allows nothing."""

    template_allowlist: set[str]
    url_allowlist: list[str]  # regular expressions


def csp_tag(rules: str) -> str:
    return f'<meta http-equiv="Content-Security-Policy" content="{rules}">'


def validate_template(name: str, allowlist: AbstractSet[str]) -> bool:
    """Whether a template may be used. The name is only looked up, never opened as a file."""
    return name in allowlist


def validate_url(url: str, allowlist: Sequence[str]) -> bool:
    """Whether a pattern matches a whole http(s) URL; it must spell out a host that is internal."""
    target = _parse_url(url)
    parts = chain.from_iterable(map(_parse_alternatives, allowlist))
    return target is not None and any(part.allows(target) for part in parts)


def is_internal_url(url: str) -> bool:
    """Whether the host is an internal name or address; public names are not resolved."""
    target = _parse_url(url)
    return target is not None and target.internal


def sanitize_html_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables with ``< > & " '`` escaped once, as Markup; templates take raw ones."""
    return dict(_Cleaner(escaping=True).clean(variables, ()))


def check_plain_data(variables: Mapping[str, Any]) -> None:
    """Raise RenderFailed for variables that are nested too deep, too many, or not plain data."""
    _Cleaner(escaping=False).clean(variables, ())


_Step = int | tuple[str | int, int]  # the index in a list; a name, and which one it is
_Path = tuple[_Step, ...]


@dataclass(slots=True)
class _Cleaner:
    """Checks values, and escapes texts if asked to."""

    escaping: bool
    nodes: int = 0  # so far: a list of a thousand lists is not deep, but it is large

    def clean(self, value: Any, path: _Path) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _variables_error(f"more than {MAX_NODES} values", path)
        if isinstance(value, str):
            return _escape(value) if self.escaping else value
        if isinstance(value, _PLAIN):
            if not self.escaping and isinstance(value, float) and not math.isfinite(value):
                raise _variables_error("NaN and Infinity are not numbers", path)
            return value
        if not isinstance(value, Mapping | list | tuple):
            raise _variables_error(f"{type(value).__name__} is not plain data", path)
        if len(path) >= MAX_DEPTH:
            raise _variables_error(f"nested deeper than {MAX_DEPTH} levels", path)
        if isinstance(value, Mapping):
            return self._clean_mapping(value, path)
        items = [self.clean(item, (*path, index)) for index, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items

    def _clean_mapping(self, value: Mapping[Any, Any], path: _Path) -> dict[Any, Any]:
        cleaned: dict[Any, Any] = {}
        for index, (key, item) in enumerate(value.items()):
            if not isinstance(key, str | int):
                raise _variables_error(f"{type(key).__name__} is not a name", path)
            name = _escape(key) if self.escaping and isinstance(key, str) else key
            if name in cleaned:
                raise _variables_error("two names are the same when escaped", path)
            cleaned[name] = self.clean(item, (*path, (key, index)))
        return cleaned


def _format_step(step: _Step) -> str:
    """Format a part of a path; a key that is not a plain name is not repeated."""
    if isinstance(step, int):
        return str(step)
    key, index = step
    return key if isinstance(key, str) and re.fullmatch(r"\w{1,64}", key) else f"#{index}"


def _escape(text: str) -> Markup:
    return text if isinstance(text, Markup) else escape(str(text))


def _variables_error(message: str, path: _Path) -> RenderFailed:
    at = "/" + "/".join(map(_format_step, path[:8])) + ("/…" if len(path) > 8 else "")  # noqa: PLR2004
    why = "variables: %(problem)s at %(path)s"
    return TemplateError(why, details={"path": at}, problem=Message(message), path=at)


class _ParsedUrl(NamedTuple):
    """A parsed URL."""

    host: str  # lower case, [brackets] around IPv6
    internal: bool
    spellings: tuple[tuple[str, str], ...]  # authority and URL, as written and as browsers do


def _parse_url(url: str) -> _ParsedUrl | None:
    printable = re.fullmatch(r"[!-\[\]-~]+", url)  # in ASCII, and no backslash
    if len(url) > MAX_URL_LENGTH or not printable:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    host = parts.netloc.lower().removesuffix(f":{port}")
    internal = _is_internal(host)
    if parts.scheme not in {"http", "https"} or port == 0 or internal is None:
        return None
    if any(step in {".", ".."} for step in parts.path.lower().replace("%2e", ".").split("/")):
        return None
    if not url[len(parts.scheme) :].startswith(f"://{parts.netloc}"):
        return None
    return _ParsedUrl(host, internal, tuple(_spellings(parts, url)))


def _spellings(parts: SplitResult, url: str) -> Iterator[tuple[str, str]]:
    tail = url[len(parts.scheme) + 3 + len(parts.netloc) :]
    tails = [tail, "/"] if not tail else [tail, ""] if tail == "/" else [tail]
    written = url[: len(parts.scheme)]
    for scheme, authority in ((parts.scheme, parts.netloc.lower()), (written, parts.netloc)):
        for end in tails:
            yield authority, f"{scheme}://{authority}{end}"


def _is_internal(host: str) -> bool | None:
    """Whether a host belongs to this machine or its network; None for what is not a host."""
    labels = host.split(".")
    try:
        if host.startswith("["):
            return not is_public(IPv6Address(host.removeprefix("[").removesuffix("]")))
        if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):  # noqa: PLR2004
            return None
        if _NUMBER.fullmatch(labels[-1]):  # browsers read it as an address, in any base
            return not is_public(IPv4Address(host))
    except ValueError:
        return None
    return len(labels) == 1 or any(host.endswith(f".{name}") for name in _INTERNAL)


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address belongs to the public Internet, in any notation."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return is_public(address.ipv4_mapped)
        if address.is_site_local or any(address in net for net in _TUNNELS):
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


class _Alternative(NamedTuple):
    """An alternative of a pattern: what it requires of the host and of the whole URL."""

    authority: re.Pattern[str]
    whole: re.Pattern[str]
    literal_host: str  # the host that it spells out, or a part of it

    def allows(self, target: _ParsedUrl) -> bool:
        if target.internal and self.literal_host != target.host:
            return False
        return any(
            self.authority.fullmatch(authority) and self.whole.fullmatch(url) for authority, url in target.spellings
        )


@lru_cache(maxsize=256)
def _parse_alternatives(pattern: str) -> tuple[_Alternative, ...]:
    """Parse the alternatives of a pattern that name a scheme and a host; none if it is invalid."""
    flags = match[0] if (match := re.match(r"\(\?[aimsux]+\)", pattern)) else ""
    try:
        re.compile(pattern)
        return tuple(
            _Alternative(re.compile(flags + host), re.compile(flags + whole), _literal_host(host))
            for whole in _split(pattern[len(flags) :], "|")
            if (host := _authority_pattern(whole)) is not None
        )
    except (re.error, RecursionError, OverflowError):
        return ()


def _authority_pattern(pattern: str) -> str | None:
    """Return the part between the scheme and the path of a pattern."""
    steps = _split(pattern.removeprefix("^").removesuffix("$"), "/")
    if len(steps) < 3 or not steps[0].endswith(":") or steps[1]:  # noqa: PLR2004
        return None
    return re.split(r"(?<!\\)\\[?#]", steps[2])[0]


def _split(pattern: str, separator: str) -> list[str]:
    """Split a regular expression at a character outside of groups and classes."""
    parts, start, depth = [], 0, 0
    for token in re.finditer(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", pattern, re.DOTALL):
        text = token[0]
        depth += (text == "(") - (text == ")")
        if depth == 0 and text in ({"/", "\\/"} if separator == "/" else {separator}):
            parts.append(pattern[start : token.start()])
            start = token.end()
    return [*parts, pattern[start:]]


def _literal_host(authority: str) -> str:
    """Return the host that a pattern spells out; empty where a letter may repeat or be missing."""
    literal = re.match(r"(?:\\\[(?:[0-9a-f:.]|\\[:.])+\\\]|(?:\w|-|\.|\\[.-])+)", authority)
    if literal is None or re.match(r"[*+?{]", authority[literal.end() :]):
        return ""
    return literal[0].replace("\\", "").lower()
