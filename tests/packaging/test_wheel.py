"""The wheel: its contents, its metadata, and its installation as the pages describe it."""

import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from email import message_from_bytes
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kesin import __version__
from kesin.foundation.extras import LIBRARIES, PURPOSES
from tests.cli.programs import Programs
from tests.docs.pages import ROOT, blocks
from tests.docs.shell import run
from tests.web.serving import own_settings, serve

INFO = f"kesin-{__version__}.dist-info"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
NOT_FOR_USERS = {"all", "dev", "docs"}
# Libraries are left out, nothing is downloaded, and the build backend is the installed one.
PIP = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_COMPILE": "1", "PIP_UPGRADE": "1"}
PIP |= {"PIP_NO_BUILD_ISOLATION": "0"}  # 0: not isolated
VENV = ("docs/quickstart.md", "python3 -m venv")
VENV_TR = ("docs/baslangic.md", "python3 -m venv")
COURIER = ("docs/tutorial.md", "pip install ./examples/courier")
DELIVERY = ("docs/tutorial.md", "curl localhost:8000")
INSTALLED = {VENV, VENV_TR, COURIER, DELIVERY}  # the blocks that are typed here


def source_files() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/kesin"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return {path.removeprefix("src/") for path in listed if (ROOT / path).exists()}


@pytest.fixture(scope="module")
def files(wheel) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(files):
    sources = source_files()
    assert len([name for name in sources if not name.endswith(".py")]) > 150
    assert {name for name in files if not name.startswith(INFO)} == sources
    changed = [name for name in sources if (ROOT / "src" / name).read_bytes() != files[name]]
    assert changed == []


def test_the_metadata_names_the_version_the_licence_and_the_command(files):
    metadata = message_from_bytes(files[f"{INFO}/METADATA"])
    assert (metadata["Name"], metadata["Version"]) == ("kesin", __version__)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    for name in metadata.get_all("License-File", []):
        assert files[f"{INFO}/licenses/{name}"] == (ROOT / name).read_bytes()
    entry_points = files[f"{INFO}/entry_points.txt"].decode().split()
    assert entry_points == ["[console_scripts]", "kesin", "=", "kesin.cli:main"]


def test_the_extra_all_has_every_extra_for_users():
    (everything,) = EXTRAS["all"]
    assert Requirement(everything).extras == EXTRAS.keys() - NOT_FOR_USERS


def test_each_extra_is_known_with_its_libraries():
    """So that the message about a missing library names the right extra."""
    modules: dict[str, set[str]] = {}  # by distribution
    for module, distributions in packages_distributions().items():
        for name in distributions:
            modules.setdefault(canonicalize_name(name), set()).add(module)
    assert LIBRARIES.keys() == PURPOSES.keys() == EXTRAS.keys() - NOT_FOR_USERS
    for extra, libraries in LIBRARIES.items():
        requirements = {Requirement(text) for text in EXTRAS[extra]}
        names = {str(canonicalize_name(each.name)) for each in requirements} - {"kesin"}
        if any(requirement.extras == {"web"} for requirement in requirements):
            names -= {canonicalize_name(Requirement(text).name) for text in EXTRAS["web"]}
        if extra == "postgres":  # an extra of its library brings the pool
            names |= {"psycopg-pool"}
        for library in libraries:
            assert any(library in modules[name] for name in names), (extra, library)
        for name in names:
            assert modules[name] & set(libraries), (extra, name)


@pytest.fixture
def target(tmp_path, monkeypatch) -> Path:
    """The folder into which pip installs from now on."""
    folder = tmp_path / "installed"
    for name, value in {**PIP, "PIP_TARGET": str(folder)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", sysconfig.get_path("purelib"))
    path = [str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    return folder


def text_of(place: tuple[str, str]) -> str:
    page, begin = place
    return next(block.text for block in blocks(ROOT / page) if block.text.startswith(begin))


def commands_of(place: tuple[str, str]) -> list[str]:
    return [line.partition("  #")[0].rstrip() for line in text_of(place).splitlines()]


def test_both_quick_starts_install_with_the_same_commands():
    assert commands_of(VENV) == commands_of(VENV_TR)


@pytest.mark.parametrize("built", ["here", pytest.param("by pip", marks=pytest.mark.long)])
def test_kesin_is_installed_as_the_quick_start_says(built, target, tmp_path, wheel):
    """The short form installs the wheel of the other tests, once, in an environment without pip."""
    venv, install = commands_of(VENV)
    install_more = install.replace("[web]", "[web,postgres]")
    pages = [(ROOT / page).read_text("utf-8") for page, _ in (VENV, VENV_TR)]
    assert all(f"`{install_more}`" in page for page in pages)
    assert {"web", "postgres"} <= EXTRAS.keys()
    if built == "here":
        venv = venv.replace("-m venv ", "-m venv --without-pip ")
        install, install_more = install.partition("'.")[0] + str(wheel), ""
    run(f"{venv}\n{install}\n{install_more}")
    assert (target / "kesin" / "py.typed").exists()
    assert (target / "bin" / "kesin").exists()
    assert (tmp_path / "kesin-env" / "bin" / "activate").exists()


def test_the_courier_is_installed_and_accepts_the_delivery_of_the_tutorial(target, tmp_path, monkeypatch):
    run(text_of(COURIER))
    own_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(target))
    with Programs(tmp_path) as programs, serve(programs, tmp_path, "--no-workers") as served:
        assert programs.run("site", "add", "ankara").code == 0
        monkeypatch.setenv("KEY", served.key)
        send = text_of(DELIVERY).replace("localhost:8000", served.address)
        assert '"result":"inserted"' in run(send, tmp_path)
        assert '"result":"duplicate"' in run(send, tmp_path)
