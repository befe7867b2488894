"""What a release is made of: its libraries, their licences, and the scripts it carries as copies.

A file of ``make dist`` describes it as CycloneDX. Run as a script, for ``make audit``, it compares
the copies with what npm has, and looks the libraries up among known vulnerabilities.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from license_expression import LicenseExpression, get_spdx_licensing  # type: ignore[import-untyped]
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[1]
COPIES: Final = (ROOT / "src/kesin/web/static/vendor", ROOT / "tests/browser/vendor")
PUBLISHED: Final = 1_580_601_600  # as hatchling dates files, unless SOURCE_DATE_EPOCH is set

# Nothing here puts a program that imports the library, unchanged, under its own terms.
ACCEPTED: Final = frozenset(
    """
    0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause CC0-1.0 ISC LGPL-2.1-or-later LGPL-3.0-only
    LGPL-3.0-or-later LicenseRef-Public-Domain MIT MIT-0 MIT-CMU MPL-1.1 MPL-2.0 PSF-2.0 Zlib
    """.split()  # noqa: SIM905
)
CLASSIFIERS: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",  # of each library here that says no more
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.1-or-later",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 1.1 (MPL 1.1)": "MPL-1.1",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Public Domain": "LicenseRef-Public-Domain",
    "Python Software Foundation License": "PSF-2.0",
}
NOT_IN_METADATA: Final = {"saxonche": "MPL-2.0"}  # its wheel has no text; Saxonica says so of HE
SPDX: Final = get_spdx_licensing()
_COPY = re.compile(r"^- (\S+) (\S+) \(([\w.-]+)((?:.|\n  )*)", re.MULTILINE)


class RefusedLicence(SystemExit):
    """A library has no licence, or one that is not accepted."""


class Copy(NamedTuple):
    """Files of an npm package that are in this repository, with the digests written beside them."""

    folder: Path
    package: str
    version: str
    licence: str
    digests: dict[str, str]  # by file name


def libraries(of: str = "kesin", *extras: str) -> list[Distribution]:
    """Everything that an installation with these extras brings here, but the package itself."""
    asked: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(of), extra) for extra in ("", *extras)]
    found: dict[str, Distribution] = {}
    while waiting:
        name, extra = one = waiting.pop()
        if one in asked:
            continue
        asked.add(one)
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            sys.exit(f"{name} is not installed: run `make install`")
        for text in found[name].requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(needed.name), e) for e in ("", *needed.extras)]
    return [found[name] for name in sorted(found) if name != canonicalize_name(of)]


def licence_of(library: Distribution) -> str:
    """The SPDX expression of its metadata; several classifiers are a choice."""
    data, name = library.metadata, canonicalize_name(library.name)
    for text in (*data.get_all("License-Expression", []), *data.get_all("License", [])):
        if len(text) < 100 and not SPDX.validate(text).errors:  # noqa: PLR2004  # no full text
            return str(SPDX.parse(text))
    said = [line.rpartition(" :: ")[2] for line in data.get_all("Classifier", [])]
    named = [CLASSIFIERS[one] for one in said if one in CLASSIFIERS]
    if named or name in NOT_IN_METADATA:
        return " OR ".join(named) or NOT_IN_METADATA[name]
    raise RefusedLicence(f"{name}: no licence in its metadata that we know")


def is_accepted(expression: str) -> bool:
    """Whether at least one choice of an expression consists of accepted licences."""

    def holds(one: LicenseExpression) -> bool:
        if one.isliteral:
            return str(one).split(" WITH ")[0] in ACCEPTED
        return (any if isinstance(one, SPDX.OR) else all)(holds(part) for part in one.args)

    return holds(SPDX.parse(expression))


def checked_licences(found: list[Distribution]) -> dict[str, str]:
    """The licence of each library; refused are all that are not accepted, by name."""
    licences = {library.name: licence_of(library) for library in found}
    refused = [f"{name}: {text}" for name, text in licences.items() if not is_accepted(text)]
    if refused:
        raise RefusedLicence("; ".join(refused))
    return licences


def copies() -> Iterator[Copy]:
    """The vendored packages, as the pages beside them name them; each file must be as written."""
    for folder in COPIES:
        page = (folder / "README.md").read_text("utf-8")
        lines = re.findall(r"^([0-9a-f]{64})  (\S+)$", page, re.MULTILINE)
        digests = {name: digest for digest, name in lines}
        for name, digest in digests.items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                sys.exit(f"{folder / name} is not the file that was copied: its digest differs")
        for package, version, licence, rest in _COPY.findall(page):
            named = re.findall(r"`([^`]+)`", rest)
            yield Copy(folder, package, version, licence, {name: digests[name] for name in named})


def bill_of_materials(version: str, wheel: Path) -> str:
    """The CycloneDX document of a wheel, as JSON; the same wheel has the same document."""
    found, bom = libraries("kesin", "all"), Bom()
    licences = checked_licences(found)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    itself = _part("pypi", "kesin", version, "Apache-2.0", hashes=[_sha256(digest)])
    bom.metadata.component = itself
    published = int(os.environ.get("SOURCE_DATE_EPOCH", PUBLISHED))
    bom.metadata.timestamp = datetime.fromtimestamp(published, UTC)
    bom.serial_number = uuid5(NAMESPACE_URL, digest)
    for one in found:
        name = canonicalize_name(one.name)
        bom.components.add(_part("pypi", name, one.version, licences[one.name]))
    for copy in copies():
        if copy.folder == COPIES[0]:  # the others are for tests
            files = [
                Component(name=n, type=ComponentType.FILE, bom_ref=n, hashes=[_sha256(value)])
                for n, value in copy.digests.items()
            ]
            bom.components.add(_part("npm", copy.package, copy.version, copy.licence, components=files))
    bom.register_dependency(itself, bom.components)
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"


def _part(home: str, name: str, version: str, licence: str, **more: Any) -> Component:
    purl, licences = PackageURL(home, None, name, version), LicenseFactory()
    stated = [licences.make_from_string(licence)]
    return Component(name=name, version=version, bom_ref=name, purl=purl, licenses=stated, **more)


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


def compare_copies() -> list[str]:
    """What differs from the packages on npm."""
    if not shutil.which("npm"):
        sys.exit("npm is not installed: without it, copied scripts cannot be compared")
    wrong = []
    for copy in copies():
        name = f"{copy.package}@{copy.version}"
        with tempfile.TemporaryDirectory() as room:
            command = ["npm", "pack", "--silent", "--ignore-scripts", name]
            subprocess.run(command, cwd=room, check=True, stdout=subprocess.DEVNULL)
            (archive,) = Path(room).iterdir()
            with tarfile.open(archive) as packed:
                members = filter(None, map(packed.extractfile, packed))
                published = {hashlib.sha256(file.read()).hexdigest() for file in members}
        wrong += [f"{name}: {n}" for n, digest in copy.digests.items() if digest not in published]
        print(f"{name}: {', '.join(copy.digests)}")
    return wrong


def main() -> None:
    """Audit what a release is made of; this needs a network."""
    found = libraries("kesin", "all")
    checked_licences(found)
    if wrong := compare_copies():
        sys.exit("not as published on npm: " + "; ".join(wrong))
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as pinned:
        pinned.writelines(f"{library.name}=={library.version}\n" for library in found)
        pinned.flush()
        options = ["--strict", "--no-deps", "--disable-pip", "-r", pinned.name]
        audit = [sys.executable, "-m", "pip_audit", *options]
        sys.exit(subprocess.run(audit, check=False).returncode)


if __name__ == "__main__":
    main()
