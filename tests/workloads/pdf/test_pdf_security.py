"""Allow-lists of templates and URLs, and variables that cannot become HTML."""

import html
import re
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.security import (
    MAX_DEPTH,
    MAX_NODES,
    check_plain_data,
    sanitize_html_variables,
    validate_template,
    validate_url,
)

names = st.text(max_size=40)
urls = st.builds(
    "{}://a{}.{}/{}{}".format,
    st.sampled_from(["http", "https"]),
    st.text("bcxyz09", max_size=10),
    st.sampled_from(["com", "org:8443", "example"]),
    st.text("abz09_~-", max_size=12),
    st.sampled_from(["", "?a=1", "?b=2026"]),
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=5,
)
variables = st.dictionaries(st.text(max_size=8), plain, max_size=3)


class TestTemplates:
    @settings(max_examples=100)
    @given(names, st.sets(names, max_size=6))
    def test_a_template_is_allowed_exactly_if_it_is_listed(self, name, listed):
        """Feature: pdf-render-worker, Property 5: allow-list validation."""
        assert validate_template(name, listed | {name})
        assert not validate_template(name, listed - {name})
        assert not validate_template(name, set())


class TestUrls:
    @settings(max_examples=100)
    @given(urls, st.lists(urls, max_size=4), st.text(min_size=1, max_size=10))
    def test_a_url_is_allowed_exactly_if_a_pattern_is_its_own(self, url, others, more):
        """Feature: pdf-render-worker, Property 5: allow-list validation."""
        patterns = [re.escape(other) for other in others if other.rstrip("/") != url.rstrip("/")]
        assert validate_url(url, [*patterns, re.escape(url)])
        assert not validate_url(url, patterns)
        assert not validate_url(url, [])
        if (url + more).rstrip("/") != url.rstrip("/"):  # a pattern matches the whole
            assert not validate_url(url + more, [re.escape(url)])

    def test_a_url_that_a_pattern_describes_is_allowed(self):
        for url, pattern in (
            ("https://cdn.example.com/logo.png", r"https://cdn\.example\.com/.*"),
            ("https://a.example.com/x", r"https://[a-z]+\.example\.com/.*"),
            ("https://example.com", r"https://example\.com/"),
            ("https://example.com/", r"https://example\.com"),
            ("HTTPS://Example.COM/a", r"https://example\.com/a"),
            ("https://b.com/x", r"https://a\.com/.*|https://b\.com/.*"),
            ("https://example.com/x", r"^https?:\/\/(www\.)?example\.com(\/.*)?$"),
            ("https://example.com?a=1", r"https://example\.com\?a=\d"),
            ("http://8.8.8.8/", r"http://8\.8\.8\.8/"),
        ):
            assert validate_url(url, [pattern]), url

    def test_a_host_cannot_be_feigned(self):
        urls = [
            "https://evil.com/?x=.example.com/", "https://evil.com#.example.com/",
            "https://example.com.evil.com/x", "https://a.example.com@evil.com/x",
            "https://user:word@a.example.com/x", "https:\\\\a.example.com/x",
            "https://evil.com\\.example.com/x", "https:///a.example.com/x",
            "ftp://a.example.com/x", "file:///etc/passwd", "FILE:///a.example.com/",
            "javascript://a.example.com/%0aalert(1)", "data:text/html,https://a.example.com/",
            " https://a.example.com/x", "https://a.example.com/x\n",
            "https://a.example.com/a/../b", "https://a.example.com/a/%2E%2e/b",
            "https://a.example.com:0/", "https://a.example.com:99999/", "https://a.exämple.com/",
            "https://a.example.com/" + "x" * 3000,
        ]  # fmt: skip
        assert [url for url in urls if validate_url(url, [r"https?://.*\.example\.com/.*"])] == []

    def test_private_hosts_are_refused_unless_a_pattern_spells_them_out(self):
        for host in (
            "127.0.0.1", "10.1.2.3", "172.16.0.9", "192.168.1.1", "169.254.169.254", "0.0.0.0",
            "100.64.0.1", "224.0.0.1", "255.255.255.255", "[::1]", "[::]", "[fe80::1]", "[fc00::1]",
            "[fec0::1]", "[ff02::1]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[::127.0.0.1]",
            "[64:ff9b::a00:1]", "[2002:7f00:1::]", "[2001:db8::1]", "localhost", "LOCALHOST",
            "x.localhost", "printer.local", "metadata.google.internal", "redis",
        ):  # fmt: skip
            url = f"http://{host}:8080/a"
            wide = [r"http://.*", r"https?://[^/]+/.*", r"http://.+:8080/a"]
            assert not validate_url(url, wide), host
            assert validate_url(url, [re.escape(url.lower())]), host

    def test_numbers_that_only_browsers_understand_are_no_hosts(self):
        for host in ("2130706433", "0x7f000001", "0177.0.0.1", "127.1", "1.2.3.4.5"):
            url = f"http://{host}/"
            assert not validate_url(url, ["http://.*", re.escape(url)]), host

    def test_a_pattern_that_repeats_a_letter_does_not_spell_a_host(self):
        assert not validate_url("http://127.0.0.1/", [r"http://127\.0\.0\.1*/"])
        assert not validate_url("http://localhost/", [r"http://localhost.*"])
        assert validate_url("http://127.0.0.1:9/", [r"http://127\.0\.0\.1(:\d+)?/"])

    def test_a_pattern_without_scheme_and_host_allows_nothing(self):
        for pattern in ("", ".*", "[", "https?:.*", r".*example\.com.*", "(?P<"):
            assert not validate_url("https://example.com/", [pattern]), pattern


