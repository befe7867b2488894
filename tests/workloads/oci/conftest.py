"""A service with a new site for each test, on each database, under a clock that tests move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kesin.workloads.oci.google.connection_check import channels_of
from tests.web.conftest import _plain_logs, _quick_hashes, opened  # noqa: F401  # fixtures
from tests.workloads.oci.fake_google import GoogleServer
from tests.workloads.oci.google_library import VERSION
from tests.workloads.oci.own_site import SECRET_KEYS, ApiSite, Oci, OwnSite
from tests.workloads.oci.running import Running, running, secrets_in
from tests.workloads.oci.script import Script

BOTH = ["sqlite", "postgres"]


@pytest.fixture(scope="module", params=BOTH)
def shared(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    _quick_hashes: None,  # noqa: F811
) -> Iterator[Oci]:
    """The service of the module, on each database."""
    folder = tmp_path_factory.mktemp("oci")
    with ExitStack() as stack:
        store = opened(request.param, folder, request, stack)
        oci = Oci(store, folder, secret_keys=SECRET_KEYS)
        stack.enter_context(oci.kept())
        yield oci


@pytest.fixture
def site(shared: Oci) -> OwnSite:
    """A script site."""
    return OwnSite(shared)


@pytest.fixture
def neighbour(shared: Oci) -> OwnSite:
    """Another script site."""
    return OwnSite(shared)


@pytest.fixture
def alone(shared: Oci) -> OwnSite:
    """A script site whose rows are the only ones that the clock can move."""
    shared.retire_rows()
    return OwnSite(shared)


# Google


@pytest.fixture(scope="module")
def google_server() -> Iterator[GoogleServer]:
    with GoogleServer() as server:
        yield server


@pytest.fixture
def google(google_server: GoogleServer) -> Iterator[GoogleServer]:
    """A local Google server that has heard of nothing yet; it must understand all that it hears."""
    google_server.reset()
    yield google_server
    assert google_server.malformed == []


@pytest.fixture(scope="module", params=BOTH)
def shared_api(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    google_server: GoogleServer,
    _quick_hashes: None,  # noqa: F811
) -> Iterator[Oci]:
    """The service of the module, which uploads to the local Google server."""
    folder = tmp_path_factory.mktemp("api")
    with ExitStack() as stack:
        oci = Oci(
            opened(request.param, folder, request, stack),
            folder,
            secret_keys=SECRET_KEYS,
            oci_google_url=google_server.url,
            oci_google_version=VERSION,
            oci_data_manager_url=google_server.url,
            oci_token_url=google_server.token_url,
            oci_timeout_s=60,  # the first import of Google's package takes long on a busy machine
        )
        stack.enter_context(oci.kept())
        yield oci


@pytest.fixture
def make_api(shared_api: Oci, google: GoogleServer) -> Iterator[Callable[..., ApiSite]]:
    """Makes sites that our worker uploads for; nothing is left of them afterwards."""
    channels_of.cache_clear()
    sites: list[ApiSite] = []

    def make(channel: str = "api") -> ApiSite:
        sites.append(ApiSite(shared_api, google, channel))
        return sites[-1]

    yield make
    for site in sites:
        site.change(channel="script")
        site.resume()
    shared_api.retire_rows()
    channels_of.cache_clear()


@pytest.fixture
def api(make_api: Callable[..., ApiSite]) -> ApiSite:
    """A site on the channel ``api``."""
    return make_api()


# Scripts


@pytest.fixture(scope="module")
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Running]]:
    """A listening service, on SQLite unless a test asks for another; a call adds a site."""
    folder = tmp_path_factory.mktemp("service")
    with running(getattr(request, "param", "sqlite"), folder, request) as new_site:
        yield new_site


@pytest.fixture
def server(service: Callable[[], Running]) -> Running:
    return service()


@pytest.fixture
def script(server: Running) -> Iterator[Script]:
    """An installed script. Whatever a test does with it, it logs no secret."""
    script = server.script()
    yield script
    assert secrets_in(script, " ".join(script.logged)) == []
