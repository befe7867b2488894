"""The page about PDFs, followed by hand: its commands, its filters, its addresses, its pictures."""

import re

import pytest
from PIL import Image

from kesin.workloads.pdf.storage import open_storage
from kesin.workloads.pdf.templating.filters import FILTERS
from kesin.workloads.pdf.templating.library import TemplateLibrary
from kesin.workloads.pdf.templating.sandbox import Sandbox
from tests.cli.mother import path_with_kesin
from tests.docs.pages import DOCS, blocks, links, matches
from tests.docs.walking import steps, walk
from tests.web.serving import own_settings

PAGE = DOCS / "pdf.md"
PICTURES = DOCS / "pictures"
LARGEST_BYTES = 150_000
TEXT = PAGE.read_text("utf-8")


def test_who_types_what_the_page_says_sees_what_it_shows(tmp_path, monkeypatch):
    own_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("PATH", path_with_kesin(tmp_path / "bin"))
    way = steps(PAGE)
    assert all(one.answer for one in way)
    walk(way, tmp_path)
    assert {path.name for path in tmp_path.glob("*.pdf")} == {"invoice.pdf", "letter.pdf"}


def test_every_filter_is_shown_with_what_it_prints():
    (block,) = [one for one in blocks(PAGE) if one.language == "jinja"]
    lines = [re.split(r" {2,}", line, maxsplit=1) for line in block.text.splitlines()]
    assert {re.search(r"\| (\w+)", source)[1] for source, _ in lines} == set(FILTERS)
    for source, shown in lines:
        printed = Sandbox({"line": source}).render("line", {}).replace("\u00a0", " ")
        assert matches(shown, printed), f"{source} prints {printed}"


@pytest.mark.parametrize("name", TemplateLibrary.load().names)
def test_every_shipped_template_has_a_picture_that_is_shown(name):
    path = PICTURES / f"{name}.png"
    assert f"pictures/{name}.png" in links(PAGE)
    assert f"`{name}`" in TEXT
    assert path.stat().st_size < LARGEST_BYTES
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert picture.width == 700


def test_no_picture_is_left_over():
    names = set(TemplateLibrary.load().names)
    others = ("optiplan-", "dashboard-")  # of other pages
    shown = {path.stem for path in PICTURES.iterdir() if not path.name.startswith(others)}
    assert shown == names


def test_the_addresses_of_storages_are_understood():
    rows = re.findall(r"^\| (`(?:artifacts|s3:).*?) \| ", TEXT, re.MULTILINE)
    addresses = [one for row in rows for one in re.findall(r"`(\S+)`", row) if "s3://" in one]
    assert len(addresses) == 2
    keys = {"AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": "what"}
    for address in addresses:
        assert repr(open_storage(address, keys)).startswith("S3Storage('s3://kesin-pdfs")
