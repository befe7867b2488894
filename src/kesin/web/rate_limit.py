"""Rate limits: a token bucket for each name."""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from kesin.foundation.messages import Message
from kesin.foundation.problems import TooManyRequests

ROUNDING: Final = 1e-6  # a caller that waited exactly as long as told is let in
MAX_BUCKETS: Final = 20_000  # the least recently used one goes first


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def network_of(address: str) -> str:
    """The network that an address counts for: an IPv6 subscriber has 2⁶⁴ addresses."""
    parsed = parse_address(address)
    is_v6 = isinstance(parsed, IPv6Address)
    return str(ip_network(f"{parsed}/64", strict=False)) if is_v6 else address


class RateLimiter:
    """Allows ``rate_per_s`` requests for each name, with bursts of ``burst``."""

    def __init__(self, rate_per_s: float, burst: float, monotonic: Callable[[], float], what: str) -> None:
        self._rate = rate_per_s
        self._burst = max(burst, 1.0)
        self._monotonic = monotonic
        self._what = Message(what)
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, when

    def take(self, name: str) -> None:
        """Use up one; raises TooManyRequests with the seconds to wait."""
        now = self._monotonic()
        with self._lock:
            tokens, then = self._buckets.pop(name, (self._burst, now))
            tokens = min(self._burst, tokens + (now - then) * self._rate)
            allowed = tokens >= 1 - ROUNDING
            self._buckets[name] = (max(tokens - 1, 0) if allowed else tokens, now)
            while len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
        if not allowed:
            wait_s = math.ceil((1 - tokens) / self._rate)
            raise TooManyRequests("too many %(what)s: wait %(n)s s", retry_after_s=wait_s, what=self._what, n=wait_s)
