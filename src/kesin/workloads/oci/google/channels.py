"""The upload channels, built once per process: they share connections and access tokens."""

from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec

from kesin.foundation.clock import SystemClock
from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import Settings
from kesin.workloads.oci.google.channel import Channel
from kesin.workloads.oci.google.credentials import AccessTokens
from kesin.workloads.oci.google.data_manager import DataManager
from kesin.workloads.oci.google.google_ads import GoogleAds
from kesin.workloads.oci.google.http import BoundedHttpClient


@lru_cache(maxsize=8)
def channels_of(settings: Settings) -> Mapping[str, Channel]:
    """Build every channel of our worker; raises Unavailable without the library they need."""
    if find_spec("httpx") is None:
        why = "uploading to Google needs httpx: install it with `pip install 'kesin[oci]'`"
        raise Unavailable(why)
    http = BoundedHttpClient(settings.oci_timeout_s, monotonic=SystemClock().monotonic)
    tokens = AccessTokens(http, settings.oci_token_url)
    ads_url = f"{settings.oci_google_url.rstrip('/')}/{settings.oci_google_version}"
    manager = DataManager(http, tokens, f"{settings.oci_data_manager_url.rstrip('/')}/v1")
    return {"api": GoogleAds(http, tokens, ads_url), "data_manager": manager}