class TestSanitizing:
    @settings(max_examples=100)
    @given(variables)
    @example({"a": "<script>&\"'</script>", "<k>": ["&lt;", {"'": '"'}]})
    def test_every_text_is_escaped_once_and_keeps_its_content(self, given_variables):
        """Feature: pdf-render-worker, Property 6: HTML sanitising."""
        clean = sanitize_html_variables(given_variables)
        for text in texts(clean):
            assert isinstance(text, Markup)
            assert not re.search(r"[<>\"']", text)
            assert not re.search(r"&(?!(amp|lt|gt|#34|#39);)", text)
        assert unescaped(clean) == given_variables
        assert sanitize_html_variables(clean) == clean

    def test_what_is_no_text_stays_as_it_is(self):
        values = {"n": 1, "d": Decimal("1.10"), "b": True, "no": None, "on": date(2026, 11, 15)}
        assert sanitize_html_variables(values) == values
        assert sanitize_html_variables({"a": ["<"], "b": ("<",)}) == {"a": ["&lt;"], "b": ("&lt;",)}

    @pytest.mark.parametrize("check", [sanitize_html_variables, check_plain_data])
    def test_what_is_no_plain_data_is_refused_without_the_names_that_were_sent(self, check):
        class Sly:
            def __html__(self):
                return "<script>"

        deep, loop = dict[str, object](), dict[str, object]()
        for _ in range(MAX_DEPTH):
            check(deep)
            deep = {"a": deep}
        loop["a"] = loop
        of_one: dict[object, list[tuple[dict, str]]] = {
            sanitize_html_variables: [({"<": 1, Markup("&lt;"): 2}, "two names")],  # which become one
            check_plain_data: [({"a": float(number)}, "at /a") for number in ("nan", "inf")],
        }
        for value, why in (
            (deep, "nested deeper than 32"),
            (loop, "nested deeper than 32"),
            ({"a": [0] * MAX_NODES}, "more than"),
            ({"a": [Sly()]}, "Sly is not plain data at /a/0"),
            ({"Ayşe & oğlu, 0532": b""}, "bytes is not plain data"),
            *of_one[check],
        ):
            with pytest.raises(RenderFailed, match=why) as failed:
                check(value)
            assert failed.value.code == "TEMPLATE_ERROR"
            assert "Ayşe" not in str(failed.value)


def texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts(key)
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def unescaped(value):
    if isinstance(value, str):
        return html.unescape(value) if "&" in value else str(value)
    if isinstance(value, dict):
        return {unescaped(key): unescaped(item) for key, item in value.items()}
    return [unescaped(item) for item in value] if isinstance(value, list) else value
