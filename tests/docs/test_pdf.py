"""The page about PDFs, followed by hand: its commands, its filters, its addresses, its pictures."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image

from kesin.workloads.pdf.book import TemplateBook
from kesin.workloads.pdf.filters import FILTERS
from kesin.workloads.pdf.sandbox import Sandbox
from kesin.workloads.pdf.storage import open_storage
from tests.docs.pages import DOCS, blocks, links, matches

PAGE = DOCS / "pdf.md"
PICTURES = DOCS / "pictures"
LARGEST_BYTES = 150_000
LONGEST_S = 120
END = "\x1e"  # between what two blocks print
TEXT = PAGE.read_text("utf-8")


def test_who_types_what_the_page_says_sees_what_it_shows(tmp_path):
    found = blocks(PAGE)
    shown = [
        (typed, answer)
        for typed, answer in pairwise(found)
        if typed.language == "sh" and answer.language == "txt"
    ]
    assert len(shown) == sum(one.language == "sh" for one in found)
    own = {name: one for name, one in os.environ.items() if not name.startswith("KESIN_")}
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [
            "bash",
            "-euo",
            "pipefail",
            "-c",
            f"\nprintf '{END}'\n".join(one.text for one, _ in shown),
        ],
        cwd=tmp_path,
        env={**own, "PATH": programs, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=LONGEST_S,
        check=False,
    )
    for (typed, answer), said in zip(shown, done.stdout.split(END), strict=False):
        told = f"pdf.md:{typed.line} says\n{said}\n{done.stderr}"
        assert matches(answer.text, said.lstrip("\n")), told
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.glob("*.pdf")} == {"invoice.pdf", "letter.pdf"}


def test_every_filter_is_shown_with_what_it_prints():
    (block,) = [one for one in blocks(PAGE) if one.language == "jinja"]
    lines = [re.split(r" {2,}", line, maxsplit=1) for line in block.text.splitlines()]
    assert {re.search(r"\| (\w+)", source)[1] for source, _ in lines} == set(FILTERS)
    for source, shown in lines:
        printed = Sandbox({"line": source}).rendered("line", {}).replace("\u00a0", " ")
        assert matches(shown, printed), f"{source} prints {printed}"


@pytest.mark.parametrize("name", TemplateBook.load().names)
def test_every_shipped_template_has_a_picture_that_is_shown(name):
    path = PICTURES / f"{name}.png"
    assert f"pictures/{name}.png" in links(PAGE)
    assert f"`{name}`" in TEXT
    assert path.stat().st_size < LARGEST_BYTES
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert picture.width == 700


def test_no_picture_is_left_over():
    names = set(TemplateBook.load().names)
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
