"""Build the sdist into a folder, and the wheel of that sdist: what is published can be built again.

With ``--wheel`` only the wheel, right of the sources. The backend is called as pip would call it,
and needs no network.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from hatchling.build import build_sdist, build_wheel

ROOT = Path(__file__).parents[1]


def wheel_of_sdist(sdist: Path, folder: Path) -> None:
    """Unpack it elsewhere, and build from what is there alone."""
    with tempfile.TemporaryDirectory() as room:
        shutil.unpack_archive(sdist, room)
        os.chdir(Path(room, sdist.name.removesuffix(".tar.gz")))
        build_wheel(str(folder))
        os.chdir(ROOT)


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
        wheel_of_sdist(folder / build_sdist(str(folder)), folder)


if __name__ == "__main__":
    main()
