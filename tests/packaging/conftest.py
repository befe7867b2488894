import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this very tree."""
    folder = tmp_path_factory.mktemp("wheel")
    make = [sys.executable, ROOT / "scripts/make-dist.py", "--wheel", folder]
    subprocess.run(make, check=True)
    return next(folder.glob("*.whl"))
