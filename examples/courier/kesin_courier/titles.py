"""The title of a delivery."""

from typing import Any
from urllib.parse import urlsplit


def receiver(data: Any) -> str:
    """The host that receives a delivery; the rest of its URL may contain secrets."""
    url = data.get("url") if isinstance(data, dict) else None
    try:
        return urlsplit(url).hostname or "" if isinstance(url, str) else ""
    except ValueError:
        return ""
