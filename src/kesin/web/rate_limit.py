"""How often somebody may ask: a token bucket each, forgotten when it is full again."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Final

from kesin.foundation.problems import TooMany

NEARLY: Final = 1e-6  # whoever waited as told is let in, however the sums were rounded
MOST_BUCKETS: Final = 20_000  # the one used longest ago goes first: memory has a bound


def network_of(address: str) -> str:
    """Whom an address stands for: one subscriber has 2⁶⁴ of IPv6, so those count as one."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    return str(ip_network(f"{parsed}/64", strict=False)) if parsed.version == 6 else address  # noqa: PLR2004


class Limiter:
    """Lets ``rate_per_s`` through for each name, with bursts of ``burst``."""

    def __init__(
        self, rate_per_s: float, burst: float, monotonic: Callable[[], float], what: str
    ) -> None:
        self._rate = rate_per_s
        self._burst = max(burst, 1.0)
        self._monotonic = monotonic
        self._what = what
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, when

    def take(self, name: str) -> None:
        """Use up one; raises TooMany with the seconds to wait."""
        now = self._monotonic()
        with self._lock:
            tokens, then = self._buckets.pop(name, (self._burst, now))
            tokens = min(self._burst, tokens + (now - then) * self._rate)
            allowed = tokens >= 1 - NEARLY
            self._buckets[name] = (max(tokens - 1, 0) if allowed else tokens, now)
            while len(self._buckets) > MOST_BUCKETS:
                self._buckets.popitem(last=False)
        if not allowed:
            wait_s = math.ceil((1 - tokens) / self._rate)
            raise TooMany(f"too many {self._what}: wait {wait_s} s", retry_after_s=wait_s)

    def forgive(self, name: str) -> None:
        """Start anew for this name."""
        with self._lock:
            self._buckets.pop(name, None)
