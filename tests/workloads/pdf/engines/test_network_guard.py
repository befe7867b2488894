"""A document reaches nothing but its own data, and the URLs that are allowed."""

from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address

import pytest

from kesin.workloads.pdf.engines import network_guard
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.engines.browser import ChromiumSettings
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.safe_fetch import FetchRefused, fetch
from kesin.workloads.pdf.security import LIBRARY_CSP, csp_tag, is_public
from tests.workloads.pdf.documents import every_fetch, every_script, page, text
from tests.workloads.pdf.engines_shared import SwitchableEngine, wait_idle
from tests.workloads.pdf.listener import Listener, listening

RULES = network_guard.build_policy()
TAG = f'<meta http-equiv="Content-Security-Policy" content="{RULES}">'
PAPER = Paper(header_html="<b>header</b>", footer_html="<b>footer</b>", margin_mm=(15, 15, 15, 15))


@pytest.fixture(scope="module")
def flagless() -> Iterator[SwitchableEngine]:
    """A browser that was started without the flags, and no other layer."""
    engine = SwitchableEngine(ChromiumSettings(guard_layers=frozenset()))
    yield engine
    engine.close()


@pytest.fixture
def server() -> Iterator[Listener]:
    with listening() as server:
        yield server


def refreshing(url: str, delay: int = 0) -> str:
    return page("x", f'<meta http-equiv="Refresh" content="{delay};url={url}/next">')


@pytest.mark.parametrize("layer", ["policy", "route", "flags"])
def test_each_layer_alone_lets_no_request_through(chromium, flagless, server, layer):
    engine = chromium if layer == "flags" else flagless
    engine.switch(guard_layers=frozenset({layer}))
    done = engine.render(every_fetch(server.url), PAPER, timeout_s=30)
    if layer != "policy":  # it has no say about where a page goes
        with pytest.raises(RenderFailed, match="TEMPLATE_ERROR"):
            engine.render(refreshing(server.url), PAPER, timeout_s=30)
    engine.switch()  # closes the page
    assert server.paths == []
    # Only the flags keep Chromium from connecting ahead of time with nothing to say.
    assert server.connections == 0 or layer != "flags"
    assert "the end" in text(done.pdf)
    # The flags block below the page, which knows of no blocked request: no other layer was there.
    assert any(warning.startswith("blocked") for warning in done.warnings) == (layer != "flags")


def test_without_layers_the_same_document_fetches_all_over(flagless, server):
    names = (
        "style.css import.css font.woff2 img.png srcset.png iframe srcdoc.png object embed "
        "poster.png background.png input.png svg-image.png preload.png localhost.png number.png "
        "mapped.png lazy.png set.png print.png mask.png content.png"
    )
    expected = {f"/{name}" for name in names.split()}
    flagless.switch()
    for _ in range(5):  # a picture nobody waits for may come too late for one document
        flagless.render(every_fetch(server.url), PAPER, timeout_s=30)
        if expected <= set(server.paths):
            break
    assert expected <= set(server.paths)


@pytest.mark.parametrize("scripts", [False, True])
def test_all_layers_together_let_nothing_through(chromium, server, scripts):
    chromium.switch(javascript=scripts)
    html = every_script(server.url) if scripts else every_fetch(server.url)
    ahead = (
        f'<head><link rel="preconnect" href="{server.url}"><link rel="dns-prefetch" '
        f'href="{server.url}"><meta http-equiv="x-dns-prefetch-control" content="on">'
    )
    banner = f"<img src='{server.url}/h.png'><script>fetch('{server.url}/s')</script><b>top</b>"
    paper = Paper(header_html=banner, footer_html=banner, margin_mm=(20, 20, 20, 20))
    done = chromium.render(html.replace("<head>", ahead), paper, timeout_s=30)
    wait_idle(chromium)
    assert (server.connections, server.paths) == (0, [])
    assert "the end" in text(done.pdf)


