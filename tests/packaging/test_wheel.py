"""What is in the wheel, and what it says about itself."""

import subprocess
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

ROOT = Path(__file__).parents[2]
INFO = f"kesin-{__version__}.dist-info"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
FOR_OURSELVES = {"all", "dev", "docs"}


def source_files() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/kesin"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return {one.removeprefix("src/") for one in listed if (ROOT / one).exists()}


@pytest.fixture(scope="module")
def inside(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(inside):
    ours = source_files()
    assert len([name for name in ours if not name.endswith(".py")]) > 150
    assert {name for name in inside if not name.startswith(INFO)} == ours
    changed = [name for name in ours if (ROOT / "src" / name).read_bytes() != inside[name]]
    assert changed == []


def test_the_wheel_says_what_it_is(inside):
    told = message_from_bytes(inside[f"{INFO}/METADATA"])
    assert (told["Name"], told["Version"]) == ("kesin", __version__)
    assert (told["License-Expression"], told["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert told["Description-Content-Type"] == "text/markdown"
    assert told.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    for name in told.get_all("License-File"):
        assert inside[f"{INFO}/licenses/{name}"] == (ROOT / name).read_bytes()
    assert inside[f"{INFO}/entry_points.txt"].decode().split() == [
        *("[console_scripts]", "kesin", "=", "kesin.cli:main")
    ]


def test_everything_that_users_install_is_in_all():
    (everything,) = EXTRAS["all"]
    assert Requirement(everything).extras == EXTRAS.keys() - FOR_OURSELVES


def test_each_extra_is_known_with_the_libraries_it_brings():
    """So that a missing one is told with the right command."""
    dists: dict[str, set[str]] = {}
    for module, names in packages_distributions().items():
        for name in names:
            dists.setdefault(canonicalize_name(name), set()).add(module)
    assert LIBRARIES.keys() == PURPOSES.keys() == EXTRAS.keys() - FOR_OURSELVES
    for extra, libraries in LIBRARIES.items():
        wanted = {Requirement(one) for one in EXTRAS[extra]}
        names = {canonicalize_name(one.name) for one in wanted} - {"kesin"}
        if any(one.extras == {"web"} for one in wanted):
            names -= {canonicalize_name(Requirement(one).name) for one in EXTRAS["web"]}
        if extra == "postgres":  # its own extras bring the pool
            names |= {"psycopg-pool"}
        for library in libraries:
            assert any(library in dists[name] for name in names), (extra, library)
        for name in names:
            assert dists[name] & set(libraries), (extra, name)
