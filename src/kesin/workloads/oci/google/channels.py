"""The upload channels, built once per process: they share connections and access tokens."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from kesin.foundation.clock import SystemClock
from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import Settings
from kesin.workloads.oci.google.channel import Channel

if TYPE_CHECKING:
    import httpx


@lru_cache(maxsize=8)
def channels_of(settings: Settings) -> Mapping[str, Channel]:
    """Build every channel of our worker."""
    client = _http_client(settings)  # first: its error says what to install
    from kesin.workloads.oci.google.data_manager import DataManager
    from kesin.workloads.oci.google.google_ads import GoogleAds
    from kesin.workloads.oci.google.oauth import AccessTokens

    monotonic = SystemClock().monotonic
    tokens = AccessTokens(client, settings.oci_token_url, monotonic=monotonic)
    return {
        "api": GoogleAds(
            client,
            tokens,
            base_url=f"{settings.oci_google_url.rstrip('/')}/{settings.oci_google_version}",
            monotonic=monotonic,
        ),
        "data_manager": DataManager(
            client, tokens, base_url=settings.oci_data_manager_url, monotonic=monotonic
        ),
    }


def _http_client(settings: Settings) -> httpx.Client:
    try:
        import httpx
    except ImportError:
        raise Unavailable(
            "uploading to Google needs httpx: install it with `pip install 'kesin[oci]'`"
        ) from None
    return httpx.Client(timeout=settings.oci_timeout_s, follow_redirects=False)