def test_warnings_name_the_blocked_urls_of_their_own_document(chromium):
    for name in ("a", "b"):
        url = f"http://shop.example/{name}.png"
        warnings = chromium.render(page(f'<img src="{url}">'), PAPER, timeout_s=30).warnings
        assert [text for text in warnings if text.startswith("blocked")] == [f"blocked: {url}"]


def test_a_refresh_is_an_error_of_the_template_and_goes_nowhere(chromium, server):
    for delay in (0, 30):
        with pytest.raises(RenderFailed) as caught:
            chromium.render(refreshing(server.url, delay), PAPER, timeout_s=30)
        assert caught.value.code == "TEMPLATE_ERROR"
    assert server.connections == 0


def test_allowed_urls_are_fetched_and_neither_others_nor_redirects_are(chromium, server):
    urls = {f"{server.url}/{name}" for name in ("yes.png", "elsewhere", "pixel.png")}
    chromium.switch(is_url_allowed=urls.__contains__, new_fetch=lambda: partial(fetch, timeout_s=2, public_only=False))
    html = page(f'<img src="{server.url}/yes.png"><img src="{server.url}/no.png">')
    done = chromium.render(html, PAPER, timeout_s=30)
    assert server.paths == ["/yes.png"]
    assert f"blocked: {server.url}/no.png" in done.warnings
    assert not any("yes.png" in warning for warning in done.warnings)

    html = page(f'<img src="{server.url}/elsewhere">')
    done = chromium.render(html, PAPER, timeout_s=30)
    assert server.paths == ["/yes.png", "/elsewhere"]
    assert f"blocked: {server.url}/elsewhere (it returned 302)" in done.warnings

    style = f"<style>body {{ background: url({server.url}/pixel.png) }}</style>"
    assert chromium.render(page("x", style), PAPER, timeout_s=30).warnings == ()
    assert server.paths[-1] == "/pixel.png"


def test_allowed_urls_and_scripts_force_a_context_for_each_document():
    assert ChromiumSettings(is_url_allowed=lambda _: True).isolation_used == "context"
    assert ChromiumSettings(javascript=True).isolation_used == "context"
    assert ChromiumSettings().isolation_used == "page"


def test_only_addresses_of_the_internet_are_public():
    inside = [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0",
        "100.64.0.1", "224.0.0.1", "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1%eth0",
        "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1",
        "2002:7f00:1::", "2001:0:1::1", "2001:db8::1", "100::1", "::7f00:1", "fec0::1",
    ]  # fmt: skip
    outside = ["1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1"]
    assert [each for each in (*inside, *outside) if is_public(ip_address(each))] == outside


def test_only_plain_web_addresses_are_fetched(subtests):
    for url in ("file:///etc/passwd", "ftp://a.example/x", "http://u:p@a.example/", "http:///x", "x"):
        with subtests.test(url), pytest.raises(FetchRefused):
            fetch(url)


def test_the_policy_comes_before_everything_that_loads():
    for before, after in (
        ("", "<p>x"),
        ("<!doctype html>", "<html><p>x"),
        ("\ufeff \n<!DOCTYPE html>", "<p>x"),
        ("<!-- a --><!doctype html>", "<p>x"),
        ('<?xml version="1.0"?><!doctype html>', "<p>x"),
        ("<!--> ", "<img src=x><!doctype html>-->"),  # a comment that is over at once
        ("<!---> ", "<img src=x>-->"),
        ("<!-- a --!>", "<img src=x> -->"),
        ("<!-- a --> ", "\u00a0<!doctype html>"),
        ("", "<!-- without end <!doctype html>"),
    ):
        assert network_guard.insert_policy(before + after, RULES) == before + TAG + after, before


def test_the_policy_replaces_that_of_the_template_library():
    """It would block what an allow-list permits."""
    html, bare = page("<p>x</p>", csp_tag(LIBRARY_CSP)), page("<p>x</p>")
    assert network_guard.insert_policy(html, RULES) == network_guard.insert_policy(bare, RULES)
