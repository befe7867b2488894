import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, ROOT / "scripts/make-dist.py", "--wheel", folder]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))
