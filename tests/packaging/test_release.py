"""What ``make dist`` makes: files that can be made again, and what they are made of."""

import hashlib
import json
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from kesin import __version__
from scripts import provenance
from tests.docs.pages import ROOT
from tests.packaging.conftest import make_dist

STEM = f"kesin-{__version__}"


@pytest.fixture(scope="module", params=["once", pytest.param("twice", marks=pytest.mark.long)])
def dist(request, tmp_path_factory, wheel) -> Path:
    """What `make dist` makes; the short form builds once and copies that where it would build again."""
    folder = tmp_path_factory.mktemp("dist")
    if request.param == "twice":
        subprocess.run([sys.executable, ROOT / "scripts/make-dist.py", folder], check=True)
        return folder
    built: list[Path] = []
    build_both = make_dist.build_both

    def build_once(room: Path) -> list[Path]:
        if built:
            return [Path(shutil.copy(file, room)) for file in built]
        built.extend(build_both(room))
        return built

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        patch.setattr(make_dist, "build_both", build_once)
        make_dist.build_release(folder)
    return folder


def test_what_cannot_be_built_again_is_refused(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    texts = iter(("first", "second"))

    def build_both(folder):
        file = folder / f"{STEM}.tar.gz"
        file.write_text(next(texts))
        return [file, file]

    monkeypatch.setattr(make_dist, "build_both", build_both)
    with pytest.raises(SystemExit, match=r"tar\.gz is not reproducible: two builds of it differ"):
        make_dist.build_release(tmp_path)


def test_a_release_is_two_files_what_they_are_made_of_and_their_digests(dist, wheel):
    names = {f"{STEM}.tar.gz", f"{STEM}-py3-none-any.whl", f"{STEM}.cdx.json"}
    assert {file.name for file in dist.iterdir()} == {*names, "SHA256SUMS"}
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, check=True)
    # Built from the sdist, it is the wheel that the sources give elsewhere.
    assert (dist / wheel.name).read_bytes() == wheel.read_bytes()


def test_every_library_and_copied_script_is_on_the_bill_of_materials_with_its_licence(dist, wheel):
    text = (dist / f"{STEM}.cdx.json").read_text("utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert text == provenance.bill_of_materials(__version__, wheel)  # nothing of it is by chance
    bill = json.loads(text)
    about = bill["metadata"]["component"]
    assert about["hashes"][0]["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    parts = {part["name"]: part for part in bill["components"]}
    assert parts["pydantic"]["version"] == version("pydantic")  # needed by all
    assert "psycopg-binary" in parts  # by an extra of a library of an extra
    assert not {"pytest", "kesin", "axe-core"} & parts.keys()
    htmx = parts["htmx.org"]
    assert htmx["purl"].startswith("pkg:npm/htmx.org@")
    assert [file["name"] for file in htmx["components"]] == ["htmx.min.js"]
    assert all(part["licenses"] for part in parts.values())


def test_a_licence_is_accepted_if_one_choice_of_it_is():
    accepted = ("MIT", "GPL-2.0-or-later OR MPL-1.1", "Apache-2.0 WITH LLVM-exception")
    refused = ("AGPL-3.0-only", "MIT AND GPL-3.0-only")
    assert list(map(provenance.is_accepted, accepted + refused)) == [True] * 3 + [False] * 2


def test_a_library_whose_licence_is_not_accepted_or_not_named_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(provenance, "ACCEPTED", provenance.ACCEPTED - {"LGPL-3.0-only"})
    with pytest.raises(provenance.RefusedLicence, match=r"psycopg: LGPL-3\.0-only"):
        provenance.checked_licences(provenance.libraries("kesin", "postgres"))
    monkeypatch.setattr(provenance, "NOT_IN_METADATA", {})
    with pytest.raises(provenance.RefusedLicence, match="saxonche: no licence"):
        provenance.checked_licences(provenance.libraries("kesin", "einvoice"))


def test_a_copied_script_that_was_changed_stops_the_build(monkeypatch, tmp_path):
    (folder,) = provenance.COPIES[:1]
    for name in ("README.md", *(file.name for file in folder.glob("*.*s"))):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    monkeypatch.setattr(provenance, "COPIES", (tmp_path,))
    assert len(list(provenance.copies())) > 1
    (tmp_path / "htmx.min.js").write_text("alert()")
    with pytest.raises(SystemExit, match=r"htmx\.min\.js is not the file that was copied"):
        list(provenance.copies())
