import pytest

from kesin.workloads.pdf.engines import network_guard
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.engines.chromium import ChromiumEngine
from kesin.workloads.pdf.engines.chromium_settings import ChromiumSettings
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.safe_fetch import FetchRefused, fetch, is_public_address
from kesin.workloads.pdf.security import LIBRARY_CSP, csp_tag
from tests.workloads.pdf.documents import every_fetch, every_script, page, text
from tests.workloads.pdf.listener import listening

RULES = network_guard.build_policy()
TAG = f'<meta http-equiv="Content-Security-Policy" content="{RULES}">'
PAPER = Paper(header_html="<b>header</b>", footer_html="<b>footer</b>", margin_mm=(15, 15, 15, 15))


@pytest.fixture(scope="module")
def engine():
    """With all walls standing."""
    engine = ChromiumEngine()
    yield engine
    engine.close()


def fetch_from_anywhere(url: str):
    return fetch(url, timeout_s=2, public_only=False)


@pytest.mark.parametrize(
    "standing",
    [frozenset({"policy"}), frozenset({"route"}), frozenset({"flags"})],
    ids="+".join,
)
def test_each_wall_alone_lets_no_request_through(standing):
    engine = ChromiumEngine(ChromiumSettings(guard_layers=standing))
    with listening() as server:
        try:
            done = engine.render(every_fetch(server.url), PAPER, timeout_s=30)
            if standing != {"policy"}:  # it has no say about where a page goes
                with pytest.raises(RenderFailed, match="TEMPLATE_ERROR"):
                    engine.render(refreshing(server.url), PAPER, timeout_s=30)
        finally:
            engine.close()
        assert server.paths == []
        # Only the flags keep Chromium from connecting ahead of time with nothing to say.
        assert server.connections == 0 or "flags" not in standing
    assert "the end" in text(done.pdf)


def test_the_rules_take_the_place_of_those_a_document_of_the_book_brings():
    """Its own would keep out what an allow-list lets in."""
    html = page("<p>x</p>", csp_tag(LIBRARY_CSP))
    assert network_guard.insert_policy(html, RULES) == network_guard.insert_policy(
        page("<p>x</p>"), RULES
    )


def test_without_walls_the_same_document_fetches_all_over():
    wanted = {
        "/style.css", "/import.css", "/font.woff2", "/img.png", "/srcset.png", "/iframe",
        "/srcdoc.png", "/object", "/embed", "/poster.png", "/background.png", "/input.png",
        "/svg-image.png", "/preload.png", "/localhost.png", "/number.png", "/mapped.png",
        "/lazy.png", "/set.png", "/print.png", "/mask.png", "/content.png",
    }  # fmt: skip
    engine = ChromiumEngine(ChromiumSettings(guard_layers=frozenset()))
    with listening() as server:
        try:
            for _ in range(5):  # a picture nobody waits for may come too late for one document
                engine.render(every_fetch(server.url), PAPER, timeout_s=30)
                if wanted <= set(server.paths):
                    break
        finally:
            engine.close()
        assert wanted <= set(server.paths)


def test_all_walls_together_let_nothing_through(engine):
    with listening() as server:
        done = engine.render(every_fetch(server.url), PAPER, timeout_s=30)
        engine.wait_idle()
        assert (server.connections, server.paths) == (0, [])
    assert "the end" in text(done.pdf)


def test_scripts_reach_nothing_either():
    engine = ChromiumEngine(ChromiumSettings(javascript=True))
    with listening() as server:
        try:
            engine.render(every_script(server.url), PAPER, timeout_s=30)
        finally:
            engine.close()
        assert (server.connections, server.paths) == (0, [])


def test_what_was_blocked_is_told_for_each_document(engine):
    for name in ("a", "b"):
        html = page(f'<img src="http://shop.example/{name}.png">')
        done = engine.render(html, PAPER, timeout_s=30)
        assert [one for one in done.warnings if one.startswith("blocked")] == [
            f"blocked: http://shop.example/{name}.png"
        ]


