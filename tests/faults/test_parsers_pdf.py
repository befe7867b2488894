"""Templates' data, tables, addresses and headers: whatever comes is a value or our own refusal."""

import json
import re
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import example
from hypothesis import strategies as st

from kesin.foundation.problems import Invalid, Problem
from kesin.web.dashboard.forms.schema_form import SchemaForm
from kesin.workloads.pdf.api.download import _etag_matches, _parse_range
from kesin.workloads.pdf.batches.rows import MAX_NAME_LENGTH, check_rows, read_csv, row_file_names
from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.engines.base import parse_page_ranges, selected_pages
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.submit import check_variables
from kesin.workloads.pdf.safe_fetch import FetchRefused, _split_url
from kesin.workloads.pdf.schemas import MAX_ROWS as MOST_BATCH_ROWS
from kesin.workloads.pdf.security import is_internal_url, sanitize_html_variables, validate_url
from kesin.workloads.pdf.storage import open_storage
from kesin.workloads.pdf.storage.base import StorageError, attachment_header
from kesin.workloads.pdf.templating import filters
from kesin.workloads.pdf.templating.library import TemplateLibrary
from kesin.workloads.pdf.uploads.store import PdfUploads
from kesin.workloads.pdf.webhooks.worker import MAX_RETRY_AFTER_S, _parse_seconds
from tests.faults.fuzz import answered, broken, broken_json, broken_text, given

INVOICE = json.loads((SHIPPED / "invoice" / "sample.json").read_text("utf-8"))
SCHEMA = json.loads((SHIPPED / "invoice" / "schema.json").read_text("utf-8"))
CSV = b'number,seller.name,lines,issued_on\r\nA-1,Ali,"[{""name"": 1}]",2026-11-15\r\n'


@pytest.fixture(scope="module")
def book():
    return TemplateLibrary.load()


@given(data=st.data())
@example(data={**INVOICE, "9" * 5_000: 1})
def test_variables_fit_their_template_or_are_told_what_is_wrong(book, data):
    variables = data if isinstance(data, dict) else data.draw(broken_json(INVOICE))
    if not isinstance(variables, dict):
        return
    nowhere: Any = SimpleNamespace(list=lambda _: iter(()))
    none_uploaded = PdfUploads(nowhere, lambda: 0)
    services: Any = SimpleNamespace(library=book, uploads=none_uploaded)
    try:
        check_variables(services, "me", "invoice", variables)
    except Problem as problem:
        json.dumps(problem.body())
        return
    with suppress(RenderFailed):
        assert book.render_html("invoice", variables).startswith("<!doctype html>")


@given(broken_json(INVOICE).filter(lambda value: isinstance(value, dict)))
def test_variables_are_escaped_or_refused(variables):
    with suppress(RenderFailed):
        clean = sanitize_html_variables(variables)
        assert not re.search("[<>\"']", "".join(texts(clean)))


def texts(value):
    if isinstance(value, str):
        yield str(value)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield str(key)
            yield from texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from texts(one)


@given(broken(CSV, CSV.replace(b",", b";")))
def test_a_table_is_rows_or_refused(body):
    table = answered(Invalid, read_csv, body, SCHEMA)
    if isinstance(table, Invalid):
        assert table.code
        return
    rows, _ = table
    assert len(rows) <= MOST_BATCH_ROWS
    assert row_file_names(rows, None, None) == [""] * len(rows)


@given(data=st.data())
def test_rows_of_a_table_are_checked_whatever_is_in_them(book, data):
    rows = data.draw(st.lists(broken_json(INVOICE).filter(lambda value: isinstance(value, dict)), max_size=2))
    with suppress(Problem, RenderFailed):
        check_rows(lambda _, row: book.find_problems("invoice", row), rows)
    with suppress(Invalid):
        names = row_file_names(rows, None, "number")
        assert all(len(name) <= MAX_NAME_LENGTH and "/" not in name for name in names)


URLS = (
    "https://hooks.example.com/pdf?a=b#c",
    "http://127.0.0.1:8000/x",
    "https://[::1]/",
    "http://0x7f.1/",
    "https://user:pass@hooks.example.com/",
    "HTTPS://Hooks.Example.com./",
)
PATTERNS = (r"https://hooks\.example\.com/.*", r"(?i)http://[a-z]+\.example\.com(:\d+)?/.*|x")


@given(broken_text(*URLS))
def test_a_url_that_is_let_through_leads_to_the_host_that_is_allowed(url):
    if validate_url(url, [PATTERNS[0]]):
        assert urlsplit(url).hostname == "hooks.example.com"
        assert urlsplit(url).username is None
        assert not is_internal_url(url)
    with suppress(FetchRefused):
        parts = _split_url(url)
        assert parts.scheme in {"http", "https"}
        assert parts.hostname


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of the language, for whoever wrote it
@given(broken_text(*URLS), broken_text(*PATTERNS))
@example(URLS[0], "(" * 2_000)
def test_a_pattern_that_is_none_allows_nothing(url, pattern):
    assert validate_url(url, [pattern]) in {True, False}
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        assert not validate_url(url, [pattern])


