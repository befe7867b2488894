"""What may be rendered, and where a page may go: allow-lists that reject when in doubt.

A URL is taken apart before any pattern sees it, because a pattern alone is talked round too
easily: by letters browsers fold, by numbers that mean loopback, by a tail that looks like a host.
That a public name resolves to a private address is not seen here; the browser has no resolver of
its own for that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from markupsafe import Markup, escape

from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed

MAX_DEPTH: Final = 32
MAX_NODES: Final = 100_000
MAX_URL: Final = 2048
# The policy that documents of the template library carry, for readers outside our engines.
LIBRARY_CSP: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"

_PLAIN: Final = (bool, int, float, Decimal, date, time, type(None))  # a datetime is a date
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_INSIDE: Final = ("localhost", "local", "localdomain", "internal", "intranet", "lan", "home.arpa")
_TUNNELS: Final = tuple(  # translated or tunnelled: behind them may be anything
    IPv6Network(net)
    for net in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)


@dataclass
class PdfSecurityConfig:
    """Both lists begin empty, and an empty list allows nothing."""

    template_allowlist: set[str]
    url_allowlist: list[str]  # regular expressions


def csp_tag(rules: str) -> str:
    """A Content-Security-Policy as an HTML tag."""
    return f'<meta http-equiv="Content-Security-Policy" content="{rules}">'


def validate_template(name: str, allowlist: AbstractSet[str]) -> bool:
    """Whether a template may be used. Its name is looked up among those loaded, never opened."""
    return name in allowlist


def validate_url(url: str, allowlist: Sequence[str]) -> bool:
    """Whether a URL may be loaded: a pattern matches all of it, and its host on its own.

    Only http and https, without a user. Addresses and names of the inside (loopback, private,
    link-local, names without a dot) need a pattern that spells out that very host. A pattern
    that is no regular expression, or that names no scheme and host, allows nothing.
    """
    target = _target(url)
    return target is not None and any(
        part.allows(target) for pattern in allowlist for part in _parts(pattern)
    )


def is_inside(url: str) -> bool:
    """Whether a URL's host is one of the inside by its very name.

    A public name that leads inside is not meant: whoever owns the name could point it there.
    """
    target = _target(url)
    return target is not None and target.inside


def sanitize_html_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """The same variables with ``< > & " '`` escaped in every text, keys too.

    The texts come back as Markup: an escaping template leaves them alone, and escaping them again
    changes nothing. This is for places that do not escape by themselves; the templates of a book
    get the raw values.
    """
    return dict(_sanitized(variables, (), _Count()))


def measured(variables: Mapping[str, Any]) -> None:
    """Raise RenderFailed for variables that are nested too deep, too many, or not plain data."""
    _sanitized(variables, (), _Count(), escaping=False)


class _Count:
    """How many values were seen; a list of a thousand lists is not deep, but it is large."""

    def __init__(self) -> None:
        self.nodes = 0


def _sanitized(value: Any, path: tuple[str, ...], count: _Count, *, escaping: bool = True) -> Any:
    count.nodes += 1
    if count.nodes > MAX_NODES:
        raise _refused(f"more than {MAX_NODES} values", path)
    if isinstance(value, str):
        return _escaped(value) if escaping else value
    if isinstance(value, _PLAIN):
        if not escaping and isinstance(value, float) and not math.isfinite(value):
            raise _refused("NaN and Infinity are no numbers", path)
        return value
    if not isinstance(value, Mapping | list | tuple):
        raise _refused(f"{type(value).__name__} is not plain data", path)
    if len(path) >= MAX_DEPTH:
        raise _refused(f"nested deeper than {MAX_DEPTH}", path)
    if not isinstance(value, Mapping):
        items = [
            _sanitized(item, (*path, str(at)), count, escaping=escaping)
            for at, item in enumerate(value)
        ]
        return tuple(items) if isinstance(value, tuple) else items
    return _sanitized_names(value, path, count, escaping=escaping)


def _sanitized_names(
    value: Mapping[Any, Any], path: tuple[str, ...], count: _Count, *, escaping: bool
) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for at, (key, item) in enumerate(value.items()):
        if not isinstance(key, str | int):
            raise _refused(f"{type(key).__name__} is no name", path)
        name = _escaped(key) if escaping and isinstance(key, str) else key
        if name in found:
            raise _refused("two names are the same once escaped", path)
        found[name] = _sanitized(item, (*path, _step(key, at)), count, escaping=escaping)
    return found


def _step(key: object, at: int) -> str:
    """A name as part of a path; what is no name was sent by somebody and is not repeated."""
    return key if isinstance(key, str) and re.fullmatch(r"\w{1,64}", key) else f"#{at}"


def _escaped(text: str) -> Markup:
    return text if isinstance(text, Markup) else escape(str(text))


def _refused(message: str, path: tuple[str, ...]) -> RenderFailed:
    shown = "/" + "/".join(path[:8]) + ("/…" if len(path) > 8 else "")  # noqa: PLR2004
    return RenderFailed(
        PdfErrorCode.TEMPLATE_ERROR, f"variables: {message} at {shown}", details={"path": shown}
    )


class _Target(NamedTuple):
    """A URL that was understood."""

    host: str  # lower case, [brackets] around IPv6
    inside: bool
    spellings: tuple[tuple[str, str], ...]  # authority and whole, as written and as browsers do


def _target(url: str) -> _Target | None:
    if len(url) > MAX_URL or not re.fullmatch(r"[!-\[\]-~]+", url):  # printable ASCII, no backslash
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    host = parts.netloc.lower().removesuffix(f":{port}")
    inside = _is_inside(host)
    if parts.scheme not in {"http", "https"} or port == 0 or inside is None:
        return None
    if any(step in {".", ".."} for step in parts.path.lower().replace("%2e", ".").split("/")):
        return None
    written = url[len(parts.scheme) :]
    if not written.startswith(f"://{parts.netloc}"):
        return None
    return _Target(host, inside, tuple(_spellings(parts, url)))


def _spellings(parts: SplitResult, url: str) -> Iterator[tuple[str, str]]:
    tail = url[len(parts.scheme) + 3 + len(parts.netloc) :]
    tails = [tail, "/"] if not tail else [tail, ""] if tail == "/" else [tail]
    for scheme, authority in (
        (parts.scheme, parts.netloc.lower()),
        (url[: len(parts.scheme)], parts.netloc),
    ):
        for end in tails:
            yield authority, f"{scheme}://{authority}{end}"


def _is_inside(host: str) -> bool | None:
    """Whether it belongs to this machine or its network; None for what is no host at all."""
    if host.startswith("["):
        try:
            return not is_public(IPv6Address(host.removeprefix("[").removesuffix("]")))
        except ValueError:
            return None
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):  # noqa: PLR2004
        return None
    if _NUMBER.fullmatch(labels[-1]):  # browsers take it for an address, in whatever base
        try:
            return not is_public(IPv4Address(host))
        except ValueError:
            return None
    return len(labels) == 1 or any(host.endswith(f".{name}") for name in _INSIDE)


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is one of the open Internet, however it is written."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return is_public(address.ipv4_mapped)
        if address.is_site_local or any(address in net for net in _TUNNELS):
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


class _Part(NamedTuple):
    """One alternative of a pattern: what it wants of the host, and of the whole."""

    authority: re.Pattern[str]
    whole: re.Pattern[str]
    spelled: str  # the host it names letter by letter, or what is left of it

    def allows(self, target: _Target) -> bool:
        if target.inside and self.spelled != target.host:
            return False
        return any(
            self.authority.fullmatch(authority) and self.whole.fullmatch(url)
            for authority, url in target.spellings
        )


@lru_cache(maxsize=256)
def _parts(pattern: str) -> tuple[_Part, ...]:
    """The alternatives of a pattern that name a scheme and a host; none if it does not compile."""
    flags = match[0] if (match := re.match(r"\(\?[aimsux]+\)", pattern)) else ""
    try:
        re.compile(pattern)
        return tuple(
            _Part(re.compile(flags + host), re.compile(flags + whole), _spelled(host))
            for whole in _split(pattern[len(flags) :], "|")
            if (host := _authority(whole)) is not None
        )
    except (re.error, RecursionError, OverflowError):
        return ()


def _authority(pattern: str) -> str | None:
    """What stands between the scheme and the path of a pattern."""
    steps = _split(pattern.removeprefix("^").removesuffix("$"), "/")
    if len(steps) < 3 or not steps[0].endswith(":") or steps[1]:  # noqa: PLR2004
        return None
    return re.split(r"(?<!\\)\\[?#]", steps[2])[0]


def _split(pattern: str, at: str) -> list[str]:
    """Cut a regular expression where a character stands outside of groups and classes."""
    found, begun, depth = [], 0, 0
    for token in re.finditer(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", pattern, re.DOTALL):
        text = token[0]
        depth += (text == "(") - (text == ")")
        if depth == 0 and text in ({"/", "\\/"} if at == "/" else {at}):
            found.append(pattern[begun : token.start()])
            begun = token.end()
    return [*found, pattern[begun:]]


def _spelled(authority: str) -> str:
    """The host a pattern names letter by letter; empty where a letter may repeat or be missing."""
    literal = re.match(r"(?:\\\[(?:[0-9a-f:.]|\\[:.])+\\\]|(?:\w|-|\.|\\[.-])+)", authority)
    if literal is None or re.match(r"[*+?{]", authority[literal.end() :]):
        return ""
    return literal[0].replace("\\", "").lower()