def test_connecting_ahead_is_stopped_too(engine):
    with listening() as server:
        html = page(
            "x",
            f'<link rel="preconnect" href="{server.url}"><link rel="dns-prefetch" '
            f'href="{server.url}"><meta http-equiv="x-dns-prefetch-control" content="on">',
        )
        engine.render(html, PAPER, timeout_s=30)
        engine.wait_idle()
        assert server.connections == 0


def test_headers_and_footers_fetch_nothing(engine):
    with listening() as server:
        banner = f"<img src='{server.url}/h.png'><script>fetch('{server.url}/s')</script><b>top</b>"
        paper = Paper(header_html=banner, footer_html=banner, margin_mm=(20, 20, 20, 20))
        engine.render(page("x"), paper, timeout_s=30)
        engine.wait_idle()
        assert server.connections == 0


@pytest.mark.parametrize("delay", [0, 30])
def test_a_refresh_is_an_error_of_the_template_and_goes_nowhere(engine, delay):
    with listening() as server:
        with pytest.raises(RenderFailed) as caught:
            engine.render(refreshing(server.url, delay), PAPER, timeout_s=30)
        assert caught.value.code == "TEMPLATE_ERROR"
        assert server.connections == 0


def refreshing(url: str, delay: int = 0) -> str:
    return page("x", f'<meta http-equiv="Refresh" content="{delay};url={url}/next">')


def test_allowed_urls_are_fetched_and_neither_others_nor_redirects_are():
    urls: set[str] = set()
    settings = ChromiumSettings(is_url_allowed=urls.__contains__, fetch=fetch_from_anywhere)
    engine = ChromiumEngine(settings)
    try:
        with listening() as server:
            urls |= {f"{server.url}/yes.png", f"{server.url}/elsewhere", f"{server.url}/pixel.png"}
            html = page(f'<img src="{server.url}/yes.png"><img src="{server.url}/no.png">')
            done = engine.render(html, PAPER, timeout_s=30)
            assert server.paths == ["/yes.png"]
            assert f"blocked: {server.url}/no.png" in done.warnings
            assert not any("yes.png" in warning for warning in done.warnings)

            html = page(f'<img src="{server.url}/elsewhere">')
            done = engine.render(html, PAPER, timeout_s=30)
            assert server.paths == ["/yes.png", "/elsewhere"]
            assert f"blocked: {server.url}/elsewhere (it answered 302)" in done.warnings

            style = f"<style>body {{ background: url({server.url}/pixel.png) }}</style>"
            assert engine.render(page("x", style), PAPER, timeout_s=30).warnings == ()
            assert server.paths[-1] == "/pixel.png"
    finally:
        engine.close()


def test_private_addresses_are_refused_even_if_allowed():
    with listening() as server:
        with pytest.raises(FetchRefused, match="not a public one"):
            fetch(f"{server.url}/x.png")
        assert server.connections == 0


def test_allowed_urls_and_scripts_force_a_context_for_each_document():
    assert ChromiumSettings(is_url_allowed=lambda _: True).isolation_used == "context"
    assert ChromiumSettings(javascript=True).isolation_used == "context"
    assert ChromiumSettings().isolation_used == "page"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0",
        "100.64.0.1", "224.0.0.1", "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1%eth0",
        "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1",
        "2002:7f00:1::", "2001:0:1::1", "2001:db8::1", "100::1", "::7f00:1", "fec0::1",
    ],
)  # fmt: skip
def test_addresses_of_the_inside(address):
    assert not is_public_address(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_addresses_of_the_outside(address):
    assert is_public_address(address)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://a.example/x", "http://u:p@a.example/", "http:///x", "x"]
)
def test_only_plain_web_addresses_are_fetched(url):
    with pytest.raises(FetchRefused):
        fetch(url)


@pytest.mark.parametrize(
    ("before", "after"),
    [
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
    ],
)
def test_the_policy_comes_before_everything_that_loads(before, after):
    assert network_guard.insert_policy(before + after, RULES) == before + TAG + after
