"""A workload's advice is checked when it is read."""

import sys
from pathlib import Path

import pytest

from kesin.workloads.common.advice import AdviceTexts

GENERAL = """
[general]
who = "you"
en.means = "It failed."
en.act = "Look."
tr.means = "Olmadı."
tr.act = "Bakın."
"""
GOOD = """
who = "us"
en.means = "Broken."
en.act = "Mend it."
tr.means = "Bozuk."
tr.act = "Onarın."
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an importable package."""
    folder = tmp_path / "advised_package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, folder.name, raising=False)
    return folder


def texts(package: Path, *parts: str) -> AdviceTexts:
    (package / "advice.toml").write_text("\n".join((GENERAL, *parts)), "utf-8")
    return AdviceTexts(package.name)


def test_a_code_has_its_own_text_and_any_other_the_general_one(package: Path):
    advice = texts(package, "[BROKEN]", GOOD)
    assert advice.codes == ("BROKEN",)
    assert advice.find("BROKEN", language="tr").act == "Onarın."
    assert advice.find("NEW").who == "you"
    assert advice.find("NEW").next == ""


def test_another_name_of_a_text_that_is_not_there_is_refused(package: Path):
    advice = texts(package, "[ALIAS]", 'same_as = "NOWHERE"')
    with pytest.raises(KeyError, match="NOWHERE"):
        advice.find("ALIAS")
