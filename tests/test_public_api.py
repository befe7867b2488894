"""The public names: `kesin` exports them, and the guides and examples import nothing else."""

import ast
import builtins
import keyword
import pkgutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import kesin
from tests.docs.pages import PAGES, ROOT, blocks
from tests.tables import table

EXAMPLES = ROOT / "examples"

PUBLIC: list[str] = kesin.__all__  # type: ignore[attr-defined]  # made of the stub


def homes() -> list[tuple[str, str]]:
    """Each name that type checkers read, and its module."""
    stub = ast.parse(Path(kesin.__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    assert imports == stub.body
    return [(alias.name, str(node.module)) for node in imports for alias in node.names]


def sources() -> Iterator[tuple[str, str]]:
    """The Python code of guides and examples, and the file it is in."""
    for path in sorted(EXAMPLES.rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text("utf-8")
    for page in [*PAGES, ROOT / "README.md"]:
        for block in blocks(page):
            if block.language == "python" and page.parent.name != "reference":  # signatures
                yield str(page.relative_to(ROOT)), block.text


def deep_imports(text: str) -> Iterator[tuple[str, str]]:
    """Each name that the code imports from a module inside `kesin`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("kesin."):
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((one.name, "") for one in node.names if one.name.startswith("kesin."))


def test_every_name_is_listed_once():
    names = Counter(name for name, _ in homes() if name != "__version__")
    assert [name for name, count in names.items() if count > 1] == []
    assert Counter(PUBLIC) == names


@table("name", PUBLIC)
def test_the_name_is_the_one_of_its_module(name):
    assert getattr(kesin, name) is getattr(sys.modules[dict(homes())[name]], name)


def test_no_name_hides_a_module_or_a_word_of_python():
    modules = {module.name for module in pkgutil.iter_modules(kesin.__path__)}
    taken = {*modules, *dir(builtins), *keyword.kwlist, *keyword.softkwlist}
    assert taken.isdisjoint(PUBLIC)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'kesin' has no attribute 'nonsense'"):
        _ = kesin.nonsense  # type: ignore[attr-defined]


def test_guides_and_examples_import_from_kesin_and_kesin_testing_only():
    private = [
        (where, module, name)
        for where, text in sources()
        for module, name in deep_imports(text)
        if module != "kesin.testing" or name in PUBLIC
    ]
    assert private == []
