"""The upload channels, built once per process: they share connections and access tokens."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec

from kesin.foundation.clock import SystemClock
from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import Settings
from kesin.workloads.oci.google.channel import Channel
from kesin.workloads.oci.google.classify import WORKER_CHANNELS


class LaterChannels(Mapping[str, Channel]):
    """The channels of our worker, built when a site first needs one; raises Unavailable."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        if find_spec("httpx") is None:
            channels_of(settings)

    def __getitem__(self, name: str) -> Channel:
        if name not in WORKER_CHANNELS:
            raise KeyError(name)
        return channels_of(self._settings)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(WORKER_CHANNELS)

    def __len__(self) -> int:
        return len(WORKER_CHANNELS)


@lru_cache(maxsize=8)
def channels_of(settings: Settings) -> Mapping[str, Channel]:
    """Build every channel of our worker."""
    try:
        import httpx  # before the modules that need it
    except ImportError:
        raise Unavailable(
            "uploading to Google needs httpx: install it with `pip install 'kesin[oci]'`"
        ) from None
    from kesin.workloads.oci.google.data_manager import DataManager
    from kesin.workloads.oci.google.google_ads import GoogleAds
    from kesin.workloads.oci.google.oauth import AccessTokens

    http = httpx.Client(timeout=settings.oci_timeout_s, follow_redirects=False)
    monotonic = SystemClock().monotonic
    tokens = AccessTokens(http, settings.oci_token_url, monotonic=monotonic)
    ads_url = f"{settings.oci_google_url.rstrip('/')}/{settings.oci_google_version}"
    manager_url = f"{settings.oci_data_manager_url.rstrip('/')}/v1"
    return {
        "api": GoogleAds(http, tokens, ads_url, monotonic=monotonic),
        "data_manager": DataManager(http, tokens, manager_url, monotonic=monotonic),
    }
