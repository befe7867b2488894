"""Build a release: the sdist, the wheel of that sdist, what they are made of, and their digests.

Everything is built twice, and the second time must give the same bytes: anyone can check that a
published file came from these sources. With ``--wheel`` only the wheel is built, right of the
sources. The backend is called as pip would call it, and needs no network.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from hatchling.build import build_sdist, build_wheel

ROOT = Path(__file__).parents[1]


def wheel_of_sdist(sdist: Path, folder: Path) -> Path:
    """Unpack it elsewhere, and build from what is there alone."""
    with tempfile.TemporaryDirectory() as room:
        shutil.unpack_archive(sdist, room)
        os.chdir(Path(room, sdist.name.removesuffix(".tar.gz")))
        wheel = folder / build_wheel(str(folder))
        os.chdir(ROOT)
    return wheel


def build_both(folder: Path) -> list[Path]:
    """Build the sdist and its wheel."""
    sdist = folder / build_sdist(str(folder))
    return [sdist, wheel_of_sdist(sdist, folder)]


def build_release(folder: Path) -> None:
    """Build both twice, and write what describes them beside them."""
    from provenance import bill_of_materials

    sdist, wheel = built = build_both(folder)
    with tempfile.TemporaryDirectory() as room:
        for one, again in zip(built, build_both(Path(room)), strict=True):
            if one.read_bytes() != again.read_bytes():
                sys.exit(f"{one.name} is not reproducible: two builds of it differ")
    stem = sdist.name.removesuffix(".tar.gz")
    materials = folder / f"{stem}.cdx.json"
    materials.write_text(bill_of_materials(stem.rpartition("-")[2], wheel), "utf-8")
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in (*built, materials)]
    (folder / "SHA256SUMS").write_text("".join(lines), "utf-8")
    print("".join(lines), end="")


def main() -> None:
    """Build what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the files go")
    parser.add_argument("--wheel", action="store_true", help="only the wheel, of the sources")
    asked = parser.parse_args()
    folder = asked.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)  # where the backend looks for the project
    if asked.wheel:
        build_wheel(str(folder))
    else:
        build_release(folder)


if __name__ == "__main__":
    main()
