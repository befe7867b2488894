import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import ROOT


def _script(name: str) -> ModuleType:
    """A script, as a module; nothing is written beside it."""
    spec = spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_dist = _script("make-dist")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(sys, "argv", ["make-dist", "--wheel", str(folder)])
        make_dist.main()
    return next(folder.glob("*.whl"))
