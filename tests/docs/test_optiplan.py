"""The pages about cutting orders, followed by hand against a service that optimises for real."""

import io
import re
import zipfile
from pathlib import Path

import pytest

from kesin.workloads.optiplan.cleanup import KEEP_FILES_DAYS
from kesin.workloads.optiplan.errors import OptiCode
from kesin.workloads.optiplan.workshop.rules import default_rules, rules_json
from tests.cli.mother import path_with_kesin
from tests.cli.programs import Programs
from tests.docs.pages import DOCS
from tests.docs.test_api import paths, service  # noqa: F401  # fixtures
from tests.docs.walking import steps, walk
from tests.web.serving import own_settings, serve

WALKED = {
    "optiplan.md": {"plan.pdf", "board.svg", "solutions.zip", "import.zip"},
    "tr/optiplan.md": {"plan.pdf"},
}
API = (DOCS / "optiplan-api.md").read_text("utf-8")
OPERATIONS = (DOCS / "optiplan-operations.md").read_text("utf-8")
OURS = ("/jobs", "/orders", "/customers", "/config")


@pytest.mark.parametrize("name", WALKED)
def test_who_types_what_the_page_says_sees_what_it_shows(name, tmp_path, monkeypatch):
    own_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("PATH", path_with_kesin(tmp_path / "bin"))
    with Programs(tmp_path) as started, serve(started, tmp_path) as served:
        walk(steps(DOCS / name), tmp_path, served.address)
    for file in WALKED[name]:
        data = (tmp_path / file).read_bytes()
        kind = {".pdf": b"%PDF-", ".svg": b"<svg", ".zip": b"PK"}[Path(file).suffix]
        assert data.startswith(kind), data[:200]
        if file.endswith(".zip"):
            assert len(zipfile.ZipFile(io.BytesIO(data)).namelist()) == 2


def test_every_path_is_told_and_every_path_told_is_there(paths):  # noqa: F811
    told = set(re.findall(r"^\| `(GET|POST|PUT) (/\S+)` \|", API, re.MULTILINE))
    assert told == {one for one in paths if one[1].startswith(OURS)}


def test_every_code_that_stops_an_order_is_told_what_to_do_about():
    asked = {OptiCode(code) for code in re.findall(r"`(E_[A-Z_]+)`", OPERATIONS + API)}
    rights = {"UNAUTHORIZED", "FORBIDDEN", "INVALID_CREDENTIALS", "TOKEN_REQUIRED"}  # the house's
    assert {one.name for one in set(OptiCode) - asked} == {*rights, "UNKNOWN"}


def test_every_rule_is_told():
    told = set(re.findall(r"`(\w+)`", OPERATIONS.partition("## Rules")[2].partition("\n## ")[0]))
    assert set(rules_json(default_rules())) <= told


def test_how_long_files_are_kept_is_told():
    assert f"| {KEEP_FILES_DAYS} days |" in OPERATIONS