@given(broken_text("1-3, 5", "2-", "-4", "٣"))
def test_page_ranges_are_pages_of_the_document_or_refused(text):
    with suppress(RenderFailed):
        assert all(first >= 1 for first, _ in parse_page_ranges(text))
        pages = selected_pages(text, 7)
        assert pages == sorted(set(pages))
        assert set(pages) <= set(range(1, 8))


@given(broken_text("bytes=0-99", "bytes=-5", "bytes=5-", "bytes=0-0,2-3"), st.integers(0, 10**6))
def test_a_range_lies_within_the_file_or_is_passed_over(header, size):
    part = _parse_range(header, size)
    if part is not None and part[0] < part[1]:
        assert 0 <= part[0] < part[1] <= size


@given(broken_text('W/"abc", "def"', "*", '"abc"'))
def test_a_mark_is_known_or_not(header):
    assert _etag_matches('"abc"', header) in {True, False}


@given(broken_text("Fatura Şubat.pdf", 'a"; filename="b', "../../etc/passwd"))
def test_a_file_name_stays_one_header(name):
    header = attachment_header(name)
    header.encode("latin-1")
    assert header.isprintable()
    assert header.count('"') == 2
    assert "/" not in unquote(header.partition("''")[2])


@given(broken_text("120", "Wed, 21 Oct 2026 07:28:00 GMT"))
def test_a_pause_of_a_receiver_is_bounded(text):
    pause = _parse_seconds(text)
    assert pause is None or 0 <= pause <= MAX_RETRY_AFTER_S


@given(broken_text("s3://bucket/prefix?region=eu&endpoint=https://s3.example.com", "s3://bucket"))
@example("s3://[")
@example("file://[x")
def test_an_address_of_a_storage_is_one_or_is_refused(url):
    if url.startswith("s3://"):
        with suppress(StorageError):
            assert open_storage(url)
    else:
        with suppress(StorageError):
            open_storage(f"unknown://{url}")


WORDS = ("1234.56", "2026-11-15T09:30:00+03:00", "#0a5", "12mm", "mailto:a@b", "TR33 0006 1005", "x")
ALL = [filters.parse_amount, filters.number, filters.money, filters.percent, filters.date, filters.iban]
ALL += [filters.css, filters.css_text, filters.url, filters.image, filters.qr, filters.upper_tr]


@given(st.sampled_from(ALL), broken_text(*WORDS) | broken_json(*WORDS))
@example(filters.qr, "\ud800")
@example(filters.qr, "漢" * 1_000)
def test_a_value_is_printed_or_refused(filter_of, value):
    with suppress(filters.Unprintable):
        filter_of(value)


@given(
    broken_text("2026-11-15T09:30:00+03:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
    st.sampled_from(["Asia/Tokyo", "America/New_York"]) | broken_text("Europe/Istanbul"),
)
@example("0001-01-01T00:00:00+00:00", "America/New_York")
@example("9999-12-31T23:59:59+00:00", "Asia/Tokyo")
def test_a_moment_is_printed_at_the_wall_of_a_zone_or_refused(moment, zone):
    with suppress(filters.Unprintable):
        assert filters.datetime(moment, zone)


FIELDS = ("v/lines/0/title", "v/lines/²/title", "v/number", "v/seller/title", "v/lines")


@given(
    st.dictionaries(broken_text(*FIELDS), broken_text("1,5", "x", "[1]"), max_size=5),
    broken_text("/lines", "/lines/0", "/lines/²", "/seller", ""),
)
@example({"v/lines/²/title": "x", "v/lines/0/title": "y"}, "/lines/²")
@example({f"v/lines/{'9' * 5_000}/title": "x"}, f"/lines/{'9' * 5_000}")
@example({"v/lines": "5"}, "/lines/0")
def test_a_form_is_a_value_and_its_rows_come_and_go(fields, pointer):
    form = SchemaForm(SCHEMA)
    value = form.read(fields)
    more, fewer = form.with_added(value, pointer), form.with_removed(value, pointer)
    for one in (value, more, fewer):
        form.draw(one)
    assert lines_in(more) - lines_in(value) in (0, 1)
    gone = lines_in(value) - lines_in(fewer)
    assert gone in (0, 1) or "lines" not in fewer  # one of them, or the list itself


def lines_in(value):
    lines = value.get("lines") if isinstance(value, dict) else None
    return len(lines) if isinstance(lines, list) else 0
